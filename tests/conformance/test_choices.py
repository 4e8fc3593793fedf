"""n: several answers to one prompt."""
import pytest
from openai.types.chat import ChatCompletion
from support import check_usage, refused

ASK = {"max_tokens": 12, "temperature": 1, "seed": 7}


def texts(d):
    return [c["message"]["content"] for c in d["choices"]]


def streamed(s):
    found = {}
    for e in s.events:
        for c in e["choices"]:
            found.setdefault(c["index"], []).append(c["delta"].get("content") or "")
    return ["".join(found[i]) for i in sorted(found)]


def test_each_has_its_own_seed(api, prompt):
    """Drafts that are all alike are worth one; drafts that nobody can repeat cannot be looked into."""
    d = api.chat(prompt, n=3, **ASK)
    ChatCompletion.model_validate(d)
    assert [c["index"] for c in d["choices"]] == [0, 1, 2]
    assert len(set(texts(d))) > 1
    assert texts(d) == [api.say(prompt, **{**ASK, "seed": 7 + i}) for i in range(3)]


def test_the_prompt_counts_once(api, prompt):
    """A client would pay for a prompt that was read once three times."""
    one = api.chat(prompt, **ASK)["usage"]
    d = api.chat(prompt, n=3, ignore_eos=True, **ASK)
    check_usage(d["usage"])
    assert d["usage"]["prompt_tokens"] == one["prompt_tokens"]
    assert d["usage"]["completion_tokens"] == 36


def test_streamed_by_index(api, prompt):
    """Pieces of two drafts would run into one."""
    s = api.stream(prompt, n=2, stream_options={"include_usage": True}, **ASK)
    whole = api.chat(prompt, n=2, **ASK)
    assert s.done and streamed(s) == texts(whole)
    ends = [c for e in s.events for c in e["choices"] if c.get("finish_reason")]
    assert [c["index"] for c in ends] == [0, 1]
    roles = [c["index"] for e in s.events for c in e["choices"] if c["delta"].get("role")]
    assert roles == [0, 1]
    assert s.events[-1]["choices"] == [] and s.events[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


def test_the_official_client(api, prompt):
    import openai

    client = openai.OpenAI(base_url=f"{api.base}/v1", api_key="x", max_retries=0)
    r = client.chat.completions.create(model=api.model, messages=[{"role": "user", "content": prompt}], n=2, max_tokens=4)
    assert len(r.choices) == 2 and r.choices[1].index == 1


def test_one_reply_of_a_script_each(scripted):
    """Every answer is a generation of its own; a failure of the second is not hidden by the first."""
    server = scripted([{"text": "a"}, {"text": "b"}, {"text": "c"}, {"text": "d e f", "splits": "char", "fail_at": 3}, {"text": "g"}])
    assert texts(server.chat("hi", n=2)) == ["a", "b"]
    r = server.chat_raw("hi", n=2)
    assert r.status_code == 500
    assert server.get("/script").json()["left"] == 1


def test_leaving_stops_all(scripted):
    """The drafts that nobody waits for would still be written."""
    server = scripted([{"repeat": {"piece": " a", "count": 5000}, "delay_ms": 20}, {"text": "b"}, {"text": "c"}])
    with server.begin(server.body("hi", n=3, stream=True, max_tokens=5000)) as s:
        s.recv(1)
    assert server.seconds_until_idle() < 1
    assert server.get("/script").json()["left"] == 2


@pytest.mark.parametrize("n", [0, -1, 129, "two", 1.5])
def test_out_of_range(api, n):
    refused(api.chat_raw("hi", n=n), [400], param="n")
