/* kernels.h - what the GPU computes, as plain C functions that put work on a stream.
 *
 * A launch takes device pointers and numbers, allocates nothing and waits for nothing.  What changes from run to run
 * (which session, its position, how to pick) stands in a cuda_lane in device memory, so that a captured graph can be
 * launched again for any of them.
 *
 * Activations are f32 [T][width]; with more than one token in a plan the inputs of products (N M DNG AOG EH SH) are
 * bf16.  In a plan of one token N and M are followed by a norm that is still to be applied (cuda_norm_tail). */
#ifndef LILY_DEVICE_CUDA_KERNELS_H
#define LILY_DEVICE_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether this build has kernels for the current card. */
bool cuda_has_kernels(void);

/* ---- weights ----
 *
 * RAW: as in the checkpoint (lily_matrix), aligned.  The others are made of chunks of 16 rows and 128 columns, experts
 * outermost, then blocks of 16 rows, then chunks along a row.  A chunk: for 4 bits 1024 bytes of codes
 * [half of the rows][lane] of 16 bytes, then 128 bytes [row] of two scales and two biases, bf16; for 8 bits the low
 * nibbles' 1024 bytes, the high nibbles' 1024, then the 128.  Lane 4g + j has row g of its half; word t has the
 * steps 2t and 2t+1 of 16 columns; nibbles 0 … 3 are columns 2j, 2j+8 of the first and of the second step, nibbles
 * 4 … 7 those behind them: the operand of mma.m16n8k16 but for a mask.  Rows are filled up with zeros.
 * PAIR_FIRST and PAIR_SECOND: two matrices share blocks, eight rows of each (gate and up of an expert). */
enum cuda_layout { CUDA_RAW, CUDA_PACKED, CUDA_PAIR_FIRST, CUDA_PAIR_SECOND };

typedef struct cuda_matrix {
    const uint8_t *codes, *scales, *biases;     /* packed: codes only */
    uint32_t experts, rows, cols;
    uint32_t blocks;            /* of 16 rows an expert, packed only */
    uint16_t bits, group;       /* bits 4, 8: affine groups; 16: bf16; 32: f32 */
    uint16_t layout;
} cuda_matrix;

enum { CUDA_CHUNK_COLS = 128, CUDA_BLOCK_ROWS = 16, CUDA_CODES = 1024, CUDA_SCALES = 128 };

#define CUDA_CHUNK_BYTES(bits) (CUDA_CODES * (uint32_t)(bits) / 4 + CUDA_SCALES)

/* ---- what a run is about, in device memory ---- */

enum { CUDA_MAX_TOP = 20, CUDA_PAGE = 256, CUDA_MAX_MARKS = 16, CUDA_ANSWERS = 4 };

typedef struct cuda_bias {
    int32_t token;
    float add;
} cuda_bias;

typedef struct cuda_lane {
    float *recurrent;           /* of the state: see cuda_delta */
    uint16_t *const *pages;     /* KV pages: [page] -> bf16 [attention layer][K, V][Hk][CUDA_PAGE][D] */
    uint32_t *count;            /* [V] for the penalties */
    float *mark[CUDA_MAX_MARKS];        /* recurrent blocks to fill after mark_at[i] tokens */
    uint32_t mark_at[CUDA_MAX_MARKS];
    uint32_t n_marks;
    uint32_t counts;            /* EMBED counts these tokens */
    /* how to pick: lily_pick */
    float temperature, top_p, min_p, presence, frequency, repetition;
    int32_t top_k, n_logprobs;
    double uniform;             /* lily_uniform(seed, draw) */
    const uint32_t *allow;      /* device memory, or NULL */
    const cuda_bias *bias;
    uint32_t n_bias;
    int32_t n_vocab;
    /* what runs change themselves */
    uint32_t position;          /* of the run's first token; COMMIT moves it on */
    int32_t token;              /* the next input when no tokens are given; COMMIT sets it */
    uint32_t turn;              /* which of CUDA_ANSWERS is written; COMMIT moves it on */
} cuda_lane;

enum cuda_fault { CUDA_FINE, CUDA_NOT_A_NUMBER, CUDA_NOTHING_ALLOWED };

typedef struct cuda_answer {    /* in pinned host memory */
    int32_t token, fault, fault_token;
    float logprob;
    int32_t top_token[CUDA_MAX_TOP];
    float top_logprob[CUDA_MAX_TOP];
} cuda_answer;

