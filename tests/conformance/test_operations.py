"""What operators read and set: metrics, properties, the log, limits, traces."""
import glob
import json
import pathlib
import re
import socket
import stat
import subprocess
import time

import httpx
import pytest

from support import CHAT, Api

REPLY = [{"text": "I think.</think>\n\nHello there.", "splits": "char", "times": 0}]


def metrics(api):
    """{name{labels}: value}, after checking every line against the text format."""
    r = api.get("/metrics")
    assert r.status_code == 200 and r.headers["content-type"].startswith("text/plain; version=0.0.4")
    kinds, values = {}, {}
    for line in r.text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in kinds, f"{name} is declared twice"
            kinds[name] = kind
        elif not line.startswith("#"):
            m = re.fullmatch(r'([a-z_]+)(\{[a-z]+="[^"\\]*"(?:,[a-z]+="[^"\\]*")*\})? ([-+.0-9eE]+)', line)
            assert m, line
            base = re.sub(r"_(bucket|sum|count)$", "", m[1]) if m[1] not in kinds else m[1]
            assert kinds[base] in ("counter", "gauge", "histogram"), line
            assert (kinds[base] == "counter") == m[1].endswith("_total"), line
            assert m[1] + (m[2] or "") not in values, line
            values[m[1] + (m[2] or "")] = float(m[3])
    return values


# ---------------------------------------------------------------- metrics and properties


def test_metrics_count(scripted):
    api = scripted(REPLY)
    before = metrics(api)
    reply = api.chat("hi", max_tokens=100)
    api.stream("hi", max_tokens=5)
    assert api.chat_raw("hi", temperature="hot").status_code == 400
    after = metrics(api)
    grown = {k: after[k] - before.get(k, 0) for k in after if after[k] != before.get(k, 0)}
    usage = reply["usage"]
    assert grown["lily_requests_total"] == 3
    assert grown["lily_generated_tokens_total"] == usage["completion_tokens"] + 5
    assert grown["lily_prompt_tokens_total"] + grown.get("lily_reused_tokens_total", 0) == 2 * usage["prompt_tokens"]
    assert grown['lily_generations_total{end="stop"}'] == grown['lily_generations_total{end="length"}'] == 1
    assert after["lily_requests_in_flight"] == after["lily_requests_queued"] == 0
    assert after["lily_ready"] == 1
    wait_until(lambda: metrics(api).get(f'lily_http_requests_total{{path="{CHAT}",code="400"}}') == 1)
    assert metrics(api)[f'lily_http_requests_total{{path="{CHAT}",code="200"}}'] == 2


def wait_until(what, bound=10):
    end = time.monotonic() + bound
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_histograms_add_up(scripted):
    api = scripted(REPLY)
    for _ in range(3):
        api.chat("hi", max_tokens=100)
    for name in ("lily_time_to_first_token_seconds", "lily_time_per_output_token_seconds", "lily_request_duration_seconds"):
        wait_until(lambda: metrics(api)[name + "_count"] == 3)
        values = metrics(api)
        buckets = [(float(k.split('"')[1]), v) for k, v in values.items() if k.startswith(name + "_bucket")]
        assert buckets == sorted(buckets) and [v for _, v in buckets] == sorted(v for _, v in buckets)
        assert buckets[-1] == (float("inf"), 3)
        assert values[name + "_sum"] > 0


def test_metrics_do_not_grow_with_paths(scripted):
    """A scanner would fill the memory of server and collector."""
    api = scripted(REPLY)
    api.get("/x0")
    wait_until(lambda: metrics(api).get('lily_http_requests_total{path="other",code="404"}') == 1)
    n = len(metrics(api))
    for i in range(20):
        api.get(f"/x{i}")
    wait_until(lambda: metrics(api)['lily_http_requests_total{path="other",code="404"}'] == 21)
    assert len(metrics(api)) == n


def test_a_client_that_leaves_counts_as_499(scripted):
    api = scripted([{"text": "abc", "prefill_ms": 20000}])
    s = api.begin(api.body("hi"))
    wait_until(lambda: api.in_flight() == 1)
    s.close()
    wait_until(lambda: metrics(api).get(f'lily_http_requests_total{{path="{CHAT}",code="499"}}') == 1)
    assert metrics(api)['lily_generations_total{end="cancelled"}'] == 1


