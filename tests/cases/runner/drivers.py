"""Drivers: each runs the input of a case and judges what came back. Here: requests to a scripted server."""

import copy
import json

from .checks import c_same_stream_nonstream, judge
from .exchange import CHAT, exchange
from .outcome import Fail, short
from .process import Server
from .request import (
    Ctx,
    Run,
    SOURCES,
    alive,
    apply_template,
    build,
    modes,
    reply_of,
    subst,
    text_of,
    unused_row,
)

DRIVERS = {}


def driver(f):
    DRIVERS[f.__name__.removeprefix("do_")] = f
    return f


def variants_of(inp):
    for n, v in enumerate(inp.get("variants") or [{}]):
        v = copy.deepcopy(v)
        own = {
            k: v.pop(k)
            for k in list(v)
            if k in SOURCES + ("cut", "thinking", "tools", "fail_at", "messages", "endpoint")
            and not (k == "messages" and inp["_mode"] == "http")
            and not (k == "tools" and inp["_mode"] == "http")
        }
        merged = dict(inp, **own)
        if any(k in own for k in SOURCES):
            for k in SOURCES:
                if k not in own:
                    merged.pop(k, None)
        yield n, v, merged


@driver
def do_replay(case, cfg):
    inp = dict(case["input"], _mode=case["mode"])
    plan, replies = [], []
    for n, extra, merged in variants_of(inp):
        req = build(cfg, merged, extra)
        for split in (merged.get("splits") or [None]) if "reply" in merged else [None]:
            reply = reply_of(merged, split)
            if isinstance(reply.get("logits"), dict) and "#unused" in reply["logits"]:
                reply["logits"] = dict(reply["logits"])
                reply["logits"]["#%d" % unused_row(cfg)] = reply["logits"].pop("#unused")
            for rep in range(merged.get("repeat", 1)):
                label = "/".join(
                    filter(
                        None,
                        [
                            f"variant {n}" if len(inp.get("variants") or []) > 1 else "",
                            f"split {split}" if split is not None else "",
                            f"repeat {rep}" if rep else "",
                        ],
                    )
                )
                plan.append((n, label, req, len(replies), merged.get("endpoint", CHAT)))
            replies.append(dict(reply, times=0))
    ctx = Ctx(case, cfg)
    ctx.srv = Server(cfg, {"replies": replies}, server=inp.get("server"))
    try:
        if "prompt_tokens" in inp:
            text = text_of(ctx.srv, inp["prompt_tokens"] - 12)
            for p in plan:
                p[2]["messages"] = [{"role": "user", "content": text}]
        for n, label, req, reply, ep in plan:
            run = Run(n, label, req=req)
            ctx.runs.append(run)
            for r in modes(subst(ctx.srv, req)):
                x = ctx.srv.chat(r, reply, ep)
                run.xs.append(x)
                if x.error or not x.status:
                    raise Fail("an answer", f"{x.error}; {ctx.srv.tail()[-200:]}", label)
        judge(ctx, case["judge"])
        if (
            case["mode"] == "replay"
            and inp.get("endpoint", CHAT) == CHAT
            and not inp.get("cut")
            and "fail_at" not in inp
        ):
            implicit_same(ctx)
        if "alive" not in json.dumps(case["judge"]):
            alive(ctx.srv)
    finally:
        ctx.srv.stop()


def implicit_same(ctx):
    for r in ctx.runs:
        if len(r.xs) == 2 and r.xs[0].status == r.xs[1].status == 200:
            c_same_stream_nonstream(ctx.only([r]), {})


@driver
def do_http(case, cfg):
    inp = case["input"]
    if not any(k in inp for k in ("raw_bodies", "http")):
        return do_replay(case, cfg)
    ctx = Ctx(case, cfg)
    ctx.srv = Server(cfg, {"replies": [dict(reply_of(inp), times=0)], "end": "last"}, server=inp.get("server"))
    try:
        if "raw_bodies" in inp:
            for n, b in enumerate(inp["raw_bodies"]):
                if isinstance(b, dict):
                    b = b["repeat"][0] * b["repeat"][1] if "repeat" in b else bytes.fromhex(b["hex"])
                b = b.encode("utf-8") if isinstance(b, str) else b
                ctx.runs.append(Run(n, f"body {n} {short(b.decode('latin-1'), 40)}", [ctx.srv.post(CHAT, b)]))
                if ctx.srv.p.poll() is not None:
                    raise Fail("server alive", f"exit {ctx.srv.p.returncode} after body {n}")
        for n, q in enumerate(inp.get("http") or []):
            if q.get("chat"):
                req = build(cfg, {})
                x = exchange(ctx.srv.port, "POST", CHAT, req, q.get("headers"))
            else:
                x = exchange(ctx.srv.port, q["method"], q["path"], q.get("body"), q.get("headers"))
            ctx.runs.append(Run(n, f"{q.get('method', 'POST')} {q.get('path', CHAT)}", [x]))
        judge(ctx, case["judge"])
        if "alive" not in json.dumps(case["judge"]):
            alive(ctx.srv)
    finally:
        ctx.srv.stop()


@driver
def do_template(case, cfg):
    inp = dict(case["input"], _mode=case["mode"])
    ctx = Ctx(case, cfg, inp=inp)
    ctx.srv = Server(cfg, {"replies": [{"text": "x"}], "end": "last"}, server=inp.get("server"))
    try:
        for n, extra, merged in variants_of(inp):
            req = build(cfg, merged, extra, chat=False)
            if "endpoint" in inp:
                x = ctx.srv.chat(
                    {k: v for k, v in req.items() if k != "messages"} if "input" in req else req,
                    0,
                    inp["endpoint"],
                )
            else:
                x = apply_template(ctx.srv, req)
            ctx.runs.append(Run(n, f"variant {n}", [x], req=req))
        judge(ctx, case["judge"])
        alive(ctx.srv)
    finally:
        ctx.srv.stop()


@driver
def do_tokenizer(case, cfg):
    inp = case["input"]
    ctx = Ctx(case, cfg)
    ctx.srv = Server(cfg, {"replies": [{"text": "x"}], "end": "last"})
    try:
        texts = list(inp.get("texts") or []) + [a * b for a, b in inp.get("texts_repeat") or []]
        for n, t in enumerate(texts + [t for p in inp.get("pairs") or [] for t in p]):
            x = ctx.srv.post("/tokenize", {"content": t, "parse_special": bool(inp.get("specials"))})
            x.ids = (x.json or {}).get("tokens")
            ctx.runs.append(Run(n, f"text {short(t, 20)!r}", [x], text=t))
        if "messages" in inp:
            x = ctx.srv.post("/tokenize", {"messages": inp["messages"]})
            x.ids = (x.json or {}).get("tokens")
            ctx.runs.append(Run(0, "messages", [x]))
        judge(ctx, case["judge"])
    finally:
        ctx.srv.stop()
