"""Tool calls as grammars: random tools, random walks through what may be written, read back by the reader of replies.
Whatever the grammar lets pass must be a call of a declared tool whose arguments fit its schema."""
import json
import random
import subprocess
import sys

import jsonschema
import pytest

SEED = 20261130
TOOLS = 400
WALKS = 8

NAMES = ["city", "a", "ab", "file_path", "x-y", "Zeile.2", "größe"]


class Lily:
    def __init__(self, build_dir):
        self.process = subprocess.Popen([build_dir / "tests" / "calls_cli"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def walks(self, **ask):
        self.process.stdin.write(json.dumps(ask).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def lily(build_dir):
    one = Lily(build_dir)
    yield one
    one.process.stdin.close()
    assert one.process.wait() == 0


def json_schema(r, depth=2):
    """A schema of any kind but a plain string."""
    kind = r.randrange(7 if depth else 4)
    if kind == 0:
        low = r.choice([-100, 0, 7])
        return {"type": "integer", "minimum": low, "maximum": low + r.choice([0, 5, 1000])}
    if kind == 1:
        return {"type": "number"}
    if kind == 2:
        return {"type": "boolean"}
    if kind == 3:
        return {"enum": r.sample([1, 2, True, None, 7.5, [1], {"a": "b"}], r.randint(1, 3))}
    if kind in (4, 5):
        return {"type": "array", "items": any_schema(r, depth - 1, inner=True), "minItems": r.randint(0, 2)}
    names = r.sample(NAMES, r.randint(0, 3))
    return {"type": "object", "properties": {n: any_schema(r, depth - 1, inner=True) for n in names},
            "required": [n for n in names if r.random() < 0.5], "additionalProperties": False}


def string_schema(r):
    kind = r.randrange(6)
    if kind == 5:
        return {"type": "string", "pattern": r.choice(["^[a-z]{1,4}$", "b", "^(x|yy)*$", "^[^a]?.$", "^\\d+\\n?$"]), "minLength": r.randint(0, 2)}
    if kind == 0:
        low = r.randint(0, 3)
        return {"type": "string", "minLength": low, "maxLength": low + r.randint(0, 5)}
    if kind == 1:
        return {"type": "string", "minLength": r.randint(1, 4)}
    if kind == 2:
        return {"type": "string", "enum": r.sample(["Oslo", "null", "5", "true", "two\nlines", "[1]", "", "</parameter>"], 3)}
    if kind == 3:
        return {"const": r.choice(["x", "a b", "1"])}
    return {"type": "string"}


def any_schema(r, depth=2, inner=False):
    kind = r.randrange(8)
    if kind < 3:
        return string_schema(r)
    if kind == 3 and not inner:
        return {"anyOf": [{"type": "string"}, json_schema(r, 1)]}
    if kind == 4 and not inner:
        return r.choice([{"type": ["string", "null"], "maxLength": 3}, {"type": ["string", "array"]}, {"type": ["string", "object", "null"]}])
    if kind == 5 and not inner:
        return {"$ref": "#/$defs/shared"}
    return json_schema(r, depth)


def parameters(r):
    names = r.sample(NAMES, r.randint(0, 4))
    return {"type": "object", "properties": {n: any_schema(r) for n in names},
            "required": [n for n in names if r.random() < 0.5], "additionalProperties": False,
            "$defs": {"shared": r.choice([{"type": "string"}, {"type": "integer"}, {"enum": ["a", "b"]}])}}


def tools(r):
    names = r.sample(["get", "get_all", "write", "now", "X"], r.randint(1, 3))
    return [{"type": "function", "function": {"name": n, "strict": True, "parameters": parameters(r)}} for n in names]


def check_call(declared, name, arguments):
    schema, = [t["function"]["parameters"] for t in declared if t["function"]["name"] == name]
    jsonschema.Draft202012Validator(schema).validate(json.loads(arguments))


def test_walks(lily):
    r = random.Random(SEED)
    finished = 0
    for i in range(TOOLS):
        declared = tools(r)
        only = r.choice(declared)["function"]["name"] if r.random() < 0.3 else None
        told = lily.walks(tools=declared, only=only, seed=i, walks=WALKS)
        if isinstance(told, dict):      # e.g. nothing but a closing tag is allowed as a value
            assert "fits" in told["error"] or "listed value" in told["error"], told
            continue
        for one in told:
            if one is None:
                continue
            finished += 1
            assert one["name"] == only or only is None, one
            assert one["name"], one["text"]
            try:
                check_call(declared, one["name"], one["arguments"])
            except Exception:
                print(json.dumps(declared), one["text"], sep="\n", file=sys.stderr)
                raise
    assert finished > TOOLS * WALKS * 0.7
