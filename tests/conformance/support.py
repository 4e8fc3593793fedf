"""What the tests share: starting a server, talking to it, and the shapes of answers."""
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from urllib.parse import urlsplit

import httpx

TIMEOUT = 120
CHAT = "/v1/chat/completions"
NO_THINK = {"enable_thinking": False}


# ---------------------------------------------------------------- processes


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    """One server; only this process is ever signalled."""

    def __init__(self, command, port):
        self.base = f"http://127.0.0.1:{port}"
        self.port = port
        self.log = tempfile.NamedTemporaryFile("w+b", suffix=".log", delete=False)
        argv = [part.replace("{port}", str(port)) for part in command]
        self.popen = subprocess.Popen(argv, stdout=self.log, stderr=subprocess.STDOUT)

    def wait_ready(self, bound=TIMEOUT):
        end = time.monotonic() + bound
        while time.monotonic() < end:
            assert self.popen.poll() is None, f"the server ended with {self.popen.returncode}: {self.tail()}"
            try:
                if httpx.get(self.base + "/health", timeout=5).status_code == 200:
                    return self
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"GET /health was not 200 within {bound} s: {self.tail()}")

    def tail(self):
        with open(self.log.name, "rb") as f:
            return f.read()[-1500:].decode("utf-8", "replace")

    def terminate(self):
        self.popen.send_signal(signal.SIGTERM)

    def stop(self):
        if self.popen.poll() is None:
            self.terminate()
            try:
                self.popen.wait(20)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait(20)
        if not self.log.closed:
            self.log.close()
            os.unlink(self.log.name)


# ---------------------------------------------------------------- client side


class Stream:
    """A fully read event stream: raw bytes, parsed events and joined fields."""

    def __init__(self, response, raw, arrivals):
        self.response, self.raw, self.arrivals = response, raw, arrivals
        self.done, self.events, self.comments = False, [], 0
        for block in raw.split(b"\n\n"):
            data = []
            for line in block.split(b"\n"):
                text = line.decode("utf-8")  # strict: invalid UTF-8 raises
                self.comments += text.startswith(":")
                if text.startswith("data:"):
                    data.append(text[5:].removeprefix(" "))
            if not data:
                continue
            payload = "\n".join(data)
            assert not self.done, "an event after data: [DONE]"
            if payload == "[DONE]":
                self.done = True
                continue
            self.events.append(json.loads(payload))

    def choices(self):
        return [c for e in self.events for c in e.get("choices", [])]

    def _join(self, key):
        return "".join((c.get("delta") or {}).get(key) or "" for c in self.choices())

    def content(self):
        return self._join("content")

    def reasoning(self):
        return self._join("reasoning_content")

    def finish(self):
        reasons = [c["finish_reason"] for c in self.choices() if c.get("finish_reason")]
        assert len(reasons) == 1, f"exactly one finish_reason expected, got {reasons}"
        return reasons[0]

    def usage(self):
        found = [e["usage"] for e in self.events if e.get("usage")]
        return found[-1] if found else None

    def error(self):
        found = [e["error"] for e in self.events if e.get("error")]
        return found[-1] if found else None


