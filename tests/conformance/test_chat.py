"""Chat completions, not streamed."""
import pytest
from openai.types.chat import ChatCompletion

from support import check_chat, refused


def test_shape(api):
    """Typed clients would fail on a missing or mistyped field."""
    d = api.chat("hello", max_tokens=8)
    check_chat(d)
    ChatCompletion.model_validate(d, strict=True)


def test_content_type(api):
    """Clients that look at the content type would not parse the answer."""
    assert "application/json" in api.chat_raw("hello", max_tokens=2).headers["content-type"]


def test_sdk(openai_client, api):
    """The official library could not be used."""
    r = openai_client.chat.completions.create(
        model=api.model, messages=[{"role": "user", "content": "hello"}], max_tokens=8)
    assert r.choices[0].message.role == "assistant"
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens


def test_ids_are_unique(api):
    """A log keyed by id would mix two answers."""
    assert api.chat("hello", max_tokens=1)["id"] != api.chat("hello", max_tokens=1)["id"]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_token_limit(api, prompt, field, n):
    """A client's cost and time limit would be ignored."""
    d = api.chat(prompt, **{"max_tokens": ..., field: n})
    assert d["usage"]["completion_tokens"] == n
    assert d["choices"][0]["finish_reason"] == "length"


def test_both_limits_given(api, prompt):
    """A proxy that fills in both names would get more text than allowed."""
    d = api.chat(prompt, max_tokens=5, max_completion_tokens=5)
    assert d["usage"]["completion_tokens"] == 5


def test_no_limit_given_is_accepted(api, prompt):
    """Most scripts give no limit at all; they would fail."""
    s = api.chat_raw(prompt, max_tokens=None, stop=[" ", "a", "e", "i", "o", "n", "t", "s", "0", "<", ","])
    assert s.status_code == 200, s.text[:300]


def test_greedy_is_deterministic(api, prompt):
    """The same question would get different answers in tests and caches."""
    answers = {api.say(prompt, max_tokens=24) for _ in range(4)}
    assert len(answers) == 1, answers


def test_greedy_is_deterministic_interleaved(api, prompt):
    """State of one conversation would leak into another."""
    others = ["Name a colour.", "x", prompt + " Then stop. " * 40]
    first = api.say(prompt, max_tokens=24)
    seen = {}
    for _ in range(2):
        for o in others:
            seen.setdefault(o, set()).add(api.say(o, max_tokens=12))
            assert api.say(prompt, max_tokens=24) == first
    assert all(len(v) == 1 for v in seen.values()), seen


def test_system_role(api):
    """Every agent sends a system message first."""
    d = api.chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}])
    base = api.chat([{"role": "user", "content": "hi"}])
    assert d["usage"]["prompt_tokens"] > base["usage"]["prompt_tokens"]


def test_developer_role(api):
    """New clients send developer instead of system and would be refused or ignored."""
    d = api.chat([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}])
    s = api.chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}])
    assert d["usage"]["prompt_tokens"] == s["usage"]["prompt_tokens"], "developer is not rendered as system"
    assert d["choices"][0]["message"]["content"] == s["choices"][0]["message"]["content"]


def test_content_parts(api):
    """Clients that send text parts would get another answer than with a plain string."""
    parts = [{"type": "text", "text": "Tell me "}, {"type": "text", "text": "about the sea."}]
    one = [{"type": "text", "text": "Tell me about the sea."}]
    plain = api.chat("Tell me about the sea.")
    single = api.chat([{"role": "user", "content": one}])
    assert single["choices"][0]["message"]["content"] == plain["choices"][0]["message"]["content"]
    assert single["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]
    many = api.chat([{"role": "user", "content": parts}])
    assert many["usage"]["prompt_tokens"] >= plain["usage"]["prompt_tokens"]


def test_image_part_is_refused(api):
    """A picture silently dropped would give a confident answer about nothing."""
    r = api.chat_raw([{"role": "user", "content": [{"type": "text", "text": "hi"},
                                                   {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}])
    assert "image" in refused(r, [400], param="messages[0]")["message"]


def test_unknown_fields_are_tolerated(api):
    """Clients send fields of other vendors; each would break."""
    d = api.chat("hi", user="me", metadata={"a": "b"}, store=False, service_tier="auto", some_new_field={"x": [1]},
                 safety_identifier="s", prompt_cache_key="k", verbosity="low")
    check_chat(d)


def test_nulls_mean_default(api):
    """Generated clients send null for every unset field."""
    d = api.chat("hi", temperature=None, top_p=None, n=None, stop=None, seed=None, logit_bias=None, tools=None,
                 tool_choice=None, response_format=None, stream=None, stream_options=None, logprobs=None,
                 top_logprobs=None, presence_penalty=None, frequency_penalty=None, user=None,
                 max_completion_tokens=None, parallel_tool_calls=None)
    check_chat(d)


def test_history_with_assistant(api):
    """A second turn would fail."""
    d = api.chat([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."},
                  {"role": "user", "content": "again"}])
    check_chat(d)


def test_assistant_null_content_in_history(api):
    """The history after a tool call has content null."""
    d = api.chat([{"role": "user", "content": "hi"},
                  {"role": "assistant", "content": None, "tool_calls": [
                      {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                  {"role": "tool", "tool_call_id": "call_1", "content": "ok"}])
    check_chat(d)


def test_message_name_field(api):
    """Group-chat frameworks name their speakers."""
    check_chat(api.chat([{"role": "user", "name": "ann", "content": "hi"}]))


def test_refusal_and_annotations_in_history(api):
    """The SDK echoes its own message objects back, with null extras."""
    check_chat(api.chat([{"role": "user", "content": "hi"},
                         {"role": "assistant", "content": "yo", "refusal": None, "annotations": [], "audio": None,
                          "function_call": None, "tool_calls": None, "reasoning_content": None},
                         {"role": "user", "content": "ok"}]))


def test_any_model_name(api):
    """Front ends send the name of another vendor's model."""
    assert api.chat("hi", model="gpt-4o-mini")["model"] == api.model


def test_prompt_tokens_grow_with_prompt(api):
    """A client's context budget would be wrong."""
    a = api.chat("one", max_tokens=1)["usage"]["prompt_tokens"]
    b = api.chat("one " * 101, max_tokens=1)["usage"]["prompt_tokens"]
    assert b >= a + 100, (a, b)


def test_whole_prompt_matters(api):
    """A truncated prompt would lose the question at its end."""
    long = "The sky is blue and wide. " * 60
    logs = [api.chat(long + tail, max_tokens=1, logprobs=True, top_logprobs=5)["choices"][0]["logprobs"]
            for tail in ("apple", "zebra 17")]
    assert logs[0] != logs[1]
