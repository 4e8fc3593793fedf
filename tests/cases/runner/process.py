"""The commands under test: a server on a free port, and commands that run to their end."""

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

from .exchange import CHAT, exchange
from .outcome import Fail, short

FLAGS = {
    "ctx": "--ctx-size",
    "key": "--api-key",
    "template": "--chat-template-kwargs",
    "max_body_mib": "--max-body-mib",
    "cors": "--cors-origin",
    "cache_mib": "--cache-mib",
    "memory_mib": "--memory-mib",
    "cache_dir": "--cache-dir",
}
CONTROL = "The control answer is 42."


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, cfg, script=None, model=None, server=None, wait=True):
        self.cfg, self.dir, self.script = cfg, tempfile.mkdtemp(prefix="lily-case-"), script
        self.control = None
        args = ["serve", "--model", str(model or cfg.model), "--host", "127.0.0.1"]
        if script is not None:
            script = dict(script, replies=list(script["replies"]))
            if not script.get("model"):
                self.control = len(script["replies"])
                script["replies"].append({"text": CONTROL, "times": 0, "when": "control request 7f3a"})
            with open(os.path.join(self.dir, "script.json"), "w", encoding="utf-8") as f:
                json.dump(script, f)
            args += ["--script", os.path.join(self.dir, "script.json")]
        self.key = (server or {}).get("key")
        for k, v in (server or {}).items():
            args += [FLAGS.get(k, "--" + k), v if isinstance(v, str) else json.dumps(v)]
        for attempt in range(3):
            self.port = free_port()
            self.log = open(os.path.join(self.dir, "log"), "w+b")
            self.t_start = time.monotonic()
            self.p = subprocess.Popen(
                cfg.lily + args + ["--port", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
            )
            if not wait or self._ready():
                return
            if "in use" not in self.tail():
                break
        self.stop()
        raise Fail("a server", f"exit code {self.p.returncode}: {self.text[-300:]}", "start")

    def _ready(self):
        while time.monotonic() - self.t_start < self.cfg.start_s:
            if self.p.poll() is not None:
                return False
            try:
                c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
                c.request("GET", "/health")
                if c.getresponse().status == 200:
                    return True
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.03)
        return False

    def tail(self):
        with open(self.log.name, "rb") as f:
            return f.read().decode("utf-8", "replace")

    def auth(self, headers=None):
        h = dict(headers or {})
        if self.key and not any(k.lower() == "authorization" for k in h):
            h["Authorization"] = "Bearer " + self.key
        return h

    def post(self, path, body, headers=None, **kw):
        return exchange(self.port, "POST", path, body, self.auth(headers), **kw)

    def get(self, path, headers=None):
        return exchange(self.port, "GET", path, None, self.auth(headers), timeout=20)

    def chat(self, body, reply=None, endpoint=CHAT, **kw):
        """POST with the record of the script added; the record may be missing (refused, or no script)."""
        before = self.records() if self.script is not None else None
        h = {} if reply is None else {"x-lily-reply": str(reply)}
        x = self.post(endpoint, body, h, **kw)
        x.stream = bool(isinstance(body, dict) and body.get("stream"))
        if before is not None:
            after = self.records()
            if len(after) > len(before) or (after and before and after[-1].get("n") != before[-1].get("n")):
                x.record = after[-1]
                x.prompt, x.ids = x.record.get("prompt"), x.record.get("prompt_ids")
        return x

    def records(self):
        x = self.get("/script")
        if x.status != 200 or not isinstance(x.json, dict):
            raise Fail(
                "GET /script answers 200 with JSON",
                f"{x.status} {short(x.raw.decode('latin-1'), 80)} {x.error or ''}",
            )
        return x.json.get("requests", [])

    def rss_mib(self):
        try:
            with open(f"/proc/{self.p.pid}/status") as f:
                return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024
        except OSError:
            out = subprocess.run(["ps", "-o", "rss=", "-p", str(self.p.pid)], capture_output=True, text=True).stdout
            return int(out or 0) / 1024

    def peak_mib(self):
        with open(f"/proc/{self.p.pid}/status") as f:
            return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) / 1024

    def in_flight(self):
        j = self.get("/health").json
        return j.get("in_flight") if isinstance(j, dict) else None

    def stop(self):
        if self.p.poll() is None:
            self.p.terminate()
            try:
                self.p.wait(10)
            except subprocess.TimeoutExpired:
                self.p.kill()
                self.p.wait(10)
        self.text = self.tail()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.stop()


def run_lily(cfg, *args, timeout=120):
    t = time.monotonic()
    p = subprocess.run(
        cfg.lily + [str(a) for a in args], capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL
    )
    return {
        "rc": p.returncode,
        "out": p.stdout.decode("utf-8", "replace"),
        "err": p.stderr.decode("utf-8", "replace"),
        "s": time.monotonic() - t,
    }


PROBE = "The quick brown fox reads three small books, then 12 more.\nif (n > 0) return;\n" * 3


def score(cfg, model, text=PROBE, windows=None, ids=None):
    with tempfile.TemporaryDirectory(prefix="lily-score-") as d:
        p = os.path.join(d, "input")
        with open(p, "w", encoding="utf-8") as f:
            f.write(text if ids is None else json.dumps(ids))
        r = run_lily(
            cfg,
            "score",
            "--model",
            model,
            "--text" if ids is None else "--ids",
            p,
            "--json",
            *(["--windows", ",".join(map(str, windows))] if windows else []),
            timeout=550,
        )
    try:
        r["json"] = json.loads(r["out"]) if r["rc"] == 0 else None
    except ValueError:
        raise Fail("lily score --json prints one JSON object", short(r["out"], 100))
    return r
