/* mixer_delta.c - Gated DeltaNet: a causal convolution, then a matrix state for each head that forgets by g
 * and learns by the delta rule.  Formulas: docs/model.md. */
#include <math.h>
#include <string.h>

#include "device/ref/ref.h"

static const lily_layer *layer_of(const lily_run *r, uint16_t layer)
{
    return &r->model->layer[layer];
}

int ref_proj_qkv(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    ref_project(r, &layer_of(r, layer)->qkv, SLOT_N, c->hidden, SLOT_QKV, lily_conv_width(c), 0);
    return LILY_OK;
}

int ref_proj_z(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    ref_project(r, &layer_of(r, layer)->z, SLOT_N, c->hidden, SLOT_Z, lily_value_width(c), 0);
    return LILY_OK;
}

int ref_proj_ba(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    ref_project(r, &layer_of(r, layer)->b, SLOT_N, c->hidden, SLOT_BA, 2 * c->lin_v_heads, 0);
    ref_project(r, &layer_of(r, layer)->a, SLOT_N, c->hidden, SLOT_BA, 2 * c->lin_v_heads, c->lin_v_heads);
    return LILY_OK;
}

/* Input t of the convolution, t counted from the run's first token; negative ones lie in the tail. */
static const float *conv_input(const float *tail, const float *qkv, int64_t t, uint32_t back, uint32_t width)
{
    return t < 0 ? tail + (size_t)(t + back) * width : qkv + (size_t)t * width;
}

/* The K-1 newest inputs after `tokens` tokens of the run, oldest first; `to` may be the tail itself. */
static void save_tail(float *to, const float *tail, const float *qkv, uint32_t tokens, uint32_t back,
                      uint32_t width)
{
    for (uint32_t j = 0; j < back; j++)
        memmove(to + (size_t)j * width, conv_input(tail, qkv, (int64_t)tokens - back + j, back, width),
                width * sizeof *to);
}

int ref_conv(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_weights *w = r->weights;
    const uint32_t width = lily_conv_width(r->config), taps = r->config->conv_kernel, back = taps - 1;
    const float *kernel = layer_of(r, layer)->conv, *qkv = run_slot(r, SLOT_QKV);
    float *u = run_slot(r, SLOT_U), *tail = lily_state_tail(w, r->state->recurrent, layer);
    for (uint32_t t = 0; t < r->tokens; t++, u += width) {
        memset(u, 0, width * sizeof *u);
        for (uint32_t j = 0; j < taps; j++) { /* the last tap meets the newest input */
            const float *x = conv_input(tail, qkv, (int64_t)t - back + j, back, width);
            for (uint32_t i = 0; i < width; i++) u[i] += kernel[(size_t)i * taps + j] * x[i];
        }
        for (uint32_t i = 0; i < width; i++) u[i] = ref_silu(u[i]);
    }
    for (uint32_t m = 0; m < r->lane->n_marks; m++)
        save_tail(lily_state_tail(w, r->mark[m]->recurrent, layer), tail, qkv, r->lane->mark[m], back, width);
    save_tail(tail, tail, qkv, r->tokens, back, width);
    return LILY_OK;
}

/* The 1e-6 is added to the sum, not to the mean, and is no parameter of the model. */
static float inverse_length(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return (float)(1.0 / sqrt(sum + 1e-6));
}

int ref_qk_l2(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    const lily_config *c = r->config;
    const uint32_t dim = c->lin_k_dim, heads = 2 * c->lin_k_heads; /* q heads, then k heads, in U and in QK */
    const float q_scale = (float)(1.0 / sqrt(dim));
    for (uint32_t t = 0; t < r->tokens; t++) {
        const float *u = run_slot(r, SLOT_U) + (size_t)t * lily_conv_width(c);
        float *qk = run_slot(r, SLOT_QK) + (size_t)t * heads * dim;
        for (uint32_t h = 0; h < heads; h++, u += dim, qk += dim) {
            float scale = inverse_length(u, dim) * (h < c->lin_k_heads ? q_scale : 1.0f);
            for (uint32_t i = 0; i < dim; i++) qk[i] = u[i] * scale;
        }
    }
    return LILY_OK;
}

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

