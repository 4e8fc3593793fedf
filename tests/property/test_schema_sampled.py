"""A model that chooses at random among the tokens that a schema allows: whatever it writes parses and is valid."""
import json
import random

import pytest
from schemas import Program, any_schema, valid

SEED = 20261004
TOKENS = 600
CASES = {"few": 200, "many": 2400}


@pytest.fixture
def lily(build_dir, source_dir):
    one = Program(build_dir / "tests" / "schema_sample", source_dir / "models" / "demo")
    yield one
    one.close()


@pytest.mark.parametrize("cases", CASES)
def test_what_is_written_is_valid(lily, cases):
    r = random.Random(SEED + CASES[cases])
    whole = cut = 0
    for case in range(CASES[cases]):
        s, _ = any_schema(r)
        texts = lily.ask(schema=s, seed=case, texts=2, tokens=TOKENS)
        assert isinstance(texts, list), (s, texts)
        for t in texts:
            if t is None:
                cut += 1
                continue
            whole += 1
            assert valid(s, json.loads(t)), (s, t)
    assert whole >= CASES[cases] and cut < whole / 10, (whole, cut)