/* ---- loading ---- */

/* rows [row0, row0 + n) of one expert or of a whole stack seen as one long matrix, whose raw codes, scales and biases
 * lie in device memory, into chunks.  row0 is a multiple of 16, or of 8 for pairs. */
typedef struct cuda_repack_args {
    const uint8_t *codes, *scales, *biases;
    uint8_t *chunks;            /* of block 0 */
    uint32_t row0, rows, cols;
    uint16_t bits, layout;
} cuda_repack_args;
cudaError_t cuda_repack(const cuda_repack_args *, cudaStream_t);
/* The reverse, for tests: one expert's rows back to raw codes, scales and biases. */
cudaError_t cuda_unpack(const cuda_matrix *, uint32_t expert, uint8_t *codes, uint8_t *scales, uint8_t *biases,
                        cudaStream_t);

/* ---- norms ---- */

/* Behind the H values of N or M in a plan of one token: how many partial sums of squares follow.  0: the values are
 * normed; else they are x * weight, and 1 / sqrt(sum / H + eps) is still to be multiplied. */
static inline size_t cuda_norm_tail(void) { return 1 + 1024; }

/* Behind the values of DNG, if cuda_delta_token made them: of each quarter of a head the sum of squares of what the gated
 * norm is to scale; 1 / sqrt(sum of four / 128 + eps) is still to be multiplied to the head. */
enum { CUDA_QUARTERS = 4, CUDA_HEAD = 128 };

/* y[t] = norm(x[t]) * weight.  half: bf16 out, else f32 with a tail of 0 when `tail` is set. */
cudaError_t cuda_rms_norm(const float *x, const float *weight, void *y, uint32_t width, uint32_t tokens, float eps,
                          bool half, bool tail, cudaStream_t);

/* ---- products, any layout ---- */

/* out[i * out_stride + out_at + r] = W[r] . in[row(i)] for i in 0 … n-1, experts by the maps:
 *   offsets NULL, ids NULL: one matrix.  ids: vector i uses expert ids[i].  offsets: expert e has the rows
 *   offsets[e] … offsets[e+1]-1.
 * The input row of i: i / divide; through `order` when given: order[i] / divide. */
typedef struct cuda_product_args {
    cuda_matrix w;
    const void *in;
    float *out;
    const int32_t *ids, *offsets, *order;
    size_t in_stride, out_stride, out_at;
    uint32_t n, divide;
    float eps;
    bool half, half_out;        /* `in` is bf16, `out` is */
    bool norm_tail;             /* `in` has one */
    const float *squares;       /* of the heads of `in`, or NULL */
} cuda_product_args;
cudaError_t cuda_product(const cuda_product_args *, cudaStream_t);

/* ---- both ends ---- */

/* X[t] = embed[token]; tokens NULL: lane->token. */
cudaError_t cuda_embed(const cuda_matrix *embed, const int32_t *tokens, cuda_lane *lane, float *x, uint32_t n,
                       cudaStream_t);

/* lane->token's; n: X * weight, with its norm's tail. */
cudaError_t cuda_embed_token(const cuda_matrix *embed, cuda_lane *lane, float *x, const float *weight, float *n,
                             cudaStream_t);

/* Scores of `tokens` rows of logits [tokens][vocab]: log-probability of wanted[t] and the best id under the softmax of
 * the first n_vocab. */
cudaError_t cuda_score(const float *logits, const int32_t *wanted, uint32_t tokens, uint32_t vocab, uint32_t n_vocab,
                       float *scores, int32_t *best, cudaStream_t);
/* The choice, into answer[lane->turn % CUDA_ANSWERS] and *token.  work: cuda_pick_room(vocab) bytes.
 * moves >= 0: then what cuda_commit does, with n = moves. */
size_t cuda_pick_room(uint32_t vocab);
cudaError_t cuda_pick(const float *logits, cuda_lane *lane, void *work, int32_t *token, cuda_answer *answer, uint32_t vocab,
                      int32_t moves, bool early, cudaStream_t);
/* Position moves on by n, the turn by one, and the token becomes the next input. */
cudaError_t cuda_commit(cuda_lane *lane, const int32_t *token, uint32_t n, cudaStream_t);

