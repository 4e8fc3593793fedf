/* attention_many.cu - attention of many tokens and the gate on it: heads of 256, eight query heads a key head.
 *
 * A block has 16 tokens and the eight heads that share a key head: 128 rows for one pass over the cache, 32 positions
 * at a time, in bf16 with sums in float.  A warp has two tokens; what it weighs stays in its registers. */
#include "device/cuda/kernels/common.cuh"

enum { DIM = 256, SHARE = 8, TOKENS = 16, ROWS = TOKENS * SHARE, TILE = 32, THREADS = 256, ROW_BYTES = DIM * 2 };

/* 16 bytes: piece p (of 32) of a row, where no eight rows meet in a bank. */
static __device__ inline uint32_t piece_at(uint32_t row, uint32_t p) { return row * ROW_BYTES + (p ^ (row & 7)) * 16; }

static __device__ inline void load4(uint32_t (&r)[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}
static __device__ inline void load4_turned(uint32_t (&r)[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)));
}

/* Two stages: the next tile is on its way meanwhile; one: where a block has less than 128 KiB. */
template <int STAGES> struct Shared {
    uint8_t q[ROWS * ROW_BYTES];
    uint8_t kv[STAGES][2][TILE * ROW_BYTES];    /* [turn][keys, values] */
};

template <int STAGES>
static __device__ void fetch(Shared<STAGES> &s, const cuda_attention &a, uint32_t head, uint32_t tile, uint32_t turn)
{
    const uint32_t position = tile * TILE;
    const uint16_t *page = a.lane->pages[position / CUDA_PAGE];
#pragma unroll
    for (uint32_t which = 0; which < 2; which++) {
        const uint16_t *from = page + (((size_t)(a.layer * 2 + which) * a.kv_heads + head) * CUDA_PAGE + position % CUDA_PAGE) * DIM;
#pragma unroll
        for (int i = 0; i < TILE * 32 / THREADS; i++) {
            const uint32_t at = threadIdx.x + i * THREADS;
            async_copy16(s.kv[turn][which] + piece_at(at / 32, at % 32), from + (size_t)at * 8, true);
        }
    }
    async_commit();
}

/* Queries as bf16, scaled by 1/16, which is exact. */
static __device__ void load_queries(uint8_t *q, const cuda_attention &a, uint32_t head, uint32_t t0)
{
    for (uint32_t i = threadIdx.x; i < ROWS * 32; i += THREADS) {
        const uint32_t row = i / 32, t = t0 + row / SHARE;
        uint4 out = make_uint4(0, 0, 0, 0);
        if (t < a.tokens) {
            const float4 *from = (const float4 *)(a.q + ((size_t)t * a.q_heads + head * SHARE + row % SHARE) * DIM) + i % 32 * 2;
            const float4 x = from[0], y = from[1];
            out = make_uint4(pack_bf16(x.x * 0.0625f, x.y * 0.0625f), pack_bf16(x.z * 0.0625f, x.w * 0.0625f),
                             pack_bf16(y.x * 0.0625f, y.y * 0.0625f), pack_bf16(y.z * 0.0625f, y.w * 0.0625f));
        }
        *(uint4 *)(q + piece_at(row, i % 32)) = out;
    }
}

/* Of rows g and g + 8 of a warp: the largest score, the sum of weights; and the weighted values. */
struct Running {
    float most[2], sum[2], out[DIM / 8][4];
};

template <int STAGES>
static __device__ void add_tile(Running &r, const Shared<STAGES> &s, uint32_t turn, uint32_t p0, uint32_t last)
{
    const uint32_t lane = threadIdx.x & 31, row0 = (threadIdx.x >> 5) * 16, j = lane & 3;
    float c[TILE / 8][4] = {};
#pragma unroll
    for (int k = 0; k < DIM / 32; k++) {
        uint32_t q[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) load4(q[i], s.q + piece_at(row0 + (lane & 15), k * 4 + i * 2 + (lane >> 4)));
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) {
            uint32_t b[4];
            load4(b, s.kv[turn][0] + piece_at(n * 8 + (lane & 7), k * 4 + (lane >> 3)));
            mma16816(c[n], q[0][0], q[0][1], q[0][2], q[0][3], b[0], b[1]);
            mma16816(c[n], q[1][0], q[1][1], q[1][2], q[1][3], b[2], b[3]);
        }
    }
    uint32_t weights[TILE / 8][2];
