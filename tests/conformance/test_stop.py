"""Stop strings, judged against the model's own greedy text."""
import pytest

from support import refused


@pytest.fixture(scope="module")
def answer(api, prompt):
    d = api.chat(prompt, max_tokens=40, logprobs=True)
    return d["choices"][0]["message"]["content"], [t["token"] for t in d["choices"][0]["logprobs"]["content"]]


def both(api, prompt, stop):
    d = api.chat(prompt, max_tokens=40, stop=stop)
    s = api.stream(prompt, max_tokens=40, stop=stop)
    text = d["choices"][0]["message"]["content"] or ""
    assert s.content() == text, "streamed and not streamed differ"
    assert s.finish() == d["choices"][0]["finish_reason"]
    return d, text


def substring(text, lo, length):
    """A part of text that starts at or after lo and whose first occurrence is there."""
    for i in range(lo, len(text) - length):
        part = text[i:i + length]
        if text.index(part) == i and part.strip() and "\ufffd" not in part:
            return part
    raise AssertionError("the model's text has no such part")


def test_stop_string(api, prompt, answer):
    """Text after the stop string, or the stop string itself, would reach the user."""
    part = substring(answer[0], 3, 2)
    d, text = both(api, prompt, part)
    assert text == answer[0][:answer[0].index(part)]
    assert d["choices"][0]["finish_reason"] == "stop"


def test_stop_list_first_wins(api, prompt, answer):
    """With several stop strings the text would run on to the wrong one."""
    early, late = substring(answer[0], 3, 2), substring(answer[0], 12, 3)
    d, text = both(api, prompt, [late, "\u2603never\u2603", early])
    assert text == answer[0][:min(answer[0].index(early), answer[0].index(late))]


def test_stop_spans_tokens(api, prompt, answer):
    """A stop string cut by token borders would be missed or half printed."""
    text, toks = answer
    pos = 0
    for a, b in zip(toks, toks[1:]):
        pos += len(a)
        part = text[pos - 1:pos + 1]
        if len(part) == 2 and pos > 4 and text.index(part) == pos - 1 and "\ufffd" not in part and len(a) and len(b):
            d, got = both(api, prompt, part)
            assert got == text[:pos - 1]
            assert d["choices"][0]["finish_reason"] == "stop"
            return
    raise AssertionError("no usable token border")


def test_stop_long(api, prompt, answer):
    """A stop string over many tokens would be missed."""
    part = substring(answer[0], 2, min(20, len(answer[0]) // 2))
    d, text = both(api, prompt, part)
    assert text == answer[0][:answer[0].index(part)]


def test_stop_prefix_is_given_back(api, prompt, answer):
    """Text that only began like a stop string would be swallowed."""
    part = substring(answer[0], 3, 3) + "\u2603"
    _, text = both(api, prompt, [part])
    assert text == answer[0]


def test_stop_held_back_at_end(api, prompt, answer):
    """The tail held back while waiting for a stop string would be lost at the end."""
    tail = answer[0][-3:]
    _, text = both(api, prompt, [tail + "\u2603\u2603"])
    assert text == answer[0]


def test_stop_empty_list(api, prompt, answer):
    """Clients send an empty list for no stop string."""
    _, text = both(api, prompt, [])
    assert text == answer[0]


def test_stop_empty_string(api, prompt):
    """An empty stop string must not stop everything."""
    refused(api.chat_raw(prompt, stop=[""]), [400], param="stop")


def test_stop_four(api, prompt):
    """The documented four stop strings would be refused."""
    assert api.chat_raw(prompt, stop=["\u2603a", "\u2603b", "\u2603c", "\u2603d"]).status_code == 200


def test_stop_in_prompt_does_not_stop(api, prompt, answer):
    """A stop string that stands in the question would end the answer before it begins."""
    word = prompt.split()[0]
    d, text = both(api, prompt, [word])
    assert text == (answer[0].split(word)[0])
