"""One request over HTTP, fully read and taken apart into content, thinking, calls, finish and usage."""

import http.client
import json
import re
import socket
import time

from .outcome import short, test

CHAT = "/v1/chat/completions"


class X:
    """One exchange, fully read."""

    def __init__(self, endpoint=CHAT, stream=False):
        self.endpoint, self.stream, self.status, self.headers, self.raw = endpoint, stream, 0, {}, b""
        self.t0 = time.monotonic()
        self.arrivals, self.t_end, self.record, self.prompt, self.ids, self.error = (
            [],
            None,
            None,
            None,
            None,
            None,
        )

    label = ""

    @property
    def json(self):
        try:
            return json.loads(self.raw.decode("utf-8"))
        except ValueError:
            return None

    @property
    def sse(self):
        return "text/event-stream" in self.headers.get("content-type", "")

    def parse(self):
        """Fills content, reasoning, calls, finish, usage and the lists of deltas."""
        self.content, self.reasoning, self.finish, self.usage, self.calls = "", "", None, None, []
        self.deltas, self.events, self.comments, self.done, self.wire_errors = [], [], 0, False, []
        self.call_deltas, self.error_event, self.fields, self.logprobs = [], None, {}, None
        if self.sse:
            self._events()
            if self.endpoint == CHAT:
                self._chat_stream()
            elif self.endpoint == "/v1/messages":
                self._messages_stream()
        elif self.json is not None and isinstance(self.json, dict):
            if self.endpoint == CHAT:
                self._chat_plain(self.json)
            elif self.endpoint == "/v1/messages":
                self._messages_plain(self.json)
        return self

    def _events(self):
        try:
            text = self.raw.decode("utf-8")
        except UnicodeDecodeError as e:
            self.wire_errors.append(f"not UTF-8: {e}")
            text = self.raw.decode("utf-8", "replace")
        for block in text.replace("\r\n", "\n").split("\n\n"):
            data, name = [], None
            for line in block.split("\n"):
                if line.startswith(":"):
                    self.comments += 1
                elif line.startswith("data:"):
                    data.append(line[5:][1:] if line[5:].startswith(" ") else line[5:])
                elif line.startswith("event:"):
                    name = line[6:].strip()
                elif line.strip() and not line.startswith(("id:", "retry:")):
                    self.wire_errors.append(f"odd line {short(line, 80)}")
            if not data:
                continue
            if len(data) > 1:
                self.wire_errors.append("event with more than one data line")
            payload = "\n".join(data)
            if self.done:
                self.wire_errors.append("event after [DONE]")
            if payload == "[DONE]":
                self.done = True
                continue
            try:
                ev = json.loads(payload)
            except ValueError:
                self.wire_errors.append(f"data is no JSON: {short(payload, 80)}")
                continue
            if name:
                ev.setdefault("type", name)
            self.events.append(ev)
            if isinstance(ev, dict) and ev.get("error"):
                self.error_event = ev

    def _chat_stream(self):
        calls = {}
        for ev in self.events:
            if ev.get("usage"):
                self.usage = ev["usage"]
            for ch in ev.get("choices") or []:
                d = ch.get("delta") or {}
                for k in d:
                    if isinstance(d[k], str):
                        self.fields[k] = self.fields.get(k, "") + d[k]
                if d.get("content"):
                    self.deltas.append(d["content"])
                    self.content += d["content"]
                r = d.get("reasoning_content")
                self.reasoning += (r if r is not None else d.get("reasoning")) or ""
                for c in d.get("tool_calls") or []:
                    self.call_deltas.append(c)
                    i = c.get("index")
                    f = c.get("function") or {}
                    k = calls.setdefault(i, {"index": i, "id": None, "name": "", "arguments": ""})
                    k["id"] = c.get("id") or k["id"]
                    k["name"] += f.get("name") or ""
                    k["arguments"] += f.get("arguments") or ""
                if ch.get("logprobs"):
                    self.logprobs = (self.logprobs or []) + (ch["logprobs"].get("content") or [])
                if ch.get("finish_reason"):
                    self.finish = ch["finish_reason"]
        self.calls = list(calls.values())

    def _chat_plain(self, j):
        self.usage = j.get("usage")
        if j.get("choices"):
            ch = j["choices"][0]
            m = ch.get("message") or {}
            self.fields = {k: v for k, v in m.items() if isinstance(v, str)}
            self.content = m.get("content") or ""
            self.deltas = [self.content] if self.content else []
            r = m.get("reasoning_content")
            self.reasoning = (r if r is not None else m.get("reasoning")) or ""
            self.finish = ch.get("finish_reason")
            if ch.get("logprobs"):
                self.logprobs = ch["logprobs"].get("content")
            for i, c in enumerate(m.get("tool_calls") or []):
                f = c.get("function") or {}
                self.calls.append(
                    {
                        "index": i,
                        "id": c.get("id"),
                        "name": f.get("name") or "",
                        "arguments": f.get("arguments"),
                    }
                )

    def _messages_plain(self, j):
        self.usage, self.finish, self.stop_sequence = (
            j.get("usage"),
            j.get("stop_reason"),
            j.get("stop_sequence"),
        )
        for i, b in enumerate(j.get("content") or []):
            if b.get("type") == "text":
                self.content += b.get("text", "")
            elif b.get("type") == "thinking":
                self.reasoning += b.get("thinking", "")
            elif b.get("type") == "tool_use":
                self.calls.append(
                    {
                        "index": i,
                        "id": b.get("id"),
                        "name": b.get("name"),
                        "arguments": json.dumps(b.get("input")),
                    }
                )
        self.deltas = [self.content] if self.content else []

    def _messages_stream(self):
        blocks = {}
        for ev in self.events:
            t, i = ev.get("type"), ev.get("index")
            if t == "content_block_start":
                blocks[i] = dict(ev.get("content_block") or {}, part="")
            elif t == "content_block_delta":
                d = ev.get("delta") or {}
                if d.get("type") == "text_delta":
                    self.deltas.append(d["text"])
                    self.content += d["text"]
                elif d.get("type") == "thinking_delta":
                    self.reasoning += d["thinking"]
                elif d.get("type") == "input_json_delta" and i in blocks:
                    blocks[i]["part"] += d.get("partial_json", "")
            elif t == "message_delta":
                self.finish = (ev.get("delta") or {}).get("stop_reason")
                self.stop_sequence = (ev.get("delta") or {}).get("stop_sequence")
                self.usage = ev.get("usage")
        for i, b in blocks.items():
            if b.get("type") == "tool_use":
                self.calls.append(
                    {
                        "index": i,
                        "id": b.get("id"),
                        "name": b.get("name"),
                        "arguments": b["part"] or json.dumps(b.get("input") or {}),
                    }
                )

    def final(self):
        u = self.usage or {}
        return {
            "content": self.content,
            "reasoning": self.reasoning,
            "finish": self.finish,
            "calls": [{"name": c["name"], "arguments": arguments(c)} for c in self.calls],
            "usage": [u.get("prompt_tokens"), u.get("completion_tokens")],
        }


