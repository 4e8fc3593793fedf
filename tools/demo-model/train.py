"""Trains the demo model on one GPU (or, for tests, a CPU) against the wall clock, then exports it.

  python train.py --tok ../../models/demo --out OUT --minutes 8.6
Fresh data is written by worker processes while training runs.  The learning rate and the switch to
quantisation-aware training follow the clock, so the run always ends in time with a finished 4-bit model.
"""
import argparse, math, os, sys, time, json, tarfile, tempfile, shutil, random
import multiprocessing as mp
import numpy as np

T0 = time.time()


def pack_rows(next_doc, S, eot, n_rows, pool=300):
    """Best-fit packing of whole documents into rows of S tokens."""
    buf, rows = [], np.full((n_rows, S), eot, dtype=np.uint16)
    for i in range(n_rows):
        pos = 0
        while True:
            while len(buf) < pool:
                d = next_doc()
                if len(d) <= S:
                    buf.append(d)
            room = S - pos
            best = -1
            if room > 700:
                best = random.randrange(len(buf))
                if len(buf[best]) > room:
                    best = -1
            if best < 0:
                for j, d in enumerate(buf):
                    if len(d) <= room and (best < 0 or len(d) > len(buf[best])):
                        best = j
            if best < 0:
                break
            d = buf.pop(best)
            rows[i, pos:pos + len(d)] = d
            pos += len(d)
            if S - pos < 24:
                break
    return rows


def worker(tok_dir, d, wid, S, rows, seed, limit):
    os.nice(5)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer
    import make_data as M
    t = Tokenizer.from_file(os.path.join(tok_dir, "tokenizer.json"))
    eot = t.token_to_id("<|endoftext|>")
    r = M.Gen(seed * 1000003 + wid)
    random.seed(seed * 7 + wid)
    nd = lambda: t.encode(M.doc(r)).ids + [eot]
    i = 0
    parent = os.getppid()
    while os.getppid() == parent:
        if len(os.listdir(d)) > limit:
            time.sleep(0.5); continue
        a = pack_rows(nd, S, eot, rows)
        f = os.path.join(d, f".{wid}_{i}")
        np.save(f, a)
        os.replace(f + ".npy", os.path.join(d, f"{wid}_{i}.npy")); i += 1


