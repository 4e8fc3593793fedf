/* rows_mixer.c - Gated DeltaNet and attention. */
#include "device/cuda/cuda.h"

static const cuda_layer *layer_of(const cuda_run *r, uint16_t layer) { return &r->weights->layer[layer]; }

/* A slot that the stage may not have: inside a fused row it has no place. */
static void *maybe(const cuda_run *r, unsigned slot)
{
    return r->plan->slot_at[slot] == LILY_NO_PLACE ? NULL : cuda_slot(r, slot);
}

/* ---- Gated DeltaNet ---- */

int cuda_row_delta_in(cuda_run *r, uint16_t layer, lily_err *e)
{
    const lily_config *c = r->config;
    const cuda_layer *y = layer_of(r, layer);
    cuda_target to[4];
    uint32_t n = 0;
    if (cuda_does(r, STEP_PROJ_QKV)) to[n++] = (cuda_target){&y->qkv, cuda_floats(r, SLOT_QKV), lily_conv_width(c)};
    if (cuda_does(r, STEP_PROJ_Z)) to[n++] = (cuda_target){&y->z, cuda_floats(r, SLOT_Z), lily_value_width(c)};
    if (cuda_does(r, STEP_PROJ_BA)) {
        to[n++] = (cuda_target){&y->b, cuda_floats(r, SLOT_BA), 2 * c->lin_v_heads};
        to[n++] = (cuda_target){&y->a, cuda_floats(r, SLOT_BA) + c->lin_v_heads, 2 * c->lin_v_heads};
    }
    return cuda_project_row(r, to, n, SLOT_N, e);
}

static cuda_delta delta_of(const cuda_run *r, uint16_t layer)
{
    const lily_config *c = r->config;
    const cuda_layer *y = layer_of(r, layer);
    return (cuda_delta){.lane = r->dev->lane,
                        .tail_at = cuda_tail_at(r->weights, layer),
                        .s_at = cuda_s_at(r->weights, layer),
                        .conv = y->conv,
                        .decay = y->decay,
                        .dt_bias = y->dt_bias,
                        .norm = y->norm_gated,
                        .qkv = maybe(r, SLOT_QKV),
                        .z = maybe(r, SLOT_Z),
                        .ba = maybe(r, SLOT_BA),
                        .u = maybe(r, SLOT_U),
                        .qk = maybe(r, SLOT_QK),
                        .g = maybe(r, SLOT_G),
                        .dn = maybe(r, SLOT_DN),
                        .dng = maybe(r, SLOT_DNG),
                        .squares = cuda_leaves_squares(r->plan) ? cuda_floats(r, SLOT_DNG) + lily_value_width(c) : NULL,
                        .tokens = r->tokens,
                        .k_heads = c->lin_k_heads,
                        .v_heads = c->lin_v_heads,
                        .dk = c->lin_k_dim,
                        .dv = c->lin_v_dim,
                        .taps = c->conv_kernel,
                        .hopper = r->dev->hopper,
                        .eps = c->eps,
                        .half = r->half};
}

#define DELTA_ROW(name)                                                                                      \
    int cuda_row_##name(cuda_run *r, uint16_t layer, lily_err *e)                                            \
    {                                                                                                        \
        const cuda_delta d = delta_of(r, layer);                                                             \
        CU(cuda_##name(&d, r->dev->stream));                                                                 \
        return LILY_OK;                                                                                      \
    }
DELTA_ROW(conv)
DELTA_ROW(qk_l2)
DELTA_ROW(gates)
DELTA_ROW(gdn)
DELTA_ROW(gnorm)

int cuda_row_scan(cuda_run *r, uint16_t layer, lily_err *e)
{
    const cuda_delta d = delta_of(r, layer);
    CU(cuda_delta_token(&d, cuda_overlaps(r), r->dev->stream));
    return LILY_OK;
}

size_t cuda_scan_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)d, (void)context;
    return cuda_delta_many_room(tokens, c->lin_k_heads, c->lin_v_heads);
}

int cuda_row_scan_many(cuda_run *r, uint16_t layer, lily_err *e)
{
    cuda_delta d = delta_of(r, layer);
    d.through_memory = r->plan->ablated & lily_bit(ABLATE_REGISTER_SCAN);
    CU(cuda_delta_many(&d, cuda_workspace(r), NULL, r->dev->stream));
    return LILY_OK;
}

size_t cuda_blocks_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    const size_t blocks = d->hopper ? cuda_delta_wgmma_room(tokens, c->lin_k_heads, c->lin_v_heads)
                                    : cuda_delta_chunk_room(tokens, c->lin_k_heads, c->lin_v_heads);
    return cuda_scan_workspace(d, c, tokens, context) + blocks;
}

int cuda_row_scan_blocks(cuda_run *r, uint16_t layer, lily_err *e)
{
    const lily_config *c = r->config;
    const cuda_delta d = delta_of(r, layer);
    uint8_t *work = cuda_workspace(r);
    CU(cuda_delta_many(&d, (float *)(void *)work, work + cuda_delta_many_room(r->tokens, c->lin_k_heads, c->lin_v_heads), r->dev->stream));
    return LILY_OK;
}

/* ---- gated attention ---- */

