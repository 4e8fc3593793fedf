"""A reply that comes back as JSON is read as the tokens that were sampled. turns.py has whole sessions."""
import json

import pytest

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Get the current weather for a city",
                                           "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                                                          "required": ["city"]}}}]
ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
WEATHER = json.dumps({"temperature": 20, "condition": "clear"})


def kwargs(thinking):
    return {"enable_thinking": thinking, "preserve_thinking": True}


def cached(d):
    return d["usage"]["prompt_tokens_details"]["cached_tokens"]


def call(api, thinking, **more):
    return api.chat(ASK, max_tokens=200, tools=TOOLS, tool_choice="required", temperature=0.8,
                    chat_template_kwargs=kwargs(thinking), **more)


def go_on(api, message, thinking):
    messages = ASK + [message] + [{"role": "tool", "tool_call_id": c["id"], "content": WEATHER}
                                  for c in message.get("tool_calls") or []]
    if messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": "And in Rome?"})
    return api.chat(messages, max_tokens=4, tools=TOOLS, chat_template_kwargs=kwargs(thinking))


@pytest.mark.parametrize("thinking", [False, True])
def test_what_a_client_makes_of_a_call(api, thinking):
    """Agents parse arguments and write them anew, drop what they do not know, and send null."""
    a = call(api, thinking, seed=1)
    message, total = a["choices"][0]["message"], a["usage"]["total_tokens"]
    assert message["tool_calls"], message
    kept = {k: message[k] for k in ("role", "content", "tool_calls")}
    if thinking:
        kept["reasoning"] = message["reasoning_content"]
    for c in kept["tool_calls"]:
        c["function"]["arguments"] = "  " + json.dumps(json.loads(c["function"]["arguments"]), indent=4)
    assert cached(go_on(api, kept, thinking)) == total
    kept["content"] = [{"type": "text", "text": message["content"] or ""}]
    assert cached(go_on(api, kept, thinking)) >= total


@pytest.mark.parametrize("thinking", [False, True])
def test_streamed(api, thinking):
    """Only replies that came at once would be remembered."""
    s = api.stream(ASK, max_tokens=200, temperature=0.8, seed=2, chat_template_kwargs=kwargs(thinking), tools=TOOLS,
                   tool_choice="none", stream_options={"include_usage": True})
    message = {"role": "assistant", "content": s.content(), "reasoning_content": s.reasoning()}
    d = api.chat(ASK + [message, {"role": "user", "content": "And in Rome?"}], max_tokens=4, tools=TOOLS,
                 tool_choice="none", chat_template_kwargs=kwargs(thinking))
    assert cached(d) == s.usage()["total_tokens"] - (s.finish() == "length")


@pytest.mark.parametrize("thinking", [False, True])
def test_cut_by_a_limit(api, thinking):
    """An answer that was too long would be read again to go on from it."""
    a = api.chat("Tell me a story about a fox.", max_tokens=20, chat_template_kwargs=kwargs(thinking))
    assert a["choices"][0]["finish_reason"] == "length"
    messages = [{"role": "user", "content": "Tell me a story about a fox."}, a["choices"][0]["message"],
                {"role": "user", "content": "Go on."}]
    d = api.chat(messages, max_tokens=4, chat_template_kwargs=kwargs(thinking))
    # The last token was not fed yet; a word that the limit cut may be another token in the prompt.
    assert cached(d) >= a["usage"]["total_tokens"] - 4


def test_changed_message(api):
    """A user corrects what the model said; the model would still see what it said before."""
    a = call(api, False, seed=3)
    message, prompt = a["choices"][0]["message"], a["usage"]["prompt_tokens"]
    message["tool_calls"][0]["function"]["arguments"] = json.dumps({"city": "Oslo"})
    d = go_on(api, message, False)
    assert cached(d) <= prompt
    cold = api.chat(ASK + [message, {"role": "tool", "tool_call_id": "x", "content": WEATHER}], max_tokens=4,
                    tools=TOOLS, chat_template_kwargs=kwargs(False), cache_prompt=False)
    assert cold["usage"]["prompt_tokens"] == d["usage"]["prompt_tokens"]
    assert cold["choices"][0]["message"] == d["choices"][0]["message"]


@pytest.mark.parametrize("thinking", [False, True])
def test_responses(api, thinking):
    """Codex sends every item of the session with each turn."""
    tools = [{"type": "function", **TOOLS[0]["function"]}]
    items, read, calls = [{"role": "user", "content": f"What is the weather in Lisbon ({thinking})?"}], 0, 0
    for turn in range(6):
        r = api.post("/v1/responses", {"model": api.model, "input": items, "tools": tools, "max_output_tokens": 200,
                                       "temperature": 0, "tool_choice": "required" if turn % 2 == 0 else "auto",
                                       "chat_template_kwargs": kwargs(thinking)})
        assert r.status_code == 200, r.text
        d = r.json()
        assert d["status"] == "completed"
        reused = d["usage"]["input_tokens_details"]["cached_tokens"]
        assert turn == 0 or reused == read, f"turn {turn}"
        read = d["usage"]["total_tokens"]
        items += d["output"]
        made = [i for i in d["output"] if i["type"] == "function_call"]
        calls += len(made)
        items += [{"type": "function_call_output", "call_id": i["call_id"], "output": WEATHER} for i in made]
        if not made:
            items.append({"role": "user", "content": f"What is the weather in city number {turn}?"})
    assert calls >= 3