def arguments(call):
    try:
        return json.loads(call["arguments"])
    except (TypeError, ValueError):
        return {"$not JSON": call["arguments"]}


def exchange(port, method, path, body=None, headers=None, timeout=120, on_data=None):
    """on_data(x) may return True to close the connection early."""
    if isinstance(body, (dict, list)):
        body = json.dumps(body, ensure_ascii=True).encode()
    x = X(path)
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        h = {"Content-Type": "application/json"} if body is not None else {}
        h.update(headers or {})
        conn.request(method, path, body=body, headers=h)
        r = conn.getresponse()
        x.status, x.headers = r.status, {k.lower(): v for k, v in r.getheaders()}
        x.arrivals.append((time.monotonic() - x.t0, 0))
        while True:
            data = r.read1(65536)
            if not data:
                break
            x.raw += data
            x.arrivals.append((time.monotonic() - x.t0, len(data)))
            if on_data and on_data(x):
                break
    except (OSError, http.client.HTTPException) as e:
        x.error = repr(e)
    finally:
        conn.close()
    x.t_end = time.monotonic() - x.t0
    return x.parse()


def raw_exchange(port, chunks, timeout=30, pause=0.0, wait_100=False):
    """Sends the chunks on a socket and reads one answer; for requests that a normal client cannot make."""
    x = X("raw")
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        got = b""
        try:
            for c in chunks:
                if wait_100 and c is chunks[1]:
                    s.settimeout(5)
                    try:
                        got += s.recv(4096)
                    except OSError:
                        pass
                    s.settimeout(timeout)
                s.sendall(c)
                if pause:
                    time.sleep(pause)
        except OSError as e:
            x.error = repr(e)
        try:
            while True:
                d = s.recv(65536)
                if not d:
                    break
                got += d
        except OSError as e:
            x.error = x.error or repr(e)
    while got.startswith(b"HTTP/1.1 100"):
        got = got.split(b"\r\n\r\n", 1)[1]
    head, _, x.raw = got.partition(b"\r\n\r\n")
    m = re.match(rb"HTTP/1\.[01] (\d+)", head)
    x.status = int(m.group(1)) if m else 0
    for line in head.split(b"\r\n")[1:]:
        k, _, v = line.decode("latin-1").partition(":")
        x.headers[k.lower()] = v.strip()
    return x.parse()


def ok200(x, where):
    test(
        x.status == 200,
        "status 200",
        f"{x.status or x.error} {short(x.raw.decode('utf-8', 'replace'), 160)}",
        where,
    )
