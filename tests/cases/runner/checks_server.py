"""Checks of the server around its answers: cancel, health, memory, metrics, connections."""

import json
import os
import re

from .checks import check
from .outcome import Fail, test, within


@check
def c_busy_after_close_s(ctx, c):
    within(ctx.extra["busy_s"], c, "seconds until idle")
    if "ended" in ctx.extra:
        test(ctx.extra["ended"] == "cancel", "ended: cancel", ctx.extra["ended"])


@check
def c_next_request_start_s(ctx, c):
    within(ctx.extra["next_s"], c, "next request")


@check
def c_latency_max_s(ctx, c):
    test(ctx.extra["latency"], "probes", "none")
    within(max(ctx.extra["latency"]), c, "GET /health")


@check
def c_health_during(ctx, c):
    test(all(s == c["eq"] for s in ctx.extra["health"]) and ctx.extra["health"], c["eq"], ctx.extra["health"])


@check
def c_in_flight_seen(ctx, c):
    test(c["eq"] in ctx.extra["flights"], f"in_flight {c['eq']} during the request", ctx.extra["flights"][:10])


@check
def c_rss_growth_mib(ctx, c):
    within(ctx.extra["rss_growth"], c, "growth in MiB")


@check
def c_rss_ratio(ctx, c):
    within(
        ctx.extra["rss_late"] / ctx.extra["rss_early"],
        c,
        f"{ctx.extra['rss_early']:.1f} -> {ctx.extra['rss_late']:.1f} MiB",
    )


@check
def c_peak_minus_kv_spread(ctx, c):
    p = ctx.extra["peaks"]
    within(max(p) - min(p), {"le": c["le_mib"]}, f"peaks {p} MiB")


@check
def c_peak_ratio_first_to_second(ctx, c):
    within(ctx.extra["peaks"][0] / ctx.extra["peaks"][1], c, f"peaks {ctx.extra['peaks']} MiB")


@check
def c_peak_le_announced(ctx, c):
    within(
        max(ctx.extra["peaks"]),
        {"le": ctx.extra["announced"] + c.get("slack_mib", 64)},
        f"announced {ctx.extra['announced']:.1f} MiB",
    )


@check
def c_metrics_parse(ctx, c):
    for w, x in ctx.xs():
        test(x.status == 200, 200, x.status, w)
        for line in x.raw.decode("utf-8").split("\n"):
            test(
                re.fullmatch(r"(#.*|[a-zA-Z_:][a-zA-Z0-9_:]*(\{[^{}]*\})? (NaN|[+-]?Inf|[-+0-9.eE]+)( \d+)?|)", line),
                "text format",
                line,
                w,
            )


@check
def c_counters_monotonic(ctx, c):
    last = {}
    for w, x in ctx.xs():
        text = x.raw.decode("utf-8")
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", text, re.M))
        for name, v in re.findall(r"^([^#\s]+) ([-+0-9.eE]+)", text, re.M):
            if kinds.get(name.split("{")[0]) == "counter":
                test(float(v) >= last.get(name, 0), f"{name} at least {last.get(name)}", v, w)
                last[name] = float(v)
            if name.startswith("lily_requests_in_flight"):
                test(float(v) == 0, "nothing in flight", v, w)
    test(
        last.get("lily_requests_total", 0) >= 3 and last.get("lily_generated_tokens_total", 0) >= 3,
        "lily_requests_total, lily_generated_tokens_total counted",
        last,
    )


@check
def c_no_outgoing_connections(ctx, c):
    try:
        fds = os.listdir(f"/proc/{ctx.srv.p.pid}/fd")
    except OSError:
        return
    inodes = set()
    for f in fds:
        try:
            m = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{ctx.srv.p.pid}/fd/{f}"))
            if m:
                inodes.add(m.group(1))
        except OSError:
            pass
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{ctx.srv.p.pid}/net/{table}") as f:
            for line in f.read().split("\n")[1:]:
                p = line.split()
                if (
                    len(p) > 9
                    and p[9] in inodes
                    and p[3] in ("01", "02")
                    and int(p[1].split(":")[1], 16) != ctx.srv.port
                ):
                    raise Fail("no connection of its own", line.strip())


@check
def c_warning_or_400(ctx, c):
    for w, x in ctx.xs():
        if x.status == 400:
            continue
        text = json.dumps(x.headers) + ctx.srv.tail() + x.raw.decode("utf-8", "replace")
        for n in c["names"]:
            test(re.search(rf"\b{n}\b", text), f"a warning that names {n}", "none", w)
