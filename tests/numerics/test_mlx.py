"""Lily against MLX-LM on the same bytes: perplexity within 0.04 %, the same top token at 96.35 % of the positions."""
import json
import subprocess
import sys

import pytest

PERPLEXITY, TOP = 4e-4, 0.9635


@pytest.fixture(scope="module", params=[192, 1024])
def peer(request, source_dir):
    script = source_dir / "tests/numerics/mlx_nll.py"
    out = subprocess.run([sys.executable, str(script), str(source_dir / "models/demo"),
                          str(source_dir / "tests/fixtures/eval.txt"), str(request.param)],
                         check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


@pytest.mark.parametrize("device", ["ref", "cpu", "cpu:portable"])
def test_agrees_with_mlx_lm(device, peer, build_dir, source_dir, tmp_path):
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps(peer["ids"]))
    out = subprocess.run([str(build_dir / "lily"), "score", "--model", str(source_dir / "models/demo"), "--device", device,
                          "--ids", str(ids), "--json"], check=True, capture_output=True, text=True)
    mine = json.loads(out.stdout)
    positions = len(peer["nll"])
    assert len(mine["nll"]) == positions >= 192
    ratio = mine["ppl"] / peer["ppl"] - 1
    top = sum(a == b for a, b in zip(mine["best"], peer["best"])) / positions
    print(f"{device}, {positions} positions: perplexity {mine['ppl']:.6f} against {peer['ppl']:.6f} ({ratio:+.5%}), same top token {top:.2%}")
    assert abs(ratio) <= PERPLEXITY
    assert top >= TOP
