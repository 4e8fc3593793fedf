"""Schemas that are made to cost: each is compiled or refused, and what is compiled writes its first tokens, within bounds of
time and memory.  The bounds are ten times what they take on a slow core, so that a busy machine does not matter."""
import json
import os
import resource
import subprocess

import pytest

SECONDS = 0.6
MIB = 64


def nested(n):
    s = {"type": "null"}
    for i in range(n):
        s = {"anyOf": [s, {"type": "array", "items": s}]} if i < 12 else {"properties": {"a": s}}
    return s


def chain(n, make):
    return {"$ref": "#/$defs/d0", "$defs": {**{f"d{i}": make({"$ref": f"#/$defs/d{i + 1}"}) for i in range(n)}, f"d{n}": {"type": "null"}}}


def members(n, schema):
    return {"properties": {f"p{i}": schema(i) for i in range(n)}}


def tagged(n, other):
    return {"anyOf": [{"type": "object", "properties": {"a": other, "b": {"const": i}}, "required": ["a", "b"]} for i in range(n)]}


SCHEMAS = {
    "deep": nested(60),
    "deeper": members(1, lambda _: nested(70)),
    "twice at each level": chain(60, lambda r: {"type": "array", "prefixItems": [r, r]}),
    "fifty times the same": chain(60, lambda r: {"anyOf": [r] * 50}),
    "products": {"allOf": [{"anyOf": [{"minLength": 10 * i + k} for k in range(8)]} for i in range(8)]},
    "products of members": {"allOf": [{"anyOf": [{"required": [f"p{i}{k}"], "properties": {f"p{i}{k}": {}}} for k in range(8)]}
                                      for i in range(8)]},
    "many values": {"enum": [f"value number {i}" for i in range(4096)]},
    "too many values": {"enum": list(range(100000))},
    "one of many": {"oneOf": [{"const": i} for i in range(1000)]},
    "alike to the end": tagged(1000, {}),
    "alike at each level": {"$ref": "#/$defs/t", "$defs": {"t": tagged(300, {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "string"}]})}},
    "many members": members(2000, lambda _: {"type": "string"}),
    "many members and others": {**members(2000, lambda _: {"type": "string"}), "additionalProperties": {"type": "string"}},
    "long name": {"properties": {"k" * 100000: {}}},
    "many references": {"$ref": "#/$defs/d0", "$defs": {f"d{i}": members(20, lambda k, i=i: {"$ref": f"#/$defs/d{(i + k) % 200}"})
                                                       for i in range(200)}},
    "counts": {"items": {"items": {"type": "string", "minLength": 10000, "maxLength": 4e9}, "minItems": 10000}, "maxItems": 1e300},
    "numbers": members(150, lambda i: {"type": "number", "minimum": 0.123456789 + i, "maximum": 123456.789}),
    "patterns": members(256, lambda i: {"type": "string", "pattern": f"^[a-z]{{1,{20 + i}}}x$"}),
    "formats": members(50, lambda i: {"type": "string", "format": "uri", "maxLength": 2000 + i}),
    "states": {"pattern": "(a|b)*a(a|b){11}"},
    "repetitions": {"pattern": "((((a{1,30}){1,30}){1,30}){1,30}){1,30}"},
    "empty repetitions": {"pattern": "((((){1,30}){1,30}){1,100000}){1,1000}"},
    "distances": {"pattern": "a.{200}b"},
    "characters": {"pattern": "^[" + "".join(chr(0x4e00 + 2 * i) for i in range(240)) + "]{1,20}$"},
    "patterns together": {"allOf": [{"pattern": a + ".*" + b} for a, b in zip("abcdefgh", "ijklmnop")]},
    "required together": {"allOf": [{"required": [f"r{i}" for i in range(2000)]} for _ in range(60)]},
    "members together": {"allOf": [members(2000, lambda i, k=k: {"minLength": k + i}) for k in range(20)]},
    "merged for ever": {"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"x": {"$ref": "#"}, "y": {"allOf": [{"$ref": "#"}, {"$ref": "#/$defs/a"}]}}}],
                        "$defs": {"a": {"properties": {"x": {"$ref": "#"}, "y": {"$ref": "#/$defs/a"}}}}},
    "back to itself": {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]},
                                                      "b": {"allOf": [{"$ref": "#/$defs/a"}, {"title": "x"}]}}},
}


def cost(command, question):
    """The answer and seconds of processor, the program's own start included; it has MIB to allocate."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MIB << 20, MIB << 20)))
    child.stdin.write(json.dumps(question).encode() + b"\n")
    child.stdin.close()
    answer = json.loads(child.stdout.read())
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return answer, usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("name", SCHEMAS)
def test_bounds(build_dir, source_dir, name):
    if (build_dir / "CMakeCache.txt").read_text().find("LILY_SANITIZE:STRING=\n") < 0:
        pytest.skip("sanitized programs take other time and memory")
    answer, seconds = cost([build_dir / "tests" / "schema_sample", source_dir / "models" / "demo"],
                           {"schema": SCHEMAS[name], "texts": 1, "tokens": 20, "seed": 1})
    assert isinstance(answer, list) or answer["error"].startswith("#"), answer
    assert seconds < SECONDS
