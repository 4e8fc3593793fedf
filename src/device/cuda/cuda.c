/* cuda.c - the CUDA device's rows and its place among the devices. */
#include "device/cuda/cuda.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define S(step) (1ull << STEP_##step)
#define OFF(switch) (1ull << ABLATE_##switch)

/* ---- where rows fit ---- */

/* bf16 products read packed chunks. */
static bool fits_packed(const lily_dev *d, const lily_config *c)
{
    (void)c;
    return d && d->packed;
}

/* Rows of one token copy them in bulk and begin early. */
static bool fits_token(const lily_dev *d, const lily_config *c) { return fits_packed(d, c) && d->hopper; }

static bool fits_scan(const lily_dev *d, const lily_config *c)
{
    (void)d;
    return c->lin_k_dim == 128 && c->lin_v_dim == 128 && c->conv_kernel == 4;
}

static bool fits_blocks(const lily_dev *d, const lily_config *c)
{
    return fits_scan(d, c) && c->lin_v_heads <= 2 * c->lin_k_heads && d &&
           d->props.sharedMemPerBlockOptin >= cuda_delta_chunk_shared();
}

static bool fits_attention(const lily_dev *d, const lily_config *c)
{
    (void)d;
    return c->head_dim == 256 && c->q_heads == 8 * c->kv_heads && c->rotary <= 256;
}

/* A lane has four columns and those that they are rotated with. */
static bool fits_token_attention(const lily_dev *d, const lily_config *c)
{
    return fits_attention(d, c) && c->rotary <= 128 && c->rotary % 8 == 0;
}

static bool fits_route(const lily_dev *d, const lily_config *c)
{
    (void)d;
    return c->experts <= CUDA_ROUTED;
}

static bool fits_norm(const lily_dev *d, const lily_config *c)
{
    (void)d;
    return c->hidden % 4 == 0 && c->hidden <= 8192;
}

/* ---- rows ---- */

/* Differences to ref, of the output's rms, beside the rounding of a bf16 result: bf16 operands of products, bf16 keys
 * and values, or another order.
 * ATTEND: queries and weights of attention in bf16 too, where a sharp softmax makes one value of thousands differ most.
 * UNIT: the product of two rounded sums, of which the largest are many times the rms. */
#define TOLERANCE_PRODUCT 4e-2f
#define TOLERANCE_ROUNDED 5e-2f
#define TOLERANCE_ATTEND  2e-1f
#define TOLERANCE_UNIT    1e-1f
#define TOLERANCE_ORDER   1e-4f
#define TOLERANCE_BITS    0
enum {
    EXACT_PRODUCT = LILY_LOWER_PRECISION,
    EXACT_ROUNDED = LILY_LOWER_PRECISION,
    EXACT_ATTEND = LILY_LOWER_PRECISION,
    EXACT_UNIT = LILY_LOWER_PRECISION,
    EXACT_ORDER = LILY_REORDERED,
    EXACT_BITS = LILY_SAME_BITS,
};
#define BOTH (LILY_DECODE | LILY_PREFILL)

