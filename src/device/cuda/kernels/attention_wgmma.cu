/* attention_wgmma.cu - attention of many tokens and the gate on it, for Hopper: heads of 256, eight query heads a key head.
 *
 * A block has 16 tokens and the eight heads that share a key head: two consumer warpgroups of 64 rows for one pass over
 * the cache, 64 positions at a time; a producer warpgroup copies keys and values into a ring of two.  Scores are products
 * of shared memory, weights stay in registers as operands of the second product. */
#include "device/cuda/kernels/common.cuh"
#include "device/cuda/kernels/wgmma.cuh"

namespace {

enum { DIM = 256, SHARE = 8, TOKENS = 16, ROWS = TOKENS * SHARE, TILE = 64, STAGES = 2, PRODUCERS = 128, THREADS = 384 };
enum { PANEL = TILE * 128, KEYS = 4 * PANEL, STAGE = 2 * KEYS, QUERY_PANEL = ROWS * 128 };    /* panels: 64 columns of all rows */

struct Room {
    uint8_t q[4 * QUERY_PANEL], kv[STAGES][STAGE];
};

__device__ inline uint32_t piece_at(uint32_t panel_bytes, uint32_t row, uint32_t p)
{
    return (p >> 3) * panel_bytes + row * 128 + (((p & 7) ^ (row & 7)) * 16);
}

/* Queries as bf16, scaled by 1/16, which is exact. */
__device__ void load_queries(uint8_t *q, const cuda_attention &a, uint32_t head, uint32_t t0)
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
        *(uint4 *)(q + piece_at(QUERY_PANEL, row, i % 32)) = out;
    }
}

/* Positions behind `end` become zeros. */
__device__ void produce(const cuda_attention &a, Room &room, uint64_t *full, uint64_t *empty, uint32_t head, uint32_t tiles, uint32_t end)
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (uint32_t tile = 0; tile <= tiles; tile++) {
        if (tile < tiles) {
            const uint32_t s = tile % STAGES, position = tile * TILE;
            barrier_wait(&empty[s], (tile / STAGES & 1) ^ 1);
            const uint16_t *page = a.lane->pages[position / CUDA_PAGE];
#pragma unroll
            for (uint32_t which = 0; which < 2; which++) {
                const uint16_t *from = page + (((size_t)(a.layer * 2 + which) * a.kv_heads + head) * CUDA_PAGE + position % CUDA_PAGE) * DIM;
#pragma unroll
                for (uint32_t i = 0; i < TILE / 4; i++) {
                    const uint32_t row = warp * (TILE / 4) + i;
                    async_copy16(room.kv[s] + which * KEYS + piece_at(PANEL, row, lane), from + row * DIM + lane * 8, position + row < end);
                }
            }
        }
        async_commit();
        if (tile == 0) continue;
        async_wait<1>();
        async_fence();
        __syncwarp();
        if (lane == 0) barrier_arrive(&full[(tile - 1) % STAGES]);
    }
}

/* Of rows g and g + 8 of a warp. */
struct Running {
    float most[2], sum[2], out[DIM / 2];
};

/* Scores become weights, operands of the second product. */
__device__ inline void weigh(Running &r, float (&c)[TILE / 2], uint32_t (&weights)[TILE / 16][4], uint32_t p0, uint32_t last)
{
    const uint32_t j = threadIdx.x & 3;
    const bool edge = p0 + TILE > last + 1;
#pragma unroll
    for (int h = 0; h < 2; h++) {               /* the warp's first token, its second */
        float top = r.most[h];
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (edge && p0 + n * 8 + 2 * j + i > last + h) c[n * 4 + 2 * h + i] = -CUDART_INF_F;
                top = fmaxf(top, c[n * 4 + 2 * h + i]);
            }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        const float from = top == -CUDART_INF_F ? 0.f : top, keep = __expf(r.most[h] - from);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < TILE / 8; n++) {
            const uint32_t w = pack_bf16(__expf(c[n * 4 + 2 * h] - from), __expf(c[n * 4 + 2 * h + 1] - from));
            weights[n / 2][(n & 1) * 2 + h] = w;
            sum += bf_lo(w) + bf_hi(w);
        }
        r.most[h] = top;
        r.sum[h] = r.sum[h] * keep + sum;
        if (__any_sync(~0u, keep != 1.f))
