#!/usr/bin/env python3
"""Write a random GGUF with the shape of Qwen3.6-35B-A3B (arch qwen35moe), every matrix Q4_K.

Q4_K has a scale and a minimum for each group: 4.5 bits a weight, as MLX's 4-bit format with groups of 64. Weights are
random but well scaled (no NaN, no overflow): speed is that of a trained model, the text is noise. Matrices are windows
into one pool of random blocks, so that the 20 GB are written as fast as memory takes them. Needs numpy only.
"""
import argparse
import json
import os
import struct
import time
from multiprocessing import Pool

import numpy as np

HIDDEN, VOCAB, EXPERTS, TOP_K, FF = 2048, 248320, 256, 8, 512
HEADS, KV_HEADS, HEAD = 16, 2, 256
LINEAR_K, LINEAR_V, LINEAR_HEAD, TAPS = 16, 32, 128, 4
QKV = 2 * LINEAR_K * LINEAR_HEAD + LINEAR_V * LINEAR_HEAD
FULL_EVERY = 4
ALIGN = 32
F32, Q4_K = 0, 12                   # ids of ggml's types
BLOCK, BLOCK_BYTES = 256, 144       # weights and bytes of a Q4_K block
STD = 0.02
POOL_BLOCKS = 1 << 20               # 151 MB
PIECE = 64 << 20                    # bytes a job


def tensors(layers):
    """(name, shape, None for Q4_K or the range of uniform float32)"""
    yield "token_embd.weight", [HIDDEN, VOCAB], None
    yield "output_norm.weight", [HIDDEN], (.9, 1.1)
    yield "output.weight", [HIDDEN, VOCAB], None
    for i in range(layers):
        p = f"blk.{i}."
        yield p + "attn_norm.weight", [HIDDEN], (.9, 1.1)
        yield p + "post_attention_norm.weight", [HIDDEN], (.9, 1.1)
        if (i + 1) % FULL_EVERY == 0:
            yield p + "attn_q.weight", [HIDDEN, 2 * HEADS * HEAD], None
            yield p + "attn_k.weight", [HIDDEN, KV_HEADS * HEAD], None
            yield p + "attn_v.weight", [HIDDEN, KV_HEADS * HEAD], None
            yield p + "attn_output.weight", [HEADS * HEAD, HIDDEN], None
            yield p + "attn_q_norm.weight", [HEAD], (.9, 1.1)
            yield p + "attn_k_norm.weight", [HEAD], (.9, 1.1)
        else:
            yield p + "attn_qkv.weight", [HIDDEN, QKV], None
            yield p + "attn_gate.weight", [HIDDEN, LINEAR_V * LINEAR_HEAD], None
            yield p + "ssm_conv1d.weight", [TAPS, QKV], (-.5, .5)
            yield p + "ssm_dt.bias", [LINEAR_V], (-4., 1.)
            yield p + "ssm_a", [LINEAR_V], (-8., -.05)
            yield p + "ssm_beta.weight", [HIDDEN, LINEAR_V], None
            yield p + "ssm_alpha.weight", [HIDDEN, LINEAR_V], None
            yield p + "ssm_norm.weight", [LINEAR_HEAD], (.9, 1.1)
            yield p + "ssm_out.weight", [LINEAR_V * LINEAR_HEAD, HIDDEN], None
        yield p + "ffn_gate_inp.weight", [HIDDEN, EXPERTS], (-.04, .04)
        yield p + "ffn_gate_exps.weight", [HIDDEN, FF, EXPERTS], None
        yield p + "ffn_up_exps.weight", [HIDDEN, FF, EXPERTS], None
        yield p + "ffn_down_exps.weight", [FF, HIDDEN, EXPERTS], None
        yield p + "ffn_gate_inp_shexp.weight", [HIDDEN], (-.04, .04)
        yield p + "ffn_gate_shexp.weight", [HIDDEN, FF], None
        yield p + "ffn_up_shexp.weight", [HIDDEN, FF], None
        yield p + "ffn_down_shexp.weight", [FF, HIDDEN], None


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def entry(key, value):
    """A key of the header, with GGUF's number of its type."""
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    if isinstance(value, list):
        return text(key) + struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return text(key) + struct.pack("<II", 4, value)


