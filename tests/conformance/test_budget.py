"""A budget of thinking: a soft end, then an answer."""
import pytest

from support import Api, check_chat, check_stream, refused


def reasoning_tokens(d):
    return (d["usage"].get("completion_tokens_details") or {}).get("reasoning_tokens", 0)


@pytest.mark.parametrize("budget", [0, 1, 2, 7])
def test_budget(api, prompt, budget):
    """A user who gave it ten tokens would wait for a thousand, or get no answer."""
    d = api.chat(prompt, thinking=True, thinking_budget=budget, max_tokens=60, temperature=0)
    check_chat(d)
    assert reasoning_tokens(d) <= budget
    assert d["choices"][0]["message"]["content"]
    assert budget or not d["choices"][0]["message"].get("reasoning_content")


@pytest.mark.parametrize("field", [{"thinking": {"type": "enabled", "budget_tokens": 3}},
                                   {"chat_template_kwargs": {"enable_thinking": True, "thinking_budget": 3}}])
def test_other_names(api, prompt, field):
    """Clients of other servers would be limited by nothing."""
    d = api.post("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}], "max_tokens": 60, **field}).json()
    assert reasoning_tokens(d) <= 3 and d["choices"][0]["message"]["content"]


def test_off_needs_no_budget(api, prompt):
    """Without thinking a budget would spoil the answer."""
    assert api.say(prompt, thinking_budget=1, max_tokens=16) == api.say(prompt, max_tokens=16)


def test_out_of_range(api):
    """A misspelt budget would be read as none."""
    for bad in (-2, "few", 1.5, True):
        refused(api.chat_raw("hi", thinking_budget=bad), [400], param="thinking_budget")


def test_server_budget(spawn, prompt):
    """The owner of a slow machine sets one limit for all clients that know of none."""
    server = Api(spawn("--thinking-budget", "4").base)
    assert reasoning_tokens(server.chat(prompt, thinking=True, max_tokens=60)) <= 4
    more = server.chat(prompt, thinking=True, thinking_budget=-1, max_tokens=60)
    assert reasoning_tokens(more) >= 4


def test_answer_behind_a_cut_thought(scripted):
    """The thought would run on in the answer, or the answer be lost."""
    reply = {"repeat": {"piece": " a", "count": 500}, "after_think": {"text": "It is 5.", "splits": "char"}, "times": 2}
    server = scripted([reply])
    d = server.chat("hi", thinking=True, thinking_budget=20, max_tokens=1000)
    message = d["choices"][0]["message"]
    assert message["reasoning_content"] == " a" * 19 and message["content"] == "It is 5."
    assert d["choices"][0]["finish_reason"] == "stop" and reasoning_tokens(d) == 20
    assert d["usage"]["completion_tokens"] == 20 + 2 + len("It is 5.")
    s = server.stream("hi", thinking=True, thinking_budget=20, max_tokens=1000)
    check_stream(s)
    assert s.reasoning() == message["reasoning_content"] and s.content() == message["content"]
    assert server.get("/script").json()["requests"][0]["tokens"] == 19 + len("It is 5.")


def test_limit_before_the_budget(scripted):
    """max_tokens counts thinking, whatever its budget."""
    server = scripted([{"repeat": {"piece": " a", "count": 500}, "times": 0}])
    d = server.chat("hi", thinking=True, thinking_budget=20, max_tokens=10)
    assert d["choices"][0]["finish_reason"] == "length" and not d["choices"][0]["message"]["content"]
    d = server.chat("hi", thinking=True, thinking_budget=9, max_tokens=10)
    assert d["choices"][0]["finish_reason"] == "length" and not d["choices"][0]["message"]["content"]


def test_call_behind_a_cut_thought(scripted):
    """A required call would be thought about until the end."""
    tool = {"type": "function", "function": {"name": "now"}}
    server = scripted([{"repeat": {"piece": " a", "count": 500}, "after_think": {"text": ""}}])
    d = server.chat("hi", thinking=True, thinking_budget=5, tools=[tool], tool_choice="required", parallel_tool_calls=False)
    message = d["choices"][0]["message"]
    assert [c["function"]["name"] for c in message["tool_calls"]] == ["now"] and message["tool_calls"][0]["function"]["arguments"] == "{}"
    assert d["choices"][0]["finish_reason"] == "tool_calls" and reasoning_tokens(d) == 5


def test_format_behind_a_cut_thought(scripted):
    """A typed answer would be missing."""
    server = scripted([{"repeat": {"piece": " a", "count": 500}, "after_think": {"text": "{\"a\": 1}"}}])
    d = server.chat("hi", thinking=True, thinking_budget=5, response_format={"type": "json_object"})
    assert d["choices"][0]["message"]["content"] == "{\"a\": 1}" and reasoning_tokens(d) == 5
