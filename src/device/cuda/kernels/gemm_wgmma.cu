/* gemm_wgmma.cu - packed matrices times many vectors, for Hopper: 4-bit codes become bf16 weights in the registers of
 * consumer warpgroups, operands of asynchronous products; nothing is expanded in memory.
 *
 * A block stays on its multiprocessor and takes tile after tile of ROWS rows and at most TOKENS vectors.  A producer
 * warpgroup fills a ring of stages of 128 columns: weights by one box of the tensor copy engine, vectors by boxes too,
 * or, gathered by the routing, by 16-byte copies.  It runs ahead over the ends of tiles, so memory is read without a
 * pause.  A tile's products are as wide as its expert's load needs. */
#include "device/cuda/kernels/gemm_wgmma.cuh"

#include <cuda.h>

#include "device/cuda/kernels/common.cuh"
#include "device/cuda/kernels/wgmma.cuh"

namespace {

enum { MOST_EXPERTS = 256, PRODUCERS = 128, MOST_STAGES = 8 };

/* GROUPS consumer warpgroups have TILES products of 64 rows each.  A group of STEPS products of 16 columns is made ready,
 * then multiplied, while other warpgroups make theirs. */
template <int TOKENS_, int GROUPS_, int TILES_, int STEPS_> struct Shape {
    static constexpr int TOKENS = TOKENS_, GROUPS = GROUPS_, TILES = TILES_, STEPS = STEPS_;
    static constexpr int BLOCKS = 4 * GROUPS * TILES;
    static constexpr int VECTORS = TOKENS * 256, WEIGHTS = BLOCKS * CUDA_CHUNK_BYTES(4);
    static constexpr int STAGE = (VECTORS + WEIGHTS + 1023) / 1024 * 1024;
    static constexpr int SCRATCH = GROUPS * 4 * 512;        /* a warp's results on their way out */
    static constexpr int FIT = (227 * 1024 - 1024 - 4 * 1024 - SCRATCH) / STAGE, STAGES = FIT < MOST_STAGES ? FIT : MOST_STAGES;
    static constexpr int LAG = STAGES > 5 ? 3 : STAGES > 3 ? 2 : 1;     /* stages whose vectors are under way */
    static constexpr int SHARED = 1024 + STAGES * STAGE + SCRATCH;
    static constexpr int THREADS = PRODUCERS + GROUPS * 128;
    /* Registers: what the launch gives each thread, and how the warpgroups share it. */
    static constexpr int GIVEN = 65536 / THREADS / 8 * 8, KEPT = GROUPS == 4 ? 64 : TOKENS > 128 ? 72 : 56;
    static constexpr int LEFT = (GIVEN * (GROUPS + 1) - KEPT) / GROUPS / 8 * 8, TAKEN = LEFT > 240 ? 240 : LEFT;
    /* Widths of products: quarters of large tiles, halves of small ones. */
    static constexpr int UNIT = TOKENS >= 256 ? TOKENS / 4 : TOKENS / 2;
};

struct Ring {
    uint64_t full[MOST_STAGES], empty[MOST_STAGES];
    uint32_t first[MOST_EXPERTS + 1];       /* tile of each expert's first vectors */
    uint32_t start[MOST_EXPERTS + 1];       /* and their place */
};

struct Tile {
    uint32_t expert, start, count, block0;
};

/* By one warp, 32 experts a round. */
__device__ void count_tiles(const cuda_gemm &a, uint32_t tokens, Ring &ring)
{
    const uint32_t lane = threadIdx.x;
    uint32_t at = 0;
    for (uint32_t e0 = 0; e0 < a.experts; e0 += 32) {
        const uint32_t e = min(e0 + lane, a.experts - 1), start = (uint32_t)a.offsets[e];
        const uint32_t n = e0 + lane < a.experts ? ((uint32_t)a.offsets[e + 1] - start + tokens - 1) / tokens : 0;
        uint32_t sum = n;
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
            const uint32_t below = __shfl_up_sync(~0u, sum, o);
            if (lane >= (uint32_t)o) sum += below;
        }
        if (e0 + lane < a.experts) ring.first[e] = at + sum - n, ring.start[e] = start;
        at += __shfl_sync(~0u, sum, 31);
    }
    if (lane == 0) ring.first[a.experts] = at, ring.start[a.experts] = (uint32_t)a.offsets[a.experts];
}