#pragma unroll
            for (int n = 0; n < DIM / 8; n++) r.out[n * 4 + 2 * h] *= keep, r.out[n * 4 + 2 * h + 1] *= keep;
    }
}

__device__ void consume(const cuda_attention &a, Room &room, uint64_t *full, uint64_t *empty, uint32_t tiles, uint32_t last, Running &r)
{
    const uint32_t group = threadIdx.x / 128 - 1, lane = threadIdx.x & 31;
    const uint32_t q = wgmma_vectors_low(shared_address(room.q) + group * 64 * 128);
    for (uint32_t tile = 0; tile < tiles; tile++) {
        const uint32_t s = tile % STAGES;
        const uint32_t k = wgmma_vectors_low(shared_address(room.kv[s]));
        const uint32_t v = (shared_address(room.kv[s] + KEYS) >> 4 & 0x3FFF) | (uint32_t)(PANEL / 16) << 16;
        barrier_wait(&full[s], tile / STAGES & 1);
        float c[TILE / 2];
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < DIM / 16; i++)
            wgmma_shared_64(c, wgmma_vectors(q + ((i >> 2) * QUERY_PANEL + (i & 3) * 32) / 16),
                            wgmma_vectors(k + ((i >> 2) * PANEL + (i & 3) * 32) / 16), i > 0);
        wgmma_commit();
        wgmma_wait<0>();
        uint32_t weights[TILE / 16][4];
        weigh(r, c, weights, tile * TILE, last);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < TILE / 16; i++) wgmma_turned_256(r.out, weights[i], wgmma_vectors(v + i * 2048 / 16), 1);
        wgmma_commit();
        wgmma_wait<0>();
        if (lane == 0) barrier_arrive(&empty[s]);
    }
}

__device__ void store(const cuda_attention &a, bool gate, uint32_t head, uint32_t t, const Running &r)
{
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, j = lane & 3;
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
            const float x = r.out[n * 4 + 2 * h] * scale, y = r.out[n * 4 + 2 * h + 1] * scale;
            if (!gate) {
                *(float2 *)(a.ao + at + c) = make_float2(x, y);
                continue;
            }
            const float2 z = *(const float2 *)(gates + c);
            *(uint32_t *)((uint16_t *)a.aog + at + c) = pack_bf16(x * sigmoidf(z.x), y * sigmoidf(z.y));
        }
    }
}

__global__ __launch_bounds__(THREADS, 1) void attend_wgmma(const __grid_constant__ cuda_attention a, bool gate)
{
    extern __shared__ uint8_t shared[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    Room &room = *(Room *)(shared + (-shared_address(shared) & 1023));
    const uint32_t head = blockIdx.y, t0 = (gridDim.x - 1 - blockIdx.x) * TOKENS;      /* the longest first */
    const uint32_t first = a.lane->position, end = first + min(t0 + TOKENS, a.tokens), tiles = (end + TILE - 1) / TILE;
    if (threadIdx.x < STAGES) {
        barrier_init(&full[threadIdx.x], PRODUCERS / 32);
        barrier_init(&empty[threadIdx.x], 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    load_queries(room.q, a, head, t0);
    async_fence();
    __syncthreads();
    if (threadIdx.x < PRODUCERS) {
        registers_give<40>();
        produce(a, room, full, empty, head, tiles, end);
    } else {
        registers_take<232>();
        const uint32_t t = t0 + (threadIdx.x / 32 - PRODUCERS / 32) * 2;
        Running r = {};
        r.most[0] = r.most[1] = -CUDART_INF_F;
        consume(a, room, full, empty, tiles, first + t, r);
        store(a, gate, head, t, r);
    }
}

}

cudaError_t cuda_attend_wgmma(const cuda_attention *a, bool gate, cudaStream_t s)
{
    static bool allowed = false;
    if (!allowed) {
        const cudaError_t e = cudaFuncSetAttribute(attend_wgmma, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Room) + 1024);
        if (e != cudaSuccess) return e;
        allowed = true;
    }
    attend_wgmma<<<dim3(ceil_div(a->tokens, TOKENS), a->kv_heads), THREADS, sizeof(Room) + 1024, s>>>(*a, gate);
    return cudaGetLastError();
}
