"""The table of checks, and those of one answer: status, fields, content, thinking, calls, usage."""

import json
import re

from .exchange import arguments, ok200
from .outcome import Fail, path_get, same, short, test, within
from .request import alive

CHECKS = {}


def check(f):
    CHECKS[f.__name__[2:]] = f
    return f


def judge(ctx, checks):
    for c in checks:
        try:
            CHECKS[c["check"]](ctx, c)
        except Fail:
            if not c.get("optional"):
                raise


def trimmed(s, c):
    return (s or "").strip() if c.get("trim") else (s or "")


def each(name):
    """A check of one value of every 200 answer."""

    def deco(f):
        def g(ctx, c):
            seen = False
            for w, x in ctx.xs():
                ok200(x, w)
                f(x, c, f"{name} {w}")
                seen = True
            test(seen, "an answer", "none", name)

        CHECKS[name] = g
        return g

    return deco


@check
def c_status(ctx, c):
    for w, x in ctx.xs():
        test(
            x.status == c["eq"],
            f"status {c['eq']}",
            f"{x.status or x.error} {short(x.raw.decode('utf-8', 'replace'), 160)}",
            w,
        )


@check
def c_status_in(ctx, c):
    for w, x in ctx.xs():
        test(x.status in c["values"], f"status in {c['values']}", x.status or x.error, w)


@check
def c_statuses(ctx, c):
    seen = [r.xs[0].status for r in ctx.runs]
    test(seen == c["eq"], c["eq"], seen, "statuses")


@check
def c_statuses_in(ctx, c):
    for r, v in zip(ctx.runs, c["values"]):
        test(r.xs[0].status in v, f"status in {v}", r.xs[0].status, r.label)


@check
def c_not_5xx(ctx, c):
    for w, x in ctx.xs():
        test(0 < x.status < 500, "status below 500", x.status or x.error, w)


@check
def c_error_shape(ctx, c):
    for w, x in ctx.xs():
        e = (x.json or {}).get("error") if isinstance(x.json, dict) else None
        test(
            isinstance(e, dict)
            and isinstance(e.get("message"), str)
            and isinstance(e.get("type"), str)
            and "param" in e
            and "code" in e,
            "{error:{message,type,param,code}}",
            x.raw.decode("utf-8", "replace"),
            w,
        )


@check
def c_body_contains(ctx, c):
    for w, x in ctx.xs():
        test(
            c["text"] in x.raw.decode("utf-8", "replace"),
            f"body contains {c['text']}",
            x.raw.decode("utf-8", "replace"),
            w,
        )


@check
def c_body_regex(ctx, c):
    for w, x in ctx.xs():
        test(
            re.search(c["re"], x.raw.decode("utf-8", "replace"), re.S),
            f"body matches {c['re']}",
            x.raw.decode("utf-8", "replace"),
            w,
        )


@check
def c_alive(ctx, c):
    alive(ctx.srv)


CHECKS["control_request_ok"] = c_alive


@check
def c_control_pair_ok(ctx, c):
    for body in ('{"messages":[{"role":"user","content":"x\\ud83d\\ude00y"}],"max_tokens":8}',):
        x = ctx.srv.chat(body.encode(), 0)
        test(x.status == 200, "a surrogate pair is fine: 200", x.status)
        test("x\U0001f600y" in (x.prompt or ""), "the character is in the prompt", x.prompt)


@check
def c_json(ctx, c):
    for w, x in ctx.xs():
        j = x.json
        if x.sse:
            j = {"usage": x.usage, "error": (x.error_event or {}).get("error")}
            if not c["path"].startswith(("usage", "error")):
                continue
        v = path_get(j, c["path"])
        if "eq" in c and not isinstance(c["eq"], (int, float)):
            test(same(v, c["eq"]), f"{c['path']} = {c['eq']}", v, w)
        else:
            within(v, c, f"{w} {c['path']}")


@check
def c_json_has(ctx, c):
    for w, x in ctx.xs():
        o = path_get(x.json, c["path"])
        missing = [k for k in c["keys"] if not isinstance(o, dict) or k not in o]
        test(not missing, f"{c['path']} has {c['keys']}", f"without {missing}", w)


@check
def c_json_len(ctx, c):
    for w, x in ctx.xs():
        if x.sse:
            idx = {ch.get("index") for e in x.events for ch in e.get("choices") or []}
            test(len(idx) == c["eq"], f"{c['eq']} choices", len(idx), w)
            continue
        v = path_get(x.json, c["path"])
        test(isinstance(v, list) and len(v) == c["eq"], f"{c['path']} of length {c['eq']}", v, w)


