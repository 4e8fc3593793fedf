/* gemm.cu - packed matrices times many vectors: codes become bf16 weights in registers, as operands of mma, a chunk at a
 * time; nothing is expanded in memory.  Vectors pass through shared memory.
 *
 * A block has 256 rows (a warp 32) and TOKENS vectors.  With experts a map made on the device says which vectors a
 * block has; blocks behind its end leave. */
#include "device/cuda/kernels/common.cuh"
#include "device/cuda/kernels/gemm_wgmma.cuh"

enum { WARPS = 8, WARP_BLOCKS = 2, STAGES = 3 };

struct Tile {
    uint32_t expert, start, count;
};
struct Map {
    uint32_t n;
    Tile tile[];
};

static uint32_t tiles_at_most(uint32_t n, uint32_t tokens, uint32_t experts) { return n / tokens + experts; }

size_t cuda_gemm_room(uint32_t n, uint32_t experts) { return sizeof(Map) + tiles_at_most(n, 16, experts) * sizeof(Tile); }

/* One block: the tiles of all experts, one after the other. */
static __global__ void make_map(Map *map, const int32_t *offsets, uint32_t experts, uint32_t tokens)
{
    __shared__ uint32_t sums[8];
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    uint32_t at = 0;
    for (uint32_t e0 = 0; e0 < experts; e0 += 256) {
        const uint32_t e = e0 + threadIdx.x;
        const uint32_t first = e < experts ? (uint32_t)offsets[e] : 0, end = e < experts ? (uint32_t)offsets[e + 1] : 0;
        const uint32_t n = (end - first + tokens - 1) / tokens;
        uint32_t sum = n;
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
            const uint32_t below = __shfl_up_sync(~0u, sum, o);
            if (lane >= (uint32_t)o) sum += below;
        }
        if (lane == 31) sums[warp] = sum;
        __syncthreads();
        uint32_t before = at;
        for (uint32_t w = 0; w < 8; w++) before += w < warp ? sums[w] : 0, at += sums[w];
        for (uint32_t i = 0; i < n; i++)
            map->tile[before + sum - n + i] = {e, first + i * tokens, min(tokens, end - first - i * tokens)};
        __syncthreads();
    }
    if (threadIdx.x == 0) map->n = at;
}

static __device__ bool find_tile(const cuda_gemm &a, uint32_t tokens, Tile &t)
{
    if (!a.experts) {
        t = {0, blockIdx.y * tokens, min(tokens, a.n - blockIdx.y * tokens)};
        return true;
    }
    const Map *map = (const Map *)a.map;
    if (blockIdx.y >= map->n) return false;
    t = map->tile[blockIdx.y];
    return true;
}

/* scale * code + bias of two codes */
__device__ inline uint32_t dequantise(uint32_t v, uint32_t scale, uint32_t bias)
{
    const uint32_t with_128 = nibbles(v), magic = 0x43004300u;
    const __nv_bfloat162 code = __hsub2(*(const __nv_bfloat162 *)&with_128, *(const __nv_bfloat162 *)&magic);
    const __nv_bfloat162 w = __hfma2(code, *(const __nv_bfloat162 *)&scale, *(const __nv_bfloat162 *)&bias);
    return *(const uint32_t *)&w;
}

__device__ inline void load_matrices(uint32_t (&b)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]) : "r"(shared_address(row)));
}

/* 16 bytes: piece p of a row of 128 values, where no eight rows meet in a bank. */
__device__ inline uint32_t piece_at(uint32_t row, uint32_t p) { return row * 256 + (p ^ (row & 7)) * 16; }

/* Vectors of a tile on their way to shared memory, chunk after chunk. */
template <int TOKENS, int THREADS> struct Feeder {
    static constexpr int ROWS = THREADS / 16, EACH = TOKENS / ROWS;
    const uint16_t *row[EACH];
    uint32_t live;

    __device__ Feeder(const cuda_gemm &a, const Tile &t)
    {
        live = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const uint32_t at = threadIdx.x / 16 + i * ROWS;
            size_t from = 0;
            if (at < t.count) {
                live |= 1u << i;
                from = t.start + at;
                if (a.order) from = (uint32_t)a.order[from] / a.divide;
            }
            row[i] = a.in + from * a.cols + threadIdx.x % 16 * 8;
        }
    }
    __device__ void fetch(uint8_t *stage, uint32_t chunk) const
    {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            async_copy16(stage + piece_at(threadIdx.x / 16 + i * ROWS, threadIdx.x % 16), row[i] + chunk * CUDA_CHUNK_COLS, live >> i & 1);
    }
};

