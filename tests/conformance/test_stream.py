"""Chat completions, streamed."""
import json

import pytest
from openai.types.chat import ChatCompletionChunk

from support import check_stream, check_usage, refused


def test_shape(api, prompt):
    """Streaming clients would fail on a missing or mistyped field."""
    s = api.stream(prompt, max_tokens=12)
    check_stream(s)
    for e in s.events:
        ChatCompletionChunk.model_validate(e, strict=True)


def test_same_text_as_not_streamed(api, prompt):
    """The answer would depend on how it is delivered."""
    d = api.chat(prompt, max_tokens=32)
    s = api.stream(prompt, max_tokens=32)
    assert s.content() == d["choices"][0]["message"]["content"]
    assert s.finish() == d["choices"][0]["finish_reason"]


def test_sdk(openai_client, api, prompt):
    """The official library could not stream."""
    got, role, finish = "", None, None
    for c in openai_client.chat.completions.create(
            model=api.model, messages=[{"role": "user", "content": prompt}], max_tokens=12, temperature=0,
            stream=True, extra_body={"chat_template_kwargs": {"enable_thinking": False}}):
        if c.choices:
            role = role or c.choices[0].delta.role
            got += c.choices[0].delta.content or ""
            finish = c.choices[0].finish_reason or finish
    assert role == "assistant" and finish and got == api.say(prompt, max_tokens=12)


def test_sdk_accumulator(openai_client, api, prompt):
    """The library's own accumulator of chunks would raise."""
    with openai_client.chat.completions.stream(
            model=api.model, messages=[{"role": "user", "content": prompt}], max_tokens=12, temperature=0,
            extra_body={"chat_template_kwargs": {"enable_thinking": False}}) as s:
        try:
            for _ in s:
                pass
            final = s.get_final_completion()
        except Exception as e:
            if type(e).__name__ != "LengthFinishReasonError":
                raise
            final = e.completion
    assert final.choices[0].message.content == api.say(prompt, max_tokens=12)


def test_usage_when_asked(api, prompt):
    """A client that meters its use would see none, or another than without a stream."""
    d = api.chat(prompt, max_tokens=12)["usage"]
    s = api.stream(prompt, max_tokens=12, stream_options={"include_usage": True})
    check_stream(s)
    last = s.events[-1]
    assert last["choices"] == [] and last["usage"], "usage must come in a last chunk without choices"
    check_usage(last["usage"])
    assert all(e.get("usage") is None for e in s.events[:-1])
    for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert last["usage"][key] == d[key], key


def test_no_usage_chunk_unless_asked(api, prompt):
    """Clients that read choices[0] of every chunk would crash on the usage chunk."""
    s = api.stream(prompt, max_tokens=4)
    assert all(e["choices"] for e in s.events), "a chunk without choices though include_usage is off"


def test_arrives_in_pieces(api, prompt):
    """The user would stare at nothing and then get all text at once."""
    s = api.stream(prompt, max_tokens=48)
    pieces = [c for c in s.choices() if c["delta"].get("content")]
    assert len(pieces) >= 8, f"{len(pieces)} pieces for 48 tokens"


def test_first_piece_comes_before_the_end(api, prompt):
    """A proxy-like buffer would hide the stream until its end."""
    s = api.stream(prompt, max_tokens=200)
    # the greedy answer has 32 tokens at least; a very fast model may send several before they are read
    assert len(s.arrivals) >= 3, f"200 tokens came in {len(s.arrivals)} network reads"


def test_not_cached_by_proxies(api, prompt):
    """A caching or transforming proxy could buffer the stream."""
    s = api.stream(prompt, max_tokens=2)
    assert "content-encoding" not in s.response.headers
    assert "content-length" not in s.response.headers


def test_one_json_per_data_line(api, prompt):
    """Line-based readers, as in most shell scripts, would fail on an event over several lines."""
    s = api.stream(prompt, max_tokens=6)
    for line in s.raw.replace(b"\r\n", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            assert line.startswith(b"data: "), "many clients cut exactly six characters"
            if line != b"data: [DONE]":
                json.loads(line[6:])


def test_error_before_stream_is_a_plain_error(api):
    """A refused streaming request must be seen as an HTTP error, not as an empty stream."""
    r = api.post("/v1/chat/completions", {"model": api.model, "messages": [], "stream": True, "max_tokens": 4})
    assert r.status_code in (400, 422) and "application/json" in r.headers["content-type"]


@pytest.mark.parametrize("n", [1, 2])
def test_short_streams(api, prompt, n):
    """A one-token answer would lose its text or its end."""
    s = api.stream(prompt, max_tokens=n)
    check_stream(s)
    assert s.content() == api.say(prompt, max_tokens=n) and s.finish() == "length"
