"""The server under test: build/lily with the demo model, or any server by its URL (LILY_URL), which then judges
only what can be seen from outside. The model need not be clever: its answers are compared with its own greedy
text."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from support import Api, Process, free_port  # noqa: E402

PROMPTS = [
    "Write one long sentence about the sea.",
    "Count from one to one hundred in words.",
    "List twenty animals.",
    "Tell a story about a red house and a green door.",
    "Explain how a clock works, in detail.",
    "hello",
    "abc def ghi",
    "What is the weather like on the moon?",
]


@pytest.fixture(scope="session")
def command(build_dir, source_dir):
    """What starts a server; {port} stands for its port."""
    return [str(build_dir / "lily"), "serve", "--model", str(source_dir / "models" / "demo"), "--port", "{port}"]


@pytest.fixture(scope="session")
def process(command):
    """The process that the suite started, or None when only a URL was given."""
    if os.environ.get("LILY_URL"):
        yield None
        return
    p = Process(command, free_port())
    try:
        yield p.wait_ready()
    finally:
        p.stop()


@pytest.fixture(scope="session")
def api(process):
    return Api(process.base if process else os.environ["LILY_URL"])


@pytest.fixture
def spawn(command):
    """Starts further servers of the same command, with further options; all are ended after the test."""
    if os.environ.get("LILY_URL"):
        pytest.skip("needs a server of its own")
    started = []

    def start(*options, port=None, wait=True):
        p = Process([*command, *options], port or free_port())
        started.append(p)
        return p.wait_ready() if wait else p

    yield start
    for p in started:
        p.stop()


@pytest.fixture
def scripted(spawn, tmp_path):
    """Starts a server whose replies are given."""
    import json

    def start(replies, *options, **keys):
        path = tmp_path / "replies.json"
        path.write_text(json.dumps({"replies": replies, **keys}))
        return Api(spawn("--script", str(path), *options).base)

    return start


@pytest.fixture(scope="session")
def prompt(api):
    """A prompt whose greedy answer is long and has some variety, whatever the model."""
    best, best_score = None, -1
    for text in PROMPTS:
        d = api.chat(text, max_tokens=32)
        answer, long = d["choices"][0]["message"]["content"] or "", d["usage"]["completion_tokens"] >= 32
        score = len(set(answer)) + (100 if long else 0)
        if score > best_score:
            best, best_score = text, score
        if score >= 112:  # long, and of a dozen different characters: the rest need not be asked
            break
    assert best_score > 100, "no probe prompt makes this model write 32 tokens"
    return best


@pytest.fixture(scope="session")
def openai_client(api):
    import openai

    return openai.OpenAI(base_url=api.base + "/v1", api_key="none", timeout=120, max_retries=0)
