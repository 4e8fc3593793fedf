/* ref.h - the reference device: every step of the model in plain C and float32, one row a step.
 *
 * It is the oracle of all other devices, so it is written to be read beside docs/model.md, and its bits depend
 * on nothing but the model and the tokens: not on how the tokens are cut into runs, not on the machine's
 * vector width (sums have a written-out order), not on memory that a plan has declared dead (filled with
 * not-a-numbers). */
#ifndef LILY_DEVICE_REF_REF_H
#define LILY_DEVICE_REF_REF_H

#include "device/host/run.h"

struct lily_dev {
    lily_newest newest;
};

/* Keys and values, [attention layers][keys, values] of [capacity][Hk][D]. */
struct lily_kv {
    uint32_t n_rows;
    float *rows[];
};

struct lily_exec {
    const lily_weights *weights;
    lily_scratch scratch;
    float *row;                 /* one dequantised row, as wide as the widest matrix */
    const float **in;           /* [max_tokens * A] vectors of a product, and */
    float **out;                /* where its results go */
    lily_watch_fn *watch;       /* may be NULL */
    void *watch_arg;
};

/* ---- steps: each performs its formula (model/steps.def) for all tokens of the run ---- */

/*  step           function       bytes of its own scratch */
#define REF_STEPS(X)                                                                                         \
    X(EMBED,         embed,         NULL)                                                                    \
    X(NORM_NEXT,     norm_next,     NULL)                                                                    \
    X(PROJ_QKV,      proj_qkv,      NULL)                                                                    \
    X(PROJ_Z,        proj_z,        NULL)                                                                    \
    X(PROJ_BA,       proj_ba,       NULL)                                                                    \
    X(CONV,          conv,          NULL)                                                                    \
    X(QK_L2,         qk_l2,         NULL)                                                                    \
    X(GATES,         gates,         NULL)                                                                    \
    X(GDN,           gdn,           NULL)                                                                    \
    X(GNORM,         gnorm,         NULL)                                                                    \
    X(PROJ_OUT,      proj_out,      NULL)                                                                    \
    X(PROJ_QG,       proj_qg,       NULL)                                                                    \
    X(PROJ_K,        proj_k,        NULL)                                                                    \
    X(PROJ_V,        proj_v,        NULL)                                                                    \
    X(QK_ROPE,       qk_rope,       NULL)                                                                    \
    X(KV_APPEND,     kv_append,     NULL)                                                                    \
    X(ATTN,          attn,          ref_attn_workspace)                                                      \
    X(O_GATE,        o_gate,        NULL)                                                                    \
    X(PROJ_O,        proj_o,        NULL)                                                                    \
    X(ADD_MIX,       add_mix,       NULL)                                                                    \
    X(NORM_POST,     norm_post,     NULL)                                                                    \
    X(ROUTER,        router,        NULL)                                                                    \
    X(TOPK,          topk,          NULL)                                                                    \
    X(ROUTE_COUNT,   route_count,   NULL)                                                                    \
    X(ROUTE_OFFSETS, route_offsets, NULL)                                                                    \
    X(ROUTE_SCATTER, route_scatter, NULL)                                                                    \
    X(EXP_UP,        exp_up,        NULL)                                                                    \
    X(EXP_ACT,       exp_act,       NULL)                                                                    \
    X(EXP_DOWN,      exp_down,      NULL)                                                                    \
    X(SH_UP,         sh_up,         NULL)                                                                    \
    X(SH_ACT,        sh_act,        NULL)                                                                    \
    X(SH_DOWN,       sh_down,       NULL)                                                                    \
    X(SH_GATE,       sh_gate,       NULL)                                                                    \
    X(COMBINE,       combine,       NULL)                                                                    \
    X(HEAD,          head,          ref_head_workspace)                                                      \
    X(SAMPLE,        sample,        ref_sample_workspace)                                                    \
    X(COMMIT,        commit,        NULL)

#define X(step, function, workspace) int ref_##function(lily_run *r, uint16_t layer, lily_err *e);
REF_STEPS(X)
#undef X

size_t ref_attn_workspace(const lily_dev *, const lily_config *, uint32_t tokens, uint32_t context);
size_t ref_head_workspace(const lily_dev *, const lily_config *, uint32_t tokens, uint32_t context);
size_t ref_sample_workspace(const lily_dev *, const lily_config *, uint32_t tokens, uint32_t context);

/* ---- what steps use ---- */

/* matrix.c */
float ref_dot(const float *a, const float *b, uint32_t n);
void ref_matrix_row(const lily_matrix *m, uint32_t row, float *w);      /* w[cols] */
/* y[i] = W x[i] for n vectors; each row is dequantised once. */
void ref_product(const lily_matrix *m, uint32_t n, const float *const *x, float *const *y, float *row);
/* The same from slot to slot: token t's vector begins at t * in_stride and its result at t * out_stride + out_at. */
void ref_project(lily_run *r, const lily_matrix *m, unsigned in, uint32_t in_stride, unsigned out, uint32_t out_stride,
                 uint32_t out_at);

/* math.c */
float ref_sigmoid(float x);
float ref_silu(float x);
/* y = x / sqrt(mean(x^2) + eps) * w; y may be x. */
void ref_rms_norm(float *y, const float *x, const float *w, uint32_t n, float eps);

/* state.c */
int ref_state_new(lily_dev *, const lily_weights *, lily_state **, lily_err *);
void ref_state_free(lily_dev *, lily_state *);
int ref_state_grow(lily_dev *, lily_state *, uint32_t context, lily_err *);
int ref_state_copy(lily_dev *, lily_state *dst, const lily_state *src, uint32_t position, lily_err *);
uint64_t ref_state_bytes(const lily_state *);
void ref_state_cost(const lily_config *, uint64_t *fixed, uint64_t *snapshot, uint64_t *per_token);
void ref_state_layout(const lily_dev *, char *text, size_t room);
int ref_rows_save(lily_dev *, const lily_state *, uint32_t from, uint32_t n, void *out, lily_err *);
int ref_rows_load(lily_dev *, lily_state *, uint32_t from, uint32_t n, const void *in, lily_err *);
int ref_peek_state(lily_dev *, const lily_state *, unsigned slot, uint16_t layer, float *dst, size_t room, size_t *n,
                   lily_err *);

/* run.c */
int ref_prepare(lily_dev *, const lily_weights *, const lily_plan *, lily_exec **, lily_err *);
void ref_release(lily_dev *, lily_exec *);
int ref_submit(lily_dev *, lily_exec *, enum lily_segment first, enum lily_segment last, const lily_lane *,
               uint32_t n_lanes, uint64_t *ticket, lily_err *);
int ref_wait(lily_dev *, uint64_t ticket, lily_done *, uint32_t n_lanes, lily_err *);
int ref_peek(lily_dev *, lily_exec *, unsigned slot, void *dst, size_t room, lily_err *);
void ref_watch(lily_exec *, lily_watch_fn *watch, void *arg);
int ref_poke(lily_dev *, lily_exec *, unsigned slot, const void *src, size_t bytes, lily_err *);

/* The step that a row performs. */
int ref_run_row(lily_run *r, uint16_t row, uint16_t layer, lily_err *e);

#endif
