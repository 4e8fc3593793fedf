"""The commands as a person calls them: what they print, where, and how they end."""
import json
import os
import pty
import re
import resource
import select
import signal
import socket
import subprocess
import time

import pytest


@pytest.fixture
def lily(build_dir):
    def run(*args, stdin=None, **kw):
        return subprocess.run([str(build_dir / "lily"), *map(str, args)], input=stdin, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL if stdin is None else None, timeout=120, **kw)
    return run


@pytest.fixture
def demo(source_dir):
    return source_dir / "models/demo"


def test_help_and_version(lily):
    assert "chat" in lily("--help").stdout
    for command in ("chat", "serve", "score", "bench", "inspect", "replay"):
        help_text = lily(command, "--help")
        assert help_text.returncode == 0 and "--model" in help_text.stdout
        assert lily("help", command).stdout == help_text.stdout
    for command in ("man", "completions"):
        help_text = lily(command, "--help").stdout
        assert help_text.startswith(f"usage: lily {command}") and len(help_text) < 200
        assert lily("help", command).stdout == lily(command, "-h").stdout == help_text
    version = lily("--version")
    assert version.returncode == 0
    assert re.match(r"lily \d+\.\d+\.\d+\n", version.stdout)
    assert "\nref: built, " in version.stdout and "\ncpu: built, " in version.stdout
    assert re.search(r"\ncuda: (built, .+|not built)\n", version.stdout)


@pytest.mark.parametrize("args", [[], ["nonsense"], ["help", "nonsense"], ["nonsense", "--help"], ["chat", "--nonsense"],
                                  ["score"], ["bench", "--lengths", "x"], ["serve", "--port", "99999"],
                                  ["inspect", "--without", "nonsense"], ["inspect", "plan", "--device", "nonsense"],
                                  ["chat", "--device", "cpu:nonsense"]])
def test_a_slip_is_one_line_and_not_zero(lily, args):
    r = lily(*args)
    assert 0 < r.returncode < 126
    if args:
        assert r.stderr.strip().splitlines()[-1].startswith("lily: ")


def test_the_demo_model_is_the_default_and_says_so(lily, demo):
    bare, named = lily("inspect"), lily("inspect", "--model", demo)
    assert bare.returncode == named.returncode == 0
    assert bare.stdout == named.stdout
    assert len([line for line in bare.stderr.splitlines() if "demo" in line]) == 1
    for word in ("fingerprint", "memory", "Gated DeltaNet", "vocabulary"):
        assert word in bare.stdout


def test_a_model_that_is_not_there(lily, tmp_path):
    for command in (["inspect"], ["chat", "-p", "x"], ["serve", "--port", "0"], ["score", "--text", os.devnull]):
        r = lily(*command, "--model", tmp_path / "none")
        assert 0 < r.returncode < 126
        assert r.stderr.splitlines()[-1] == f"lily: {tmp_path}/none: there is no such folder"
    r = lily("inspect", "--model", tmp_path)
    assert r.returncode == 3
    assert r.stderr == f"lily: {tmp_path}: not a checkpoint folder, config.json is not in it\n"
    (tmp_path / "file").touch()
    r = lily("inspect", "--model", tmp_path / "file")
    assert r.stderr == f"lily: {tmp_path}/file: a checkpoint is a folder, this is a file\n"


def test_plans_change_with_switches(lily):
    whole = lily("inspect", "plan", "--device", "cpu")
    assert whole.returncode == 0 and "stages" in whole.stdout
    stages = int(re.search(r"^(\d+) stages", whole.stdout, re.M).group(1))
    without = lily("inspect", "plan", "--device", "cpu", "--without", "fuse-expert-up,fuse-expert-down", "--without",
                   "fuse-qk")
    assert int(re.search(r"^(\d+) stages", without.stdout, re.M).group(1)) > stages
    prefill = lily("inspect", "plan", "--device", "cpu", "--tokens", "64").stdout
    assert "prefill" in prefill and "ROUTE_SCATTER" in prefill


