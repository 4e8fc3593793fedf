/* gemv.cuh - packed rows times one vector on tensor cores.
 *
 * A warp multiplies one chunk (16 rows, 128 columns) at a time.  Of the vector each group of 64 columns becomes integers
 * of 21 bits and one scale, in three planes of 7 bits, which take three of the eight columns that mma has: products
 * with the codes are exact, and cost no more than one plane would.  Scale and bias are applied to the sum of a group. */
#pragma once
#include "device/cuda/kernels/common.cuh"

enum { GEMV_THREADS = 512, GEMV_WARPS = 16 };

/* The operand of one chunk: [plane][lane & 3][8 words]. */
enum { PLANES = 3, FRAGMENT_WORDS = PLANES * 4 * 8, PLANE_BITS = 7, LARGEST = 127 << (2 * PLANE_BITS) };

struct Vector {                 /* in shared memory */
    uint32_t *words;            /* [chunks][FRAGMENT_WORDS] */
    float *sums, *scales;       /* [chunks * 2], of 64 columns */
};

static inline size_t vector_bytes(uint32_t chunks) { return chunks * (FRAGMENT_WORDS * 4 + 16); }

__device__ inline Vector vector_at(uint8_t *room, uint32_t chunks)
{
    Vector v;
    v.words = (uint32_t *)room;
    v.sums = (float *)(v.words + chunks * FRAGMENT_WORDS);
    v.scales = v.sums + chunks * 2;
    return v;
}
/* What lies behind it. */
__device__ inline float *vector_end(const Vector &v, uint32_t chunks) { return v.scales + chunks * 2; }

/* Takes the lowest plane off. */
__device__ inline int plane_of(int &x)
{
    const int half = 1 << (PLANE_BITS - 1), low = ((x + half) & (2 * half - 1)) - half;
    x = (x - low) >> PLANE_BITS;
    return low;
}

/* Columns 2p and 2p + 1, by whole warps so that 32 neighbours are a group.  Of 16 neighbours (32 columns) thread i and
 * thread i + 8 have bytes of the same words: see code_byte for which columns a lane multiplies at once. */
__device__ inline void vector_put(const Vector &v, uint32_t p, float a, float b, float factor = 1.f)
{
    const float most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(fmaxf(fabsf(a), fabsf(b)))));
    const float to_int = most > 1e-30f ? (float)LARGEST / most : 0.f, scale = most > 1e-30f ? most / (float)LARGEST : 0.f;
    int x = __float2int_rn(a * to_int), y = __float2int_rn(b * to_int);
    const int sum = __reduce_add_sync(~0u, x + y);
    if ((threadIdx.x & 31) == 0) {
        v.sums[p / 32] = scale * factor * (float)sum;
        v.scales[p / 32] = scale * factor;
    }
    const uint32_t chunk = p / 64, t = p % 64 / 16, q = p % 8;
    uint32_t *to = v.words + (chunk * PLANES * 4 + (q & 3)) * 8 + 2 * t + (q >> 2);
#pragma unroll
    for (int plane = PLANES - 1; plane >= 0; plane--) {
        const int low = plane ? plane_of(x) : x, next = plane ? plane_of(y) : y;
        const uint32_t mine = ((uint32_t)low & 255) | ((uint32_t)next & 255) << 16;
        const uint32_t other = __shfl_down_sync(~0u, mine, 8);
        if ((p & 8) == 0) to[plane * 32] = mine | other << 8;
    }
}

/* x [cols] that an earlier kernel wrote, of at most AT_ONCE * 2 * GEMV_THREADS columns: asked for at once.  squares: of
 * its heads, or NULL. */
template <int AT_ONCE>
__device__ inline void vector_load(const Vector &v, const float *x, uint32_t cols, const float *squares = NULL, float eps = 0)
{
    float2 f[AT_ONCE];
    float factor[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        const uint32_t p = threadIdx.x + i * GEMV_THREADS;
        f[i] = p < cols / 2 ? __ldcg((const float2 *)x + p) : make_float2(0, 0);
        factor[i] = squares && p < cols / 2 ? head_scale(squares, p / (CUDA_HEAD / 2), eps) : 1.f;
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        const uint32_t p = threadIdx.x + i * GEMV_THREADS;
        if (p < cols / 2) vector_put(v, p, f[i].x, f[i].y, factor[i]);
    }
}

