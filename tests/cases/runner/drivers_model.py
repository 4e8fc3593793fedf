"""Cases that need the model itself: turns, repeats, cancelled prompts, memory."""

import concurrent.futures
import json
import re
import socket
import time

from .checks import judge
from .drivers import driver
from .drivers_clients import wait_idle
from .exchange import CHAT, exchange
from .outcome import Fail, short
from .process import Server
from .request import Ctx, Run, build, count_tokens, modes, text_of, tool_defs, words


def chat_req(cfg, inp, messages, **kw):
    req = build(
        cfg,
        {"thinking": inp.get("thinking", False), "messages": messages},
        {"temperature": 0, "max_tokens": 32},
    )
    req.update(inp.get("request") or {})
    req.update(kw)
    return req


def out_of(x):
    if x.status != 200:
        raise Fail("status 200", f"{x.status or x.error} {short(x.raw.decode('utf-8', 'replace'), 120)}", x.label)
    lp = [(t["token"], t["logprob"]) for t in x.logprobs] if x.logprobs else None
    return {"text": x.reasoning + "\0" + x.content, "finish": x.finish, "lp": lp}


def cold(cfg, req, server=None, script=None):
    with Server(cfg, script, server=server) as s:
        return s.post(CHAT, req, timeout=580)


def lcp(a, b):
    n = 0
    for p, q in zip(a, b):
        if p != q:
            break
        n += 1
    return n


def prompt_ids(srv, req):
    return count_tokens(
        srv,
        **{k: v for k, v in req.items() if k in ("messages", "tools", "chat_template_kwargs", "tool_choice")},
    )


def warm_run(cfg, srv, n, req, earlier, label="", check_cold=True):
    ids = prompt_ids(srv, req)
    req = dict(req, logprobs=True)
    x = srv.post(CHAT, req, timeout=580)
    if x.status == 400:
        req.pop("logprobs")
        x = srv.post(CHAT, req, timeout=580)
    x.label = label
    best = max([lcp(ids, e) for e in earlier] or [0])
    run = Run(n, label, [x], lcp=best, out=out_of(x), total=len(ids))
    if check_cold:
        run.cold_x = cold(cfg, req)
        run.cold = out_of(run.cold_x)
    earlier.append(ids)
    return run


@driver
def do_turns(case, cfg):
    inp = case["input"]
    with Server(cfg) as srv:
        ctx, msgs, earlier = Ctx(case, cfg, srv=srv), [], []
        for n, t in enumerate(inp["turns"]):
            msgs.append({"role": "user", "content": f"Part {n}. " + text_of(srv, t["user_tokens"], n + 7)})
            run = warm_run(cfg, srv, n, chat_req(cfg, inp, msgs), earlier, f"turn {n}", check_cold=n > 0)
            ctx.runs.append(run)
            m = {"role": "assistant", "content": run.xs[0].content}
            if inp.get("send_reasoning"):
                m["reasoning_content"] = run.xs[0].reasoning
            msgs.append(m)
            if t.get("then_unrelated"):
                srv.post(
                    CHAT,
                    chat_req(cfg, inp, [{"role": "user", "content": text_of(srv, t["then_unrelated"], 99)}]),
                    timeout=580,
                )
        judge(ctx, case["judge"])


@driver
def do_repeat(case, cfg):
    inp = case["input"]
    with Server(cfg) as srv:
        ctx = Ctx(case, cfg, srv=srv)
        for g, size in enumerate(inp.get("prompt_tokens", [200])):
            req, earlier = chat_req(cfg, inp, [{"role": "user", "content": text_of(srv, size, g + 3)}]), []
            for n in range(inp["repeat"]):
                r = warm_run(cfg, srv, len(ctx.runs), req, earlier, f"size {size} repeat {n}", check_cold=n == 0)
                r.cold = getattr(r, "cold", None) or ctx.runs[-1].cold
                r.group = r.out if n == 0 else ctx.runs[-1].group
                ctx.runs.append(r)
        judge(ctx, case["judge"])