/* ---- Gated DeltaNet ----
 *
 * A layer's part of a recurrent block: tail [4][C], the input of position p in row p % 4 (a ring, so that writing one
 * never meets reading the three before), then S [Gv][Dv][Dk].  taps - 1 <= 3 in the ring's terms: ring rows = taps. */
typedef struct cuda_delta {
    const cuda_lane *lane;
    size_t tail_at, s_at;       /* floats into the block */
    const float *conv, *decay, *dt_bias, *norm;
    const float *qkv, *z, *ba;  /* slots */
    float *u, *qk, *g, *dn;
    uint16_t *half_qk, *half_v; /* cuda_delta_wgmma's instead of qk and u: fp16 [t][q, k][k_heads][128], [t][v_heads][128] */
    void *dng;
    float *squares;             /* [v_heads][CUDA_QUARTERS], of cuda_delta_token */
    uint32_t tokens, k_heads, v_heads, dk, dv, taps;
    float eps;
    bool half;                  /* dng is bf16 */
    bool hopper;                /* the card has warpgroup products */
    bool through_memory;        /* cuda_delta_many, token by token: the state leaves registers again and again */
} cuda_delta;
cudaError_t cuda_conv(const cuda_delta *, cudaStream_t);
cudaError_t cuda_qk_l2(const cuda_delta *, cudaStream_t);
cudaError_t cuda_gates(const cuda_delta *, cudaStream_t);
cudaError_t cuda_gdn(const cuda_delta *, cudaStream_t);
cudaError_t cuda_gnorm(const cuda_delta *, cudaStream_t);
/* The convolution's part of the state, and of marks, after the run. */
cudaError_t cuda_save_tails(const cuda_delta *, cudaStream_t);
/* All five of many tokens, heads of 128 and four taps; slots between them lie in `work`. */
cudaError_t cuda_delta_many(const cuda_delta *, float *work, void *blocks, cudaStream_t);
size_t cuda_delta_many_room(uint32_t tokens, uint32_t k_heads, uint32_t v_heads);
/* All five of one token, heads of 128 and four taps; dng without the norm's factor, for which `squares` are. */
cudaError_t cuda_delta_token(const cuda_delta *, bool early, cudaStream_t);

/* The delta rule alone of many tokens, from qk, u and g to dn, in blocks of 64 tokens on tensor cores: heads of 128, one
 * or two value heads a key head.  work: cuda_delta_chunk_room bytes. */
size_t cuda_delta_chunk_room(uint32_t tokens, uint32_t k_heads, uint32_t v_heads);
size_t cuda_delta_chunk_shared(void);       /* bytes of shared memory that a block takes */
cudaError_t cuda_delta_chunk(const cuda_delta *, void *work, cudaStream_t);
/* The same on Hopper, from half_qk, half_v and g. */
size_t cuda_delta_wgmma_room(uint32_t tokens, uint32_t k_heads, uint32_t v_heads);
cudaError_t cuda_delta_wgmma(const cuda_delta *, void *work, cudaStream_t);

/* ---- attention ---- */

typedef struct cuda_attention {
    const cuda_lane *lane;
    uint32_t layer;             /* among the attention layers */
    const float *norm_q, *norm_k;
    const double *frequency;    /* [R/2] */
    const float *qg, *kp, *vp;
    float *q, *k, *ao;
    void *aog;
    float *work;                /* cuda_attend_room */
    uint32_t tokens, q_heads, kv_heads, dim, rotary;
    float eps;
    bool half;                  /* aog is bf16 */
    bool hopper;                /* the card has warpgroup products */
    /* cuda_attend_token without gqa-pack, kv-coalesce, fixed-block: a pass over the cache for each query head; a warp
     * reads 16 bytes of each of 32 rows at once; few stretches of the cache in parallel, however long it is. */
    bool unpacked, scattered, general;
} cuda_attention;
cudaError_t cuda_qk_rope(const cuda_attention *, cudaStream_t);
cudaError_t cuda_kv_append(const cuda_attention *, cudaStream_t);
cudaError_t cuda_attend(const cuda_attention *, cudaStream_t);
cudaError_t cuda_o_gate(const cuda_attention *, cudaStream_t);
/* Norm, rotation, append, attention and gate of one token: heads of 256, eight query heads a key head. */
cudaError_t cuda_attend_token(const cuda_attention *, bool early, cudaStream_t);
size_t cuda_attend_token_room(uint32_t q_heads);
/* Attention and gate of many tokens, heads of 256: bf16 products. */
cudaError_t cuda_attend_many(const cuda_attention *, bool gate, cudaStream_t);
cudaError_t cuda_attend_wgmma(const cuda_attention *, bool gate, cudaStream_t);        /* on Hopper */

