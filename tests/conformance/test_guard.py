"""Who may ask: keys, pages of other origins, names of the host."""
import pathlib
import subprocess

import httpx
import pytest

from support import CHAT, Api, Process, free_port, refused

REPLY = [{"text": "x</think>\n\nHello.", "times": 0}]
BODY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
PAGE = {"Origin": "http://localhost:3000"}
PREFLIGHT = {**PAGE, "Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"}


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# people\n  first-key  \n\nsecond-key\r\n")
    path.chmod(0o600)
    return path


# ---------------------------------------------------------------- keys


def test_every_path_but_health_needs_the_key(scripted, key_file):
    """A path that was forgotten would let anyone read what others asked."""
    api = scripted(REPLY, "--api-key-file", str(key_file))
    assert api.get("/health").status_code == 200
    for method, path in [("POST", CHAT), ("POST", "/v1/completions"), ("POST", "/v1/responses"), ("GET", "/v1/models"),
                         ("GET", "/v1/models/demo"), ("GET", "/metrics"), ("GET", "/props"), ("GET", "/script"),
                         ("POST", "/tokenize"), ("POST", "/detokenize"), ("POST", "/apply-template"),
                         ("DELETE", "/cache"), ("GET", "/no/such/path"), ("PUT", "/health2"), ("OPTIONS", CHAT)]:
        r = api.http.request(method, path, json=BODY if method == "POST" else None)
        refused(r, [401], code="invalid_api_key")
        assert r.headers["www-authenticate"].startswith("Bearer")
    assert api.get("/").status_code == 200    # the page, which asks for the key


@pytest.mark.parametrize("headers,status", [
    ({"Authorization": "Bearer first-key"}, 200), ({"authorization": "bearer  second-key"}, 200),
    ({"x-api-key": "second-key"}, 200), ({"x-api-key": "first-key", "Authorization": "Bearer wrong"}, 200),
    ({}, 401), ({"Authorization": "first-key"}, 401), ({"Authorization": "Bearer"}, 401), ({"Authorization": ""}, 401),
    ({"Authorization": "Basic Zmlyc3Qta2V5"}, 401), ({"x-api-key": ""}, 401), ({"x-api-key": "first-ke"}, 401),
    ({"x-api-key": "first-keyx"}, 401), ({"x-api-key": "First-key"}, 401), ({"x-api-key": "# people"}, 401),
    ({"x-api-key": "first-key\nsecond-key".replace("\n", " ")}, 401)], ids=str)
def test_only_whole_keys_count(scripted, key_file, headers, status):
    api = scripted(REPLY, "--api-key-file", str(key_file), "--api-key", "third")
    assert api.get("/v1/models", headers=headers).status_code == status
    assert api.get("/v1/models", headers={"x-api-key": "third"}).status_code == 200


def test_anthropic_clients_get_their_own_form(scripted, key_file):
    """Their library would fail to read the error, and not say what is wrong."""
    api = scripted(REPLY, "--api-key-file", str(key_file))
    r = api.post("/v1/messages", BODY)
    assert r.status_code == 401 and r.json()["type"] == "error"
    assert r.json()["error"]["type"] == "authentication_error"
    assert r.headers["request-id"] == r.headers["x-request-id"]    # their library shows it


def test_a_body_is_not_read_without_the_key(scripted, key_file):
    """A stranger could make the server hold megabytes."""
    api = scripted(REPLY, "--api-key-file", str(key_file))
    sent = 0

    def body():
        nonlocal sent
        for _ in range(200):
            sent += 65536
            yield b" " * 65536
    try:
        r = httpx.post(api.base + CHAT, content=body(), headers={"Content-Length": str(200 * 65536)})
        assert r.status_code == 401
    except (httpx.WriteError, httpx.RemoteProtocolError):
        pass    # it had hung up before all was sent


def test_keys_stay_out_of_log_and_process_list(spawn, key_file, tmp_path):
    p = spawn("--api-key-file", str(key_file), "--log-format", "json", "--log-level", "debug", "--trace",
              str(tmp_path / "t"))
    for key in ("first-key", "wrong-key"):
        httpx.post(p.base + CHAT, json=BODY, headers={"Authorization": f"Bearer {key}"}, timeout=60)
        httpx.get(p.base + "/v1/models", headers={"x-api-key": key})
    listing = pathlib.Path(f"/proc/{p.popen.pid}/cmdline")
    everything = listing.read_bytes() if listing.exists() else subprocess.check_output(["ps", "axww", "-o", "args="])
    assert b"--api-key-file" in everything
    with open(p.log.name, "rb") as f:
        everything += f.read()
    traces = list((tmp_path / "t").iterdir())
    assert len(traces) == 1    # who has no key leaves none
    everything += traces[0].read_bytes()
    assert b"POST" in everything and b"first-key" not in everything and b"wrong-key" not in everything


@pytest.mark.parametrize("text,mode,words", [
    ("", 0o600, "no key"), ("# only a comment\n", 0o600, "no key"), ("a key\n", 0o600, "not printable"),
    ("k" * 600 + "\n", 0o600, "512"), ("good\n", 0o622, "chmod 600"),
    ("k\0e\0y\0\n\0", 0o600, "no text"), ("good\n\0bad\n", 0o600, "no text")])
def test_bad_key_files(spawn, tmp_path, text, mode, words):
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(mode)
    p = spawn("--api-key-file", str(path), wait=False)
    assert p.popen.wait(20) == 2
    assert words in p.tail()


def test_readable_key_file_is_told(spawn, tmp_path):
    path = tmp_path / "keys"
    path.write_text("good\n")
    path.chmod(0o644)
    assert "chmod 600" in spawn("--api-key-file", str(path)).tail()