def test_props(api, scripted):
    """A bug report would not tell what ran."""
    for server in (api, scripted(REPLY)):
        d = server.get("/props").json()
        assert re.fullmatch(r"\d+\.\d+\.\d+", d["version"])
        assert d["n_ctx"] == d["limits"]["context"] == server.get("/v1/models").json()["data"][0]["context_length"]
        settings, memory = d["default_generation_settings"], d["memory"]
        assert 0 <= settings["temperature"] <= 2 and 0 < settings["top_p"] <= 1 and type(settings["top_k"]) is int
        assert memory["planned_bytes"] >= memory["weights_bytes"] + memory["kv_bytes"] > 0
        assert memory["planned_bytes"] == sum(v for k, v in memory.items() if k != "planned_bytes")
        assert all(re.fullmatch("[0-9a-f]{16}", h) for h in d["plans"].values()) and len(d["plans"]) == 2
        assert all(d["switches"].values())
    assert api.get("/props").json()["scripted"] is False


def test_props_tell_switches_and_limits(scripted):
    api = scripted(REPLY, "--without", "fuse-qk", "--queue", "7", "--max-headers", "33", "--ctx-size", "2048")
    d = api.get("/props").json()
    assert [name for name, on in d["switches"].items() if not on] == ["fuse-qk"]
    assert d["limits"]["queue"] == 7 and d["limits"]["headers"] == 33 and d["n_ctx"] == 2048


def test_forgetting(scripted):
    api = scripted(REPLY)
    assert api.http.delete("/cache").status_code == 200
    assert api.get("/cache").status_code == 405


# ---------------------------------------------------------------- limits


def test_queue_full_is_429_before_any_byte(scripted):
    """A gateway would not know that it should try another server."""
    api = scripted([{"text": "abc", "prefill_ms": 3000, "times": 0}], "--queue", "1", "--parallel", "1")
    sockets = [api.begin(api.body("hi", stream=True))]
    wait_until(lambda: api.get("/health").json()["in_flight"] == 1)
    sockets.append(api.begin(api.body("hi", stream=True)))
    wait_until(lambda: api.get("/health").json()["queued"] == 1)
    r = api.chat_raw("hi", stream=True)
    assert r.status_code == 429 and int(r.headers["retry-after"]) >= 1
    assert r.json()["error"]["code"] == "queue_full"
    assert metrics(api)["lily_queue_refused_total"] == 1
    for s in sockets:
        s.close()


def raw(api, request, bound=10):
    with socket.create_connection(("127.0.0.1", httpx.URL(api.base).port), timeout=bound) as s:
        s.sendall(request)
        parts = []
        try:
            while piece := s.recv(65536):
                parts.append(piece)
        except ConnectionError:
            pass
        return b"".join(parts)


def test_limits_of_a_head(scripted):
    api = scripted(REPLY, "--max-headers", "10", "--max-header-kib", "2", "--header-seconds", "0.5")
    head = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    assert b" 200 " in raw(api, head + b"A: b\r\n" * 8 + b"\r\n")
    assert b" 431 " in raw(api, head + b"A: b\r\n" * 9 + b"\r\n")
    assert b" 431 " in raw(api, head + b"A: " + b"b" * 3000 + b"\r\n\r\n")
    start = time.monotonic()
    raw(api, head)    # never finished
    assert time.monotonic() - start < 5


# ---------------------------------------------------------------- the log


def lines(p):
    return [json.loads(line) for line in open(p.log.name, encoding="utf-8")]


