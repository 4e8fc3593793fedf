"""Asks a trial server what its HTTP library can see and stand.  Usage: probe.py PROGRAM [ARGS]; prints a table."""

import re
import socket
import struct
import subprocess
import sys
import threading
import time

PORT = 18480


class Server:
    def __init__(self, command):
        self.lines = []
        self.p = subprocess.Popen([command[0], str(PORT), *command[1:]], stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.DEVNULL)
        threading.Thread(target=self.read, daemon=True).start()
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", PORT), 1).close()
                return
            except OSError:
                time.sleep(0.02)

    def read(self):
        for line in self.p.stdout:
            self.lines.append((time.monotonic(), line.split()))

    def memory(self):
        with open(f"/proc/{self.p.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) // 1024

    def stop(self):
        died = self.p.poll()
        self.p.kill()
        self.p.wait()
        return died


def connect(rcvbuf=None):
    s = socket.socket()
    if rcvbuf:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    s.settimeout(8)
    s.connect(("127.0.0.1", PORT))
    return s


def get(path, method="GET", extra=""):
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{extra}\r\n".encode()


def read_all(s, seconds):
    """Everything until the end or the time; (bytes, how it ended)."""
    out, end = b"", time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            s.settimeout(max(0.01, end - time.monotonic()))
            d = s.recv(65536)
            if not d:
                return out, "closed"
            out += d
    except TimeoutError:
        pass
    except OSError as e:
        return out, type(e).__name__
    return out, "open"


def leave(command, path, how):
    """The client goes (or half goes) one second into the request; when does the engine know?"""
    srv = Server(command)
    s = connect()
    s.sendall(get(path))
    time.sleep(1.0)
    if how == "half-close":
        s.shutdown(socket.SHUT_WR)
    elif how == "reset":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    elif how == "pipelined, close":
        s.sendall(get("/"))
        time.sleep(0.2)
        s.close()
    else:
        s.close()
    t = time.monotonic()
    got = read_all(s, 4.5) if how == "half-close" else (b"", "")
    while time.monotonic() - t < 5 and not any(x[1][0] == "gone" for x in srv.lines):
        if srv.p.poll() is not None:
            return f"SERVER DIED, status {srv.stop()}"
        time.sleep(0.01)
    seen = [x[0] - t for x in srv.lines if x[1][0] == "gone"]
    srv.stop()
    text = f"seen after {seen[0] * 1000:.0f} ms" if seen else "never seen in 5 s"
    if how == "half-close":
        text += f"; the client then still read {got[0].count(b'data: a') or got[0].count(b'done')} events, {got[1]}"
    return text


def clock(command):
    srv = Server(command)
    s = connect()
    s.sendall(get("/stream"))
    last, gap, comments, end = time.monotonic(), 0, 0, time.monotonic() + 3.4
    while time.monotonic() < end:
        d = s.recv(4096)
        gap, last = max(gap, time.monotonic() - last), time.monotonic()
        comments += d.count(b": keep-alive")
    srv.stop()
    return f"{comments} comments in 3.4 s, longest silence {gap:.2f} s"


def slow_readers(command):
    srv = Server(command)
    before = srv.memory()
    slow = [connect(4096) for _ in range(64)]
    for s in slow:
        s.sendall(get("/flood"))
    half = [connect() for _ in range(16)]
    for s in half:
        s.sendall(b"GET /flood HTTP/1.1\r\nHos")
    time.sleep(1)
    worst = 0
    for _ in range(20):
        t = time.monotonic()
        s = connect()
        s.sendall(get("/", extra="Connection: close\r\n"))
        read_all(s, 8)
        worst = max(worst, time.monotonic() - t)
    t, s, n = time.monotonic(), connect(), 0
    s.sendall(get("/flood", extra="Connection: close\r\n"))
    while n < 32 << 20 and time.monotonic() - t < 20:
        d = s.recv(1 << 20)
        if not d:
            break
        n += len(d)
    took, after = time.monotonic() - t, srv.memory()
    srv.stop()
    return f"worst GET / {worst * 1000:.0f} ms; fast reader {n >> 20} MiB in {took:.1f} s; memory {before} -> {after} MiB"


def half_header(command, drip):
    srv = Server(command)
    s = connect()
    s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ")
    t = time.monotonic()
    s.settimeout(0.5)
    while time.monotonic() - t < 12:
        try:
            if s.recv(4096) == b"":
                break
        except TimeoutError:
            if drip:
                s.sendall(b"a")
        except OSError:
            break
    took = time.monotonic() - t
    srv.stop()
    return f"dropped after {took:.1f} s" if took < 11.9 else "still there after 12 s"


def exchange(command, data, seconds=2.0):
    srv = Server(command)
    s = connect()
    try:
        for part in data:
            s.sendall(part)
    except OSError:
        pass
    out, how = read_all(s, seconds)
    died = srv.stop()
    if died is not None:
        return f"SERVER DIED, status {died}"
    heads = re.findall(rb"HTTP/1\.[01] (\d+)", out)
    kinds = re.findall(rb"(?i)content-type: *([^\r;]+)", out)
    return f"{b' '.join(heads).decode() or 'nothing'} {b' '.join(kinds).decode()} ({how})"


def main():
    c = sys.argv[1:]
    for path in ("/wait", "/stream"):
        for how in ("close", "reset", "half-close", "pipelined, close"):
            print(f"{path:8} {how:18} {leave(c, path, how)}", flush=True)
    print("keep-alive by clock         ", clock(c), flush=True)
    print("64 slow readers             ", slow_readers(c), flush=True)
    print("half a header, silent       ", half_header(c, False), flush=True)
    print("half a header, dripping     ", half_header(c, True), flush=True)
    big = b"Content-Length: %d\r\n" % (2 << 20)
    for name, data in {
        "not HTTP": [b"\x16\x03\x01 hello\r\n\r\n"],
        "header of 100 KB": [b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ", b"a" * 100000, b"\r\n\r\n"],
        "body too large, length": [b"POST / HTTP/1.1\r\nHost: x\r\n" + big + b"\r\n", b"a" * (2 << 20)],
        "body too large, chunked": [b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"] +
                                   [b"10000\r\n" + b"a" * 65536 + b"\r\n"] * 32 + [b"0\r\n\r\n"],
        "length and chunked": [b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
        "two lengths": [b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 2\r\n\r\nabcd"],
        "negative length": [b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"],
        "100-continue": [b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"],
        "HEAD": [get("/", "HEAD")],
        "OPTIONS": [get("/", "OPTIONS")],
        "unknown method": [get("/", "BREW")],
        "three pipelined": [get("/") * 3],
        "pipelined after a wait": [get("/wait") + get("/")],
    }.items():
        print(f"{name:28} {exchange(c, data, 6 if 'wait' in name else 2)}", flush=True)


main()
