#include "model/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "model/tensor_name.h"

/* A tensor of the language model under its canonical name. */
typedef struct item {
    const char *name; /* inside tensor->name */
    const lily_tensor *tensor;
    bool used;
} item;

/* The model together with what it owns. */
typedef struct model_box {
    lily_model m;     /* first: a lily_model * is a model_box * */
    lily_arena arena; /* layers and vectors */
} model_box;

typedef struct binder {
    model_box *box;
    lily_layer *layers; /* m.layer, while it may be written */
    const lily_config *c;
    const lily_model_config *config;
    const char *folder; /* for sentences about what is absent */
    item *items;        /* by name */
    size_t n;
    bool raw; /* unconverted layout: the norms are zero-centred */
    lily_err *e;
} binder;

enum { MAX_NAME = 128 }; /* of the names that are looked for */

typedef struct shape {
    uint32_t rank;
    uint64_t dim[LILY_MAX_RANK];
} shape;

/* ---- finding ----------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const item *)a)->name, ((const item *)b)->name);
}

static int collect(binder *b, const lily_ckpt *ckpt)
{
    size_t count = lily_ckpt_count(ckpt);
    b->items = lily_calloc(count, sizeof *b->items);
    if (!b->items) return lily_no_memory(b->e, count * sizeof *b->items, "the tensors' names");
    for (size_t i = 0; i < count; i++) {
        const lily_tensor *t = lily_ckpt_at(ckpt, i);
        const char *name = NULL;
        switch (lily_tensor_name(t->name, &name)) {
        case LILY_TENSOR_TEXT:
            b->items[b->n++] = (item){name, t, false};
            break;
        case LILY_TENSOR_SKIPPED:
            b->box->m.n_skipped++;
            break;
        case LILY_TENSOR_UNKNOWN:
            return lily_fail(b->e, LILY_UNSUPPORTED, "%s: %s: a tensor that Lily does not know", t->file,
                             t->name);
        }
    }
    if (b->n) qsort(b->items, b->n, sizeof *b->items, by_name);
    for (size_t i = 0; i + 1 < b->n; i++)
        if (by_name(&b->items[i], &b->items[i + 1]) == 0)
            return lily_fail(b->e, LILY_FORMAT, "%s: %s: the same tensor as %s", b->items[i].tensor->file,
                             b->items[i].tensor->name, b->items[i + 1].tensor->name);
    return LILY_OK;
}

static item *find(const binder *b, const char *name)
{
    item key = {.name = name};
    return b->n ? bsearch(&key, b->items, b->n, sizeof key, by_name) : NULL;
}

/* Counts a tensor as used and as wholly read for every token; the caller corrects the latter where not. */
static const lily_tensor *use(binder *b, item *it)
{
    it->used = true;
    b->box->m.n_used++;
    b->box->m.weight_bytes += it->tensor->bytes;
    b->box->m.token_bytes += it->tensor->bytes;
    return it->tensor;
}

static int take(binder *b, const lily_tensor **t, const char *name)
{
    item *it = find(b, name);
    if (!it) return lily_fail(b->e, LILY_FORMAT, "%s: tensor %s is missing", b->folder, name);
    *t = use(b, it);
    return LILY_OK;
}

/* ---- shapes ------------------------------------------------------------------------ */

static void format_shape(char *out, size_t room, const uint64_t *dim, uint32_t rank)
{
    size_t at = 0;
    for (uint32_t i = 0; i < rank && at < room; i++)
        at += (size_t)snprintf(out + at, room - at, "%s%" PRIu64, i ? ", " : "", dim[i]);
    if (rank == 0) out[0] = 0;
}

static int check_shape(const binder *b, const lily_tensor *t, const shape *want)
{
    if (t->rank == want->rank && memcmp(t->dim, want->dim, want->rank * sizeof *t->dim) == 0) return LILY_OK;
    char found[LILY_MAX_RANK * 24], expected[LILY_MAX_RANK * 24];
    format_shape(found, sizeof found, t->dim, t->rank);
    format_shape(expected, sizeof expected, want->dim, want->rank);
    return lily_fail(b->e, LILY_FORMAT, "%s: %s: shape [%s], expected [%s]", t->file, t->name, found,
                     expected);
}

