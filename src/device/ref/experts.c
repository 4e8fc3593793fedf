/* experts.c - mixture of experts: a router, the routed experts, the shared one.  Formulas: docs/model.md.
 *
 * EGU, EH and ED have a row for each pair of a token and one of its experts.  In decode the rows are the
 * pairs in their order; in prefill they are sorted by expert. */
#include <math.h>
#include <string.h>

#include "device/ref/ref.h"

static const lily_layer *layer_of(const lily_run *r, uint16_t layer)
{
    return &r->model->layer[layer];
}

int ref_norm_post(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const uint32_t width = r->config->hidden;
    for (uint32_t t = 0; t < r->tokens; t++)
        ref_rms_norm(run_slot(r, SLOT_M) + (size_t)t * width, run_slot(r, SLOT_X) + (size_t)t * width,
                     layer_of(r, layer)->norm_post, width, r->config->eps);
    return LILY_OK;
}

int ref_router(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    ref_project(r, &layer_of(r, layer)->router, SLOT_M, r->config->hidden, SLOT_RL, r->config->experts, 0);
    return LILY_OK;
}

/* The softmax keeps the order of the logits and its sum cancels in the weights, so both are left out. */
int ref_topk(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    const lily_config *c = r->config;
    for (uint32_t t = 0; t < r->tokens; t++) {
        const float *logit = run_slot(r, SLOT_RL) + (size_t)t * c->experts;
        int32_t *id = run_ints(r, SLOT_TOPI) + (size_t)t * c->top_k;
        float *weight = run_slot(r, SLOT_TOPW) + (size_t)t * c->top_k;
        double sum = 0;
        for (uint32_t a = 0; a < c->top_k; a++) {
            int32_t best = -1;
            for (int32_t x = 0; x < (int32_t)c->experts; x++) {
                bool taken = false;
                for (uint32_t b = 0; b < a; b++) taken |= id[b] == x;
                if (!taken && (best < 0 || logit[x] > logit[best])) best = x;
            }
            id[a] = best;
            weight[a] = (float)exp((double)logit[best] - logit[id[0]]);
            sum += weight[a];
        }
        for (uint32_t a = 0; a < c->top_k; a++) weight[a] = (float)(weight[a] / sum);
    }
    return LILY_OK;
}

/* Indices come from slots: one that is out of range was lost on the way, and must not become an address. */
static int lost(lily_err *e, const char *what, int64_t value, uint16_t layer)
{
    return lily_fail(e, LILY_DEVICE, "ref: layer %u: %s %lld is out of range: its slot was overwritten",
                     layer, what, (long long)value);
}

static size_t pairs_of(const lily_run *r)
{
    return (size_t)r->tokens * r->config->top_k;
}

int ref_route_count(lily_run *r, uint16_t layer, lily_err *e)
{
    const int32_t *id = run_ints(r, SLOT_TOPI);
    int32_t *counts = run_ints(r, SLOT_COUNTS);
    memset(counts, 0, r->config->experts * sizeof *counts);
    for (size_t p = 0; p < pairs_of(r); p++) {
        if ((uint32_t)id[p] >= r->config->experts) return lost(e, "expert", id[p], layer);
        counts[id[p]]++;
    }
    return LILY_OK;
}

int ref_route_offsets(lily_run *r, uint16_t layer, lily_err *e)
{
    const int32_t *counts = run_ints(r, SLOT_COUNTS);
    int32_t *offsets = run_ints(r, SLOT_OFFSETS);
    int64_t at = 0;
    for (uint32_t x = 0; x < r->config->experts; x++) {
        offsets[x] = (int32_t)at;
        at += counts[x];
        if (counts[x] < 0 || at > (int64_t)pairs_of(r)) return lost(e, "count", counts[x], layer);
    }
    offsets[r->config->experts] = (int32_t)at;
    return LILY_OK;
}

int ref_route_scatter(lily_run *r, uint16_t layer, lily_err *e)
{
    const int32_t *id = run_ints(r, SLOT_TOPI), *offsets = run_ints(r, SLOT_OFFSETS);
    int32_t *order = run_ints(r, SLOT_ORDER), *place = run_ints(r, SLOT_PLACE);
    for (uint32_t x = 0; x < r->config->experts; x++) {
        int64_t row = offsets[x];
        for (size_t p = 0; p < pairs_of(r); p++) {
            if (id[p] != (int32_t)x) continue;
            if (row < 0 || row >= (int64_t)pairs_of(r)) return lost(e, "row", row, layer);
            order[row] = (int32_t)p;
            place[p] = (int32_t)row++;
        }
    }
    return LILY_OK;
}

/* The rows of EGU, EH and ED that belong to one expert. */
typedef struct expert_rows {
    uint32_t first, end;
} expert_rows;

static int rows_of_expert(lily_run *r, uint16_t layer, uint32_t expert, expert_rows *rows, lily_err *e)
{
    const int32_t *offsets = run_ints(r, SLOT_OFFSETS);
    *rows = (expert_rows){(uint32_t)offsets[expert], (uint32_t)offsets[expert + 1]};
    if (rows->first > rows->end || rows->end > pairs_of(r))
        return lost(e, "offset", offsets[expert + 1], layer);
    return LILY_OK;
}

/* One product for the rows of one expert: from `in`, a vector a token or a vector a row, to `out`. */
typedef struct expert_product {
    const lily_matrix *stack;
    unsigned in, out;
    uint32_t in_stride, out_stride, out_at;
    bool in_by_token;
} expert_product;

