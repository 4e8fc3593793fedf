/* mixer_attention.c - gated attention: few key heads, a rotation of the first part of each head, a gate on
 * the output.  Formulas: docs/model.md.
 *
 * The query heads that share a K/V head are attended together, and the positions go by in parts of fixed
 * place and size, each with a softmax of its own, merged in order.  A run of few tokens spreads the parts
 * over the threads, a longer one spreads blocks of tokens; the sums are the same. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"

enum {
    PART_PAGES = 4,     /* pages whose softmax is one part: 1,024 positions */
    SPLIT_TOKENS = 4,   /* plans of at most so many tokens keep every part's result */
    BLOCK_QUERIES = 64, /* query rows of a block of tokens */
};

/* ---- projections ---- */

/* Those of q with its gate, k and v that the row has. */
int cpu_attn_in(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    const lily_layer *w = cpu_layer(r, layer);
    cpu_target targets[CPU_MAX_TARGETS];
    uint32_t n = 0;
    if (cpu_does(r, STEP_PROJ_QG))
        targets[n++] = (cpu_target){&w->q, run_slot(r, SLOT_QG), 2 * lily_q_width(c)};
    if (cpu_does(r, STEP_PROJ_K)) targets[n++] = (cpu_target){&w->k, run_slot(r, SLOT_KP), lily_kv_width(c)};
    if (cpu_does(r, STEP_PROJ_V)) targets[n++] = (cpu_target){&w->v, run_slot(r, SLOT_VP), lily_kv_width(c)};
    cpu_products(r, run_slot(r, SLOT_N), r->tokens, targets, n, cpu_workspace(r));
    return LILY_OK;
}

size_t cpu_query_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)context;
    return cpu_packed_bytes(d, lily_q_width(c), tokens);
}

int cpu_proj_o(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    cpu_target out = {&cpu_layer(r, layer)->o, run_slot(r, SLOT_MIX), r->config->hidden};
    cpu_products(r, run_slot(r, SLOT_AOG), r->tokens, &out, 1, cpu_workspace(r));
    return LILY_OK;
}

/* ---- norm, rotation, cache ---- */

typedef struct attn_loop {
    lily_run *r;
    uint16_t layer;
} attn_loop;

/* One head, normed and rotated. */
static void norm_and_rotate(const lily_run *r, const float *from, lily_vector weight, size_t t, float *to)
{
    const lily_config *c = r->config;
    const float *cosine = r->exec->rope + t * c->rotary;
    r->dev->k->rmsnorm(from, weight, c->head_dim, c->eps, to);
    r->dev->k->rope(to, cosine, cosine + c->rotary / 2, c->rotary / 2);
}

static void store_row(const lily_run *r, uint16_t layer, unsigned which, uint32_t head, size_t t,
                      const float *row)
{
    const uint32_t dim = r->config->head_dim, position = r->first + (uint32_t)t;
    uint16_t *rows = cpu_page_rows(r->weights, r->state->kv->page[position / CPU_PAGE], layer, which, head);
    r->dev->k->to_bf16(row, dim, rows + (size_t)(position % CPU_PAGE) * dim);
}

/* A row that also appends to the cache has no slot for k: each thread holds one head. */
size_t cpu_rope_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)tokens, (void)context;
    return cpu_threads(d) * cpu_piece(c->head_dim * sizeof(float));
}

static void rope_tokens(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    const attn_loop *l = context;
    const lily_run *r = l->r;
    const lily_config *c = r->config;
    const lily_layer *w = cpu_layer(r, l->layer);
    const uint32_t dim = c->head_dim;
    float *held = (float *)(void *)(cpu_workspace(r) + thread * cpu_piece(dim * sizeof(float)));
    for (size_t t = begin; t < end; t++) {
        for (uint32_t h = 0; h < c->q_heads; h++)
            norm_and_rotate(r, run_slot(r, SLOT_QG) + (t * c->q_heads + h) * 2 * dim, w->norm_q, t,
                            run_slot(r, SLOT_Q) + (t * c->q_heads + h) * dim);
        for (uint32_t h = 0; h < c->kv_heads; h++) {
            const size_t at = (t * c->kv_heads + h) * dim;
            const bool append = cpu_does(r, STEP_KV_APPEND);
            float *k = append ? held : run_slot(r, SLOT_K) + at;
            norm_and_rotate(r, run_slot(r, SLOT_KP) + at, w->norm_k, t, k);
            if (!append) continue;
            store_row(r, l->layer, 0, h, t, k);
            store_row(r, l->layer, 1, h, t, run_slot(r, SLOT_VP) + at);
        }
    }
}

int cpu_qk_rope(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    attn_loop l = {r, layer};
    cpu_each_token(r, r->tokens, rope_tokens, &l);
    return LILY_OK;
}

int cpu_kv_append(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    for (size_t t = 0; t < r->tokens; t++)
        for (uint32_t h = 0; h < c->kv_heads; h++) {
            store_row(r, layer, 0, h, t, run_slot(r, SLOT_K) + (t * c->kv_heads + h) * c->head_dim);
            store_row(r, layer, 1, h, t, run_slot(r, SLOT_VP) + (t * c->kv_heads + h) * c->head_dim);
        }
    return LILY_OK;
}

