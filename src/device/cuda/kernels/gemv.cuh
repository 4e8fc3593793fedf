/* gemv.cuh - packed rows times one vector on tensor cores.
 *
 * A warp multiplies one chunk (16 rows, 128 columns) at a time.  The vector is split into two bf16 parts, large and
 * small, which take two of the eight columns that mma has: products are as exact as in float, for free.  Codes are
 * multiplied as 128 + code; 128 times the sum of x is where the accumulator starts.  Scale and bias are applied to the
 * sum of a group of 64 columns. */
#pragma once
#include "device/cuda/kernels/common.cuh"

enum { GEMV_THREADS = 512, GEMV_WARPS = 16 };

/* The operand of one chunk: [large, small][lane & 3][16 words]. */
enum { FRAGMENT_WORDS = 2 * 4 * 16 };

struct Vector {                 /* in shared memory */
    uint32_t *words;            /* [chunks][FRAGMENT_WORDS] */
    float *sums;                /* [chunks * 2], of 64 columns */
};

static inline size_t vector_bytes(uint32_t chunks) { return chunks * (FRAGMENT_WORDS * 4 + 8); }

__device__ inline Vector vector_at(uint8_t *room, uint32_t chunks)
{
    Vector v;
    v.words = (uint32_t *)room;
    v.sums = (float *)(v.words + chunks * FRAGMENT_WORDS);
    return v;
}

/* Columns 2p and 2p + 1, by whole warps so that 32 neighbours are a group. */
__device__ inline void vector_put(const Vector &v, uint32_t p, float a, float b)
{
    const uint32_t c = 2 * p % CUDA_CHUNK_COLS, chunk = 2 * p / CUDA_CHUNK_COLS;
    const uint32_t at = (chunk * 2 * 4 + ((c & 7) >> 1)) * 16 + 2 * (c >> 4) + ((c >> 3) & 1);
    const uint32_t large = pack_bf16(a, b);
    const uint32_t small = pack_bf16(a - bf_lo(large), b - bf_hi(large));
    v.words[at] = large;
    v.words[at + 64] = small;
    const float sum = warp_sum(bf_lo(large) + bf_hi(large) + bf_lo(small) + bf_hi(small));
    if ((threadIdx.x & 31) == 0) v.sums[p / 32] = sum;
}

/* x [cols] that an earlier kernel wrote, of at most AT_ONCE * 2 * GEMV_THREADS columns: asked for at once. */
template <int AT_ONCE> __device__ inline void vector_load(const Vector &v, const float *x, uint32_t cols)
{
    float2 f[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        const uint32_t p = threadIdx.x + i * GEMV_THREADS;
        f[i] = p < cols / 2 ? __ldcg((const float2 *)x + p) : make_float2(0, 0);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        const uint32_t p = threadIdx.x + i * GEMV_THREADS;
        if (p < cols / 2) vector_put(v, p, f[i].x, f[i].y);
    }
}

struct Fragment {
    uint4 b[4];                 /* words 4i … of steps 2i and 2i + 1 */
    float sum[2];
};

__device__ inline void fragment_load(Fragment &f, const Vector &v, uint32_t chunk)
{
    const uint32_t lane = threadIdx.x & 31, part = (lane >> 2) & 1, j = lane & 3;
    const uint4 *from = (const uint4 *)(v.words + ((chunk * 2 + part) * 4 + j) * 16);
#pragma unroll
    for (int i = 0; i < 4; i++) f.b[i] = from[i];
    f.sum[0] = v.sums[2 * chunk];
    f.sum[1] = v.sums[2 * chunk + 1];
}

struct Codes {
    uint4 q[2];                 /* of the two halves of the rows */
    uint2 sb[2];                /* scales, biases */
};

template <bool SHARED> __device__ inline void codes_load(Codes &c, const uint8_t *codes, const uint8_t *scales)
{
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint4 *q = (const uint4 *)codes + h * 32 + lane;
        const uint2 *s = (const uint2 *)scales + h * 8 + g;
        c.q[h] = SHARED ? *q : __ldcs(q);
        c.sb[h] = SHARED ? *s : __ldcs(s);
    }
}