static int product_of_expert(lily_run *r, uint16_t layer, uint32_t expert, expert_rows rows,
                             const expert_product *p, lily_err *e)
{
    lily_exec *x = r->exec;
    const bool sorted = r->plan->mode == LILY_PREFILL;
    for (uint32_t i = rows.first; i < rows.end; i++) {
        uint32_t pair = sorted ? (uint32_t)run_ints(r, SLOT_ORDER)[i] : i;
        if (pair >= pairs_of(r)) return lost(e, "pair", (int32_t)pair, layer);
        x->in[i - rows.first] =
            run_slot(r, p->in) + (size_t)(p->in_by_token ? pair / r->config->top_k : i) * p->in_stride;
        x->out[i - rows.first] = run_slot(r, p->out) + (size_t)i * p->out_stride + p->out_at;
    }
    lily_matrix one = lily_expert(p->stack, expert);
    ref_product(&one, rows.end - rows.first, x->in, x->out, x->row);
    return LILY_OK;
}

static int routed_product(lily_run *r, uint16_t layer, const expert_product *p, lily_err *e)
{
    if (r->plan->mode == LILY_PREFILL) {
        for (uint32_t expert = 0; expert < r->config->experts; expert++) {
            expert_rows rows;
            TRY(rows_of_expert(r, layer, expert, &rows, e));
            TRY(product_of_expert(r, layer, expert, rows, p, e));
        }
        return LILY_OK;
    }
    for (uint32_t pair = 0; pair < pairs_of(r); pair++) {
        uint32_t expert = (uint32_t)run_ints(r, SLOT_TOPI)[pair];
        if (expert >= r->config->experts) return lost(e, "expert", (int32_t)expert, layer);
        TRY(product_of_expert(r, layer, expert, (expert_rows){pair, pair + 1}, p, e));
    }
    return LILY_OK;
}

int ref_exp_up(lily_run *r, uint16_t layer, lily_err *e)
{
    const lily_config *c = r->config;
    expert_product p = {.stack = &layer_of(r, layer)->ex_gate,
                        .in = SLOT_M,
                        .in_stride = c->hidden,
                        .in_by_token = true,
                        .out = SLOT_EGU,
                        .out_stride = 2 * c->expert_inter};
    TRY(routed_product(r, layer, &p, e));
    p.stack = &layer_of(r, layer)->ex_up;
    p.out_at = c->expert_inter;
    return routed_product(r, layer, &p, e);
}

/* h = silu(g) u for rows of [2][width] */
static void gated_unit(float *h, const float *gu, size_t rows, uint32_t width)
{
    for (size_t row = 0; row < rows; row++, h += width, gu += 2 * (size_t)width)
        for (uint32_t i = 0; i < width; i++) h[i] = ref_silu(gu[i]) * gu[width + i];
}

int ref_exp_act(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    gated_unit(run_slot(r, SLOT_EH), run_slot(r, SLOT_EGU), pairs_of(r), r->config->expert_inter);
    return LILY_OK;
}

int ref_exp_down(lily_run *r, uint16_t layer, lily_err *e)
{
    expert_product p = {.stack = &layer_of(r, layer)->ex_down,
                        .in = SLOT_EH,
                        .in_stride = r->config->expert_inter,
                        .out = SLOT_ED,
                        .out_stride = r->config->hidden};
    return routed_product(r, layer, &p, e);
}

int ref_sh_up(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    ref_project(r, &layer_of(r, layer)->sh_gate, SLOT_M, c->hidden, SLOT_SGU, 2 * c->shared_inter, 0);
    ref_project(r, &layer_of(r, layer)->sh_up, SLOT_M, c->hidden, SLOT_SGU, 2 * c->shared_inter,
                c->shared_inter);
    return LILY_OK;
}

int ref_sh_act(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    gated_unit(run_slot(r, SLOT_SH), run_slot(r, SLOT_SGU), r->tokens, r->config->shared_inter);
    return LILY_OK;
}

int ref_sh_down(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    ref_project(r, &layer_of(r, layer)->sh_down, SLOT_SH, c->shared_inter, SLOT_SD, c->hidden, 0);
    return LILY_OK;
}

int ref_sh_gate(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    ref_project(r, &layer_of(r, layer)->shared_gate, SLOT_M, r->config->hidden, SLOT_SG, 1, 0);
    for (uint32_t t = 0; t < r->tokens; t++) run_slot(r, SLOT_SG)[t] = ref_sigmoid(run_slot(r, SLOT_SG)[t]);
    return LILY_OK;
}

/* The experts are added in the order of their weights, wherever their rows lie. */
int ref_combine(lily_run *r, uint16_t layer, lily_err *e)
{
    const lily_config *c = r->config;
    const bool sorted = r->plan->mode == LILY_PREFILL;
    for (uint32_t t = 0; t < r->tokens; t++) {
        float *x = run_slot(r, SLOT_X) + (size_t)t * c->hidden;
        const float *shared = run_slot(r, SLOT_SD) + (size_t)t * c->hidden, gate = run_slot(r, SLOT_SG)[t];
        for (uint32_t a = 0; a < c->top_k; a++) {
            size_t pair = (size_t)t * c->top_k + a,
                   row = sorted ? (uint32_t)run_ints(r, SLOT_PLACE)[pair] : pair;
            if (row >= pairs_of(r)) return lost(e, "row", (int32_t)row, layer);
            const float *d = run_slot(r, SLOT_ED) + row * c->hidden, weight = run_slot(r, SLOT_TOPW)[pair];
            for (uint32_t i = 0; i < c->hidden; i++) x[i] += weight * d[i];
        }
        for (uint32_t i = 0; i < c->hidden; i++) x[i] += gate * shared[i];
    }
    return LILY_OK;
}
