"""What models write when they have to call: random tools with values that have an end, random weights and trained
ones, hot, thinking or not.  A call that is complete must fit."""
import pathlib
import random
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "conformance"))

from support import Api, Process, free_port  # noqa: E402
from test_calls_property import NAMES, SEED, check_call  # noqa: E402

REQUESTS = 60


def bounded(r, depth=2):
    """A schema whose values have an end, whatever the model does."""
    kind = r.randrange(6 if depth else 4)
    if kind == 0:
        return {"type": "string", "maxLength": r.randint(0, 6)}
    if kind == 1:
        return {"enum": r.sample(["Oslo", "Lima", "null"], 2)}
    if kind == 2:
        return {"type": "integer", "minimum": 0, "maximum": r.choice([0, 9, 12345])}
    if kind == 3:
        return {"type": r.choice(["boolean", "null", "number"])}
    if kind == 4:
        return {"type": "array", "items": bounded(r, depth - 1), "maxItems": 2}
    return {"type": "object", "properties": {n: bounded(r, depth - 1) for n in ("a", "b")}, "required": ["a"],
            "additionalProperties": False}


def bounded_tools(r):
    return [{"type": "function", "function": {"name": name, "strict": r.random() < 0.5, "parameters": {
        "type": "object", "properties": {n: bounded(r) for n in r.sample(NAMES, r.randint(0, 3))}, "additionalProperties": False}}}
        for name in r.sample(["get", "get_all", "write"], r.randint(1, 2))]


@pytest.mark.parametrize("model", ["tiny", "demo"])
def test_model(build_dir, source_dir, model):
    folder = source_dir / "models" / "demo" if model == "demo" else build_dir / "tests" / "ck" / model
    server = Process([str(build_dir / "lily"), "serve", "--model", str(folder), "--port", "{port}", "--ctx-size", "2048"], free_port())
    r = random.Random(SEED)
    finished = 0
    try:
        api = Api(server.wait_ready().base)
        for seed in range(REQUESTS):
            declared = bounded_tools(r)
            for t in declared:
                t["function"]["parameters"]["required"] = [n for n in t["function"]["parameters"]["properties"] if r.random() < 0.7]
            name = r.choice(declared)["function"]["name"]
            named = r.random() < 0.5
            d = api.chat("Weather in Oslo?", tools=declared, seed=seed, temperature=r.choice([0, 1, 2]), top_p=1, top_k=0, max_tokens=400,
                         parallel_tool_calls=r.random() < 0.3, thinking=r.random() < 0.5, thinking_budget=r.choice([0, 5, 40]),
                         tool_choice={"type": "function", "function": {"name": name}} if named else "required")
            choice = d["choices"][0]
            calls = choice["message"].get("tool_calls") or []
            assert calls or choice["finish_reason"] == "length", d
            assert not choice["message"]["content"], d
            finished += choice["finish_reason"] == "tool_calls"
            for c in calls:
                assert not named or c["function"]["name"] == name, d
                check_call(declared, c["function"]["name"], c["function"]["arguments"])
    finally:
        server.stop()
    assert finished > REQUESTS * 0.6
