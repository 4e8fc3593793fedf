"""POST /v1/responses: what Codex and agent libraries send, and what they read."""
import json

import jsonschema
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from support import Api, Stream, refused

PATH = "/v1/responses"
EVENT = TypeAdapter(ResponseStreamEvent)
CALL = "<tool_call>\n<function=%s>\n<parameter=%s>\n%s\n</parameter>\n</function>\n</tool_call>"
REPLY = "Let me see.\n</think>\n\nI read it.\n\n" + CALL % ("read", "path", "a.c") + "\n" + CALL % ("read", "path", "b.c")
STRING = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = {"type": "function", "name": "read", "description": "Reads a file", "parameters": STRING, "strict": False}


def ask(api, input="hi", **kw):
    r = api.post(PATH, {"input": input, "max_output_tokens": 1000, **kw})
    assert r.status_code == 200, f"{r.status_code}: {r.text[:400]}"
    return check(r.json())


def check(d):
    """As strict as the library's types are: no value is converted, nothing is missing."""
    Response.model_validate(d, strict=True)
    assert d["store"] is False
    u = d["usage"]
    assert u["total_tokens"] == u["input_tokens"] + u["output_tokens"]
    assert u["input_tokens_details"]["cached_tokens"] <= u["input_tokens"]
    return d


def stream(api, input="hi", **kw):
    with api.http.stream("POST", PATH, json={"input": input, "max_output_tokens": 1000, "stream": True, **kw}) as r:
        raw = b"".join(r.iter_bytes())
    assert r.status_code == 200, raw
    return Stream(r, raw, []).events


def check_stream(events):
    """Every event of the documented types, in the documented order, and all of them together the response."""
    for e in events:
        EVENT.validate_python(e, strict=True)
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    kinds = [e["type"].removeprefix("response.") for e in events]
    assert kinds[:2] == ["created", "in_progress"] and kinds[-1] in ("completed", "incomplete")
    made, open_item = [], None
    for e, kind in zip(events, kinds):
        if kind == "output_item.added":
            assert open_item is None and e["output_index"] == len(made) and e["item"]["status"] == "in_progress"
            open_item, text = e["item"], ""
        elif kind == "output_item.done":
            assert e["item"]["id"] == open_item["id"] and e["output_index"] == len(made)
            made.append(e["item"])
            open_item = None
        elif "item_id" in e:
            assert e["item_id"] == open_item["id"] and e["output_index"] == len(made)
            text += e["delta"] if kind.endswith(".delta") else ""
            if kind.endswith("text.done"):
                assert e["text"] == text
            elif kind.endswith("arguments.done"):
                assert e["arguments"] == text
    assert made == events[-1]["response"]["output"]
    return check(events[-1]["response"])


