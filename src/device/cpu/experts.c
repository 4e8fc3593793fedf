/* experts.c - mixture of experts: a router, the routed experts, the shared one.  Formulas: docs/model.md.
 *
 * EGU, EH and ED have a row for each pair of a token and one of its experts.  In decode the rows are the
 * pairs in their order; in prefill they are sorted by expert.  The fused rows always go expert by expert, in
 * the order of their numbers, and add the outputs in that order: a token's sum does not depend on its
 * company. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"

enum {
    PAIRS_AT_ONCE = 64, /* tokens of one expert that a thread's tile holds */
    UP_ROWS = 64,       /* rows of gate and of up in it */
    DOWN_ROWS = 64,
};

static uint32_t pairs_of(const lily_run *r)
{
    return r->tokens * r->config->top_k;
}

/* ---- norm, router, choice ---- */

int cpu_norm_post(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    cpu_norm(r, SLOT_X, SLOT_M, cpu_layer(r, layer)->norm_post);
    return LILY_OK;
}

int cpu_router(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    cpu_target out = {&cpu_layer(r, layer)->router, run_slot(r, SLOT_RL), r->config->experts};
    cpu_products(r, run_slot(r, SLOT_M), r->tokens, &out, 1, cpu_workspace(r));
    return LILY_OK;
}

static void choose_tokens(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    const lily_run *r = context;
    const lily_config *c = r->config;
    for (size_t t = begin; t < end; t++)
        r->dev->k->topk_softmax(run_slot(r, SLOT_RL) + t * c->experts, c->experts, c->top_k,
                                (uint32_t *)run_ints(r, SLOT_TOPI) + t * c->top_k,
                                run_slot(r, SLOT_TOPW) + t * c->top_k);
}

int cpu_topk(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    cpu_each_token(r, r->tokens, choose_tokens, r);
    return LILY_OK;
}

/* ---- pairs sorted by expert ---- */

static void count_pairs(const lily_run *r, int32_t *counts)
{
    const int32_t *id = run_ints(r, SLOT_TOPI);
    memset(counts, 0, r->config->experts * sizeof *counts);
    for (uint32_t p = 0; p < pairs_of(r); p++) counts[id[p]]++;
}

static void sum_counts(const lily_run *r, const int32_t *counts, int32_t *offsets)
{
    offsets[0] = 0;
    for (uint32_t x = 0; x < r->config->experts; x++) offsets[x + 1] = offsets[x] + counts[x];
}

/* order: row -> pair; place, when wanted: pair -> row.  next [E] is scratch. */
static void scatter_pairs(const lily_run *r, const int32_t *offsets, int32_t *next, int32_t *order,
                          int32_t *place)
{
    const int32_t *id = run_ints(r, SLOT_TOPI);
    memcpy(next, offsets, r->config->experts * sizeof *next);
    for (uint32_t p = 0; p < pairs_of(r); p++) {
        int32_t row = next[id[p]]++;
        order[row] = (int32_t)p;
        if (place) place[p] = row;
    }
}

int cpu_route_count(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    count_pairs(r, run_ints(r, SLOT_COUNTS));
    return LILY_OK;
}

int cpu_route_offsets(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    sum_counts(r, run_ints(r, SLOT_COUNTS), run_ints(r, SLOT_OFFSETS));
    return LILY_OK;
}

size_t cpu_scatter_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)d, (void)tokens, (void)context;
    return cpu_piece(c->experts * sizeof(int32_t));
}

int cpu_route_scatter(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    scatter_pairs(r, run_ints(r, SLOT_OFFSETS), (int32_t *)(void *)cpu_workspace(r), run_ints(r, SLOT_ORDER),
                  run_ints(r, SLOT_PLACE));
    return LILY_OK;
}

/* The pairs by expert, from the slots of prefill or made here.  row_of tells where a sorted pair's row lies
 * in EGU, EH and ED: where it stands in prefill, at the pair itself in decode. */
typedef struct sorted_pairs {
    const int32_t *offsets, *order;
    uint32_t *token, *row_of;   /* [T*A] of each sorted pair */
    uint32_t *active, n_active; /* the experts that have any */
} sorted_pairs;

static size_t sorted_bytes(const lily_config *c, uint32_t tokens)
{
    return 4 * cpu_piece((c->experts + 1) * sizeof(int32_t)) +
           3 * cpu_piece((size_t)tokens * c->top_k * sizeof(int32_t));
}

