/* delta_chunk.cu - the delta rule of many tokens in matrix form, heads of 128: blocks of 64 tokens on tensor cores.
 *
 * With G the sums of the logarithms of g within a block, K Q V its rows and S the state before it:
 *     A[i][j] = beta_i (k_i . k_j) exp(G_i - G_j) for j < i,   T = (I + A)^-1,   P[i][j] = (q_i . k_j) exp(G_i - G_j), j <= i
 *     V' = T beta (V - exp(G) K S^T),   O = exp(G) Q S^T + P V',   S = exp(G_last) S + (exp(G_last - G) V')^T K
 * T and P of all blocks are made at once (delta_triangles); the rest goes from block to block with 32 rows of a head's
 * state in a thread block's registers (delta_blocks).  Operands are fp16, which has eight times the precision of bf16; all of
 * them but V and what comes of it are below 1 or not much above, and those saturate at 65,504.  Sums are float.
 * A block ends early where the state is to be kept (marks). */
#include "device/cuda/kernels/common.cuh"

namespace {

enum { HEAD = 128, BLOCK = 64, ROWS = 32 };
enum { WIDE = HEAD + 8, SQUARE = BLOCK + 8, NARROW = ROWS + 8 };       /* rows in shared memory, where no eight meet in a bank */
enum { TRIANGLE = BLOCK * BLOCK };

struct Span {
    uint32_t start, count;
};

/* Block b: marks cut the run into parts, parts are cut every 64 tokens. */
__device__ inline Span span_of(const cuda_delta &d, uint32_t b)
{
    uint32_t from = 0, before = 0;
    for (uint32_t m = 0; m <= d.lane->n_marks; m++) {
        const uint32_t end = m < d.lane->n_marks ? min(d.lane->mark_at[m], d.tokens) : d.tokens;
        const uint32_t n = end > from ? (end - from + BLOCK - 1) / BLOCK : 0;
        if (b < before + n) {
            const uint32_t start = from + (b - before) * BLOCK;
            return {start, min((uint32_t)BLOCK, end - start)};
        }
        before += n;
        from = max(from, end);
    }
    return {d.tokens, 0};
}

struct Room {
    uint16_t *keys;             /* fp16 [tokens][k, q][key heads][128] */
    uint16_t *triangles;        /* fp16 [block][value head][T, P][64][64] */
    float *gates;               /* [block][value head][G, beta][64] */
};

uint32_t blocks_at_most(uint32_t tokens) { return ceil_div(tokens, BLOCK) + CUDA_MAX_MARKS; }

__device__ inline void load4(uint32_t (&r)[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}
__device__ inline void load4_turned(uint32_t (&r)[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}
/* Operands of mma out of rows in shared memory: rows x 16 columns of a; 16 columns x 16 rows of b; b whose rows are the
 * sum's; a whose rows are the sum's. */
__device__ inline void load_a(uint32_t (&r)[4], const uint16_t *at, uint32_t stride)
{
    const uint32_t lane = threadIdx.x & 31;
    load4(r, at + (lane & 15) * stride + (lane >> 4) * 8);
}
__device__ inline void load_b(uint32_t (&r)[4], const uint16_t *at, uint32_t stride)
{
    const uint32_t lane = threadIdx.x & 31;
    load4(r, at + ((lane & 7) + (lane >> 4) * 8) * stride + (lane >> 3 & 1) * 8);
}
__device__ inline void load_b_turned(uint32_t (&r)[4], const uint16_t *at, uint32_t stride)
{
    const uint32_t lane = threadIdx.x & 31;
    load4_turned(r, at + (lane & 15) * stride + (lane >> 4) * 8);
}
__device__ inline void load_a_turned(uint32_t (&r)[4], const uint16_t *at, uint32_t stride)
{
    const uint32_t lane = threadIdx.x & 31;
    load4_turned(r, at + ((lane & 7) + (lane >> 4) * 8) * stride + (lane >> 3 & 1) * 8);
}
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* Two products side by side. */
__device__ inline void multiply2(float (&c)[2][4], const uint32_t (&a)[4], const uint32_t (&b)[4])
{
    multiply(c[0], a, b[0], b[1]);
    multiply(c[1], a, b[2], b[3]);
}

/* ---- T and P ---- */

struct TriangleRoom {
    uint16_t k[BLOCK * WIDE], q[BLOCK * WIDE];
    float a[2][BLOCK * (BLOCK + 4)];
    float sum[2][BLOCK], beta[2][BLOCK];
};

/* Rows as fp16 into shared memory, zeros behind the span, and for delta_blocks. */
__device__ void take_keys(const cuda_delta &d, const Room &room, const Span &span, uint32_t key_head, TriangleRoom &s)
{
    const uint32_t key_width = d.k_heads * HEAD;
    for (uint32_t i = threadIdx.x; i < BLOCK * 64; i += 128) {
        const uint32_t t = i >> 6, which = i >> 5 & 1, c = (i & 31) * 4;
        uint2 v = make_uint2(0, 0);
        if (t < span.count) {
            const size_t at = (size_t)(span.start + t) * 2 * key_width + key_head * HEAD + c;
            const float4 x = *(const float4 *)(d.qk + at + (which ? 0 : key_width));
            v = make_uint2(pack_half(x.x, x.y), pack_half(x.z, x.w));
            *(uint2 *)(room.keys + at + (which ? key_width : 0)) = v;
        }
        *(uint2 *)((which ? s.q : s.k) + t * WIDE + c) = v;
    }
}

/* Sums of log g and beta of one value head, by a warp. */
__device__ void take_gates(const cuda_delta &d, const Room &room, const Span &span, uint32_t b, uint32_t head, float *sum,
                           float *beta)
{
    const uint32_t lane = threadIdx.x & 31;
    float log_g[2], all;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t t = 2 * lane + i;
        const float *at = d.g + (size_t)(span.start + t) * 2 * d.v_heads + head;
        log_g[i] = t < span.count ? fmaxf(logf(at[d.v_heads]), -1e4f) : 0.f;
        beta[t] = t < span.count ? at[0] : 0.f;
    }
    all = log_g[0] + log_g[1];
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        const float below = __shfl_up_sync(~0u, all, o);
        if (lane >= (uint32_t)o) all += below;
    }
    sum[2 * lane] = all - log_g[1];
    sum[2 * lane + 1] = all;
    float *out = room.gates + ((size_t)b * d.v_heads + head) * 2 * BLOCK + 2 * lane;
    *(float2 *)out = make_float2(sum[2 * lane], sum[2 * lane + 1]);
    *(float2 *)(out + BLOCK) = make_float2(beta[2 * lane], beta[2 * lane + 1]);
}

/* Column c of (I + A)^-1. */
__device__ void invert(const float *a, uint32_t c, uint16_t *out)
{
    float t[BLOCK];
#pragma unroll
    for (int i = 0; i < BLOCK; i++) {
        float part[4] = {(uint32_t)i == c ? 1.f : 0.f, 0, 0, 0};
#pragma unroll
        for (int j = 0; j < i; j += 4) {
            const float4 row = *(const float4 *)(a + i * (BLOCK + 4) + j);
            part[0] -= row.x * t[j];
            if (j + 1 < i) part[1] -= row.y * t[j + 1];
            if (j + 2 < i) part[2] -= row.z * t[j + 2];
            if (j + 3 < i) part[3] -= row.w * t[j + 3];
        }
        t[i] = (part[0] + part[1]) + (part[2] + part[3]);
        out[i * BLOCK + c] = (uint16_t)pack_half(t[i], 0);
    }
}

__global__ __launch_bounds__(128) void delta_triangles(const __grid_constant__ cuda_delta d, const Room room)
{
    extern __shared__ __align__(16) uint8_t shared[];
    TriangleRoom &s = *(TriangleRoom *)shared;
    const uint32_t key_head = blockIdx.x, b = blockIdx.y, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const uint32_t ratio = d.v_heads / d.k_heads, g = lane >> 2, j = lane & 3;
    const Span span = span_of(d, b);
    if (!span.count) return;
    take_keys(d, room, span, key_head, s);
    if (warp < ratio) take_gates(d, room, span, b, key_head * ratio + warp, s.sum[warp], s.beta[warp]);
    __syncthreads();
    float kk[4][2][4] = {}, qk[4][2][4] = {};
#pragma unroll
    for (int step = 0; step < HEAD / 16; step++) {
        uint32_t ak[4], aq[4], bk[4];
        load_a(ak, s.k + warp * 16 * WIDE + step * 16, WIDE);
        load_a(aq, s.q + warp * 16 * WIDE + step * 16, WIDE);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            if ((uint32_t)n > warp) continue;
            load_b(bk, s.k + n * 16 * WIDE + step * 16, WIDE);
            multiply2(kk[n], ak, bk);
            multiply2(qk[n], aq, bk);
        }
    }
    for (uint32_t r = 0; r < ratio; r++) {
        uint16_t *p = room.triangles + (((size_t)b * d.v_heads + key_head * ratio + r) * 2 + 1) * TRIANGLE;
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t row = warp * 16 + g + h * 8, column = n * 8 + 2 * j;
                float a[2], w[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const float decay = column + i <= row ? expf(s.sum[r][row] - s.sum[r][column + i]) : 0.f;
                    a[i] = column + i < row ? s.beta[r][row] * kk[n / 2][n & 1][h * 2 + i] * decay : 0.f;
                    w[i] = qk[n / 2][n & 1][h * 2 + i] * decay;
                }
                *(float2 *)(s.a[r] + row * (BLOCK + 4) + column) = make_float2(a[0], a[1]);
                *(uint32_t *)(p + row * BLOCK + column) = pack_half(w[0], w[1]);
            }
    }
    __syncthreads();
    const uint32_t r = threadIdx.x >> 6;
    if (r < ratio)
        invert(s.a[r], threadIdx.x & 63, room.triangles + ((size_t)b * d.v_heads + key_head * ratio + r) * 2 * TRIANGLE);
}

