"""Thinking kept apart from the answer."""
import pytest

from support import check_chat, check_stream


def test_thinking_is_apart(api, prompt):
    """The user would read the model's notes, marks included, as the answer."""
    d = api.chat(prompt, thinking=True, max_tokens=24)
    check_chat(d)
    m = d["choices"][0]["message"]
    for mark in ("<think>", "</think>"):
        assert mark not in (m["content"] or "")
        assert mark not in (m.get("reasoning_content") or "")


def test_thinking_in_stream_equals(api, prompt):
    """A streamed answer would mix what the other form keeps apart."""
    m = api.chat(prompt, thinking=True, max_tokens=24)["choices"][0]["message"]
    s = api.stream(prompt, thinking=True, max_tokens=24)
    check_stream(s)
    assert s.content() == (m["content"] or "")
    assert s.reasoning() == m.get("reasoning_content", "")


def test_template_switch(api, prompt):
    """A user who turns thinking off would still wait for it."""
    d = api.chat(prompt, chat_template_kwargs={"enable_thinking": False}, max_tokens=24)
    m = d["choices"][0]["message"]
    assert not m.get("reasoning_content") and m["content"]
    details = d["usage"].get("completion_tokens_details") or {}
    assert not details.get("reasoning_tokens")


def test_reasoning_effort_none(api, prompt):
    """The standard way to turn thinking off would not work."""
    d = api.chat(prompt, thinking=True, reasoning_effort="none", max_tokens=24)
    m = d["choices"][0]["message"]
    assert not m.get("reasoning_content") and m["content"]
    assert m["content"] == api.say(prompt, max_tokens=24)


@pytest.mark.parametrize("effort", ["minimal", "low", "medium", "high"])
def test_reasoning_effort_accepted(api, effort):
    """Clients that set an effort would be refused."""
    check_chat(api.chat("hi", thinking=True, reasoning_effort=effort))


def test_switch_changes_the_prompt(api):
    """The switch would be accepted and ignored."""
    on = api.chat("hi", chat_template_kwargs={"enable_thinking": True}, max_tokens=1)["usage"]["prompt_tokens"]
    off = api.chat("hi", chat_template_kwargs={"enable_thinking": False}, max_tokens=1)["usage"]["prompt_tokens"]
    assert on != off


def test_reasoning_in_history_is_accepted(api):
    """Clients send the reasoning back with the history."""
    check_chat(api.chat([{"role": "user", "content": "hi"},
                         {"role": "assistant", "content": "Hello.", "reasoning_content": "The user greets."},
                         {"role": "user", "content": "bye"}]))


def test_limit_covers_thinking(api, prompt):
    """A limit that does not count the thinking would not limit the wait."""
    d = api.chat(prompt, thinking=True, max_tokens=9)
    assert d["usage"]["completion_tokens"] <= 9


def test_forced_answer_is_content(api):
    """With a required format the answer must arrive in content, not as a thought."""
    schema = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": False}
    d = api.chat("hi", max_tokens=60, response_format={
        "type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": schema}})
    assert (d["choices"][0]["message"]["content"] or "").strip().startswith("{")
