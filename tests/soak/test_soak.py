"""64 clients at once on the demo model, in every protocol: some stream, some read slowly, some leave.

Each answer must be the one that the same question got alone; at the end the server holds no more memory or
descriptors than after the first minute."""
import http.client
import json
import os
import pathlib
import random
import sys
import threading
import time
from urllib.parse import urlsplit

import httpx
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "conformance"))

from support import Process, free_port  # noqa: E402

CLIENTS, QUESTIONS = 64, 24
WORDS = "sea ship stone green lamp river cloud winter bread silver horse garden".split()
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


def question(n):
    """Path and body of question n; a seed makes its answer the same each time."""
    dice = random.Random(n)
    text = " ".join(dice.choice(WORDS) for _ in range(dice.randrange(5, 120)))
    shared = {"seed": n, "temperature": dice.choice([0, 0.8])}
    system = {"role": "system", "content": "You are brief. " * (n % 3)}
    user = {"role": "user", "content": f"{text}?"}
    kind = n % 4
    if kind == 0:
        return "/v1/chat/completions", {"messages": [system, user], "max_tokens": 24, **shared,
                                        "chat_template_kwargs": {"enable_thinking": n % 8 == 0}}
    if kind == 1:
        return "/v1/chat/completions", {"messages": [user], "tools": TOOLS, "max_tokens": 24, **shared}
    if kind == 2:
        return "/v1/messages", {"model": "lily", "messages": [user], "max_tokens": 24,
                                "temperature": 0, "thinking": {"type": "disabled"}}
    return "/v1/completions", {"prompt": text, "max_tokens": 24, **shared}


def answer_of(path, body):
    if path == "/v1/messages":
        return json.dumps([{k: b.get(k) for k in ("type", "text", "thinking", "name", "input")} for b in body["content"]])
    choice = body["choices"][0]
    if path == "/v1/completions":
        return choice["text"]
    m = choice["message"]
    calls = [c["function"] for c in m.get("tool_calls") or []]
    return json.dumps([m.get("content"), m.get("reasoning_content"), calls])


def streamed_answer(path, raw):
    """The same from the events of a stream."""
    events = [json.loads(line[6:]) for line in raw.decode().split("\n")
              if line.startswith("data: ") and line != "data: [DONE]"]
    assert not any(e.get("error") for e in events), events[-1]
    if path == "/v1/messages":
        blocks = {}
        for e in events:
            if e["type"] == "content_block_start":
                blocks[e["index"]] = {k: e["content_block"].get(k) for k in ("type", "text", "thinking", "name", "input")}
                blocks[e["index"]]["json"] = ""
            elif e["type"] == "content_block_delta":
                b, d = blocks[e["index"]], e["delta"]
                for key in ("text", "thinking"):
                    if key in d:
                        b[key] = (b[key] or "") + d[key]
                b["json"] += d.get("partial_json", "")
        for b in blocks.values():
            text = b.pop("json")
            if b["type"] == "tool_use":
                b["input"] = json.loads(text or "{}")
        return json.dumps([blocks[i] for i in sorted(blocks)])
    choices = [c for e in events for c in e["choices"]]
    if path == "/v1/completions":
        return "".join(c["text"] for c in choices)
    deltas, calls = [c["delta"] for c in choices], {}
    for d in deltas:
        for c in d.get("tool_calls") or []:
            known = calls.setdefault(c["index"], {"name": "", "arguments": ""})
            for key in known:
                known[key] += c["function"].get(key) or ""
    content = "".join(d.get("content") or "" for d in deltas)
    reasoning = "".join(d.get("reasoning_content") or "" for d in deltas)
    return json.dumps([content or None, reasoning or None, [calls[i] for i in sorted(calls)]])


def same(path, a, b):
    """Absent and empty text are one."""
    return a == b or a.replace('""', "null") == b.replace('""', "null")


class Server(Process):
    def rss(self):
        return int(pathlib.Path(f"/proc/{self.popen.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.popen.pid}/fd"))

    def idle(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            h = httpx.get(self.base + "/health").json()
            if h["in_flight"] == h["queued"] == 0:
                return
            time.sleep(0.2)
        raise AssertionError("it never became idle")


@pytest.fixture
def server(build_dir, source_dir):
    p = Server([str(build_dir / "lily"), "serve", "--model", str(source_dir / "models" / "demo"), "--port", "{port}",
                "--ctx-size", "2048"], free_port())
    yield p.wait_ready()
    p.stop()
    assert p.popen.returncode == 0, "the sanitizers, or something else, found a fault at the end"


class Client:
    def __init__(self, server, seed, expected, counts):
        self.address = urlsplit(server.base).netloc
        self.dice = random.Random(seed)
        self.expected, self.counts = expected, counts

    def once(self):
        n = self.dice.randrange(QUESTIONS)
        path, body = question(n)
        way = self.dice.choice(["whole", "whole", "stream", "stream", "slow", "leave", "leave early"])
        c = http.client.HTTPConnection(self.address, timeout=300)
        try:
            if way != "whole":
                body = {**body, "stream": True}
            c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            if way == "leave early":
                time.sleep(self.dice.random() / 5)
                return
            r = c.getresponse()
            if r.status == 429:
                assert r.getheader("Retry-After")
                self.counts["busy"] += 1
                return
            assert r.status == 200, (r.status, r.read())
            if way == "leave":
                r.read(1 + self.dice.randrange(2000))
                return
            raw = b""
            while piece := r.read(300 if way == "slow" else 1 << 20):
                raw += piece
                if way == "slow":
                    time.sleep(0.01)
        finally:
            c.close()
        got = answer_of(path, json.loads(raw)) if way == "whole" else streamed_answer(path, raw)
        assert same(path, got, self.expected[n]), f"question {n} ({way}): {got!r} instead of {self.expected[n]!r}"
        self.counts["answers"] += 1


def test_soak(server, request):
    seconds = request.config.getoption("--seconds")
    expected = []
    for n in range(QUESTIONS):
        path, body = question(n)
        r = httpx.post(server.base + path, json=body, timeout=120)
        assert r.status_code == 200, r.text
        expected.append(answer_of(path, r.json()))

    counts, failures, stop = {"answers": 0, "busy": 0}, [], threading.Event()

    def go_on(seed):
        client = Client(server, seed, expected, counts)
        while not stop.is_set():
            try:
                client.once()
            except Exception as e:          # told by the test's own thread
                failures.append(f"client {seed}: {type(e).__name__}: {e}")
                stop.set()

    linux = sys.platform == "linux"
    before = server.descriptors() if linux else 0
    threads = [threading.Thread(target=go_on, args=(i,)) for i in range(CLIENTS)]
    start, memory = time.monotonic(), []
    for t in threads:
        t.start()
    while time.monotonic() - start < seconds and not stop.is_set():
        time.sleep(0.5)
        if linux:
            memory.append(server.rss())
    stop.set()
    for t in threads:
        t.join()
    assert not failures, failures[:3]
    assert counts["answers"] > 2 * QUESTIONS
    server.idle()
    if linux:
        assert server.descriptors() <= before + 2, "descriptors are left open"
        half = max(memory[len(memory) // 4:len(memory) // 2])
        last = max(memory[3 * len(memory) // 4:])
        assert last <= 1.1 * half + (8 << 20), f"memory grew from {half >> 20} to {last >> 20} MiB"
    print(f"{counts['answers']} answers, {counts['busy']} told to come again")