class Api:
    def __init__(self, base):
        self.base = base.rstrip("/")
        self.http = httpx.Client(base_url=self.base, timeout=TIMEOUT)
        self._model = None

    @property
    def model(self):
        if self._model is None:
            self._model = self.get("/v1/models").json()["data"][0]["id"]
        return self._model

    def get(self, path, **kw):
        return self.http.get(path, **kw)

    def post(self, path, body, **kw):
        return self.http.post(path, json=body, **kw)

    def body(self, messages, **kw):
        """A chat request; greedy and without thinking unless told otherwise. A field given as ... is left out."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        body = {"model": self.model, "messages": messages, "max_tokens": 16, "temperature": 0}
        if "chat_template_kwargs" not in kw and not kw.pop("thinking", False):
            body["chat_template_kwargs"] = NO_THINK
        body.update(kw)
        return {k: v for k, v in body.items() if v is not ...}

    def chat_raw(self, messages, headers=None, **kw):
        return self.post(CHAT, self.body(messages, **kw), headers=headers)

    def chat(self, messages, headers=None, **kw):
        r = self.chat_raw(messages, headers, **kw)
        assert r.status_code == 200, f"{r.status_code}: {r.text[:600]}"
        return r.json()

    def say(self, messages, **kw):
        return self.chat(messages, **kw)["choices"][0]["message"]["content"] or ""

    def stream(self, messages, headers=None, **kw):
        with self.http.stream("POST", CHAT, json=self.body(messages, stream=True, **kw), headers=headers) as r:
            parts, arrivals = [], []
            for piece in r.iter_bytes():
                parts.append(piece)
                arrivals.append(time.monotonic())
            raw = b"".join(parts)
        assert r.status_code == 200, f"{r.status_code}: {raw[:600]!r}"
        return Stream(r, raw, arrivals)

    def tokens(self, text):
        r = self.post("/tokenize", {"content": text})
        assert r.status_code == 200, r.text[:300]
        return r.json()["tokens"]

    def words(self, count=2):
        """Ids of tokens that are one plain word each."""
        found = []
        for text in ("red", "blue", "one", "two", "house", "tree", "sun", "sea", "a", "b", "c", "x"):
            ids = self.tokens(text)
            if len(ids) == 1 and ids[0] not in found:
                found.append(ids[0])
            if len(found) == count:
                return found
        raise AssertionError("the vocabulary has too few one-word tokens")

    def begin(self, body):
        """A socket on which a chat request was sent and no answer was read."""
        parts = urlsplit(self.base)
        s = socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT)
        payload = json.dumps(body).encode()
        s.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
        return s

    def in_flight(self):
        d = self.get("/health").json()
        return d["in_flight"] + d["queued"]

    def seconds_until_idle(self, bound=10):
        start = time.monotonic()
        while self.in_flight():
            assert time.monotonic() - start < bound, "the server is still busy"
            time.sleep(0.02)
        return time.monotonic() - start


# ---------------------------------------------------------------- shapes


def refused(r, statuses=None, code=None, param=None):
    """A client's mistake, told in OpenAI's form."""
    assert 400 <= r.status_code < 500, f"a client's mistake must be a 4xx, got {r.status_code}: {r.text[:400]}"
    if statuses:
        assert r.status_code in statuses, r.text[:300]
    assert "application/json" in r.headers["content-type"]
    err = r.json()["error"]
    assert isinstance(err["message"], str) and err["message"]
    assert isinstance(err["type"], str) and err["type"]
    for key in ("param", "code"):
        assert err[key] is None or isinstance(err[key], str), err
    if code:
        assert err["code"] == code, err
    if param:
        assert (err["param"] or "").startswith(param), err
    return err


def check_usage(u):
    for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert type(u[key]) is int and u[key] >= 0, u
    assert u["prompt_tokens"] + u["completion_tokens"] == u["total_tokens"], u
    assert u["prompt_tokens"] > 0, u


def check_chat(d):
    """The parts of a chat.completion that typed clients read without a default."""
    assert isinstance(d["id"], str) and d["id"]
    assert d["object"] == "chat.completion"
    assert type(d["created"]) is int and abs(d["created"] - time.time()) < 3600, "created is not Unix seconds"
    assert isinstance(d["model"], str) and d["model"]
    assert d["choices"]
    for i, c in enumerate(d["choices"]):
        assert c["index"] == i
        assert c["finish_reason"] in ("stop", "length", "tool_calls"), c["finish_reason"]
        m = c["message"]
        assert m["role"] == "assistant"
        assert "content" in m and (m["content"] is None or isinstance(m["content"], str))
        assert m["content"] is not None or m.get("tool_calls") or m.get("reasoning_content")
    check_usage(d["usage"])


def check_stream(s):
    assert s.response.headers["content-type"].split(";")[0].strip() == "text/event-stream"
    assert s.done, "the stream does not end with data: [DONE]"
    assert s.events
    for key in ("id", "created", "model"):
        assert len({json.dumps(e[key]) for e in s.events}) == 1, f"{key} changes inside one stream"
    for e in s.events:
        assert e["object"] == "chat.completion.chunk"
        assert isinstance(e["choices"], list)
    choices = s.choices()
    assert choices[0]["delta"].get("role") == "assistant", f"first delta has no role: {choices[0]}"
    s.finish()
    assert all(c.get("finish_reason") is None for c in choices[:-1]), "finish_reason before the last chunk"
