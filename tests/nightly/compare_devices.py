#!/usr/bin/env python3
"""Scores the same tokens on two devices and compares: perplexity, mean and largest difference of a loss, top tokens.

The device under test reads two thirds of the tokens as a prompt and decodes the others one by one, twice, and must print
the same bytes both times; the other device reads them all as one prompt. Prints one line of JSON; exit status 1 when a
bound does not hold.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile


def score(o, device, ids, windows):
    command = [o.lily, "score", "--model", o.model, "--device", device, "--ids", ids, "--ctx-size", str(o.tokens + 64),
               "--windows", ",".join(map(str, windows)), "--json"]
    if device.startswith("cpu") and o.threads:
        command += ["--threads", str(o.threads)]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--lily", default="build/lily")
    ap.add_argument("--model", required=True)
    ap.add_argument("--device", default="cuda", help="the one under test")
    ap.add_argument("--against", default="cpu")
    ap.add_argument("--tokens", type=int, default=192)
    ap.add_argument("--threads", type=int, help="of the cpu device")
    ap.add_argument("--perplexity", type=float, default=0.01, help="largest relative difference")
    ap.add_argument("--top", type=float, default=0.97, help="least share of equal top tokens")
    o = ap.parse_args()
    config = json.loads((pathlib.Path(o.model) / "config.json").read_text())
    vocab = config.get("text_config", config)["vocab_size"]
    rng = random.Random(192)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as ids:
        json.dump([rng.randrange(vocab) for _ in range(o.tokens)], ids)
        ids.flush()
        prompt = o.tokens * 2 // 3
        mixed = [prompt] + [1] * (o.tokens - prompt)
        first, again = (score(o, o.device, ids.name, mixed) for _ in range(2))
        want = json.loads(score(o, o.against, ids.name, [o.tokens]))
    got = json.loads(first)
    off = [a - b for a, b in zip(got["nll"], want["nll"])]
    same = [a == b for a, b in zip(got["best"], want["best"])]
    result = {
        "device": o.device, "against": o.against, "tokens": o.tokens, "perplexity": got["ppl"], "want": want["ppl"],
        "ratio": got["ppl"] / want["ppl"], "mean_difference": statistics.fmean(off),
        "mean_absolute": statistics.fmean(map(abs, off)), "largest": max(map(abs, off)),
        "prompt_mean": statistics.fmean(off[:prompt]), "reply_mean": statistics.fmean(off[prompt:]),
        "top_equal": sum(same) / len(same), "repeated_equal": first == again,
    }
    print(json.dumps(result))
    sys.exit(not (first == again and abs(result["ratio"] - 1) <= o.perplexity and result["top_equal"] >= o.top))


if __name__ == "__main__":
    main()
