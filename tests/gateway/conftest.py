"""Two servers, and something in front of them."""
import json
import os
import pathlib
import subprocess
import sys
import time

import httpx
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "conformance"))

from support import Process, free_port  # noqa: E402


@pytest.fixture
def lily(build_dir, source_dir, tmp_path):
    """Starts a server with scripted replies, or with the demo model when there are none."""
    started = []

    def start(*replies, port=None, options=()):
        command = [str(build_dir / "lily"), "serve", "--model", str(source_dir / "models" / "demo"), "--port", "{port}",
                   *options]
        if replies:
            script = tmp_path / f"replies-{len(started)}.json"
            script.write_text(json.dumps({"replies": list(replies), "end": "last"}))
            command += ["--script", str(script)]
        started.append(Process(command, port or free_port()))
        return started[-1].wait_ready()

    yield start
    for p in started:
        p.stop()


@pytest.fixture
def gateway(tmp_path):
    """Runs a gateway's command until the test is over; `ready` is a URL that it answers with 200."""
    started = []

    def start(command, environment, ready, seconds):
        log = open(tmp_path / f"gateway-{len(started)}.log", "w+b")
        started.append((subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log), log))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if started[-1][0].poll() is not None:
                break
            try:
                if httpx.get(ready, timeout=5).status_code == 200:
                    return started[-1][0]
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        log.seek(0)
        raise AssertionError(f"the gateway did not come up: {log.read()[-3000:].decode('utf-8', 'replace')}")

    yield start
    for p, log in started:
        p.terminate()
        try:
            p.wait(20)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        log.close()


def served(server):
    """How many requests a scripted server has answered."""
    return len(httpx.get(server.base + "/script").json()["requests"])


def wait_for(what, seconds=15):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.1)
    return False