static sorted_pairs sort_pairs(const lily_run *r, uint8_t **at)
{
    const lily_config *c = r->config;
    const bool prefill = r->plan->mode == LILY_PREFILL;
    const size_t list = pairs_of(r) * sizeof(int32_t), table = (c->experts + 1) * sizeof(int32_t);
    int32_t *counts = cpu_take(at, table), *offsets = cpu_take(at, table), *next = cpu_take(at, table);
    int32_t *order = cpu_take(at, list);
    sorted_pairs s = {.offsets = offsets, .order = order};
    s.token = cpu_take(at, list);
    s.row_of = cpu_take(at, list);
    s.active = cpu_take(at, table);
    if (prefill) {
        s.offsets = run_ints(r, SLOT_OFFSETS);
        s.order = run_ints(r, SLOT_ORDER);
    } else {
        count_pairs(r, counts);
        sum_counts(r, counts, offsets);
        scatter_pairs(r, offsets, next, order, NULL);
    }
    for (uint32_t i = 0; i < pairs_of(r); i++) {
        s.token[i] = (uint32_t)s.order[i] / c->top_k;
        s.row_of[i] = prefill ? i : (uint32_t)s.order[i];
    }
    for (uint32_t x = 0; x < c->experts; x++)
        if (s.offsets[x] < s.offsets[x + 1]) s.active[s.n_active++] = x;
    return s;
}

/* ---- rows of single steps ---- */

/* One product of every pair with its expert: from a vector a token or a vector a row. */
typedef struct routed {
    const lily_run *r;
    const lily_matrix *stack;
    sorted_pairs pairs;
    lily_cpu_act act;
    const uint32_t *pick; /* the activation of each sorted pair */
    float *out;           /* row i's result begins at i * stride */
    size_t stride;
    float *tiles; /* [threads][PAIRS_AT_ONCE][DOWN_ROWS] */
} routed;

static uint32_t row_tiles(uint32_t rows, uint32_t at_once)
{
    return (rows + at_once - 1) / at_once;
}

static void routed_tiles(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    const routed *p = context;
    const uint32_t tiles = row_tiles(p->stack->rows, DOWN_ROWS);
    float *y = p->tiles + (size_t)thread * PAIRS_AT_ONCE * DOWN_ROWS;
    for (uint32_t i = begin; i < end; i++) {
        const uint32_t expert = p->pairs.active[i / tiles], row0 = i % tiles * DOWN_ROWS;
        const uint32_t rows = p->stack->rows - row0 < DOWN_ROWS ? p->stack->rows - row0 : DOWN_ROWS;
        const lily_matrix w = lily_expert(p->stack, expert);
        uint32_t to = (uint32_t)p->pairs.offsets[expert + 1];
        for (uint32_t s = (uint32_t)p->pairs.offsets[expert], n; s < to; s += n) {
            n = to - s < PAIRS_AT_ONCE ? to - s : PAIRS_AT_ONCE;
            p->r->dev->k->matmul(&w, row0, row0 + rows, &p->act, p->pick + s, n, y, DOWN_ROWS);
            for (uint32_t j = 0; j < n; j++)
                memcpy(p->out + p->pairs.row_of[s + j] * p->stride + row0, y + (size_t)j * DOWN_ROWS,
                       rows * sizeof *y);
        }
    }
}

static size_t tile_bytes(const lily_dev *d)
{
    return cpu_piece(cpu_threads(d) * (size_t)PAIRS_AT_ONCE * DOWN_ROWS * sizeof(float));
}

static void run_routed(routed *p, const lily_matrix *stack, float *out)
{
    p->stack = stack;
    p->out = out;
    lily_pool_for(p->r->dev->pool, p->pairs.n_active * row_tiles(stack->rows, DOWN_ROWS), 1, routed_tiles, p);
}

size_t cpu_exp_up_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)context;
    return cpu_packed_bytes(d, c->hidden, tokens) + sorted_bytes(c, tokens) + tile_bytes(d);
}

int cpu_exp_up(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    uint8_t *at = cpu_workspace(r), *packed = cpu_take(&at, cpu_packed_bytes(r->dev, c->hidden, r->tokens));
    routed p = {.r = r, .act = {run_slot(r, SLOT_M), packed}, .stride = 2 * (size_t)c->expert_inter};
    p.pairs = sort_pairs(r, &at);
    p.pick = p.pairs.token;
    p.tiles = cpu_take(&at, tile_bytes(r->dev));
    cpu_pack(r, p.act.x, c->hidden, r->tokens, packed);
    run_routed(&p, &cpu_layer(r, layer)->ex_gate, run_slot(r, SLOT_EGU));
    run_routed(&p, &cpu_layer(r, layer)->ex_up, run_slot(r, SLOT_EGU) + c->expert_inter);
    return LILY_OK;
}