/* A lane's part of the operand, and what its two columns of results are worth: planes 0 and 1 in lanes with j = 0,
 * plane 2 in those with j = 1, nothing in the others. */
struct Fragment {
    uint4 b[2];                 /* steps of 32 columns: b[0].xy, b[0].zw, b[1].xy, b[1].zw */
    float first[2], second[2], sum[2];
};

__device__ inline void fragment_load(Fragment &f, const Vector &v, uint32_t chunk)
{
    const uint32_t lane = threadIdx.x & 31, plane = min(lane >> 2, (uint32_t)PLANES - 1), j = lane & 3;
    const uint4 *from = (const uint4 *)(v.words + ((chunk * PLANES + plane) * 4 + j) * 8);
    f.b[0] = from[0], f.b[1] = from[1];
#pragma unroll
    for (int g = 0; g < 2; g++) {
        const float scale = v.scales[2 * chunk + g];
        f.first[g] = j == 0 ? scale * (1 << (2 * PLANE_BITS)) : j == 1 ? scale : 0.f;
        f.second[g] = j == 0 ? scale * (1 << PLANE_BITS) : 0.f;
        f.sum[g] = j == 0 ? v.sums[2 * chunk + g] : 0.f;
    }
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

__device__ inline void mma16832(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Sums of code * x of one plane of codes and one group. */
__device__ inline void group_times(int (&c)[4], const Codes &w, const Fragment &f, int group)
{
    const uint32_t mask = 0x0F0F0F0F;
    const uint4 b = f.b[group];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t x = word_of(w.q[0], 2 * group + i), y = word_of(w.q[1], 2 * group + i);
        mma16832(c, x & mask, y & mask, x >> 4 & mask, y >> 4 & mask, i ? b.z : b.x, i ? b.w : b.y);
    }
}

/* Adds a lane's share of a group's products to rows g and g + 8. */
__device__ inline void group_add(const int (&c)[4], const uint2 (&sb)[2], const Fragment &f, int group, float &row0, float &row1)
{
    const float s0 = group ? bf_hi(sb[0].x) : bf_lo(sb[0].x), b0 = group ? bf_hi(sb[0].y) : bf_lo(sb[0].y);
    const float s1 = group ? bf_hi(sb[1].x) : bf_lo(sb[1].x), b1 = group ? bf_hi(sb[1].y) : bf_lo(sb[1].y);
    row0 += s0 * ((float)c[0] * f.first[group] + (float)c[1] * f.second[group]) + b0 * f.sum[group];
    row1 += s1 * ((float)c[2] * f.first[group] + (float)c[3] * f.second[group]) + b1 * f.sum[group];
}

/* Adds a lane's share of a chunk's products: see rows_sum. */
__device__ inline void chunk_times(const Codes &w, const Fragment &f, float &row0, float &row1)
{
#pragma unroll
    for (int group = 0; group < 2; group++) {
        int c[4] = {};
        group_times(c, w, f, group);
        group_add(c, w.sb, f, group, row0, row1);
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
        int c[4] = {}, upper[4] = {};
        group_times(c, low, f, group);
        group_times(upper, high, f, group);
#pragma unroll
        for (int i = 0; i < 4; i++) c[i] += 16 * upper[i];
        group_add(c, low.sb, f, group, row0, row1);
    }
}

/* The lanes' shares together, in lanes with j = 0. */
__device__ inline float rows_sum(float row) { return row + __shfl_xor_sync(~0u, row, 1); }

/* part [tile][warp][16]: what each warp found for the rows of a tile. */
__device__ inline void part_put(float *part, uint32_t tile, float row0, float row1)
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    row0 = rows_sum(row0);
    row1 = rows_sum(row1);
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
