"""POST /v1/messages and count_tokens, through Anthropic's own client where it can say it."""
import json

import anthropic
import pytest

PATH = "/v1/messages"
OFF, ON = {"type": "disabled"}, {"type": "adaptive"}
WEATHER = {"name": "get_weather", "description": "Current weather of a city", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
READ = {"name": "read", "input_schema": {
    "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}
CALL = "<tool_call>\n<function=read>\n<parameter=path>\n%s\n</parameter>\n</function>\n</tool_call>"
REPLY = "Hm, two.</think>\n\nI read.\n\n" + CALL % "a.c" + "\n" + CALL % "b.c"
QUESTION = [{"role": "user", "content": "What is the weather in Oslo?"}]


def client_of(server):
    return anthropic.Anthropic(base_url=server.base, api_key="none", max_retries=0, timeout=120)


@pytest.fixture(scope="session")
def client(api):
    return client_of(api)


def ask(c, **kw):
    kw = {"model": "lily", "max_tokens": 16, "thinking": OFF, "messages": [{"role": "user", "content": "hi"}], **kw}
    extra = {"temperature": 0, **kw.pop("extra_body", {})}
    return c.messages.create(extra_body=extra, **kw)


def stream(c, **kw):
    """The events of a stream and what the library makes of them."""
    kw = {"model": "lily", "max_tokens": 16, "thinking": OFF, "messages": [{"role": "user", "content": "hi"}], **kw}
    with c.messages.stream(extra_body={"temperature": 0}, **kw) as s:
        events = list(s)
        return events, s.get_final_message()


def text_of(m):
    return "".join(b.text for b in m.content if b.type == "text")


def thinking_of(m):
    return "".join(b.thinking for b in m.content if b.type == "thinking")


def uses(m):
    return [(b.name, b.input) for b in m.content if b.type == "tool_use"]


def total(u):
    return u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens


def said(m):
    """A message without what differs each time."""
    blocks = [{k: v for k, v in b.model_dump().items() if k != "id"} for b in m.content]
    return blocks, m.stop_reason, m.stop_sequence, total(m.usage), m.usage.output_tokens


@pytest.mark.parametrize("thinking", [OFF, ON], ids=["off", "on"])
def test_stream_equals_whole(client, prompt, thinking):
    """The answer would depend on how it is delivered."""
    kw = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 48, "thinking": thinking}
    whole = ask(client, **kw)
    events, final = stream(client, **kw)
    assert said(final) == said(whole)
    kinds = [e.type for e in events]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    start = events[0].message
    assert start.content == [] and start.stop_reason is None and total(start.usage) == total(whole.usage)


def test_tool_loop(client):
    """An agent could not finish a task."""
    for thinking in (OFF, ON):
        messages = list(QUESTION)
        first = ask(client, max_tokens=300, messages=messages, tools=[WEATHER], thinking=thinking)
        assert first.stop_reason == "tool_use" and uses(first) == [("get_weather", {"city": "Oslo"})]
        use = next(b for b in first.content if b.type == "tool_use")
        messages += [{"role": "assistant", "content": first.content},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                                   "content": "Sunny, 21 degrees"}]}]
        _, last = stream(client, max_tokens=300, messages=messages, tools=[WEATHER], thinking=thinking)
        assert last.stop_reason == "end_turn" and "21" in text_of(last)
        assert last.usage.cache_read_input_tokens > total(first.usage) * 0.8, "the second turn read all again"