/* name, steps, switches that remove it, modes, difference to ref, fits, function, workspace; preferred first */
#define CUDA_ROWS(X)                                                                                         \
    X(token_embed, S(EMBED) | S(NORM_NEXT), 0, LILY_DECODE, PRODUCT, fits_packed, cuda_row_embed_token, NULL) \
    X(token_out_norm, S(PROJ_OUT) | S(ADD_MIX) | S(NORM_POST), 0, LILY_DECODE,                               \
      PRODUCT, fits_token, cuda_row_out_norm, NULL)                                                         \
    X(token_o_norm, S(PROJ_O) | S(ADD_MIX) | S(NORM_POST), 0, LILY_DECODE,                                   \
      PRODUCT, fits_token, cuda_row_out_norm, NULL)                                                         \
    X(token_scan, S(CONV) | S(QK_L2) | S(GATES) | S(GDN) | S(GNORM), OFF(FUSE_SCAN_NORM), LILY_DECODE,       \
      ORDER, fits_scan, cuda_row_scan, NULL)                                                                 \
    X(token_attention, S(QK_ROPE) | S(KV_APPEND) | S(ATTN) | S(O_GATE),                                      \
      OFF(FUSE_QK) | OFF(FUSE_ATTN_GATE), LILY_DECODE,                                                       \
      ROUNDED, fits_token_attention, cuda_row_attn_token, cuda_attn_token_workspace)                               \
    X(token_experts, S(ROUTER) | S(TOPK) | S(EXP_UP) | S(EXP_ACT) | S(SH_UP) | S(SH_ACT) | S(SH_GATE) |      \
      S(EXP_DOWN) | S(SH_DOWN) | S(COMBINE) | S(NORM_NEXT), OFF(FUSE_EXPERT_UP) | OFF(FUSE_EXPERT_DOWN),     \
      LILY_DECODE, PRODUCT, fits_token, cuda_row_experts_token, cuda_experts_token_workspace)               \
    X(token_route, S(ROUTER) | S(SH_UP) | S(SH_ACT) | S(SH_GATE), OFF(FUSE_EXPERT_UP), LILY_DECODE,          \
      PRODUCT, fits_token, cuda_row_route_token, NULL)                                                      \
    X(token_experts_up, S(TOPK) | S(EXP_UP) | S(EXP_ACT), OFF(FUSE_EXPERT_UP), LILY_DECODE,                  \
      PRODUCT, fits_token, cuda_row_up_token, NULL)                                                         \
    X(token_experts_down, S(EXP_DOWN) | S(SH_DOWN) | S(COMBINE) | S(NORM_NEXT), OFF(FUSE_EXPERT_DOWN),       \
      LILY_DECODE, PRODUCT, fits_token, cuda_row_down_token, NULL)                                          \
    X(plain_out, S(PROJ_OUT) | S(ADD_MIX) | S(NORM_POST), 0, LILY_DECODE,                                    \
      PRODUCT, fits_packed, cuda_row_out_add, NULL)                                                          \
    X(plain_o, S(PROJ_O) | S(ADD_MIX) | S(NORM_POST), 0, LILY_DECODE,                                        \
      PRODUCT, fits_packed, cuda_row_out_add, NULL)                                                          \
    X(plain_up, S(EXP_UP) | S(EXP_ACT) | S(SH_UP) | S(SH_ACT), OFF(FUSE_EXPERT_UP), LILY_DECODE,             \
      PRODUCT, fits_packed, cuda_row_up_any, NULL)                                                           \
    X(plain_down, S(EXP_DOWN) | S(SH_DOWN) | S(COMBINE) | S(NORM_NEXT), OFF(FUSE_EXPERT_DOWN), LILY_DECODE,  \
      PRODUCT, fits_packed, cuda_row_down_any, NULL)                                                         \
    X(delta_in, S(PROJ_QKV) | S(PROJ_Z) | S(PROJ_BA), 0, BOTH,                                               \
      PRODUCT, fits_packed, cuda_row_delta_in, NULL)                                                         \
    X(attn_in, S(PROJ_QG) | S(PROJ_K) | S(PROJ_V), 0, BOTH,                                                  \
      PRODUCT, fits_packed, cuda_row_attn_in, NULL)                                                          \
    X(delta_blocks, S(CONV) | S(QK_L2) | S(GATES) | S(GDN) | S(GNORM), OFF(FUSE_SCAN_NORM) | OFF(MATRIX_SCAN), LILY_PREFILL, \
      PRODUCT, fits_blocks, cuda_row_scan_blocks, cuda_blocks_workspace)                                     \
    X(delta_scan, S(CONV) | S(QK_L2) | S(GATES) | S(GDN) | S(GNORM), OFF(FUSE_SCAN_NORM), LILY_PREFILL,      \
      PRODUCT, fits_scan, cuda_row_scan_many, cuda_scan_workspace)                                           \
    X(attention_gate, S(ATTN) | S(O_GATE), OFF(FUSE_ATTN_GATE), LILY_PREFILL,                                \
      ATTEND, fits_attention, cuda_row_attn_many, NULL)                                                     \
    X(attention, S(ATTN), 0, LILY_PREFILL, ATTEND, fits_attention, cuda_row_attn_many, NULL)                \
    X(add_norm, S(ADD_MIX) | S(NORM_POST), 0, LILY_PREFILL, PRODUCT, fits_norm, cuda_row_add_norm, NULL)     \
    X(router_gate, S(ROUTER) | S(SH_GATE), 0, BOTH, PRODUCT, fits_packed, cuda_row_router_gate, NULL) \
    X(route, S(ROUTE_COUNT) | S(ROUTE_OFFSETS) | S(ROUTE_SCATTER), 0, LILY_PREFILL,                          \
      BITS, fits_route, cuda_row_route, cuda_route_workspace)                                                 \
    X(combine_norm, S(COMBINE) | S(NORM_NEXT), OFF(FUSE_EXPERT_DOWN), LILY_PREFILL,                          \
      PRODUCT, fits_norm, cuda_row_combine_norm, NULL)                                                       \
    X(experts_up, S(EXP_UP) | S(EXP_ACT) | S(SH_UP) | S(SH_ACT), OFF(FUSE_EXPERT_UP), LILY_PREFILL,          \
      UNIT, fits_packed, cuda_row_experts_up, cuda_map_workspace)                                         \
    X(embed, S(EMBED), 0, BOTH, BITS, NULL, cuda_row_embed, NULL)                                            \
    X(norm_next, S(NORM_NEXT), 0, BOTH, PRODUCT, NULL, cuda_row_norm, NULL)                                  \
    X(proj_qkv, S(PROJ_QKV), 0, BOTH, PRODUCT, NULL, cuda_row_delta_in, NULL)                                \
    X(proj_z, S(PROJ_Z), 0, BOTH, PRODUCT, NULL, cuda_row_delta_in, NULL)                                    \
    X(proj_ba, S(PROJ_BA), 0, BOTH, PRODUCT, NULL, cuda_row_delta_in, NULL)                                  \
    X(conv, S(CONV), 0, BOTH, ORDER, NULL, cuda_row_conv, NULL)                                              \
    X(qk_l2, S(QK_L2), 0, BOTH, ORDER, NULL, cuda_row_qk_l2, NULL)                                           \
    X(gates, S(GATES), 0, BOTH, ORDER, NULL, cuda_row_gates, NULL)                                           \
    X(gdn, S(GDN), 0, BOTH, ORDER, NULL, cuda_row_gdn, NULL)                                                 \
    X(gnorm, S(GNORM), 0, BOTH, PRODUCT, NULL, cuda_row_gnorm, NULL)                                         \
    X(proj_out, S(PROJ_OUT), 0, BOTH, PRODUCT, NULL, cuda_row_out, NULL)                                     \
    X(proj_qg, S(PROJ_QG), 0, BOTH, PRODUCT, NULL, cuda_row_attn_in, NULL)                                   \
    X(proj_k, S(PROJ_K), 0, BOTH, PRODUCT, NULL, cuda_row_attn_in, NULL)                                     \
    X(proj_v, S(PROJ_V), 0, BOTH, PRODUCT, NULL, cuda_row_attn_in, NULL)                                     \
    X(qk_rope, S(QK_ROPE), 0, BOTH, ORDER, NULL, cuda_row_rope, NULL)                                        \
    X(kv_append, S(KV_APPEND), 0, BOTH, ROUNDED, NULL, cuda_row_append, NULL)                                \
    X(attn, S(ATTN), 0, BOTH, ROUNDED, NULL, cuda_row_attn, NULL)                                            \
    X(o_gate, S(O_GATE), 0, BOTH, PRODUCT, NULL, cuda_row_o_gate, NULL)                                      \
    X(proj_o, S(PROJ_O), 0, BOTH, PRODUCT, NULL, cuda_row_out, NULL)                                         \
    X(add_mix, S(ADD_MIX), 0, BOTH, BITS, NULL, cuda_row_add, NULL)                                          \
    X(norm_post, S(NORM_POST), 0, BOTH, PRODUCT, NULL, cuda_row_norm, NULL)                                  \
    X(router, S(ROUTER), 0, BOTH, PRODUCT, NULL, cuda_row_router, NULL)                                      \
    X(topk, S(TOPK), 0, BOTH, ORDER, NULL, cuda_row_topk, NULL)                                              \
    X(route_count, S(ROUTE_COUNT), 0, BOTH, BITS, NULL, cuda_row_count, NULL)                                \
    X(route_offsets, S(ROUTE_OFFSETS), 0, BOTH, BITS, NULL, cuda_row_offsets, NULL)                          \
    X(route_scatter, S(ROUTE_SCATTER), 0, BOTH, BITS, NULL, cuda_row_scatter, NULL)                          \
    X(exp_up, S(EXP_UP), 0, BOTH, PRODUCT, NULL, cuda_row_exp_up, cuda_map_workspace)                        \
    X(exp_act, S(EXP_ACT), 0, BOTH, PRODUCT, NULL, cuda_row_exp_act, NULL)                                   \
    X(exp_down, S(EXP_DOWN), 0, BOTH, PRODUCT, NULL, cuda_row_exp_down, cuda_map_workspace)                  \
    X(sh_up, S(SH_UP), 0, BOTH, PRODUCT, NULL, cuda_row_sh_up, NULL)                                         \
    X(sh_act, S(SH_ACT), 0, BOTH, PRODUCT, NULL, cuda_row_sh_act, NULL)                                      \
    X(sh_down, S(SH_DOWN), 0, BOTH, PRODUCT, NULL, cuda_row_sh_down, NULL)                                   \
    X(sh_gate, S(SH_GATE), 0, BOTH, PRODUCT, NULL, cuda_row_sh_gate, NULL)                                   \
    X(combine, S(COMBINE), 0, BOTH, PRODUCT, NULL, cuda_row_combine, NULL)                                     \
    X(head, S(HEAD), 0, BOTH, PRODUCT, NULL, cuda_row_head, cuda_head_workspace)                             \
    X(pick, S(SAMPLE) | S(COMMIT), 0, BOTH, BITS, NULL, cuda_row_pick, cuda_sample_workspace)                 \
    X(sample, S(SAMPLE), 0, BOTH, BITS, NULL, cuda_row_sample, cuda_sample_workspace)                        \
    X(commit, S(COMMIT), 0, BOTH, BITS, NULL, cuda_row_commit, NULL)