size_t cpu_exp_down_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)context;
    return cpu_packed_bytes(d, c->expert_inter, (size_t)tokens * c->top_k) + sorted_bytes(c, tokens) +
           tile_bytes(d);
}

int cpu_exp_down(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    uint8_t *at = cpu_workspace(r);
    uint8_t *packed = cpu_take(&at, cpu_packed_bytes(r->dev, c->expert_inter, pairs_of(r)));
    routed p = {.r = r, .act = {run_slot(r, SLOT_EH), packed}, .stride = c->hidden};
    p.pairs = sort_pairs(r, &at);
    p.pick = p.pairs.row_of;
    p.tiles = cpu_take(&at, tile_bytes(r->dev));
    cpu_pack(r, p.act.x, c->expert_inter, pairs_of(r), packed);
    run_routed(&p, &cpu_layer(r, layer)->ex_down, run_slot(r, SLOT_ED));
    return LILY_OK;
}

/* h = silu(g) u for rows of [2][width] */
typedef struct gated_rows {
    const lily_cpu_kernels *k;
    const float *gu;
    float *h;
    uint32_t width;
} gated_rows;

static void gate_rows(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    const gated_rows *g = context;
    for (size_t i = begin; i < end; i++) {
        const float *gu = g->gu + i * 2 * g->width;
        g->k->silu_mul(gu, gu + g->width, g->width, g->h + i * g->width);
    }
}

int cpu_exp_act(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    gated_rows g = {r->dev->k, run_slot(r, SLOT_EGU), run_slot(r, SLOT_EH), r->config->expert_inter};
    cpu_each_token(r, pairs_of(r), gate_rows, &g);
    return LILY_OK;
}

int cpu_sh_up(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    const lily_layer *w = cpu_layer(r, layer);
    float *gu = run_slot(r, SLOT_SGU);
    cpu_target targets[] = {{&w->sh_gate, gu, 2 * (size_t)c->shared_inter},
                            {&w->sh_up, gu + c->shared_inter, 2 * (size_t)c->shared_inter}};
    cpu_products(r, run_slot(r, SLOT_M), r->tokens, targets, 2, cpu_workspace(r));
    return LILY_OK;
}

int cpu_sh_act(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    gated_rows g = {r->dev->k, run_slot(r, SLOT_SGU), run_slot(r, SLOT_SH), r->config->shared_inter};
    cpu_each_token(r, r->tokens, gate_rows, &g);
    return LILY_OK;
}

size_t cpu_sh_down_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)context;
    return cpu_packed_bytes(d, c->shared_inter, tokens);
}

int cpu_sh_down(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    cpu_target out = {&cpu_layer(r, layer)->sh_down, run_slot(r, SLOT_SD), r->config->hidden};
    cpu_products(r, run_slot(r, SLOT_SH), r->tokens, &out, 1, cpu_workspace(r));
    return LILY_OK;
}

/* One number a token into gates [T]. */
static void shared_gates(lily_run *r, uint16_t layer, float *gates, void *packed)
{
    cpu_target out = {&cpu_layer(r, layer)->shared_gate, gates, 1};
    cpu_products(r, run_slot(r, SLOT_M), r->tokens, &out, 1, packed);
    for (uint32_t t = 0; t < r->tokens; t++) gates[t] = (float)(1.0 / (1.0 + exp(-(double)gates[t])));
}

int cpu_sh_gate(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    shared_gates(r, layer, run_slot(r, SLOT_SG), cpu_workspace(r));
    return LILY_OK;
}

/* The experts are added in the order of their weights, wherever their rows lie. */
static void combine_tokens(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    const lily_run *r = context;
    const lily_config *c = r->config;
    const bool sorted = r->plan->mode == LILY_PREFILL;
    for (size_t t = begin; t < end; t++) {
        float *x = run_slot(r, SLOT_X) + t * c->hidden;
        for (size_t pair = t * c->top_k; pair < (t + 1) * c->top_k; pair++) {
            size_t row = sorted ? (uint32_t)run_ints(r, SLOT_PLACE)[pair] : pair;
            r->dev->k->axpy(run_slot(r, SLOT_TOPW)[pair], run_slot(r, SLOT_ED) + row * c->hidden, c->hidden,
                            x);
        }
        r->dev->k->axpy(run_slot(r, SLOT_SG)[t], run_slot(r, SLOT_SD) + t * c->hidden, c->hidden, x);
    }
}

int cpu_combine(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    cpu_each_token(r, r->tokens, combine_tokens, r);
    return LILY_OK;
}

/* ---- gate, up and activation of all experts ---- */