/* ---- from block to block ---- */

struct Stage {
    uint16_t k[BLOCK * WIDE], q[BLOCK * WIDE], t[BLOCK * SQUARE], p[BLOCK * SQUARE];
    float v[BLOCK * NARROW], gates[2 * BLOCK];
};
struct BlockRoom {
    Stage stage[2];
    uint16_t state[ROWS * WIDE];
    uint16_t rest[BLOCK * NARROW], fresh[BLOCK * NARROW], faded[BLOCK * NARROW];       /* beta(V - …), V', exp(G_last - G) V' */
};

__device__ void fetch(const cuda_delta &d, const Room &room, Stage &s, const Span &span, uint32_t b, uint32_t head, uint32_t row0,
                      uint32_t width)
{
    const uint32_t key_width = d.k_heads * HEAD, key_head = head / (d.v_heads / d.k_heads);
    const uint16_t *triangles = room.triangles + ((size_t)b * d.v_heads + head) * 2 * TRIANGLE;
    for (uint32_t i = threadIdx.x; i < BLOCK * 32; i += 256) {
        const uint32_t t = i >> 5, which = i >> 4 & 1, c = (i & 15) * 8;
        const bool live = t < span.count;
        const size_t at = (size_t)(span.start + (live ? t : 0)) * 2 * key_width + which * key_width + key_head * HEAD + c;
        async_copy16((which ? s.q : s.k) + t * WIDE + c, room.keys + at, live);
    }
    for (uint32_t i = threadIdx.x; i < 2 * BLOCK * 8; i += 256) {
        const uint32_t which = i >> 9, t = i >> 3 & 63, c = (i & 7) * 8;
        async_copy16((which ? s.p : s.t) + t * SQUARE + c, triangles + which * TRIANGLE + t * BLOCK + c, true);
    }
    for (uint32_t i = threadIdx.x; i < BLOCK * 8; i += 256) {
        const uint32_t t = i >> 3, c = (i & 7) * 4;
        const bool live = t < span.count;
        async_copy16(s.v + t * NARROW + c, d.u + (size_t)(span.start + (live ? t : 0)) * width + 2 * key_width + head * HEAD + row0 + c, live);
    }
    if (threadIdx.x < 32)
        async_copy16(s.gates + threadIdx.x * 4, room.gates + ((size_t)b * d.v_heads + head) * 2 * BLOCK + threadIdx.x * 4, true);
    async_commit();
}

