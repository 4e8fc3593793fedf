"""Checks of commands that read a checkpoint."""

from .checks import check
from .outcome import test, within
from .process import score


def tools_of(ctx):
    for r in ctx.runs:
        yield r.label, r.tool


@check
def c_exit_code_ne(ctx, c):
    for w, t in tools_of(ctx):
        test(t["rc"] != c["value"], f"exit code not {c['value']}", f"{t['rc']}: {t['out'][-100:]}", w)
        test(t["rc"] > 0, "no death by a signal", t["rc"], w)
        lines = t["err"].strip().split("\n")
        test(lines[-1].strip(), "a line on standard error", "nothing", w)


@check
def c_no_signal_exit(ctx, c):
    for w, t in tools_of(ctx):
        test(0 <= t["rc"] < 126, "a normal exit", t["rc"], w)


@check
def c_exit_s(ctx, c):
    for w, t in tools_of(ctx):
        within(t["s"], c, w)


@check
def c_stderr_contains(ctx, c):
    for w, t in tools_of(ctx):
        last = t["err"].strip().split("\n")[-1]
        for a in c["all"]:
            test(a in last, f"last line of standard error with {a!r}", last, w)


@check
def c_same_logits_as_clean(ctx, c):
    clean = ctx.extra.get("clean_score") or score(ctx.cfg, ctx.extra["clean"])
    ctx.extra["clean_score"] = clean
    test(clean["rc"] == 0 and clean["json"], "lily score works on the clean copy", clean["err"][-200:])
    for r in ctx.runs:
        test(r.tool["rc"] == 0, "inspect exits 0", f"{r.tool['rc']}: {r.tool['err'][-160:]}", r.label)
        s = score(ctx.cfg, r.dir)
        test(s["rc"] == 0, "score exits 0", s["err"][-160:], r.label)
        test(
            s["json"]["nll"] == clean["json"]["nll"] and s["json"]["top"] == clean["json"]["top"],
            "the same digits as the clean copy",
            [s["json"]["nll"][:3], clean["json"]["nll"][:3]],
            r.label,
        )


@check
def c_loads_or_error_names(ctx, c):
    for r in ctx.runs:
        if r.tool["rc"] == 0:
            c_same_logits_as_clean(ctx.only([r]), c)
        else:
            c_stderr_contains(ctx.only([r]), {"all": c["names"]})
