#!/usr/bin/env python3
"""Lines of lily ablate --json as a table: what each switch is worth at each length, in percent with its interval."""
import json
import sys


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: ablations.py FILE.jsonl")
    with open(sys.argv[1]) as f:
        rows = [json.loads(line) for line in f if '"switch"' in line]
    measured = {(r["switch"], r["phase"], r["context"]): r for r in rows if "effect" in r}
    lengths = sorted({k[2] for k in measured})
    print("| switch | phase |" + "".join(f" {n:,} |" for n in lengths))
    print("|---|---|" + "---|" * len(lengths))
    for switch, phase in dict.fromkeys(k[:2] for k in measured):
        cells = []
        for n in lengths:
            r = measured.get((switch, phase, n))
            low, high = (100 * x for x in r["interval"]) if r else (0, 0)
            cells.append(f" {100 * r['effect']:+.1f} ({low:+.1f} to {high:+.1f}) |" if r else " |")
        print(f"| `{switch}` | {phase} |" + "".join(cells))
    for r in {r["switch"]: r for r in rows if "refused" in r}.values():
        print(f"\n`{r['switch']}`: {r['refused']}.")


if __name__ == "__main__":
    main()
