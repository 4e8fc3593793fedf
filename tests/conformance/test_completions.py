"""POST /v1/completions: raw prompts, and text as it comes."""
import openai
import pytest
from openai.types import Completion
from support import check_usage, refused

PATH = "/v1/completions"
TEXT = "Once upon a time"


def ask(api, prompt=TEXT, **kw):
    r = api.post(PATH, {"prompt": prompt, "max_tokens": 12, "temperature": 0, **kw})
    assert r.status_code == 200, f"{r.status_code}: {r.text[:300]}"
    d = r.json()
    Completion.model_validate(d)
    check_usage(d["usage"])
    return d


def stream(api, **kw):
    with api.http.stream("POST", PATH, json={"prompt": TEXT, "max_tokens": 12, "temperature": 0, "stream": True, **kw}) as r:
        raw = b"".join(r.iter_bytes())
    assert r.status_code == 200, raw
    from support import Stream

    return Stream(r, raw, [])


def texts(d):
    return [c["text"] for c in d["choices"]]


def test_all_forms_of_a_prompt(api):
    """Evaluation harnesses send each of the four."""
    one, two = ask(api)["choices"][0]["text"], ask(api, "two three")["choices"][0]["text"]
    a, b = api.tokens(TEXT), api.tokens("two three")
    assert texts(ask(api, a)) == [one]
    assert texts(ask(api, [TEXT])) == [one]
    assert texts(ask(api, [TEXT, "two three"])) == [one, two]
    assert texts(ask(api, [a, b])) == [one, two]
    d = ask(api, [TEXT, b], n=2)
    assert [c["index"] for c in d["choices"]] == [0, 1, 2, 3] and texts(d) == [one, one, two, two]
    assert d["usage"]["prompt_tokens"] == len(a) + len(b)


def test_the_prompt_is_read_as_it_is(scripted):
    """A template around it would make it another prompt; the letters of a control token are that token, as in /tokenize."""
    server = scripted([{"text": "</think> x <tool_call>", "times": 2}])
    assert ask(server, "<|im_start|>user\nhi", max_tokens=100)["choices"][0]["text"] == "</think> x <tool_call>"
    r = server.get("/script").json()["requests"][0]
    assert r["prompt"] == "<|im_start|>user\nhi" and r["endpoint"] == PATH
    assert r["prompt_ids"] == server.tokens("<|im_start|>user\nhi")


def test_sixteen_tokens_by_default(api):
    """OpenAI's own limit: a raw prompt seldom ends by itself."""
    r = api.post(PATH, {"prompt": TEXT, "temperature": 0, "ignore_eos": True}).json()
    assert r["usage"]["completion_tokens"] == 16 and r["choices"][0]["finish_reason"] == "length"


def test_logprobs(api):
    """Harnesses score by them; offsets are in characters."""
    d = ask(api, logprobs=3)
    c = d["choices"][0]
    l = c["logprobs"]
    assert len(l["tokens"]) == len(l["token_logprobs"]) == len(l["top_logprobs"]) == len(l["text_offset"]) == d["usage"]["completion_tokens"]
    assert "".join(l["tokens"]) == c["text"]
    assert l["text_offset"] == [len("".join(l["tokens"][:i])) for i in range(len(l["tokens"]))]
    assert all(x <= 0 for x in l["token_logprobs"]) and all(1 <= len(t) <= 3 for t in l["top_logprobs"])
    assert all(abs(max(t.values()) - x) < 1e-4 for t, x in zip(l["top_logprobs"], l["token_logprobs"]))
    none = ask(api, logprobs=0)["choices"][0]["logprobs"]
    assert none["tokens"] == l["tokens"] and none["top_logprobs"] is None
    assert ask(api)["choices"][0]["logprobs"] is None


def test_logprobs_streamed(api):
    """The parts must be those of the whole."""
    whole = ask(api, logprobs=2)["choices"][0]["logprobs"]
    s = stream(api, logprobs=2)
    for key in whole:
        assert [x for c in s.choices() for x in (c["logprobs"] or {}).get(key) or []] == whole[key]


def test_offsets_of_characters_that_tokens_cut(scripted):
    """Offsets in bytes would point into the middle of words."""
    server = scripted([{"bytes_hex": ["c3a9", "f09f", "9880", "61"]}])
    c = ask(server, logprobs=1, max_tokens=100)["choices"][0]
    assert c["text"] == "\u00e9\U0001f600a"
    assert c["logprobs"]["tokens"] == ["\u00e9", "bytes:\\xf0\\x9f", "bytes:\\x98\\x80", "a"]
    assert c["logprobs"]["text_offset"] == [0, 1, 1, 2]