def plain(d):
    """Without what differs from one answer to the next."""
    return [{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in d["output"]]


def prompt_of(server, n=0):
    return server.get("/script").json()["requests"][n]["prompt"]


@pytest.mark.parametrize("splits", ["whole", "char", "tokens"])
@pytest.mark.parametrize("summary", [None, "auto"])
def test_items(scripted, splits, summary):
    """A thought, words and two calls, one item each, streamed or not."""
    server = scripted([{"text": REPLY, "splits": splits, "times": 2}])
    fields = {"tools": [READ], "reasoning": {"effort": "medium", "summary": summary}}
    d = ask(server, **fields)
    thought, message, first, second = d["output"]
    kept, empty = ("summary", "content") if summary else ("content", "summary")
    assert [p["text"] for p in thought[kept]] == ["Let me see."] and thought[empty] == []
    assert message["content"][0]["text"] == "I read it." and message["status"] == "completed"
    assert [json.loads(c["arguments"]) for c in (first, second)] == [{"path": "a.c"}, {"path": "b.c"}]
    assert first["name"] == "read" and first["call_id"] != second["call_id"]
    assert d["status"] == "completed" and d["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    assert plain(check_stream(stream(server, **fields))) == plain(d)


def test_event_names(scripted):
    """The official order."""
    events = stream(scripted([{"text": REPLY}]), tools=[READ], parallel_tool_calls=False)
    kinds = [e["type"].removeprefix("response.") for e in events]
    assert [k for i, k in enumerate(kinds) if i == 0 or kinds[i - 1] != k or not k.endswith(".delta")] == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "completed"]


def test_history_is_one_conversation(scripted):
    """What was one turn of the model's must be one turn in the prompt, as on the chat endpoint."""
    server = scripted([{"text": "ok", "times": 0}])
    turn = [{"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Let me see."}]},
            {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
             "content": [{"type": "output_text", "text": "I read it.", "annotations": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": "{\"path\": \"a.c\"}"},
            {"type": "function_call", "call_id": "call_2", "name": "read", "arguments": "{\"path\": \"b.c\"}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "int main;"},
            {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "int "}, {"type": "input_text", "text": "b;"}]}]
    ask(server, [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, *turn],
        instructions="You are Codex.", tools=[READ])
    call = {"type": "function", "function": {"name": "read"}}
    server.chat([{"role": "system", "content": "You are Codex."}, {"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"},
                 {"role": "assistant", "reasoning_content": "Let me see.", "content": "I read it.", "tool_calls": [
                     {"id": "call_1", **call, "function": {"name": "read", "arguments": "{\"path\": \"a.c\"}"}},
                     {"id": "call_2", **call, "function": {"name": "read", "arguments": "{\"path\": \"b.c\"}"}}]},
                 {"role": "tool", "tool_call_id": "call_1", "content": "int main;"}, {"role": "tool", "tool_call_id": "call_2", "content": "int b;"}],
                max_tokens=100, chat_template_kwargs={}, tools=[{"type": "function", "function": {
                    k: v for k, v in READ.items() if k != "type"}}])
    assert prompt_of(server, 0) == prompt_of(server, 1)
    assert "Let me see." in prompt_of(server)


@pytest.mark.parametrize("form", ["content", "summary", "encrypted_content"])
def test_reasoning_given_back(scripted, form):
    """Codex sends back neither content nor, without one, a summary: the thought in a tool loop would be lost, and with
    it the prefix of the prompt."""
    server = scripted([{"text": REPLY}, {"text": "done"}])
    d = ask(server, tools=[READ], reasoning={"summary": "auto" if form == "summary" else None}, include=["reasoning.encrypted_content"])
    thought = {k: v for k, v in d["output"][0].items() if k in ("type", "summary", form)}
    if form != "summary":
        thought["summary"] = []
    outputs = [{"type": "function_call_output", "call_id": c["call_id"], "output": "x"} for c in d["output"][2:]]
    ask(server, [{"role": "user", "content": "hi"}, thought, *d["output"][1:], *outputs], tools=[READ])
    assert "<think>\nLet me see.\n</think>\n\nI read it." in prompt_of(server, 1)


def test_thoughts_of_others(scripted):
    """A conversation that began elsewhere: what is really encrypted cannot be read, and must not stop it."""
    server = scripted([{"text": "ok"}])
    ask(server, [{"role": "user", "content": "hi"}, {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAAB"}, {"role": "assistant", "content": "yo"},
                 {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
                 {"role": "user", "content": "and?"}])
    assert "gAAAA" not in prompt_of(server) and "yo" in prompt_of(server)


def test_two_messages_of_the_assistant_stay_two(scripted):
    server = scripted([{"text": "ok"}])
    ask(server, [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "go"}])
    assert "one<|im_end|>" in prompt_of(server) and "two<|im_end|>" in prompt_of(server)


def test_an_assistant_message_at_the_end_is_not_continued(scripted):
    """This API has no prefill; who wants it says so."""
    server = scripted([{"text": "ok", "times": 0}])
    items = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    ask(server, items)
    ask(server, items, continue_final_message=True)
    assert prompt_of(server).endswith("<|im_start|>assistant\n<think>\n") and prompt_of(server, 1).endswith("yo")


SPACE = {"type": "namespace", "name": "mcp__files", "description": "", "tools": [READ, {**READ, "name": "list"}]}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}


def test_tools_in_namespaces(scripted):
    """Tools of an MCP server would be invisible, or come back under a name that the client does not know."""
    server = scripted([{"text": CALL % ("mcp__files__read", "path", "a.c"), "times": 2}, {"text": "done"}])
    fields = {"tools": [{"type": "web_search"}, SPACE, {**READ, "name": "shell"}]}
    d = ask(server, **fields)
    call = d["output"][0]
    assert (call["name"], call["namespace"], json.loads(call["arguments"])) == ("read", "mcp__files", {"path": "a.c"})
    assert [t["type"] for t in d["tools"]] == ["namespace", "function"]
    assert plain(check_stream(stream(server, **fields))) == plain(d)
    ask(server, [{"role": "user", "content": "hi"}, call, {"type": "function_call_output", "call_id": call["call_id"], "output": "x"}], **fields)
    for name in ("mcp__files__read", "mcp__files__list", "shell"):
        assert name in prompt_of(server)
    assert "web_search" not in prompt_of(server) and "<function=mcp__files__read>" in prompt_of(server, 2)


def test_tools_that_openai_runs(spawn, tmp_path):
    """The whole request refused is Codex refused; what is left out must be told, and must not forge a line of the log."""
    script = tmp_path / "replies.json"
    script.write_text(json.dumps({"replies": [{"text": "ok"}]}))
    p = spawn("--script", str(script))
    d = ask(Api(p.base), tools=[{"type": "web_search"}, READ, {"type": "new\nlily: ready"}])
    assert d["tools"] == [READ]
    lines = [x for x in p.tail().splitlines() if "tools[" in x]
    assert len(lines) == 2 and "web_search" in lines[0] and "new?lily" in lines[1]


def test_numbers_of_any_size(scripted):
    """A schema that is told back must be the one that came."""
    tool = {**READ, "parameters": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 18446744073709551616}}}}
    server = scripted([{"text": "ok"}])
    assert "18446744073709551616" in json.dumps(ask(server, tools=[tool])["tools"]) and "18446744073709551616" in prompt_of(server)