typedef struct up_loop {
    const lily_run *r;
    const lily_layer *w;
    sorted_pairs pairs;
    lily_cpu_act act;
    float *tiles; /* [threads][2][PAIRS_AT_ONCE][UP_ROWS] */
} up_loop;

/* Rows row0 … row0 + rows of the hidden layer of one expert for n <= PAIRS_AT_ONCE tokens; row_of NULL: in
 * order. */
static void up_tile(const up_loop *l, const lily_matrix *gate, const lily_matrix *up, uint32_t row0,
                    uint32_t rows, const uint32_t *pick, const uint32_t *row_of, uint32_t n, float *tile,
                    float *out)
{
    const lily_cpu_kernels *k = l->r->dev->k;
    float *g = tile, *u = tile + PAIRS_AT_ONCE * UP_ROWS;
    k->matmul(gate, row0, row0 + rows, &l->act, pick, n, g, UP_ROWS);
    k->matmul(up, row0, row0 + rows, &l->act, pick, n, u, UP_ROWS);
    for (uint32_t j = 0; j < n; j++)
        k->silu_mul(g + (size_t)j * UP_ROWS, u + (size_t)j * UP_ROWS, rows,
                    out + (size_t)(row_of ? row_of[j] : pick[j]) * gate->rows + row0);
}

static void up_expert(const up_loop *l, uint32_t expert, uint32_t row0, float *tile)
{
    const lily_matrix gate = lily_expert(&l->w->ex_gate, expert), up = lily_expert(&l->w->ex_up, expert);
    const uint32_t rows = gate.rows - row0 < UP_ROWS ? gate.rows - row0 : UP_ROWS;
    const uint32_t to = (uint32_t)l->pairs.offsets[expert + 1];
    for (uint32_t s = (uint32_t)l->pairs.offsets[expert], n; s < to; s += n) {
        n = to - s < PAIRS_AT_ONCE ? to - s : PAIRS_AT_ONCE;
        up_tile(l, &gate, &up, row0, rows, l->pairs.token + s, l->pairs.row_of + s, n, tile,
                run_slot(l->r, SLOT_EH));
    }
}

static void up_shared(const up_loop *l, uint32_t row0, float *tile)
{
    const lily_matrix *gate = &l->w->sh_gate, *up = &l->w->sh_up;
    const uint32_t rows = gate->rows - row0 < UP_ROWS ? gate->rows - row0 : UP_ROWS;
    uint32_t pick[PAIRS_AT_ONCE];
    for (uint32_t t = 0, n; t < l->r->tokens; t += n) {
        n = l->r->tokens - t < PAIRS_AT_ONCE ? l->r->tokens - t : PAIRS_AT_ONCE;
        for (uint32_t j = 0; j < n; j++) pick[j] = t + j;
        up_tile(l, gate, up, row0, rows, pick, NULL, n, tile, run_slot(l->r, SLOT_SH));
    }
}

/* Items are the row tiles of the shared expert, then those of every active one. */
static void up_tiles(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    const up_loop *l = context;
    const uint32_t shared = row_tiles(l->w->sh_gate.rows, UP_ROWS),
                   each = row_tiles(l->w->ex_gate.rows, UP_ROWS);
    float *tile = l->tiles + (size_t)thread * 2 * PAIRS_AT_ONCE * UP_ROWS;
    for (uint32_t i = begin; i < end; i++)
        if (i < shared)
            up_shared(l, i * UP_ROWS, tile);
        else
            up_expert(l, l->pairs.active[(i - shared) / each], (i - shared) % each * UP_ROWS, tile);
}

static size_t up_tile_bytes(const lily_dev *d)
{
    return cpu_piece(cpu_threads(d) * 2 * (size_t)PAIRS_AT_ONCE * UP_ROWS * sizeof(float));
}

size_t cpu_experts_up_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)context;
    return cpu_packed_bytes(d, c->hidden, tokens) + sorted_bytes(c, tokens) + up_tile_bytes(d);
}

int cpu_experts_up(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    uint8_t *at = cpu_workspace(r), *packed = cpu_take(&at, cpu_packed_bytes(r->dev, c->hidden, r->tokens));
    up_loop l = {.r = r, .w = cpu_layer(r, layer), .act = {run_slot(r, SLOT_M), packed}};
    l.pairs = sort_pairs(r, &at);
    l.tiles = cpu_take(&at, up_tile_bytes(r->dev));
    cpu_pack(r, l.act.x, c->hidden, r->tokens, packed);
    uint32_t items =
        row_tiles(c->shared_inter, UP_ROWS) + l.pairs.n_active * row_tiles(c->expert_inter, UP_ROWS);
    lily_pool_for(r->dev->pool, items, 1, up_tiles, &l);
    return LILY_OK;
}