/* A warp's part of the state: 32 rows, 16 columns. */
typedef float Held[2][2][4];

__device__ inline void share_state(const Held &held, BlockRoom &s)
{
    const uint32_t warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2, j = threadIdx.x & 3;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t at = (m * 16 + g + h * 8) * WIDE + warp * 16 + n * 8 + 2 * j;
                *(uint32_t *)(s.state + at) = pack_half(held[m][n][2 * h], held[m][n][2 * h + 1]);
            }
}
__device__ inline void move_state(Held &held, float *state, bool load)
{
    const uint32_t warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2, j = threadIdx.x & 3;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float2 *at = (float2 *)(state + (m * 16 + g + h * 8) * HEAD + warp * 16 + n * 8 + 2 * j);
                if (load) {
                    const float2 v = *at;
                    held[m][n][2 * h] = v.x, held[m][n][2 * h + 1] = v.y;
                } else {
                    *at = make_float2(held[m][n][2 * h], held[m][n][2 * h + 1]);
                }
            }
}

/* 16 rows of K or Q times the state. */
__device__ inline void times_state(float (&x)[2][2][4], const uint16_t *rows, const BlockRoom &s)
{
#pragma unroll
    for (int step = 0; step < HEAD / 16; step++) {
        uint32_t a[4], b[4];
        load_a(a, rows + step * 16, WIDE);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            load_b(b, s.state + n * 16 * WIDE + step * 16, WIDE);
            multiply2(x[n], a, b);
        }
    }
}
/* 16 rows of a lower triangle, the tile-th sixteen, times 64 rows of 32. */
__device__ inline void times_triangle(float (&x)[2][2][4], const uint16_t *triangle, uint32_t tile, const uint16_t *rows)
{
#pragma unroll
    for (int step = 0; step < BLOCK / 16; step++) {
        if ((uint32_t)step > tile) break;
        uint32_t a[4], b[4];
        load_a(a, triangle + tile * 16 * SQUARE + step * 16, SQUARE);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            load_b_turned(b, rows + step * 16 * NARROW + n * 16, NARROW);
            multiply2(x[n], a, b);
        }
    }
}

