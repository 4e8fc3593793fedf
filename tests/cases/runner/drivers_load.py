"""Cases of the commands: damaged checkpoints, scores by windows, unit tests of the project."""

import os
import re
import subprocess
import tempfile

from .checkpoint import Checkpoint, DAMAGES
from .checks import judge
from .drivers import driver
from .outcome import Fail, Skip, short
from .process import Server, run_lily, score
from .request import Ctx, Run, count_tokens, words


@driver
def do_load(case, cfg):
    inp, ctx = case["input"], Ctx(case, cfg)
    with tempfile.TemporaryDirectory(prefix="lily-load-") as d:
        base = inp.get("clean", {"damage": "none"})
        clean = Checkpoint(cfg.model, os.path.join(d, "clean"))
        (DAMAGES[base["damage"]](clean, base) if base["damage"] != "none" else clean.write())
        ctx.extra["clean"] = clean.dir
        for n, v in enumerate(inp["damages"]):
            c = Checkpoint(cfg.model, os.path.join(d, f"copy{n}"))
            DAMAGES[v["damage"]](c, v)
            ctx.runs.append(Run(n, f"{v['damage']} {n}", dir=c.dir, tool=run_lily(cfg, "inspect", "--model", c.dir)))
        judge(ctx, case["judge"])


@driver
def do_windows(case, cfg):
    """The same text through `lily score` with the prefill cut in different ways."""
    inp, ctx = case["input"], Ctx(case, cfg)
    with Server(cfg, {"replies": [{"text": "x"}], "end": "last"}) as srv:
        for t in inp["T"]:
            ids = count_tokens(srv, content=words(t))[:t]
            ref = score(cfg, cfg.model, ids=ids)
            if ref["rc"]:
                raise Fail("lily score exits 0", ref["err"][-200:])
            for w in inp["windows"]:
                w = cut_windows(w, len(ids))
                if not w:
                    continue
                r = score(cfg, cfg.model, ids=ids, windows=w)
                if r["rc"]:
                    raise Fail(f"lily score --windows {short(w, 40)} exits 0", r["err"][-200:])
                ctx.runs.append(
                    Run(len(ctx.runs), f"T {len(ids)} windows {short(w, 40)}", a=r["json"], b=ref["json"])
                )
    judge(ctx, case["judge"])


def cut_windows(w, total):
    """ "*" is what is left; {"size": n} is equal passes."""
    if isinstance(w, dict):
        return [w["size"]] * (total // w["size"]) + ([total % w["size"]] if total % w["size"] else [])
    rest = total - sum(x for x in w if x != "*")
    return [rest if x == "*" else x for x in w] if rest > 0 else None


@driver
def do_unit(case, cfg):
    """What cannot be seen from outside is a test of the project, named case_<ID>."""
    name = "case_" + case["id"]
    tests = subprocess.run(["ctest", "-N"], cwd=cfg.ctest, capture_output=True, text=True).stdout if cfg.ctest else ""
    if not re.search(rf": {name}$", tests, re.M):
        raise Skip(f"no test {name}")
    command = ["ctest", "-R", f"^{name}$", "--output-on-failure"]
    p = subprocess.run(command, cwd=cfg.ctest, capture_output=True, text=True)
    if p.returncode:
        raise Fail("test passes", p.stdout[-300:])