/* ---- experts ---- */

cudaError_t cuda_topk(const float *logits, int32_t *ids, float *weights, uint32_t tokens, uint32_t experts,
                      uint32_t top_k, cudaStream_t);
cudaError_t cuda_route_count(const int32_t *ids, int32_t *counts, uint32_t pairs, uint32_t experts, cudaStream_t);
cudaError_t cuda_route_offsets(const int32_t *counts, int32_t *offsets, uint32_t experts, cudaStream_t);
cudaError_t cuda_route_scatter(const int32_t *ids, const int32_t *offsets, int32_t *order, int32_t *place,
                               uint32_t pairs, uint32_t experts, cudaStream_t);
/* The three above at once, at most CUDA_ROUTED experts; counts may be NULL.  work: cuda_route_room bytes. */
enum { CUDA_ROUTED = 256, CUDA_ROUTE_PAIRS = 512 };
size_t cuda_route_room(uint32_t pairs);
cudaError_t cuda_route(const int32_t *ids, int32_t *counts, int32_t *offsets, int32_t *order, int32_t *place, void *work,
                       uint32_t pairs, uint32_t experts, cudaStream_t s);
/* h = silu(g) u for rows of [2][width] */
cudaError_t cuda_gated_unit(const float *gu, void *h, size_t rows, uint32_t width, bool half, cudaStream_t);
cudaError_t cuda_sigmoid(float *x, uint32_t n, cudaStream_t);
cudaError_t cuda_add(float *x, const float *y, size_t n, cudaStream_t);
/* x += mix, then its norm * weight as bf16 */
cudaError_t cuda_add_norm(float *x, const float *mix, const float *weight, uint16_t *m, uint32_t width, uint32_t tokens,
                          float eps, cudaStream_t);
/* cuda_combine, then the norm of x * weight as bf16; width at most 8192 and a multiple of 4 */
cudaError_t cuda_combine_norm(float *x, const uint16_t *ed, const float *topw, const int32_t *place, const float *sd,
                              const float *sg, const float *weight, uint16_t *n, uint32_t tokens, uint32_t top_k,
                              uint32_t width, float eps, cudaStream_t);
/* x[t] += sum of weight ed[row] + sg sd; half: ed is bf16 */
cudaError_t cuda_combine(float *x, const void *ed, bool half, const float *topw, const int32_t *place, const float *sd,
                         const float *sg, uint32_t tokens, uint32_t top_k, uint32_t width, cudaStream_t);

/* ---- packed products of one token (gemv.cu) ---- */

enum { CUDA_MAX_SECTIONS = 4 };
typedef struct cuda_section {   /* blocks block0 … of a concatenated matrix are `rows` rows of `out` */
    float *out;
    uint32_t block0, rows;
} cuda_section;

typedef struct cuda_gemv {
    const uint8_t *chunks;      /* 4 bits */
    uint32_t cols, blocks, n_sections;
    cuda_section section[CUDA_MAX_SECTIONS];
    const float *in;
    const float *squares;       /* of the heads of `in`, or NULL */
    bool norm_tail;             /* of in */
    bool patient;               /* weights are not asked for before what came before has ended */
    uint32_t pair;              /* rows of pairs: the second matrix's results begin so far behind the first's; 0: none */
    float eps;
} cuda_gemv;
/* out = W in; at most CUDA_GEMV_COLS columns and CUDA_GEMV_BLOCKS blocks of rows */
enum { CUDA_GEMV_COLS = 4096, CUDA_GEMV_BLOCKS = 132 * 6 };
cudaError_t cuda_gemv_plain(const cuda_gemv *, bool early, cudaStream_t);
/* x += W in; m = x * weight with the norm's tail */
cudaError_t cuda_gemv_residual(const cuda_gemv *, float *x, const float *weight, float *m, bool early, cudaStream_t);

