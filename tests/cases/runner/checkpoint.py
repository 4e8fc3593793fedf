"""A copy of a small checkpoint, and the damages that it may be given."""

import json
import os
import re
import shutil
import struct

from .outcome import Skip

DAMAGES = {}


def damage(f):
    DAMAGES[f.__name__.removeprefix("dm_")] = f
    return f


def read_st(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        data = f.read()
    meta = head.pop("__metadata__", None)
    return {
        k: (v["dtype"], v["shape"], data[v["data_offsets"][0] : v["data_offsets"][1]]) for k, v in head.items()
    }, meta


def write_st(path, tensors, meta=None):
    head, at = ({"__metadata__": meta} if meta else {}), 0
    for k, (dt, sh, b) in tensors.items():
        head[k] = {"dtype": dt, "shape": sh, "data_offsets": [at, at + len(b)]}
        at += len(b)
    h = json.dumps(head).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h)
        for dt, sh, b in tensors.values():
            f.write(b)


class Checkpoint:
    """A copy of the small checkpoint that may be damaged."""

    def __init__(self, src, dst):
        self.dir = dst
        os.makedirs(dst)
        self.tensors = {}
        for name in sorted(os.listdir(src)):
            p = os.path.join(src, name)
            if name.endswith(".safetensors"):
                if os.path.getsize(p) > 2 << 30:
                    raise Skip("load cases want a small checkpoint")
                t, self.meta = read_st(p)
                self.tensors.update(t)
            elif os.path.isfile(p) and not name.endswith(".index.json"):
                shutil.copy(p, dst)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, shards=3, index=True):
        names, per = list(self.tensors), -(-len(self.tensors) // shards)
        table = {}
        for i in range(shards):
            part = names[i * per : (i + 1) * per]
            fn = "model.safetensors" if shards == 1 else f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
            write_st(self.path(fn), {k: self.tensors[k] for k in part}, self.meta)
            table.update({k: fn for k in part})
        if index:
            self.write_index(table)
        return self

    def write_index(self, table):
        total = sum(len(t[2]) for t in self.tensors.values())
        with open(self.path("model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {"total_size": total}, "weight_map": table}, f)

    def config(self, change):
        with open(self.path("config.json")) as f:
            c = json.load(f)
        change(c)
        with open(self.path("config.json"), "w") as f:
            json.dump(c, f)


@damage
def dm_truncate(c, v):
    p = c.write().path("model-00002-of-00003.safetensors")
    size = os.path.getsize(p)
    os.truncate(p, size - (v["bytes"] if "bytes" in v else int(size * v["fraction"])))


@damage
def dm_delete_shard(c, v):
    os.unlink(c.write().path("model-00002-of-00003.safetensors"))


@damage
def dm_stray(c, v):
    k, (dt, sh, b) = next((k, t) for k, t in c.write().tensors.items() if t[0] in ("BF16", "F16", "F32"))
    write_st(c.path("extra.safetensors"), {k: (dt, sh, bytes(len(b)))})


@damage
def dm_add(c, v):
    for name in v["names"]:
        c.tensors[name] = ("BF16", [4, 4], bytes(32))
    c.write()


@damage
def dm_no_index(c, v):
    c.write(1, index=False)


def bf16(b):
    return [struct.unpack("<f", struct.pack("<I", h << 16))[0] for h in struct.unpack(f"<{len(b) // 2}H", b)]


def to_bf16(xs):
    out = []
    for x in xs:
        u = struct.unpack("<I", struct.pack("<f", x))[0]
        out.append((u + 0x7FFF + ((u >> 16) & 1)) >> 16)
    return struct.pack(f"<{len(out)}H", *out)


SHIFTED = re.compile(r"(input_layernorm|post_attention_layernorm|q_norm|k_norm|model\.norm)\.weight$")


def roundtrip_norms(c):
    """Norm weights that can be shifted by one without loss."""
    raw = {}
    for k, (dt, sh, b) in list(c.tensors.items()):
        if SHIFTED.search(k):
            if dt != "BF16":
                raise Skip("norms of this checkpoint are not bf16")
            raw[k] = to_bf16([x - 1 for x in bf16(b)])
            c.tensors[k] = (dt, sh, to_bf16([x + 1 for x in bf16(raw[k])]))
    return raw


@damage
def dm_converted(c, v):
    roundtrip_norms(c)
    for name in v.get("names") or []:
        c.tensors[name] = ("BF16", [4, 4], bytes(32))
    c.write()


@damage
def dm_raw_layout(c, v):
    raw = roundtrip_norms(c)
    for k, b in raw.items():
        c.tensors[k] = (c.tensors[k][0], c.tensors[k][1], b)
    for k, (dt, sh, b) in list(c.tensors.items()):
        if k.endswith("conv1d.weight"):
            c.tensors[k] = (dt, [sh[0], sh[2], sh[1]], b)  # [C,K,1] -> [C,1,K]: same bytes
    c.write()
