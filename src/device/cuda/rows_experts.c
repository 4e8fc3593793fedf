/* rows_experts.c - mixture of experts.  EGU, EH and ED have a row for each pair of a token and one of its experts; in
 * decode the rows are the pairs in their order, in prefill they are sorted by expert. */
#include <string.h>

#include "device/cuda/cuda.h"

static const cuda_layer *layer_of(const cuda_run *r, uint16_t layer) { return &r->weights->layer[layer]; }

static uint32_t pairs_of(const cuda_run *r) { return r->tokens * r->config->top_k; }

static bool is_sorted(const cuda_run *r) { return r->plan->mode == LILY_PREFILL; }

int cuda_row_router(cuda_run *r, uint16_t layer, lily_err *e)
{
    return cuda_project(r, &layer_of(r, layer)->router, SLOT_M, cuda_floats(r, SLOT_RL), r->config->experts, 0, e);
}

int cuda_row_topk(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    CU(cuda_topk(cuda_floats(r, SLOT_RL), cuda_ints(r, SLOT_TOPI), cuda_floats(r, SLOT_TOPW), r->tokens, r->config->experts,
                 r->config->top_k, r->dev->stream));
    return LILY_OK;
}

int cuda_row_count(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    CU(cuda_route_count(cuda_ints(r, SLOT_TOPI), cuda_ints(r, SLOT_COUNTS), pairs_of(r), r->config->experts, r->dev->stream));
    return LILY_OK;
}

int cuda_row_offsets(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    CU(cuda_route_offsets(cuda_ints(r, SLOT_COUNTS), cuda_ints(r, SLOT_OFFSETS), r->config->experts, r->dev->stream));
    return LILY_OK;
}

int cuda_row_scatter(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    CU(cuda_route_scatter(cuda_ints(r, SLOT_TOPI), cuda_ints(r, SLOT_OFFSETS), cuda_ints(r, SLOT_ORDER),
                          cuda_ints(r, SLOT_PLACE), pairs_of(r), r->config->experts, r->dev->stream));
    return LILY_OK;
}

int cuda_row_router_gate(cuda_run *r, uint16_t layer, lily_err *e)
{
    const cuda_layer *y = layer_of(r, layer);
    const cuda_target to[] = {{&y->router, cuda_floats(r, SLOT_RL), r->config->experts},
                              {&y->shared_gate, cuda_floats(r, SLOT_SG), 1}};
    TRY(cuda_project_row(r, to, 2, SLOT_M, e));
    CU(cuda_sigmoid(cuda_floats(r, SLOT_SG), r->tokens, r->dev->stream));
    return LILY_OK;
}

size_t cuda_route_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)d, (void)context;
    return cuda_route_room(tokens * c->top_k);
}

/* The control for sorting on the device: the choice comes to the host, which waits for it, and goes back sorted. */
static int route_on_host(cuda_run *r, int32_t *counts, lily_err *e)
{
    const uint32_t pairs = pairs_of(r), experts = r->config->experts;
    const size_t most = 3 * (size_t)r->plan->max_tokens * r->config->top_k + 2 * (size_t)experts + 1;
    if (!r->exec->routing) CU(cudaMallocHost((void **)&r->exec->routing, most * sizeof *r->exec->routing));
    int32_t *ids = r->exec->routing, *order = ids + pairs, *place = order + pairs, *offsets = place + pairs, *count = offsets + experts + 1;
    CU(cudaMemcpyAsync(ids, cuda_ints(r, SLOT_TOPI), pairs * sizeof *ids, cudaMemcpyDeviceToHost, r->dev->stream));
    CU(cudaStreamSynchronize(r->dev->stream));
    memset(count, 0, experts * sizeof *count);
    for (uint32_t p = 0; p < pairs; p++) count[ids[p]]++;
    offsets[0] = 0;
    for (uint32_t i = 0; i < experts; i++) offsets[i + 1] = offsets[i] + count[i];
    for (uint32_t p = 0; p < pairs; p++) {
        place[p] = offsets[ids[p]]++;
        order[place[p]] = (int32_t)p;
    }
    for (uint32_t i = experts; i > 0; i--) offsets[i] = offsets[i - 1];
    offsets[0] = 0;
    CU(cudaMemcpyAsync(cuda_ints(r, SLOT_OFFSETS), offsets, (experts + 1) * sizeof *offsets, cudaMemcpyHostToDevice, r->dev->stream));
    CU(cudaMemcpyAsync(cuda_ints(r, SLOT_ORDER), order, pairs * sizeof *order, cudaMemcpyHostToDevice, r->dev->stream));
    CU(cudaMemcpyAsync(cuda_ints(r, SLOT_PLACE), place, pairs * sizeof *place, cudaMemcpyHostToDevice, r->dev->stream));
    if (counts) CU(cudaMemcpyAsync(counts, count, experts * sizeof *count, cudaMemcpyHostToDevice, r->dev->stream));
    return LILY_OK;
}