typedef struct cuda_moe_token {
    const float *m;             /* [H] and tail */
    const uint8_t *router, *shared_gate;        /* 8-bit chunks, or 4-bit ones */
    const uint8_t *sh_up, *sh_down, *ex_up, *ex_down;   /* 4-bit chunks; *_up are pairs */
    float *rl, *sg, *sh, *eh;
    int32_t *topi;
    float *topw;
    float *x;                   /* residual */
    const float *norm;          /* next norm's weight */
    float *n;                   /* [H] and tail */
    uint32_t hidden, experts, top_k, inter, shared_inter;
    uint16_t router_bits, gate_bits;
    bool chosen;                /* cuda_moe_down takes topi and topw as they are */
    bool patient;               /* as in cuda_gemv */
    float eps;
} cuda_moe_token;
/* rl = router m, sg = sigmoid(gate m), sh = the shared expert's hidden layer */
cudaError_t cuda_moe_route(const cuda_moe_token *, bool early, cudaStream_t);
/* topi, topw, eh */
cudaError_t cuda_moe_up(const cuda_moe_token *, bool early, cudaStream_t);
/* x, n.  Unless `chosen`, the choice of experts is made anew from rl while cuda_moe_up, launched just before, still
 * runs. */
cudaError_t cuda_moe_down(const cuda_moe_token *, bool early, cudaStream_t);
/* Logits of one token. */
cudaError_t cuda_gemv_head(const cuda_gemv *, bool early, cudaStream_t);

/* ---- packed products of one token on any card (gemv_plain.cu) ---- */

/* out = W in; chunks of 4 or 8 bits, no pairs */
cudaError_t cuda_gemv_any(const cuda_gemv *, uint16_t bits, cudaStream_t);
/* x += W in; m = x * weight with the norm's tail; 4 bits */
cudaError_t cuda_gemv_add(const cuda_gemv *, uint32_t rows, float *x, const float *weight, float *m, cudaStream_t);
/* eh and sh; x and n.  The choice of experts and sg are there. */
cudaError_t cuda_moe_up_any(const cuda_moe_token *, cudaStream_t);
cudaError_t cuda_moe_down_any(const cuda_moe_token *, cudaStream_t);

/* ---- packed products of many tokens (gemm_wgmma.cu on Hopper, else gemm.cu) ---- */

enum cuda_epilogue { CUDA_STORE, CUDA_GATED_UNIT };
typedef struct cuda_gemm {
    const uint8_t *chunks;
    uint32_t cols, blocks, n_sections;
    cuda_section section[CUDA_MAX_SECTIONS];    /* CUDA_STORE: out[i * stride + row] */
    size_t stride[CUDA_MAX_SECTIONS];
    uint32_t pair;              /* as in cuda_gemv */
    uint16_t *unit;             /* CUDA_GATED_UNIT: bf16 out [i][blocks * 8] */
    const uint16_t *in;         /* bf16 [.][cols] */
    uint32_t n;                 /* vectors */
    uint32_t experts;           /* 0: one matrix */
    const int32_t *offsets, *order;     /* of experts; order NULL: vectors are in place */
    void *map;                  /* cuda_gemm_room bytes; with experts only */
    uint32_t divide;            /* vector i is row order[i] / divide of `in` */
    /* Controls.  expanded: of 4-bit weights, on Hopper, room for all of them as bf16, where a kernel of its own unpacks them
     * first: CUDA_EXPANDED bytes a chunk [columns 0 …, 64 …][4][lane] of 16, operands of mma.m16n8k16.  one_shape: all tiles
     * of experts have the smallest shape. */
    uint8_t *expanded;
    bool one_shape;
    bool half;                  /* CUDA_STORE: out is bf16 */
    uint16_t bits, epilogue;
    bool hopper;                /* the card has warpgroup products */
} cuda_gemm;
enum { CUDA_EXPANDED = 2 * CUDA_CHUNK_COLS * CUDA_BLOCK_ROWS };
size_t cuda_gemm_room(uint32_t n, uint32_t experts);
cudaError_t cuda_gemm_many(const cuda_gemm *, cudaStream_t);
cudaError_t cuda_gemm_mma(const cuda_gemm *, cudaStream_t);      /* always gemm.cu */

/* ---- measuring ---- */
cudaError_t cuda_read(const void *bytes, size_t n, uint32_t *sink, cudaStream_t);
cudaError_t cuda_convert_bf16(const uint16_t *from, float *to, size_t n, cudaStream_t);

#ifdef __cplusplus
}
#endif
#endif
