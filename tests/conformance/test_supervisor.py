"""Supervisors: a socket that is passed, readiness, the watchdog, a stop that ends in time; and Unix sockets."""
import json
import os
import socket
import stat
import subprocess
import sys
import time

import httpx
import pytest

from support import CHAT, Api


PASS_SOCKET = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture
def start(build_dir, source_dir):
    """`lily serve` with a changed environment and further descriptors."""
    running = []

    def run(*options, env=None, listener=None):
        argv = [str(build_dir / "lily"), "serve", "--model", str(source_dir / "models" / "demo"), *options]

        if listener:    # as descriptor 3, and only the process itself knows its id
            argv = [sys.executable, "-c", PASS_SOCKET, str(listener.fileno()), *argv]
        p = subprocess.Popen(argv, env={**os.environ, **(env or {})}, stderr=subprocess.PIPE, text=True,
                             pass_fds=[listener.fileno()] if listener else [])
        running.append(p)
        return p

    yield run
    for p in running:
        if p.poll() is None:
            p.kill()
        p.wait()


@pytest.fixture
def notified(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(str(tmp_path / "notify"))
        s.settimeout(20)
        yield s


def wait_ready(client):
    end = time.monotonic() + 20
    while True:
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.HTTPError:
            pass
        assert time.monotonic() < end
        time.sleep(0.02)


# ---------------------------------------------------------------- systemd


def test_notify(start, notified, tmp_path):
    """systemd would start what depends on the server before it answers, or kill it as hung."""
    p = start("--port", "0", env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"})
    seen = []
    while "READY=1" not in "\n".join(seen):
        seen.append(notified.recv(4096).decode())
    begun, beats = time.monotonic(), 0
    while beats < 5:
        beats += notified.recv(4096) == b"WATCHDOG=1"
    assert 0.2 < time.monotonic() - begun < 5
    p.terminate()
    while "STOPPING=1" not in seen[-1]:
        seen.append(notified.recv(4096).decode())
    assert p.wait(20) == 0


def test_socket_activation(start, notified, tmp_path):
    """A restart would refuse clients."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            p = start(env={"LISTEN_FDS": "1", "NOTIFY_SOCKET": str(tmp_path / "notify")}, listener=listener)
            assert client.get("/v1/models").status_code in (200, 503)    # waits in the socket, is not refused
            wait_ready(client)
            assert client.get("/v1/models", headers={"Host": "evil.example"}).status_code == 403
        p.terminate()
        assert p.wait(20) == 0
        assert "passed" in p.stderr.read()
        socket.create_connection(("127.0.0.1", port)).close()    # the supervisor's copy still listens


def test_passed_sockets_are_guarded_too(start):
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        p = start(env={"LISTEN_FDS": "1"}, listener=listener)
        assert p.wait(20) == 2 and "--no-api-key" in p.stderr.read()


def test_what_is_not_for_us_is_left_alone(start):
    p = start("--port", "0", env={"LISTEN_FDS": "1", "LISTEN_PID": "1", "NOTIFY_SOCKET": "/no/such/socket"})
    line = p.stderr.readline()
    assert "listening on http://127.0.0.1:" in line
    p.terminate()
    assert p.wait(20) == 0


def test_several_sockets_are_refused(start):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        p = start(env={"LISTEN_FDS": "2"}, listener=listener)
        assert p.wait(20) == 2 and "2 sockets" in p.stderr.read()


def test_no_listener(start):
    with socket.socket() as plain:
        plain.bind(("127.0.0.1", 0))
        p = start(env={"LISTEN_FDS": "1"}, listener=plain)
        assert p.wait(20) == 2 and "no listening socket" in p.stderr.read()


# ---------------------------------------------------------------- Unix sockets


def over(path):
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://any-name", timeout=60)


def test_unix_socket(start, tmp_path):
    """A web server in front, or another user's process, would need or get a port."""
    path = tmp_path / "lily.sock"
    p = start("--unix-socket", str(path))
    with over(path) as client:
        wait_ready(client)
        assert stat.S_ISSOCK(path.stat().st_mode) and stat.S_IMODE(path.stat().st_mode) == 0o600
        r = client.post(CHAT, json={"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})
        assert r.status_code == 200
        q = start("--unix-socket", str(path))
        assert q.wait(20) == 7 and "taken" in q.stderr.read()
        assert client.get("/health").status_code == 200
    p.terminate()
    assert p.wait(20) == 0 and not path.exists()


def test_what_is_in_the_way_of_a_unix_socket(start, tmp_path):
    path = tmp_path / "lily.sock"
    p = start("--unix-socket", str(path))
    with over(path) as client:
        wait_ready(client)
        p.kill()
        p.wait()
        assert path.exists()    # a dead server's
        p = start("--unix-socket", str(path))
        wait_ready(client)
    p.terminate()
    assert p.wait(20) == 0
    path.write_text("precious")
    p = start("--unix-socket", str(path))
    assert 0 < p.wait(20) < 126 and path.read_text() == "precious"
    p = start("--unix-socket", str(path), "--port", "1")
    assert p.wait(20) == 2 and "--port" in p.stderr.read()


# ---------------------------------------------------------------- the end


def answering(api):
    s = api.begin(api.body("hi", stream=True, max_tokens=1000))
    end = time.monotonic() + 20
    while api.get("/health").json()["in_flight"] == 0:
        assert time.monotonic() < end
        time.sleep(0.02)
    return s


SLOW = [{"repeat": {"piece": "a", "count": 5000}, "delay_ms": 20}]


@pytest.fixture
def slow(spawn, tmp_path):
    def run(*options):
        script = tmp_path / "replies.json"
        script.write_text(json.dumps({"replies": SLOW}))
        p = spawn("--script", str(script), *options)
        return p, answering(Api(p.base))
    return run


def test_a_stop_has_an_end(slow):
    """An endless answer would hold up a restart until the supervisor kills the process, and its cache with it."""
    p, s = slow("--stop-seconds", "0.5")
    begun = time.monotonic()
    p.terminate()
    assert p.popen.wait(20) == 0
    assert 0.4 < time.monotonic() - begun < 10
    s.close()


def test_a_second_signal_ends_at_once(slow):
    p, s = slow("--stop-seconds", "600")
    p.terminate()
    time.sleep(0.5)
    assert p.popen.poll() is None
    p.terminate()
    begun = time.monotonic()
    assert p.popen.wait(20) == 0
    assert time.monotonic() - begun < 8
    s.close()