@driver
def do_cuts(case, cfg):
    """First a prefix of the prompt, cut at some token, then the whole prompt; the plain completions endpoint takes raw text."""
    inp = case["input"]
    with Server(cfg) as srv:
        ctx, ref = Ctx(case, cfg, srv=srv), None
        ids = count_tokens(srv, content=text_of(srv, inp["prompt_tokens"], 5))
        for n, cut in enumerate(inp["cuts"]):
            cut = min(cut, len(ids) - 1)
            exchange(srv.port, "DELETE", "/cache")
            body = dict(
                {"model": "lily", "temperature": 0, "max_tokens": 64, "logprobs": 1},
                **(inp.get("request") or {}),
            )
            a = srv.post("/v1/completions", dict(body, prompt=ids[:cut], max_tokens=1), timeout=580)
            x = srv.post("/v1/completions", dict(body, prompt=ids), timeout=580)
            if ref is None:
                with Server(cfg) as c:
                    ref = completion_out(c.post("/v1/completions", dict(body, prompt=ids), timeout=580))
            if a.status != 200:
                raise Fail(200, a.status, f"prefix {cut}")
            ctx.runs.append(Run(n, f"cut {cut}", [x], out=completion_out(x), cold=ref))
        judge(ctx, case["judge"])


def completion_out(x):
    if x.status != 200:
        raise Fail(
            "status 200 from /v1/completions",
            f"{x.status or x.error} {short(x.raw.decode('utf-8', 'replace'), 100)}",
        )
    ch = x.json["choices"][0]
    lp = ch.get("logprobs") or {}
    return {
        "text": ch.get("text"),
        "finish": ch.get("finish_reason"),
        "lp": list(zip(lp["tokens"], lp["token_logprobs"])) if lp.get("tokens") else None,
    }


@driver
def do_cancel_prompt(case, cfg):
    inp = case["input"]
    with Server(cfg) as srv:
        ctx = Ctx(case, cfg, srv=srv)
        req = chat_req(cfg, inp, [{"role": "user", "content": text_of(srv, inp["prompt_tokens"], 11)}])
        ref = cold(cfg, req)
        full = ((ref.json or {}).get("timings") or {}).get("prompt_ms")
        if full is None:
            full = ref.t_end * 1000
        body = json.dumps(dict(req, stream=True)).encode()
        s = socket.create_connection(("127.0.0.1", srv.port))
        s.sendall(
            b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % (CHAT.encode(), len(body))
            + body
        )
        time.sleep(full / 1000 * inp["cancel_after_fraction"])
        s.close()
        wait_idle(srv)
        ids = prompt_ids(srv, req)
        r = warm_run(cfg, srv, 0, req, [ids], "retry", check_cold=False)
        r.cold = out_of(ref)
        ctx.runs.append(r)
        judge(ctx, case["judge"])


@driver
def do_state_budget(case, cfg):
    inp = case["input"]
    with Server(cfg, server={"cache_mib": inp["budget_mib"]}) as srv:
        peak = 0.0
        for n in range(inp["turns"]):
            srv.post(
                CHAT,
                chat_req(
                    cfg,
                    inp,
                    [{"role": "user", "content": f"{n} " + text_of(srv, inp.get("user_tokens", 300), n)}],
                    max_tokens=4,
                ),
            )
            peak = max(peak, gauge(srv, "lily_state_bytes") / 2**20)
        exchange(srv.port, "DELETE", "/cache")
        judge(
            Ctx(case, cfg, [], srv, state_mib=peak, state_after_mib=gauge(srv, "lily_state_bytes") / 2**20),
            case["judge"],
        )


def gauge(srv, name):
    m = re.search(r"^%s(?:\{[^}]*\})? ([0-9.eE+-]+)" % name, srv.get("/metrics").raw.decode("utf-8", "replace"), re.M)
    if not m:
        raise Fail(f"/metrics has {name}", "not found")
    return float(m.group(1))


@driver
def do_seeds(case, cfg):
    inp = case["input"]
    with Server(cfg) as srv:
        ctx = Ctx(case, cfg, srv=srv)
        for n, s in enumerate(inp["seeds"]):
            x = srv.post(
                CHAT,
                chat_req(cfg, inp, [{"role": "user", "content": "Tell me a story."}], seed=s),
                timeout=300,
            )
            ctx.runs.append(Run(n, f"seed {s}", [x], out=out_of(x)))
        judge(ctx, case["judge"])