static int wrong_type(const binder *b, const lily_tensor *t, const char *expected)
{
    return lily_fail(b->e, LILY_UNSUPPORTED, "%s: %s: type %s, expected %s", t->file, t->name,
                     lily_dtype_name(t->dtype), expected);
}

/* ---- vectors ----------------------------------------------------------------------- */

/* A plain tensor as floats, `add` added to each. */
static int expand(binder *b, lily_vector *out, const lily_tensor *t, float add)
{
    if (t->dtype != LILY_BF16 && t->dtype != LILY_F32) return wrong_type(b, t, "BF16 or F32");
    size_t size = t->dtype == LILY_BF16 ? 2 : 4, n = (size_t)t->bytes / size;
    float *v = lily_arena_calloc(&b->box->arena, n, sizeof *v);
    if (!v) return lily_no_memory(b->e, n * sizeof *v, t->name);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = t->data + i * size;
        v[i] = (size == 2 ? lily_bf16_to_float(lily_load_u16(p)) : lily_bits_float(lily_load_u32(p))) + add;
    }
    *out = v;
    return LILY_OK;
}

static int bind_vector(binder *b, lily_vector *out, const char *name, uint32_t n, float add)
{
    const lily_tensor *t;
    TRY(take(b, &t, name));
    TRY(check_shape(b, t, &(shape){1, {n}}));
    return expand(b, out, t, add);
}

/* The original norm weights are zero-centred; the conversion stores them with 1 added. */
static int bind_norm(binder *b, lily_vector *out, const char *name, uint32_t n)
{
    return bind_vector(b, out, name, n, b->raw ? 1.0f : 0.0f);
}

/* [C, K, 1] as converted, [C, 1, K] as published by the makers: the same bytes. */
static int bind_conv(binder *b, lily_vector *out, const char *name)
{
    const lily_tensor *t;
    TRY(take(b, &t, name));
    uint32_t c = lily_conv_width(b->c), k = b->c->conv_kernel;
    TRY(check_shape(b, t, b->raw ? &(shape){3, {c, 1, k}} : &(shape){3, {c, k, 1}}));
    return expand(b, out, t, 0);
}

static int bind_decay(binder *b, lily_vector *out, const char *name)
{
    lily_vector a_log;
    TRY(bind_vector(b, &a_log, name, b->c->lin_v_heads, 0));
    float *decay = (float *)a_log;
    for (uint32_t i = 0; i < b->c->lin_v_heads; i++) decay[i] = (float)exp((double)a_log[i]);
    *out = decay;
    return LILY_OK;
}

/* ---- matrices ---------------------------------------------------------------------- */

/* What a matrix should be; experts 0: no stack, and the tensors have two dimensions. */
typedef struct matrix_size {
    uint32_t experts, rows, cols;
} matrix_size;

static shape matrix_shape(matrix_size s, uint32_t last)
{
    return s.experts ? (shape){3, {s.experts, s.rows, last}} : (shape){2, {s.rows, last}};
}

/* The width and group that config.json names must be those that the shapes give. */
static int check_quant(const binder *b, const lily_tensor *w, const lily_tensor *scales, lily_quant q,
                       matrix_size s)
{
    uint64_t words = w->rank ? w->dim[w->rank - 1] : 0;
    uint64_t groups = scales->rank ? scales->dim[scales->rank - 1] : 0;
    if (q.bits == 0)
        return lily_fail(b->e, LILY_FORMAT, "%s: %s is quantised, but config.json does not say how", w->file,
                         w->name);
    if (s.cols % q.group)
        return lily_fail(b->e, LILY_FORMAT, "%s: %s: %u columns are no whole number of groups of %u", w->file,
                         w->name, s.cols, q.group);
    for (uint64_t bits = 2; bits <= 8; bits++)
        if (bits != q.bits && words * 32 == s.cols * bits)
            return lily_fail(b->e, LILY_FORMAT, "%s: %s: %" PRIu64 " bits by its shape, %u by config.json",
                             w->file, w->name, bits, q.bits);
    for (uint64_t group = 16; group <= 256; group *= 2)
        if (group != q.group && groups * group == s.cols)
            return lily_fail(b->e, LILY_FORMAT,
                             "%s: %s: groups of %" PRIu64 " by its shape, %u by config.json", scales->file,
                             scales->name, group, q.group);
    return LILY_OK;
}