@check
def c_json_get(ctx, c):
    x = ctx.srv.get(c["endpoint"])
    body = x.raw.decode("utf-8", "replace")
    missing = [k for k in c["has"] if f'"{k}"' not in body]
    test(x.status == 200 and not missing, f"{c['endpoint']} has {c['has']}", f"{x.status}, without {missing}")


@check
def c_json_same_over_repeat(ctx, c):
    vals = []
    for w, x in ctx.xs():
        vals.append(path_get({"usage": x.usage} if x.sse else x.json, c["path"]))
    test(len({json.dumps(v) for v in vals}) == 1 and vals[0] is not None, "one value", vals, c["path"])


@check
def c_header(ctx, c):
    for w, x in ctx.xs():
        test(c["name"].lower() in x.headers, f"header {c['name']}", sorted(x.headers), w)


@check
def c_header_contains(ctx, c):
    for w, x in ctx.xs():
        v = x.headers.get(c["name"].lower(), "").lower()
        test(
            "*" == v.strip() and not c.get("literal") or all(a.lower() in v for a in c["all"]),
            f"{c['name']} with {c['all']}",
            v,
            w,
        )


@each("content")
def c_content(x, c, w):
    test(trimmed(x.content, c) == c["eq"], c["eq"], x.content, w)


@each("content_in")
def c_content_in(x, c, w):
    test(x.content in [v or "" for v in c["values"]], c["values"], x.content, w)


@each("content_regex")
def c_content_regex(x, c, w):
    test(re.search(c["re"], x.content), c["re"], x.content, w)


@each("content_rstrip")
def c_content_rstrip(x, c, w):
    test(x.content.rstrip() == c["eq"], c["eq"], x.content, w)


@each("content_is_json")
def c_content_is_json(x, c, w):
    try:
        json.loads(x.content)
    except ValueError:
        raise Fail("JSON", x.content, w)


def fits(v, s):
    t = s.get("type")
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if t and (not isinstance(v, kinds[t]) or (isinstance(v, bool) and t not in ("boolean",))):
        return False
    if isinstance(v, dict):
        return all(k in v for k in s.get("required", [])) and all(
            fits(v[k], p) for k, p in (s.get("properties") or {}).items() if k in v
        )
    return True


@check
def c_content_json_schema_ok(ctx, c):
    for r in ctx.runs:
        for x in r.xs:
            ok200(x, r.label)
            try:
                v = json.loads(x.content)
            except ValueError:
                raise Fail("JSON", x.content, r.label)
            test(
                fits(v, r.req["response_format"]["json_schema"]["schema"]),
                "a value that fits the schema",
                v,
                r.label,
            )


@each("never_in_content")
def c_never_in_content(x, c, w):
    for a in c["any"]:
        test(a not in x.content and not any(a in d for d in x.deltas), f"never {a!r} in content", x.content, w)


@each("reasoning")
def c_reasoning(x, c, w):
    test(trimmed(x.reasoning, c) == c["eq"], c["eq"], x.reasoning, w)


@each("reasoning_in")
def c_reasoning_in(x, c, w):
    test(x.reasoning in [v or "" for v in c["values"]], c["values"], x.reasoning, w)


@each("reasoning_contains")
def c_reasoning_contains(x, c, w):
    for a in c["all"]:
        test(a in x.reasoning, f"reasoning with {a!r}", x.reasoning, w)


@each("reasoning_starts_not_with")
def c_reasoning_starts_not_with(x, c, w):
    test(
        not x.reasoning.startswith(tuple(c["any"])),
        f"reasoning does not begin with {c['any']}",
        x.reasoning,
        w,
    )


@each("reasoning_tokens")
def c_reasoning_tokens(x, c, w):
    n = path_get(x.usage or {}, "completion_tokens_details.reasoning_tokens")
    within(n if n is not None else x.reasoning.count(c.get("piece", " a")), c, w)


@each("if_present_equal")
def c_if_present_equal(x, c, w):
    vals = {f: x.fields[f] for f in c["fields"] if f in x.fields}
    test(len(set(vals.values())) <= 1, "equal fields", vals, w)


@each("calls")
def c_calls(x, c, w):
    seen = [{"name": k["name"], "arguments": arguments(k)} for k in x.calls]
    test(same(seen, c["eq"]), c["eq"], seen, w)