/* The last expert whose first tile is not above v, by a whole warp: of every eighth, then of eight. */
__device__ inline uint32_t expert_of(const Ring &ring, uint32_t experts, uint32_t v)
{
    const uint32_t lane = threadIdx.x & 31, e = lane * 8;
    const uint32_t base = (__popc(__ballot_sync(~0u, e < experts && ring.first[min(e, experts)] <= v)) - 1) * 8;
    const uint32_t near = base + lane;
    return base + __popc(__ballot_sync(~0u, lane < 8 && near < experts && ring.first[min(near, experts)] <= v)) - 1;
}

/* Tile u, by a whole warp: blocks of rows of the same vectors come one after the other. */
template <class S> __device__ inline bool find_tile(const cuda_gemm &a, const Ring &ring, uint32_t u, Tile &t)
{
    const uint32_t columns = (a.blocks + S::BLOCKS - 1) / S::BLOCKS, v = u / columns;
    uint32_t end = a.n;
    t.block0 = u % columns * S::BLOCKS;
    t.expert = 0;
    t.start = v * S::TOKENS;
    if (a.experts) {
        if (v >= ring.first[a.experts]) return false;
        t.expert = expert_of(ring, a.experts, v);
        t.start = ring.start[t.expert] + (v - ring.first[t.expert]) * S::TOKENS;
        end = ring.start[t.expert + 1];
    }
    t.count = min((uint32_t)S::TOKENS, end - t.start);
    return t.start < end;
}

/* A tile's products have so many vectors. */
template <class S> __device__ inline uint32_t width_of(uint32_t count) { return (count + S::UNIT - 1) / S::UNIT * S::UNIT; }

/* Where the producer's copies come from: chunks as [experts * blocks][chunks] of 144 words of eight bytes, and vectors
 * in place. */
struct Maps {
    CUtensorMap weights, vectors, fewer;        /* fewer: boxes of UNIT vectors for narrow tiles */
};
__device__ inline void box_copy(void *to, const CUtensorMap *map, uint32_t x, uint32_t y, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                     shared_address(to)), "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier)) : "memory");
}
template <class S> __device__ inline void ask_weights(const Maps &maps, const Tile &t, uint32_t blocks, uint32_t c, uint8_t *to,
                                                      uint64_t *full)
{
    box_copy(to, &maps.weights, c * (CUDA_CHUNK_BYTES(4) / 8), t.expert * blocks + t.block0, full);
}

/* Vectors in place: one thread asks for all, in boxes of 64 columns, as large as can be: small ones take as long. */
template <class S> __device__ void produce_boxes(const cuda_gemm &a, const Maps &maps, Ring &ring, uint8_t *stages)
{
    const uint32_t chunks = a.cols / CUDA_CHUNK_COLS;
    uint32_t step = 0;
    Tile t;
    if (threadIdx.x >= 32) return;
    for (uint32_t u = blockIdx.x; find_tile<S>(a, ring, u, t); u += gridDim.x) {
        const uint32_t width = width_of<S>(t.count);
        for (uint32_t c = 0; c < chunks; c++, step++) {
            const uint32_t s = step % S::STAGES;
            uint8_t *stage = stages + s * S::STAGE;
            barrier_wait(&ring.empty[s], (step / S::STAGES & 1) ^ 1);
            if (threadIdx.x == 0) {
                barrier_expect(&ring.full[s], width * 256 + S::WEIGHTS);
                ask_weights<S>(maps, t, a.blocks, c, stage + S::VECTORS, &ring.full[s]);
                const CUtensorMap *map = width == S::TOKENS ? &maps.vectors : &maps.fewer;
                for (uint32_t i = 0; i < width; i += width == S::TOKENS ? S::TOKENS : S::UNIT) {
                    box_copy(stage + i * 128, map, c * CUDA_CHUNK_COLS, t.start + i, &ring.full[s]);
                    box_copy(stage + S::VECTORS / 2 + i * 128, map, c * CUDA_CHUNK_COLS + 64, t.start + i, &ring.full[s]);
                }
            }
            __syncwarp();
        }
    }
}