static const lily_row rows[] = {
#define X(row, set, switches, in_modes, difference, fit, function, bytes)                                    \
    {.name = #row, .steps = set, .off = switches, .modes = in_modes, .exact = EXACT_##difference,            \
     .tolerance = TOLERANCE_##difference, .min_tokens = (in_modes) == LILY_PREFILL ? 2 : 0, .fits = fit,     \
     .workspace = bytes},
    CUDA_ROWS(X)
#undef X
};

static cuda_row_fn *const functions[] = {
#define X(row, set, switches, in_modes, difference, fit, function, bytes) function,
    CUDA_ROWS(X)
#undef X
};

/* ---- switches ---- */

/* Beside those of rows: what reads plan->ablated.  With them there is nothing that it cannot do without. */
#define HEEDS                                                                                                \
    (OFF(OVERLAP) | OFF(WEIGHT_PREFETCH) | OFF(GRAPH) | OFF(TOKEN_HANDOFF) | OFF(ROW_GEMV) |                 \
     OFF(REGISTER_SCAN) | OFF(KV_COALESCE) | OFF(GQA_PACK) | OFF(FIXED_BLOCK) | OFF(FUSED_DEQUANT) |         \
     OFF(TILE_SELECT) | OFF(DEVICE_ROUTING))

bool cuda_leaves_squares(const lily_plan *p)
{
    for (uint32_t i = 0; i < p->n_stages; i++)
        if (functions[p->stages[i].row] == cuda_row_scan) return true;
    return false;
}

