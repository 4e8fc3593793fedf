#!/usr/bin/env python3
"""Write test fixtures for a synthetic checkpoint (tiny or odd) made by mkckpt.

    make_fixtures.py CHECKPOINT OUT_DIR [--mlx] [--texts]

model.json + model.f32   prompts, greedy tokens, logits, hidden states, cache states
                         (the .f32 file holds little-endian float32; the JSON gives element
                         offsets and shapes). The reference is oracle.py in float64.
--mlx                    adds what mlx-lm gives on the CPU, with float32 weights, and with bfloat16
                         where quantised products accumulate in float32 as on a GPU.
--texts                  tokenizer.json / chat.json: needs tokenizers and transformers.
"""
import argparse
import json
import os
import time

import numpy as np

import oracle

LENGTHS = (1, 2, 63, 64, 65, 200)
GREEDY = 24


class Pack:
    def __init__(self, path):
        self.path, self.arrays, self.at, self.index = path, [], 0, {}

    def add(self, name, a):
        a = np.ascontiguousarray(a, dtype="<f4")
        self.index[name] = {"offset": self.at, "shape": list(a.shape)}
        self.arrays.append(a)
        self.at += a.size

    def write(self):
        with open(self.path, "wb") as f:
            for a in self.arrays:
                f.write(a.tobytes())


def margins(rows):
    s = np.sort(rows, axis=-1)
    return [round(float(x), 5) for x in s[..., -1] - s[..., -2]]


def prompts(model):
    text = model.embed.words.shape[0] - 100  # stay below the special tokens
    rng = np.random.default_rng(20260601)
    return {n: [int(x) for x in rng.integers(0, text, size=n)] for n in LENGTHS}


def model_fixtures(path, out, with_mlx):
    m = oracle.Model(path, np.float64)
    pack = Pack(os.path.join(out, "model.f32"))
    doc = {"checkpoint": os.path.basename(os.path.normpath(path)), "vocab": int(m.embed.words.shape[0]), "arrays": pack.index,
           "reference": "float64, rounded to float32 when stored", "prefill": [], "greedy": []}
    sets = prompts(m)
    for n, ids in sets.items():
        every = m.forward(ids, m.new_cache(), all_logits=True)
        pack.add(f"prefill.{n}.last", every[-1])
        doc["prefill"].append({"n": n, "ids": ids, "argmax": [int(x) for x in every.argmax(-1)], "margin": margins(every)})
        if n == 65:
            pack.add("prefill.65.all", every)
    for n in (2, 64, 200):
        tokens, rows = m.greedy(sets[n], GREEDY)
        pack.add(f"greedy.{n}.logits", rows)
        doc["greedy"].append({"n": n, "tokens": tokens, "margin": margins(rows)})
    # Inside the model, for finding the first layer that differs.
    ids, cache, trace = sets[63][:7], m.new_cache(), []
    x = m.embed.rows(np.asarray(ids))
    pack.add("layers.embed", x)
    for i, w in enumerate(m.layers):
        n = oracle.rms_norm(x, w["in"], m.eps)
        mix = (m.attention if m.full[i] else m.delta_net)(w, n, cache[i])
        x = x + mix
        pack.add(f"layers.{i}.mixer", mix)
        x = x + m.experts(w, oracle.rms_norm(x, w["post"], m.eps), trace)
        pack.add(f"layers.{i}.out", x)
    pack.add("layers.final_norm", oracle.rms_norm(x, m.final, m.eps))
    pack.add("state.0.conv", cache[0]["conv"])
    pack.add("state.0.recurrent", cache[0]["state"])
    pack.add("state.3.k", cache[3]["k"])
    pack.add("state.3.v", cache[3]["v"])
    doc["inside"] = {"ids": ids, "experts": [t.tolist() for t in trace],
                     "note": "experts: per layer, per token, the chosen experts from the largest weight down; state.0.conv is "
                             "[3, channels] oldest first; recurrent is [value head, value, key]; k is after norm and rope, [T, kv heads, d]"}
    if with_mlx:
        doc["mlx"] = mlx_part(path, sets, pack)
    pack.write()
    with open(os.path.join(out, "model.json"), "w") as f:
        json.dump(doc, f)
        f.write("\n")