/* Vectors by their order: each thread copies sixteen bytes of every eighth one. */
template <class S> __device__ void produce_gathered(const cuda_gemm &a, const Maps &maps, Ring &ring, uint8_t *stages)
{
    const uint32_t thread = threadIdx.x & 127, lane = thread & 31, chunks = a.cols / CUDA_CHUNK_COLS;
    const uint32_t piece = thread & 15, row0 = thread >> 4;
    const uint32_t to = (piece >> 3) * S::TOKENS * 128 + row0 * 128 + (((piece & 7) ^ (row0 & 7)) * 16);
    uint32_t step = 0, told = 0;        /* stages asked for, and those whose vectors have come */
    Tile t;
    for (uint32_t u = blockIdx.x; find_tile<S>(a, ring, u, t); u += gridDim.x) {
        const uint32_t width = width_of<S>(t.count);
        uint32_t from[S::TOKENS / 8], live = 0;
#pragma unroll
        for (int i = 0; i < S::TOKENS / 8; i++) {
            const uint32_t at = row0 + i * 8;
            uint32_t row = 0;
            if (at < t.count) {
                live |= 1u << i;
                row = (uint32_t)a.order[t.start + at] / a.divide;
            }
            from[i] = row * (a.cols / 8) + piece;
        }
        for (uint32_t c = 0; c < chunks; c++, step++) {
            const uint32_t s = step % S::STAGES;
            uint8_t *stage = stages + s * S::STAGE;
            barrier_wait(&ring.empty[s], (step / S::STAGES & 1) ^ 1);
            if (thread == 0) {
                barrier_expect(&ring.full[s], S::WEIGHTS);
                ask_weights<S>(maps, t, a.blocks, c, stage + S::VECTORS, &ring.full[s]);
            }
            const uint4 *in = (const uint4 *)a.in + c * (CUDA_CHUNK_COLS / 8);
#pragma unroll
            for (int i = 0; i < S::TOKENS / 8; i++)
                if ((uint32_t)i * 8 < width) async_copy16(stage + to + i * 1024, in + from[i], live >> i & 1);
            async_commit();
            if (step - told >= S::LAG) {
                async_wait<S::LAG>();
                async_fence();
                __syncwarp();
                if (lane == 0) barrier_arrive(&ring.full[told % S::STAGES]);
                told++;
            }
        }
    }
    async_wait<0>();
    async_fence();
    __syncwarp();
    if (lane == 0)
        for (; told < step; told++) barrier_arrive(&ring.full[told % S::STAGES]);
}

/* scale * code + bias of two codes */
__device__ inline uint32_t dequantise(uint32_t v, uint32_t scale, uint32_t bias)
{
    const uint32_t with_128 = nibbles(v), magic = 0x43004300u;
    const __nv_bfloat162 code = __hsub2(*(const __nv_bfloat162 *)&with_128, *(const __nv_bfloat162 *)&magic);
    const __nv_bfloat162 w = __hfma2(code, *(const __nv_bfloat162 *)&scale, *(const __nv_bfloat162 *)&bias);
    return *(const uint32_t *)&w;
}

/* All chunks of a tile. */
template <class S, int N>
__device__ inline void multiply(const cuda_gemm &a, Ring &ring, const uint8_t *stages, uint32_t &step,
                                float (&acc)[S::TILES][S::TOKENS / 2])
{
    const uint32_t lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) - PRODUCERS / 32;
    const uint32_t chunks = a.cols / CUDA_CHUNK_COLS;
    uint32_t op[S::STEPS][S::TILES][4];
    for (uint32_t c = 0; c < chunks; c++, step++) {
        const uint32_t s = step % S::STAGES;
        const uint8_t *stage = stages + s * S::STAGE;
        barrier_wait(&ring.full[s], step / S::STAGES & 1);
        const uint32_t vectors = wgmma_vectors_low(shared_address(stage));
        const uint8_t *mine = stage + S::VECTORS + warp * S::TILES * CUDA_CHUNK_BYTES(4);
        const uint8_t *codes = mine + lane * 16, *groups = mine + CUDA_CODES + (lane >> 2) * 8;
#pragma unroll
        for (int k0 = 0; k0 < 8; k0 += S::STEPS) {
            uint2 q[S::STEPS / 4][S::TILES][2], sb[S::TILES][2];
#pragma unroll
            for (int m = 0; m < S::TILES; m++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    sb[m][h] = *(const uint2 *)(groups + m * CUDA_CHUNK_BYTES(4) + h * 64);
#pragma unroll
                    for (int i = 0; i < S::STEPS / 4; i++)
                        q[i][m][h] = *(const uint2 *)(codes + m * CUDA_CHUNK_BYTES(4) + h * 512 + k0 * 2 + i * 8);
                }
#pragma unroll
            for (int k = k0; k < k0 + S::STEPS; k++)
#pragma unroll
                for (int m = 0; m < S::TILES; m++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const uint2 &two = q[(k - k0) / 4][m][h];
                        const uint32_t v = ((k & 2) ? two.y : two.x) >> (k & 1) * 8, pick = k < 4 ? 0x1010 : 0x3232;
                        const uint32_t scale = __byte_perm(sb[m][h].x, 0, pick), bias = __byte_perm(sb[m][h].y, 0, pick);
                        op[k - k0][m][h] = dequantise(v, scale, bias);
                        op[k - k0][m][2 + h] = dequantise(v >> 4, scale, bias);
                    }
            wgmma_fence();
#pragma unroll
            for (int k = k0; k < k0 + S::STEPS; k++)
#pragma unroll
                for (int m = 0; m < S::TILES; m++)
                    wgmma<N>(acc[m], op[k - k0][m], wgmma_vectors(vectors + ((k >> 2) * S::TOKENS * 128 + (k & 3) * 32) / 16),
                             c > 0 || k > 0);
            wgmma_commit();
            wgmma_wait<0>();
        }
        if (lane == 0) barrier_arrive(&ring.empty[s]);
    }
}

