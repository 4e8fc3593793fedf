/* weights.h - every tensor of the model found by name, its shape checked, still packed in the map. */
#ifndef LILY_MODEL_WEIGHTS_H
#define LILY_MODEL_WEIGHTS_H

#include "checkpoint/checkpoint.h"
#include "model/config.h"

/* A matrix of `rows` outputs and `cols` inputs, or a stack of `experts` of them: y = W x.
 * bits 4 or 8: MLX affine groups, w = scale * code + bias (bf16 scale and bias per `group` columns);
 *   codes lie in rows of cols * bits / 8 bytes, low nibble first; rows contiguous, experts outermost,
 *   `step` rows apart (more than `rows` where a file keeps gate and up of an expert together).
 * bits 16: plain bf16; bits 32: plain f32; then scales and biases are NULL and group is 0.
 * No pointer has any alignment. */
typedef struct lily_matrix {
    const uint8_t *codes, *scales, *biases;
    uint32_t experts, rows, cols, step;
    uint16_t bits, group;
} lily_matrix;

static inline uint64_t lily_row_bytes(const lily_matrix *m) { return (uint64_t)m->cols * m->bits / 8; }
static inline uint32_t lily_row_groups(const lily_matrix *m) { return m->group ? m->cols / m->group : 0; }
/* Bytes of one expert's matrix: codes, scales and biases. */
static inline uint64_t lily_matrix_bytes(const lily_matrix *m)
{
    return (uint64_t)m->rows * (lily_row_bytes(m) + 4ull * lily_row_groups(m));
}

/* One expert of a stack. */
static inline lily_matrix lily_expert(const lily_matrix *m, uint32_t expert)
{
    lily_matrix one = *m;
    uint64_t row = (uint64_t)expert * m->step;
    one.experts = 1;
    one.codes += row * lily_row_bytes(m);
    if (m->group) {
        one.scales += row * lily_row_groups(m) * 2;
        one.biases += row * lily_row_groups(m) * 2;
    }
    return one;
}

/* A plain vector or small table, expanded to f32 once at load (norms, convolution taps, A_log, dt_bias:
 * about 5 MB in the full model). */
typedef const float *lily_vector;

typedef struct lily_layer {
    lily_vector norm_mix, norm_post;                  /* [H] input_layernorm, post_attention_layernorm */
    /* Gated DeltaNet (empty in attention layers) */
    lily_matrix qkv, z, b, a, out;                    /* [2*Gk*Dk+Gv*Dv][H] [Gv*Dv][H] [Gv][H] [Gv][H] [H][Gv*Dv] */
    lily_vector conv;                                 /* [channels][K], channels as the rows of qkv; last tap newest */
    lily_vector decay;                                /* [Gv] exp(A_log) */
    lily_vector dt_bias;                              /* [Gv] */
    lily_vector norm_gated;                           /* [Dv] */
    /* gated attention (empty in DeltaNet layers) */
    lily_matrix q, k, v, o;                           /* [Hq*2*D][H]: per head D query rows, then D gate rows; [Hk*D][H] twice; [H][Hq*D] */
    lily_vector norm_q, norm_k;                       /* [D] */
    /* mixture of experts */
    lily_matrix router, shared_gate;                  /* [E][H] [1][H] */
    lily_matrix sh_gate, sh_up, sh_down;              /* [Fs][H] [Fs][H] [H][Fs] */
    lily_matrix ex_gate, ex_up, ex_down;              /* E x [F][H], E x [F][H], E x [H][F] */
} lily_layer;

typedef struct lily_model {
    const lily_config *config;
    lily_matrix embed, head;                          /* [V][H] both; the same matrix when embeddings are tied */
    lily_vector norm_final;                           /* [H] */
    const lily_layer *layer;                          /* [L] */
    uint64_t weight_bytes;                            /* what the tensors in use occupy in the files */
    uint64_t token_bytes;                             /* weight bytes read for one decoded token */
    uint32_t n_used, n_skipped;                       /* tensors; skipped: vision and MTP */
} lily_model;

/* Finds and checks all tensors.  Names with and without "language_model."; "vision_tower.", "model.visual."
 * and "mtp." are skipped and counted, any other unknown one is refused.  A conv1d weight of shape [C,1,K]
 * marks an unconverted layout: 1 is then added to the zero-centred norms.  Routed experts are read as MLX
 * stacks (switch_mlp) or as the makers' plain ones (experts.gate_up_proj, experts.down_proj).  The result
 * points into ckpt and config, which must outlive it. */
int lily_model_open(lily_model **out, const lily_ckpt *ckpt, const lily_model_config *config, lily_err *e);
void lily_model_close(lily_model *m);

#endif