def test_score_repeats_and_compares(lily, source_dir, tmp_path):
    text = tmp_path / "text"
    text.write_text((source_dir / "tests/fixtures/eval.txt").read_text()[:600])
    first, second = lily("score", "--text", text, "--json"), lily("score", "--text", text, "--json")
    assert first.returncode == 0 and first.stdout == second.stdout
    doc = json.loads(first.stdout)
    assert len(doc["nll"]) == len(doc["best"]) == len(doc["ids"]) - 1 and len(doc["top"]) == 20
    saved = tmp_path / "saved.json"
    saved.write_text(first.stdout)
    same = json.loads(lily("score", "--text", text, "--json", "--against", saved).stdout)
    assert same["agreement"] == 1 and same["first_difference"] is None
    doc["best"][7] += 1
    saved.write_text(json.dumps(doc))
    other = json.loads(lily("score", "--text", text, "--json", "--against", saved).stdout)
    assert other["agreement"] < 1 and other["first_difference"] == 7
    doc["ids"][3] += 1
    saved.write_text(json.dumps(doc))
    assert "position 3" in lily("score", "--text", text, "--json", "--against", saved).stderr


def test_bench_prints_the_schema(lily):
    r = lily("bench", "--lengths", "16,32", "--decode", "4", "--samples", "2", "--json")
    assert r.returncode == 0
    lines = [json.loads(line) for line in r.stdout.splitlines()]
    assert sorted((d["phase"], d["context"]) for d in lines) == [("decode", 16), ("decode", 32), ("prefill", 16),
                                                                ("prefill", 32)]
    for d in lines:
        assert {"version", "commit", "date", "device", "plan", "without", "model", "tok_s", "samples"} <= set(d)
        assert len(d["samples"]) == 2 and d["tok_s"] > 0


ASK = ["chat", "--temperature", "0", "--thinking", "off"]