def test_custom_tools(scripted):
    """Codex patches files through one; its input is text, not JSON."""
    text = "*** Begin Patch\n\"quoted\" \\ \u00e9\n*** End Patch"
    server = scripted([{"text": "x</think>" + CALL % ("apply_patch", "input", text), "splits": "char", "times": 2}, {"text": "done"}])
    d = ask(server, tools=[PATCH])
    call = d["output"][-1]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "apply_patch", text)
    events = stream(server, tools=[PATCH])
    assert plain(check_stream(events)) == plain(d)
    assert "".join(e["delta"] for e in events if e["type"] == "response.custom_tool_call_input.delta") == text
    ask(server, [{"role": "user", "content": "hi"}, call, {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "Done."}], tools=[PATCH])
    assert text in prompt_of(server, 2) and "Done." in prompt_of(server, 2) and "start: /.+/" in prompt_of(server)


def test_which_tools_are_allowed(scripted):
    server = scripted([{"text": "ok", "times": 0}])
    tools = [READ, {**READ, "name": "write"}]
    ask(server, tools=tools, tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "write"}]})
    ask(server, tools=tools, tool_choice="none")
    assert '"write"' in prompt_of(server) and '"read"' not in prompt_of(server)
    assert "<tools>" not in prompt_of(server, 1)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_forced_calls(api, choice):
    """By the grammar, so whatever the model is."""
    tool = {**READ, "name": "get_weather", "strict": True, "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Lima"]}},
                                                                         "required": ["city"], "additionalProperties": False}}
    d = ask(api, "Weather in Oslo?", tools=[tool], tool_choice=choice, parallel_tool_calls=False, temperature=0,
            chat_template_kwargs={"enable_thinking": False})
    assert [i["type"] for i in d["output"]] == ["function_call"] and d["output"][0]["name"] == "get_weather"
    jsonschema.validate(json.loads(d["output"][0]["arguments"]), tool["parameters"])


def test_a_call_that_was_cut(scripted):
    """Half a call must not be made."""
    server = scripted([{"text": "x</think>I do.\n" + (CALL % ("read", "path", "abc"))[:60], "splits": "char", "cut": True, "times": 2}])
    d = ask(server, tools=[READ])
    assert [i["type"] for i in d["output"]] == ["reasoning", "message"]
    assert d["status"] == "incomplete" and d["incomplete_details"] == {"reason": "max_output_tokens"}
    events = stream(server, tools=[READ])
    assert events[-1]["type"] == "response.incomplete"
    assert not any(e["type"] == "response.output_item.done" and e["item"]["type"] == "function_call" for e in events)
    assert plain(events[-1]["response"]) == plain(d)


def test_limit_and_silence(scripted):
    """What ends inside a text is incomplete; an answer without words is an answer."""
    server = scripted([{"text": "x</think>a b", "cut": True}, {"text": "x</think>"}, {"text": "x", "cut": True}])
    d = ask(server)
    assert d["output"][1]["status"] == d["status"] == "incomplete" and d["output"][0]["status"] == "completed"
    d = ask(server)
    assert d["status"] == "completed" and d["output"][1]["content"][0]["text"] == ""
    d = ask(server)
    assert [i["type"] for i in d["output"]] == ["reasoning"] and d["output"][0]["status"] == "incomplete"


def test_effort(scripted):
    server = scripted([{"text": "ok", "times": 0}])
    for effort in ("none", "high"):
        ask(server, reasoning={"effort": effort})
    assert prompt_of(server).endswith("</think>\n\n") and prompt_of(server, 1).endswith("<think>\n")


def test_format(api):
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": False}
    d = ask(api, "go", temperature=0, text={"format": {"type": "json_schema", "name": "s", "strict": True, "schema": schema}, "verbosity": "low"},
            chat_template_kwargs={"enable_thinking": False})
    jsonschema.validate(json.loads(d["output"][-1]["content"][0]["text"]), schema)


