"""Codex itself, set up as docs/clients.md says: it runs a command that the model asks for and shows the answer."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "conformance"))

from support import Api, Process, free_port  # noqa: E402

PACKAGE = importlib.util.find_spec("codex_cli_bin")
pytestmark = pytest.mark.skipif(not PACKAGE, reason="needs openai-codex-cli-bin")
CALL = "<tool_call>\n<function=exec_command>\n<parameter=cmd>\n%s\n</parameter>\n</function>\n</tool_call>"
REPLIES = [{"text": "I should look.\n</think>\n\nLet me look.\n\n" + CALL % "echo from-the-command > made.txt; cat made.txt", "splits": "tokens"},
           {"text": "It works.\n</think>\n\nThe command said it.", "splits": "tokens"}]


@pytest.fixture
def server(build_dir, source_dir, tmp_path):
    script = tmp_path / "replies.json"
    script.write_text(json.dumps({"replies": REPLIES}))
    p = Process([str(build_dir / "lily"), "serve", "--model", str(source_dir / "models" / "demo"), "--port", "{port}", "--script", str(script)], free_port())
    try:
        yield p.wait_ready()
    finally:
        p.stop()


def config(source_dir, base):
    """The block of docs/clients.md, with another port."""
    text = (source_dir / "docs" / "clients.md").read_text()
    block = text[text.index("## Codex"):].split("```toml\n")[1].split("```")[0]
    assert "http://127.0.0.1:8080" in block
    return block.replace("http://127.0.0.1:8080", base) + "\n[analytics]\nenabled = false\n"


def test_a_tool_turn(server, source_dir, tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (home / "config.toml").write_text(config(source_dir, server.base))
    codex = pathlib.Path(PACKAGE.origin).parent / "bin" / "codex"
    env = {**os.environ, "CODEX_HOME": str(home), "HOME": str(home)}
    r = subprocess.run([codex, "exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "make a file"], cwd=work, env=env,
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr[-2000:]
    assert r.stdout.strip() == "The command said it."
    assert (work / "made.txt").read_text() == "from-the-command\n"
    api = Api(server.base)
    first, second = api.get("/script").json()["requests"]
    assert first["endpoint"] == "/v1/responses"
    for name in ("exec_command", "multi_agent_v1__spawn_agent"):    # one in a namespace
        assert f'"{name}"' in first["prompt"]
    # The thought came back, so the second prompt goes on where the first answer ended.
    assert second["prompt"].startswith(first["prompt"])
    assert second["prompt"][len(first["prompt"]):].startswith(REPLIES[0]["text"])
    assert "from-the-command" in second["prompt"][len(first["prompt"]):].split("<tool_response>")[1]
