"""Clients that leave, wait, or are many; replies come from a script, so that nothing depends on a machine's speed."""
import threading
import time

from support import check_chat, check_stream

SLOW = {"repeat": {"piece": " a", "count": 5000}, "delay_ms": 20}
LONG_PROMPT = {"text": "Hello.", "prefill_ms": 60000}


def until(condition, bound=10):
    end = time.monotonic() + bound
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def taken(server, n=0):
    return server.get("/script").json()["requests"][n]


def test_leaving_a_stream_stops_it(scripted):
    """The engine would go on for a user who pressed stop."""
    server = scripted([SLOW, {"text": "next"}])
    with server.begin(server.body("hi", stream=True, max_tokens=5000)) as s:
        s.recv(1)
    assert server.seconds_until_idle() < 1
    assert taken(server)["ended"] == "cancel" and taken(server)["tokens"] < 60
    assert server.say("hi") == "next"


def test_leaving_without_a_stream_stops_it(scripted):
    """A killed script would keep the engine busy, since nothing is written that could fail."""
    server = scripted([SLOW])
    with server.begin(server.body("hi", max_tokens=5000)):
        until(lambda: server.in_flight() == 1)
    assert server.seconds_until_idle() < 1
    assert taken(server)["ended"] == "cancel"


def test_leaving_while_the_prompt_is_read(scripted):
    """A long prompt would be read to its end for nobody."""
    for stream in (False, True):
        server = scripted([LONG_PROMPT])
        with server.begin(server.body("hi", stream=stream)):
            until(lambda: server.in_flight() == 1)
        assert server.seconds_until_idle() < 1
        assert taken(server)["tokens"] == 0


def test_leaving_the_queue(scripted):
    """A request that nobody waits for would still get its turn."""
    server = scripted([SLOW, {"text": "other"}], "--parallel", "1")
    with server.begin(server.body("hi", max_tokens=5000)):
        until(lambda: server.in_flight() == 1)
        with server.begin(server.body("hi")):
            until(lambda: server.in_flight() == 2)
        until(lambda: server.in_flight() == 1)
    server.seconds_until_idle()
    assert server.get("/script").json()["left"] == 1


def test_first_byte_comes_at_once(scripted):
    """Clients and proxies give up on a connection that stays silent."""
    server = scripted([{"text": "Hello.", "prefill_ms": 2000}])
    start = time.monotonic()
    s = server.stream("hi")
    assert s.arrivals[0] - start < 1
    check_stream(s)
    assert s.content() == "Hello."


def test_health_while_busy(scripted):
    """A supervisor would kill a server that works."""
    server = scripted([LONG_PROMPT])
    with server.begin(server.body("hi")):
        until(lambda: server.in_flight() == 1)
        for _ in range(5):
            start = time.monotonic()
            assert server.get("/health").json()["in_flight"] == 1
            assert time.monotonic() - start < 0.5


def test_second_client_waits(scripted):
    """A second request would be lost or mixed with the first."""
    server = scripted([{"repeat": {"piece": " a", "count": 20}, "delay_ms": 20, "when": "first"}, {"text": "b", "when": "second"}])
    answers = {}
    first = threading.Thread(target=lambda: answers.update(first=server.stream("first", max_tokens=100)))
    first.start()
    time.sleep(0.1)
    d = server.chat("second")
    first.join()
    check_chat(d)
    assert d["choices"][0]["message"]["content"] == "b"
    check_stream(answers["first"])
    assert answers["first"].content() == " a" * 20


def test_device_error_before_and_in_a_stream(scripted):
    """A failure must be seen as one: by its status, or by an event once the stream has begun."""
    server = scripted([{"text": "a b c", "splits": "char", "fail_at": 1}, {"text": "a b c", "splits": "char", "fail_at": 1},
                       {"text": "a b c", "splits": "char", "fail_at": 4, "delay_ms": 150}])
    assert server.chat_raw("hi").status_code == 500
    assert server.chat_raw("hi", stream=True).status_code == 500
    s = server.stream("hi")
    assert s.error()["message"] and not s.done
    assert s.content() == "a b"
    assert not any(c.get("finish_reason") for c in s.choices())


def test_script_exhausted(scripted):
    """The end of a script is told by its code."""
    server = scripted([{"text": "a"}])
    server.chat("hi")
    r = server.chat_raw("hi")
    assert r.status_code == 500 and r.json()["error"]["code"] == "script_exhausted"


def test_loading_is_told(spawn):
    """A load balancer must not send requests before the model is there."""
    import httpx

    p = spawn(wait=False)
    seen = set()
    end = time.monotonic() + 60
    while 200 not in seen and time.monotonic() < end:
        try:
            r = httpx.get(p.base + "/health", timeout=5)
            seen.add(r.status_code)
            assert r.status_code in (200, 503)
            assert r.json()["status"] == ("ok" if r.status_code == 200 else "loading")
        except httpx.ConnectError:
            pass
    assert 200 in seen