__device__ inline void store_transposed(void *to, const uint32_t (&v)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(to)), "r"(v[0]),
                 "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}

/* Where a block of rows goes. */
struct Target {
    void *out;
    size_t stride;
    uint32_t at, up, rows;      /* rows g at `at`, g + 8 at `up`; those below `rows` exist */
};
__device__ inline Target target_of(const cuda_gemm &a, uint32_t block)
{
    uint32_t s = 0;
#pragma unroll
    for (uint32_t k = 1; k < CUDA_MAX_SECTIONS; k++)
        if (k < a.n_sections && block >= a.section[k].block0) s = k;
    const uint32_t b = block - a.section[s].block0;
    return {a.section[s].out, a.stride[s], a.pair ? b * 8 : b * 16, a.pair ? a.pair + b * 8 : b * 16 + 8, a.section[s].rows};
}

/* bf16: through shared memory, 16 vectors at a time, so that eight rows are one store. */
template <int N, int R>
__device__ inline void store_half(const Target &to, const Tile &t, uint8_t *room, const float (&c)[R])
{
    const uint32_t lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < N; n += 16) {
        const uint32_t v[4] = {pack_bf16(c[n / 2], c[n / 2 + 1]), pack_bf16(c[n / 2 + 2], c[n / 2 + 3]),
                               pack_bf16(c[n / 2 + 4], c[n / 2 + 5]), pack_bf16(c[n / 2 + 6], c[n / 2 + 7])};
        uint8_t *half = room;
        __syncwarp();
        /* matrices 0, 1: rows 0 and 8 of vectors 0 … 7; 2, 3: of 8 … 15 */
        store_transposed(half + ((lane >> 4) * 8 + (lane & 7)) * 32 + (lane >> 3 & 1) * 16, v);
        __syncwarp();
        const uint32_t i = n + (lane >> 1), row = lane & 1 ? to.up : to.at;
        if (i < t.count && row < to.rows)
            *(uint4 *)((uint16_t *)to.out + (t.start + i) * to.stride + row) = *(const uint4 *)(half + (lane >> 1) * 32 + (lane & 1) * 16);
    }
}

template <int N, int R> __device__ inline void store_float(const Target &to, const Tile &t, const float (&c)[R])
{
    const uint32_t g = (threadIdx.x & 31) >> 2, j = threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t at = n * 8 + 2 * j + i;
            if (at >= t.count) continue;
            float *row = (float *)to.out + (t.start + at) * to.stride;
            if (to.at + g < to.rows) row[to.at + g] = c[n * 4 + i];
            if (to.up + g < to.rows) row[to.up + g] = c[n * 4 + i + 2];
        }
}

/* silu(gate) * up of 32 vectors at a time; eight rows are one store. */
template <int N, int R>
__device__ inline void store_unit(const cuda_gemm &a, uint32_t block, const Tile &t, uint8_t *room, const float (&c)[R])
{
    const uint32_t lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < N; n += 32) {
        uint32_t v[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (n + i * 8 < N) {
                const float *d = c + (n / 8 + i) * 4;
                v[i] = pack_bf16(siluf(d[0]) * d[2], siluf(d[1]) * d[3]);
            }
        uint8_t *half = room;
        __syncwarp();
        store_transposed(half + lane * 16, v);
        __syncwarp();
        if (n + lane < t.count)
            *(uint4 *)(a.unit + ((size_t)t.start + n + lane) * a.blocks * 8 + block * 8) = *(const uint4 *)(half + lane * 16);
    }
}

