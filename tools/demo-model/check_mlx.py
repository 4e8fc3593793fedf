"""Loads an exported folder with mlx-lm, compares its logits with the torch model on the same 4-bit values, and chats.
  python check_mlx.py MODEL_DIR [preset] [WEIGHTS_DIR]"""
import sys, os, json
import numpy as np
import mlx.core as mx
from mlx_lm import load, generate
mx.set_default_device(mx.cpu)
d = sys.argv[1]; preset = sys.argv[2] if len(sys.argv) > 2 else "scaled"
model, tok = load(d)
print("loaded; has thinking:", getattr(tok, "has_thinking", None), "tools:", getattr(tok, "has_tool_calling", None))
text = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "fixtures", "eval.txt"), encoding="utf-8").read()
ids = tok.encode(text)
if len(sys.argv) > 3:
    import torch
    from model import *
    from export import load_parts
    c = PRESETS[preset]; P = load_parts(sys.argv[3])
    with torch.no_grad():
        W = effective(P, True, torch.float32)
        x = torch.tensor([ids[:192]])
        L = Runner(c).logits(W, x, c.vocab - 33, torch.float32)[0].numpy()
    model.set_dtype(mx.float32)
    M = np.array(model(mx.array([ids[:192]]))[0].astype(mx.float32))
    print("logits rel error vs torch fp32:", np.linalg.norm(M - L) / np.linalg.norm(L), "argmax agree", (M.argmax(-1) == L.argmax(-1)).mean())
    model, tok = load(d)
if "--ppl" in sys.argv:
    nll = n = 0
    for i in range(0, min(len(ids), 8192) - 1, 1024):
        ch = ids[i:i + 1025]
        lg = model(mx.array([ch[:-1]])).astype(mx.float32)
        lp = lg - mx.logsumexp(lg, axis=-1, keepdims=True)
        nll -= mx.take_along_axis(lp, mx.array([ch[1:]])[..., None], -1).sum().item(); n += len(ch) - 1
    print("perplexity", float(np.exp(nll / n)), "over", n, "tokens")
for q, th in (("What is the capital of Peru?", False), ("What is 47 + 38?", True)):
    p = tok.apply_chat_template([{"role": "user", "content": q}], add_generation_prompt=True, enable_thinking=th)
    print(">>>", q, "->", repr(generate(model, tok, prompt=p, max_tokens=24 if preset == "nano" else 100)))