__device__ inline void store_one(const cuda_gemm &a, uint32_t block, uint32_t row, size_t i, float value)
{
    uint32_t s = 0;
#pragma unroll
    for (uint32_t k = 1; k < CUDA_MAX_SECTIONS; k++)
        if (k < a.n_sections && block >= a.section[k].block0) s = k;
    const uint32_t b = block - a.section[s].block0;
    const uint32_t at = a.pair ? (row >> 3) * a.pair + b * 8 + (row & 7) : b * 16 + row;
    if (at < a.section[s].rows) store_act(a.section[s].out, i * a.stride[s] + at, value, a.half);
}

/* mma's results: rows g and g + 8 of a block, vectors 2j and 2j + 1 of eight. */
__device__ inline void finish(const cuda_gemm &a, const Tile &t, uint32_t block, uint32_t n0, const float (&c)[4])
{
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, j = lane & 3;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t at = n0 + 2 * j + i;
        if (at >= t.count) continue;
        if (a.epilogue == CUDA_GATED_UNIT) {
            a.unit[(size_t)(t.start + at) * a.blocks * 8 + block * 8 + g] = float_bf16(siluf(c[i]) * c[i + 2]);
        } else {
            store_one(a, block, g, t.start + at, c[i]);
            store_one(a, block, g + 8, t.start + at, c[i + 2]);
        }
    }
}

/* A warp's chunks of its two blocks on their way to shared memory; it alone reads them. */
__device__ inline void fetch_weights(uint8_t *to, const uint8_t *const (&from)[WARP_BLOCKS], uint32_t chunk)
{
    constexpr uint32_t PIECES = CUDA_CHUNK_BYTES(4) / 16;
    const uint32_t lane = threadIdx.x & 31;
#pragma unroll
    for (uint32_t i = 0; i < (WARP_BLOCKS * PIECES + 31) / 32; i++) {
        const uint32_t at = lane + i * 32, m = at / PIECES, piece = at % PIECES;
        if (at < WARP_BLOCKS * PIECES)
            async_copy16(to + at * 16, (m ? from[1] : from[0]) + chunk * CUDA_CHUNK_BYTES(4) + piece * 16, true);
    }
}

template <int TOKENS> struct Stage {
    static constexpr int BYTES = TOKENS * 256 + WARPS * WARP_BLOCKS * CUDA_CHUNK_BYTES(4);
};

template <int TOKENS>
static __global__ __launch_bounds__(WARPS * 32, 2) void gemm(const __grid_constant__ cuda_gemm a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    constexpr int STAGE = Stage<TOKENS>::BYTES, OWN = WARP_BLOCKS * CUDA_CHUNK_BYTES(4);
    Tile tile;
    if (!find_tile(a, TOKENS, tile)) return;
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, chunks = a.cols / CUDA_CHUNK_COLS;
    const uint32_t block0 = (blockIdx.x * WARPS + warp) * WARP_BLOCKS;
    const Feeder<TOKENS, WARPS * 32> feeder(a, tile);
    const uint8_t *from[WARP_BLOCKS];
#pragma unroll
    for (int m = 0; m < WARP_BLOCKS; m++)
        from[m] = a.chunks + ((size_t)tile.expert * a.blocks + min(block0 + m, a.blocks - 1)) * chunks * CUDA_CHUNK_BYTES(4);
    const auto fetch = [&](uint32_t chunk) {
        uint8_t *stage = shared + chunk % STAGES * STAGE;
        if (chunk < chunks) {
            feeder.fetch(stage, chunk);
            fetch_weights(stage + TOKENS * 256 + warp * OWN, from, chunk);
        }
        async_commit();
    };
    float acc[WARP_BLOCKS][TOKENS / 8][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) fetch(s);
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        async_wait<STAGES - 2>();
        __syncthreads();
        fetch(chunk + STAGES - 1);
        const uint8_t *stage = shared + chunk % STAGES * STAGE, *own = stage + TOKENS * 256 + warp * OWN;
        uint4 q[WARP_BLOCKS][2];
#pragma unroll
        for (int m = 0; m < WARP_BLOCKS; m++)
#pragma unroll
            for (int h = 0; h < 2; h++) q[m][h] = *((const uint4 *)(own + m * CUDA_CHUNK_BYTES(4)) + h * 32 + lane);
#pragma unroll
        for (int t = 0; t < 4; t++) {
            uint32_t op[WARP_BLOCKS][2][4];
#pragma unroll
            for (int m = 0; m < WARP_BLOCKS; m++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const uint32_t v = word_of(q[m][h], t), pick = t < 2 ? 0x1010 : 0x3232;
                    const uint2 sb = *(const uint2 *)(own + m * CUDA_CHUNK_BYTES(4) + CUDA_CODES + (h * 8 + (lane >> 2)) * 8);
                    const uint32_t scale = __byte_perm(sb.x, 0, pick), bias = __byte_perm(sb.y, 0, pick);
                    op[m][0][h] = dequantise(v, scale, bias);
                    op[m][0][2 + h] = dequantise(v >> 4, scale, bias);
                    op[m][1][h] = dequantise(v >> 8, scale, bias);
                    op[m][1][2 + h] = dequantise(v >> 12, scale, bias);
                }
#pragma unroll
            for (int n = 0; n < TOKENS / 8; n++) {
                if (TOKENS > 16 && n * 8 >= tile.count) break;
                uint32_t b[4];
                load_matrices(b, stage + piece_at(n * 8 + (lane & 7), t * 4 + (lane >> 3)));
#pragma unroll
                for (int m = 0; m < WARP_BLOCKS; m++) {
                    mma16816(acc[m][n], op[m][0][0], op[m][0][1], op[m][0][2], op[m][0][3], b[0], b[1]);
                    mma16816(acc[m][n], op[m][1][0], op[m][1][1], op[m][1][2], op[m][1][3], b[2], b[3]);
                }
            }
        }
    }