@each("calls_raw_arguments")
def c_calls_raw_arguments(x, c, w):
    test([k["arguments"] for k in x.calls] == c["eq"], c["eq"], [k["arguments"] for k in x.calls], w)


@each("call_names")
def c_call_names(x, c, w):
    test([k["name"] for k in x.calls] == c["eq"], c["eq"], [k["name"] for k in x.calls], w)


@each("call_indices")
def c_call_indices(x, c, w):
    test([k["index"] for k in x.calls] == c["eq"], c["eq"], [k["index"] for k in x.calls], w)


@each("call_ids_unique")
def c_call_ids_unique(x, c, w):
    ids = [k["id"] for k in x.calls]
    test(all(ids) and len(set(ids)) == len(ids), "different, not empty ids", ids, w)


@each("no_call_with_empty_name")
def c_no_call_with_empty_name(x, c, w):
    test(all(k["name"] for k in x.calls), "no empty name", x.calls, w)


@check
def c_nonstream_calls(ctx, c):
    for w, x in ctx.xs():
        if not x.stream:
            seen = [{"name": k["name"], "arguments": arguments(k)} for k in x.calls]
            test(same(seen, c["eq"]), c["eq"], seen, w)


@check
def c_stream_call_shape(ctx, c):
    for w, x in ctx.xs():
        if not x.stream:
            continue
        known = set()
        test(x.call_deltas, "call deltas", "none", w)
        for d in x.call_deltas:
            f, i = d.get("function") or {}, d.get("index")
            test(isinstance(i, int), "index in each delta", d, w)
            if i not in known:
                known.add(i)
                test(
                    d.get("id") and d.get("type") == "function" and f.get("name"),
                    "first delta with id, type, function.name",
                    d,
                    w,
                )
                test(isinstance(f.get("arguments", ""), str), "arguments is a string", d, w)
            else:
                test(
                    not d.get("id")
                    and not f.get("name")
                    and set(d) <= {"index", "function", "type", "id"}
                    and isinstance(f.get("arguments"), str),
                    "later delta with index and arguments only",
                    d,
                    w,
                )
        for k in x.calls:
            test(
                "$not JSON" not in (arguments(k) if isinstance(arguments(k), dict) else {}),
                "joined arguments parse",
                k["arguments"],
                w,
            )
        last = [ch for e in x.events for ch in e.get("choices") or [] if ch.get("finish_reason")]
        test(len(last) == 1, "one chunk with finish_reason", len(last), w)


@check
def c_call_argument_deltas(ctx, c):
    for w, x in ctx.xs():
        if x.stream:
            within(sum(1 for d in x.call_deltas if (d.get("function") or {}).get("arguments")), c, w)


@each("finish")
def c_finish(x, c, w):
    test(x.finish == c["eq"], c["eq"], x.finish, w)


@check
def c_same_for_all_splits(ctx, c):
    groups = {}
    for r in ctx.runs:
        for x in r.xs:
            f = dict(x.final(), usage=None)
            f["content"] = f["content"].strip() if c.get("trim") else f["content"]
            groups.setdefault(r.n, []).append((r.label, f))
    for g in groups.values():
        for w, f in g[1:]:
            test(same(f, g[0][1]), g[0][1], f, f"{w} against {g[0][0]}")


@check
def c_same_stream_nonstream(ctx, c):
    for r in ctx.runs:
        if len(r.xs) == 2:
            a, b = r.xs[0].final(), r.xs[1].final()
            for k in a:
                test(same(a[k], b[k]), f"stream equals plain: {short(a[k], 200)}", b[k], f"{r.label} {k}")


@each("usage_completion")
def c_usage_completion(x, c, w):
    within((x.usage or {}).get("completion_tokens"), c, w)


@each("usage_total")
def c_usage_total(x, c, w):
    within((x.usage or {}).get("total_tokens"), c, w)


@check
def c_generated_tokens(ctx, c):
    for w, x in ctx.xs():
        test(x.record, "a record in GET /script", None, w)
        within(x.record.get("tokens"), c, f"tokens taken {w}")


@check
def c_token_ids_max(ctx, c):
    limit = c.get("le") if c.get("le") is not None else getattr(ctx.cfg, "last_token", 0)
    for w, x in ctx.xs():
        top = max((x.record or {}).get("ids") or [0])
        test(top <= limit, f"ids at most {limit}", top, w)