/* ---- attention ---- */

static uint32_t query_share(const lily_config *c)
{
    return c->q_heads / c->kv_heads;
}

static uint32_t block_tokens(const lily_config *c)
{
    uint32_t n = BLOCK_QUERIES / query_share(c);
    return n ? n : 1;
}

static uint32_t n_parts(uint32_t context)
{
    return (context + PART_PAGES * CPU_PAGE - 1) / (PART_PAGES * CPU_PAGE);
}

static size_t softmax_bytes(const lily_config *c, uint32_t nq)
{
    return cpu_piece(2 * nq * sizeof(float)) + cpu_piece(nq * LILY_CPU_PAD8(c->head_dim) * sizeof(float));
}

static lily_cpu_softmax take_softmax(const lily_config *c, uint32_t nq, uint8_t **at)
{
    float *max = cpu_take(at, 2 * nq * sizeof(float));
    float *out = cpu_take(at, nq * LILY_CPU_PAD8(c->head_dim) * sizeof(float));
    return (lily_cpu_softmax){max, max + nq, out};
}

/* A thread's own memory: queries, limits, two softmax states, the kernel's scratch. */
static size_t thread_bytes(const lily_dev *d, const lily_config *c)
{
    uint32_t nq = block_tokens(c) * query_share(c);
    return cpu_piece(nq * LILY_CPU_PAD8(c->head_dim) * sizeof(float)) + cpu_piece(nq * sizeof(uint32_t)) +
           2 * softmax_bytes(c, nq) + cpu_piece(cpu_kernels(d)->attn_scratch(c->head_dim, nq));
}

size_t cpu_attn_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    size_t own = cpu_threads(d) * thread_bytes(d, c);
    if (tokens > SPLIT_TOKENS) return own;
    return own + (size_t)n_parts(context) * c->kv_heads * softmax_bytes(c, tokens * query_share(c));
}

/* Some tokens' queries of one K/V head. */
typedef struct queries {
    const lily_run *r;
    uint16_t layer;
    uint32_t head, t0, n_tokens;
    float *q;
    uint32_t *limit;
    lily_cpu_softmax total, part;
    void *scratch;
} queries;

static queries take_queries(const attn_loop *l, unsigned thread)
{
    const lily_config *c = l->r->config;
    uint32_t nq = block_tokens(c) * query_share(c);
    uint8_t *at = cpu_workspace(l->r) + thread * thread_bytes(l->r->dev, c);
    queries w = {.r = l->r, .layer = l->layer};
    w.q = cpu_take(&at, nq * LILY_CPU_PAD8(c->head_dim) * sizeof(float));
    w.limit = cpu_take(&at, nq * sizeof(uint32_t));
    w.total = take_softmax(c, nq, &at);
    w.part = take_softmax(c, nq, &at);
    w.scratch = at;
    return w;
}

/* Copies the queries, scaled, each padded to whole vectors. */
static void load_queries(queries *w, uint32_t head, uint32_t t0, uint32_t n_tokens)
{
    const lily_config *c = w->r->config;
    const uint32_t dim = c->head_dim, share = query_share(c);
    const size_t wide = LILY_CPU_PAD8(dim);
    const float scale = (float)(1.0 / sqrt(dim));
    w->head = head;
    w->t0 = t0;
    w->n_tokens = n_tokens;
    float *to = w->q;
    for (size_t t = t0; t < t0 + n_tokens; t++)
        for (uint32_t h = head * share; h < (head + 1) * share; h++, to += wide) {
            const float *from = run_slot(w->r, SLOT_Q) + (t * c->q_heads + h) * dim;
            for (uint32_t i = 0; i < dim; i++) to[i] = from[i] * scale;
            memset(to + dim, 0, (wide - dim) * sizeof *to);
        }
}

/* One part of the positions. */
static void attend_part(queries *w, uint32_t part, lily_cpu_softmax *soft)
{
    const lily_run *r = w->r;
    const lily_config *c = r->config;
    const uint32_t share = query_share(c), nq = w->n_tokens * share;
    const uint32_t context = r->first + w->t0 + w->n_tokens;
    lily_cpu_softmax_begin(soft, nq, c->head_dim);
    for (uint32_t p = part * PART_PAGES; p < (part + 1) * PART_PAGES && p * CPU_PAGE < context; p++) {
        uint32_t start = p * CPU_PAGE, left = context - start;
        cpu_page *page = r->state->kv->page[p];
        lily_cpu_span s = {cpu_page_rows(r->weights, page, w->layer, 0, w->head),
                           cpu_page_rows(r->weights, page, w->layer, 1, w->head), c->head_dim,
                           left < CPU_PAGE ? left : CPU_PAGE};
        for (uint32_t i = 0; i < nq; i++) {
            uint32_t sees = r->first + w->t0 + i / share + 1;
            w->limit[i] = sees <= start ? 0 : sees - start < CPU_PAGE ? sees - start : CPU_PAGE;
        }
        r->dev->k->attn_span(&s, w->q, w->limit, nq, c->head_dim, soft, w->scratch);
    }
}

