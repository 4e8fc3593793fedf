#include "preset.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The true dimensions: 19,508,787,456 bytes of tensors with 40 layers. */
#define FULL_WIDTH                                                                                           \
    .hidden = 2048, .heads = 16, .kv_heads = 2, .head_dim = 256, .k_heads = 16, .v_heads = 32, .k_dim = 128, \
    .v_dim = 128, .experts = 256, .top_k = 8, .moe_inter = 512, .shared_inter = 512, .vocab = 248320,        \
    .merges = 1500, .max_pos = 262144, .mrope = {11, 11, 10}, .text_ids = 248044

/* clang-format off */
const preset presets[] = {
    {.name = "tiny", .what = "2.5 MB, every feature of the full model",
     .hidden = 128, .layers = 8, .heads = 8, .kv_heads = 1, .head_dim = 64, .k_heads = 2, .v_heads = 4, .k_dim = 32,
     .v_dim = 32, .experts = 16, .top_k = 4, .moe_inter = 64, .shared_inter = 64, .vocab = 1024, .merges = 700,
     .max_pos = 4096, .mrope = {3, 3, 2}, .shards = 2, .vision = true},
    {.name = "odd", .what = "13 MB, odd sizes with the full model's head sizes",
     .hidden = 192, .layers = 12, .heads = 16, .kv_heads = 2, .head_dim = 256, .k_heads = 2, .v_heads = 4,
     .k_dim = 128, .v_dim = 128, .experts = 24, .top_k = 3, .moe_inter = 64, .shared_inter = 128, .vocab = 1187,
     .merges = 840, .max_pos = 32768, .mrope = {11, 11, 10}, .shards = 3, .f32_a_log = true},
    {.name = "slice", .what = "5.3 GB, true width, 10 layers", FULL_WIDTH, .layers = 10},
    {.name = "full", .what = "19.5 GB, true dimensions", FULL_WIDTH, .layers = 40},
};
/* clang-format on */
const size_t n_presets = sizeof presets / sizeof *presets;

const preset *preset_find(const char *name)
{
    for (size_t i = 0; i < n_presets; i++)
        if (strcmp(presets[i].name, name) == 0) return &presets[i];
    return NULL;
}

uint64_t entry_rows(const entry *e)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i + 1 < e->rank; i++) n *= e->dim[i];
    return n;
}

uint32_t entry_parts(const entry *e, part out[3])
{
    uint64_t rows = entry_rows(e);
    uint32_t cols = e->dim[e->rank - 1];
    if (!e->bits) {
        out[0] = (part){"", e->f32 ? "F32" : "BF16", cols, rows * cols * (e->f32 ? 4 : 2)};
        return 1;
    }
    uint32_t words = cols * e->bits / 32, groups = cols / GROUP;
    out[0] = (part){".weight", "U32", words, rows * words * 4};
    out[1] = (part){".scales", "BF16", groups, rows * groups * 2};
    out[2] = (part){".biases", "BF16", groups, rows * groups * 2};
    return 3;
}

uint64_t entry_bytes(const entry *e)
{
    part parts[3];
    uint64_t sum = 0;
    for (uint32_t i = 0, n = entry_parts(e, parts); i < n; i++) sum += parts[i].bytes;
    return sum;
}

/* ---- the list ---------------------------------------------------------------------- */

enum { PER_LAYER = 20, OTHERS = 5 };

typedef struct list {
    entry *at;
    size_t n;
    lily_arena *arena;
    char prefix[64]; /* of the next names */
    bool failed;
} list;

static entry *add(list *l, const char *name, entry e)
{
    char text[128];
    snprintf(text, sizeof text, "%s%s", l->prefix, name);
    e.name = lily_arena_strndup(l->arena, text, strlen(text));
    if (!e.name) l->failed = true;
    l->at[l->n] = e;
    return &l->at[l->n++];
}

static void plain(list *l, const char *name, uint32_t n, double mean, double std)
{
    add(l, name, (entry){.kind = ENTRY_PLAIN, .rank = 1, .dim = {n}, .mean = mean, .std = std});
}

static void matrix(list *l, const char *name, uint32_t rows, uint32_t cols, double std)
{
    add(l, name, (entry){.kind = ENTRY_CODES, .rank = 2, .dim = {rows, cols}, .bits = 4, .std = std});
}

