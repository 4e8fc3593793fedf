/* gemv.cuh - packed rows times one vector on tensor cores.
 *
 * A warp multiplies one chunk (16 rows, 128 columns) at a time.  Of the vector each group of 64 columns becomes integers
 * of 21 bits and one scale, in three planes of 7 bits, which take three of the eight columns that mma has: products
 * with the codes are exact, and cost no more than one plane would.  Scale and bias are applied to the sum of a group. */
#pragma once
#include "device/cuda/kernels/common.cuh"

enum { GEMV_THREADS = 512, GEMV_WARPS = 16 };

/* Of the warps that multiply, where there is one more that asks for weights. */
__device__ inline void gemv_sync() { asm volatile("bar.sync 1, %0;" ::"n"((int)GEMV_THREADS) : "memory"); }

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

/* The i-th pair of columns, 2p and 2p + 1, of a lane: a warp has chunks warp, warp + GEMV_WARPS, …, which it will also
 * multiply with, so that nobody waits for others' vectors. */
__device__ inline uint32_t pair_at(uint32_t i)
{
    return ((threadIdx.x >> 5) + i / 2 * GEMV_WARPS) * 64 + i % 2 * 32 + (threadIdx.x & 31);
}

/* N pairs, those below `pairs`.  32 neighbours are a group.  Of 16 neighbours (32 columns) lane i and lane i + 8 have bytes
 * of the same words: see code_byte for which columns a lane multiplies at once. */
template <int N>
__device__ inline void vector_put(const Vector &v, uint32_t pairs, const float2 (&f)[N], const float (&factor)[N])
{
    const uint32_t digit = (1 << PLANE_BITS) - 1, half = 1 << (PLANE_BITS - 1), halves = half * (digit + 2);
    uint32_t most[N];
    int x[N], y[N], sum[N];
#pragma unroll
    for (int i = 0; i < N; i++) most[i] = __reduce_max_sync(~0u, __float_as_uint(fmaxf(fabsf(f[i].x), fabsf(f[i].y))));
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float to_int = __fdividef((float)LARGEST, fmaxf(__uint_as_float(most[i]), 1e-30f));
        x[i] = __float2int_rn(f[i].x * to_int), y[i] = __float2int_rn(f[i].y * to_int);
        sum[i] = __reduce_add_sync(~0u, x[i] + y[i]);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t p = pair_at(i), chunk = p / 64, t = p % 64 / 16, q = p % 8;
        /* Digits of 7 bits, the lower two from -64 to 63: with 64 added to each they are bits of a sum. */
        const uint32_t xs = (uint32_t)x[i] + halves, ys = (uint32_t)y[i] + halves;
        uint32_t all[PLANES];
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++) {
            const int shift = (PLANES - 1 - plane) * PLANE_BITS;
            const uint32_t mask = plane ? digit : 255, mine = (xs >> shift & mask) | (ys >> shift & mask) << 16;
            all[plane] = mine | __shfl_down_sync(~0u, mine, 8) << 8;
            if (plane == 0) continue;
            all[plane] ^= half * 0x01010101u;           /* 64 off again: bit 6 is turned and becomes the sign */
            all[plane] |= (all[plane] & half * 0x01010101u) << 1;
        }
        uint32_t *to = v.words + (chunk * PLANES * 4 + (q & 3)) * 8 + 2 * t + (q >> 2);
        if ((p & 8) == 0 && p < pairs) {
            to[0] = all[0];
            to[32] = all[1];
            to[64] = all[2];
        }
        if ((threadIdx.x & 31) == 0 && p < pairs) {
            const float scale = fmaxf(__uint_as_float(most[i]), 1e-30f) * factor[i] * (1.f / (float)LARGEST);
            v.sums[p / 32] = scale * (float)sum[i];
            v.scales[p / 32] = scale;
        }
    }
    __syncwarp();
}

/* x [cols] that an earlier kernel wrote, of at most N / 2 chunks a warp, on its way.  Asked for before weights
 * are: behind them it would take as long as they do. */
template <int N> struct Asked {
    float2 f[N];
    float factor[N];
};

/* squares: of its heads, or NULL. */
template <int N>
__device__ inline void vector_ask(Asked<N> &to, const float *x, uint32_t cols, const float *squares = NULL, float eps = 0)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t p = min(pair_at(i), cols / 2 - 32 + threadIdx.x % 32);
        asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(to.f[i].x), "=f"(to.f[i].y) : "l"((const float2 *)x + p));
        to.factor[i] = squares ? head_scale(squares, p / (CUDA_HEAD / 2), eps) : 1.f;
    }
}

template <int N> __device__ inline void vector_put(const Vector &v, const Asked<N> &from, uint32_t cols)
{
    vector_put(v, cols / 2, from.f, from.factor);
}

template <int N>
__device__ inline void vector_load(const Vector &v, const float *x, uint32_t cols, const float *squares = NULL, float eps = 0)
{
    Asked<N> a;
    vector_ask(a, x, cols, squares, eps);
    vector_put(v, a, cols);
}

/* A lane's part of the operand, zeros beyond the last plane, and what its two columns of results are worth when the
 * first is taken PLANE_BITS higher: planes 0 and 1 in lanes with j = 0, plane 2 in those with j = 1. */
struct Fragment {
    uint4 b[2];                 /* steps of 32 columns: b[0].xy, b[0].zw, b[1].xy, b[1].zw */
    float worth[2], sum[2];
};

__device__ inline void fragment_load(Fragment &f, const Vector &v, uint32_t chunk)
{
    const uint32_t lane = threadIdx.x & 31, plane = lane >> 2, j = lane & 3;
    const uint4 *from = (const uint4 *)(v.words + ((chunk * PLANES + plane) * 4 + j) * 8);
    f.b[0] = f.b[1] = make_uint4(0, 0, 0, 0);
    if (plane < PLANES) f.b[0] = from[0], f.b[1] = from[1];
#pragma unroll
    for (int g = 0; g < 2; g++) {
        const float scale = v.scales[2 * chunk + g];
        f.worth[g] = j == 0 ? scale * (1 << PLANE_BITS) : j == 1 ? scale / (1 << PLANE_BITS) : 0.f;
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
    row0 += s0 * ((float)(c[0] * (1 << PLANE_BITS) + c[1]) * f.worth[group]) + b0 * f.sum[group];
    row1 += s1 * ((float)(c[2] * (1 << PLANE_BITS) + c[3]) * f.worth[group]) + b1 * f.sum[group];
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