template <class S, int N>
__device__ inline void tile_of(const cuda_gemm &a, bool half, Ring &ring, const uint8_t *stages, uint8_t *room,
                               const Tile &t, uint32_t &step)
{
    const uint32_t warp = (threadIdx.x >> 5) - PRODUCERS / 32;
    float acc[S::TILES][S::TOKENS / 2];
    multiply<S, N>(a, ring, stages, step, acc);
#pragma unroll
    for (int m = 0; m < S::TILES; m++) {
        const uint32_t block = t.block0 + warp * S::TILES + m;
        if (block >= a.blocks) continue;
        __syncwarp();
        if (a.epilogue == CUDA_GATED_UNIT) {
            store_unit<N>(a, block, t, room + warp * 512, acc[m]);
        } else {
            const Target to = target_of(a, block);
            if (half) store_half<N>(to, t, room + warp * 512, acc[m]);
            else store_float<N>(to, t, acc[m]);
        }
    }
}

template <class S> __device__ void consume(const cuda_gemm &a, bool half, Ring &ring, const uint8_t *stages, uint8_t *room)
{
    uint32_t step = 0;
    Tile t;
    for (uint32_t u = blockIdx.x; find_tile<S>(a, ring, u, t); u += gridDim.x) {
        switch (width_of<S>(t.count) / S::UNIT) {
        case 1: tile_of<S, S::UNIT>(a, half, ring, stages, room, t, step); break;
        case 2: tile_of<S, 2 * S::UNIT>(a, half, ring, stages, room, t, step); break;
        case 3: tile_of<S, S::TOKENS == 4 * S::UNIT ? 3 * S::UNIT : S::UNIT>(a, half, ring, stages, room, t, step); break;
        default: tile_of<S, S::TOKENS>(a, half, ring, stages, room, t, step);
        }
    }
}