@pytest.mark.parametrize("splits", ["whole", "char", 3, "tokens"])
def test_blocks(scripted, splits):
    """Thinking, text and calls must come as blocks of their own, however the tokens cut them."""
    c = client_of(scripted([{"text": REPLY, "splits": splits, "times": 2}]))
    kw = {"max_tokens": 1000, "tools": [READ], "thinking": ON}
    whole = ask(c, **kw)
    assert [b.type for b in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert thinking_of(whole) == "Hm, two." and whole.content[0].signature
    assert text_of(whole).strip() == "I read."
    assert uses(whole) == [("read", {"path": "a.c"}), ("read", {"path": "b.c"})]
    assert len({b.id for b in whole.content if b.type == "tool_use"}) == 2
    _, final = stream(c, **kw)
    assert said(final) == said(whole)


def test_one_call_at_a_time(scripted):
    """A client that runs one call after the other would lose the second."""
    c = client_of(scripted([{"text": REPLY, "splits": "char", "times": 2}]))
    kw = {"max_tokens": 1000, "tools": [READ], "thinking": ON,
          "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    assert uses(ask(c, **kw)) == uses(stream(c, **kw)[1]) == [("read", {"path": "a.c"})]


def test_stop_reasons(scripted):
    """An agent would go on where it should stop, or stop where it should go on."""
    server = scripted([{"text": "aZZb", "splits": "char", "times": 2}, {"text": "a b", "cut": True, "times": 2}, {"text": "a", "times": 2}])
    c = client_of(server)
    for reason, sequence, text in (("stop_sequence", "ZZ", "a"), ("max_tokens", None, "a b"), ("end_turn", None, "a")):
        kw = {"stop_sequences": ["YY", "ZZ"], "max_tokens": 100}
        for m in (ask(c, **kw), stream(c, **kw)[1]):
            assert (m.stop_reason, m.stop_sequence, text_of(m)) == (reason, sequence, text)


def test_same_prompt_as_chat(scripted):
    """The same conversation would have another prompt, and share no prefix, on the other endpoint."""
    server = scripted([{"text": "x", "times": 0}])
    client_of(server).messages.create(
        model="lily", max_tokens=9, thinking=ON, tools=[READ],
        system=[{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
        messages=[{"role": "user", "content": "U"},
                  {"role": "assistant", "content": [{"type": "thinking", "thinking": "T", "signature": "s"},
                                                    {"type": "text", "text": "A"},
                                                    {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "p"}}]},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "5"}]}])
    server.post("/v1/chat/completions", {
        "tools": [{"type": "function", "function": {"name": "read", "parameters": READ["input_schema"]}}],
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
                     {"role": "assistant", "content": "A", "reasoning_content": "T", "tool_calls": [
                         {"id": "t1", "type": "function", "function": {"name": "read", "arguments": '{"path": "p"}'}}]},
                     {"role": "tool", "tool_call_id": "t1", "content": "5"}]})
    a, b = (r["prompt"] for r in server.get("/script").json()["requests"])
    assert a == b


def test_question_behind_a_result(scripted):
    """Agents put reminders beside a result: it must stay a result, right behind its call."""
    server = scripted([{"text": "x"}])
    server.post(PATH, {"max_tokens": 9, "tools": [READ], "messages": [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "text", "text": "remember"},
                                     {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "5"}]}]}]})
    prompt = server.get("/script").json()["requests"][0]["prompt"]
    assert "<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>user\nremember<|im_end|>" in prompt


def test_tools_loaded_late(scripted):
    """Claude Code looks tools up: a new one must not change the beginning of the prompt, and must be known when called."""
    fetch = {**READ, "name": "fetch", "defer_loading": True, "input_schema": {
        "type": "object", "properties": {"n": {"type": "string"}}}}
    call = "<tool_call>\n<function=fetch>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>"
    c = client_of(server := scripted([{"text": "x"}, {"text": call}]))
    history = [{"role": "user", "content": "U"},
               {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}]}]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "tool_reference", "tool_name": "fetch"}]}
    ask(c, tools=[READ], messages=history[:1])
    m = ask(c, max_tokens=99, tools=[READ, fetch], messages=[*history, {"role": "user", "content": [result]}])
    assert uses(m) == [("fetch", {"n": "5"})]
    first, second = (r["prompt"] for r in server.get("/script").json()["requests"])
    head, _, rest = second.partition("<|im_start|>user")
    assert first.startswith(head) and '"fetch"' in rest


def test_forced_calls(client):
    """An agent that must get a call would get prose."""
    pick = {"name": "pick", "input_schema": {"type": "object", "properties": {"c": {"enum": ["red", "blue"]}},
                                             "required": ["c"], "additionalProperties": False}}
    for choice in ({"type": "any"}, {"type": "tool", "name": "pick"}):
        kw = {"max_tokens": 300, "tools": [WEATHER, pick] if choice["type"] == "tool" else [pick],
              "tool_choice": {**choice, "disable_parallel_tool_use": True}}
        for m in (ask(client, **kw), stream(client, **kw)[1]):
            assert m.stop_reason == "tool_use" and [n for n, _ in uses(m)] == ["pick"] and uses(m)[0][1]["c"] in ("red", "blue")


