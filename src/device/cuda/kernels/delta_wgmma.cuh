/* delta_wgmma.cuh - the delta rule of many tokens in matrix form, heads of 128, for Hopper: blocks of 64 tokens as products
 * of warpgroups.
 *
 * With G the sums of the logarithms of g within a block, K Q V its rows and S the state before it:
 *     A[i][j] = beta_i (k_i . k_j) exp(G_i - G_j) for j < i,   T = (I + A)^-1,   P[i][j] = (q_i . k_j) exp(G_i - G_j), j <= i
 *     W = T beta exp(G) K,   U = T beta V
 *     V' = U - W S^T,   O = exp(G) Q S^T + P V',   S = exp(G_last) S + (exp(G_last - G) V')^T K
 * What does not need S is made of all blocks at once (delta_parts.cu); then delta_chain.cu goes from block to block with half
 * of a head's state, 64 rows, in a thread block's registers.  Operands are fp16, which has eight times the precision of bf16:
 * keys and queries are normed, T and the gates are not much above 1, and V and what comes of it saturates at 65,504.
 * States and sums are float.  A block ends early where the state is to be kept (marks). */
#pragma once
#include <cuda_fp16.h>

#include "device/cuda/kernels/tensor_map.cuh"
#include "device/cuda/kernels/wgmma.cuh"

namespace delta {

enum { HEAD = 128, BLOCK = 64, ROWS = 64 };
enum { PANEL = BLOCK * 128, TILE = 2 * PANEL };      /* bytes of 64 rows of 64 and of 128 columns, as wgmma.cuh has them */

/* A block's tokens.  Behind `count` the boxes bring other tokens' rows or zeros: with beta = 0 nothing comes of them. */
struct Span {
    uint32_t start, count, mark;        /* mark: 1 + the number of the one at its end, or 0 */
};

/* Marks cut the run into parts, parts are cut every 64 tokens. */
struct Parts {
    uint32_t end[CUDA_MAX_MARKS + 1], n;
    __device__ void load(const cuda_delta &d)      /* by a warp */
    {
        const uint32_t lane = threadIdx.x & 31, marks = d.lane->n_marks, at = d.lane->mark_at[min(lane, (uint32_t)CUDA_MAX_MARKS - 1)];
        if (lane <= marks) end[lane] = lane < marks ? min(at, d.tokens) : d.tokens;
        if (lane == 0) n = marks + 1;
    }
};
struct Walk {
    uint32_t start = 0, part = 0;
    __device__ inline Span next(const Parts &p)
    {
        while (part + 1 < p.n && p.end[part] <= start) part++;
        const uint32_t end = p.end[part], count = min((uint32_t)BLOCK, end - start);
        const Span s = {start, count, start + count == end && part + 1 < p.n ? part + 1 : 0};
        start += count;
        return s;
    }
};
__device__ inline uint32_t blocks_of(const Parts &p)
{
    uint32_t n = 0, from = 0;
    for (uint32_t i = 0; i < p.n; from = max(from, p.end[i]), i++)
        if (p.end[i] > from) n += (p.end[i] - from + BLOCK - 1) / BLOCK;
    return n;
}

struct Room {
    uint8_t *w, *p;             /* fp16 tiles [block][value head] of 128 and of 64 columns */
    uint4 *u;                   /* fp16 [block][value head][half of the rows][4][thread of a warpgroup] of its 32 results */
    float *gates;               /* [block][value head][exp(G), exp(G_last - G)][64] */
};

struct Maps {
    CUtensorMap qk, v;          /* boxes of 64 tokens and 64 columns */
};

/* 16-byte piece p of row r of a tile. */
__device__ inline uint32_t piece_at(uint32_t r, uint32_t p) { return (p >> 3) * PANEL + r * 128 + ((p & 7) ^ (r & 7)) * 16; }

/* A warpgroup's 64 x 64 results as fp16 into a panel: rows as they are, or, TURNED, columns as rows. */
template <bool TURNED> __device__ inline void store_panel(uint8_t *to, const float (&c)[32], float upper, float lower)
{
    const uint32_t lane = threadIdx.x & 31, row0 = (threadIdx.x >> 5 & 3) * 16;
#pragma unroll
    for (int n = 0; n < 8; n += 2) {        /* matrices: rows 0 and 8 of columns 8n …, then of 8n + 8 … */
        const float *x = c + n * 4, *y = x + 4;
        const uint32_t v[4] = {pack_half(x[0] * upper, x[1] * upper), pack_half(x[2] * lower, x[3] * lower),
                               pack_half(y[0] * upper, y[1] * upper), pack_half(y[2] * lower, y[3] * lower)};
        const uint32_t down = row0 + (lane >> 3 & 1) * 8, across = n * 8 + (lane >> 4) * 8;      /* of the lane's matrix */
        if (TURNED)
            asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                             shared_address(to + piece_at(across + (lane & 7), down / 8))), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
        else
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                             shared_address(to + piece_at(down + (lane & 7), across / 8))), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
    }
}

/* d = a b^T or d += a b^T, 64 x 64 of PANELS x 64 columns. */
template <int PANELS> __device__ inline void multiply(float (&d)[32], const uint8_t *a, const uint8_t *b, int add)
{
    const uint32_t left = wgmma_vectors_low(shared_address(a)), right = wgmma_vectors_low(shared_address(b));
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < PANELS * 4; i++) {
        const uint32_t at = ((i >> 2) * PANEL + (i & 3) * 32) / 16;
        wgmma_half_64<0>(d, wgmma_vectors(left + at), wgmma_vectors(right + at), add | (i > 0));
    }
    wgmma_commit();
}
/* d = a b or d += a b, a 64 x 64, b a panel of 64 rows. */
__device__ inline void multiply_turned(float (&d)[32], const uint8_t *a, const uint8_t *b, int add)
{
    const uint32_t left = wgmma_vectors_low(shared_address(a));
    const uint32_t right = (shared_address(b) >> 4 & 0x3FFF) | (uint32_t)(PANEL / 16) << 16;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) wgmma_half_64<1>(d, wgmma_vectors(left + i * 2), wgmma_vectors(right + i * 2048 / 16), add | (i > 0));
    wgmma_commit();
}
/* The products asked for have ended; nobody looks at d before. */
__device__ inline void finish(float (&d)[32])
{
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < 32; i++) asm volatile("" : "+f"(d[i])::"memory");
}

}

/* delta_parts.cu: room.w, p, u and gates of `blocks` blocks at most. */
cudaError_t cuda_delta_parts(const cuda_delta *, const delta::Maps &, const delta::Room &, uint32_t blocks, cudaStream_t);