def mlx_part(path, sets, pack):
    from pathlib import Path

    import mlx.core as mx
    from mlx_lm.utils import load_model

    import mlx
    mx.set_default_device(mx.cpu)
    plain = mx.quantized_matmul, mx.gather_qmm
    wide = lambda a: None if a is None else a.astype(mx.float32)

    def qmm(x, w, scales, biases=None, **k):
        return plain[0](wide(x), w, wide(scales), wide(biases), **k).astype(x.dtype)

    def gather(x, w, scales, biases=None, **k):
        k.pop("global_scale", None)
        return plain[1](wide(x), w, wide(scales), wide(biases), **k).astype(x.dtype)

    out = {}
    for kind in ("bf16", "f32"):
        model, _ = load_model(Path(path))
        if kind == "f32":
            model.set_dtype(mx.float32)
            mx.quantized_matmul, mx.gather_qmm = plain
        else:
            mx.quantized_matmul, mx.gather_qmm = qmm, gather
        runs = []
        for n in (2, 64, 200):
            cache = model.make_cache()
            t0 = time.perf_counter()
            logits = model(mx.array([sets[n]]), cache=cache)[:, -1]
            mx.eval(logits)
            t1 = time.perf_counter()
            tokens, rows = [], []
            for _ in range(GREEDY):
                rows.append(np.array(logits[0].astype(mx.float32)))
                tokens.append(int(mx.argmax(logits[0]).item()))
                logits = model(mx.array([[tokens[-1]]]), cache=cache)[:, -1]
            mx.eval(logits)
            t2 = time.perf_counter()
            pack.add(f"mlx.{kind}.{n}.logits", np.stack(rows))
            runs.append({"n": n, "tokens": tokens, "prefill_s": round(t1 - t0, 4), "decode_s_per_token": round((t2 - t1) / GREEDY, 5)})
        out[kind] = runs
    mx.quantized_matmul, mx.gather_qmm = plain
    from importlib.metadata import version
    out["versions"] = {"mlx": version("mlx"), "mlx-lm": version("mlx-lm")}
    return out


# ---------------------------------------------------------------- texts

