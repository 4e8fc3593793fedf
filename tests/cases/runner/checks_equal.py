"""Checks that two computations agree: warm and cold, alone and together, whole and in windows."""

import math

from .checks import check
from .outcome import path_get, short, test, within
from .request import cached


@check
def c_identical_outputs(ctx, c):
    test(ctx.runs, "runs", "none")
    for r in ctx.runs:
        o = (
            r.out
            if hasattr(r, "out")
            else {"text": r.xs[0].reasoning + "\0" + r.xs[0].content, "finish": r.xs[0].finish}
        )
        if c["against"] == "cold" and not hasattr(r, "cold"):
            continue
        first = ctx.runs[0]
        ref = (
            r.cold
            if c["against"] == "cold"
            else (
                first.out
                if hasattr(first, "out")
                else {
                    "text": first.xs[0].reasoning + "\0" + first.xs[0].content,
                    "finish": first.xs[0].finish,
                }
            )
        )
        if c["against"] == "first" and hasattr(r, "group"):  # groups of equal requests
            ref = r.group
        test(
            (o["text"], o["finish"]) == (ref["text"], ref["finish"]),
            f"as {c['against']}: {short(ref['text'], 120)}",
            short(o["text"], 120),
            r.label,
        )


def logit_diff(a, b, w):
    test(a is not None and b is not None, "logprobs in the answer", "none", w)
    return max([abs(p - q) for (_, p), (_, q) in zip(a, b)] or [0.0])


@check
def c_max_abs_logit_diff(ctx, c):
    limit = c["le"] if isinstance(c["le"], (int, float)) else ctx.cfg.logit_tol
    for r in ctx.runs:
        if hasattr(r, "a"):
            a, b = dict(map(tuple, r.a["top"])), dict(map(tuple, r.b["top"]))
            d = max([abs(a[k] - b[k]) for k in a if k in b] or [math.inf])
        elif hasattr(r, "cold"):
            d = logit_diff(r.out["lp"], r.cold["lp"], r.label)
        else:
            continue
        test(d <= limit, f"difference at most {limit}", d, r.label)


@check
def c_same_top1(ctx, c):
    for r in ctx.runs:
        test(r.a["top"][0][0] == r.b["top"][0][0], r.b["top"][0], r.a["top"][0], r.label)


@check
def c_same_top1_or_margin(ctx, c):
    for r in ctx.runs:
        margin = r.b["top"][0][1] - r.b["top"][1][1]
        test(
            r.a["top"][0][0] == r.b["top"][0][0] or margin < ctx.cfg.logit_tol,
            r.b["top"][:2],
            r.a["top"][:2],
            r.label,
        )


@check
def c_all_finite(ctx, c):
    for r in ctx.runs:
        for t, p in getattr(r, "out", {}).get("lp") or []:
            test(isinstance(p, (int, float)) and math.isfinite(p), "finite logprobs", p, r.label)


@check
def c_outputs_equal(ctx, c):
    for a, b in c["pairs"]:
        test(
            ctx.runs[a].out["text"] == ctx.runs[b].out["text"],
            ctx.runs[a].out["text"],
            ctx.runs[b].out["text"],
            f"{a}, {b}",
        )


@check
def c_outputs_differ(ctx, c):
    for a, b in c["pairs"]:
        test(
            ctx.runs[a].out["text"] != ctx.runs[b].out["text"],
            "different texts",
            ctx.runs[a].out["text"],
            f"{a}, {b}",
        )


@check
def c_each_equals_solo(ctx, c):
    for r in ctx.runs:
        test(r.out["text"] == r.solo["text"], r.solo["text"], r.out["text"], r.label)


@check
def c_cached_tokens(ctx, c):
    for r in ctx.runs:
        within(cached(r.xs[0]), c, f"cached tokens {r.label}")


@check
def c_cached_tokens_ratio(ctx, c):
    for r in ctx.runs:
        v = cached(r.xs[0])
        test(isinstance(v, int), "usage.prompt_tokens_details.cached_tokens", v, r.label)
        within(v / max(1, r.lcp), c, f"{r.label}: {v} of {r.lcp} tokens reused")


@check
def c_prefill_time_ratio_to_cold(ctx, c):
    for r in ctx.runs:
        a, b = (path_get(x.json, "timings.prompt_ms") for x in (r.xs[0], r.cold_x))
        test(isinstance(a, (int, float)) and b, "timings.prompt_ms", [a, b], r.label)
        within(a / b, c, r.label)


@check
def c_state_bytes_max(ctx, c):
    within(ctx.extra["state_mib"], {"le": c["le_mib"]}, "largest lily_state_bytes in MiB")


@check
def c_state_bytes_after_reset(ctx, c):
    within(ctx.extra["state_after_mib"], {"le": c["le_mib"]}, "lily_state_bytes in MiB after reset")
