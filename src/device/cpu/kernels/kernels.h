/* kernels.h - what the CPU computes, as pure functions behind one table per instruction set.
 *
 * A kernel touches only what it is given: no allocation, no threads, no state.  The device cuts the work
 * (rows, heads, tokens) and calls kernels from its threads.  kernels/portable.c and kernels/avx2.c each
 * fill one table from the same sources (vec.h is the only difference), plus what an instruction set does
 * its own way.  A further set is one more such file and one more line in select.c.
 *
 * Every kernel gives a token the same bits however many tokens it is given at once, so that prompt chunks,
 * decoding and a reused prefix agree.  Sums run in a fixed order: eight lanes, then hsum (vec.h). */
#ifndef LILY_DEVICE_CPU_KERNELS_H
#define LILY_DEVICE_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/weights.h"

/* Activations [n][cols] in both forms that products read: plain, and packed for 4-bit matrices. */
typedef struct lily_cpu_act {
    const float *x;            /* [n][cols] */
    const uint8_t *packed;     /* [n] records of packed_bytes(cols), aligned to 32; needed for 4-bit matrices only */
} lily_cpu_act;

#define LILY_CPU_ROW_TILE 32   /* rows that a product does at once; ranges cut at multiples of it run best */

/* Attention of some queries that share one K/V head over one span of positions. */
typedef struct lily_cpu_span {
    const uint16_t *k, *v;     /* bf16 [n][row_stride]; head_dim values of a row are used */
    size_t row_stride;         /* elements */
    uint32_t n;                /* positions in the span; spans start at multiples of LILY_CPU_KV_TILE */
} lily_cpu_span;

#define LILY_CPU_KV_TILE 32
#define LILY_CPU_PAD8(n) (((size_t)(n) + 7) & ~(size_t)7)

/* Running softmax of nq queries: all f32, written by attn_begin, advanced by attn_span, read by attn_end. */
typedef struct lily_cpu_softmax {
    float *max, *sum;          /* [nq] */
    float *out;                /* [nq][PAD8(head_dim)] */
} lily_cpu_softmax;

/* The recurrence of one value head over T tokens (model.md section 4), value rows v0 … v1.
 * Strides are in elements from token to token. */
typedef struct lily_cpu_delta {
    float *state;              /* [dv][dk], key fastest; read and written */
    const float *q, *k, *v;    /* normalised q and k [T][dk]; v [T][dv] */
    const float *decay, *beta; /* [T] each, strided */
    float *out;                /* [T][dv] */
    const float *kq;           /* k_t . q_t, [T] contiguous */
    size_t q_stride, k_stride, v_stride, gate_stride, out_stride;
    uint32_t dk, dv, tokens;
} lily_cpu_delta;

typedef struct lily_cpu_kernels {
    const char *name;          /* "avx2", "avx2-f32", "portable" */
    bool (*runs_here)(void);   /* the machine has what the table needs */
    /* How a 4-bit product differs from the same in f32: 0, or the step of the packed activations
     * relative to the largest of 64. */
    float packed_step;

    /* ---- products ---- */
    size_t (*packed_bytes)(uint32_t cols);                          /* of one token, a multiple of 32 */
    void (*pack)(const float *x, uint32_t cols, uint8_t *packed);   /* one token */
    /* y[i * y_stride + (r - row0)] = W[r] . x[pick ? pick[i] : i], for i < n and row0 <= r < row1. */
    void (*matmul)(const lily_matrix *w, uint32_t row0, uint32_t row1, const lily_cpu_act *x,
                   const uint32_t *pick, uint32_t n, float *y, size_t y_stride);
    void (*dequant_row)(const lily_matrix *w, uint32_t row, float *out);    /* [cols] in column order */

    /* ---- elementwise and norms; n values ---- */
    void (*rmsnorm)(const float *x, const float *weight, uint32_t n, float eps, float *out);
    /* out = rmsnorm(x, weight) * silu(z) */
    void (*gated_rmsnorm)(const float *x, const float *weight, const float *z, uint32_t n, float eps, float *out);
    /* x / sqrt(sum x^2 + eps) * scale */
    void (*l2norm)(const float *x, uint32_t n, float eps, float scale, float *out);
    void (*add)(const float *a, const float *b, uint32_t n, float *out);
    void (*axpy)(float a, const float *x, uint32_t n, float *y);                     /* y += a x */
    void (*silu_mul)(const float *gate, const float *up, uint32_t n, float *out);    /* silu(gate) * up */
    void (*sigmoid_mul)(const float *x, const float *gate, uint32_t n, float *out);  /* x * sigmoid(gate) */
    float (*dot)(const float *a, const float *b, uint32_t n);

    /* ---- Gated DeltaNet ---- */
    /* Channels c0 … c1 of the causal convolution and silu.  u [T][channels]; tail [taps-1][channels] are
     * the inputs before u[0], oldest first, and are not changed; weight [channels][taps].  Channel c of token t
     * goes to y[t * y_stride + c - c0]. */
    void (*conv_silu)(const float *u, const float *tail, const float *weight, uint32_t taps, uint32_t channels,
                      uint32_t c0, uint32_t c1, uint32_t tokens, float *y, size_t y_stride);
    void (*delta_rule)(const lily_cpu_delta *d, uint32_t v0, uint32_t v1);

    /* ---- attention ---- */
    /* Rotates x[0 … 2 half) in half-split pairs by the angles whose cosines and sines are given. */
    void (*rope)(float *x, const float *cosine, const float *sine, uint32_t half);
    void (*to_bf16)(const float *x, uint32_t n, uint16_t *out);
    /* Scratch of attn_span, bytes. */
    size_t (*attn_scratch)(uint32_t head_dim, uint32_t nq);
    /* q [nq][PAD8(head_dim)], scaled already, padding zero; limit[i]: how many positions of the span query i sees. */
    void (*attn_span)(const lily_cpu_span *s, const float *q, const uint32_t *limit, uint32_t nq, uint32_t head_dim,
                      lily_cpu_softmax *state, void *scratch);

    /* ---- choosing ---- */
    /* The k largest of n logits, ties to the lowest index, in falling order, and the softmax over them. */
    void (*topk_softmax)(const float *logits, uint32_t n, uint32_t k, uint32_t *ids, float *weights);
    uint32_t (*argmax)(const float *x, uint32_t n);      /* lowest index on ties; NaN never wins */
    float (*exp_sum)(const float *x, uint32_t n, float shift);      /* sum of exp(x - shift) */
} lily_cpu_kernels;

extern const lily_cpu_kernels lily_cpu_portable;
#if defined(__x86_64__)
extern const lily_cpu_kernels lily_cpu_avx2, lily_cpu_avx2_f32;
#endif

/* Tables built into this program, best first, and the best that runs here; NULL when `name` (may be NULL
 * or "auto") is none of them or does not run here. */
const lily_cpu_kernels *const *lily_cpu_tables(size_t *n);
const lily_cpu_kernels *lily_cpu_select(const char *name);

/* Merges softmax state b into a (both over nq queries), as if a's span had come first.  Plain C. */
void lily_cpu_softmax_begin(lily_cpu_softmax *s, uint32_t nq, uint32_t head_dim);
void lily_cpu_softmax_merge(lily_cpu_softmax *a, const lily_cpu_softmax *b, uint32_t nq, uint32_t head_dim);

#endif