int ref_gates(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const uint32_t heads = r->config->lin_v_heads;
    const lily_layer *w = layer_of(r, layer);
    for (uint32_t t = 0; t < r->tokens; t++) {
        const float *b = run_slot(r, SLOT_BA) + (size_t)t * 2 * heads, *a = b + heads;
        float *beta = run_slot(r, SLOT_G) + (size_t)t * 2 * heads, *g = beta + heads;
        for (uint32_t h = 0; h < heads; h++) {
            beta[h] = ref_sigmoid(b[h]);
            g[h] = (float)exp(-w->decay[h] * softplus((double)a[h] + w->dt_bias[h]));
        }
    }
    return LILY_OK;
}

/* One token for one head: S [Dv][Dk] is scaled, corrected towards v at key k, and read at q. */
static void delta_rule(float *s, float *o, const float *q, const float *k, const float *v, float beta,
                       float g, uint32_t dv, uint32_t dk)
{
    for (uint32_t i = 0; i < dv; i++, s += dk) {
        for (uint32_t j = 0; j < dk; j++) s[j] *= g;
        float d = beta * (v[i] - ref_dot(s, k, dk));
        for (uint32_t j = 0; j < dk; j++) s[j] += d * k[j];
        o[i] = ref_dot(s, q, dk);
    }
}

int ref_gdn(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    const lily_weights *w = r->weights;
    const uint32_t dk = c->lin_k_dim, dv = c->lin_v_dim, share = c->lin_v_heads / c->lin_k_heads;
    const size_t one = (size_t)dv * dk;
    float *s = lily_state_s(w, r->state->recurrent, layer);
    for (uint32_t t = 0, mark = 0; t < r->tokens; t++) {
        const float *q = run_slot(r, SLOT_QK) + (size_t)t * 2 * lily_key_width(c), *k = q + lily_key_width(c);
        const float *v = run_slot(r, SLOT_U) + (size_t)t * lily_conv_width(c) + 2 * lily_key_width(c);
        const float *beta = run_slot(r, SLOT_G) + (size_t)t * 2 * c->lin_v_heads, *g = beta + c->lin_v_heads;
        float *o = run_slot(r, SLOT_DN) + (size_t)t * lily_value_width(c);
        for (uint32_t h = 0; h < c->lin_v_heads; h++)
            delta_rule(s + h * one, o + (size_t)h * dv, q + (size_t)(h / share) * dk,
                       k + (size_t)(h / share) * dk, v + (size_t)h * dv, beta[h], g[h], dv, dk);
        if (mark < r->lane->n_marks && r->lane->mark[mark] == t + 1)
            memcpy(lily_state_s(w, r->mark[mark++]->recurrent, layer), s, c->lin_v_heads * one * sizeof *s);
    }
    return LILY_OK;
}

int ref_gnorm(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    const uint32_t dim = c->lin_v_dim;
    for (size_t head = 0; head < (size_t)r->tokens * c->lin_v_heads; head++) {
        const float *z = run_slot(r, SLOT_Z) + head * dim;
        float *o = run_slot(r, SLOT_DNG) + head * dim;
        ref_rms_norm(o, run_slot(r, SLOT_DN) + head * dim, layer_of(r, layer)->norm_gated, dim, c->eps);
        for (uint32_t i = 0; i < dim; i++) o[i] *= ref_silu(z[i]);
    }
    return LILY_OK;
}

int ref_proj_out(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    ref_project(r, &layer_of(r, layer)->out, SLOT_DNG, lily_value_width(c), SLOT_MIX, c->hidden, 0);
    return LILY_OK;
}