#pragma unroll
    for (int m = 0; m < WARP_BLOCKS; m++)
        if (block0 + m < a.blocks)
#pragma unroll
            for (int n = 0; n < TOKENS / 8; n++) finish(a, tile, block0 + m, n * 8, acc[m][n]);
}

/* 8-bit codes, few rows (the router): both nibbles are multiplied exactly, scales and biases applied to the sums of a
 * group in float.  The sum of a vector's values is a product with ones. */
enum { EXACT_TOKENS = 16, EXACT_WARPS = 4, EXACT_STAGES = 6 };
struct ExactWeights {
    uint4 low[2], high[2];
    uint2 sb[2];
};
__device__ inline void exact_load(ExactWeights &w, const uint8_t *chunk)
{
    const uint32_t lane = threadIdx.x & 31;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        w.low[h] = __ldg((const uint4 *)chunk + h * 32 + lane);
        w.high[h] = __ldg((const uint4 *)(chunk + CUDA_CODES) + h * 32 + lane);
        w.sb[h] = __ldg((const uint2 *)(chunk + 2 * CUDA_CODES) + h * 8 + (lane >> 2));
    }
}
__device__ inline void exact_multiply(float (&acc)[EXACT_TOKENS / 8][4], const ExactWeights &w, const uint8_t *stage)
{
    const uint32_t lane = threadIdx.x & 31, ones = 0x3F803F80u;
#pragma unroll
    for (int group = 0; group < 2; group++) {
        float l[EXACT_TOKENS / 8][4] = {}, u[EXACT_TOKENS / 8][4] = {}, sum[EXACT_TOKENS / 8][4] = {};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int t = 2 * group + i;
            const uint32_t a0 = word_of(w.low[0], t), a1 = word_of(w.low[1], t);
            const uint32_t b0 = word_of(w.high[0], t), b1 = word_of(w.high[1], t);
#pragma unroll
            for (int n = 0; n < EXACT_TOKENS / 8; n++) {
                uint32_t b[4];
                load_matrices(b, stage + piece_at(n * 8 + (lane & 7), t * 4 + (lane >> 3)));
                mma16816(l[n], nibbles(a0), nibbles(a1), nibbles(a0 >> 4), nibbles(a1 >> 4), b[0], b[1]);
                mma16816(l[n], nibbles(a0 >> 8), nibbles(a1 >> 8), nibbles(a0 >> 12), nibbles(a1 >> 12), b[2], b[3]);
                mma16816(u[n], nibbles(b0), nibbles(b1), nibbles(b0 >> 4), nibbles(b1 >> 4), b[0], b[1]);
                mma16816(u[n], nibbles(b0 >> 8), nibbles(b1 >> 8), nibbles(b0 >> 12), nibbles(b1 >> 12), b[2], b[3]);
                mma16816(sum[n], ones, ones, ones, ones, b[0], b[1]);
                mma16816(sum[n], ones, ones, ones, ones, b[2], b[3]);
            }
        }
#pragma unroll
        for (int n = 0; n < EXACT_TOKENS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint2 sb = w.sb[i >> 1];
                const float scale = group ? bf_hi(sb.x) : bf_lo(sb.x), bias = group ? bf_hi(sb.y) : bf_lo(sb.y);
                acc[n][i] += scale * (l[n][i] + 16.f * u[n][i] - 17.f * 128.f * sum[n][i]) + bias * sum[n][i];
            }
    }
}

