#!/usr/bin/env python3
"""lily bench against llama_speed in one call: Lily, peer, peer, Lily, …, each a process of its own.

Prints each side's median over all its samples and their ratio; the peer's prefill is that of its best micro-batch. The
lines of both (docs/results-schema.md) go to --json. Ratios at --judge tokens are held against the marks of the project.
"""
import argparse
import collections
import json
import statistics
import subprocess
import sys

MARKS = {"decode": (3.5, 5), "prefill": (3, 6)}     # must, aim


def lines(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}")
    return [json.loads(s) for s in done.stdout.splitlines() if s.startswith("{")]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--lily", default="build/lily")
    ap.add_argument("--model", required=True, help="full-size checkpoint")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--peer", required=True, help="the built llama_speed")
    ap.add_argument("--gguf", required=True, help="file of gen_gguf.py")
    ap.add_argument("--lengths", default="512,4096,32768")
    ap.add_argument("--micro", default="512,2048", help="micro-batches of the peer")
    ap.add_argument("--decode", default="64")
    ap.add_argument("--samples", default="3")
    ap.add_argument("--rounds", type=int, default=2, help="pairs of processes")
    ap.add_argument("--judge", type=int, default=4096)
    ap.add_argument("--json", help="append all lines to this file")
    o = ap.parse_args()
    longest = max(map(int, o.lengths.split(",")))
    ours = [o.lily, "bench", "--model", o.model, "--device", o.device, "--lengths", o.lengths, "--decode", o.decode,
            "--samples", o.samples, "--ctx-size", str(longest + 1024), "--chunk", "4096", "--json"]
    theirs = [o.peer, o.gguf, "-l", o.lengths, "-u", o.micro, "-n", o.decode, "-s", o.samples]
    rate = collections.defaultdict(list)        # (engine, micro-batch, phase, length): tokens a second
    for turn in range(o.rounds):
        for engine in ("lily", "peer") if turn % 2 == 0 else ("peer", "lily"):
            got = lines(ours if engine == "lily" else theirs)
            for r in got:
                rate[engine, r.get("micro_batch"), r["phase"], r["context"]] += r["samples"]
            if o.json:
                with open(o.json, "a") as f:
                    f.writelines(json.dumps(r) + "\n" for r in got)
    failed = False
    for phase, length in sorted({k[2:] for k in rate}):
        mine = statistics.median(rate["lily", None, phase, length])
        peer, micro = max((statistics.median(v), k[1]) for k, v in rate.items() if k[0] == "peer" and k[2:] == (phase, length))
        verdict = ""
        if length == o.judge:
            must, aim = MARKS[phase]
            failed |= mine < must * peer
            verdict = f"  must {must}: {'met' if mine >= must * peer else 'MISSED'}, aim {aim}: {'met' if mine >= aim * peer else 'open'}"
        print(f"{phase:8} {length:7} tokens  lily {mine:9.1f}  llama.cpp {peer:9.1f} tok/s (micro-batch {micro})  {mine / peer:6.2f}x{verdict}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