# ---------------------------------------------------------------- other machines


def test_other_machines_need_a_key_or_a_word(spawn):
    """A colleague's machine would serve the whole office unknowingly."""
    p = spawn("--host", "0.0.0.0", wait=False)
    assert p.popen.wait(20) == 2
    assert "--api-key-file" in p.tail() and "--no-api-key" in p.tail()
    assert "anyone" in spawn("--host", "0.0.0.0", "--no-api-key").tail()
    p = spawn("--host", "0.0.0.0", "--api-key", "k")
    assert httpx.get(p.base + "/v1/models").status_code == 401
    assert httpx.get(p.base + "/v1/models", headers={"x-api-key": "k", "Host": "anything.example"}).status_code == 200


@pytest.mark.parametrize("host,status", [
    ("localhost", 200), ("localhost:1234", 200), ("127.0.0.1:8080", 200), ("[::1]:8080", 200), ("192.168.1.7", 200),
    ("lily.localhost:80", 200), ("host.docker.internal:8080", 200), ("mine.example", 200), ("MINE.example:1", 200),
    ("evil.example", 403), ("evil.example:8080", 403), ("localhost.evil.example", 403), ("127.0.0.1.evil.example", 403),
    ("mine.example.evil", 403), ("workstation", 200), ("workstation:8080", 200), ("", 403), (".internal", 403), (":8080", 403)])
def test_rebound_names_are_refused(host_named, host, status):
    """A web page whose name was pointed at this machine could use the server as its own."""
    r = host_named.get("/v1/models", headers={"Host": host})
    assert r.status_code == status, r.text
    if status == 403:
        refused(r, [403], code="forbidden")
        assert "--allowed-host" in r.json()["error"]["message"]


@pytest.fixture(scope="module")
def host_named(command):
    p = Process([*command, "--allowed-host", "mine.example", "--allowed-host", "other.example"], free_port())
    try:
        yield Api(p.wait_ready().base)
    finally:
        p.stop()


# ---------------------------------------------------------------- pages of other origins


def cors_headers(r):
    return {k: v for k, v in r.headers.items() if k.startswith("access-control-")}


def test_pages_are_refused_by_default(scripted):
    """Any page that a user visits could make the machine work."""
    api = scripted(REPLY)
    for origin in ("https://evil.example", "http://localhost:3000", "null", "file://"):
        r = api.chat_raw("hi", headers={"Origin": origin})
        refused(r, [403], code="forbidden")
        assert not cors_headers(r)
        # The advice must be one that the option takes: null is no origin to it.
        assert ("--cors-origin" in r.json()["error"]["message"]) == ("://" in origin)
        refused(api.http.options(CHAT, headers={**PREFLIGHT, "Origin": origin}), [403])
    assert api.get("/health", headers=PAGE).status_code == 200
    assert not cors_headers(api.get("/health", headers=PAGE))
    assert api.chat_raw("hi", headers={"Origin": api.base}).status_code == 200    # the server's own page
    assert len(api.get("/script").json()["requests"]) == 1


def test_allowed_origins(scripted):
    api = scripted(REPLY, "--cors-origin", "http://localhost:3000", "--cors-origin", "https://a.example,https://b.example")
    for origin in ("http://localhost:3000", "https://a.example", "https://b.example"):
        r = api.http.options(CHAT, headers={**PREFLIGHT, "Origin": origin})
        assert r.status_code == 204 and r.headers["access-control-allow-origin"] == origin
        assert "POST" in r.headers["access-control-allow-methods"]
        assert r.headers["access-control-allow-headers"] == PREFLIGHT["Access-Control-Request-Headers"]
        assert "origin" in r.headers["vary"].lower()
        r = api.chat_raw("hi", headers={"Origin": origin})
        assert r.status_code == 200 and r.headers["access-control-allow-origin"] == origin
        assert "x-request-id" in r.headers["access-control-expose-headers"].lower()
        assert "access-control-allow-credentials" not in r.headers
    for origin in ("https://c.example", "http://localhost:3001", "https://a.example.evil", "http://a.example"):
        refused(api.chat_raw("hi", headers={"Origin": origin}), [403])
    r = api.get("/v1/no/such", headers=PAGE)    # a page must be able to read errors
    assert r.status_code == 404 and r.headers["access-control-allow-origin"] == PAGE["Origin"]


def test_any_origin_and_a_key(scripted):
    api = scripted(REPLY, "--cors-origin", "*", "--api-key", "k")
    r = api.http.options(CHAT, headers={**PREFLIGHT, "Access-Control-Request-Private-Network": "true"})
    assert r.status_code == 204 and r.headers["access-control-allow-origin"] == "*"
    assert r.headers["access-control-allow-private-network"] == "true"
    assert "access-control-allow-credentials" not in r.headers
    r = api.post(CHAT, BODY, headers=PAGE)
    refused(r, [401])
    assert r.headers["access-control-allow-origin"] == "*"    # the page can show what is wrong
    assert api.post(CHAT, BODY, headers={**PAGE, "Authorization": "Bearer k"}).status_code == 200


def test_with_a_key_an_unknown_origin_is_only_not_told(scripted):
    """A program that sends an Origin of its own and has the key is no stranger."""
    api = scripted(REPLY, "--api-key", "k")
    r = api.post(CHAT, BODY, headers={"Origin": "app://mine", "x-api-key": "k"})
    assert r.status_code == 200 and not cors_headers(r)


@pytest.mark.parametrize("origin", ["localhost:3000", "http://localhost:3000/", "http://", "a b"])
def test_what_is_no_origin(spawn, origin):
    p = spawn("--cors-origin", origin, wait=False)
    assert p.popen.wait(20) == 2 and "origin" in p.tail()
