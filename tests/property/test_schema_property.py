"""Schemas as grammars against jsonschema: random schemas of the supported subset, random documents that fit them and
mutations of those.  What the grammar accepts must be valid; what json.dumps writes of a document made from the schema,
members in the schema's order, must be accepted."""
import json
import random

import pytest
from schemas import Program, any_schema, valid

SEED = 20260711
SCHEMAS = 1500
TEXTS = 10


@pytest.fixture
def lily(build_dir):
    one = Program(build_dir / "tests" / "schema_cli")
    yield one
    one.close()


def written(r, v):
    return json.dumps(v, ensure_ascii=r.random() < 0.3, **r.choice([{}, {"indent": 2}, {"separators": (",", ":")}]))


def mutated(r, s):
    at = r.randrange(len(s))
    return r.choice([s[:at] + s[at + 1:], s[:at] + r.choice("\"{}[]:,0-.eE n1\n\\a") + s[at:], s[:at], s + s[at:],
                     s[:at] + r.choice("019\"a") + s[at + 1:]])


def test_documents(lily):
    r = random.Random(SEED)
    accepted = refused = 0
    for _ in range(SCHEMAS):
        s, make = any_schema(r)
        values = [make() for _ in range(TEXTS)]
        good = [written(r, v) for v in values]
        bad = [mutated(r, t) for t in good]
        told = lily.ask(schema=s, texts=good + bad)
        assert isinstance(told, list), (s, told)
        for v, t, ok in zip(values, good, told):
            assert valid(s, v), ("the test's own mistake", s, v)
            # Constants, names and patterns are spelt one way, without \\u and exponents; json.dumps may spell otherwise.
            if "\\u" not in t and "e" not in t.replace("true", "").replace("false", ""):
                assert ok is True, (s, t)
        for t, ok in zip(good + bad, told):
            if ok is True:
                accepted += 1
                assert valid(s, json.loads(t)), (s, t)
            else:
                refused += 1
    assert accepted > SCHEMAS * TEXTS // 2 and refused > SCHEMAS * TEXTS // 4