template <class S, bool GATHER>
__global__ __launch_bounds__(S::THREADS, 1) void gemm_wgmma(const __grid_constant__ cuda_gemm a,
                                                            const __grid_constant__ Maps maps, bool half)
{
    extern __shared__ uint8_t shared[];
    __shared__ Ring ring;
    uint8_t *stages = shared + (-shared_address(shared) & 1023), *room = stages + S::STAGES * S::STAGE;
    if (threadIdx.x < S::STAGES) {
        barrier_init(&ring.full[threadIdx.x], GATHER ? PRODUCERS / 32 + 1 : 1);
        barrier_init(&ring.empty[threadIdx.x], S::GROUPS * 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if (a.experts && threadIdx.x < 32) count_tiles(a, S::TOKENS, ring);
    __syncthreads();
    if (threadIdx.x < PRODUCERS) {
        registers_give<S::KEPT>();
        if constexpr (GATHER) produce_gathered<S>(a, maps, ring, stages);
        else produce_boxes<S>(a, maps, ring, stages);
    } else {
        registers_take<S::TAKEN>();
        consume<S>(a, half, ring, stages, room);
    }
}

struct Chip {
    int major = 0, processors = 1;
    Chip()
    {
        int device;
        if (cudaGetDevice(&device) != cudaSuccess) return;
        (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
        (void)cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    }
};
const Chip &chip(void)
{
    static const Chip found;
    return found;
}

typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                           const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

encode_fn *encoder(void)
{
    static encode_fn *found = nullptr;
    if (!found) {
        void *at = nullptr;
        cudaDriverEntryPointQueryResult state;
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, 12000, cudaEnableDefault, &state) == cudaSuccess)
            found = (encode_fn *)at;
    }
    return found;
}

bool make_map(CUtensorMap *map, CUtensorMapDataType type, const void *at, uint64_t width, uint64_t rows, uint64_t row_bytes,
              uint32_t box_width, uint32_t box_rows, CUtensorMapSwizzle swizzle)
{
    const cuuint64_t size[] = {width, rows}, stride[] = {row_bytes};
    const cuuint32_t box[] = {box_width, box_rows}, step[] = {1, 1};
    encode_fn *encode = encoder();
    return encode && encode(map, type, 2, (void *)at, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <class S, bool GATHER> cudaError_t launch_kernel(const cuda_gemm *a, bool half, cudaStream_t s)
{
    static bool allowed = false;
    if (!allowed) {
        cudaError_t e = cudaFuncSetAttribute(gemm_wgmma<S, GATHER>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED);
        if (e != cudaSuccess) return e;
        allowed = true;
    }
    const uint32_t experts = a->experts ? a->experts : 1, chunks = a->cols / CUDA_CHUNK_COLS;
    Maps maps;
    if (!make_map(&maps.weights, CU_TENSOR_MAP_DATA_TYPE_INT64, a->chunks, (uint64_t)chunks * (CUDA_CHUNK_BYTES(4) / 8),
                  (uint64_t)experts * a->blocks, (uint64_t)chunks * CUDA_CHUNK_BYTES(4), CUDA_CHUNK_BYTES(4) / 8, S::BLOCKS,
                  CU_TENSOR_MAP_SWIZZLE_NONE) ||
        (!GATHER && (!make_map(&maps.vectors, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, a->in, a->cols, a->n, (uint64_t)a->cols * 2, 64,
                               S::TOKENS, CU_TENSOR_MAP_SWIZZLE_128B) ||
                     !make_map(&maps.fewer, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, a->in, a->cols, a->n, (uint64_t)a->cols * 2, 64,
                               S::UNIT, CU_TENSOR_MAP_SWIZZLE_128B))))
        return cudaErrorNotSupported;
    const size_t tiles = (size_t)ceil_div(a->blocks, S::BLOCKS) *
                         (a->experts ? a->n / S::TOKENS + a->experts : ceil_div(a->n, S::TOKENS));
    const size_t processors = chip().processors;
    gemm_wgmma<S, GATHER><<<(unsigned)(tiles < processors ? tiles : processors), S::THREADS, S::SHARED, s>>>(*a, maps, half);
    return cudaGetLastError();
}

template <class S> cudaError_t launch_shape(const cuda_gemm *a, bool half, cudaStream_t s)
{
    return a->order ? launch_kernel<S, true>(a, half, s) : launch_kernel<S, false>(a, half, s);
}

}

cudaError_t cuda_gemm_wgmma(const cuda_gemm *a, enum cuda_gemm_shape shape, bool half, cudaStream_t s)
{
    switch (shape) {
    case CUDA_GEMM_32x256: return launch_shape<Shape<32, 4, 1, 8>>(a, half, s);
    case CUDA_GEMM_64x256: return launch_shape<Shape<64, 4, 1, 8>>(a, half, s);
    case CUDA_GEMM_64x128: return launch_shape<Shape<64, 2, 1, 8>>(a, half, s);
    default: return launch_shape<Shape<256, 2, 1, 8>>(a, half, s);
    }
}

/* Vectors x rows, and the time of a tile as measured: with experts by their mean load, else by whole rounds. */
enum cuda_gemm_shape cuda_gemm_wgmma_shape(const cuda_gemm *a)
{
    static const struct {
        enum cuda_gemm_shape shape;
        uint32_t tokens, blocks;
        float time;
    } shapes[] = {{CUDA_GEMM_256x128, 256, 8, 43.7f}, {CUDA_GEMM_64x256, 64, 16, 30.9f}, {CUDA_GEMM_64x128, 64, 8, 17.2f},
                  {CUDA_GEMM_32x256, 32, 16, 24.5f}};
    if (a->experts) return a->n <= 24 * a->experts ? CUDA_GEMM_32x256 : a->order || a->n <= 128 * a->experts ? CUDA_GEMM_64x256 : CUDA_GEMM_256x128;
    enum cuda_gemm_shape best = CUDA_GEMM_256x128;
    float least = 0;
    for (const auto &k : shapes) {
        const float time = k.time * (float)ceil_div((size_t)ceil_div(a->blocks, k.blocks) * ceil_div(a->n, k.tokens), chip().processors);
        if (least == 0 || time < least) least = time, best = k.shape;
    }
    return best;
}

bool cuda_gemm_wgmma_takes(const cuda_gemm *a)
{
    return chip().major == 9 && encoder() && a->bits == 4 && a->n >= 16 && (a->experts ? a->experts <= MOST_EXPERTS : !a->order);
}
