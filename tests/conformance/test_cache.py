"""Reuse of a common prefix between turns."""
from support import Api

SYSTEM = "You are a careful assistant. " + " ".join(
    f"Rule {i}: answer question {i} with fact number {i * 37 % 101}." for i in range(60))


def cached(d):
    return (d["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def conversation(api, question="What is rule 5?"):
    first = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    a = api.chat(first, max_tokens=16)
    second = first + [{"role": "assistant", "content": a["choices"][0]["message"]["content"]},
                      {"role": "user", "content": "And rule 6?"}]
    return first, a, second


def test_details_are_numbers(api):
    """Cost displays read cached_tokens without a default."""
    d = api.chat("hi")
    assert type(d["usage"]["prompt_tokens_details"]["cached_tokens"]) is int


def test_second_turn_reuses(api):
    """Every turn of a long chat would be as slow as reading all of it again."""
    _, a, second = conversation(api)
    b = api.chat(second, max_tokens=16)
    assert cached(b) > 0.5 * a["usage"]["prompt_tokens"], f"cached {cached(b)} of {a['usage']['prompt_tokens']}"
    assert cached(b) < b["usage"]["prompt_tokens"]


def test_prompt_tokens_count_the_cached_ones(api):
    """A context budget would shrink on the second turn."""
    first, a, _ = conversation(api)
    assert api.chat(first, max_tokens=16)["usage"]["prompt_tokens"] == a["usage"]["prompt_tokens"]


def test_same_text_with_and_without_reuse(api):
    """A cache that changes answers is worse than none."""
    _, _, second = conversation(api)
    reused = api.say(second, max_tokens=24)
    for i in range(3):
        api.chat([{"role": "system", "content": f"{i} other " + SYSTEM[::-1]}, {"role": "user", "content": str(i)}], max_tokens=4)
    assert api.say(second, max_tokens=24) == reused, "after other prompts took the cache"
    assert api.say(second, max_tokens=24) == reused, "the same request again"


def test_same_text_in_a_fresh_server(api, spawn):
    """The answer would depend on what was asked before."""
    _, _, second = conversation(api)
    reused = api.say(second, max_tokens=24)
    fresh = Api(spawn().base)
    d = fresh.chat(second, max_tokens=24)
    assert cached(d) == 0, "a fresh server cannot have a cache of this"
    assert d["choices"][0]["message"]["content"] == reused


def test_branching(api):
    """Editing an earlier message would keep parts of the old one."""
    first, _, second = conversation(api)
    want = api.say(second, max_tokens=16)
    edited = [dict(m) for m in second]
    edited[1]["content"] = "What is rule 50 about?"
    other = api.say(edited, max_tokens=16)
    assert api.say(second, max_tokens=16) == want
    assert api.say(edited, max_tokens=16) == other


def test_shorter_prompt_after_longer(api):
    """Going back a turn would continue from the later state."""
    first, a, second = conversation(api)
    api.chat(second, max_tokens=16)
    assert api.say(first, max_tokens=16) == a["choices"][0]["message"]["content"]


def test_cut_answer_then_next_turn(api):
    """An answer ended by a stop string or an abort would poison the next turn."""
    first, a, second = conversation(api)
    want = api.say(second, max_tokens=16)
    text = a["choices"][0]["message"]["content"]
    api.chat(first, max_tokens=16, stop=[text[2:4] or "a"])
    assert api.say(second, max_tokens=16) == want


def test_streamed_usage_has_details(api):
    """A streaming client could not show the saving."""
    _, _, second = conversation(api)
    api.chat(second)
    s = api.stream(second, stream_options={"include_usage": True})
    assert (s.usage().get("prompt_tokens_details") or {}).get("cached_tokens", 0) > 0