static int bind_quantised(binder *b, lily_matrix *m, const lily_tensor *w, const char *module, matrix_size s)
{
    char name[MAX_NAME];
    const lily_tensor *scales, *biases;
    snprintf(name, sizeof name, "%s.scales", module);
    TRY(take(b, &scales, name));
    snprintf(name, sizeof name, "%s.biases", module);
    TRY(take(b, &biases, name));
    lily_quant q = lily_config_quant(b->config, module);
    TRY(check_quant(b, w, scales, q, s));
    shape codes = matrix_shape(s, s.cols * q.bits / 32), groups = matrix_shape(s, s.cols / q.group);
    TRY(check_shape(b, w, &codes));
    TRY(check_shape(b, scales, &groups));
    TRY(check_shape(b, biases, &groups));
    if (scales->dtype != LILY_BF16) return wrong_type(b, scales, "BF16");
    if (biases->dtype != LILY_BF16) return wrong_type(b, biases, "BF16");
    m->scales = scales->data;
    m->biases = biases->data;
    m->bits = (uint16_t)q.bits;
    m->group = (uint16_t)q.group;
    return LILY_OK;
}

/* Where it lies; its bits are found by what follows. */
static lily_matrix place(const lily_tensor *w, matrix_size s)
{
    uint32_t experts = s.experts ? s.experts : 1;
    return (lily_matrix){
        .codes = w->data, .experts = experts, .rows = s.rows, .cols = s.cols, .step = s.rows};
}

static int bind_plain(binder *b, lily_matrix *m, const lily_tensor *w, matrix_size s)
{
    if (w->dtype != LILY_BF16 && w->dtype != LILY_F32) return wrong_type(b, w, "U32, BF16 or F32");
    m->bits = w->dtype == LILY_BF16 ? 16 : 32;
    shape plain = matrix_shape(s, s.cols);
    return check_shape(b, w, &plain);
}

static int bind_matrix(binder *b, lily_matrix *m, const char *module, matrix_size s)
{
    char name[MAX_NAME];
    const lily_tensor *w;
    snprintf(name, sizeof name, "%s.weight", module);
    TRY(take(b, &w, name));
    *m = place(w, s);
    return w->dtype == LILY_U32 ? bind_quantised(b, m, w, module, s) : bind_plain(b, m, w, s);
}

/* ---- layers ------------------------------------------------------------------------ */

/* Names inside a layer. */
#define LAYER_NAME(out, layer, inner) snprintf((out), MAX_NAME, "layers.%u.%s", (layer), (inner))

typedef struct matrix_spec {
    lily_matrix *to;
    const char *name;
    matrix_size size;
} matrix_spec;

static int bind_matrices(binder *b, uint32_t layer, const matrix_spec *list, size_t n)
{
    char name[MAX_NAME];
    for (size_t i = 0; i < n; i++) {
        LAYER_NAME(name, layer, list[i].name);
        TRY(bind_matrix(b, list[i].to, name, list[i].size));
    }
    return LILY_OK;
}

static int bind_delta_net(binder *b, uint32_t layer, lily_layer *l)
{
    const lily_config *c = b->c;
    uint32_t h = c->hidden, heads = c->lin_v_heads, value = lily_value_width(c);
    const matrix_spec list[] = {
        {&l->qkv, "linear_attn.in_proj_qkv", {0, lily_conv_width(c), h}},
        {&l->z, "linear_attn.in_proj_z", {0, value, h}},
        {&l->b, "linear_attn.in_proj_b", {0, heads, h}},
        {&l->a, "linear_attn.in_proj_a", {0, heads, h}},
        {&l->out, "linear_attn.out_proj", {0, h, value}},
    };
    TRY(bind_matrices(b, layer, list, sizeof list / sizeof *list));
    char name[MAX_NAME];
    LAYER_NAME(name, layer, "linear_attn.conv1d.weight");
    TRY(bind_conv(b, &l->conv, name));
    LAYER_NAME(name, layer, "linear_attn.A_log");
    TRY(bind_decay(b, &l->decay, name));
    LAYER_NAME(name, layer, "linear_attn.dt_bias");
    TRY(bind_vector(b, &l->dt_bias, name, heads, 0));
    LAYER_NAME(name, layer, "linear_attn.norm.weight");
    return bind_vector(b, &l->norm_gated, name, c->lin_v_dim, 0); /* never zero-centred */
}

