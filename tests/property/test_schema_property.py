"""Schemas as grammars against jsonschema: random schemas of the supported subset, random documents that fit them and
mutations of those.  What the grammar accepts must be valid; what json.dumps writes of a document made from the
schema, members in the schema's order, must be accepted."""
import json
import random
import subprocess

import jsonschema
import pytest

SEED = 20260711
SCHEMAS = 1500
TEXTS = 12


class Lily:
    def __init__(self, build_dir):
        self.process = subprocess.Popen([build_dir / "tests" / "schema_cli"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def judge(self, schema, texts):
        self.process.stdin.write(json.dumps({"schema": schema, "texts": texts}).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def lily(build_dir):
    one = Lily(build_dir)
    yield one
    one.process.stdin.close()
    assert one.process.wait() == 0


NAMES = ["a", "b", "ab", "abc", "é", "x y", "q\"", "世", ""]
CHARS = "ab \"\\/\n\té世🙂{}[]:,0"


def text(r, low=0, high=6):
    return "".join(r.choice(CHARS) for _ in range(r.randint(low, high)))


def value(r, depth=2):
    kind = r.randrange(7 if depth else 5)
    if kind == 5:
        return [value(r, depth - 1) for _ in range(r.randint(0, 3))]
    if kind == 6:
        return {r.choice(NAMES): value(r, depth - 1) for _ in range(r.randint(0, 3))}
    return [None, r.random() < 0.5, r.randint(-10**6, 10**6), r.randint(-99, 99) / 8, text(r)][kind]


def schema(r, depth=3):
    """A schema, and a function that makes a value of it."""
    kind = r.randrange(11 if depth else 6)
    if kind == 0:
        low, high = sorted(r.sample(range(0, 8), 2))
        return {"type": "string", "minLength": low, "maxLength": high}, lambda: text(r, low, high)
    if kind == 1:
        low = r.choice([-10**12, -128, -7, 0, 3, 95, 10**5])
        high = low + r.choice([0, 1, 9, 80, 905, 10**7])
        low_word, up = ("minimum", 0) if r.random() < 0.5 else ("exclusiveMinimum", 1)
        return {"type": "integer", low_word: low - up, "maximum": high}, lambda: r.randint(low, high)
    if kind == 2:
        return {"type": "number"}, lambda: r.choice([r.randint(-9999, 9999), r.uniform(-5, 5), 1e-7, 2.5e20])
    if kind == 3:
        listed = [value(r) for _ in range(r.randint(1, 4))]
        return {"enum": listed}, lambda: r.choice(listed)
    if kind == 4:
        return {"type": ["boolean", "null"]}, lambda: r.choice([True, False, None])
    if kind == 5:
        return r.choice([True, {}]), lambda: value(r)
    if kind in (6, 7):
        item, make = schema(r, depth - 1)
        low = r.randint(0, 2)
        high = low + r.randint(0, 2)
        return {"type": "array", "items": item, "minItems": low, "maxItems": high}, \
            lambda: [make() for _ in range(r.randint(low, high))]
    if kind == 8:
        parts = [schema(r, depth - 1) for _ in range(r.randint(1, 3))]
        return {"anyOf": [p[0] for p in parts]}, lambda: r.choice(parts)[1]()
    names = r.sample(NAMES, r.randint(0, 4))
    members = {n: schema(r, depth - 1) for n in names}
    required = [n for n in names if r.random() < 0.6]
    extra = schema(r, depth - 1) if r.random() < 0.4 else None

    def make():
        out = {n: members[n][1]() for n in names if n in required or r.random() < 0.5}
        for _ in range(r.randint(0, 2) if extra else 0):
            name = r.choice(["z", "abx", "other name", "zé"])
            if name not in members:
                out[name] = extra[1]()
        return out
    return {"type": "object", "properties": {n: members[n][0] for n in names}, "required": required,
            "additionalProperties": extra[0] if extra else False}, make


def written(r, v):
    return json.dumps(v, ensure_ascii=r.random() < 0.3, **r.choice([{}, {"indent": 2}, {"separators": (",", ":")}]))


def mutated(r, s):
    at = r.randrange(len(s))
    return r.choice([s[:at] + s[at + 1:], s[:at] + r.choice("\"{}[]:,0-.eE n1\n\\a") + s[at:], s[:at], s + s[at:],
                     s[:at] + r.choice("019\"a") + s[at + 1:]])


def valid(s, v):
    try:
        jsonschema.Draft202012Validator(s).validate(v)
        return True
    except jsonschema.ValidationError:
        return False


def test_documents(lily):
    r = random.Random(SEED)
    accepted = refused = 0
    for _ in range(SCHEMAS):
        s, make = schema(r)
        values = [make() for _ in range(TEXTS)]
        good = [written(r, v) for v in values]
        bad = [mutated(r, t) for t in good]
        told = lily.judge(s, good + bad)
        assert isinstance(told, list), (s, told)
        for v, t, ok in zip(values, good, told):
            assert valid(s, v), "the test's own mistake"
            # Constants and names are spelt one way, without \\u and exponents; json.dumps may spell them otherwise.
            if "\\u" not in t and "e" not in t.replace("true", "").replace("false", ""):
                assert ok is True, (s, t)
        for t, ok in zip(good + bad, told):
            if ok is True:
                accepted += 1
                assert valid(s, json.loads(t)), (s, t)
            else:
                refused += 1
    assert accepted > SCHEMAS * TEXTS // 2 and refused > SCHEMAS * TEXTS // 4