def tricky_strings():
    s = [
        "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\t\t ", " \n ", "a", " a", "  a", "a ", "a  ", "a\n", "\na", "a\n\nb",
        "Hello, world!", "hello world", "Hello  world", "HELLO WORLD", "The quick brown fox jumps over the lazy dog.",
        "I'm you're we've they'll she'd it's don't", "I'M YOU'RE WE'VE THEY'LL SHE'D IT'S DON'T", "'s 't 're 've 'm 'll 'd",
        "''s '' 'x 'lls 'S", "o'clock rock'n'roll", "\u2019s it\u2019s", "\u017f'\u017f it'\u017f",
        "1", "12", "123", "1234567890", "3.14159", "1,000,000", "0x1F", "2026-06-01T12:00:00Z", "a1b2c3", "1a2b", "\u0661\u0662\u0663",
        "\u00bd \u00b2 \u2167", "v1.2.3-rc.4", "100%", "$5.00", "50\u20ac",
        "caf\u00e9", "cafe\u0301", "e\u0301", "\u0301", "\u0301a", " \u0301", "a\u0301\u0302\u0303b", "\u212b", "A\u030a", "\u1e9b\u0323", "\ufb01",
        "\uac00", "\u1100\u1161", "\u1100\u1161\u11a8", "\u0344", "\u0958", "\u0915\u093c", "\u2126", "q\u0307\u0323", "q\u0323\u0307",
        "\u0e01\u0e33", "\u0dd9\u0dcf", "\u0bc6\u0bbe", "\U0001d15e", "\U0002f800",
        "\u4f60\u597d", "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002", "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002",
        "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\u30ab\u30bf\u30ab\u30ca", "\uff76\uff9e", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\u5168\u89d2\uff21\uff22\uff23\uff11\uff12\uff13",
        "\u3000\u5168\u89d2\u7a7a\u767d\u3000", "\u00a0nbsp\u00a0", "a\u200bb", "a\u200db", "\ufeffbom", "a\u2028b\u2029c", "a\u0085b", "a\x0bb\x0cc", "\x1c\x1d\x1e\x1f",
        "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627", "\u0627\u0653", "\u0622",
        "\u05e9\u05dc\u05d5\u05dd", "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd", "\ufb2a",
        "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\u0915\u094d", "\u0915\u094d\u0937", "\u0939\u093f\u0928\u094d\u0926\u0940",
        "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd", "\u0c24\u0c46\u0c32\u0c41\u0c17\u0c41", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u1019\u103c\u1014\u103a\u1019\u102c", "\u1797\u17b6\u179f\u17b6",
        "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0439", "\u0438\u0306", "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5", "\u03b1\u0301", "Ti\u1ebfng Vi\u1ec7t", "Tie\u0302\u0301ng Vie\u0323\u0302t",
        "\U0001f600", "\U0001f600\U0001f601", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "\U0001f1eb\U0001f1f7\U0001f1ef\U0001f1f5",
        "\U0001f469\U0001f3ff\u200d\U0001f4bb code", "1\ufe0f\u20e3", "text \U0001f680 text", "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "\U00010348", "\U0001d54f\U0001d550", "\U000e0001", "\U0010ffff", "\ue000", "\ufffd", "\ufffe", "\uffff", "\x00", "a\x00b", "\x7f", "\x80", "\x01\x02",
        "!!!", "...", "\u2026", "???!!!", "(a)", "[b]", "{c}", "<d>", "a.b", "a,b", "a-b", "a_b", "__init__", "#include <stdio.h>", "x = y + z;", "if (a) { b; }",
        "!\n", "!\n\n", " !\n", "!\r\n", "!\r\n\r\n ", "  !", "a !", "//comment\n", "a;\n  b;\n", "\n  indented", "\n\tindented", "line1\nline2\nline3", "trailing   \n", "trailing \t \n\n x",
        "   \n   \n   x", " \r\n \r\n", "\n \n \n", "a\n ", "a \n", "x\r\ny", "x\ry", "\u00e9\n\u00e9",
        "def f(x):\n    return x * 2\n", "```python\nprint('hi')\n```", "{\"a\": [1, 2, {\"b\": null}]}", "https://example.com/a?b=c&d=e#f", "user@example.com", "C:\\path\\file", "a/b/c", "--flag=value", "1+1=2",
        "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "<|vision_start|><|image_pad|><|vision_end|>", "<|fim_prefix|>",
        "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|>assistant\n<think>\n", "<|im_start|>assistant\n<think>\n\n</think>\n\n", "a<think>b</think>c", " <think> ", "<think", "<think><think>", "<|im_start|",
        "<|im_start|><|im_start|>", "<|IM_START|>", "< think>", "<|im_end|>\n\n<|im_end|>", "x<|endoftext|>y", "e<think>\u0301", "<think>\u0301a", "cafe<|im_end|>\u0301", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        "<tts_pad><tts_text_bos><tts_text_eod><tts_text_bos_single><|audio_pad|>", "<tts_text_bos", "</tool_response></tool_call>", "<|file_sep|><|repo_name|>",
        "a" * 100, "a" * 1000, " " * 50, " " * 500, "\n" * 100, "!" * 200, "1" * 100, "=" * 80, "-" * 79 + "\n", "\u4e2d" * 100, "\U0001f600" * 40, "ab" * 300, "the " * 100, "\u0301" * 30, "a\u0301" * 50, "\t" * 33, " \n" * 40, "\r\n" * 20, "\u00e9" * 64,
        "xyz" * 200 + " end", "'" * 20, "'s" * 20, " 's", "a's's", "I'd've", "\u00c0\u00c1\u00c2\u00c3", "na\u00efve co\u00f6perate", "\u0130stanbul \u0131", "stra\u00dfe STRASSE", "\u01c4\u01c5\u01c6", "\u02bc\u02b0",
        "_a _1 a_1", "\u203fa", "a\u00b7b", "\u00aa\u00ba", "\u2160\u2161\u2162", "\u3007\u4e00", "\u0f40\u0f71\u0f72", "\ua9c0\ua984", "\u1d160".encode("utf-8", "ignore").decode(), "\U0001d165\U0001d16e",
        "mixed \u4e2d\u6587 and English 123 \u0440\u0443\u0441", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22123", "a\u0308\u0304", "\u01d5", "\u1fbe", "\u0340\u0341\u0343\u0374", "\u2000\u2001", "\u2329\u232a", "\u0f73", "\u2adc",
        "\u1e0a\u0323", "\u1e0c\u0307", "D\u0307\u0323", "\u0061\u05ae\u0300\u0315\u0062", "\u11ab\u1100", "\uac00\u11a8", "\uac01\u11a8", "\u1100\uac00\u11a8",
    ]
    rng = np.random.default_rng(99)
    pool = "abc ABC 019 .,!?'\"\n\t\r-_/<>|=" + "\u00e9\u0301\u4e2d\u0915\u094d\U0001f600\u200d\u00a0\u3000\u0660\u1100\u1161\u11a8"
    for _ in range(60):
        s.append("".join(pool[i] for i in rng.integers(0, len(pool), size=int(rng.integers(1, 40)))))
    return s


