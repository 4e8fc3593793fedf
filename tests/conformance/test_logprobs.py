"""Log probabilities."""
import math
import re

import pytest

from support import refused


@pytest.fixture(scope="module")
def answer(api, prompt):
    return api.chat(prompt, max_tokens=12, logprobs=True, top_logprobs=5)


def test_absent_unless_asked(api, prompt):
    """Clients that test for null would show a panel of nothing."""
    assert api.chat(prompt, max_tokens=2)["choices"][0].get("logprobs") is None


def test_shape(answer):
    """Typed clients would fail on a missing field."""
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"] == 12
    for t in content:
        assert isinstance(t["token"], str)
        assert isinstance(t["logprob"], (int, float)) and t["logprob"] <= 1e-6
        assert t["bytes"] is None or all(type(b) is int and 0 <= b <= 255 for b in t["bytes"])
        assert len(t["top_logprobs"]) == 5
        for u in t["top_logprobs"]:
            assert isinstance(u["token"], str) and isinstance(u["logprob"], (int, float)) and "bytes" in u


def test_order_and_sum(answer):
    """A confidence computed from these numbers would be nonsense."""
    for t in answer["choices"][0]["logprobs"]["content"]:
        values = [u["logprob"] for u in t["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert sum(map(math.exp, values)) <= 1 + 1e-3
        assert all(math.isfinite(v) for v in values), "JSON has no infinity"


def test_greedy_is_the_top(answer):
    """The reported choice would not be the one made."""
    for t in answer["choices"][0]["logprobs"]["content"]:
        assert abs(t["top_logprobs"][0]["logprob"] - t["logprob"]) < 1e-3


def test_bytes_make_the_text(answer):
    """Text could not be rebuilt from tokens, as evaluation harnesses do."""
    content = answer["choices"][0]["logprobs"]["content"]
    assert all(t["bytes"] is not None for t in content)
    data = b"".join(bytes(t["bytes"]) for t in content)

    def plain(text):  # the number of marks for a broken character and white space at the ends are the server's choice
        return re.sub("\ufffd+", "\ufffd", text).strip("\ufffd \n")

    assert plain(data.decode("utf-8", "replace")) == plain(answer["choices"][0]["message"]["content"])


def test_zero_alternatives(api, prompt):
    """logprobs without alternatives is the default of the SDK."""
    t = api.chat(prompt, max_tokens=3, logprobs=True)["choices"][0]["logprobs"]["content"]
    assert len(t) == 3 and all(x["top_logprobs"] == [] for x in t)


def test_twenty_alternatives(api, prompt):
    """The documented maximum would be refused."""
    t = api.chat(prompt, max_tokens=2, logprobs=True, top_logprobs=20)["choices"][0]["logprobs"]["content"]
    assert all(len(x["top_logprobs"]) == 20 for x in t)


def test_streamed_equals_not_streamed(api, prompt, answer):
    """A streamed answer would carry other numbers."""
    s = api.stream(prompt, max_tokens=12, logprobs=True, top_logprobs=5)
    got = [t for c in s.choices() for t in ((c.get("logprobs") or {}).get("content") or [])]
    want = answer["choices"][0]["logprobs"]["content"]
    assert [t["token"] for t in got] == [t["token"] for t in want]
    for a, b in zip(got, want):
        assert abs(a["logprob"] - b["logprob"]) < 0.02


def test_unaffected_by_temperature_zero(api, prompt, answer):
    """Probabilities must be the model's own, not one for the chosen token and nothing else."""
    assert any(t["logprob"] < -1e-6 for t in answer["choices"][0]["logprobs"]["content"])
