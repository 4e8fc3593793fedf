/* config.h - the numbers of one qwen3_5_moe model, read from config.json and checked.
 * Names follow the file; shapes in comments elsewhere use the letters given here. */
#ifndef LILY_MODEL_CONFIG_H
#define LILY_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Bounds on every dimension: far above any model of the family, low enough that no product of three
 * of them leaves 64 bits. */
enum { LILY_MAX_LAYERS = 256, LILY_MAX_EOS = 16 };

typedef struct lily_config {
    uint32_t hidden;            /* H  hidden_size */
    uint32_t layers;            /* L  num_hidden_layers */
    uint32_t vocab;             /* V  vocab_size, padded rows included */
    float    eps;               /*    rms_norm_eps */

    uint32_t q_heads;           /* Hq num_attention_heads */
    uint32_t kv_heads;          /* Hk num_key_value_heads */
    uint32_t head_dim;          /* D  head_dim */
    uint32_t rotary;            /* R  width of the rotated part of a head, even */
    double   rope_theta;

    uint32_t lin_k_heads;       /* Gk linear_num_key_heads */
    uint32_t lin_v_heads;       /* Gv linear_num_value_heads, a multiple of Gk */
    uint32_t lin_k_dim;         /* Dk linear_key_head_dim */
    uint32_t lin_v_dim;         /* Dv linear_value_head_dim */
    uint32_t conv_kernel;       /* K  linear_conv_kernel_dim */

    uint32_t experts;           /* E  num_experts */
    uint32_t top_k;             /* A  num_experts_per_tok */
    uint32_t expert_inter;      /* F  moe_intermediate_size */
    uint32_t shared_inter;      /* Fs shared_expert_intermediate_size */

    uint32_t max_positions;     /*    max_position_embeddings */
    bool     tied;              /*    tie_word_embeddings: the head is the embedding */
    bool     full_attention[LILY_MAX_LAYERS];   /* which layers attend; the others are Gated DeltaNet */

    /* End-of-turn ids: config.json's and generation_config.json's, united; generation stops on any. */
    int32_t  eos[LILY_MAX_EOS];
    uint32_t n_eos;
} lily_config;

/* Derived widths. */
static inline uint32_t lily_key_width(const lily_config *c) { return c->lin_k_heads * c->lin_k_dim; }      /* q, also k */
static inline uint32_t lily_value_width(const lily_config *c) { return c->lin_v_heads * c->lin_v_dim; }    /* v, z */
static inline uint32_t lily_conv_width(const lily_config *c) { return 2 * lily_key_width(c) + lily_value_width(c); }
static inline uint32_t lily_q_width(const lily_config *c) { return c->q_heads * c->head_dim; }
static inline uint32_t lily_kv_width(const lily_config *c) { return c->kv_heads * c->head_dim; }

/* What generation_config.json asks for by default. */
typedef struct lily_sampling_defaults {
    float temperature, top_p, min_p, presence, frequency, repetition;
    int32_t top_k;
} lily_sampling_defaults;

/* Affine quantisation of one module: config.json's "quantization", its entry for the module first. */
typedef struct lily_quant {
    uint32_t bits, group;       /* bits 0: config.json says nothing (plain tensors) */
} lily_quant;

typedef struct lily_model_config lily_model_config;     /* the parsed file: numbers and quantisation */

/* Reads DIR/config.json and, if present, DIR/generation_config.json. */
int lily_config_open(lily_model_config **out, const char *dir, lily_err *e);
void lily_config_close(lily_model_config *m);
const lily_config *lily_config_numbers(const lily_model_config *m);
const lily_sampling_defaults *lily_config_sampling(const lily_model_config *m);
/* Quantisation of the module with this path (without ".weight"); names are compared with and without the
 * "language_model." prefix. */
lily_quant lily_config_quant(const lily_model_config *m, const char *module);

#endif