static int bind_attention(binder *b, uint32_t layer, lily_layer *l)
{
    const lily_config *c = b->c;
    uint32_t h = c->hidden, q = lily_q_width(c), kv = lily_kv_width(c);
    const matrix_spec list[] = {
        {&l->q, "self_attn.q_proj", {0, 2 * q, h}},
        {&l->k, "self_attn.k_proj", {0, kv, h}},
        {&l->v, "self_attn.v_proj", {0, kv, h}},
        {&l->o, "self_attn.o_proj", {0, h, q}},
    };
    TRY(bind_matrices(b, layer, list, sizeof list / sizeof *list));
    char name[MAX_NAME];
    LAYER_NAME(name, layer, "self_attn.q_norm.weight");
    TRY(bind_norm(b, &l->norm_q, name, c->head_dim));
    LAYER_NAME(name, layer, "self_attn.k_norm.weight");
    return bind_norm(b, &l->norm_k, name, c->head_dim);
}

static int bind_routed(binder *b, uint32_t layer, lily_layer *l)
{
    uint32_t h = b->c->hidden, f = b->c->expert_inter, n = b->c->experts;
    const matrix_spec list[] = {
        {&l->ex_gate, "mlp.switch_mlp.gate_proj", {n, f, h}},
        {&l->ex_up, "mlp.switch_mlp.up_proj", {n, f, h}},
        {&l->ex_down, "mlp.switch_mlp.down_proj", {n, h, f}},
    };
    return bind_matrices(b, layer, list, sizeof list / sizeof *list);
}

/* The original files keep an expert's gate and up in one plain stack [E][2 F][H], the gate first. */
static bool has_fused_experts(const binder *b, uint32_t layer)
{
    char name[MAX_NAME];
    LAYER_NAME(name, layer, "mlp.experts.gate_up_proj");
    return find(b, name) != NULL;
}

static int bind_stack(binder *b, lily_matrix *m, uint32_t layer, const char *inner, matrix_size s)
{
    char name[MAX_NAME];
    const lily_tensor *w;
    LAYER_NAME(name, layer, inner);
    TRY(take(b, &w, name));
    *m = place(w, s);
    return bind_plain(b, m, w, s);
}

static int bind_fused(binder *b, uint32_t layer, lily_layer *l)
{
    uint32_t h = b->c->hidden, f = b->c->expert_inter, n = b->c->experts;
    lily_matrix both;
    TRY(bind_stack(b, &both, layer, "mlp.experts.gate_up_proj", (matrix_size){n, 2 * f, h}));
    both.rows = f;
    l->ex_gate = l->ex_up = both;
    l->ex_up.codes += f * lily_row_bytes(&both);
    return bind_stack(b, &l->ex_down, layer, "mlp.experts.down_proj", (matrix_size){n, h, f});
}

static int bind_experts(binder *b, uint32_t layer, lily_layer *l)
{
    const lily_config *c = b->c;
    uint32_t h = c->hidden, fs = c->shared_inter, n = c->experts;
    const matrix_spec every[] = {
        {&l->router, "mlp.gate", {0, n, h}},
        {&l->shared_gate, "mlp.shared_expert_gate", {0, 1, h}},
        {&l->sh_gate, "mlp.shared_expert.gate_proj", {0, fs, h}},
        {&l->sh_up, "mlp.shared_expert.up_proj", {0, fs, h}},
        {&l->sh_down, "mlp.shared_expert.down_proj", {0, h, fs}},
    };
    TRY(bind_matrices(b, layer, every, sizeof every / sizeof *every));
    uint64_t before = b->box->m.token_bytes;
    TRY(has_fused_experts(b, layer) ? bind_fused(b, layer, l) : bind_routed(b, layer, l));
    b->box->m.token_bytes = before + (b->box->m.token_bytes - before) / n * c->top_k;
    return LILY_OK;
}

