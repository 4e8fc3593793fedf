"""Checks of rendered prompts and token ids, and the scopes that pick variants."""

import os

from .checks import CHECKS, check, judge
from .exchange import ok200
from .outcome import Fail, Skip, short, test, within
from .request import Run, apply_template, build, count_tokens


def prompts(ctx):
    for w, x in ctx.xs():
        test(
            x.prompt is not None,
            "a prompt",
            f"status {x.status or x.error} {short(x.raw.decode('utf-8', 'replace'), 160)}",
            w,
        )
        yield w, x.prompt


@check
def c_prompt_contains(ctx, c):
    for w, p in prompts(ctx):
        for a in c["all"]:
            test(a in p, f"prompt with {a!r}", p[-500:], w)


@check
def c_prompt_lacks(ctx, c):
    for w, p in prompts(ctx):
        for a in c["any"]:
            test(a not in p, f"prompt without {a!r}", p[-500:], w)


@check
def c_prompt_count(ctx, c):
    for w, p in prompts(ctx):
        test(
            p.count(c["text"]) == c["eq"],
            f"{c['eq']} times {c['text']!r}",
            f"{p.count(c['text'])} in {short(p)}",
            w,
        )


@check
def c_prompt_order(ctx, c):
    for w, p in prompts(ctx):
        at = 0
        for t in c["texts"]:
            i = p.find(t, at)
            test(i >= 0, f"{c['texts']} in this order", p, w)
            at = i + len(t)


@check
def c_prompt_ends_with(ctx, c):
    for w, p in prompts(ctx):
        test(p.endswith(c["text"]), f"ends with {c['text']!r}", p[-80:], w)


def other_prompt(ctx, messages, extra=None):
    inp = ctx.extra["inp"]
    x = apply_template(
        ctx.srv,
        build(
            ctx.cfg,
            dict(inp, messages=messages, request=dict(inp.get("request") or {}, **(extra or {}))),
            chat=False,
        ),
    )
    ok200(x, "comparison prompt")
    return x.prompt


@check
def c_control_prompt_ends_with(ctx, c):
    p = other_prompt(ctx, ctx.case["input"]["messages"])
    test(p.endswith(c["text"]), f"without the switch: ends with {c['text']!r}", p[-80:])


@check
def c_prompt_same_as(ctx, c):
    q = other_prompt(ctx, c["messages"])
    for w, p in prompts(ctx):
        test(p == q, q, p, w)


@check
def c_prompt_starts_same_as(ctx, c):
    q = other_prompt(ctx, c["messages"])
    q = q[: q.rfind("<|im_start|>assistant")]
    for w, p in prompts(ctx):
        test(p.startswith(q), q, p, w)


@check
def c_all_variants_same_prompt(ctx, c):
    ps = [p for _, p in prompts(ctx)]
    for i, p in enumerate(ps):
        test(p == ps[0], ps[0], p, f"variant {i}")


@check
def c_pairs_same_prompt(ctx, c):
    inp = ctx.case["input"]
    for a, b in inp["pairs"]:
        pa, pb = other_prompt(ctx, inp["context"] + [a] + inp.get("after", [])), other_prompt(
            ctx, inp["context"] + [b] + inp.get("after", [])
        )
        test(pa == pb, pa, pb, "pair")


@check
def c_decoded_prompt_contains(ctx, c):
    for w, x in ctx.xs():
        test(x.ids, "prompt ids", x.ids, w)
        d = ctx.srv.post("/detokenize", {"tokens": x.ids})
        text = (d.json or {}).get("content") or ""
        for a in c["all"]:
            test(a in text, f"decoded prompt with {a!r}", text[-300:], w)


@check
def c_special_count(ctx, c):
    tid = count_tokens(ctx.srv, content=c["token"], parse_special=True)
    test(len(tid) == 1, f"{c['token']} is one token", tid)
    for w, x in ctx.xs():
        test(isinstance(x.ids, list), "ids", x.status, w)
        test(x.ids.count(tid[0]) == c["eq"], f"{c['eq']} times {c['token']}", x.ids.count(tid[0]), w)


@check
def c_ids_equal_reference(ctx, c):
    try:
        import tokenizers
    except ImportError:
        raise Skip("needs the package tokenizers")
    ref = tokenizers.Tokenizer.from_file(os.path.join(ctx.cfg.model, "tokenizer.json"))
    runs = list(ctx.runs)
    for t in c.get("texts") or []:
        x = ctx.srv.post("/tokenize", {"content": t})
        x.ids = (x.json or {}).get("tokens")
        runs.append(Run(0, f"text {t!r}", [x], text=t))
    for r in runs:
        want = ref.encode(r.text, add_special_tokens=False).ids
        test(r.xs[0].ids == want, f"ids {short(want, 120)}", short(r.xs[0].ids, 120), r.label)


@check
def c_pairs_same_ids(ctx, c):
    n = len(ctx.case["input"].get("texts") or [])
    rs = ctx.runs[n:]
    for a, b in zip(rs[::2], rs[1::2]):
        test(a.xs[0].ids and a.xs[0].ids == b.xs[0].ids, a.xs[0].ids, b.xs[0].ids, a.label)


@check
def c_time_s(ctx, c):
    for w, x in ctx.xs():
        within(x.t_end, c, w)


@check
def c_variant(ctx, c):
    runs = [r for r in ctx.runs if r.n == c["n"]]
    test(runs, f"variant {c['n']}", "not run")
    judge(ctx.only(runs), c["then"])


CHECKS["turn"] = CHECKS["request"] = c_variant


@check
def c_variants_from(ctx, c):
    judge(ctx.only([r for r in ctx.runs if r.n >= c["n"]]), c["then"])


@check
def c_all_variants(ctx, c):
    for n in sorted({r.n for r in ctx.runs}):
        judge(ctx.only([r for r in ctx.runs if r.n == n]), c["then"])


@check
def c_any_of(ctx, c):
    why = []
    for alt in c["of"]:
        try:
            return judge(ctx, alt)
        except Fail as e:
            why.append(str(e))
    raise Fail("one of the alternatives", " | ".join(why))
