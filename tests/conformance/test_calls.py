"""Tool calls out of scripted replies."""
import json

import pytest
from support import check_chat, check_stream, refused

READ = {"type": "function", "function": {"name": "read", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}}
CALL = "<tool_call>\n<function=read>\n<parameter=path>\n%s\n</parameter>\n</function>\n</tool_call>"
TEXT = "I read.\n\n" + CALL % "a.c" + "\n" + CALL % "b.c"


def calls(message):
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls") or []]


def joined(s):
    """The calls of a stream, put together as the official library does."""
    found = {}
    for c in s.choices():
        for piece in c["delta"].get("tool_calls") or []:
            if piece["index"] not in found:
                assert piece["type"] == "function" and piece["id"] and piece["function"]["name"]
                found[piece["index"]] = {"id": piece["id"], "name": piece["function"]["name"], "arguments": ""}
            else:
                assert set(piece) == {"index", "function"} and set(piece["function"]) == {"arguments"}
            found[piece["index"]]["arguments"] += piece["function"]["arguments"]
    assert len({c["id"] for c in found.values()}) == len(found)
    return [(c["name"], json.loads(c["arguments"])) for c in found.values()]


@pytest.mark.parametrize("splits", ["whole", "char", 3, "tokens"])
def test_calls(scripted, splits):
    """An agent would read markup where a call should be."""
    server = scripted([{"text": TEXT, "splits": splits, "times": 2}])
    d = server.chat("hi", tools=[READ], max_tokens=1000)
    check_chat(d)
    assert d["choices"][0]["finish_reason"] == "tool_calls"
    assert d["choices"][0]["message"]["content"].strip() == "I read."
    assert calls(d["choices"][0]["message"]) == [("read", {"path": "a.c"}), ("read", {"path": "b.c"})]
    s = server.stream("hi", tools=[READ], max_tokens=1000)
    check_stream(s)
    assert s.finish() == "tool_calls"
    assert s.content() == d["choices"][0]["message"]["content"]
    assert joined(s) == calls(d["choices"][0]["message"])


def test_one_call_at_a_time(scripted):
    """A client that runs one call after the other would lose the second."""
    server = scripted([{"text": TEXT, "splits": "char", "times": 2}])
    d = server.chat("hi", tools=[READ], parallel_tool_calls=False, max_tokens=1000)
    assert calls(d["choices"][0]["message"]) == [("read", {"path": "a.c"})]
    assert joined(server.stream("hi", tools=[READ], parallel_tool_calls=False, max_tokens=1000)) == [("read", {"path": "a.c"})]


def test_call_cut_by_the_limit(scripted):
    """Half a call must not be run."""
    server = scripted([{"text": TEXT[:60], "splits": "char", "cut": True, "times": 2}])
    d = server.chat("hi", tools=[READ], max_tokens=1000)
    assert d["choices"][0]["finish_reason"] == "length" and not calls(d["choices"][0]["message"])
    assert server.stream("hi", tools=[READ], max_tokens=1000).finish() == "length"


def test_choice_none(scripted):
    """A client that forbids calls would get one."""
    server = scripted([{"text": CALL % "a.c"}])
    d = server.chat("hi", tools=[READ], tool_choice="none", max_tokens=1000)
    assert d["choices"][0]["finish_reason"] == "stop" and not calls(d["choices"][0]["message"])
    assert "<tools>" not in server.get("/script").json()["requests"][0]["prompt"]


def test_tools_reach_the_prompt(api):
    """The model would not know its tools."""
    assert api.chat("hi", max_tokens=1, tools=[READ])["usage"]["prompt_tokens"] > api.chat("hi", max_tokens=1)["usage"]["prompt_tokens"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "read"}}])
@pytest.mark.parametrize("thinking", [False, True])
def test_forced_call(api, choice, thinking):
    """A workflow that needs a call would get prose."""
    d = api.chat("hi", tools=[READ, {**READ, "function": {**READ["function"], "name": "write"}}], tool_choice=choice,
                 thinking=thinking, parallel_tool_calls=False, max_tokens=600, seed=2)
    message = d["choices"][0]["message"]
    if d["choices"][0]["finish_reason"] == "length":
        assert not calls(message)
        return
    (name, arguments), = calls(message)
    assert name == "read" or choice == "required"
    assert isinstance(arguments["path"], str) and not message["content"]


def test_forced_call_of_nothing(api):
    """A misspelt function name would be answered with another one."""
    refused(api.chat_raw("hi", tools=[READ], tool_choice={"type": "function", "function": {"name": "reed"}}), [400],
            param="tool_choice")
    refused(api.chat_raw("hi", tool_choice="required"), [400], param="tool_choice")


def test_strict_schema_is_refused_by_name(api):
    """A promise that cannot be kept must not be made."""
    parameters = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}, "required": ["a"],
                  "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}}
    r = api.chat_raw("hi", tools=[tool])
    refused(r, [400], param="tools")
    assert "#/properties/a" in r.json()["error"]["message"] and "uniqueItems" in r.json()["error"]["message"]
    tool["function"]["strict"] = False
    api.chat("hi", tools=[tool], tool_choice="required", max_tokens=4)


def test_formats_are_refused(api):
    """Prose where JSON was asked for would break the client later and elsewhere."""
    refused(api.chat_raw("hi", response_format={"type": "xml"}), [400], param="response_format")
    api.chat("hi", max_tokens=1, response_format={"type": "text"})
