"""The shape of errors and the library exceptions made of them."""
import pathlib
import time

import httpx
import openai
import pytest

from support import refused

MSG = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("body,param", [
    ({}, "messages"), ({"messages": []}, "messages"), ({"messages": "hi"}, "messages"), ({"messages": [5]}, "messages"),
    ({"messages": [{"content": "hi"}]}, "messages"), ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages"),
    ({"messages": MSG, "temperature": "hot"}, "temperature"), ({"messages": MSG, "max_tokens": "many"}, "max_tokens"),
    ({"messages": MSG, "stream": "yes"}, "stream"), ({"messages": MSG, "stop": 5}, "stop"),
    ({"messages": MSG, "tools": "all"}, "tools"), ({"messages": MSG, "tool_choice": "maybe", "tools": [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]}, "tool_choice"),
    ({"messages": MSG, "seed": "x"}, "seed"), ({"messages": MSG, "logit_bias": [1]}, "logit_bias"),
    ({"messages": MSG, "top_p": []}, "top_p"), ({"messages": MSG, "n": "two"}, "n")],
    ids=lambda x: x if isinstance(x, str) else None)
def test_bad_request(api, body, param):
    """The developer of a client would not be told what is wrong and where."""
    r = api.post("/v1/chat/completions", {"model": api.model, "max_tokens": 4, **body})
    refused(r, [400], param=param)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_two_tools_of_one_name(api, path):
    """A call could mean either, and the client would run the wrong one."""
    def ask(*names):
        tools = [{"name": name, "parameters": {"type": "object"}, "input_schema": {"type": "object"}} for name in names]
        if path != "/v1/messages":
            tools = [{"type": "function", "function": tool} for tool in tools]
        return api.post(path, {"model": api.model, "max_tokens": 1, "messages": MSG, "tools": tools})
    assert ask("look_up", "look").status_code == 200
    r = ask("look_up", "look", "look_up")
    assert r.status_code == 400 and "tools[2]: there are two tools named 'look_up'" in r.json()["error"]["message"]


def test_not_json(api):
    """A broken client would get a page it cannot parse."""
    r = api.http.post("/v1/chat/completions", content=b"{not json", headers={"content-type": "application/json"})
    refused(r, [400])


def test_json_but_not_an_object(api):
    """A list or a number as the body must be refused as clearly."""
    for text in (b"[]", b"5", b'"x"', b"null", b"true"):
        r = api.http.post("/v1/chat/completions", content=text, headers={"content-type": "application/json"})
        refused(r, [400])


@pytest.mark.parametrize("part", ["{}", "[]"])
def test_a_body_of_nothing_but_brackets(api, part):
    """It would take a hundred times its size of memory, and the machine with it."""
    text = '{"model": "[{", "messages": [%s]}' % ", ".join([part] * (1 << 18))
    r = api.http.post("/v1/chat/completions", content=text, headers={"content-type": "application/json"})
    assert "262,144" in refused(r, [400])["message"]
    text = '{"user": "\\"%s", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}' % ("[" * (1 << 19))
    assert api.http.post("/v1/chat/completions", content=text).status_code == 200    # letters are no lists


def test_brackets_inside_arguments(api):
    """What is JSON in a string takes as much memory, and the bound of the body does not see it."""
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": [%s]}' % ",".join(["{}"] * 100000)}}
    messages = [*MSG, {"role": "assistant", "tool_calls": [call] * 3}, {"role": "tool", "content": "x"}]
    r = api.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
    assert "262,144" in refused(r, [400], param="messages")["message"]


@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="needs Linux to tell the memory")
def test_memory_of_a_large_body_is_given_back(spawn):
    """One careless request, and the machine would miss its memory until the server ends."""
    p = spawn()

    def resident():
        status = pathlib.Path(f"/proc/{p.popen.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024
    before = resident()
    calls = [{"function": {"name": "f", "arguments": '{"a": [%s]}' % ",".join(["{}"] * 200000)}},
             {"function": {"name": "f", "arguments": {"a": [{}] * 200000}}}]
    body = {"messages": [*MSG, {"role": "assistant", "tool_calls": calls}, {"role": "tool", "content": "x"}]}
    r = httpx.post(p.base + "/v1/chat/completions", json=body, timeout=60)
    refused(r, [400], code="context_length_exceeded")
    end = time.monotonic() + 10
    while resident() > before + 100 and time.monotonic() < end:
        time.sleep(0.05)
    assert resident() < before + 100


def test_unknown_path(api):
    """A wrong base URL is the most common slip; the client must see why."""
    refused(api.get("/v1/no/such/thing"), [404])
    refused(api.post("/v1/chat/completion", {"messages": MSG}), [404])


def test_wrong_method(api):
    """A GET in the browser's bar must explain itself."""
    r = api.get("/v1/chat/completions")
    refused(r, [405])
    assert "POST" in r.headers["allow"]


def test_sdk_bad_request(openai_client, api):
    """Clients catch BadRequestError and show its message."""
    with pytest.raises(openai.BadRequestError) as e:
        openai_client.chat.completions.create(model=api.model, messages=[], max_tokens=4)
    assert e.value.body and e.value.body["message"]


def test_sdk_stream_bad_request(openai_client, api):
    """An error of a streaming call must be raised, not swallowed."""
    with pytest.raises(openai.BadRequestError):
        list(openai_client.chat.completions.create(model=api.model, messages=[], stream=True, max_tokens=4))


def test_sdk_not_found(openai_client):
    """Clients catch NotFoundError to offer other models."""
    with pytest.raises(openai.NotFoundError):
        openai_client.models.retrieve("no-such-model-here")
