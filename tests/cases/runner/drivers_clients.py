"""Clients with bad manners, and the server looked at from outside while it is busy."""

import json
import socket
import threading
import time

from .checks import judge
from .drivers import driver
from .exchange import CHAT, exchange, raw_exchange
from .outcome import Fail
from .process import Server
from .request import Ctx, Run, alive, build, modes, reply_of, words


def wait_idle(srv, limit=10.0):
    t = time.monotonic()
    while time.monotonic() - t < limit:
        if srv.in_flight() == 0:
            return time.monotonic() - t
        time.sleep(0.02)
    return limit


@driver
def do_vanish(case, cfg):
    """The client closes its socket: after `events` events, or after `after_s` seconds."""
    inp = case["input"]
    req = build(cfg, inp)
    with Server(cfg, {"replies": [reply_of(inp)]}, server=inp.get("server")) as srv:
        n, body = inp.get("events"), json.dumps(req).encode()
        s = socket.create_connection(("127.0.0.1", srv.port), timeout=30)
        s.sendall(
            b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % (CHAT.encode(), len(body))
            + body
        )
        if n:
            got = b""
            while got.count(b"data:") < n:
                d = s.recv(4096)
                if not d:
                    break
                got += d
        else:
            time.sleep(inp.get("after_s", 1.0))
        s.close()
        t = time.monotonic()
        while time.monotonic() - t < 30 and not (srv.records() and srv.records()[0].get("ended")):
            time.sleep(0.02)
        busy = time.monotonic() - t
        x = srv.post(
            CHAT,
            build(cfg, {"messages": [{"role": "user", "content": "control request 7f3a"}]}),
            {"x-lily-reply": str(srv.control)},
            timeout=150,
        )
        nxt = time.monotonic() - t
        rec = srv.records()[0]
        x.record = dict(rec)
        judge(
            Ctx(case, cfg, [Run(0, "", [x])], srv, next_s=nxt, busy_s=busy, ended=rec.get("ended")),
            case["judge"],
        )
        alive(srv)


@driver
def do_second_while_busy(case, cfg):
    """A slow first request; a second one comes while it runs."""
    inp = case["input"]
    with Server(cfg, {"replies": [reply_of(inp), {"text": "second"}]}) as srv:
        out = {}
        th = threading.Thread(
            target=lambda: out.update(x=srv.post(CHAT, build(cfg, {}, {"stream": True}), {"x-lily-reply": "0"}))
        )
        th.start()
        time.sleep(0.5)
        x = srv.post(CHAT, build(cfg, {}, {"stream": True}), {"x-lily-reply": "1"})
        th.join()
        ctx = Ctx(case, cfg, [Run(0, "second", [x])], srv)
        judge(ctx, case["judge"])
        alive(srv)


@driver
def do_probe_health(case, cfg):
    """GET /health at an interval while a request runs."""
    inp = case["input"]
    with Server(cfg, {"replies": [reply_of(inp)]}) as srv:
        out, lat, flights, stats = {}, [], [], []
        th = threading.Thread(target=lambda: out.update(x=srv.chat(build(cfg, inp), 0)))
        th.start()
        time.sleep(0.3)
        while th.is_alive():
            t = time.monotonic()
            h = srv.get("/health")
            lat.append(time.monotonic() - t)
            stats.append(h.status)
            flights.append((h.json or {}).get("in_flight"))
            time.sleep(inp.get("every_ms", 200) / 1000)
        judge(
            Ctx(case, cfg, [Run(0, "", [out["x"]])], srv, latency=lat, health=stats[:-1], flights=flights[:-1]),
            case["judge"],
        )


@driver
def do_big_body(case, cfg):
    """Bodies above the limit of the server, with a length and chunked."""
    mib = case["input"]["server"]["max_body_mib"] + 1
    with Server(cfg, {"replies": [{"text": "x"}], "end": "last"}, server=case["input"]["server"]) as srv:
        head = (
            b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n" % CHAT.encode()
        )
        a = raw_exchange(srv.port, [head + b"Content-Length: %d\r\n\r\n" % (mib << 20)], timeout=10)
        part = b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"
        b = raw_exchange(
            srv.port,
            [head + b"Transfer-Encoding: chunked\r\n\r\n"] + [part] * (mib * 16) + [b"0\r\n\r\n"],
            timeout=10,
        )
        ok = build(cfg, {"messages": [{"role": "user", "content": "x" * (2 << 20)}]})
        c = srv.post(CHAT, ok)
        if c.status == 413:
            raise Fail("a body of 2 MB is below the limit", 413)
        judge(Ctx(case, cfg, [Run(0, "length", [a]), Run(1, "chunked", [b])], srv), case["judge"])


@driver
def do_overflow(case, cfg):
    """A prompt longer than the context."""
    with Server(cfg, {"replies": [{"text": "x"}], "end": "last"}, server={"ctx": case["input"]["context"]}) as srv:
        text = words(case["input"]["context"] + 200)
        run = Run(0, "")
        for r in modes(build(cfg, {}, {"messages": [{"role": "user", "content": text}]})):
            run.xs.append(srv.chat(r))
        judge(Ctx(case, cfg, [run], srv), case["judge"])
        alive(srv)


@driver
def do_models(case, cfg):
    n = case["input"]["context"]
    with Server(cfg, {"replies": [{"text": "x"}], "end": "last"}, server={"ctx": n}) as srv:
        x = srv.get("/v1/models")
        judge(Ctx(case, cfg, [Run(0, "", [x])], srv), case["judge"])
        mid = x.json["data"][0]["id"]
        y = srv.get("/v1/models/" + mid)
        if y.status != 200 or y.json.get("id") != mid:
            raise Fail(f"GET /v1/models/{mid} gives that model", y.status)


@driver
def do_metrics(case, cfg):
    with Server(cfg, {"replies": [{"text": "one two", "splits": "char"}], "end": "last"}) as srv:
        xs = [srv.get("/metrics")]
        for _ in range(3):
            srv.chat(build(cfg, {}))
        xs.append(srv.get("/metrics"))
        exchange(srv.port, "DELETE", "/cache")
        xs.append(srv.get("/metrics"))
        judge(Ctx(case, cfg, [Run(i, f"reading {i}", [x]) for i, x in enumerate(xs)], srv), case["judge"])