int cuda_run_row(cuda_run *r, lily_err *e) { return functions[r->stage->row](r, r->stage->layer, e); }

/* ---- life ---- */

int cuda_fail(lily_err *e, cudaError_t code, const char *what)
{
    (void)cudaGetLastError();
    return lily_fail(e, code == cudaErrorMemoryAllocation ? LILY_NO_MEMORY : LILY_DEVICE, "cuda: %s (%s)",
                     cudaGetErrorString(code), what);
}

static void cuda_close(lily_dev *d)
{
    if (!d) return;
    for (int i = 0; i < CUDA_ANSWERS; i++) {
        if (d->started[i]) cudaEventDestroy(d->started[i]);
        if (d->ended[i]) cudaEventDestroy(d->ended[i]);
        if (d->layer[i]) cudaEventDestroy(d->layer[i]);
    }
    cudaFree(d->lane);
    cudaFree(d->allow);
    cudaFree(d->bias);
    cudaFree(d->sink);
    cudaFree(d->expanded);
    cudaFreeHost(d->sending);
    cudaFreeHost(d->answer);
    if (d->stream) cudaStreamDestroy(d->stream);
    lily_free(d);
}

static int make_ready(lily_dev *d, lily_err *e)
{
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX;
    CU(cudaDeviceGetDefaultMemPool(&pool, d->index));
    CU(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    CU(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking));
    CU(cudaMalloc((void **)&d->lane, sizeof *d->lane));
    CU(cudaMemsetAsync(d->lane, 0, sizeof *d->lane, d->stream));
    CU(cudaMalloc((void **)&d->sink, sizeof *d->sink));
    CU(cudaMallocHost((void **)&d->sending, CUDA_ANSWERS * sizeof *d->sending));
    CU(cudaMallocHost((void **)&d->answer, CUDA_ANSWERS * sizeof *d->answer));
    for (int i = 0; i < CUDA_ANSWERS; i++) {
        CU(cudaEventCreate(&d->started[i]));
        CU(cudaEventCreate(&d->ended[i]));
        CU(cudaEventCreateWithFlags(&d->layer[i], cudaEventDisableTiming));
    }
    d->token_known = true;
    return LILY_OK;
}