int cuda_row_route(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    int32_t *counts = r->plan->slot_at[SLOT_COUNTS] == LILY_NO_PLACE ? NULL : cuda_ints(r, SLOT_COUNTS);
    if (r->plan->ablated & lily_bit(ABLATE_DEVICE_ROUTING)) return route_on_host(r, counts, e);
    CU(cuda_route(cuda_ints(r, SLOT_TOPI), counts, cuda_ints(r, SLOT_OFFSETS), cuda_ints(r, SLOT_ORDER), cuda_ints(r, SLOT_PLACE),
                  cuda_workspace(r), pairs_of(r), r->config->experts, r->dev->stream));
    return LILY_OK;
}

int cuda_row_combine_norm(cuda_run *r, uint16_t layer, lily_err *e)
{
    const lily_config *c = r->config;
    const uint16_t next = (uint16_t)(layer + 1);
    CU(cuda_combine_norm(cuda_floats(r, SLOT_X), cuda_slot(r, SLOT_ED), cuda_floats(r, SLOT_TOPW), cuda_ints(r, SLOT_PLACE),
                         cuda_floats(r, SLOT_SD), cuda_floats(r, SLOT_SG),
                         next < c->layers ? r->weights->layer[next].norm_mix : r->weights->norm_final, cuda_slot(r, SLOT_N),
                         r->tokens, c->top_k, c->hidden, c->eps, r->dev->stream));
    return LILY_OK;
}

/* ---- products of the routed experts ---- */

size_t cuda_map_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)d, (void)context;
    return cuda_gemm_room(tokens * c->top_k, c->experts);
}

/* Of one expert stack, from `in` (a vector a token, or one a row) to rows of `out`. */
static int routed(cuda_run *r, const cuda_matrix *w, unsigned in, bool by_token, float *out, size_t stride, size_t at,
                  lily_err *e)
{
    const uint32_t top_k = r->config->top_k;
    cuda_product_args a = {.w = *w, .in = cuda_slot(r, in), .out = out, .in_stride = w->cols, .out_stride = stride,
                           .out_at = at, .n = pairs_of(r), .divide = by_token ? top_k : 1, .eps = r->config->eps,
                           .half = r->half, .half_out = r->half && !by_token,
                           .norm_tail = by_token && r->plan->max_tokens == 1};
    if (is_sorted(r)) {
        a.offsets = cuda_ints(r, SLOT_OFFSETS);
        a.order = by_token ? cuda_ints(r, SLOT_ORDER) : NULL;
    } else {
        a.ids = cuda_ints(r, SLOT_TOPI);
    }
    CU(cuda_product(&a, r->dev->stream));
    return LILY_OK;
}

/* Can packed chunks be multiplied with many vectors? */
static bool takes_gemm(const cuda_run *r, const cuda_matrix *w) { return r->half && w->layout != CUDA_RAW && w->bits == 4; }

static cuda_gemm experts_gemm(const cuda_run *r, const cuda_matrix *w, unsigned in, bool by_token)
{
    return (cuda_gemm){.chunks = w->codes, .cols = w->cols, .blocks = w->blocks, .n_sections = 1, .in = cuda_slot(r, in),
                       .n = pairs_of(r), .experts = r->config->experts, .offsets = cuda_ints(r, SLOT_OFFSETS),
                       .order = by_token ? cuda_ints(r, SLOT_ORDER) : NULL, .divide = r->config->top_k,
                       .map = cuda_workspace(r), .bits = 4};
}

int cuda_row_exp_up(cuda_run *r, uint16_t layer, lily_err *e)
{
    const cuda_layer *y = layer_of(r, layer);
    const uint32_t inter = r->config->expert_inter;
    float *out = cuda_floats(r, SLOT_EGU);
    if (takes_gemm(r, &y->ex_gate) && is_sorted(r)) {
        cuda_gemm a = experts_gemm(r, &y->ex_gate, SLOT_M, true);
        a.section[0] = (cuda_section){out, 0, 2 * inter};
        a.stride[0] = 2 * (size_t)inter;
        a.pair = inter;
        return cuda_multiply(r, &a, e);
    }
    TRY(routed(r, &y->ex_gate, SLOT_M, true, out, 2 * (size_t)inter, 0, e));
    return routed(r, &y->ex_up, SLOT_M, true, out, 2 * (size_t)inter, inter, e);
}

