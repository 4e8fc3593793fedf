"""Claude Code itself, with scripted replies. Needs its program: `claude` in the PATH, or the package claude-agent-sdk,
which carries it. It is not installed by `make setup-test`, since it is large and not free software."""
import importlib.util
import json
import pathlib
import shutil
import subprocess

import pytest


def find():
    package = importlib.util.find_spec("claude_agent_sdk")
    carried = pathlib.Path(package.origin).parent / "_bundled" / "claude" if package else None
    return shutil.which("claude") or (str(carried) if carried and carried.exists() else None)


pytestmark = pytest.mark.skipif(not find(), reason="Claude Code is not installed")


def call(name, **arguments):
    inside = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return {"text": f"I should look.</think>\n\n<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>",
            "splits": "tokens", "when": "<tools>", "times": 1}


def run(server, folder, question):
    """Its answer, and the prompts that the model read on the way."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder / "home"), "ANTHROPIC_BASE_URL": server.base,
                   "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": "lily", "DISABLE_AUTOUPDATER": "1",
                   "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    (folder / "home").mkdir()
    p = subprocess.run([find(), "-p", question, "--output-format", "json", "--allowedTools", "Read", "--max-turns", "6"],
                       cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)
    assert p.returncode == 0, p.stdout[-600:] + p.stderr[-600:]
    return json.loads(p.stdout), [r["prompt"] for r in server.get("/script").json()["requests"]]


@pytest.mark.parametrize("search", [False, True], ids=["read", "search"])
def test_loop(scripted, tmp_path, search):
    """Its whole task would fail, or each turn would read everything again."""
    (tmp_path / "note.txt").write_text("The secret is PINEAPPLE.\n")
    first = call("ToolSearch", query="select:WebFetch") if search else call("Read", file_path=tmp_path / "note.txt")
    server = scripted([first, {"text": "I know.</think>\n\nIt says pineapple.", "times": 0}])
    answer, prompts = run(server, tmp_path, "What does note.txt say?")
    assert answer["result"] == "It says pineapple." and answer["num_turns"] == 2
    assert len(prompts) == 2 and prompts[1].startswith(prompts[0])
    assert ('"WebFetch"' if search else "PINEAPPLE") in prompts[1][len(prompts[0]):]
