"""Checks of a stream: its times, its events, its shape."""

import json
import re

from .checks import check
from .exchange import ok200
from .outcome import Fail, path_get, short, test, within
from .request import Run


@check
def c_first_byte_s(ctx, c):
    for w, x in ctx.xs():
        if x.stream:
            within(x.arrivals[0][0] if x.arrivals else 1e9, c, f"headers {w}")


@check
def c_max_gap_s(ctx, c):
    for w, x in ctx.xs():
        if x.stream:
            ts = [0.0] + [t for t, _ in x.arrivals] + [x.t_end]
            within(max(b - a for a, b in zip(ts, ts[1:])), c, f"pause {w}")


@check
def c_stream_parses_with_comments(ctx, c):
    for w, x in ctx.xs():
        if x.stream:
            test(not x.wire_errors, "a clean event stream", x.wire_errors, w)
            test(x.done, "[DONE]", x.raw[-100:].decode("latin-1"), w)
            test(x.comments or not c.get("comments"), "comment lines", 0, w)


@check
def c_stream_schema_ok(ctx, c):
    for w, x in ctx.xs():
        if not x.stream:
            continue
        ok200(x, w)
        test(x.sse, "content type text/event-stream", x.headers.get("content-type"), w)
        test(x.done and not x.wire_errors, "clean events and [DONE] last", x.wire_errors or "no [DONE]", w)
        for k in ("id", "created", "model"):
            test(
                len({json.dumps(e.get(k)) for e in x.events}) == 1 and x.events[0].get(k) is not None,
                f"one {k}",
                [e.get(k) for e in x.events][:4],
                w,
            )
        test(
            all(e.get("object") == "chat.completion.chunk" for e in x.events),
            "object chat.completion.chunk",
            x.events[0],
            w,
        )
        chs = [ch for e in x.events for ch in e.get("choices") or []]
        test(
            all(ch.get("index") == 0 and isinstance(ch.get("delta"), dict) and "finish_reason" in ch for ch in chs),
            "index, delta, finish_reason",
            chs[:2],
            w,
        )
        roles = [i for i, ch in enumerate(chs) if ch["delta"].get("role")]
        test(roles == [0] and chs[0]["delta"]["role"] == "assistant", "role in the first chunk only", roles, w)
        fins = [i for i, ch in enumerate(chs) if ch["finish_reason"] is not None]
        test(fins == [len(chs) - 1], "finish_reason in the last choice only", fins, w)


@check
def c_no_chunk_with_empty_choices(ctx, c):
    for w, x in ctx.xs():
        if x.stream:
            ok200(x, w)
            test(
                x.events and all(e.get("choices") for e in x.events),
                "choices in every chunk",
                [e for e in x.events if not e.get("choices")],
                w,
            )


@check
def c_last_chunk(ctx, c):
    for w, x in ctx.xs():
        if x.stream:
            ok200(x, w)
            e = x.events[-1] if x.events else {}
            test(
                len(e.get("choices") or []) == c["choices_len"] and all(e.get(k) for k in c["has"]),
                f"last chunk with {c['choices_len']} choices and {c['has']}",
                e,
                w,
            )
            test(
                all("usage" not in v or v["usage"] is None for v in x.events[:-1]),
                "usage only in the last chunk",
                "earlier too",
                w,
            )


@check
def c_stream_error_event(ctx, c):
    seen = False
    for w, x in ctx.xs():
        if x.stream:
            seen = True
            test(x.error_event, "an event with error", x.raw[-200:].decode("utf-8", "replace"), w)
            test(
                isinstance(x.error_event["error"], dict) and x.error_event["error"].get("message"),
                "error with message",
                x.error_event,
                w,
            )
            test(x.finish is None, "no finish_reason beside the error", x.finish, w)
    test(seen, "a stream", "none")


@check
def c_error_reported(ctx, c):
    for w, x in ctx.xs():
        if x.stream and x.status == 200:
            c_stream_error_event(ctx.only([Run(0, w, [x])]), c)
        else:
            test(
                x.status >= 500 and isinstance(path_get(x.json, "error.message"), str),
                "5xx with an error object",
                f"{x.status} {short(x.raw.decode('utf-8', 'replace'), 120)}",
                w,
            )


@check
def c_stream_done(ctx, c):
    for w, x in ctx.xs():
        test(x.done or x.error_event, "[DONE] or error", x.raw[-100:].decode("latin-1"), w)
        test(x.events, "events", "an empty stream", w)


@check
def c_stream_delta_count(ctx, c):
    for w, x in ctx.xs():
        if x.stream:
            within(len(x.deltas), c, w)


@check
def c_sse_lines_valid(ctx, c):
    for w, x in ctx.xs():
        if x.stream:
            test(not x.wire_errors, "one data line of JSON per event", x.wire_errors, w)


@check
def c_wire_utf8(ctx, c):
    for w, x in ctx.xs():
        try:
            t = x.raw.decode("utf-8")
        except UnicodeDecodeError as e:
            raise Fail("UTF-8 on the wire", str(e), w)
        test(
            not re.search(r"\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])", t, re.I),
            "no lone surrogate escape",
            t[-200:],
            w,
        )


@check
def c_progress_ok_or_absent(ctx, c):
    for w, x in ctx.xs():
        p = [e["prompt_progress"] for e in x.events if isinstance(e, dict) and e.get("prompt_progress")]
        done = [q.get("processed", 0) for q in p]
        test(done == sorted(done), "rising", done, w)
        test(not p or done[-1] == p[-1].get("total"), "last equals total", p[-1:], w)


@check
def c_logprobs_shape_ok(ctx, c):
    for w, x in ctx.xs():
        ok200(x, w)
        test(x.logprobs, "logprobs.content", x.logprobs, w)
        if "count" in c:
            test(
                len(x.logprobs) in (c["count"], c["count"] + 1),
                f"{c['count']} entries (one more with the end of turn)",
                len(x.logprobs),
                w,
            )
        for t in x.logprobs:
            ok = (
                isinstance(t.get("token"), str)
                and isinstance(t.get("logprob"), (int, float))
                and t["logprob"] <= 0
                and isinstance(t.get("bytes"), list)
                and isinstance(t.get("top_logprobs"), list)
            )
            test(ok, "token, logprob <= 0, bytes, top_logprobs", t, w)
            if "top" in c:
                test(len(t["top_logprobs"]) == c["top"], f"{c['top']} alternatives", len(t["top_logprobs"]), w)
                v = [u["logprob"] for u in t["top_logprobs"]]
                test(v == sorted(v, reverse=True), "best first", v, w)


@check
def c_stop_reason(ctx, c):
    for w, x in ctx.xs():
        ok200(x, w)
        test(x.finish == c["eq"], c["eq"], x.finish, w)


@check
def c_stop_reasons(ctx, c):
    for n, want in enumerate(c["eq"]):
        for w, x in ctx.only([r for r in ctx.runs if r.n == n]).xs():
            ok200(x, w)
            test(x.finish == want, want, x.finish, w)
