/* mixer_delta.c - Gated DeltaNet: a causal convolution, then a matrix state for each head that forgets by g
 * and learns by the delta rule.  Formulas: docs/model.md.
 *
 * A key head and the value heads that share it need nothing of the others from the convolution to the gated
 * norm, so cpu_delta_scan does all of it in one piece a key head, without a barrier.  The rows of single
 * steps run the same functions one after the other. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"

/* ---- projections ---- */

size_t cpu_hidden_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)context;
    return cpu_packed_bytes(d, c->hidden, tokens);
}

/* Those of qkv, z, b and a that the row has. */
int cpu_delta_in(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const lily_config *c = r->config;
    const lily_layer *w = cpu_layer(r, layer);
    cpu_target targets[CPU_MAX_TARGETS];
    uint32_t n = 0;
    if (cpu_does(r, STEP_PROJ_QKV))
        targets[n++] = (cpu_target){&w->qkv, run_slot(r, SLOT_QKV), lily_conv_width(c)};
    if (cpu_does(r, STEP_PROJ_Z))
        targets[n++] = (cpu_target){&w->z, run_slot(r, SLOT_Z), lily_value_width(c)};
    if (cpu_does(r, STEP_PROJ_BA)) {
        float *ba = run_slot(r, SLOT_BA);
        targets[n++] = (cpu_target){&w->b, ba, 2 * c->lin_v_heads};
        targets[n++] = (cpu_target){&w->a, ba + c->lin_v_heads, 2 * c->lin_v_heads};
    }
    cpu_products(r, run_slot(r, SLOT_N), r->tokens, targets, n, cpu_workspace(r));
    return LILY_OK;
}

size_t cpu_value_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)context;
    return cpu_packed_bytes(d, lily_value_width(c), tokens);
}

int cpu_proj_out(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    cpu_target out = {&cpu_layer(r, layer)->out, run_slot(r, SLOT_MIX), r->config->hidden};
    cpu_products(r, run_slot(r, SLOT_DNG), r->tokens, &out, 1, cpu_workspace(r));
    return LILY_OK;
}

static void add_tokens(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    const lily_run *r = context;
    for (size_t t = begin; t < end; t++) {
        float *x = run_slot(r, SLOT_X) + t * r->config->hidden;
        r->dev->k->add(x, run_slot(r, SLOT_MIX) + t * r->config->hidden, r->config->hidden, x);
    }
}

int cpu_add_mix(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    cpu_each_token(r, r->tokens, add_tokens, r);
    return LILY_OK;
}

/* ---- where the pieces of one key head lie, in slots or in a thread's own memory ---- */

typedef struct scan {
    const lily_run *r;
    uint16_t layer;
    float *u, *qk, *gates, *dn, *kq; /* [T] of the strides below; kq [Gk][T] or the thread's [T] */
    size_t u_stride, qk_stride, gates_stride, dn_stride;
    uint32_t head; /* the key head */
    bool own;      /* the pieces hold this head alone */
} scan;

static uint32_t value_share(const lily_config *c)
{
    return c->lin_v_heads / c->lin_k_heads;
}

/* Offsets of this head's q, k and v among the channels of QKV, and of U where that is shared. */
typedef struct channels {
    uint32_t q, k, v;
} channels;

static channels channels_of(const lily_config *c, uint32_t head)
{
    return (channels){head * c->lin_k_dim, lily_key_width(c) + head * c->lin_k_dim,
                      2 * lily_key_width(c) + head * value_share(c) * c->lin_v_dim};
}

static channels pieces_of(const scan *s)
{
    const lily_config *c = s->r->config;
    return s->own ? (channels){0, c->lin_k_dim, 2 * c->lin_k_dim} : channels_of(c, s->head);
}

/* ---- convolution ---- */

static void convolve(const scan *s, uint32_t from, uint32_t n, float *to)
{
    const lily_run *r = s->r;
    const lily_config *c = r->config;
    const float *tail = lily_state_tail(r->weights, r->state->recurrent, s->layer);
    r->dev->k->conv_silu(run_slot(r, SLOT_QKV), tail, cpu_layer(r, s->layer)->conv, c->conv_kernel,
                         lily_conv_width(c), from, from + n, r->tokens, to, s->u_stride);
}

static void convolve_head(const scan *s)
{
    const lily_config *c = s->r->config;
    channels from = channels_of(c, s->head), to = pieces_of(s);
    convolve(s, from.q, c->lin_k_dim, s->u + to.q);
    convolve(s, from.k, c->lin_k_dim, s->u + to.k);
    convolve(s, from.v, value_share(c) * c->lin_v_dim, s->u + to.v);
}

/* The K-1 newest inputs after `tokens` tokens of the run, oldest first; `to` may be the tail itself. */
static void save_tail(const lily_run *r, float *to, const float *tail, uint32_t tokens)
{
    const uint32_t width = lily_conv_width(r->config), back = r->config->conv_kernel - 1;
    for (uint32_t j = 0; j < back; j++) {
        int64_t t = (int64_t)tokens - back + j;
        const float *x =
            t < 0 ? tail + (size_t)(t + back) * width : run_slot(r, SLOT_QKV) + (size_t)t * width;
        memmove(to + (size_t)j * width, x, width * sizeof *to);
    }
}