/* Sums of code * x of one plane of codes and one group, rows g and g + 8; right in lanes with j = 0. */
__device__ inline float2 group_times(const Codes &c, const Fragment &f, int group)
{
    float acc[4] = {-128.f * f.sum[group], 0.f, -128.f * f.sum[group], 0.f};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int t = 2 * group + i;
        const uint32_t a = word_of(c.q[0], t), b = word_of(c.q[1], t);
        mma16816(acc, nibbles(a), nibbles(b), nibbles(a >> 4), nibbles(b >> 4), f.b[t].x, f.b[t].y);
        mma16816(acc, nibbles(a >> 8), nibbles(b >> 8), nibbles(a >> 12), nibbles(b >> 12), f.b[t].z, f.b[t].w);
    }
    return make_float2(acc[0] + acc[1], acc[2] + acc[3]);
}

/* Adds a chunk's products to rows g and g + 8; right in lanes with j = 0. */
__device__ inline void chunk_times(const Codes &c, const Fragment &f, float &row0, float &row1)
{
#pragma unroll
    for (int group = 0; group < 2; group++) {
        const float2 sum = group_times(c, f, group);
        const float s0 = group ? bf_hi(c.sb[0].x) : bf_lo(c.sb[0].x), b0 = group ? bf_hi(c.sb[0].y) : bf_lo(c.sb[0].y);
        const float s1 = group ? bf_hi(c.sb[1].x) : bf_lo(c.sb[1].x), b1 = group ? bf_hi(c.sb[1].y) : bf_lo(c.sb[1].y);
        row0 += s0 * sum.x + b0 * f.sum[group];
        row1 += s1 * sum.y + b1 * f.sum[group];
    }
}

/* The same of a chunk in shared memory with either width of codes. */
__device__ inline void chunk_times_any(const uint8_t *chunk, uint32_t bits, const Fragment &f, float &row0, float &row1)
{
    Codes low, high;
    codes_load<true>(low, chunk, chunk + CUDA_CODES * bits / 4);
    if (bits == 4) {
        chunk_times(low, f, row0, row1);
        return;
    }
    codes_load<true>(high, chunk + CUDA_CODES, chunk + 2 * CUDA_CODES);
#pragma unroll
    for (int group = 0; group < 2; group++) {
        const float2 l = group_times(low, f, group), h = group_times(high, f, group);
        const float s0 = group ? bf_hi(low.sb[0].x) : bf_lo(low.sb[0].x), b0 = group ? bf_hi(low.sb[0].y) : bf_lo(low.sb[0].y);
        const float s1 = group ? bf_hi(low.sb[1].x) : bf_lo(low.sb[1].x), b1 = group ? bf_hi(low.sb[1].y) : bf_lo(low.sb[1].y);
        row0 += s0 * (l.x + 16.f * h.x) + b0 * f.sum[group];
        row1 += s1 * (l.y + 16.f * h.y) + b1 * f.sum[group];
    }
}

/* part [tile][warp][16]: what each warp found for the rows of a tile. */
__device__ inline void part_put(float *part, uint32_t tile, float row0, float row1)
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if ((lane & 3) == 0) {
        part[(tile * GEMV_WARPS + warp) * 16 + (lane >> 2)] = row0;
        part[(tile * GEMV_WARPS + warp) * 16 + (lane >> 2) + 8] = row1;
    }
}
/* All warps have put something: those without a chunk, zeros. */
__device__ inline float part_sum(const float *part, uint32_t tile, uint32_t row)
{
    float sum = 0;
#pragma unroll
    for (uint32_t w = 0; w < GEMV_WARPS; w++) sum += part[(tile * GEMV_WARPS + w) * 16 + row];
    return sum;
}

/* The norm that a kernel leaves behind x * weight: its share of the sum of squares, by one warp. */
__device__ inline void norm_tail_put(float *n, uint32_t width, float square)
{
    square = warp_sum(square);
    if ((threadIdx.x & 31) == 0) {
        n[width + 1 + blockIdx.x] = square;
        if (blockIdx.x == 0) n[width] = __uint_as_float(gridDim.x);
    }
}
