/* mixer_attention.c - gated attention: few key heads, a rotation of the first part of each head, a gate on
 * the output.  Formulas: docs/model.md. */
#include <math.h>
#include <string.h>

#include "device/ref/ref.h"

static const lily_layer *layer_of(const lily_run *r, uint16_t layer)
{
    return &r->model->layer[layer];
}

int ref_proj_qg(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    ref_project(r, &layer_of(r, layer)->q, SLOT_N, r->config->hidden, SLOT_QG, 2 * lily_q_width(r->config),
                0);
    return LILY_OK;
}

int ref_proj_k(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    ref_project(r, &layer_of(r, layer)->k, SLOT_N, r->config->hidden, SLOT_KP, lily_kv_width(r->config), 0);
    return LILY_OK;
}

int ref_proj_v(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    ref_project(r, &layer_of(r, layer)->v, SLOT_N, r->config->hidden, SLOT_VP, lily_kv_width(r->config), 0);
    return LILY_OK;
}

/* Rotates the pairs (i, i + R/2) of the first R elements by position * frequency[i].  Text has one position,
 * so the family's three interleaved position streams are this. */
static void rope(float *x, uint32_t position, const double *frequency, uint32_t rotary)
{
    uint32_t half = rotary / 2;
    for (uint32_t i = 0; i < half; i++) {
        double angle = position * frequency[i];
        float cosine = (float)cos(angle), sine = (float)sin(angle), a = x[i], b = x[i + half];
        x[i] = a * cosine - b * sine;
        x[i + half] = b * cosine + a * sine;
    }
}

int ref_qk_rope(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    const lily_layer *w = layer_of(r, layer);
    const double *frequency = r->weights->frequency;
    const uint32_t dim = c->head_dim;
    for (uint32_t t = 0; t < r->tokens; t++) {
        for (uint32_t h = 0; h < c->q_heads; h++) {
            float *q = run_slot(r, SLOT_Q) + ((size_t)t * c->q_heads + h) * dim;
            ref_rms_norm(q, run_slot(r, SLOT_QG) + ((size_t)t * c->q_heads + h) * 2 * dim, w->norm_q, dim,
                         c->eps);
            rope(q, r->first + t, frequency, c->rotary);
        }
        for (uint32_t h = 0; h < c->kv_heads; h++) {
            size_t at = ((size_t)t * c->kv_heads + h) * dim;
            float *k = run_slot(r, SLOT_K) + at;
            ref_rms_norm(k, run_slot(r, SLOT_KP) + at, w->norm_k, dim, c->eps);
            rope(k, r->first + t, frequency, c->rotary);
        }
    }
    return LILY_OK;
}

/* Keys and values of a layer's cache, [capacity][Hk][D] each. */
static float *const *cache_of(const lily_run *r, uint16_t layer)
{
    return r->state->kv->rows + 2 * r->weights->nth[layer];
}

int ref_kv_append(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    size_t width = lily_kv_width(r->config), bytes = r->tokens * width * sizeof(float);
    memcpy(cache_of(r, layer)[0] + r->first * width, run_slot(r, SLOT_K), bytes);
    memcpy(cache_of(r, layer)[1] + r->first * width, run_slot(r, SLOT_VP), bytes);
    return LILY_OK;
}

/* One query over positions 0 … n-1.  The weights are not kept: each position's score is computed twice, first
 * for the largest. */
static void attend(float *out, const float *q, const float *keys, const float *values, uint32_t n,
                   size_t stride, uint32_t dim, double *acc)
{
    const float scale = (float)(1.0 / sqrt(dim));
    float most = -INFINITY;
    for (uint32_t j = 0; j < n; j++) {
        float score = ref_dot(q, keys + j * stride, dim) * scale;
        if (!(score <= most)) most = score;
    }
    double sum = 0;
    memset(acc, 0, dim * sizeof *acc);
    for (uint32_t j = 0; j < n; j++) {
        double weight = exp((double)(ref_dot(q, keys + j * stride, dim) * scale) - most);
        const float *v = values + j * stride;
        sum += weight;
        for (uint32_t i = 0; i < dim; i++) acc[i] += weight * v[i];
    }
    for (uint32_t i = 0; i < dim; i++) out[i] = (float)(acc[i] / sum);
}

size_t ref_attn_workspace(const lily_dev *dev, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)dev, (void)tokens, (void)context;
    return c->head_dim * sizeof(double);
}

int ref_attn(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    const uint32_t dim = c->head_dim, share = c->q_heads / c->kv_heads;
    for (uint32_t t = 0; t < r->tokens; t++)
        for (uint32_t h = 0; h < c->q_heads; h++) {
            size_t at = ((size_t)t * c->q_heads + h) * dim, head = (size_t)(h / share) * dim;
            attend(run_slot(r, SLOT_AO) + at, run_slot(r, SLOT_Q) + at, cache_of(r, layer)[0] + head,
                   cache_of(r, layer)[1] + head, r->first + t + 1, lily_kv_width(c), dim, run_workspace(r));
        }
    return LILY_OK;
}

int ref_o_gate(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    const uint32_t dim = r->config->head_dim;
    for (size_t head = 0; head < (size_t)r->tokens * r->config->q_heads; head++) {
        const float *gate = run_slot(r, SLOT_QG) + head * 2 * dim + dim;
        const float *o = run_slot(r, SLOT_AO) + head * dim;
        float *to = run_slot(r, SLOT_AOG) + head * dim;
        for (uint32_t i = 0; i < dim; i++) to[i] = o[i] * ref_sigmoid(gate[i]);
    }
    return LILY_OK;
}

int ref_proj_o(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    ref_project(r, &layer_of(r, layer)->o, SLOT_AOG, lily_q_width(r->config), SLOT_MIX, r->config->hidden, 0);
    return LILY_OK;
}

int ref_add_mix(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    float *x = run_slot(r, SLOT_X);
    const float *mix = run_slot(r, SLOT_MIX);
    for (size_t i = 0; i < (size_t)r->tokens * r->config->hidden; i++) x[i] += mix[i];
    return LILY_OK;
}