static void save_tails(lily_run *r, uint16_t layer)
{
    const lily_weights *w = r->weights;
    float *tail = lily_state_tail(w, r->state->recurrent, layer);
    for (uint32_t m = 0; m < r->lane->n_marks; m++)
        save_tail(r, lily_state_tail(w, r->mark[m]->recurrent, layer), tail, r->lane->mark[m]);
    save_tail(r, tail, tail, r->tokens);
}

/* ---- norms and gates ---- */

/* The 1e-6 is added to the sum, not to the mean, and is no parameter of the model. */
static void normalise_head(const scan *s)
{
    const lily_run *r = s->r;
    const lily_config *c = r->config;
    const uint32_t dim = c->lin_k_dim, k_at = s->own ? dim : lily_key_width(c),
                   at = s->own ? 0 : s->head * dim;
    const channels from = pieces_of(s);
    for (size_t t = 0; t < r->tokens; t++) {
        float *q = s->qk + t * s->qk_stride + at;
        r->dev->k->l2norm(s->u + t * s->u_stride + from.q, dim, 1e-6f, (float)(1.0 / sqrt(dim)), q);
        r->dev->k->l2norm(s->u + t * s->u_stride + from.k, dim, 1e-6f, 1.0f, q + k_at);
    }
}

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* beta, then g, for value heads h0 … h1 of one token. */
static void gates_of(const lily_run *r, uint16_t layer, size_t t, uint32_t h0, uint32_t h1, float *beta,
                     float *g)
{
    const uint32_t heads = r->config->lin_v_heads;
    const lily_layer *w = cpu_layer(r, layer);
    const float *b = run_slot(r, SLOT_BA) + t * 2 * heads, *a = b + heads;
    for (uint32_t h = h0; h < h1; h++) {
        beta[h - h0] = (float)(1.0 / (1.0 + exp(-(double)b[h])));
        g[h - h0] = (float)exp(-w->decay[h] * softplus((double)a[h] + w->dt_bias[h]));
    }
}

/* ---- the recurrence ---- */

/* One value head; the state is copied where a mark stands. */
static void recur(const scan *s, uint32_t value_head)
{
    const lily_run *r = s->r;
    const lily_config *c = r->config;
    const lily_weights *w = r->weights;
    const uint32_t dk = c->lin_k_dim, dv = c->lin_v_dim, local = value_head - s->head * value_share(c);
    const channels in = pieces_of(s);
    const size_t state_at = (size_t)value_head * dv * dk, gate = s->own ? local : value_head;
    lily_cpu_delta d = {.state = lily_state_s(w, r->state->recurrent, s->layer) + state_at,
                        .dk = dk,
                        .dv = dv,
                        .q_stride = s->qk_stride,
                        .k_stride = s->qk_stride,
                        .v_stride = s->u_stride,
                        .gate_stride = s->gates_stride,
                        .out_stride = s->dn_stride};
    for (uint32_t t = 0, mark = 0; t < r->tokens; t += d.tokens) {
        uint32_t to = mark < r->lane->n_marks ? r->lane->mark[mark] : r->tokens;
        d.tokens = to - t;
        d.q = s->qk + t * s->qk_stride + (s->own ? 0 : s->head * dk);
        d.k = d.q + (s->own ? dk : lily_key_width(c));
        d.v = s->u + t * s->u_stride + in.v + local * dv;
        d.beta = s->gates + t * s->gates_stride + gate;
        d.decay = d.beta + (s->own ? value_share(c) : c->lin_v_heads);
        d.out = s->dn + t * s->dn_stride + gate * dv;
        d.kq = s->kq + t;
        r->dev->k->delta_rule(&d, 0, dv);
        if (mark < r->lane->n_marks) {
            memcpy(lily_state_s(w, r->mark[mark]->recurrent, s->layer) + state_at, d.state,
                   (size_t)dv * dk * sizeof(float));
            mark++;
        }
    }
}

static void recur_head(const scan *s)
{
    const lily_config *c = s->r->config;
    const uint32_t dk = c->lin_k_dim, share = value_share(c);
    for (size_t t = 0; t < s->r->tokens; t++) {
        const float *q = s->qk + t * s->qk_stride + (s->own ? 0 : s->head * dk);
        s->kq[t] = s->r->dev->k->dot(q, q + (s->own ? dk : lily_key_width(c)), dk);
    }
    for (uint32_t h = s->head * share; h < (s->head + 1) * share; h++) recur(s, h);
}

