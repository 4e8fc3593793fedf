"""Start and end of the process."""
import signal

import httpx
import pytest

from support import CHAT, Api, Stream


def test_sigterm_idle(spawn):
    """A supervisor would have to kill the server and would log a crash."""
    p = spawn()
    p.terminate()
    assert p.popen.wait(20) == 0


def test_sigint_idle(spawn):
    """Ctrl-C in a terminal would leave the server or print a crash."""
    p = spawn()
    p.popen.send_signal(signal.SIGINT)
    assert p.popen.wait(20) in (0, 130, -signal.SIGINT)


def test_sigterm_finishes_request(spawn):
    """A user's half-read answer would be cut by a restart."""
    p = spawn()
    mine = Api(p.base)
    with mine.http.stream("POST", CHAT, json=mine.body("Write a long story.", max_tokens=200, stream=True)) as r:
        assert r.status_code == 200
        pieces = r.iter_bytes()
        parts = [next(pieces)]  # the answer has begun
        p.terminate()
        parts += pieces
    s = Stream(r, b"".join(parts), [])
    assert s.done and s.finish()
    assert p.popen.wait(30) == 0


def test_sigterm_with_idle_keepalive(spawn):
    """An idle browser tab would keep the old server alive."""
    p = spawn()
    with httpx.Client(base_url=p.base) as c:
        assert c.get("/health").status_code == 200
        p.terminate()
        assert p.popen.wait(20) == 0


def test_port_is_free_after_exit(spawn):
    """A quick restart would fail with address in use."""
    p = spawn()
    httpx.get(p.base + "/health")
    p.terminate()
    p.popen.wait(20)
    q = spawn(port=p.port)
    assert httpx.get(q.base + "/health").status_code == 200


@pytest.mark.parametrize("option,value", [("--device", "nonsense"), ("--script", "/no/such/file"), ("--ctx-size", "99999999")])
def test_slips_are_told_before_it_listens(spawn, option, value):
    """Whoever starts it would read that it listens, and find it gone."""
    p = spawn(option, value, wait=False)
    assert 0 < p.popen.wait(20) < 126
    assert value in p.tail() and "listening" not in p.tail()