/* Results of 16 rows and 32 columns, two neighbours at a time. */
template <class F> __device__ inline void each_pair(float (&x)[2][2][4], uint32_t tile, F f)
{
    const uint32_t g = (threadIdx.x & 31) >> 2, j = threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) f(tile * 16 + g + h * 8, n * 8 + 2 * j, x[n >> 1][n & 1][2 * h], x[n >> 1][n & 1][2 * h + 1]);
}

__device__ inline void update_state(Held &held, const Stage &t, const BlockRoom &s)
{
    const uint32_t warp = threadIdx.x >> 5;
    const float keep = expf(t.gates[BLOCK - 1]);
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) held[m][n][i] *= keep;
#pragma unroll
    for (int step = 0; step < BLOCK / 16; step++) {
        uint32_t a[4], b[4];
        load_b_turned(b, t.k + step * 16 * WIDE + warp * 16, WIDE);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            load_a_turned(a, s.faded + step * 16 * NARROW + m * 16, NARROW);
            multiply2(held[m], a, b);
        }
    }
}

/* Warps 0 … 3 have the block's tokens as keys, 4 … 7 as queries; all have a part of the state. */
__global__ __launch_bounds__(256, 1) void delta_blocks(const __grid_constant__ cuda_delta d, const Room room, uint32_t width)
{
    extern __shared__ __align__(16) uint8_t shared[];
    BlockRoom &s = *(BlockRoom *)shared;
    const uint32_t head = blockIdx.x >> 2, row0 = (blockIdx.x & 3) * ROWS, warp = threadIdx.x >> 5, tile = warp & 3;
    const size_t at = d.s_at + ((size_t)head * HEAD + row0) * HEAD;
    float *out = d.dn + head * HEAD + row0;
    Held held;
    move_state(held, d.lane->recurrent + at, true);
    share_state(held, s);
    uint32_t mark = 0;
    Span span = span_of(d, 0);
    fetch(d, room, s.stage[0], span, 0, head, row0, width);
    for (uint32_t b = 0; span.count; b++) {
        async_wait<0>();
        __syncthreads();
        Stage &t = s.stage[b & 1];
        const Span next = span_of(d, b + 1);
        if (next.count) fetch(d, room, s.stage[~b & 1], next, b + 1, head, row0, width);
        float x[2][2][4] = {};
        times_state(x, (warp < 4 ? t.k : t.q) + tile * 16 * WIDE, s);
        if (warp < 4)
            each_pair(x, tile, [&](uint32_t row, uint32_t column, float &y, float &z) {
                const float fade = expf(t.gates[row]), beta = t.gates[BLOCK + row];
                const float2 v = *(const float2 *)(t.v + row * NARROW + column);
                *(uint32_t *)(s.rest + row * NARROW + column) = pack_half(beta * (v.x - fade * y), beta * (v.y - fade * z));
                y = z = 0;
            });
        else
            each_pair(x, tile, [&](uint32_t row, uint32_t, float &y, float &z) {
                const float fade = expf(t.gates[row]);
                y *= fade, z *= fade;
            });
        __syncthreads();
        if (warp < 4) {
            times_triangle(x, t.t, tile, s.rest);
            each_pair(x, tile, [&](uint32_t row, uint32_t column, float &y, float &z) {
                const float fade = expf(t.gates[BLOCK - 1] - t.gates[row]);
                *(uint32_t *)(s.fresh + row * NARROW + column) = pack_half(y, z);
                *(uint32_t *)(s.faded + row * NARROW + column) = pack_half(fade * y, fade * z);
            });
        }
        __syncthreads();
        update_state(held, t, s);
        share_state(held, s);
        if (warp >= 4) {
            times_triangle(x, t.p, tile, s.fresh);
            each_pair(x, tile, [&](uint32_t row, uint32_t column, float &y, float &z) {
                if (row < span.count) *(float2 *)(out + (size_t)(span.start + row) * d.v_heads * HEAD + column) = make_float2(y, z);
            });
        }
        while (mark < d.lane->n_marks && d.lane->mark_at[mark] == span.start + span.count)
            move_state(held, d.lane->mark[mark++] + at, false);
        span = next;
    }
    move_state(held, d.lane->recurrent + at, false);
}