def test_logprobs(api):
    fields = {"temperature": 0, "max_output_tokens": 8, "include": ["message.output_text.logprobs"], "top_logprobs": 2,
              "chat_template_kwargs": {"enable_thinking": False}}
    part = ask(api, **fields)["output"][0]["content"][0]
    assert "".join(t["token"] for t in part["logprobs"]) == part["text"] and len(part["logprobs"][0]["top_logprobs"]) == 2
    events = stream(api, **fields)
    pieces = [t for e in events if e["type"] == "response.output_text.delta" for t in e["logprobs"]]
    assert [t["token"] for t in pieces] == [t["token"] for t in part["logprobs"]]
    check_stream(events)


def test_what_was_asked_is_told(api):
    """Traces of agent libraries show the response alone."""
    d = ask(api, max_output_tokens=4, instructions="Be brief.", metadata={"a": "b"}, temperature=0.5, top_p=0.25, tools=[READ], tool_choice="auto",
            parallel_tool_calls=False, user="u", prompt_cache_key="k", reasoning={"effort": "low"}, truncation="auto", store=True)
    assert d["instructions"] == "Be brief." and d["metadata"] == {"a": "b"} and d["temperature"] == 0.5 and d["top_p"] == 0.25
    assert d["max_output_tokens"] == 4 and d["parallel_tool_calls"] is False and d["tools"] == [READ] and d["reasoning"] == {"effort": "low"}
    assert d["previous_response_id"] is None and d["truncation"] == "disabled"


@pytest.mark.parametrize("fields, param", [
    ({"input": None}, "input"), ({"input": []}, "input"), ({"input": 5}, "input"), ({"input": ["x"]}, "input[0]"),
    ({"input": [{"role": "wizard", "content": "x"}]}, "input[0]"), ({"input": [{"role": "user"}]}, "input[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": "x"}, {"type": "function_call", "name": "f"}]}, "input[1]"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0]"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"), ({"input": [{"type": "computer_call"}]}, "input[0]"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"), ({"conversation": "conv_1"}, "conversation"), ({"background": True}, "background"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"), ({"context_management": [{"type": "compaction"}]}, "context_management"), ({"n": 2}, "n"),
    ({"max_output_tokens": "many"}, "max_output_tokens"), ({"max_output_tokens": 0}, "max_output_tokens"), ({"temperature": 3}, "temperature"),
    ({"tools": [{"type": "function"}]}, "tools"), ({"tools": [READ, READ]}, "tools"), ({"tools": {"a": 1}}, "tools"),
    ({"tools": [{"type": "namespace", "name": "a"}]}, "tools"), ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "nope"}, "tools": [READ]}, "tool_choice"), ({"reasoning": "high"}, "reasoning"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort"), ({"reasoning": {"summary": 5}}, "reasoning.summary"),
    ({"text": {"format": {"type": "xml"}}}, "text.format"), ({"text": {"format": {"type": "json_schema", "schema": {"not": {}}}}}, "text.format"),
    ({"include": "all"}, "include"), ({"top_logprobs": 21}, "top_logprobs"), ({"instructions": 5}, "instructions")])
def test_refusals(api, fields, param):
    r = api.post(PATH, {"input": "hi", "max_output_tokens": 4, **fields})
    refused(r, [400], param=param)
    assert param in r.json()["error"]["message"]


def test_failures(scripted):
    """Before the stream a status, in the stream response.failed."""
    replies = [{"text": "a b c", "splits": "char", "fail_at": 1}, {"text": "a b c", "splits": "char", "fail_at": 1}, {"text": "x</think>a b c", "splits": "char", "fail_at": 5, "delay_ms": 150}]
    server = scripted(replies)
    assert server.post(PATH, {"input": "hi"}).status_code == 500
    assert server.post(PATH, {"input": "hi", "stream": True}).status_code == 500
    events = stream(server)
    for e in events:
        EVENT.validate_python(e, strict=True)
    assert events[-1]["type"] == "response.failed" and events[-1]["response"]["error"]["message"]
    assert not any(e["type"] == "response.completed" for e in events)


def test_official_client(scripted):
    """The helper that puts a stream together, and the items it makes given back as they are."""
    server = scripted([{"text": REPLY, "splits": "tokens"}, {"text": "Hm.</think>Done."}])
    client = openai.OpenAI(base_url=f"{server.base}/v1", api_key="x", max_retries=0)
    with client.responses.stream(model="lily", input="hi", tools=[READ]) as s:
        r = s.until_done().get_final_response()
    assert r.output_text == "I read it." and [i.type for i in r.output] == ["reasoning", "message", "function_call", "function_call"]
    items = [{"role": "user", "content": "hi"}, *r.output]
    items += [{"type": "function_call_output", "call_id": i.call_id, "output": "x"} for i in r.output if i.type == "function_call"]
    assert client.responses.create(model="lily", input=items, tools=[READ]).output_text == "Done."