/* ---- down, the shared expert's gate, and the sum onto the residual stream ---- */

typedef struct down_loop {
    const lily_run *r;
    const lily_layer *w;
    sorted_pairs pairs;
    lily_cpu_act routed, shared;
    const float *gates; /* [T] of the shared expert */
    float *tiles;       /* [threads][PAIRS_AT_ONCE][DOWN_ROWS] */
} down_loop;

static void down_expert(const down_loop *l, uint32_t expert, uint32_t row0, uint32_t rows, float *y)
{
    const lily_matrix w = lily_expert(&l->w->ex_down, expert);
    const uint32_t to = (uint32_t)l->pairs.offsets[expert + 1];
    for (uint32_t s = (uint32_t)l->pairs.offsets[expert], n; s < to; s += n) {
        n = to - s < PAIRS_AT_ONCE ? to - s : PAIRS_AT_ONCE;
        l->r->dev->k->matmul(&w, row0, row0 + rows, &l->routed, l->pairs.row_of + s, n, y, DOWN_ROWS);
        for (uint32_t j = 0; j < n; j++)
            l->r->dev->k->axpy(run_slot(l->r, SLOT_TOPW)[l->pairs.order[s + j]], y + (size_t)j * DOWN_ROWS,
                               rows, run_slot(l->r, SLOT_X) + (size_t)l->pairs.token[s + j] * w.rows + row0);
    }
}

/* Items are row tiles of the residual stream, for all tokens: who has one adds all experts to it in their
 * order. */
static void down_tiles(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    const down_loop *l = context;
    const lily_run *r = l->r;
    const uint32_t hidden = r->config->hidden;
    float *y = l->tiles + (size_t)thread * PAIRS_AT_ONCE * DOWN_ROWS;
    for (uint32_t i = begin; i < end; i++) {
        const uint32_t row0 = i * DOWN_ROWS, rows = hidden - row0 < DOWN_ROWS ? hidden - row0 : DOWN_ROWS;
        for (uint32_t x = 0; x < l->pairs.n_active; x++) down_expert(l, l->pairs.active[x], row0, rows, y);
        uint32_t pick[PAIRS_AT_ONCE];
        for (uint32_t t = 0, n; t < r->tokens; t += n) {
            n = r->tokens - t < PAIRS_AT_ONCE ? r->tokens - t : PAIRS_AT_ONCE;
            for (uint32_t j = 0; j < n; j++) pick[j] = t + j;
            r->dev->k->matmul(&l->w->sh_down, row0, row0 + rows, &l->shared, pick, n, y, DOWN_ROWS);
            for (uint32_t j = 0; j < n; j++)
                r->dev->k->axpy(l->gates[t + j], y + (size_t)j * DOWN_ROWS, rows,
                                run_slot(r, SLOT_X) + (size_t)(t + j) * hidden + row0);
        }
    }
}

size_t cpu_experts_down_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)context;
    return cpu_packed_bytes(d, c->expert_inter, (size_t)tokens * c->top_k) +
           cpu_packed_bytes(d, c->shared_inter, tokens) + cpu_packed_bytes(d, c->hidden, tokens) +
           cpu_piece(tokens * sizeof(float)) + sorted_bytes(c, tokens) + tile_bytes(d);
}

int cpu_experts_down(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    uint8_t *at = cpu_workspace(r);
    uint8_t *routed_packed = cpu_take(&at, cpu_packed_bytes(r->dev, c->expert_inter, pairs_of(r)));
    uint8_t *shared_packed = cpu_take(&at, cpu_packed_bytes(r->dev, c->shared_inter, r->tokens));
    uint8_t *gate_packed = cpu_take(&at, cpu_packed_bytes(r->dev, c->hidden, r->tokens));
    float *gates = cpu_take(&at, r->tokens * sizeof(float));
    down_loop l = {.r = r,
                   .w = cpu_layer(r, layer),
                   .routed = {run_slot(r, SLOT_EH), routed_packed},
                   .shared = {run_slot(r, SLOT_SH), shared_packed},
                   .gates = gates};
    l.pairs = sort_pairs(r, &at);
    l.tiles = cpu_take(&at, tile_bytes(r->dev));
    shared_gates(r, layer, gates, gate_packed);
    cpu_pack(r, l.routed.x, c->expert_inter, pairs_of(r), routed_packed);
    cpu_pack(r, l.shared.x, c->shared_inter, r->tokens, shared_packed);
    lily_pool_for(r->dev->pool, row_tiles(c->hidden, DOWN_ROWS), 1, down_tiles, &l);
    return LILY_OK;
}