def test_budget_of_thinking(client):
    """A budget would be accepted and ignored."""
    kw = {"messages": QUESTION, "max_tokens": 300}
    free = ask(client, thinking=ON, **kw)
    for m in (ask(client, thinking={"type": "enabled", "budget_tokens": 4}, **kw),
              stream(client, thinking={"type": "enabled", "budget_tokens": 4}, **kw)[1]):
        assert 0 < len(thinking_of(m)) < len(thinking_of(free)) and text_of(m) and m.stop_reason == "end_turn"


def test_last_message_of_the_assistant_goes_on(scripted):
    """A client that begins the answer itself would get it from the start."""
    server = scripted([{"text": "two."}])
    m = ask(client_of(server), messages=[{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "It is"}])
    assert text_of(m) == "two."
    assert server.get("/script").json()["requests"][0]["prompt"].endswith("It is")


def test_tool_runner(client):
    """The library's own loop of calls would not come to its end."""
    asked = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Current weather of a city"""
        asked.append(city)
        return "Sunny, 21 degrees"

    last = client.beta.messages.tool_runner(model="lily", max_tokens=300, tools=[get_weather], messages=QUESTION,
                                            extra_body={"temperature": 0}).until_done()
    assert asked == ["Oslo"] and last.stop_reason == "end_turn" and "21" in text_of(last)


def test_thinking_is_off_unless_asked_for(scripted):
    """A client that did not ask would get blocks that it does not know, out of its max_tokens."""
    server = scripted([{"text": "x", "times": 0}])
    for thinking, on in ((None, False), (OFF, False), (ON, True), ({"type": "enabled"}, True)):
        server.post(PATH, {"max_tokens": 9, "thinking": thinking, "messages": [{"role": "user", "content": "hi"}]})
        prompt = server.get("/script").json()["requests"][-1]["prompt"]
        assert prompt.endswith("<think>\n" if on else "</think>\n\n")


def test_keep_all_thinking(scripted):
    """Claude Code asks to keep old thinking: the prompt of each turn must then begin with that of the last."""
    server = scripted([{"text": "x", "times": 0}])
    messages = [{"role": "user", "content": "U"},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "OLD", "signature": "s"}, {"type": "text", "text": "A"}]},
                {"role": "user", "content": "V"}]
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    for extra in ({}, {"context_management": edits}):
        server.post(PATH, {"max_tokens": 9, "thinking": ON, "messages": messages, **extra})
    first, second = (r["prompt"] for r in server.get("/script").json()["requests"])
    assert "OLD" not in first and "OLD" in second


def test_models(client, api):
    """The library asks for models at the same path as OpenAI's and wants fields of its own."""
    listed = client.models.list().data
    assert [m.id for m in listed] == [api.model] and listed[0].type == "model" and listed[0].created_at.year > 2020
    assert client.models.retrieve(api.model).display_name == api.model


@pytest.mark.parametrize("thinking", [OFF, ON], ids=["off", "on"])
def test_each_turn_reads_only_what_is_new(spawn, thinking):
    """Each turn of an agent would read the whole conversation again. Sampled, since greedy text is the easy case."""
    c = anthropic.Anthropic(base_url=spawn().base, api_key="none", max_retries=0)
    keep = {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}
    messages, before, turns = [], 0, 0
    for n, city in enumerate(("Oslo", "Lima", "Paris", "Rome")):
        messages.append({"role": "user", "content": [{"type": "text", "text": f"What is the weather in {city}?"}]})
        for _ in range(3):
            m = ask(c, max_tokens=200, messages=messages, tools=[WEATHER], thinking=thinking,
                    extra_body={"temperature": 1, "seed": 7 * n + turns, **keep})
            assert m.usage.cache_read_input_tokens == before, f"turn {turns}"
            before, turns = total(m.usage) + m.usage.output_tokens, turns + 1
            messages.append({"role": "assistant", "content": m.content})
            results = [{"type": "tool_result", "tool_use_id": b.id, "content": "Sunny, 21 degrees"}
                       for b in m.content if b.type == "tool_use"]
            if not results:
                break
            messages.append({"role": "user", "content": results})
    assert turns > 4


def test_count_tokens(client):
    """An agent would overrun the context, or compact too early."""
    messages = [{"role": "user", "content": "hello there, how are you today?"}]
    for kw in ({}, {"system": "You are brief."}, {"tools": [WEATHER], "thinking": ON}):
        n = client.messages.count_tokens(model="lily", messages=messages, **kw).input_tokens
        assert n == total(ask(client, messages=messages, **{"max_tokens": 1, "thinking": OFF, **kw}).usage)