int cuda_row_exp_act(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    CU(cuda_gated_unit(cuda_floats(r, SLOT_EGU), cuda_slot(r, SLOT_EH), pairs_of(r), r->config->expert_inter, r->half,
                       r->dev->stream));
    return LILY_OK;
}

int cuda_row_exp_down(cuda_run *r, uint16_t layer, lily_err *e)
{
    const cuda_matrix *w = &layer_of(r, layer)->ex_down;
    if (takes_gemm(r, w) && is_sorted(r)) {
        cuda_gemm a = experts_gemm(r, w, SLOT_EH, false);
        a.section[0] = (cuda_section){cuda_floats(r, SLOT_ED), 0, w->rows};
        a.stride[0] = w->rows;
        a.half = true;
        return cuda_multiply(r, &a, e);
    }
    return routed(r, w, SLOT_EH, false, cuda_floats(r, SLOT_ED), r->config->hidden, 0, e);
}

/* ---- the shared expert ---- */

static cuda_gemm shared_gemm(const cuda_run *r, const cuda_matrix *w)
{
    return (cuda_gemm){.chunks = w->codes, .cols = w->cols, .blocks = w->blocks, .n_sections = 1,
                       .in = cuda_slot(r, SLOT_M), .n = r->tokens, .bits = 4};
}

int cuda_row_sh_up(cuda_run *r, uint16_t layer, lily_err *e)
{
    const cuda_layer *y = layer_of(r, layer);
    const uint32_t inter = r->config->shared_inter;
    float *out = cuda_floats(r, SLOT_SGU);
    if (takes_gemm(r, &y->sh_gate)) {
        cuda_gemm a = shared_gemm(r, &y->sh_gate);
        a.section[0] = (cuda_section){out, 0, 2 * inter};
        a.stride[0] = 2 * (size_t)inter;
        a.pair = inter;
        return cuda_multiply(r, &a, e);
    }
    TRY(cuda_project(r, &y->sh_gate, SLOT_M, out, 2 * (size_t)inter, 0, e));
    return cuda_project(r, &y->sh_up, SLOT_M, out, 2 * (size_t)inter, inter, e);
}

int cuda_row_sh_act(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    CU(cuda_gated_unit(cuda_floats(r, SLOT_SGU), cuda_slot(r, SLOT_SH), r->tokens, r->config->shared_inter, r->half,
                       r->dev->stream));
    return LILY_OK;
}

int cuda_row_sh_down(cuda_run *r, uint16_t layer, lily_err *e)
{
    return cuda_project(r, &layer_of(r, layer)->sh_down, SLOT_SH, cuda_floats(r, SLOT_SD), r->config->hidden, 0, e);
}

int cuda_row_sh_gate(cuda_run *r, uint16_t layer, lily_err *e)
{
    TRY(cuda_project(r, &layer_of(r, layer)->shared_gate, SLOT_M, cuda_floats(r, SLOT_SG), 1, 0, e));
    CU(cuda_sigmoid(cuda_floats(r, SLOT_SG), r->tokens, r->dev->stream));
    return LILY_OK;
}

int cuda_row_combine(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    const lily_config *c = r->config;
    CU(cuda_combine(cuda_floats(r, SLOT_X), cuda_slot(r, SLOT_ED), r->half, cuda_floats(r, SLOT_TOPW),
                    is_sorted(r) ? cuda_ints(r, SLOT_PLACE) : NULL, cuda_floats(r, SLOT_SD), cuda_floats(r, SLOT_SG),
                    r->tokens, c->top_k, c->hidden, r->dev->stream));
    return LILY_OK;
}

/* Gate, up and activation of many tokens. */
int cuda_row_experts_up(cuda_run *r, uint16_t layer, lily_err *e)
{
    const cuda_layer *y = layer_of(r, layer);
    if (!r->half) return lily_fail(e, LILY_INTERNAL, "cuda: experts_up is a row of several tokens");
    cuda_gemm a = experts_gemm(r, &y->ex_gate, SLOT_M, true);
    a.epilogue = CUDA_GATED_UNIT;
    a.unit = cuda_slot(r, SLOT_EH);
    TRY(cuda_multiply(r, &a, e));
    a = shared_gemm(r, &y->sh_gate);
    a.epilogue = CUDA_GATED_UNIT;
    a.unit = cuda_slot(r, SLOT_SH);
    return cuda_multiply(r, &a, e);
}

/* ---- one token ---- */

