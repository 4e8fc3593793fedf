"""Sampling parameters."""
import pytest

from support import refused


def test_seed_reproducible(api, prompt):
    """An experiment could not be repeated."""
    a = [api.say(prompt, temperature=1, seed=1234, max_tokens=24) for _ in range(3)]
    assert len(set(a)) == 1, a


def test_seed_reproducible_streamed(api, prompt):
    """The same seed would give another text when streamed."""
    a = api.say(prompt, temperature=1, seed=77, max_tokens=24)
    assert api.stream(prompt, temperature=1, seed=77, max_tokens=24).content() == a


def test_seeds_differ(api, prompt):
    """The seed or the temperature would be ignored."""
    assert len({api.say(prompt, temperature=1.5, seed=s, max_tokens=24) for s in range(6)}) > 1


def test_no_seed_varies(api, prompt):
    """Asking again for another draft would give the same one for ever."""
    assert len({api.say(prompt, temperature=1.5, max_tokens=24) for _ in range(6)}) > 1


def test_tiny_top_p_is_greedy(api, prompt):
    """top_p would be ignored."""
    assert api.say(prompt, temperature=1, top_p=0.000001, seed=3, max_tokens=24) == api.say(prompt, max_tokens=24)


def test_top_k_one_is_greedy(api, prompt):
    """top_k would be ignored."""
    assert api.say(prompt, temperature=1, top_k=1, seed=3, max_tokens=24) == api.say(prompt, max_tokens=24)


def test_min_p_one_is_greedy(api, prompt):
    """min_p would be ignored."""
    assert api.say(prompt, temperature=1, min_p=1.0, seed=3, max_tokens=24) == api.say(prompt, max_tokens=24)


@pytest.mark.parametrize("kw", [{"temperature": 2}, {"temperature": 0.0}, {"top_p": 1}, {"top_p": 0.5}, {"top_k": 40},
                                {"top_k": 0}, {"top_k": -1}, {"min_p": 0}, {"min_p": 0.05}, {"presence_penalty": 2}, {"presence_penalty": -2},
                                {"frequency_penalty": 2}, {"frequency_penalty": -2}, {"repetition_penalty": 1.1},
                                {"seed": 0}, {"seed": 2**31}, {"seed": 2**53}, {"seed": -1}, {"logit_bias": {}}],
                         ids=lambda k: "-".join(f"{a}={b}" for a, b in k.items()))
def test_accepted(api, kw):
    """A legal setting of a client's settings page would be refused."""
    api.chat("hi", **kw)


@pytest.mark.parametrize("kw", [{"temperature": -0.5}, {"temperature": 100.0}, {"top_p": -0.1}, {"top_p": 1.5},
                                {"top_k": -7}, {"min_p": -0.5}, {"min_p": 1.5}, {"presence_penalty": 3},
                                {"presence_penalty": -3}, {"frequency_penalty": 2.5}, {"frequency_penalty": -9},
                                {"n": 0}, {"n": -1}, {"max_tokens": -5}, {"max_completion_tokens": -1},
                                {"top_logprobs": 5}, {"logprobs": True, "top_logprobs": -1},
                                {"logprobs": True, "top_logprobs": 1000}],
                         ids=lambda k: "-".join(f"{a}={b}" for a, b in k.items()))
def test_out_of_range(api, kw):
    """A slip in a setting would silently give worse answers."""
    refused(api.chat_raw("hi", **kw), [400], param=list(kw)[-1])


def test_frequency_penalty_acts(api, prompt):
    """A loop could not be broken by the penalty."""
    one, two = api.words(2)
    for first, second in ((one, two), (two, one)):
        kw = dict(max_tokens=48, logit_bias={str(first): 90, str(second): 65})
        base, pen = api.say(prompt, **kw), api.say(prompt, frequency_penalty=2, **kw)
        if base != pen:
            return
    pytest.fail("the penalty of 2 changes nothing although one token is repeated 48 times")


def test_presence_penalty_acts(api, prompt):
    """The penalty would be accepted and ignored."""
    for text in (prompt, "Tell a long story about a red house and a red door.", "Count from one to one hundred in words."):
        for n in (32, 96):
            if api.say(text, max_tokens=n) != api.say(text, max_tokens=n, presence_penalty=2):
                return
    # A model that repeats no likely token is led into a loop over a few biased words.
    words = api.words(4)
    for x in words:
        for y in words:
            for gap in range(-12, 13, 3) if x != y else ():
                kw = dict(max_tokens=12, logit_bias={str(x): 80, str(y): 80 + gap})
                if api.say(prompt, **kw) != api.say(prompt, presence_penalty=2, **kw):
                    return
    pytest.fail("the greatest presence penalty never changed an answer")


def chosen(d):
    return [t["bytes"] if t.get("bytes") is not None else t["token"] for t in d["choices"][0]["logprobs"]["content"]]


def test_logit_bias_forces(api, prompt):
    """A classifier made with logit_bias would answer anything."""
    one, two = api.words(2)
    a = api.chat(prompt, max_tokens=6, logit_bias={str(one): 100}, logprobs=True)
    b = api.chat(prompt, max_tokens=6, logit_bias={str(two): 100}, logprobs=True)
    ta = a["choices"][0]["message"]["content"]
    tb = b["choices"][0]["message"]["content"]
    assert ta and tb and ta != tb
    assert a["usage"]["completion_tokens"] == 6
    assert len({str(t) for t in chosen(a)}) == 1, "other tokens than the forced one were chosen"


def test_logit_bias_forces_with_temperature(api, prompt):
    """The bias would act only for greedy decoding."""
    bias = {str(api.words(1)[0]): 100}
    assert api.say(prompt, max_tokens=6, logit_bias=bias, temperature=1, seed=9) == api.say(prompt, max_tokens=6, logit_bias=bias)


def test_logit_bias_bans(api, prompt):
    """A forbidden token would still appear."""
    one, two = map(str, api.words(2))
    assert api.say(prompt, max_tokens=6, logit_bias={one: -100, two: 100}) == api.say(prompt, max_tokens=6, logit_bias={two: 100})
    first = api.chat(prompt, max_tokens=1, logprobs=True)
    ids = api.tokens(first["choices"][0]["message"]["content"] or "")
    if ids and len(ids) == 1:
        ban = api.chat(prompt, max_tokens=1, logprobs=True, logit_bias={str(ids[0]): -100})
        assert chosen(ban) != chosen(first)


@pytest.mark.parametrize("bias", [{"0": 101}, {"0": -101}, {"99999999": 1}, {"-1": 1}, {"abc": 1}, {"0": "x"}])
def test_logit_bias_range(api, bias):
    """A bias on a token that does not exist would be ignored in silence, or write outside the vocabulary."""
    r = api.chat_raw("hi", logit_bias=bias)
    refused(r, [400], param="logit_bias")


def test_sampling_is_not_sticky(api, prompt):
    """One user's settings would leak into the next request."""
    base = api.say(prompt, max_tokens=24)
    api.say(prompt, max_tokens=24, temperature=2, seed=1, presence_penalty=2, logit_bias={str(api.words(1)[0]): 100}, top_k=3)
    assert api.say(prompt, max_tokens=24) == base