def test_errors(client, api):
    """The library would raise a nameless error, an agent would not know what to do."""
    with pytest.raises(anthropic.BadRequestError) as e:
        ask(client, messages=[])
    assert e.value.body == {"type": "error", "error": {"type": "invalid_request_error", "message": "messages is an empty list"}}
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: [0-9]+ tokens > [0-9]+ maximum"):
        ask(client, messages=[{"role": "user", "content": "word " * 40000}])
    with pytest.raises(anthropic.BadRequestError, match="image input is not supported"):
        ask(client, messages=[{"role": "user", "content": [{"type": "image", "source": {
            "type": "base64", "media_type": "image/png", "data": "AAAA"}}]}])
    for r in (api.get(PATH), api.post(PATH + "/nowhere", {})):
        assert r.status_code in (404, 405) and r.json()["type"] == "error"
        assert r.json()["error"]["type"] in ("not_found_error", "invalid_request_error")
    assert api.http.post(PATH, content=b"{").json()["type"] == "error"


def test_errors_before_the_request_is_read(scripted):
    """Keys and limits are checked where no protocol is known yet: the library would not know the error."""
    server = scripted([{"text": "x", "times": 0}], "--api-key", "secret", "--max-body-mib", "1")
    for key in ({"api_key": "secret"}, {"api_key": None, "auth_token": "secret"}):
        c = anthropic.Anthropic(base_url=server.base, max_retries=0, **key)
        assert text_of(ask(c)) == "x"
    with pytest.raises(anthropic.AuthenticationError) as e:
        ask(anthropic.Anthropic(base_url=server.base, max_retries=0, api_key="no"))
    assert e.value.body["type"] == "error" and e.value.body["error"]["type"] == "authentication_error"
    with pytest.raises(anthropic.RequestTooLargeError) as e:
        ask(c, messages=[{"role": "user", "content": "x" * 2**21}])
    assert e.value.body["error"]["type"] == "request_too_large"


def test_errors_of_the_engine(scripted):
    """An error behind the headers would look like the end of the answer."""
    server = scripted([{"text": "a" * 20, "splits": "char", "fail_at": 1, "times": 2},
                       {"text": "a" * 20, "splits": "char", "fail_at": 9, "delay_ms": 60}])
    c = client_of(server)
    with pytest.raises(anthropic.InternalServerError) as e:
        ask(c)
    assert e.value.body["error"]["type"] == "api_error"
    with pytest.raises(anthropic.InternalServerError):
        stream(c)
    with server.http.stream("POST", PATH, json={"max_tokens": 30, "stream": True, "messages": [{"role": "user", "content": "hi"}]}) as r:
        assert r.status_code == 200
        events = r.read().decode().strip().split("\n\n")
    assert events[-1].startswith("event: error\ndata: ")
    assert json.loads(events[-1].split("data: ")[1])["error"]["type"] == "api_error"
    assert "message_stop" not in "".join(events)


def test_names_of_events(scripted):
    """Readers that follow the event: line and not the data would see nothing."""
    server = scripted([{"text": REPLY, "splits": "tokens"}])
    with server.http.stream("POST", PATH + "?beta=true", json={
            "max_tokens": 999, "stream": True, "thinking": ON, "tools": [READ], "metadata": {"user_id": "u"},
            "messages": [{"role": "user", "content": "hi"}]},
            headers={"anthropic-version": "2023-06-01", "anthropic-beta": "some-beta-2025-01-01"}) as r:
        assert r.status_code == 200 and r.headers["content-type"].startswith("text/event-stream")
        for block in r.read().decode().strip().split("\n\n"):
            name, data = block.split("\n")
            assert name == "event: " + json.loads(data.removeprefix("data: "))["type"]


def test_ping(scripted):
    """A proxy would cut a connection that is silent while a long prompt is read; before that, status and headers come."""
    server = scripted([{"text": "x", "prefill_ms": 10600}])
    with server.http.stream("POST", PATH, json={"max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "hi"}]}) as r:
        events = [e.split("\n")[0] for e in r.read().decode().strip().split("\n\n")]
    assert events[:2] == ["event: message_start", "event: ping"] and events[-1] == "event: message_stop"