#pragma unroll
    for (int h = 0; h < 2; h++) {               /* the warp's first token, its second */
        float top = r.most[h];
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (p0 + n * 8 + 2 * j + i > last + h) c[n][2 * h + i] = -CUDART_INF_F;
                top = fmaxf(top, c[n][2 * h + i]);
            }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        const float from = top == -CUDART_INF_F ? 0.f : top, keep = __expf(r.most[h] - from);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) {
            weights[n][h] = pack_bf16(__expf(c[n][2 * h] - from), __expf(c[n][2 * h + 1] - from));
            sum += bf_lo(weights[n][h]) + bf_hi(weights[n][h]);
        }
        r.most[h] = top;
        r.sum[h] = r.sum[h] * keep + sum;
        if (__any_sync(~0u, keep != 1.f))
#pragma unroll
            for (int n = 0; n < DIM / 8; n++) r.out[n][2 * h] *= keep, r.out[n][2 * h + 1] *= keep;
    }
#pragma unroll
    for (int n = 0; n < DIM / 8; n++) {
        uint32_t b[4];
        load4_turned(b, s.kv[turn][1] + piece_at(lane, n));
        mma16816(r.out[n], weights[0][0], weights[0][1], weights[1][0], weights[1][1], b[0], b[1]);
        mma16816(r.out[n], weights[2][0], weights[2][1], weights[3][0], weights[3][1], b[2], b[3]);
    }
}

template <int STAGES>
static __global__ __launch_bounds__(THREADS, 1) void attend_many(const __grid_constant__ cuda_attention a, bool gate)
{
    extern __shared__ __align__(128) uint8_t shared[];
    Shared<STAGES> &s = *(Shared<STAGES> *)shared;
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, j = lane & 3, head = blockIdx.y;
    const uint32_t t0 = (gridDim.x - 1 - blockIdx.x) * TOKENS;          /* the longest first */
    const uint32_t t = t0 + (threadIdx.x >> 5) * 2, first = a.lane->position;
    const uint32_t tiles = (first + min(t0 + TOKENS, a.tokens) + TILE - 1) / TILE;
    if (STAGES == 2) fetch(s, a, head, 0, 0);
    load_queries(s.q, a, head, t0);
    Running r = {};
    r.most[0] = r.most[1] = -CUDART_INF_F;
    for (uint32_t tile = 0; tile < tiles; tile++) {
        if (STAGES == 1) fetch(s, a, head, tile, 0);
        if (STAGES == 2 && tile + 1 < tiles) {
            fetch(s, a, head, tile + 1, (tile + 1) & 1);
            async_wait<1>();
        } else {
            async_wait<0>();
        }
        __syncthreads();
        add_tile(r, s, tile & (STAGES - 1), tile * TILE, first + t);
        __syncthreads();
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = r.sum[h] + __shfl_xor_sync(~0u, r.sum[h], 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (t + h >= a.tokens) continue;
        const size_t at = ((size_t)(t + h) * a.q_heads + head * SHARE + g) * DIM;
        const float scale = 1.f / sum, *gates = a.qg + at * 2 + DIM;
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
            const uint32_t c = n * 8 + 2 * j;
            float x = r.out[n][2 * h] * scale, y = r.out[n][2 * h + 1] * scale;
            if (!gate) {
                *(float2 *)(a.ao + at + c) = make_float2(x, y);
                continue;
            }
            const float2 z = *(const float2 *)(gates + c);
            *(uint32_t *)((uint16_t *)a.aog + at + c) = pack_bf16(x * sigmoidf(z.x), y * sigmoidf(z.y));
        }
    }
}

template <int STAGES> static cudaError_t launch_many(const cuda_attention *a, bool gate, cudaStream_t s)
{
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(attend_many<STAGES>, sizeof(Shared<STAGES>), allowed);
    if (e != cudaSuccess) return e;
    attend_many<STAGES><<<dim3(ceil_div(a->tokens, TOKENS), a->kv_heads), THREADS, sizeof(Shared<STAGES>), s>>>(*a, gate);
    return cudaGetLastError();
}

cudaError_t cuda_attend_many(const cuda_attention *a, bool gate, cudaStream_t s)
{
    if (a->hopper) return cuda_attend_wgmma(a, gate, s);
    return sizeof(Shared<2>) <= shared_at_most() ? launch_many<2>(a, gate, s) : launch_many<1>(a, gate, s);
}