int cuda_row_attn_in(cuda_run *r, uint16_t layer, lily_err *e)
{
    const lily_config *c = r->config;
    const cuda_layer *y = layer_of(r, layer);
    cuda_target to[3];
    uint32_t n = 0;
    if (cuda_does(r, STEP_PROJ_QG)) to[n++] = (cuda_target){&y->q, cuda_floats(r, SLOT_QG), 2 * lily_q_width(c)};
    if (cuda_does(r, STEP_PROJ_K)) to[n++] = (cuda_target){&y->k, cuda_floats(r, SLOT_KP), lily_kv_width(c)};
    if (cuda_does(r, STEP_PROJ_V)) to[n++] = (cuda_target){&y->v, cuda_floats(r, SLOT_VP), lily_kv_width(c)};
    return cuda_project_row(r, to, n, SLOT_N, e);
}

static cuda_attention attention_of(const cuda_run *r, uint16_t layer)
{
    const lily_config *c = r->config;
    const cuda_layer *y = layer_of(r, layer);
    return (cuda_attention){.lane = r->dev->lane,
                            .layer = r->weights->nth[layer],
                            .norm_q = y->norm_q,
                            .norm_k = y->norm_k,
                            .frequency = r->weights->frequency,
                            .qg = maybe(r, SLOT_QG),
                            .kp = maybe(r, SLOT_KP),
                            .vp = maybe(r, SLOT_VP),
                            .q = maybe(r, SLOT_Q),
                            .k = maybe(r, SLOT_K),
                            .ao = maybe(r, SLOT_AO),
                            .aog = maybe(r, SLOT_AOG),
                            .tokens = r->tokens,
                            .q_heads = c->q_heads,
                            .kv_heads = c->kv_heads,
                            .dim = c->head_dim,
                            .rotary = c->rotary,
                            .eps = c->eps,
                            .half = r->half,
                            .hopper = r->dev->hopper};
}

#define ATTENTION_ROW(name, kernel)                                                                          \
    int cuda_row_##name(cuda_run *r, uint16_t layer, lily_err *e)                                            \
    {                                                                                                        \
        const cuda_attention a = attention_of(r, layer);                                                     \
        CU(kernel(&a, r->dev->stream));                                                                      \
        return LILY_OK;                                                                                      \
    }
ATTENTION_ROW(rope, cuda_qk_rope)
ATTENTION_ROW(append, cuda_kv_append)
ATTENTION_ROW(attn, cuda_attend)
ATTENTION_ROW(o_gate, cuda_o_gate)

size_t cuda_attn_token_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)d, (void)tokens, (void)context;
    return cuda_attend_token_room(c->q_heads);
}

int cuda_row_attn_token(cuda_run *r, uint16_t layer, lily_err *e)
{
    cuda_attention a = attention_of(r, layer);
    a.work = cuda_workspace(r);
    a.unpacked = r->plan->ablated & lily_bit(ABLATE_GQA_PACK);
    a.scattered = r->plan->ablated & lily_bit(ABLATE_KV_COALESCE);
    a.general = r->plan->ablated & lily_bit(ABLATE_FIXED_BLOCK);
    CU(cuda_attend_token(&a, cuda_overlaps(r), r->dev->stream));
    return LILY_OK;
}

int cuda_row_attn_many(cuda_run *r, uint16_t layer, lily_err *e)
{
    const cuda_attention a = attention_of(r, layer);
    CU(cuda_attend_many(&a, cuda_does(r, STEP_O_GATE), r->dev->stream));
    return LILY_OK;
}

/* ---- out of the mixer ---- */

/* The output projection of the layer's mixer, and the slot that it reads. */
static const cuda_matrix *mixer_out(const cuda_run *r, uint16_t layer, unsigned *in)
{
    const bool attention = cuda_does(r, STEP_PROJ_O);
    *in = attention ? SLOT_AOG : SLOT_DNG;
    return attention ? &layer_of(r, layer)->o : &layer_of(r, layer)->out;
}

int cuda_row_out(cuda_run *r, uint16_t layer, lily_err *e)
{
    unsigned in;
    const cuda_matrix *w = mixer_out(r, layer, &in);
    return cuda_project(r, w, in, cuda_floats(r, SLOT_MIX), r->config->hidden, 0, e);
}

int cuda_row_add(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    CU(cuda_add(cuda_floats(r, SLOT_X), cuda_floats(r, SLOT_MIX), (size_t)r->tokens * r->config->hidden, r->dev->stream));
    return LILY_OK;
}

int cuda_row_add_norm(cuda_run *r, uint16_t layer, lily_err *e)
{
    CU(cuda_add_norm(cuda_floats(r, SLOT_X), cuda_floats(r, SLOT_MIX), layer_of(r, layer)->norm_post, cuda_slot(r, SLOT_M),
                     r->config->hidden, r->tokens, r->config->eps, r->dev->stream));
    return LILY_OK;
}

/* Of one token on any card. */
int cuda_row_out_add(cuda_run *r, uint16_t layer, lily_err *e)
{
    unsigned in;
    const cuda_matrix *w = mixer_out(r, layer, &in);
    const cuda_gemv a = cuda_gemv_of(r, w, in);
    CU(cuda_gemv_add(&a, r->config->hidden, cuda_floats(r, SLOT_X), layer_of(r, layer)->norm_post, cuda_floats(r, SLOT_M),
                     r->dev->stream));
    return LILY_OK;
}

int cuda_row_out_norm(cuda_run *r, uint16_t layer, lily_err *e)
{
    unsigned in;
    const cuda_matrix *w = mixer_out(r, layer, &in);
    cuda_gemv a = cuda_gemv_of(r, w, in);
    a.n_sections = 1;
    a.section[0] = (cuda_section){NULL, 0, r->config->hidden};
    CU(cuda_gemv_residual(&a, cuda_floats(r, SLOT_X), layer_of(r, layer)->norm_post, cuda_floats(r, SLOT_M), cuda_overlaps(r),
                          r->dev->stream));
    return LILY_OK;
}
