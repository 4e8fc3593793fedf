"""What MLX-LM says of a text: prints {"ids", "nll", "best", "ppl"}, the form of `lily score --json`.

    mlx_nll.py MODEL_DIR TEXT_FILE POSITIONS

MLX accumulates bfloat16 products in bfloat16 on a CPU, so the model runs in float32 here: the same bytes of weights,
widened, nothing rounded on the way.
"""
import json
import pathlib
import sys

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model
from tokenizers import Tokenizer


def main():
    folder, text, positions = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    mx.set_default_device(mx.cpu)
    model, _ = load_model(folder)
    model.set_dtype(mx.float32)
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(
        pathlib.Path(text).read_text(encoding="utf-8"), add_special_tokens=False).ids[:positions + 1]
    logits = np.array(model(mx.array([ids[:-1]]))[0].astype(mx.float32), dtype=np.float64)
    lse = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1)) + logits.max(-1)
    nll = lse - logits[np.arange(positions), ids[1:]]
    json.dump({"ids": ids, "nll": nll.tolist(), "best": logits.argmax(-1).tolist(), "ppl": float(np.exp(nll.mean()))},
              sys.stdout)


if __name__ == "__main__":
    main()