/* Vectors are asked for EXACT_STAGES - 1 chunks ahead, weights one. */
static __global__ __launch_bounds__(EXACT_WARPS * 32) void gemm_exact(const __grid_constant__ cuda_gemm a)
{
    __shared__ __align__(128) uint8_t stage[EXACT_STAGES][EXACT_TOKENS * 256];
    const Tile tile = {0, blockIdx.y * EXACT_TOKENS, min((uint32_t)EXACT_TOKENS, a.n - blockIdx.y * EXACT_TOKENS)};
    const uint32_t chunks = a.cols / CUDA_CHUNK_COLS, block = blockIdx.x * EXACT_WARPS + (threadIdx.x >> 5);
    const uint8_t *from = a.chunks + (size_t)min(block, a.blocks - 1) * chunks * CUDA_CHUNK_BYTES(8);
    const Feeder<EXACT_TOKENS, EXACT_WARPS * 32> feeder(a, tile);
    float acc[EXACT_TOKENS / 8][4] = {};
    ExactWeights now, next;
    exact_load(next, from);
    for (uint32_t s = 0; s < EXACT_STAGES - 1; s++) {
        if (s < chunks) feeder.fetch(stage[s], s);
        async_commit();
    }
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        now = next;
        if (chunk + 1 < chunks) exact_load(next, from + (chunk + 1) * CUDA_CHUNK_BYTES(8));
        async_wait<EXACT_STAGES - 2>();
        __syncthreads();
        const uint32_t ahead = chunk + EXACT_STAGES - 1;
        if (ahead < chunks) feeder.fetch(stage[ahead % EXACT_STAGES], ahead);
        async_commit();
        exact_multiply(acc, now, stage[chunk % EXACT_STAGES]);
    }
    if (block < a.blocks)
#pragma unroll
        for (int n = 0; n < EXACT_TOKENS / 8; n++) finish(a, tile, block, n * 8, acc[n]);
}

template <int TOKENS> static cudaError_t launch_gemm(const cuda_gemm *a, cudaStream_t s)
{
    const uint32_t tiles = a->experts ? tiles_at_most(a->n, TOKENS, a->experts) : ceil_div(a->n, TOKENS);
    static bool allowed = false;
    if (!allowed) {
        cudaError_t e = cudaFuncSetAttribute(gemm<TOKENS>, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * Stage<TOKENS>::BYTES);
        if (e != cudaSuccess) return e;
        allowed = true;
    }
    if (a->experts) make_map<<<1, 256, 0, s>>>((Map *)a->map, a->offsets, a->experts, TOKENS);
    gemm<TOKENS><<<dim3(ceil_div(a->blocks, WARPS * WARP_BLOCKS), tiles), WARPS * 32, STAGES * Stage<TOKENS>::BYTES, s>>>(*a);
    return cudaGetLastError();
}

/* Tiles as large as keep the machine busy: 264 blocks are on it at once. */
static uint32_t tokens_a_tile(const cuda_gemm *a)
{
    const uint32_t most = STAGES * Stage<64>::BYTES <= shared_at_most() ? 64 : 32;
    if (a->experts && a->one_shape) return 16;
    if (a->experts) return a->n <= 16 * a->experts ? 16 : a->n <= 40 * a->experts ? 32 : most;
    const uint32_t columns = ceil_div(a->blocks, WARPS * WARP_BLOCKS);
    for (uint32_t tokens = most; tokens > 16; tokens /= 2)
        if (columns * ceil_div(a->n, tokens) >= 200) return tokens;
    return 16;
}

cudaError_t cuda_gemm_mma(const cuda_gemm *a, cudaStream_t s)
{
    if (a->bits == 8) {
        gemm_exact<<<dim3(ceil_div(a->blocks, EXACT_WARPS), ceil_div(a->n, EXACT_TOKENS)), EXACT_WARPS * 32, 0, s>>>(*a);
        return cudaGetLastError();
    }
    switch (tokens_a_tile(a)) {
    case 16: return launch_gemm<16>(a, s);
    case 32: return launch_gemm<32>(a, s);
    default: return launch_gemm<64>(a, s);
    }
}

cudaError_t cuda_gemm_many(const cuda_gemm *a, cudaStream_t s)
{
    if (a->expanded) return cuda_gemm_wgmma(a, CUDA_GEMM_SHAPES, a->half, s);
    if (a->hopper && cuda_gemm_wgmma_takes(a)) {
        const cudaError_t e = cuda_gemm_wgmma(a, cuda_gemm_wgmma_shape(a), a->half, s);
        if (e != cudaErrorNotSupported) return e;
    }
    return cuda_gemm_mma(a, s);
}
