"""Conversations that are kept on disk: across restarts, damaged, foreign, too many."""
import os
import stat
import time

import pytest

from support import Api

SYSTEM = "You are a careful assistant. " + " ".join(f"Rule {i}: be number {i * 37 % 101}." for i in range(20))
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Get the current weather for a city",
                                           "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                                                          "required": ["city"]}}}]
KEEP = {"preserve_thinking": True}


def cached(d):
    return d["usage"]["prompt_tokens_details"]["cached_tokens"]


def begin(question="What is rule 5?"):
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]


def go_on(messages, d):
    return messages + [d["choices"][0]["message"], {"role": "user", "content": "And the next one?"}]


@pytest.fixture
def server(spawn, tmp_path):
    """Starts one on the folder, with further options; the one before it is stopped."""
    started = []

    def start(*options):
        if started:
            started[-1].stop()
        started.append(spawn("--cache-dir", str(tmp_path / "cache"), *options))
        api = Api(started[-1].base)
        api.process = started[-1]
        return api

    return start


def files(tmp_path):
    return sorted((tmp_path / "cache").glob("*.lilycache"))


def conversations(tmp_path):
    return [f for f in files(tmp_path) if f.name != "replies.lilycache"]


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.mark.parametrize("thinking", [False, True])
def test_survives_a_restart(server, thinking):
    """After an update of the server each agent would read its whole conversation again."""
    kwargs = {"enable_thinking": thinking, "preserve_thinking": True}
    body = dict(max_tokens=200, temperature=0.8, seed=7, tools=TOOLS, chat_template_kwargs=kwargs)
    api = server()
    a = api.chat(begin(), **body)
    assert a["choices"][0]["finish_reason"] != "length"
    second = go_on(begin(), a)
    api = server()
    b = api.chat(second, **body)
    assert cached(b) == a["usage"]["total_tokens"], "the reply comes back as the tokens that were sampled"
    cold = api.chat(second, **body, cache_prompt=False)
    assert cached(cold) == 0
    assert cold["choices"][0]["message"]["content"] == b["choices"][0]["message"]["content"]
    api = server()
    assert cached(api.chat(go_on(second, b), **body)) == b["usage"]["total_tokens"]


def test_same_prompt_and_shared_beginning(server):
    """A new chat with the same system prompt would read it again."""
    api = server()
    a = api.chat(begin())
    api = server()
    again = api.chat(begin())
    assert cached(again) > 0.9 * again["usage"]["prompt_tokens"]
    assert again["choices"][0]["message"] == a["choices"][0]["message"]
    api = server()
    other = api.chat(begin("What is rule 50 about?"))
    assert 0.5 * other["usage"]["prompt_tokens"] < cached(other) < other["usage"]["prompt_tokens"]


def test_written_when_idle(server, tmp_path):
    """A power cut would lose everything since the start."""
    api = server()
    a = api.chat(begin(), max_tokens=8)
    wait_for(lambda: len(files(tmp_path)) == 2)
    api.chat(go_on(begin(), a), max_tokens=8)
    before = conversations(tmp_path)
    wait_for(lambda: conversations(tmp_path) != before)
    wait_for(lambda: len(conversations(tmp_path)) == 1)      # the beginning of a conversation is not kept beside it
    api.process.popen.kill()
    api.process.popen.wait(20)
    api = server()
    assert cached(api.chat(begin(), max_tokens=8)) > 0


def test_for_this_user_alone(server, tmp_path):
    """Prompts of one user would be open to the others of the machine."""
    server().chat(begin(), max_tokens=4)
    server()
    assert stat.S_IMODE(os.stat(tmp_path / "cache").st_mode) == 0o700
    assert files(tmp_path)
    for f in files(tmp_path):
        assert stat.S_IMODE(f.stat().st_mode) == 0o600


def test_folder_open_to_others_is_refused(spawn, tmp_path):
    """Anybody could put a conversation into it."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    p = spawn("--cache-dir", str(tmp_path / "cache"), wait=False)
    assert p.popen.wait(60) != 0
    assert "others may write" in p.tail()


@pytest.mark.parametrize("damage", ["bytes", "cut", "text", "empty", "link"])
def test_damaged_files_are_passed_over(server, tmp_path, damage):
    """One bad sector would keep the server from starting, or answer from a broken state."""
    api = server()
    a = api.chat(begin(), max_tokens=8)
    server().process.stop()
    assert len(conversations(tmp_path)) == 1
    for f in files(tmp_path):
        data = bytearray(f.read_bytes())
        if damage == "bytes":
            for at in range(1000, len(data), 5000):
                data[at] ^= 0x40
        elif damage == "cut":
            data = data[:len(data) // 2]
        elif damage == "text":
            data = b"hello\n"
        elif damage == "empty":
            data = b""
        f.write_bytes(data)
        if damage == "link":
            f.unlink()
            f.symlink_to("/etc/passwd")
    api = server()
    b = api.chat(begin(), max_tokens=8)
    assert cached(b) == 0
    assert b["choices"][0]["message"] == a["choices"][0]["message"]
    assert "passed over" in api.process.tail()


def test_another_model_is_passed_over(server, tmp_path):
    """A state of other weights or kernels would be gone on with."""
    server().chat(begin(), max_tokens=4)
    api = server("--device", "ref")
    assert cached(api.chat(begin(), max_tokens=4)) == 0
    assert "another model, device or version" in api.process.tail()


def test_limit(server, tmp_path):
    """The disk would fill up."""
    api = server("--cache-dir-mib", "16", "--cache-mib", "0")
    for i in range(12):
        api.chat(begin(f"{i}: " + "word " * 200), max_tokens=2)
    api.process.stop()
    assert conversations(tmp_path)
    assert sum(f.stat().st_size for f in files(tmp_path)) <= 16 << 20
    api = server("--cache-dir-mib", "16")
    assert cached(api.chat(begin("11: " + "word " * 200), max_tokens=2)) > 400, "the newest is there"


def test_evicted_from_memory_comes_back(server):
    """With many conversations each return would be a cold start."""
    api = server("--cache-mib", "1")
    first = api.chat(begin("first: " + "word " * 300), max_tokens=4)
    for i in range(6):
        api.chat(begin(f"{i}: " + "other " * 300), max_tokens=4)
    again = api.chat(begin("first: " + "word " * 300), max_tokens=4)
    assert cached(again) > 0.9 * again["usage"]["prompt_tokens"]
    assert again["choices"][0]["message"] == first["choices"][0]["message"]


def test_forget(server, tmp_path):
    """What a user deletes would still be on disk."""
    api = server()
    api.chat(begin(), max_tokens=4)
    wait_for(lambda: len(files(tmp_path)) == 2)
    assert api.http.request("DELETE", "/cache").status_code == 200
    wait_for(lambda: not files(tmp_path))
    api.chat([{"role": "user", "content": "hi"}], max_tokens=2)
    api = server()
    assert cached(api.chat(begin(), max_tokens=4)) == 0


def test_two_servers_share_a_folder(server, spawn, tmp_path):
    """Each would damage what the other wrote."""
    one = server()
    two = Api(spawn("--cache-dir", str(tmp_path / "cache")).base)
    for i in range(4):
        for api in (one, two):
            api.chat(begin(f"question {i}"), max_tokens=4)
        time.sleep(0.6)
    wait_for(lambda: len(files(tmp_path)) >= 2)
    api = server()
    assert cached(api.chat(begin("question 3"), max_tokens=4)) > 0
    assert "passed over" not in api.process.tail()