def header(layers, infos):
    a = "qwen35moe."
    keys = {
        "general.architecture": "qwen35moe", "general.name": f"random, {layers} layers", "general.alignment": ALIGN,
        "general.quantization_version": 2, "general.file_type": 14, "tokenizer.ggml.model": "none",
        a + "block_count": layers, a + "context_length": 262144, a + "embedding_length": HIDDEN, a + "vocab_size": VOCAB,
        a + "attention.head_count": HEADS, a + "attention.head_count_kv": KV_HEADS, a + "attention.key_length": HEAD,
        a + "attention.value_length": HEAD, a + "attention.layer_norm_rms_epsilon": 1e-6, a + "rope.freq_base": 1e7,
        a + "rope.dimension_count": 64, a + "rope.dimension_sections": [11, 11, 10, 0], a + "expert_count": EXPERTS,
        a + "expert_used_count": TOP_K, a + "expert_feed_forward_length": FF, a + "expert_shared_feed_forward_length": FF,
        a + "ssm.conv_kernel": TAPS, a + "ssm.state_size": LINEAR_HEAD, a + "ssm.group_count": LINEAR_K,
        a + "ssm.time_step_rank": LINEAR_V, a + "ssm.inner_size": LINEAR_V * LINEAR_HEAD,
        a + "full_attention_interval": FULL_EVERY,
    }
    b = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(entry(*k) for k in keys.items())
    for name, shape, kind, at in infos:
        b += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, at)
    return b + b"\0" * (-len(b) % ALIGN)


def random_blocks(n):
    """n blocks of Q4_K as bytes: eight scales from 32 to 63 a block, each minimum such that the mean weight is 0."""
    rng = np.random.Generator(np.random.SFC64(1))
    raw = rng.integers(0, 1 << 64, size=n * BLOCK_BYTES // 8, dtype=np.uint64).view(np.uint8).reshape(n, BLOCK_BYTES)
    d = STD / (48 * 4.61)           # mean scale; standard deviation of a uniform 4-bit code
    raw[:, :4] = np.array([d, d * 7.5], np.float16).view(np.uint8)
    scale = (raw[:, 4:12] & 31) | 32
    high = scale[:, 4:]
    raw[:, 4:8] = raw[:, 8:12] = scale[:, :4] | ((high >> 4) << 6)
    raw[:, 12:16] = (high & 15) | ((high & 15) << 4)
    return raw.reshape(-1)


def write(job):
    path, at, n, uniform, seed = job
    if uniform:
        data = np.random.default_rng(seed).uniform(*uniform, n // 4).astype(np.float32)
    else:
        start = seed * 7919 * BLOCK_BYTES % (pool.size - n)
        data = pool[start:start + n]
    fd = os.open(path, os.O_WRONLY)
    while n:
        done = os.pwrite(fd, data.data.cast("B")[-n:], at)
        at, n = at + done, n - done
    os.close(fd)


def main():
    global pool
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("out")
    ap.add_argument("--layers", type=int, default=40)
    o = ap.parse_args()
    start, infos, pieces, at = time.time(), [], [], 0
    for name, shape, uniform in tensors(o.layers):
        n = int(np.prod(shape)) * 4 if uniform else int(np.prod(shape)) // BLOCK * BLOCK_BYTES
        infos.append((name, shape, F32 if uniform else Q4_K, at))
        step = PIECE // BLOCK_BYTES * BLOCK_BYTES
        pieces += [(at + i, min(step, n - i), uniform) for i in range(0, n, step)]
        at += n + -n % ALIGN
    head = header(o.layers, infos)
    with open(o.out, "wb") as f:
        f.write(head)
        f.truncate(len(head) + at)
    pool = random_blocks(POOL_BLOCKS)
    with Pool() as workers:         # they see the pool as it was at the fork
        workers.map(write, [(o.out, len(head) + a, n, u, i) for i, (a, n, u) in enumerate(pieces)], chunksize=1)
    print(json.dumps({"file": o.out, "bytes": len(head) + at, "seconds": round(time.time() - start, 1)}))


if __name__ == "__main__":
    main()
