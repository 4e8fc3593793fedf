"""The command line: picks the cases, runs them, prints one line each."""

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import time

# Imported for the drivers and checks that they add to the tables.
from . import checks_equal, checks_load, checks_prompt, checks_server, checks_stream  # noqa: F401
from . import drivers_clients, drivers_load, drivers_model  # noqa: F401
from .drivers import DRIVERS
from .outcome import Fail, Skip

EXPECTED = (
    "script logits template tokenize model load score messages responses completions cache metrics props api-key "
    "grammar unit"
).split()


def run_case(case, cfg):
    """-> (state, text): pass, fail, skip."""
    missing = [n for n in case.get("needs", []) if n not in cfg.have]
    if missing:
        return "skip", "needs " + ", ".join(missing)
    driver = DRIVERS[case["input"].get("do", case["mode"])]
    t = time.monotonic()
    try:
        driver(case, cfg)
        return "pass", f"{time.monotonic() - t:.1f} s"
    except Fail as e:
        return "fail", str(e)
    except Skip as e:
        return "skip", str(e)
    except subprocess.TimeoutExpired as e:
        return "fail", f"timeout: {e}"
    except Exception as e:  # an odd answer must not end the run
        if cfg.debug:
            raise
        return "fail", f"{type(e).__name__}: {e}"


def options():
    p = argparse.ArgumentParser(description="Judges Lily on the field cases; docs/testing.md tells about them.")
    p.add_argument("cases", help="cases.json")
    p.add_argument("--lily", required=True, help="the command, with arguments if need be")
    p.add_argument("--model", required=True, help="folder of a small checkpoint")
    p.add_argument("--only", type=names, default=[], help="ids, with commas")
    p.add_argument("--kind", type=names, default=[], help="kinds, with commas")
    p.add_argument("--mode", type=names, default=[], help="modes, with commas")
    p.add_argument("--importance", type=int, default=0, help="at least this mark")
    p.add_argument(
        "--have", type=names, default=[], help="expected too: real-model, reference, metal, cache-dir, policy"
    )
    p.add_argument("--without", type=names, default=[], help="not expected, of: " + ", ".join(EXPECTED))
    p.add_argument("--no-skip", action="store_true", help="a case that was skipped is a failure")
    p.add_argument("--jobs", type=int, default=1, help="cases at a time")
    p.add_argument("--logit-tol", type=float, default=0.1, help="largest difference between equal computations")
    p.add_argument("--start-s", type=float, default=60, help="seconds that a server may take to start")
    p.add_argument("--ctest", help="build folder with the tests case_<ID>")
    p.add_argument("--json", help="write the results here")
    p.add_argument("--debug", action="store_true", help="let an exception of the runner through")
    return p


def names(text):
    return [p.strip() for p in text.split(",") if p.strip()]


def pick(cases, cfg):
    return [
        c
        for c in cases
        if (not cfg.only or c["id"] in cfg.only)
        and (not cfg.kind or c["kind"] in cfg.kind)
        and (not cfg.mode or c["mode"] in cfg.mode)
        and c["importance"] >= cfg.importance
    ]


def printable(text):
    return re.sub(r"[\x00-\x1f\x7f]", lambda m: "\\n" if m.group() == "\n" else f"\\x{ord(m.group()):02x}", text)


def main():
    parser = options()
    cfg = parser.parse_args()
    with open(cfg.cases, encoding="utf-8") as f:
        doc = json.load(f)
    unknown = set(cfg.only) - {c["id"] for c in doc["cases"]}
    if unknown:
        parser.error("no such case: " + ", ".join(sorted(unknown)))
    cfg.lily, cfg.model = shlex.split(cfg.lily), os.path.abspath(cfg.model)
    cfg.base, cfg.tools = doc["base_request"], doc["tools"]
    cfg.have = (set(EXPECTED) | set(cfg.have)) - set(cfg.without)

    cases = pick(doc["cases"], cfg)
    results, count = [], {"pass": 0, "fail": 0, "skip": 0}
    with concurrent.futures.ThreadPoolExecutor(max(1, cfg.jobs)) as pool:
        for case, (state, text) in zip(cases, pool.map(lambda c: run_case(c, cfg), cases)):
            count[state] += 1
            print(
                f"{case['id']} {state} {'*' * case['importance']:3} {case['title']} [{printable(text)}]", flush=True
            )
            results.append({"id": case["id"], "kind": case["kind"], "state": state, "text": text})
    if cfg.json:
        with open(cfg.json, "w", encoding="utf-8") as f:
            json.dump({"count": count, "cases": results}, f, ensure_ascii=False, indent=1)
    print(f"{count['pass']} passed, {count['fail']} failed, {count['skip']} skipped")
    return 1 if count["fail"] or not cases or (cfg.no_skip and count["skip"]) else 0