/* The merged output to AO, or gated to AOG when the row has the gate. */
static void store_output(const queries *w, const lily_cpu_softmax *total)
{
    const lily_run *r = w->r;
    const lily_config *c = r->config;
    const uint32_t dim = c->head_dim, share = query_share(c);
    const size_t wide = LILY_CPU_PAD8(dim);
    for (uint32_t i = 0; i < w->n_tokens * share; i++) {
        size_t row = (size_t)(w->t0 + i / share) * c->q_heads + w->head * share + i % share;
        float *o = total->out + i * wide, inverse = 1.0f / total->sum[i];
        for (uint32_t j = 0; j < dim; j++) o[j] *= inverse;
        if (cpu_does(r, STEP_O_GATE))
            r->dev->k->sigmoid_mul(o, run_slot(r, SLOT_QG) + row * 2 * dim + dim, dim,
                                   run_slot(r, SLOT_AOG) + row * dim);
        else
            memcpy(run_slot(r, SLOT_AO) + row * dim, o, dim * sizeof *o);
    }
}

/* Items are (K/V head, block of tokens): all parts, one after the other. */
static void attend_blocks(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    const attn_loop *l = context;
    const lily_config *c = l->r->config;
    const uint32_t step = block_tokens(c), blocks = (l->r->tokens + step - 1) / step;
    queries w = take_queries(l, thread);
    for (uint32_t i = begin; i < end; i++) {
        /* The last blocks see the most positions: first the long work, then the short. */
        uint32_t t0 = (blocks - 1 - i / c->kv_heads) * step, left = l->r->tokens - t0;
        load_queries(&w, i % c->kv_heads, t0, left < step ? left : step);
        uint32_t nq = w.n_tokens * query_share(c);
        lily_cpu_softmax_begin(&w.total, nq, c->head_dim);
        for (uint32_t p = 0; p < n_parts(l->r->first + t0 + w.n_tokens); p++) {
            attend_part(&w, p, &w.part);
            lily_cpu_softmax_merge(&w.total, &w.part, nq, c->head_dim);
        }
        store_output(&w, &w.total);
    }
}

static uint8_t *part_memory(const lily_run *r, uint32_t part, uint32_t head)
{
    const lily_config *c = r->config;
    return cpu_workspace(r) + cpu_threads(r->dev) * thread_bytes(r->dev, c) +
           ((size_t)part * c->kv_heads + head) * softmax_bytes(c, r->tokens * query_share(c));
}

/* Items are (part, K/V head) for all tokens. */
static void attend_parts(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    const attn_loop *l = context;
    const lily_config *c = l->r->config;
    queries w = take_queries(l, thread);
    for (uint32_t i = begin; i < end; i++) {
        uint8_t *at = part_memory(l->r, i / c->kv_heads, i % c->kv_heads);
        lily_cpu_softmax soft = take_softmax(c, l->r->tokens * query_share(c), &at);
        load_queries(&w, i % c->kv_heads, 0, l->r->tokens);
        attend_part(&w, i / c->kv_heads, &soft);
    }
}

static void merge_parts(const attn_loop *l, uint32_t parts)
{
    const lily_config *c = l->r->config;
    const uint32_t nq = l->r->tokens * query_share(c);
    queries w = take_queries(l, 0);
    w.n_tokens = l->r->tokens;
    for (w.head = 0; w.head < c->kv_heads; w.head++) {
        lily_cpu_softmax_begin(&w.total, nq, c->head_dim);
        for (uint32_t p = 0; p < parts; p++) {
            uint8_t *at = part_memory(l->r, p, w.head);
            lily_cpu_softmax soft = take_softmax(c, nq, &at);
            lily_cpu_softmax_merge(&w.total, &soft, nq, c->head_dim);
        }
        store_output(&w, &w.total);
    }
}

int cpu_attn(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    attn_loop l = {r, layer};
    const lily_config *c = r->config;
    if (r->plan->max_tokens <= SPLIT_TOKENS && r->tokens <= block_tokens(c)) {
        uint32_t parts = n_parts(r->first + r->tokens);
        lily_pool_for(r->dev->pool, parts * c->kv_heads, 1, attend_parts, &l);
        merge_parts(&l, parts);
    } else {
        uint32_t step = block_tokens(c);
        lily_pool_for(r->dev->pool, (r->tokens + step - 1) / step * c->kv_heads, 1, attend_blocks, &l);
    }
    return LILY_OK;
}

static void gate_tokens(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    const lily_run *r = context;
    const size_t heads = r->config->q_heads, dim = r->config->head_dim;
    for (size_t i = begin * heads; i < end * heads; i++)
        r->dev->k->sigmoid_mul(run_slot(r, SLOT_AO) + i * dim, run_slot(r, SLOT_QG) + i * 2 * dim + dim,
                               (uint32_t)dim, run_slot(r, SLOT_AOG) + i * dim);
}

int cpu_o_gate(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    cpu_each_token(r, r->tokens, gate_tokens, r);
    return LILY_OK;
}