def val_rows(tok_dir, S, n_docs):
    from tokenizers import Tokenizer
    import make_data as M
    t = Tokenizer.from_file(os.path.join(tok_dir, "tokenizer.json"))
    eot = t.token_to_id("<|endoftext|>")
    out, docs = {}, {}
    for ci, c in enumerate(M.NAMES):
        r = M.Gen(555000 + ci); r.val = True
        ds = [M.doc(r, c) for _ in range(n_docs)]
        docs[c] = ds
        it = iter([t.encode(x).ids + [eot] for x in ds])
        flat, rows, pos = [x for x in it if len(x) <= S], [np.full(S, eot, dtype=np.int64)], 0
        for x in flat:
            if pos + len(x) > S:
                rows.append(np.full(S, eot, dtype=np.int64)); pos = 0
            rows[-1][pos:pos + len(x)] = x; pos += len(x)
        out[c] = np.stack(rows)
    return out, docs


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tok", default="../../models/demo")
    ap.add_argument("--out", default="out")
    ap.add_argument("--ckpt", default="ckpt")
    ap.add_argument("--init", default="", help="folder with w_*.safetensors to start from")
    ap.add_argument("--resume", action="store_true", help="continue from --ckpt when it is there")
    ap.add_argument("--preset", default="scaled")
    ap.add_argument("--minutes", type=float, default=8.6, help="whole run, from start to the last file written")
    ap.add_argument("--reserve", type=float, default=55, help="seconds kept for the final checks and export")
    ap.add_argument("--steps", type=int, default=0, help="fixed number of steps instead of the clock (tests)")
    ap.add_argument("--seq", type=int, default=2048)
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--decay-from", type=float, default=0.45)
    ap.add_argument("--qat-from", type=float, default=0.65)
    ap.add_argument("--aux", type=float, default=0.01)
    ap.add_argument("--prompt-weight", type=float, default=0.1)
    ap.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--val-docs", type=int, default=96)
    ap.add_argument("--val-every", type=float, default=75)
    ap.add_argument("--no-val", action="store_true")
    ap.add_argument("--no-compile", action="store_true")
    ap.add_argument("--bench", type=int, default=0, help="only time N steps")
    a = ap.parse_args()

    os.makedirs(a.out, exist_ok=True); os.makedirs(a.ckpt, exist_ok=True)
    log = open(os.path.join(a.out, "train.log"), "a")

    def say(*x):
        s = f"[{time.time() - T0:6.1f}s] " + " ".join(str(y) for y in x)
        print(s, flush=True); log.write(s + "\n"); log.flush()

    shard_dir = tempfile.mkdtemp(prefix="demo_shards_")
    ctx = mp.get_context("spawn")
    procs = [ctx.Process(target=worker, args=(a.tok, shard_dir, w, a.seq, max(8, 65536 * 2 // a.seq), a.seed, 400), daemon=True) for w in range(a.workers)]
    for p in procs: p.start()

    import torch
    from model import PRESETS, init_params, Runner, effective, quant_bits, rms
    from export import export, save_parts, load_parts
    from tokenizers import Tokenizer
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    dtype = torch.bfloat16 if dev == "cuda" else torch.float32
    tk = Tokenizer.from_file(os.path.join(a.tok, "tokenizer.json"))
    EOT, IMS, IME = (tk.token_to_id(x) for x in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    ASSIST = tk.encode("assistant").ids
    assert len(ASSIST) == 1
    ASSIST = ASSIST[0]
    c = PRESETS[a.preset]
    P = init_params(c, a.seed)
    if a.init:
        L = load_parts(a.init)
        assert set(L) == set(P), set(L) ^ set(P)
        P = L
        say("weights from", a.init)
    P = {k: w.to(dev).requires_grad_() for k, w in P.items()}
    n_par = sum(w.numel() for w in P.values())
    muon = [k for k, w in P.items() if w.dim() >= 2 and quant_bits(k) == 4 and "embed" not in k and "lm_head" not in k and not k.endswith(("in_proj_a.weight", "in_proj_b.weight"))]
    adam = [k for k in P if k not in muon]
    say(f"device {torch.cuda.get_device_name() if dev == 'cuda' else 'cpu'}; torch {torch.__version__}; preset {a.preset}; {n_par/1e6:.2f} M parameters ({len(muon)} by Muon)")

    adam_lr = lambda k: 1.0 if "embed" in k else 0.5
    opt = torch.optim.AdamW([{"params": [P[k]], "lr": a.lr, "mult": adam_lr(k), "weight_decay": 0.0} for k in adam], betas=(0.9, 0.95), eps=1e-9, fused=dev == "cuda")
    mom = {k: torch.zeros_like(P[k]) for k in muon}
    groups = {}
    for k in muon:
        groups.setdefault(tuple(sorted(P[k].shape[-2:])), []).append(k)

    def newton(X):
        X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(5):
            G = X @ X.mT
            X = 3.4445 * X + (-4.7750 * G + 2.0315 * (G @ G)) @ X
        return X

    @torch.no_grad()
    def muon_step(lr, beta=0.95, wd=0.05):
        for shape, ks in groups.items():
            ups, meta = [], []
            for k in ks:
                g = P[k].grad
                mom[k].lerp_(g, 1 - beta)
                u = g.lerp(mom[k], beta)
                tr = u.shape[-2] > u.shape[-1]
                u = (u.mT if tr else u).reshape(-1, *shape)
                ups.append(u); meta.append((k, tr, u.shape[0]))
            X = newton(torch.cat(ups).to(torch.bfloat16 if dev == "cuda" else torch.float32)).float()
            i = 0
            for k, tr, n in meta:
                u = X[i:i + n]; i += n
                u = (u.mT if tr else u).reshape(P[k].shape)
                P[k].mul_(1 - lr * wd).add_(u, alpha=-lr * 0.2 * math.sqrt(max(shape)))

    R = Runner(c, compile=os.environ.get("COMPILE_BACKEND") or (not a.no_compile and dev == "cuda"))
    qat = [False]
    step, prog0, seen = 0, 0.0, 0
    ck = os.path.join(a.ckpt, "ckpt.pt")
    if a.resume and os.path.exists(ck):
        st = torch.load(ck, map_location=dev, weights_only=False)
        with torch.no_grad():
            for k in P: P[k].copy_(st["P"][k])
        for k in mom: mom[k].copy_(st["mom"][k])
        opt.load_state_dict(st["opt"]); step, prog0, seen = st["step"], st["prog"], st["seen"]
        say("resumed at step", step, "progress", round(prog0, 3))

    def save(prog, finished=False):
        torch.save({"P": {k: w.detach() for k, w in P.items()}, "mom": mom, "opt": opt.state_dict(), "step": step, "prog": prog, "seen": seen}, ck + ".tmp")
        os.replace(ck + ".tmp", ck)

    def publish():
        d = tempfile.mkdtemp(prefix="demo_export_")
        m = os.path.join(d, "demo-model")
        size = export(P, c, a.tok, m)
        with tarfile.open(os.path.join(d, "t.tar"), "w") as t: t.add(m, arcname="demo-model")
        shutil.move(os.path.join(d, "t.tar"), os.path.join(a.out, "demo_model.tar"))
        save_parts(P, a.out)
        shutil.rmtree(d)
        return size

    def weights_of(x):
        """Loss weights for predicting x[:,1:]: 1 in assistant turns and plain text, little elsewhere, 0 across documents."""
        B, T = x.shape
        pos = torch.arange(T, device=x.device).expand(B, T)
        prev = torch.nn.functional.pad(x, (1, 0), value=EOT)[:, :T]
        dstart = torch.where(prev == EOT, pos, -1).cummax(1).values
        ims = torch.where(x == IMS, pos, -1).cummax(1).values
        chat = ims >= dstart
        role = x.gather(1, (ims + 1).clamp(0, T - 1))
        w = torch.where(chat & (role != ASSIST), a.prompt_weight, 1.0)
        w = torch.where(chat & (pos - ims <= 1), a.prompt_weight, w)   # the role marker itself
        w = w[:, 1:].clone()
        w[x[:, :-1] == EOT] = 0
        w[(x[:, 1:] == EOT) & (x[:, :-1] == EOT)] = 0
        return torch.nn.functional.pad(w, (0, 1))

    def forward(x):
        W = effective(P, qat[0], dtype)
        h, aux = R.hidden(W, x, EOT, dtype)
        wt = weights_of(x)
        tgt = torch.roll(x, -1, 1)
        wl, ce = R.loss(h, W["model.norm.weight"], W["lm_head.weight"], tgt, wt)
        return wl.sum() / wt.sum(), aux, ce, wt

    vrows, vdocs = val_rows(a.tok, a.seq, a.val_docs)
    say("validation rows", sum(len(v) for v in vrows.values()))

    def validate():   # gradients stay on, so that the compiled pieces need no second version
        out = {}
        if a.no_val: return out
        for cat, rows in vrows.items():
            s = n = 0.0
            for i in range(0, len(rows), a.batch):
                x = torch.full((a.batch, a.seq), EOT, dtype=torch.long)
                b = torch.from_numpy(rows[i:i + a.batch]); x[:len(b)] = b
                x = x.to(dev)
                _, _, ce, wt = forward(x)
                m = (wt == 1).reshape(-1)
                s += ce.reshape(-1)[m].sum().item(); n += m.sum().item()
            out[cat] = s / max(n, 1)
        say("val", f"mean {sum(out.values())/len(out):.4f}", " ".join(f"{k} {v:.3f}" for k, v in out.items()))
        return out

    # rows live on the device; fresh ones are used first, then old ones again
    fresh, old = [], []

    def refill():
        for f in sorted(os.listdir(shard_dir)):
            if f.endswith(".npy") and not f.startswith("."):
                p = os.path.join(shard_dir, f)
                t = torch.from_numpy(np.load(p).astype(np.int16)).to(dev); os.remove(p)
                fresh.append(t)

    state = {"t": None, "i": 0}
    reused = [0]

    def batch():
        rows = []
        need = a.batch
        while need:
            if state["t"] is None or state["i"] >= len(state["t"]):
                if not fresh: refill()
                if fresh:
                    state["t"], state["i"] = fresh.pop(0), 0
                    if len(old) < 3000: old.append(state["t"])
                elif old:
                    t = old[random.randrange(len(old))]
                    state["t"], state["i"] = t[torch.randperm(len(t), device=t.device)], 0; reused[0] += 1
                else:
                    time.sleep(0.2); continue
            k = min(need, len(state["t"]) - state["i"])
            rows.append(state["t"][state["i"]:state["i"] + k]); state["i"] += k; need -= k
        return torch.cat(rows).long()

    say("waiting for data"); x = batch(); say("first batch ready")
    try:
        t = time.time(); loss, aux, *_ = forward(x); (loss + a.aux * aux).backward()
        if dev == "cuda": torch.cuda.synchronize()
        say(f"first step {time.time()-t:.1f}s loss {loss.item():.3f}")
    except Exception as ex:   # a compiler that fails must not cost the run
        say("compiled step failed, going eager:", repr(ex)[:400])
        torch._dynamo.reset()
        R = Runner(c, compile=False)
        loss, aux, *_ = forward(x); (loss + a.aux * aux).backward()
    for k in P: P[k].grad = None
    if a.minutes * 60 < 30 and not a.steps: a.steps = 10
    t_start = time.time(); t_end = T0 + a.minutes * 60 - a.reserve
    last_save = last_val = time.time(); last_log = (time.time(), step, seen)
    pubs = [0.5, 0.8]
    step0 = step
    while True:
        if a.bench and step - step0 >= a.bench: break
        if a.steps: prog = prog0 + (1 - prog0) * (step - step0) / max(1, a.steps)
        else: prog = prog0 + (1 - prog0) * (time.time() - t_start) / max(1.0, t_end - t_start)
        if prog >= 1: break
        warm = min(1.0, (step - step0 + 1) / (100 if not a.steps else 5))
        f = warm * (1.0 if prog < a.decay_from else max(0.02, (1 - prog) / (1 - a.decay_from)))
        qat[0] = prog >= a.qat_from
        x = batch()
        loss, aux, *_ = forward(x)
        (loss + a.aux * aux).backward()
        gn = torch.nn.utils.clip_grad_norm_([P[k] for k in adam], 1.0)
        for g in opt.param_groups: g["lr"] = a.lr * f * g["mult"]
        opt.step(); muon_step(a.lr * f)
        for k in P: P[k].grad = None
        step += 1; seen += x.numel()
        now = time.time()
        if step % (50 if not a.steps else 5) == 0:
            l = loss.item()
            dt = time.time() - last_log[0]
            say(f"step {step} prog {prog:.3f} loss {l:.4f} aux {float(aux):.3f} gnorm {float(gn):.2f} lr {a.lr*f:.5f} qat {int(qat[0])} tok/s {(seen-last_log[2])/dt:,.0f} seen {seen/1e6:.1f}M reused {reused[0]} fresh {len(fresh)}")
            last_log = (time.time(), step, seen)
            if not math.isfinite(l): say("loss is not finite, stopping"); break
            refill()
        if a.bench: continue
        if now - last_save > 60: save(prog); last_save = time.time()
        if now - last_val > a.val_every: validate(); last_val = time.time()
        if pubs and prog >= pubs[0]:
            pubs.pop(0); say("publishing at", round(prog, 2)); publish()
    if a.bench:
        if dev == "cuda": say(f"peak memory {torch.cuda.max_memory_allocated()/2**30:.1f} GiB")
        for p in procs: p.kill()
        return
    qat[0] = True
    save(prog); publish(); say("published")
    for p in procs: p.kill()
    qat[0] = False; validate(); qat[0] = True; say("the same with 4-bit weights:"); validate()

    # greedy answers with the 4-bit weights
    E = Runner(c, compile=False)
    with torch.no_grad():
        W = effective(P, True, dtype)

    @torch.no_grad()
    def greedy(prompts, n, width=768):
        ids = [tk.encode(p).ids for p in prompts]
        width = max(64, -(-(max(map(len, ids)) + n) // 64) * 64)
        x = torch.full((len(ids), width), EOT, dtype=torch.long, device=dev)
        L = torch.tensor([len(i) for i in ids], device=dev)
        for j, i in enumerate(ids): x[j, :len(i)] = torch.tensor(i, device=dev)
        done = torch.zeros(len(ids), dtype=torch.bool, device=dev); ar = torch.arange(len(ids), device=dev)
        for _ in range(n):
            h, _ = E.hidden(W, x, EOT, dtype)
            lg = torch.nn.functional.linear(rms(h[ar, L - 1], W["model.norm.weight"], c.eps), W["lm_head.weight"])
            nx = lg.argmax(-1); done |= (nx == IME) | (nx == EOT)
            x[ar[~done], L[~done]] = nx[~done]; L = torch.where(done, L, L + 1)
            if done.all(): break
        return [tk.decode(x[j, len(i):L[j]].tolist(), skip_special_tokens=False) for j, i in enumerate(ids)]

    N, TH = "<think>\n\n</think>\n\n", "<think>\n"
    ask = lambda q, th, s="": (f"<|im_start|>system\n{s}<|im_end|>\n" if s else "") + f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" + (TH if th else N)
    demo = [ask("Hello! Who are you?", 0), ask("Tell me a story about a fox and a lost key.", 0), ask("What is the capital of Peru?", 1), ask("What is 47 + 38?", 1), ask("What is 47 + 38?", 0),
            ask("How do you say water in Hindi?", 0), ask("Write hello world in C.", 0), ask("How many r's are in strawberry?", 1), ask("List 4 fruits.", 0), ask("What is the capital of France?", 0, "Answer in one word."),
            "<|im_start|>user\nMy name is Mira.<|im_end|>\n<|im_start|>assistant\nNice to meet you, Mira!<|im_end|>\n" + ask("What is my name?", 1)]
    t = time.time()
    for p, o in zip(demo, greedy(demo, 260 if dev == "cuda" else 8)):
        say("\n>>> " + p.split("<|im_start|>user\n")[-1].split("<|im_end|>")[0] + "\n" + o)
    deadline = T0 + a.minutes * 60 - 4
    for cat in ("arith", "facts", "words", "translate", "tools", "multi", "system"):
        if time.time() > deadline - 8 and dev == "cuda": say("no time left for", cat); continue
        ps, gold = [], []
        for d in vdocs[cat][:64 if dev == "cuda" else 2]:
            cut = d.find("<|im_start|>assistant\n<think>\n")
            head, rest = d[:cut], d[cut + len("<|im_start|>assistant\n"):]
            rest = rest.split("<|im_end|>")[0]
            pre = N if rest.startswith(N) else TH
            ps.append(head + "<|im_start|>assistant\n" + pre); gold.append(rest[len(pre):])
        os_ = greedy(ps, 110 if dev == "cuda" else 4)
        fin = lambda s: s.split("</think>")[-1].strip()
        num = lambda s: "".join(ch for ch in fin(s) if ch.isdigit() or ch in "-.,")
        same = sum(fin(o) == fin(g) for o, g in zip(os_, gold))
        say(f"answers equal to the held-out reference, {cat}: {same}/{len(ps)}" + (f"; last number equal: {sum(fin(o).rstrip('.').split()[-1:] == fin(g).rstrip('.').split()[-1:] for o, g in zip(os_, gold))}" if cat == "arith" else ""))
        bad = [(p, o, g) for p, o, g in zip(ps, os_, gold) if fin(o) != fin(g)][:2]
        for p, o, g in bad: say("   e.g.", repr(p.split("<|im_start|>user\n")[-1][:90]), "->", repr(fin(o)[:120]), "wanted", repr(fin(g)[:120]))
    say(f"done: {step} steps, {seen/1e6:.0f} M tokens")


if __name__ == "__main__":
    main()