Room room_of(const cuda_delta *d, void *work)
{
    const size_t blocks = blocks_at_most(d->tokens);
    Room r;
    r.triangles = (uint16_t *)work;
    r.gates = (float *)(r.triangles + blocks * d->v_heads * 2 * TRIANGLE);
    r.keys = (uint16_t *)(r.gates + blocks * d->v_heads * 2 * BLOCK);
    return r;
}

}

size_t cuda_delta_chunk_room(uint32_t tokens, uint32_t k_heads, uint32_t v_heads)
{
    const size_t blocks = blocks_at_most(tokens);
    return blocks * v_heads * (2 * TRIANGLE * sizeof(uint16_t) + 2 * BLOCK * sizeof(float)) +
           (size_t)tokens * 2 * k_heads * HEAD * sizeof(uint16_t);
}

size_t cuda_delta_chunk_shared(void) { return sizeof(BlockRoom); }

cudaError_t cuda_delta_chunk(const cuda_delta *d, void *work, cudaStream_t s)
{
    static bool allowed = false;
    if (!allowed) {
        cudaError_t e = cudaFuncSetAttribute(delta_triangles, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(TriangleRoom));
        if (e == cudaSuccess) e = cudaFuncSetAttribute(delta_blocks, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(BlockRoom));
        if (e != cudaSuccess) return e;
        allowed = true;
    }
    const Room room = room_of(d, work);
    delta_triangles<<<dim3(d->k_heads, blocks_at_most(d->tokens)), 128, sizeof(TriangleRoom), s>>>(*d, room);
    delta_blocks<<<d->v_heads * (HEAD / ROWS), 256, sizeof(BlockRoom), s>>>(*d, room, 2 * d->k_heads * HEAD + d->v_heads * HEAD);
    return cudaGetLastError();
}
