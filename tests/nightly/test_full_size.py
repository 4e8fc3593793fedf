"""The synthetic checkpoint of the full size: its bytes, its numbers, what it needs of memory, that it answers."""
import hashlib
import json
import os
import re
import subprocess

import httpx
import pytest

CONTEXT = 4096
# Largest difference of a logit after three tokens; cpu rounds activations, as its rows declare.
DEVICES = {"ref": 1e-3, "cpu": 5e-2}


def test_bytes(full, source_dir):
    """The fixtures were computed from a file with these sums."""
    for line in (source_dir / "tests/checkpoint/full.sums").read_text().splitlines():
        want, name = line.split()
        with open(full / name, "rb") as f:
            assert hashlib.file_digest(f, "sha256").hexdigest() == want, name


@pytest.mark.parametrize("device", DEVICES)
def test_numbers(full, enough_memory, build_dir, device):
    r = subprocess.run([build_dir / "tests/test_full", device, full, str(DEVICES[device])], capture_output=True,
                       text=True)
    assert r.returncode == 0, r.stdout + r.stderr


def planned_gib(text):
    return float(re.search(r"([\d.]+) GiB planned", text).group(1))


def run_and_watch(command):
    """-> standard output, standard error, the peak of resident memory in GiB, mapped weights included."""
    p = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    out, err = p.stdout.read(), p.stderr.read()
    _, status, used = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    assert p.returncode == 0, err
    return out, err, used.ru_maxrss / 2**20


def test_memory_stays_within_the_estimate(full, enough_memory, build_dir):
    """A prompt of more than one chunk, a reply, every weight of it touched by the experts' choices."""
    text = "Tell me about the sea. " * 80
    options = ["--model", full, "--ctx-size", CONTEXT, "--device", "cpu"]
    _, err, peak = run_and_watch([build_dir / "lily", "chat", *options, "--stats", "--temperature", 0, "-n", 32, "-p",
                                  text])
    planned = planned_gib(err)
    assert err.index("planned") < err.index("prompt "), "the estimate comes before the work"
    program = 0.25      # code, tokenizer and the C library, which the plan leaves out
    assert peak <= planned + program, f"{peak:.2f} GiB resident at the peak, {planned:.2f} were planned"
    inspected = subprocess.run([build_dir / "lily", "inspect", "--model", full, "--ctx-size", str(CONTEXT), "--device",
                                "cpu"], capture_output=True, text=True, check=True).stdout
    assert abs(planned_gib(inspected) - planned) < 0.01


def test_serves(full, enough_memory, serve):
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16, "temperature": 0}
    base = serve("--ctx-size", CONTEXT).base
    answers = [httpx.post(base + "/v1/chat/completions", json=body, timeout=600).json() for _ in range(2)]
    for a in answers:
        assert a["usage"]["completion_tokens"] > 0
    text = [a["choices"][0]["message"] for a in answers]
    assert text[0] == text[1]


def test_bench(full, enough_memory, build_dir):
    command = [build_dir / "lily", "bench", "--model", full, "--lengths", "128", "--decode", "16", "--json"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    results = {r["phase"]: r for r in map(json.loads, lines)}
    print(*lines, sep="\n")     # the log of the night keeps the speeds
    assert results.keys() >= {"prefill", "decode"}
    assert all(r["tok_s"] > 0 for r in results.values())


def test_cuda_scores_as_cpu(full, enough_memory, build_dir, source_dir):
    """The same tokens, two thirds as a prompt and the others one by one; twice the same bytes."""
    version = subprocess.run([build_dir / "lily", "--version"], capture_output=True, text=True, check=True).stdout
    if "cuda: built" not in version or "cuda: built, but" in version:
        pytest.skip("no GPU: " + version)
    r = subprocess.run([source_dir / "tests/nightly/compare_devices.py", "--lily", build_dir / "lily", "--model", full],
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