def test_one_shot_and_pipe_give_the_same_answer(lily, build_dir):
    shot = lily(*ASK, "-p", "What is the capital of France?")
    assert shot.returncode == 0 and "Paris" in shot.stdout and "\x1b" not in shot.stdout
    assert lily(*ASK, stdin="What is the capital of France?").stdout == shot.stdout
    assert "tok/s" in lily(*ASK, "-p", "hello", "--stats").stderr
    both = subprocess.run([build_dir / "lily", *ASK, "-p", "hello", "--stats"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120).stdout
    assert both.splitlines()[-1].startswith("prompt ")
    assert lily(*ASK, "-p", " ").returncode != 0


def test_one_conversation_plans_no_memory_for_others(lily, source_dir):
    """A question on a laptop would reserve gigabytes for conversations that it can never have."""
    def planned(*args):
        return next(x for x in lily(*ASK, "-n", "1", "-p", "x", *args).stderr.splitlines() if "planned" in x)
    assert planned().split(", copies")[0] in (source_dir / "README.md").read_text()
    kept = [float(re.search(r"kept conversations ([\d.]+)", planned(*a)).group(1)) for a in ([], ["--cache-mib", "512"])]
    assert 0.45 < kept[1] - kept[0] < 0.55


class Terminal:
    """lily chat on a pseudo-terminal."""

    def __init__(self, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(command[0], list(command))
        self.text = ""

    def expect(self, what, seconds=60):
        """Reads until `what` (a regular expression) is seen after what was read before; returns the text up to it."""
        end = time.monotonic() + seconds
        while True:
            m = re.search(what, self.text)
            if m:
                before, self.text = self.text[:m.end()], self.text[m.end():]
                return before
            left = end - time.monotonic()
            assert left > 0, f"no {what!r} in {self.text!r}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode("utf-8", "replace")
                except OSError:
                    raise AssertionError(f"ended without {what!r}: {self.text!r}") from None

    def sees(self, what, seconds):
        try:
            return bool(self.expect(what, seconds))
        except AssertionError:
            return False

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait(self):
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return status


@pytest.fixture
def terminal(build_dir):
    opened = []

    def start(*args):
        opened.append(Terminal(str(build_dir / "lily"), "chat", *args))
        return opened[-1]

    yield start
    for t in opened:
        try:
            os.kill(t.pid, signal.SIGKILL)
            os.waitpid(t.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def test_lines_take_the_place_of_the_progress_bar(terminal):
    assert "\r\x1b[Klily: " in terminal().expect("planned: ")


def test_a_conversation(terminal):
    t = terminal("--temperature", "0", "--thinking", "off", "--stats")
    t.expect("/help")
    t.expect("> ")
    t.type("What is the capital of France?\n")
    t.expect("Paris")
    assert " 0 reused" in t.expect("tok/s\\)\r?\n")
    t.expect("> ")
    t.type("What is the capital of Italy?\n")
    t.expect("Rome")
    assert " 0 reused" not in t.expect("tok/s\\)\r?\n"), "the second turn reads its prefix again"
    t.type("/retry\n")
    t.expect("Rome")
    t.type("/nonsense\n")
    t.expect("there is no /nonsense")
    t.type("/new\n/stats off\n/exit\n")
    assert t.wait() == 0


def test_reasoning_is_dimmed(terminal):
    t = terminal("--temperature", "0", "--thinking", "on")
    t.expect("> ")
    t.type("What is 47 + 38?\n")
    t.expect("\x1b\\[2m")
    t.expect("\x1b\\[0m")
    t.expect("> ")
    t.type("\x04")
    assert t.wait() == 0


def test_ctrl_c_stops_the_answer_and_not_the_program(terminal):
    t = terminal("--temperature", "1.9", "--top-k", "0", "--top-p", "1", "--thinking", "on", "--device", "ref")
    t.expect("> ")
    t.type("half a line")
    for _ in range(10):     # the editor takes the keyboard a moment after it has shown the prompt
        t.type("\x03")
        if t.sees("> ", 1):
            break
    else:
        raise AssertionError("Ctrl-C does not forget the line")
    t.type("Tell a very long story about a river.\n")
    t.expect("\x1b\\[2m.")
    t.type("\x03")
    t.expect("\\(stopped\\)", seconds=10)
    t.expect("> ")
    t.type("/exit\n")
    assert t.wait() == 0


def test_slips_are_found_before_the_weights_are_read(lily, tmp_path):
    for command in (["chat", "-p", "x", "-n", "0"], ["chat", "-p", "x", "--thinking", "maybe"],
                    ["score", "--text", tmp_path / "none"], ["score", "--text", __file__, "--windows", "0,5"]):
        r = lily(*command)
        assert 0 < r.returncode < 126 and "planned" not in r.stderr


def test_a_pipe_is_read_past_a_zero_byte(lily):
    def prompt_tokens(text):
        return int(re.search(r"prompt (\d+) tokens", lily(*ASK, "-n", "1", "--stats", stdin=text).stderr).group(1))
    assert prompt_tokens("a\0 and then many more words") > prompt_tokens("a") + 3


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_output_that_is_lost_is_told(build_dir):
    for command in (["--version"], ["--help"], ["inspect"]):
        with open("/dev/full", "w") as full:
            r = subprocess.run([str(build_dir / "lily"), *command], stdout=full, stderr=subprocess.PIPE, text=True)
        assert r.returncode == 3 and r.stderr.splitlines()[-1].startswith("lily: standard output: ")


def test_text_beyond_ascii_can_be_typed(terminal, monkeypatch):
    for name in ("LANG", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    t = terminal("--temperature", "0", "--thinking", "off", "--stats", "-n", "1")
    t.expect("> ")
    t.type("a\n")
    plain = int(re.search(r"prompt (\d+)", t.expect("tok/s\\)")).group(1))
    t.type("/new\n你好 🎉 é\n")
    t.expect("你好 🎉 é")
    assert int(re.search(r"prompt (\d+)", t.expect("tok/s\\)")).group(1)) > plain + 3
    t.type("/exit\n")
    assert t.wait() == 0


def test_connections_beyond_the_open_files_wait(build_dir):
    server = subprocess.Popen([str(build_dir / "lily"), "serve", "--port", "0"], stderr=subprocess.PIPE, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    try:
        port = next(int(m.group(1)) for m in (re.search(r"listening on .*:(\d+)", line) for line in server.stderr) if m)
        clients = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(80)]
        clients[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for c in clients[:-1]:
            c.close()
        assert clients[-1].recv(9) == b"HTTP/1.1 ", "its turn has come"
        clients[-1].close()
    finally:
        server.terminate()
        server.communicate()
    assert server.returncode == 0
