"""Requests and scripted replies, made from what a case says."""

import copy
import json
import os
import random
import re

from .exchange import CHAT
from .outcome import Fail, Skip, short
from .process import CONTROL

ABSENT = "$absent"


class Run:
    """What one variant (turn, request) of a case gave: a list of exchanges that should agree."""

    def __init__(self, n, label="", xs=None, **kw):
        self.n, self.label, self.xs = n, label, xs or []
        self.__dict__.update(kw)


class Ctx:
    def __init__(self, case, cfg, runs=None, srv=None, **kw):
        self.case, self.cfg, self.runs, self.srv, self.extra = (
            case,
            cfg,
            runs if runs is not None else [],
            srv,
            kw,
        )

    def only(self, runs):
        c = Ctx(self.case, self.cfg, runs, self.srv)
        c.extra = self.extra
        return c

    def xs(self):
        for r in self.runs:
            for x in r.xs:
                yield f"{r.label} {'stream' if x.stream else 'plain'}".strip(), x


SOURCES = ("reply", "reply_pieces", "reply_bytes", "reply_repeat", "reply_logits")


def reply_of(inp, split=None):
    r = {}
    for key, name in zip(SOURCES, ("text", "pieces", "bytes_hex", "repeat", "logits")):
        if key in inp:
            r[name] = inp[key]
    if "text" in r and split is not None:
        r["splits"] = split
    for key in ("cut", "delay_ms", "prefill_ms", "fail_at", "after_think"):
        if key in inp:
            r[key] = bool(inp[key]) if key == "cut" else inp[key]
    return r or {"text": "Hello there."}


def tool_defs(cfg, inp):
    if "tools_raw" in inp:
        return json.loads(inp["tools_raw"])
    out = []
    for t in inp.get("tools") or []:
        out.append(cfg.tools[t] if isinstance(t, str) else t)
    return out


def build(cfg, inp, extra=None, chat=True):
    ep = inp.get("endpoint", CHAT)
    req = copy.deepcopy(cfg.base) if "messages" in cfg.base else {}
    if inp.get("messages") is not None:
        req["messages"] = copy.deepcopy(inp["messages"])
    tools = tool_defs(cfg, inp)
    if tools and ep == "/v1/messages":
        req["tools"] = [
            {
                "name": t["function"]["name"],
                "description": t["function"].get("description", ""),
                "input_schema": t["function"]["parameters"],
            }
            for t in tools
        ]
    elif tools:
        req["tools"] = tools
    if ep == "/v1/messages" and "thinking" in inp:
        req["thinking"] = {"type": "enabled", "budget_tokens": 4000} if inp["thinking"] else {"type": "disabled"}
    elif ep == "/v1/responses":
        req = {"model": "lily", "input": "hi", "max_output_tokens": 4096}
    elif chat and ep == CHAT:
        req["chat_template_kwargs"] = {"enable_thinking": bool(inp.get("thinking", False))}
    for part in (inp.get("request") or {}, extra or {}):
        req.update(copy.deepcopy(part))
    if (
        "max_completion_tokens" in req
        and "max_tokens" not in (inp.get("request") or {})
        and "max_tokens" not in (extra or {})
    ):
        req.pop("max_tokens", None)
    return {k: v for k, v in req.items() if v != ABSENT}


def modes(req):
    """The forms in which a request is sent."""
    if "stream" in req:
        return [req]
    st = dict(req, stream=True)
    st.setdefault("stream_options", {"include_usage": True})
    return [req, st]


def words(n, seed=1):
    rnd = random.Random(seed)
    return " ".join(
        rnd.choice(
            (
                "river",
                "stone",
                "light",
                "three",
                "under",
                "paper",
                "green",
                "small",
                "house",
                "time",
                "water",
                "north",
                "seven",
                "open",
                "little",
                "train",
            )
        )
        for _ in range(n)
    )


def count_tokens(srv, **body):
    x = srv.post("/tokenize", body)
    if x.status != 200:
        raise Fail("POST /tokenize answers 200", x.status)
    return x.json["tokens"]


def text_of(srv, tokens, seed=1):
    """A text of about so many tokens (never more)."""
    w = words(tokens, seed).split(" ")
    ids = count_tokens(srv, content=" ".join(w))
    n = max(1, int(len(w) * tokens / max(1, len(ids))))
    while n > 1 and len(count_tokens(srv, content=" ".join(w[:n]))) > tokens:
        n = int(n * 0.98) if n > 60 else n - 1
    return " ".join(w[:n])


def alive(srv, again=True):
    if srv.p.poll() is not None:
        raise Fail("server alive", f"exited with {srv.p.returncode}: {srv.tail()[-200:]}")
    h = srv.get("/health")
    if h.status != 200:
        raise Fail("GET /health 200", h.status or h.error)
    req = {
        "model": "lily",
        "max_tokens": 32,
        "messages": [{"role": "user", "content": "control request 7f3a"}],
        "chat_template_kwargs": {"enable_thinking": False},
    }
    h = {} if srv.control is None else {"x-lily-reply": str(srv.control)}
    x = srv.post(CHAT, req, h, timeout=30)
    if x.status != 200 or (srv.control is not None and x.content != CONTROL):
        raise Fail(f"control request: 200 {CONTROL}", f"{x.status or x.error} {x.content}")


def subst(srv, value):
    """{"#id of": " a"} as a key or text "#id of( a)" becomes the id of that token."""
    if isinstance(value, dict):
        return {subst(srv, k): subst(srv, v) for k, v in value.items()}
    if isinstance(value, list):
        return [subst(srv, v) for v in value]
    m = isinstance(value, str) and re.fullmatch(r"#id of\((.*)\)", value)
    if m:
        ids = count_tokens(srv, content=m.group(1))
        if len(ids) != 1:
            raise Skip(f"{m.group(1)!r} is not one token here")
        return str(ids[0])
    return value


def unused_row(cfg):
    with open(os.path.join(cfg.model, "config.json")) as f:
        c = json.load(f)
    rows = (c.get("text_config") or c)["vocab_size"]
    with open(os.path.join(cfg.model, "tokenizer.json"), encoding="utf-8") as f:
        t = json.load(f)
    top = max([max(t["model"]["vocab"].values())] + [a["id"] for a in t["added_tokens"]])
    cfg.last_token = top
    if top + 1 >= rows:
        raise Skip("every row of this model has a token")
    return rows - 1


def apply_template(srv, req):
    x = srv.post("/apply-template", req)
    if x.status == 200:
        j = x.json
        if not isinstance(j, dict) or not isinstance(j.get("prompt"), str):
            raise Fail('{"prompt": text}', short(x.raw.decode("utf-8", "replace"), 80))
        x.prompt = j["prompt"]
    return x


def cached(x):
    u = x.usage or {}
    return (u.get("prompt_tokens_details") or {}).get("cached_tokens")