/* Where a fused row keeps what is inside it. */
static cuda_moe_token token_of(const cuda_run *r, uint16_t layer)
{
    const lily_config *c = r->config;
    const cuda_layer *y = layer_of(r, layer);
    const uint16_t next = (uint16_t)(layer + 1);
    return (cuda_moe_token){.m = cuda_floats(r, SLOT_M),
                            .router = y->router.codes,
                            .shared_gate = y->shared_gate.codes,
                            .sh_up = y->sh_gate.codes,
                            .sh_down = y->sh_down.codes,
                            .ex_up = y->ex_gate.codes,
                            .ex_down = y->ex_down.codes,
                            .x = cuda_floats(r, SLOT_X),
                            .norm = next < c->layers ? r->weights->layer[next].norm_mix : r->weights->norm_final,
                            .n = cuda_floats(r, SLOT_N),
                            .hidden = c->hidden,
                            .experts = c->experts,
                            .top_k = c->top_k,
                            .inter = c->expert_inter,
                            .shared_inter = c->shared_inter,
                            .router_bits = y->router.bits,
                            .gate_bits = y->shared_gate.bits,
                            .patient = cuda_is_patient(r),
                            .eps = c->eps};
}

static cuda_moe_token token_in_slots(const cuda_run *r, uint16_t layer)
{
    cuda_moe_token a = token_of(r, layer);
    const struct {
        unsigned slot;
        void **at;
    } slots[] = {{SLOT_RL, (void **)&a.rl},     {SLOT_SG, (void **)&a.sg},     {SLOT_SH, (void **)&a.sh},
                 {SLOT_EH, (void **)&a.eh},     {SLOT_TOPI, (void **)&a.topi}, {SLOT_TOPW, (void **)&a.topw}};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        if (r->plan->slot_at[slots[i].slot] != LILY_NO_PLACE) *slots[i].at = cuda_slot(r, slots[i].slot);
    return a;
}

int cuda_row_route_token(cuda_run *r, uint16_t layer, lily_err *e)
{
    const cuda_moe_token a = token_in_slots(r, layer);
    CU(cuda_moe_route(&a, cuda_overlaps(r), r->dev->stream));
    return LILY_OK;
}

int cuda_row_up_token(cuda_run *r, uint16_t layer, lily_err *e)
{
    const cuda_moe_token a = token_in_slots(r, layer);
    CU(cuda_moe_up(&a, cuda_overlaps(r), r->dev->stream));
    return LILY_OK;
}

int cuda_row_down_token(cuda_run *r, uint16_t layer, lily_err *e)
{
    cuda_moe_token a = token_in_slots(r, layer);
    a.chosen = true;
    CU(cuda_moe_down(&a, cuda_overlaps(r), r->dev->stream));
    return LILY_OK;
}

/* On any card. */
int cuda_row_up_any(cuda_run *r, uint16_t layer, lily_err *e)
{
    const cuda_moe_token a = token_in_slots(r, layer);
    CU(cuda_moe_up_any(&a, r->dev->stream));
    return LILY_OK;
}

int cuda_row_down_any(cuda_run *r, uint16_t layer, lily_err *e)
{
    const cuda_moe_token a = token_in_slots(r, layer);
    CU(cuda_moe_down_any(&a, r->dev->stream));
    return LILY_OK;
}

enum { PAD = 64 };      /* floats: pieces of the workspace begin on lines of their own */
static size_t padded(size_t floats) { return (floats + PAD - 1) / PAD * PAD; }

size_t cuda_experts_token_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)d, (void)tokens, (void)context;
    return (padded(c->experts) + padded(1) + padded(c->shared_inter) + padded((size_t)c->top_k * c->expert_inter) +
            2 * padded(c->top_k)) * sizeof(float);
}

int cuda_row_experts_token(cuda_run *r, uint16_t layer, lily_err *e)
{
    const lily_config *c = r->config;
    cuda_moe_token a = token_of(r, layer);
    float *at = cuda_workspace(r);
    a.rl = at, at += padded(c->experts);
    a.sg = at, at += padded(1);
    a.sh = at, at += padded(c->shared_inter);
    a.eh = at, at += padded((size_t)c->top_k * c->expert_inter);
    a.topw = at, at += padded(c->top_k);
    a.topi = (int32_t *)(void *)at;
    CU(cuda_moe_route(&a, cuda_overlaps(r), r->dev->stream));
    CU(cuda_moe_up(&a, cuda_overlaps(r), r->dev->stream));
    CU(cuda_moe_down(&a, cuda_overlaps(r), r->dev->stream));
    return LILY_OK;
}
