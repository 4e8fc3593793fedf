"""packaging/gateway/haproxy.cfg in front of two processes: what docs/scaling.md promises."""
import shutil
import signal
import time

import httpx
import openai
import pytest

from conftest import served, wait_for
from support import free_port

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(not HAPROXY, reason="needs haproxy")

OK = {"text": "</think>\n\nok", "times": 0}
SLOW = {"repeat": {"piece": "la ", "count": 600}, "delay_ms": 50, "when": "sing", "times": 0}


@pytest.fixture
def proxied(gateway, source_dir):
    def start(*servers):
        port = free_port()
        environment = {"LISTEN": f"127.0.0.1:{port}",
                       **{f"LILY_{i}": f"127.0.0.1:{s.port}" for i, s in enumerate(servers, 1)}}
        gateway([HAPROXY, "-f", str(source_dir / "packaging" / "gateway" / "haproxy.cfg")], environment,
                f"http://127.0.0.1:{port}/health", 20)
        return f"http://127.0.0.1:{port}"
    return start


def client(base, **headers):
    return openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0, default_headers=headers)


def ask(c, text="hi", **more):
    return c.chat.completions.create(model="lily", messages=[{"role": "user", "content": text}], **more)


def reaches(base, name, server):
    before = served(server)
    ask(client(base, **{"x-conversation-id": name}))
    return served(server) > before


def homes(servers, base, names, field):
    """Which server answers each conversation, asked three times each."""
    home = {}
    for name in names * 3:
        before = [served(s) for s in servers]
        ask(client(base, **({field: name} if "-" in field else {})),
            **({} if "-" in field else {"extra_body": {field: name}}))
        grew = [i for i, s in enumerate(servers) if served(s) > before[i]]
        assert len(grew) == 1
        home.setdefault(name, set()).add(grew[0])
    return home


@pytest.mark.parametrize("field", ["x-conversation-id", "prompt_cache_key", "user"])
def test_a_conversation_stays_and_many_spread(lily, proxied, field):
    servers = [lily(OK), lily(OK)]
    home = homes(servers, proxied(*servers), [f"c{i}" for i in range(12)], field)
    assert all(len(h) == 1 for h in home.values()), f"a conversation moved: {home}"
    assert len(set.union(*home.values())) == 2, "all went to one process"


def test_the_second_turn_reuses_the_first(lily, proxied):
    base = proxied(lily(), lily())
    c = client(base, **{"x-conversation-id": "one"})
    more = {"max_tokens": 8, "temperature": 0, "extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
    history = [{"role": "user", "content": "Tell me about the sea, and of ships on it."}]
    first = c.chat.completions.create(model="lily", messages=history, **more)
    history += [first.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": "And then?"}]
    second = c.chat.completions.create(model="lily", messages=history, **more)
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 8


def test_a_body_longer_than_the_buffer_passes(lily, proxied):
    servers = [lily(OK), lily(OK)]
    base = proxied(*servers)
    assert ask(client(base), "word " * 20000, extra_body={"user": "u"}).choices[0].message.content == "ok"


def test_tokens_come_one_by_one(lily, proxied):
    servers = [lily({"text": "</think>\n\nabcdefgh", "splits": "char", "delay_ms": 100})] * 2
    arrivals = []
    for chunk in ask(client(proxied(*servers)), stream=True):
        if chunk.choices and chunk.choices[0].delta.content:
            arrivals.append(time.monotonic())
    assert len(arrivals) == 8 and arrivals[-1] - arrivals[0] > 0.5, "the proxy held the stream back"


def test_one_is_killed(lily, proxied):
    """New questions go to the other, its own conversations come home; a stream that was cut is an error, not an end."""
    servers = [lily(SLOW, OK), lily(SLOW, OK)]
    base = proxied(*servers)
    home = homes(servers, base, ["a", "b", "c", "d", "e", "f"], "x-conversation-id")
    lost = next(n for n, h in home.items() if h == {0})
    kept = next(n for n, h in home.items() if h == {1})

    stream = ask(client(base, **{"x-conversation-id": lost}), "sing", stream=True)
    next(iter(stream))
    servers[0].popen.send_signal(signal.SIGKILL)
    servers[0].popen.wait()
    with pytest.raises((openai.APIError, httpx.HTTPError)):
        for _ in stream:
            pass

    for name in (kept, lost):                # at once: what could not be sent goes to the other
        assert reaches(base, name, servers[1])

    revived = lily(OK, port=servers[0].port)
    assert wait_for(lambda: reaches(base, lost, revived)), "its conversations should come home"


def test_a_client_that_leaves_is_noticed(lily, proxied):
    server = lily(SLOW)
    base = proxied(server, server)
    stream = ask(client(base), "sing", stream=True)
    next(iter(stream))
    assert httpx.get(server.base + "/health").json()["in_flight"] == 1
    stream.close()
    assert wait_for(lambda: httpx.get(server.base + "/health").json()["in_flight"] == 0)


def test_nobody_is_there(lily, proxied):
    server = lily(OK)
    base = proxied(server, server)
    server.popen.kill()
    server.popen.wait()
    assert wait_for(lambda: httpx.get(base + "/health").status_code == 503)