static int cuda_open(lily_dev **out, const lily_dev_options *options, lily_err *e)
{
    *out = NULL;
    int driver;
    TRY(cuda_find_driver(&driver, e));
    lily_dev *d = lily_calloc(1, sizeof *d);
    if (!d) return lily_no_memory(e, sizeof *d, "device cuda");
    d->driver = driver;
    d->loading = options->loading;
    d->loading_user = options->user;
    int rc = cuda_find_card(d, options->which, e);
    if (rc == LILY_OK) rc = make_ready(d, e);
    if (rc != LILY_OK) {
        cuda_close(d);
        return rc;
    }
    *out = d;
    return LILY_OK;
}

static void cuda_describe(const lily_dev *d, char *text, size_t room, uint64_t *memory_total, uint64_t *memory_free)
{
    size_t free_bytes = 0, total = 0;
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) (void)cudaGetLastError();
    snprintf(text, room, "cuda: %s, compute capability %d.%d%s, driver for CUDA %d.%d", d->props.name, d->props.major,
             d->props.minor, d->props.major == 9 && !d->hopper ? ", portable" : "", d->driver / 1000, d->driver % 1000 / 10);
    *memory_total = total;
    *memory_free = free_bytes;
}

static void cuda_look(lily_dev *d, const lily_model *m) { d->packed = cuda_is_packed(m); }

const lily_dev_ops lily_dev_cuda = {
    .name = "cuda",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .heeds = HEEDS,
    .own_memory = true,
    .chunk = 4096,
    .slot_bytes = cuda_slot_bytes,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .look = cuda_look,
    .load = cuda_load,
    .unload = cuda_unload,
    .load_bytes = cuda_load_bytes,
    .prepare = cuda_prepare,
    .release = cuda_release,
    .state_new = cuda_state_new,
    .state_free = cuda_state_free,
    .state_grow = cuda_state_grow,
    .state_position = cuda_state_position,
    .state_positions = cuda_state_positions,
    .state_copy = cuda_state_copy,
    .state_drop = cuda_state_drop,
    .state_count_reset = cuda_state_count_reset,
    .state_bytes = cuda_state_bytes,
    .state_cost = cuda_state_cost,
    .state_layout = cuda_state_layout,
    .rows_save = cuda_rows_save,
    .rows_load = cuda_rows_load,
    .recurrent_save = cuda_recurrent_save,
    .recurrent_load = cuda_recurrent_load,
    .submit = cuda_submit,
    .wait = cuda_wait,
    .read_rate = cuda_read_rate,
    .peek = cuda_peek,
    .watch = cuda_watch,
    .poke = cuda_poke,
    .peek_state = cuda_peek_state,
};