def tokenizer_fixtures(path, out):
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    tok = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    auto = AutoTokenizer.from_pretrained(path)
    enc, differ = [], 0
    for s in tricky_strings():
        ids = tok.encode(s, add_special_tokens=False).ids
        if auto(s, add_special_tokens=False)["input_ids"] != ids:
            differ += 1
        enc.append({"text": s, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False), "decoded_skip": tok.decode(ids, skip_special_tokens=True)})
    # Byte sequences that are not UTF-8, as token sequences: decoding replaces them.
    by_byte = {}
    alphabet = [tok.token_to_id(c) for c in byte_chars()]
    for b, t in enumerate(alphabet):
        by_byte[b] = t
    raw = [b"\xff", b"\xc3", b"\xc3\xa9", b"\xe4\xb8", b"\xe4\xb8\xad", b"a\xe4b", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80", b"\xf0\x9f\x98\x80\xf0\x9f", b"\x80\x80", b"\xc0\x80", b"\xed\xa0\x80",
           b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"ok\xc3", b"\xc3(", b"\xe2\x28\xa1", b"\xf8\x88\x80\x80\x80", b"\xe4\xb8\xad\xe4\xb8", b"\xef\xbf\xbd", b"\xf0\x9f\xff\xe4", b"\xc3\xc3\xa9", b"\x00", b"\xe4\xb8\xad\x80a"]
    rng = np.random.default_rng(5)
    raw += [bytes(rng.integers(0, 256, size=int(rng.integers(1, 9))).astype(np.uint8)) for _ in range(20)]
    dec = [{"bytes": list(r), "ids": [by_byte[b] for b in r], "text": tok.decode([by_byte[b] for b in r], skip_special_tokens=False)} for r in raw]
    with open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"encode": enc, "decode_bytes": dec}, f, ensure_ascii=True)
        f.write("\n")
    print("tokenizer: %d strings, %d byte sequences; AutoTokenizer differs on %d" % (len(enc), len(dec), differ))


def byte_chars():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    extra, out = 0, []
    for b in range(256):
        if b in keep:
            out.append(chr(b))
        else:
            out.append(chr(256 + extra))
            extra += 1
    return out