def test_json_log(spawn):
    p = spawn("--log-format", "json")
    api = Api(p.base)
    r = api.chat_raw("my secret question", max_tokens=3, headers={"x-request-id": "mine-1.a:b_C"})
    assert r.headers["x-request-id"] == "mine-1.a:b_C"
    generated = api.get("/v1/models", headers={"x-request-id": "no good\ttext"}).headers["x-request-id"]
    assert re.fullmatch(r"req-[0-9a-f]{16}", generated)
    assert re.fullmatch(r"req-[0-9a-f]{16}", api.get("/v1/models", headers={"x-request-id": "x" * 65}).headers["x-request-id"])
    api.get("/health")
    wait_until(lambda: len([x for x in lines(p) if "id" in x]) >= 3)
    all_lines = lines(p)
    for line in all_lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert line["level"] in ("error", "warn", "info", "debug") and line["message"]
    chat = next(x for x in all_lines if x.get("id") == "mine-1.a:b_C")
    usage = r.json()["usage"]
    assert (chat["method"], chat["path"], chat["status"], chat["client_gone"]) == ("POST", CHAT, 200, False)
    assert (chat["prompt_tokens"], chat["completion_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert chat["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"] and chat["finish"] == "length"
    assert 0 <= chat["queue_seconds"] <= chat["first_token_seconds"] <= chat["seconds"]
    assert not [x for x in all_lines if x.get("path") == "/health"]
    assert "secret" not in json.dumps(all_lines)


def test_the_log_tells_how_it_ended(spawn, tmp_path):
    """Whoever looks for the cause of slow answers would count refusals and departures as answers."""
    script = tmp_path / "replies.json"
    script.write_text(json.dumps({"replies": [{"text": "abc", "prefill_ms": 20000}]}))
    p = spawn("--script", str(script), "--log-format", "json", "--queue", "1", "--parallel", "1")
    api = Api(p.base)
    sockets = []
    for n in range(2):    # one runs, one waits
        sockets.append(api.begin(api.body("hi", stream=True)))
        wait_until(lambda: api.in_flight() == n + 1)
    assert api.chat_raw("hi").status_code == 429
    assert api.chat_raw("hi", top_p=7).status_code == 400
    for n in (1, 0):    # first the one that waits, so that its turn never comes
        sockets[n].close()
        wait_until(lambda: api.in_flight() == n)
    wait_until(lambda: len([x for x in lines(p) if "finish" in x]) == 4)
    ends = [(x["status"], x["finish"], x["client_gone"]) for x in lines(p) if "finish" in x]
    assert ends[:2] == [(429, "refused", False), (400, "refused", False)]
    assert [(finish, gone) for _, finish, gone in ends[2:]] == [("cancelled", True)] * 2
    values = metrics(api)
    assert values["lily_requests_total"] == 4 and values["lily_queue_refused_total"] == 1
    assert values["lily_request_duration_seconds_count"] == 1    # of the one whose turn came


def test_the_log_tells_why(spawn):
    """Of a 400 nobody could say later what was wrong with the request."""
    p = spawn("--log-format", "json", "--log-level", "debug")
    api = Api(p.base)
    choice = {"type": "function", "function": {"name": "it's 'secret'"}}
    for n, (messages, body) in enumerate([("secret", {"top_p": 7}), ([{"role": "it's secret", "content": "secret"}], {}),
                                          ("secret " * 40000, {}), ("hi", {"tool_choice": choice})]):
        assert api.chat_raw(messages, headers={"x-request-id": f"r{n}"}, **body).status_code == 400
    api.http.post(CHAT, content=b'{"messages": "\n secret', headers={"x-request-id": "r4"})
    api.get("/v1/none", headers={"x-request-id": "r5"})
    api.get("/v1/models", headers={"x-request-id": "r6"})
    wait_until(lambda: {f"r{n}" for n in range(7)} <= {x.get("id") for x in lines(p)})
    told = {x["id"]: (x.get("param", ...), x.get("code", ...)) for x in lines(p) if "id" in x}
    assert [told[f"r{n}"] for n in range(7)] == [
        ("top_p", None), ("messages[0].role", None), (None, "context_length_exceeded"),
        ("tool_choice", None), (None, None), (None, "not_found"), (..., ...)]
    sentences = [x["message"] for x in lines(p) if x["message"].endswith("[r0]") and "id" not in x]
    assert len(sentences) == 1 and "top_p" in sentences[0]
    assert any("not valid JSON" in x["message"] for x in lines(p))
    assert "secret" not in json.dumps(lines(p))


def test_log_levels(spawn):
    p = spawn("--log-level", "debug")
    wait_until(lambda: "GET /health 200" in p.tail())
    p = spawn("--log-level", "warn")
    Api(p.base).get("/v1/models")
    assert p.tail() == ""
    for option in ("--log-level", "--log-format"):
        p = spawn(option, "nonsense", wait=False)
        assert p.popen.wait(20) == 2 and option in p.tail()


def test_paths_cannot_write_to_the_terminal(spawn):
    p = spawn()
    Api(p.base).get("/v1/models/%1b%5b2J%0alily:%20faked")
    wait_until(lambda: "faked" in p.tail())
    assert "\x1b" not in p.tail() and "\nlily: faked" not in p.tail()


# ---------------------------------------------------------------- traces


def read_trace(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def part(trace, key):
    return next(x[key] for x in trace if key in x)


def traces(folder, n=1):
    """The finished ones, in order."""
    wait_until(lambda: len([p for p in folder.glob("*.jsonl") if p.read_text().count('"client_gone"') == 1]) == n)
    return sorted(folder.iterdir())


@pytest.mark.parametrize("stream", [False, True])
def test_trace_replays(spawn, tmp_path, stream):
    """A bug that depends on chance could not be shown to anyone."""
    api = Api(spawn("--trace", str(tmp_path / "a")).base)
    body = api.body("Tell me about the sea.", max_tokens=24, temperature=1.0, stream=stream, user="äö 🙂", seed=...)
    assert api.http.post(CHAT, content=json.dumps(body, indent=2), headers={"x-request-id": "first"}).status_code == 200
    (path,) = traces(tmp_path / "a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    first = read_trace(path)
    request, prompt = part(first, "request"), part(first, "prompt")
    assert request["id"] == "first" and json.loads(request["body"]) == body
    assert len([x for x in first if "token" in x]) == part(first, "generated") > 0

    other = Api(spawn("--trace", str(tmp_path / "b")).base)
    r = other.http.post(request["path"], content=request["body"], headers={"x-lily-seed": prompt["seed"]})
    assert r.status_code == 200
    (path,) = traces(tmp_path / "b")
    second = read_trace(path)
    assert part(second, "prompt") == prompt and part(second, "server") == part(first, "server")
    assert [x["token"] for x in second if "token" in x] == [x["token"] for x in first if "token" in x]
    assert part(second, "end") == part(first, "end")


@pytest.mark.parametrize("seed", ["", "x", "1.5", "9223372036854775808", "1 2"])
def test_bad_seeds_of_replays(api, seed):
    r = api.chat_raw("hi", headers={"x-lily-seed": seed})
    assert r.status_code == 400 and r.json()["error"]["param"] == "x-lily-seed"


def test_traces_of_what_went_wrong(scripted, tmp_path):
    folder = tmp_path / "t"
    api = scripted([{"text": "abc", "splits": "char", "fail_at": 3}], "--trace", str(folder))
    api.http.post(CHAT, content=b'{"messages": "\xff broken')
    api.chat_raw("hi", headers={"x-request-id": "same", "cookie": "secret"})
    api.chat_raw("hi", headers={"x-request-id": "same"})
    found = [read_trace(p) for p in traces(folder, 3)]
    assert sorted(part(t, "status") for t in found) == [400, 500, 500]
    broken = next(t for t in found if part(t, "status") == 400)
    assert bytes(part(broken, "request")["body_bytes"]) == b'{"messages": "\xff broken'
    failed = next(t for t in found if any("token" in x for x in t))
    assert "scripted device error" in part(failed, "error")
    assert "secret" not in json.dumps(found)


def test_no_folder_for_traces(spawn, tmp_path):
    (tmp_path / "file").touch()
    p = spawn("--trace", str(tmp_path / "file"), wait=False)
    assert 0 < p.popen.wait(20) < 126 and "file" in p.tail()
    if pathlib.Path("/proc/self").exists():    # a folder that takes no files, whoever asks
        p = spawn("--trace", "/proc", wait=False)
        assert 0 < p.popen.wait(20) < 126 and "/proc: no file can be made in it" in p.tail()
    p = spawn("--trace", str(tmp_path / "good"))
    assert list((tmp_path / "good").iterdir()) == []


@pytest.fixture
def lily(build_dir, source_dir):
    def run(*args):
        return subprocess.run([build_dir / "lily", *args, "--model", source_dir / "models/demo"], capture_output=True,
                              text=True, timeout=120)
    return run


def test_replay_command(spawn, lily, tmp_path):
    """Whoever gets a bug report could not reproduce it with one command."""
    folder = tmp_path / "t"
    p = spawn("--trace", str(folder), "--ctx-size", "4096", "--without", "fuse-qk", "--api-key", "secret")
    api = Api(p.base)
    api.http.headers["x-api-key"] = "secret"
    turns = [{"role": "user", "content": "Tell me a story."}]
    for n in range(3):    # with chance, a growing history, thinking in it, streamed and not
        body = {"messages": turns, "max_tokens": 20, "temperature": 1.0, "stream": n == 1, "stop": ["zzz"]}
        if n == 1:
            turns = turns + [{"role": "assistant", "content": "It was late."}]
            assert api.post(CHAT, body).status_code == 200
        else:
            message = api.post(CHAT, body).json()["choices"][0]["message"]
            turns = turns + [{k: v for k, v in message.items() if k in ("role", "content", "reasoning_content")}]
        turns = turns + [{"role": "user", "content": "And then?"}]
    api.post(CHAT, {"messages": "broken"})
    found = traces(folder, 4)
    p.terminate()
    p.popen.wait(20)
    r = lily("replay", folder)
    assert r.returncode == 0, r.stdout + r.stderr
    assert r.stdout.splitlines() == [f"{path.name}: the same {n} tokens" for path, n in zip(found, (20, 20, 20, 0))]
    assert lily("replay", found[0]).returncode == 0
    assert not glob.glob("/tmp/lily-replay-*")

    text = found[0].read_text()
    token = re.search(r'"token":(\d+)', text)[1]
    found[0].write_text(text.replace(f'"token":{token}', '"token":7', 1).replace('"commit":"', '"commit":"x', 1))
    r = lily("replay", found[0])
    assert r.returncode == 8 and f"token 0 is 7 then, {token} now" in r.stdout and "another commit" in r.stdout


def test_every_protocol_replays(spawn, lily, tmp_path):
    folder = tmp_path / "t"
    api = Api(spawn("--trace", str(folder)).base)
    user, chance = [{"role": "user", "content": "Hello."}], {"temperature": 1.0, "max_tokens": 8}
    for path, body in [(CHAT, {"messages": user, "n": 3, **chance}),
                       ("/v1/completions", {"prompt": ["The sea", "A house"], "n": 2, **chance}),
                       ("/v1/messages", {"model": "x", "messages": user, "stream": True, **chance}),
                       ("/v1/responses", {"input": user, "temperature": 1.0, "max_output_tokens": 8})]:
        r = api.post(path, body)
        assert r.status_code == 200, r.text
    found = traces(folder, 4)
    r = lily("replay", folder)
    assert r.returncode == 0, r.stdout + r.stderr
    for path, line in zip(found, r.stdout.splitlines(), strict=True):
        n = path.read_text().count('"token"')
        assert n > 0 and line == f"{path.name}: the same {n} tokens"


def test_replay_refuses_what_is_no_trace(lily, tmp_path, scripted):
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "y.jsonl").write_text("nonsense\n")
    (tmp_path / "empty").mkdir()
    for name, words in [("x.jsonl", "not a trace"), ("y.jsonl", "y.jsonl"), ("empty", "no trace"), ("none", "No such")]:
        r = lily("replay", tmp_path / name)
        assert 0 < r.returncode < 126 and words in r.stderr.splitlines()[-1]
    folder = tmp_path / "t"
    scripted(REPLY, "--trace", str(folder)).chat("hi")
    r = lily("replay", folder)
    assert r.returncode == 5 and "script" in r.stderr
