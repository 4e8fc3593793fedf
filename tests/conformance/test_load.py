"""Many clients at once, some of whom leave or read slowly: nobody gets another one's answer, nothing is left behind."""
import http.client
import json
import random
import socket
import threading
import time
from urllib.parse import urlsplit

from support import CHAT, TIMEOUT, Stream, check_stream

CLIENTS, ROUNDS = 12, 4
REPLIES = 6


def reply(n):
    return "".join(f" {n}:{i}" for i in range(40 + 10 * n))


def read_slowly(server, body):
    """Reads a stream in sips."""
    c = http.client.HTTPConnection(urlsplit(server.base).netloc, timeout=TIMEOUT)
    c.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json"})
    r, data = c.getresponse(), b""
    while piece := r.read(200):
        data += piece
        time.sleep(0.002)
    c.close()
    return Stream(r, data, [])


def one_client(server, seed, failures):
    dice = random.Random(seed)
    try:
        for _ in range(ROUNDS):
            n, way = dice.randrange(REPLIES), dice.randrange(5)
            body = server.body(f"question {n}.", max_tokens=1000)
            if way == 0:
                s = server.stream(f"question {n}.", max_tokens=1000)
                check_stream(s)
                assert s.content() == reply(n)
            elif way == 1:
                assert server.say(f"question {n}.", max_tokens=1000) == reply(n)
            elif way == 2:
                s = read_slowly(server, {**body, "stream": True})
                check_stream(s)
                assert s.content() == reply(n)
            elif way == 3:
                with server.begin({**body, "stream": True}) as s:
                    s.recv(1 + dice.randrange(3000))
            else:
                with server.begin(body) as s:
                    s.settimeout(dice.random() / 10)
                    try:
                        s.recv(1)
                    except socket.timeout:
                        pass
            server.post("/tokenize", body)
    except Exception as e:  # told by the test's own thread
        failures.append(f"client {seed}: {type(e).__name__}: {e}")


def test_many_clients(scripted):
    """A vanished or slow client would disturb the others."""
    server = scripted([{"text": reply(n), "splits": 3, "when": f"question {n}.", "times": 0, "delay_ms": 1}
                       for n in range(REPLIES)])
    failures = []
    threads = [threading.Thread(target=one_client, args=(type(server)(server.base), i, failures)) for i in range(CLIENTS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures
    server.seconds_until_idle()
    assert server.say("question 1.", max_tokens=1000) == reply(1)