static int bind_layer(binder *b, uint32_t layer)
{
    lily_layer *l = &b->layers[layer];
    char name[MAX_NAME];
    LAYER_NAME(name, layer, "input_layernorm.weight");
    TRY(bind_norm(b, &l->norm_mix, name, b->c->hidden));
    LAYER_NAME(name, layer, "post_attention_layernorm.weight");
    TRY(bind_norm(b, &l->norm_post, name, b->c->hidden));
    TRY(b->c->full_attention[layer] ? bind_attention(b, layer, l) : bind_delta_net(b, layer, l));
    return bind_experts(b, layer, l);
}

/* ---- the whole --------------------------------------------------------------------- */

/* The shape of a convolution alone tells whether a checkpoint was converted, whatever else it holds. */
static bool is_raw(const binder *b)
{
    for (uint32_t i = 0; i < b->c->layers; i++) {
        char name[MAX_NAME];
        LAYER_NAME(name, i, "linear_attn.conv1d.weight");
        const item *conv = b->c->full_attention[i] ? NULL : find(b, name);
        if (conv) return conv->tensor->rank == 3 && conv->tensor->dim[1] == 1 && conv->tensor->dim[2] != 1;
    }
    return false;
}

static int bind_ends(binder *b)
{
    lily_model *m = &b->box->m;
    const matrix_size size = {0, b->c->vocab, b->c->hidden};
    uint64_t before = m->token_bytes;
    TRY(bind_matrix(b, &m->embed, "embed_tokens", size));
    m->token_bytes = before + lily_matrix_bytes(&m->embed) / m->embed.rows; /* one row a token */
    TRY(bind_norm(b, &m->norm_final, "norm.weight", b->c->hidden));
    if (!b->c->tied) return bind_matrix(b, &m->head, "lm_head", size);
    m->head = m->embed;
    m->token_bytes += lily_matrix_bytes(&m->head);
    return LILY_OK;
}

/* A head beside tied embeddings is a copy of them; anything else left over is not this model. */
static int check_rest(binder *b)
{
    for (size_t i = 0; i < b->n; i++) {
        const item *it = &b->items[i];
        if (it->used) continue;
        if (!b->c->tied || strncmp(it->name, "lm_head.", 8) != 0)
            return lily_fail(b->e, LILY_UNSUPPORTED, "%s: %s: not a tensor of this model (%u layers)",
                             it->tensor->file, it->tensor->name, b->c->layers);
        b->box->m.n_skipped++;
    }
    return LILY_OK;
}

static int bind_all(binder *b, const lily_ckpt *ckpt)
{
    TRY(collect(b, ckpt));
    b->raw = is_raw(b);
    b->layers = lily_arena_calloc(&b->box->arena, b->c->layers, sizeof *b->layers);
    if (!b->layers) return lily_no_memory(b->e, b->c->layers * sizeof *b->layers, "the layers");
    b->box->m.layer = b->layers;
    TRY(bind_ends(b));
    for (uint32_t i = 0; i < b->c->layers; i++) TRY(bind_layer(b, i));
    return check_rest(b);
}

int lily_model_open(lily_model **out, const lily_ckpt *ckpt, const lily_model_config *config, lily_err *e)
{
    *out = NULL;
    model_box *box = lily_calloc(1, sizeof *box);
    if (!box) return lily_no_memory(e, sizeof *box, "a model");
    const lily_config *c = lily_config_numbers(config);
    box->m.config = c;
    binder b = {.box = box, .c = c, .config = config, .folder = lily_path_base(lily_ckpt_dir(ckpt)), .e = e};
    int rc = bind_all(&b, ckpt);
    lily_free(b.items);
    if (rc == LILY_OK)
        *out = &box->m;
    else
        lily_model_close(&box->m);
    return rc;
}

void lily_model_close(lily_model *m)
{
    if (!m) return;
    model_box *box = (model_box *)m;
    lily_arena_free(&box->arena);
    lily_free(box);
}