@driver
def do_parallel(case, cfg):
    """Several different requests at once; each must give what it gives alone."""
    inp = case["input"]
    with Server(cfg) as srv:
        reqs = [
            chat_req(cfg, inp, [{"role": "user", "content": f"Say {w} and then: " + words(20 + 7 * i, i)}])
            for i, w in enumerate(inp["say"])
        ]
        solo = [out_of(srv.post(CHAT, dict(r, cache_prompt=False), timeout=300)) for r in reqs]
        ctx = Ctx(case, cfg, srv=srv)
        with concurrent.futures.ThreadPoolExecutor(len(reqs)) as ex:
            for rnd in range(inp["rounds"]):
                for i, x in enumerate(ex.map(lambda r: srv.post(CHAT, r, timeout=300), reqs)):
                    ctx.runs.append(Run(i, f"round {rnd} request {i}", [x], out=out_of(x), solo=solo[i]))
        judge(ctx, case["judge"])


@driver
def do_chat(case, cfg):
    """One request to the model, plain and streamed."""
    inp = case["input"]
    with Server(cfg) as srv:
        run = Run(0, "")
        for r in modes(
            dict(
                chat_req(cfg, inp, (inp.get("request") or {}).get("messages") or cfg.base["messages"]),
                **({"tools": tool_defs(cfg, inp)} if inp.get("tools") else {}),
            )
        ):
            run.xs.append(srv.post(CHAT, r, timeout=580))
            run.xs[-1].stream = bool(r.get("stream"))
        judge(Ctx(case, cfg, [run], srv), case["judge"])


@driver
def do_many_requests(case, cfg):
    inp = case["input"]
    with Server(cfg) as srv:
        early = 0
        for n in range(inp["requests"]):
            x = srv.post(
                CHAT,
                chat_req(
                    cfg,
                    inp,
                    [{"role": "user", "content": f"{n} " + words(inp["prompt_tokens"], n)}],
                    max_tokens=inp["max_tokens"],
                ),
                timeout=300,
            )
            out_of(x)
            if n == inp["measure_from"]:
                early = srv.rss_mib()
        judge(Ctx(case, cfg, [], srv, rss_early=early, rss_late=srv.rss_mib()), case["judge"])


@driver
def do_refuse_large(case, cfg):
    inp = case["input"]
    with Server(cfg, {"replies": [{"text": "x"}], "end": "last"}) as srv:
        plan = ((srv.get("/props").json or {}).get("memory") or {}).get("weights_bytes")
        if not isinstance(plan, int):
            raise Fail("/props has memory.weights_bytes", plan)
    try:
        srv = Server(cfg, server={"memory_mib": (plan >> 20) + inp["mib_above_weights"]})
    except Fail as e:
        if re.search(r"exit code [1-9]", str(e)):
            return  # refused at start, with a sentence
        raise
    with srv:
        x = srv.post(
            CHAT, chat_req(cfg, inp, [{"role": "user", "content": words(inp["prompt_tokens"])}]), timeout=300
        )
        judge(Ctx(case, cfg, [Run(0, "", [x])], srv), case["judge"])


@driver
def do_peak(case, cfg):
    inp, ctx = case["input"], Ctx(case, cfg)
    spread, announced = [], None
    for n in inp["prompt_tokens"]:
        with Server(cfg, server={"ctx": max(inp["prompt_tokens"]) + 1024}) as srv:
            mem = (srv.get("/props").json or {}).get("memory") or {}
            announced = mem.get("planned_bytes", 0) / 2**20
            out_of(
                srv.post(
                    CHAT,
                    chat_req(cfg, inp, [{"role": "user", "content": text_of(srv, n, 2)}], max_tokens=2),
                    timeout=580,
                )
            )
            spread.append(srv.peak_mib())
    ctx.extra.update(peaks=spread, announced=announced)
    judge(ctx, case["judge"])