static void delta_net(list *l, const preset *p, double deep)
{
    uint32_t h = p->hidden, vd = p->v_heads * p->v_dim, channels = 2 * p->k_heads * p->k_dim + vd;
    double in = 1.0 / sqrt(h);
    add(l, "linear_attn.A_log",
        (entry){.kind = ENTRY_A_LOG, .rank = 1, .dim = {p->v_heads}, .f32 = p->f32_a_log});
    add(l, "linear_attn.conv1d.weight",
        (entry){.kind = ENTRY_PLAIN, .rank = 3, .dim = {channels, 4, 1}, .std = 0.5});
    plain(l, "linear_attn.dt_bias", p->v_heads, -2.0, 1.0);
    matrix(l, "linear_attn.in_proj_a", p->v_heads, h, in);
    matrix(l, "linear_attn.in_proj_b", p->v_heads, h, 1.5 / sqrt(h));
    matrix(l, "linear_attn.in_proj_qkv", channels, h, in);
    matrix(l, "linear_attn.in_proj_z", vd, h, in);
    plain(l, "linear_attn.norm.weight", p->v_dim, 1.0, 0.15);
    matrix(l, "linear_attn.out_proj", h, vd, 1.0 * deep / sqrt(vd));
}

static void attention(list *l, const preset *p, double deep)
{
    uint32_t h = p->hidden, qd = p->heads * p->head_dim, kvd = p->kv_heads * p->head_dim;
    double in = 1.0 / sqrt(h);
    plain(l, "self_attn.k_norm.weight", p->head_dim, 1.2, 0.15);
    matrix(l, "self_attn.k_proj", kvd, h, in);
    matrix(l, "self_attn.o_proj", h, qd, 2.4 * deep / sqrt(qd));
    plain(l, "self_attn.q_norm.weight", p->head_dim, 1.2, 0.15);
    matrix(l, "self_attn.q_proj", 2 * qd, h, in);
    matrix(l, "self_attn.v_proj", kvd, h, in);
}

static void experts(list *l, const preset *p, double deep)
{
    uint32_t h = p->hidden, f = p->moe_inter, s = p->shared_inter, n = p->experts;
    double in = 1.0 / sqrt(h);
    const entry stack = {.kind = ENTRY_CODES, .rank = 3, .dim = {n, f, h}, .bits = 4, .std = in};
    entry down = stack;
    down.dim[1] = h;
    down.dim[2] = f;
    down.std = 1.3 * deep / sqrt(f);
    add(l, "mlp.gate",
        (entry){.kind = ENTRY_CODES, .rank = 2, .dim = {n, h}, .bits = 8, .std = 2.0 / sqrt(h)});
    matrix(l, "mlp.shared_expert.down_proj", h, s, 1.2 * deep / sqrt(s));
    matrix(l, "mlp.shared_expert.gate_proj", s, h, in);
    matrix(l, "mlp.shared_expert.up_proj", s, h, in);
    add(l, "mlp.shared_expert_gate",
        (entry){.kind = ENTRY_CODES, .rank = 2, .dim = {1, h}, .bits = 8, .std = in});
    add(l, "mlp.switch_mlp.down_proj", down);
    add(l, "mlp.switch_mlp.gate_proj", stack);
    add(l, "mlp.switch_mlp.up_proj", stack);
}

entry *preset_entries(const preset *p, size_t *n, lily_arena *arena)
{
    list l = {.arena = arena, .at = lily_arena_calloc(arena, PER_LAYER * p->layers + OTHERS, sizeof(entry))};
    if (!l.at) return NULL;
    const entry rows = {.rank = 2, .dim = {p->vocab, p->hidden}, .bits = 4};
    double deep = 0.4 * sqrt(8.0 / p->layers); /* the residual grows by the same factor at every depth */
    snprintf(l.prefix, sizeof l.prefix, "language_model.model.");
    add(&l, "embed_tokens", rows)->kind = ENTRY_EMBED;
    for (uint32_t i = 0; i < p->layers; i++) {
        snprintf(l.prefix, sizeof l.prefix, "language_model.model.layers.%u.", i);
        plain(&l, "input_layernorm.weight", p->hidden, 1.0, 0.1);
        if ((i + 1) % 4)
            delta_net(&l, p, deep);
        else
            attention(&l, p, deep);
        experts(&l, p, deep);
        plain(&l, "post_attention_layernorm.weight", p->hidden, 1.0, 0.1);
    }
    snprintf(l.prefix, sizeof l.prefix, "language_model.");
    plain(&l, "model.norm.weight", p->hidden, 1.0, 0.1);
    add(&l, "lm_head", rows)->kind = ENTRY_HEAD;
    if (p->vision) { /* stand-ins for the vision tower, which a text engine skips */
        snprintf(l.prefix, sizeof l.prefix, "vision_tower.");
        add(&l, "patch_embed.proj.weight",
            (entry){.kind = ENTRY_PLAIN, .rank = 5, .dim = {32, 2, 4, 4, 3}, .std = 0.02});
        plain(&l, "merger.norm.weight", 32, 1.0, 0.02);
    }
    *n = l.n;
    return l.failed ? NULL : l.at;
}
