"""An answer that has begun: the last message is the assistant's, and the model goes on in it."""
import pytest
from support import check_chat, refused

OFF = {"chat_template_kwargs": {"enable_thinking": False}}
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}
CALL = "<tool_call>\n<function=read>\n<parameter=path>\na.c\n</parameter>\n</function>\n</tool_call>"


def begun(text, **more):
    return [{"role": "user", "content": "hi"}, {"role": "assistant", "content": text, **more}]


def prompt_of(api, messages, **kw):
    r = api.post("/apply-template", {"messages": messages, **kw})
    assert r.status_code == 200, r.text
    return r.json()["prompt"]


def test_greedy_text_goes_on_as_it_was(api, prompt):
    """A user who asks for more after a cut would get another story."""
    text = api.say(prompt, max_tokens=24)
    cuts = [k for k in range(3, len(text) - 3) if api.tokens(text[:k]) + api.tokens(text[k:]) == api.tokens(text)]
    ask = [{"role": "user", "content": prompt}]
    for k in cuts[::max(1, len(cuts) // 4)]:
        d = api.chat([*ask, {"role": "assistant", "content": text[:k]}], max_tokens=24)
        check_chat(d)
        assert d["choices"][0]["message"]["content"].startswith(text[k:])


def test_only_what_is_new_comes_back(scripted):
    """The beginning would stand twice in what a client shows; white space between the two must stay."""
    server = scripted([{"text": "\n\nworld", "splits": "char", "times": 2}])
    assert server.say(begun("Hello"), max_tokens=100) == "\n\nworld"
    assert server.stream(begun("Hello"), max_tokens=100).content() == "\n\nworld"
    assert server.get("/script").json()["requests"][0]["prompt"].endswith("</think>\n\nHello")


def test_thinking_is_closed(scripted):
    """The answer would be taken for thought."""
    server = scripted([{"text": " world"}])
    d = server.chat(begun("Hello"), max_tokens=100, chat_template_kwargs={"enable_thinking": True})
    m = d["choices"][0]["message"]
    assert m["content"] == " world" and not m.get("reasoning_content")
    assert d["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


def test_a_call_behind_begun_text(scripted):
    """The call would come as text, or one that is quoted would be made."""
    server = scripted([{"text": "\n" + CALL}, {"text": CALL}])
    d = server.chat(begun("I read."), tools=[TOOL], max_tokens=200)
    assert d["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "read"
    d = server.chat(begun("Like so:\n```\n"), tools=[TOOL], max_tokens=200)
    assert not d["choices"][0]["message"].get("tool_calls")
    assert d["choices"][0]["message"]["content"] == CALL


def test_when_a_new_turn_is_wanted(api):
    """OpenAI's own API begins a new turn; who wants that can say so."""
    assert prompt_of(api, begun("Hello")).endswith("Hello")
    assert prompt_of(api, begun("Hello"), continue_final_message=False).endswith("Hello<|im_end|>\n<|im_start|>assistant\n<think>\n")
    assert prompt_of(api, begun("Hello"), add_generation_prompt=True).endswith("<|im_start|>assistant\n<think>\n")
    assert prompt_of(api, begun("Hello"), continue_final_message=True, add_generation_prompt=False).endswith("Hello")
    assert prompt_of(api, begun("")).endswith("<|im_start|>assistant\n<think>\n")


@pytest.mark.parametrize("messages, fields, param", [
    ([{"role": "user", "content": "hi"}], {"continue_final_message": True}, "continue_final_message"),
    (begun("a"), {"continue_final_message": True, "add_generation_prompt": True}, "add_generation_prompt"),
    ([{"role": "user", "content": "hi"}], {"add_generation_prompt": False}, "add_generation_prompt"),
    (begun("a"), {"response_format": {"type": "json_object"}}, "response_format"),
    (begun("a"), {"continue_final_message": "yes"}, "continue_final_message")])
def test_refusals(api, messages, fields, param):
    refused(api.chat_raw(messages, **fields), [400], param=param)


def test_history_is_still_replayed(api, prompt):
    """A continued turn would read the conversation before it anew."""
    first = api.chat(prompt, max_tokens=12)["choices"][0]["message"]
    talk = [{"role": "user", "content": prompt}, {"role": "assistant", "content": first["content"]}, {"role": "user", "content": "go on"}]
    plain = api.chat(talk, max_tokens=4)["usage"]
    on = api.chat([*talk, {"role": "assistant", "content": "Well"}], max_tokens=4)["usage"]
    assert on["prompt_tokens_details"]["cached_tokens"] >= plain["prompt_tokens_details"]["cached_tokens"]


def test_the_same_in_anthropics_form(scripted):
    """There it is in the reference: the answer goes on from the end of the last message."""
    server = scripted([{"text": "B) because", "times": 0}])
    r = server.post("/v1/messages", {"max_tokens": 50, "thinking": {"type": "enabled", "budget_tokens": 1024}, "messages": [
        {"role": "user", "content": "A or B?"}, {"role": "assistant", "content": [{"type": "text", "text": "The answer is ("}]}]})
    assert r.status_code == 200, r.text
    assert [b["text"] for b in r.json()["content"]] == ["B) because"]
    assert server.get("/script").json()["requests"][0]["prompt"].endswith("</think>\n\nThe answer is (")
