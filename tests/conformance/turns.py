"""Sessions of thirty turns with tools: each reads only what is new, and says what a cold run says.

How much of a prompt can be reused is worked out here, from the rendered text and the ids that were sampled: the tokens
before the first one whose rendering changed. Named so that pytest collects it only when asked: it takes minutes."""
import json

import pytest

TURNS = 30
START, END = "<|im_start|>assistant\n", "<|im_end|>"
CITIES = "Paris London Rome Oslo Madrid Berlin Vienna Lima Cairo Tokyo".split()


def tool(name, description, key):
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {key: {"type": "string"}}, "required": [key]}}}


TOOLS = [tool("get_weather", "Get the current weather for a city", "city"),
         tool("calculate", "Evaluate a math expression", "expression")]


class Ids:
    """What a prompt must be, token by token."""

    def __init__(self, api, kwargs):
        self.api, self.kwargs = api, kwargs
        self.replies = {}  # text of the conversation before a turn -> sampled ids, with the turn's opening
        self.known, self.tails = {}, {}

    def encode(self, text):
        if text not in self.known:
            self.known[text] = self.api.tokens(text)
        return self.known[text]

    def text(self, ids):
        return self.api.post("/detokenize", {"tokens": ids}).json()["content"]

    def turn(self, before, rendered):
        """The ids of an older turn. One whose thought is rendered is what was said; of another, what followed the
        thought, if that is how it was rendered."""
        said = self.replies.get(before)
        if said is None:
            return self.encode(rendered)
        if rendered.startswith("<think>"):
            return said
        if (before, rendered) not in self.tails:
            self.tails[before, rendered] = self.tail(said, rendered)
        return self.tails[before, rendered]

    def tail(self, said, rendered):
        end = said.index(self.encode("</think>")[0]) + 1
        while end < len(said) and not self.text([said[end]]).strip():
            end += 1
        return said[end:] if self.text(said[end:]) == rendered else self.encode(rendered)

    def prompt(self, messages):
        """The ids, and the key of the turn that comes, with its opening."""
        r = self.api.post("/apply-template", {"messages": messages, "tools": TOOLS, "chat_template_kwargs": self.kwargs})
        assert r.status_code == 200, r.text
        first, *turns = r.json()["prompt"].split(START)
        ids, before = self.encode(first + START), first + START
        for turn in turns[:-1]:
            rendered, behind = turn.split(END, 1)
            ids = ids + self.turn(before, rendered) + self.encode(END + behind + START)
            before += turn + START
        opening = self.encode(turns[-1])
        return ids + opening, before, opening


def shared(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def result(call, turn):
    if call["function"]["name"] == "calculate":
        return json.dumps({"result": 1000 + turn})
    return json.dumps({"temperature": turn, "condition": "clear"})


def question(turn):
    return f"What is the weather in {CITIES[turn % 10]}?" if turn % 3 else f"Calculate {1000 + turn} * 37."


@pytest.mark.parametrize("preserve", [False, True])
@pytest.mark.parametrize("thinking", [False, True])
def test_thirty_turns(spawn, thinking, preserve):
    """Each tool turn would read the whole conversation again."""
    from support import Api

    api = Api(spawn().base)
    kwargs = {"enable_thinking": thinking, "preserve_thinking": preserve}
    ids, messages, state, calls, asked_for = Ids(api, kwargs), [], [], 0, []
    for turn in range(TURNS):
        if not messages or messages[-1]["role"] == "assistant":
            messages.append({"role": "user", "content": question(turn)})
        asked = messages[-1]["role"] == "user" and turn % 4 < 3
        body = dict(tools=TOOLS, tool_choice="required" if asked else "auto", max_tokens=160,
                    temperature=0.7, seed=turn, chat_template_kwargs=kwargs, logprobs=True)
        prompt, key, opening = ids.prompt(messages)
        d = api.chat(messages, **body)
        choice, usage = d["choices"][0], d["usage"]
        assert usage["prompt_tokens"] == len(prompt), f"turn {turn}: another prompt than expected"
        can = min(shared(state, prompt), len(prompt) - 1)
        assert usage["prompt_tokens_details"]["cached_tokens"] == can, f"turn {turn}: {can} could be reused"

        asked_for.append((len(messages), body, choice))
        said = [t["id"] for t in choice["logprobs"]["content"]]
        ids.replies[key] = opening + said
        state = prompt + (said if choice["finish_reason"] != "length" else said[:-1])
        message = choice["message"]
        messages.append(message)
        for call in message.get("tool_calls") or []:
            calls += 1
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result(call, turn)})
        if preserve and turn:
            assert can >= before, f"turn {turn}: {can} of the {before} tokens that were read are reused"
        before = len(state)
    assert calls >= TURNS // 4, f"{calls} calls"
    for turn, (n, body, choice) in enumerate(asked_for):
        cold = api.chat(messages[:n], **body, cache_prompt=False)
        assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert without_ids(cold["choices"][0]) == without_ids(choice), f"turn {turn}: warm and cold differ"


def without_ids(choice):
    choice = json.loads(json.dumps(choice))
    for call in choice["message"].get("tool_calls") or []:
        del call["id"]
    return choice