def conversations():
    S, U, A, T = (lambda c, **k: dict(role="system", content=c, **k)), (lambda c, **k: dict(role="user", content=c, **k)), \
        (lambda c, **k: dict(role="assistant", content=c, **k)), (lambda c, **k: dict(role="tool", content=c, **k))
    weather = {"type": "function", "function": {"name": "get_weather", "description": "Weather for a \"place\" <now> & later", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Stadt / \u90fd\u5e02"}, "days": {"type": "integer", "minimum": 1}}, "required": ["city"]}}}
    search = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {"q": {"type": ["string", "null"]}, "n": {"type": "number", "default": 1.5}}}, "strict": True}}
    call = lambda fn, /, **a: {"id": "c1", "type": "function", "function": {"name": fn, "arguments": a}}
    bare = lambda fn, /, **a: {"name": fn, "arguments": a}
    part = lambda t: {"type": "text", "text": t}
    g = dict(add_generation_prompt=True)
    c = []

    def add(name, messages, tools=None, **kw):
        c.append(dict(name=name, messages=messages, tools=tools, kwargs={**g, **kw}))

    add("user", [U("Hello")])
    add("user, thinking off", [U("Hello")], enable_thinking=False)
    add("user, thinking on", [U("Hello")], enable_thinking=True)
    add("no generation prompt", [U("Hello")], add_generation_prompt=False)
    add("system", [S("You are terse."), U("Hello")])
    add("system trimmed", [S("  \n You are terse. \n"), U("  Hello \n\n")])
    add("empty system", [S(""), U("Hello")])
    add("empty user", [U("")])
    add("blank user", [U(" \n\t ")])
    add("two turns", [U("1+1?"), A("2"), U("2+2?")])
    add("two turns, off", [U("1+1?"), A("2"), U("2+2?")], enable_thinking=False)
    add("ends with assistant", [U("1+1?"), A("2")], add_generation_prompt=False)
    add("ends with assistant and prompt", [U("1+1?"), A("2")])
    add("thinking field in history", [U("a"), A("b", reasoning_content="because"), U("c")])
    add("thinking field kept", [U("a"), A("b", reasoning_content="because"), U("c")], preserve_thinking=True)
    add("thinking field dropped", [U("a"), A("b", reasoning_content="because"), U("c")], preserve_thinking=False)
    add("thinking inline", [U("a"), A("<think>\nwhy\n</think>\n\nb"), U("c")])
    add("thinking inline kept", [U("a"), A("<think>\nwhy\n\nmore\n</think>\n\nb"), U("c")], preserve_thinking=True)
    add("thinking without opening tag", [U("a"), A("why\n</think>\n\nb"), U("c")], preserve_thinking=True)
    add("thinking last", [U("a"), A("b", reasoning_content="  spaced \n")], add_generation_prompt=False)
    add("empty thinking kept", [U("a"), A("b"), U("c"), A("d")], preserve_thinking=True, add_generation_prompt=False)
    add("two thinking blocks", [U("a"), A("<think>x</think>y<think>z</think>w"), U("c")], preserve_thinking=True)
    add("tools", [U("Weather in Paris?")], [weather])
    add("tools, system", [S("Be kind."), U("Weather?")], [weather, search])
    add("tools, blank system", [S("  "), U("Weather?")], [weather])
    add("tools, off", [U("Weather?")], [search], enable_thinking=False)
    add("empty tools", [U("Weather?")], [])
    hist = [U("Weather in Paris?"), A("", reasoning_content="Need the tool.", tool_calls=[call("get_weather", city="Paris", days=2)]), T("{\"temp\": 21}")]
    add("tool result", hist, [weather])
    add("tool result, answer", hist + [A("It is 21 degrees.", reasoning_content="Easy.")], [weather], add_generation_prompt=False)
    add("tool result, next question", hist + [A("It is 21 degrees.", reasoning_content="Easy."), U("And tomorrow?")], [weather])
    add("tool result, next question, kept", hist + [A("It is 21 degrees.", reasoning_content="Easy."), U("And tomorrow?")], [weather], preserve_thinking=True)
    add("two calls", [U("Compare"), A("I will look.", tool_calls=[call("get_weather", city="Oslo"), call("search", q=None, n=2.5)]), T("a"), T("b \n")], [weather, search])
    add("argument types", [U("x"), A("", tool_calls=[call("f", s="a\nb", i=3, f=1.0, t=True, n=None, l=[1, "x", {"k": "\u00e9<>&'\""}], o={"z": 1, "a": []}, e="", sp="  keep ")]), T("")])
    add("no arguments", [U("x"), A("go", tool_calls=[call("f")]), T("done")])
    add("bare call", [U("x"), A(None, tool_calls=[bare("f", a="1")]), T("done")])
    add("tool result given as user", [U("q"), A("", tool_calls=[call("f", a=1)]), U("<tool_response>\nr\n</tool_response>"), A("done")], add_generation_prompt=False)
    add("two tool rounds", [U("q"), A("", reasoning_content="r1", tool_calls=[call("f", a=1)]), T("1"), A("", reasoning_content="r2", tool_calls=[call("f", a=2)]), T("2")], [search])
    add("content parts", [S([part("Be "), part("brief.")]), U([part("Look: "), {"type": "image", "image": "x.png"}, part(" and "), {"type": "image_url", "image_url": {"url": "u"}}])])
    add("video, ids", [U([{"type": "video", "video": "v.mp4"}, part("?"), {"type": "image"}])], add_vision_id=True)
    add("unicode", [S("\u6771\u4eac \U0001f5fc"), U("\u4f60\u597d\uff0ccafe\u0301 \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \u0645\u0631\u062d\u0628\u0627"), A("\u0928\u092e\u0938\u094d\u0924\u0947"), U("\u3000\u5168\u89d2\u3000")])
    add("special tokens in text", [U("<|im_end|>\n<|im_start|>system\nx"), A("</tool_call> <think>"), U("ok")])
    add("null content", [U("a"), A(None), U("b")])
    add("code and newlines", [U("```c\nint main(void)\r\n{\n\treturn 0;\n}\n```\n"), A("line\n\n\nline"), U("\n\nq\n\n")])
    add("error: empty", [])
    add("error: no user", [S("x")])
    add("error: late system", [U("a"), S("b"), U("c")])
    add("error: role", [U("a"), dict(role="developer", content="b")])
    add("error: image in system", [S([{"type": "image", "image": "x"}]), U("a")])
    return c


def chat_fixtures(path, out):
    from transformers import AutoTokenizer

    tok = AutoTokenizer.from_pretrained(path)
    rows = conversations()
    for r in rows:
        try:
            r["text"] = tok.apply_chat_template(r["messages"], tools=r["tools"], tokenize=False, **r["kwargs"])
            r["ids"] = tok(r["text"], add_special_tokens=False)["input_ids"]
        except Exception as e:  # raise_exception() of the template
            r["error"] = str(e)
    with open(os.path.join(out, "chat.json"), "w", encoding="utf-8") as f:
        json.dump(rows, f, ensure_ascii=True)
        f.write("\n")
    print("chat: %d conversations, %d of them errors" % (len(rows), sum("error" in r for r in rows)))


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("checkpoint")
    ap.add_argument("out")
    ap.add_argument("--mlx", action="store_true")
    ap.add_argument("--texts", action="store_true")
    ap.add_argument("--no-model", action="store_true")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    if not a.no_model:
        model_fixtures(a.checkpoint, a.out, a.mlx)
    if a.texts:
        tokenizer_fixtures(a.checkpoint, a.out)
        chat_fixtures(a.checkpoint, a.out)


if __name__ == "__main__":
    main()
