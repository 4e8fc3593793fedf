"""Text to token ids and back."""
from support import refused

TEXT = "Hello, wörld! 漢字 🙂 and  two spaces\n"


def test_roundtrip(api):
    """A client that budgets its context would cut its prompts at the wrong place."""
    ids = api.tokens(TEXT)
    assert ids and all(type(t) is int for t in ids)
    assert api.post("/detokenize", {"tokens": ids}).json() == {"content": TEXT}


def test_pieces(api):
    """A token viewer shows bytes where a token cuts a character."""
    pieces = api.post("/tokenize", {"content": TEXT, "with_pieces": True}).json()["tokens"]
    assert [p["id"] for p in pieces] == api.tokens(TEXT)
    data = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
    assert data.decode() == TEXT


def test_added_tokens_and_their_letters(api):
    """Text from a document must be countable as plain letters."""
    tag = "<|im_end|>"
    assert len(api.tokens(tag)) == 1
    plain = api.post("/tokenize", {"content": tag, "parse_special": False}).json()["tokens"]
    assert len(plain) > 1
    assert api.post("/detokenize", {"tokens": plain}).json()["content"] == tag


def test_messages_count_as_in_chat(api):
    """The count of a conversation must be the one that chat reports."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    for kw in ({}, {"tools": tools}, {"tools": tools, "tool_choice": "none"}, {"chat_template_kwargs": {}}):
        body = api.body("How long is this?", max_tokens=1, **kw)
        ids = api.post("/tokenize", body).json()["tokens"]
        assert len(ids) == api.chat("How long is this?", max_tokens=1, **kw)["usage"]["prompt_tokens"], kw


def test_refusals(api):
    """A slip must be named."""
    refused(api.post("/tokenize", {}), [400], param="content")
    refused(api.post("/tokenize", {"content": 5}), [400], param="content")
    refused(api.post("/tokenize", {"messages": []}), [400], param="messages")
    for bad in ({}, {"tokens": "1"}, {"tokens": ["1"]}, {"tokens": [-1]}, {"tokens": [10**9]}):
        refused(api.post("/detokenize", bad), [400], param="tokens")


def test_prompt_is_what_is_counted(api):
    """A developer could not see what the model reads."""
    body = api.body("How long is this?")
    prompt = api.post("/apply-template", body).json()["prompt"]
    assert prompt.startswith("<|im_start|>user\nHow long is this?<|im_end|>\n") and prompt.endswith("</think>\n\n")
    assert api.tokens(prompt) == api.post("/tokenize", body).json()["tokens"]
    assert "wizard" in refused(api.post("/apply-template", {"messages": [{"role": "wizard", "content": "x"}]}), [400])["message"]