static void norm_head(const scan *s)
{
    const lily_run *r = s->r;
    const lily_config *c = r->config;
    const uint32_t dv = c->lin_v_dim, share = value_share(c), first = s->head * share;
    for (size_t t = 0; t < r->tokens; t++)
        for (uint32_t h = first; h < first + share; h++) {
            size_t at = t * lily_value_width(c) + h * dv;
            r->dev->k->gated_rmsnorm(s->dn + t * s->dn_stride + (s->own ? h - first : h) * dv,
                                     cpu_layer(r, s->layer)->norm_gated, run_slot(r, SLOT_Z) + at, dv, c->eps,
                                     run_slot(r, SLOT_DNG) + at);
        }
}

/* ---- rows of single steps: every head's pieces lie in the slots ---- */

static scan in_slots(lily_run *r, uint16_t layer)
{
    const lily_config *c = r->config;
    scan s = {.r = r, .layer = layer};
    s.u = run_slot(r, SLOT_U);
    s.u_stride = lily_conv_width(c);
    s.qk = run_slot(r, SLOT_QK);
    s.qk_stride = 2 * lily_key_width(c);
    s.gates = run_slot(r, SLOT_G);
    s.gates_stride = 2 * c->lin_v_heads;
    s.dn = run_slot(r, SLOT_DN);
    s.dn_stride = lily_value_width(c);
    return s;
}

typedef struct head_loop {
    scan s;
    void (*of_head)(const scan *);
    float *kq; /* [Gk][T], or NULL */
} head_loop;

static void loop_heads(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    head_loop *l = context;
    for (uint32_t h = begin; h < end; h++) {
        scan s = l->s;
        s.head = h;
        s.kq = l->kq ? l->kq + (size_t)h * s.r->tokens : NULL;
        l->of_head(&s);
    }
}

static int each_head(lily_run *r, uint16_t layer, void (*of_head)(const scan *), float *kq)
{
    head_loop l = {in_slots(r, layer), of_head, kq};
    lily_pool_for(r->dev->pool, r->config->lin_k_heads, 1, loop_heads, &l);
    return LILY_OK;
}

int cpu_conv(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    each_head(r, layer, convolve_head, NULL);
    save_tails(r, layer);
    return LILY_OK;
}

int cpu_qk_l2(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    return each_head(r, layer, normalise_head, NULL);
}

int cpu_gates(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const uint32_t heads = r->config->lin_v_heads;
    for (size_t t = 0; t < r->tokens; t++) {
        float *beta = run_slot(r, SLOT_G) + t * 2 * heads;
        gates_of(r, layer, t, 0, heads, beta, beta + heads);
    }
    return LILY_OK;
}

size_t cpu_gdn_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)d, (void)context;
    return cpu_piece((size_t)c->lin_k_heads * tokens * sizeof(float));
}

int cpu_gdn(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    return each_head(r, layer, recur_head, (float *)(void *)cpu_workspace(r));
}

int cpu_gnorm(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    return each_head(r, layer, norm_head, NULL);
}

/* ---- all of it, a key head at a time, in the thread's own memory ---- */

static size_t scan_floats(const lily_config *c)
{
    uint32_t share = value_share(c);
    return 4 * (size_t)c->lin_k_dim + 2 * (size_t)share * c->lin_v_dim + 2 * (size_t)share + 1;
}

size_t cpu_scan_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)context;
    return cpu_threads(d) * cpu_piece(scan_floats(c) * tokens * sizeof(float));
}

typedef struct scan_loop {
    lily_run *r;
    uint16_t layer;
} scan_loop;

static void scan_heads(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    const scan_loop *l = context;
    const lily_run *r = l->r;
    const lily_config *c = r->config;
    const uint32_t share = value_share(c);
    float *at =
        (float *)(void *)(cpu_workspace(r) + thread * cpu_piece(scan_floats(c) * r->tokens * sizeof(float)));
    scan s = {.r = r, .layer = l->layer, .own = true};
    s.u_stride = 2 * (size_t)c->lin_k_dim + (size_t)share * c->lin_v_dim;
    s.qk_stride = 2 * (size_t)c->lin_k_dim;
    s.dn_stride = (size_t)share * c->lin_v_dim;
    s.gates_stride = 2 * (size_t)share;
    s.u = at;
    s.qk = s.u + s.u_stride * r->tokens;
    s.dn = s.qk + s.qk_stride * r->tokens;
    s.gates = s.dn + s.dn_stride * r->tokens;
    s.kq = s.gates + s.gates_stride * r->tokens;
    for (s.head = begin; s.head < end; s.head++) {
        convolve_head(&s);
        normalise_head(&s);
        for (size_t t = 0; t < r->tokens; t++) {
            float *beta = s.gates + t * s.gates_stride;
            gates_of(r, s.layer, t, s.head * share, (s.head + 1) * share, beta, beta + share);
        }
        recur_head(&s);
        norm_head(&s);
    }
}

int cpu_delta_scan(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    scan_loop l = {r, layer};
    lily_pool_for(r->dev->pool, r->config->lin_k_heads, 1, scan_heads, &l);
    save_tails(r, layer);
    return LILY_OK;
}
