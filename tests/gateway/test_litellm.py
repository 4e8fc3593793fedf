"""packaging/gateway/litellm.yaml in front of two processes, and examples/hybrid/hybrid.py through it."""
import importlib.util
import json
import pathlib
import signal
import subprocess
import sys

import httpx
import openai
import pytest

from conftest import served
from support import free_port

LITELLM = pathlib.Path(sys.executable).parent / "litellm"
pytestmark = pytest.mark.skipif(not LITELLM.exists() or not importlib.util.find_spec("fastapi"),
                                reason="needs litellm[proxy]")
KEY = "sk-test"
OK = {"text": "hm</think>\n\nok", "times": 0}
CALL = ("</think>\n\n<tool_call>\n<function=ask_private>\n<parameter=files>\n[\"heating.txt\"]\n</parameter>\n"
        "<parameter=question>\nWhat was paid in all?\n</parameter>\n</function>\n</tool_call>")


@pytest.fixture
def litellm(gateway, source_dir):
    def start(first, second, cloud=None):
        port = free_port()
        cloud = cloud or first
        environment = {"LILY_1": first.base + "/v1", "LILY_2": second.base + "/v1", "LILY_KEY": "none",
                       "GATEWAY_KEY": KEY, "CLOUD_URL": cloud.base + "/v1", "CLOUD_MODEL": "openai/cloud",
                       "CLOUD_KEY": "none", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "WARNING"}
        config = source_dir / "packaging" / "gateway" / "litellm.yaml"
        gateway([str(LITELLM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)], environment,
                f"http://127.0.0.1:{port}/health/liveliness", 120)
        return f"http://127.0.0.1:{port}"
    return start


def client(base):
    return openai.OpenAI(base_url=base + "/v1", api_key=KEY, max_retries=0, timeout=60)


def ask(c, text="hi", session=None, **more):
    headers = {"x-litellm-session-id": session} if session else None
    return c.chat.completions.create(model="lily", messages=[{"role": "user", "content": text}], extra_headers=headers,
                                     **more)


def test_two_processes(lily, litellm):
    """One start of the gateway for all of it, since that takes many seconds."""
    servers = [lily(OK), lily(OK)]
    c = client(litellm(*servers))

    message = ask(c).choices[0].message
    assert message.content == "ok" and message.reasoning_content == "hm"
    chunks = list(ask(c, stream=True, stream_options={"include_usage": True}))
    assert "".join(k.choices[0].delta.content or "" for k in chunks if k.choices) == "ok"
    with pytest.raises(openai.BadRequestError, match="logit_bias"):
        ask(c, logit_bias={"99999999": 1})

    for session in ("a", "b", "c"):                          # a session stays where it began
        counts = []
        for _ in range(4):
            before = [served(s) for s in servers]
            ask(c, session=session)
            counts.append([served(s) - n for s, n in zip(servers, before)])
        assert all(k == counts[0] for k in counts), counts

    servers[0].popen.send_signal(signal.SIGKILL)
    servers[0].popen.wait()
    for session in ("a", "b", "c", "d", "e", "f"):           # the one that lives answers them all
        assert ask(c, session=session).choices[0].message.content == "ok"


def test_hybrid_example(lily, litellm, source_dir, tmp_path):
    """The cloud model is a server of its own here, so that what it was told can be looked at."""
    private = lily({"text": "412 euros", "times": 0})
    cloud = lily({"text": CALL}, {"text": "</think>\n\nYou paid 412 euros."})
    base = litellm(private, private, cloud)
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "heating.txt").write_text("Customer Ada Secretname: 200 euros in March, 212 in October.")
    (folder / "other.txt").write_text("Unrelated Otherword")

    run = subprocess.run([sys.executable, str(source_dir / "examples" / "hybrid" / "hybrid.py"), "--gateway",
                          base + "/v1", "--key", KEY, "--folder", str(folder), "What did heating cost?"],
                         capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "You paid 412 euros."

    told_cloud = json.dumps(httpx.get(cloud.base + "/script").json())
    told_lily = json.dumps(httpx.get(private.base + "/script").json())
    assert "Secretname" in told_lily and "Otherword" not in told_lily
    assert "412 euros" in told_cloud and "heating.txt" in told_cloud
    assert "Secretname" not in told_cloud and "Otherword" not in told_cloud


def test_hybrid_says_what_to_install(source_dir, tmp_path):
    def run(*args):    # -S: without any package
        return subprocess.run([sys.executable, "-S", str(source_dir / "examples" / "hybrid" / "hybrid.py"), *args],
                              capture_output=True, text=True, timeout=120)
    assert run("--help").returncode == 0
    bare = run("--folder", str(tmp_path), "What did heating cost?")
    assert bare.returncode != 0 and "pip install openai" in bare.stderr and "Traceback" not in bare.stderr


def test_hybrid_reads_only_the_folder(source_dir, tmp_path):
    spec = importlib.util.spec_from_file_location("hybrid", source_dir / "examples" / "hybrid" / "hybrid.py")
    hybrid = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hybrid)
    folder = tmp_path / "records"
    folder.mkdir()
    (tmp_path / "outside.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    for name in ("../outside.txt", "link.txt", str(tmp_path / "outside.txt"), ""):
        with pytest.raises(ValueError):
            hybrid.read_files(folder, [name])


@pytest.mark.parametrize("stream", [False, True])
def test_the_library_completes_a_tool_loop(lily, stream):
    """LiteLLM without its proxy, with the demo model."""
    import litellm as library

    tool = {"type": "function", "function": {
        "name": "get_weather", "description": "Get the current weather for a city",
        "parameters": {"type": "object", "required": ["city"],
                       "properties": {"city": {"type": "string", "description": "Name of the city"}}}}}
    fields = {"model": "openai/lily", "api_base": lily().base + "/v1", "api_key": "none", "temperature": 0, "tools": [tool]}

    def ask_it(messages):
        reply = library.completion(messages=messages, stream=stream, **fields)
        return library.stream_chunk_builder(list(reply), messages=messages) if stream else reply

    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    first = ask_it(messages).choices[0].message
    call = first.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Oslo"})
    messages += [first.model_dump(exclude_none=True),
                 {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 17, "condition": "rainy"}'}]
    assert "17" in ask_it(messages).choices[0].message.content