def test_stream(api):
    """As the whole, in pieces, by index."""
    s = stream(api, prompt=[TEXT, "two three"], stream_options={"include_usage": True})
    whole = ask(api, [TEXT, "two three"])
    found = {0: "", 1: ""}
    for c in s.choices():
        found[c["index"]] += c["text"]
    assert s.done and list(found.values()) == texts(whole)
    assert s.events[-1]["choices"] == [] and s.events[-1]["usage"]["total_tokens"] == whole["usage"]["total_tokens"]
    assert all(e["object"] == "text_completion" and e["id"] == s.events[0]["id"] for e in s.events)


def test_echo(api):
    """The prompt before its answer, whatever form it had."""
    text = ask(api)["choices"][0]["text"]
    assert texts(ask(api, echo=True)) == [TEXT + text]
    assert texts(ask(api, [api.tokens(TEXT)], echo=True, n=2)) == [TEXT + text] * 2
    assert "".join(c["text"] for c in stream(api, echo=True).choices()) == TEXT + text


def test_stop_and_seed(api):
    text = ask(api, max_tokens=24)["choices"][0]["text"]
    part = text[5:8]
    d = ask(api, max_tokens=24, stop=[part])
    assert d["choices"][0]["text"] == text[:text.index(part)] and d["choices"][0]["finish_reason"] == "stop"
    d = ask(api, n=2, temperature=1, seed=5)
    assert texts(d) == [ask(api, temperature=1, seed=s)["choices"][0]["text"] for s in (5, 6)]


def test_a_repeated_prompt_is_reused(api):
    """Harnesses send the same long beginning again and again."""
    long = "one two three four five six seven eight nine ten " * 8
    ask(api, long)
    d = ask(api, long)
    assert d["usage"]["prompt_tokens_details"]["cached_tokens"] == d["usage"]["prompt_tokens"] - 1


def test_what_all_prompts_begin_with_is_read_once(api):
    """The same examples before every question, as in most benchmarks."""
    examples = "one two three four five six seven eight nine ten " * 8
    shared = len(api.tokens(examples)) - 1    # the last token may join what follows
    api.post(PATH, {"prompt": "something else", "max_tokens": 1})
    d = ask(api, [examples + q for q in ("red green", "blue black white", "yellow")], max_tokens=2)
    assert d["usage"]["prompt_tokens_details"]["cached_tokens"] >= 2 * shared


def test_official_client(api):
    client = openai.OpenAI(base_url=f"{api.base}/v1", api_key="x", max_retries=0)
    assert client.completions.create(model=api.model, prompt=TEXT, max_tokens=3).choices[0].finish_reason
    pieces = list(client.completions.create(model=api.model, prompt=TEXT, max_tokens=3, stream=True))
    assert pieces[-1].choices[0].finish_reason == "length"
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=api.model, prompt=TEXT, suffix="end")


@pytest.mark.parametrize("fields, param", [
    ({"prompt": None}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": ""}, "prompt"), ({"prompt": ["a", ""]}, "prompt"),
    ({"prompt": [[]]}, "prompt"), ({"prompt": 5}, "prompt"), ({"prompt": {"text": "a"}}, "prompt"), ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [-1]}, "prompt"), ({"prompt": [10 ** 9]}, "prompt"), ({"prompt": [10 ** 30]}, "prompt"), ({"prompt": [[1], [1.5]]}, "prompt"),
    ({"prompt": ["a"] * 600, "n": 2}, "prompt"), ({"suffix": "x"}, "suffix"), ({"logprobs": 21}, "logprobs"),
    ({"logprobs": True}, "logprobs"), ({"echo": True, "logprobs": 1}, "echo"), ({"echo": "yes"}, "echo"), ({"best_of": 3}, "best_of"),
    ({"max_tokens": 0}, "max_tokens"), ({"temperature": 9}, "temperature"), ({"n": 0}, "n"), ({"return_progress": True}, "return_progress")])
def test_refusals(api, fields, param):
    refused(api.post(PATH, {"prompt": TEXT, **fields}), [400], param=param)


def test_too_long(api):
    """Both numbers must be told, as for a chat."""
    n = api.get("/v1/models").json()["data"][0]["context_length"]
    r = api.post(PATH, {"prompt": ["short", [1] * n]})
    refused(r, [400], code="context_length_exceeded", param="prompt")
    assert r.json()["error"]["n_prompt_tokens"] == n and r.json()["error"]["n_ctx"] == n


def test_errors_in_a_list(scripted):
    """An answer that failed must not be taken for an empty one."""
    replies = [{"text": "a"}, {"text": "b c", "splits": "char", "fail_at": 2}]
    assert scripted(replies).post(PATH, {"prompt": ["x", "y", "z"]}).status_code == 500
    server = scripted([{"text": "a", "delay_ms": 400}, replies[1]])
    s = stream(server, prompt=["x", "y", "z"])
    assert s.error()["message"] and not s.done
    assert [c["index"] for c in s.choices() if c["finish_reason"]] == [0]
