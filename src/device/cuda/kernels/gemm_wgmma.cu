/* gemm_wgmma.cu - packed matrices times many vectors, for Hopper: 4-bit codes become bf16 weights in the registers of
 * consumer warpgroups, operands of asynchronous products; nothing is expanded in memory.
 *
 * A block stays on its multiprocessor and takes tile after tile of ROWS rows and at most TOKENS vectors.  A producer
 * warpgroup fills a ring of stages of 128 columns: one warp asks for weights, by one box of the tensor copy engine;
 * vectors come by boxes too, or, gathered by the routing, by the other warps' 16-byte copies.  It runs ahead over the ends
 * of tiles, so memory is read without a pause.  A tile's products are as wide as its expert's load needs. */
#include "device/cuda/kernels/gemm_wgmma.cuh"

#include <type_traits>

#include "device/cuda/kernels/tensor_map.cuh"
#include "device/cuda/kernels/wgmma.cuh"

namespace {

enum { MOST_EXPERTS = 256, PRODUCERS = 128, MOST_STAGES = 8 };

/* EXPANDED: operands are in memory (cuda_gemm.expanded). */
template <int TOKENS_, int GROUPS_, bool EXPANDED_ = false> struct Shape {
    static constexpr int TOKENS = TOKENS_, GROUPS = GROUPS_, BLOCKS = 4 * GROUPS;
    static constexpr bool EXPANDED = EXPANDED_;
    static constexpr int CHUNK = EXPANDED ? (int)CUDA_EXPANDED : (int)CUDA_CHUNK_BYTES(4);
    static constexpr int VECTORS = TOKENS * 256, WEIGHTS = BLOCKS * CHUNK;
    static constexpr int STAGE = (VECTORS + WEIGHTS + 1023) / 1024 * 1024;
    static constexpr int SCRATCH = GROUPS * 4 * 512;        /* a warp's results on their way out */
    static constexpr int FIT = (227 * 1024 - 1024 - 4 * 1024 - SCRATCH) / STAGE, STAGES = FIT < MOST_STAGES ? FIT : MOST_STAGES;
    static constexpr int SHARED = 1024 + STAGES * STAGE + SCRATCH;
    static constexpr int THREADS = PRODUCERS + GROUPS * 128;
    /* Registers: what the launch gives each thread, and how the warpgroups share it. */
    static constexpr int GIVEN = 65536 / THREADS / 8 * 8, KEPT = TOKENS == 128 ? 104 : TOKENS > 128 ? 72 : GROUPS == 4 ? 64 : 56;
    static constexpr int LEFT = (GIVEN * (GROUPS + 1) - KEPT) / GROUPS / 8 * 8, TAKEN = LEFT > 240 ? 240 : LEFT;
    /* Widths of products: quarters of large tiles, halves of small ones. */
    static constexpr int UNIT = TOKENS >= 128 ? TOKENS / 4 : TOKENS / 2;
};

struct Ring {
    uint64_t full[MOST_STAGES], empty[MOST_STAGES];
    uint32_t first[MOST_EXPERTS + 1];       /* tile of each expert's first vectors */
    uint32_t start[MOST_EXPERTS + 1];       /* and their place */
};

struct Tile {
    uint32_t expert, start, count, block0;
};

/* By the whole block: all offsets are asked for at once, then one warp sums up, 32 experts a round. */
__device__ void count_tiles(const cuda_gemm &a, uint32_t tokens, Ring &ring)
{
    for (uint32_t e = threadIdx.x; e <= a.experts; e += blockDim.x) ring.start[e] = (uint32_t)a.offsets[e];
    __syncthreads();
    if (threadIdx.x >= 32) return;
    const uint32_t lane = threadIdx.x;
    uint32_t at = 0;
    for (uint32_t e0 = 0; e0 < a.experts; e0 += 32) {
        const uint32_t e = e0 + lane, n = e < a.experts ? (ring.start[e + 1] - ring.start[e] + tokens - 1) / tokens : 0;
        uint32_t sum = n;
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
            const uint32_t below = __shfl_up_sync(~0u, sum, o);
            if (lane >= (uint32_t)o) sum += below;
        }
        if (e < a.experts) ring.first[e] = at + sum - n;
        at += __shfl_sync(~0u, sum, 31);
    }
    if (lane == 0) ring.first[a.experts] = at;
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

/* Where the producer's copies come from: chunks as [experts * blocks][chunks] of 144 words of eight bytes, or of 512 by
 * halves, and vectors in place. */
struct Maps {
    CUtensorMap weights, vectors, fewer;        /* fewer: boxes of UNIT vectors for narrow tiles */
};
template <class S> __device__ inline void ask_weights(const Maps &maps, const Tile &t, uint32_t blocks, uint32_t c, uint8_t *to,
                                                      uint64_t *full)
{
    const uint32_t row = t.expert * blocks + t.block0;
    if constexpr (S::EXPANDED)
        for (uint32_t h = 0; h < 2; h++) box_copy(to + h * (S::WEIGHTS / 2), &maps.weights, (2 * c + h) * (CUDA_EXPANDED / 16), row, full);
    else
        box_copy(to, &maps.weights, c * (CUDA_CHUNK_BYTES(4) / 8), row, full);
}

/* Vectors in place: one thread asks for all, in boxes of 64 columns, as large as can be: small ones take as long. */
template <class S> __device__ void produce_boxes(const cuda_gemm &a, const Maps &maps, Ring &ring, uint8_t *stages)
{
    const uint32_t chunks = a.cols / CUDA_CHUNK_COLS;
    uint32_t step = 0;
    Tile t;
    if (threadIdx.x >= 32) return;
    for (uint32_t u = blockIdx.x; find_tile<S>(a, ring, u, t); u += gridDim.x) {
        const uint32_t width = (t.count + S::UNIT - 1) / S::UNIT * S::UNIT;
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

/* The gathered tiles' weights, by one warp. */
template <class S> __device__ void produce_weights(const cuda_gemm &a, const Maps &maps, Ring &ring, uint8_t *stages)
{
    const uint32_t chunks = a.cols / CUDA_CHUNK_COLS;
    uint32_t step = 0;
    Tile t;
    for (uint32_t u = blockIdx.x; find_tile<S>(a, ring, u, t); u += gridDim.x)
        for (uint32_t c = 0; c < chunks; c++, step++) {
            const uint32_t s = step % S::STAGES;
            barrier_wait(&ring.empty[s], (step / S::STAGES & 1) ^ 1);
            if (threadIdx.x == 0) {
                barrier_expect(&ring.full[s], S::WEIGHTS);
                ask_weights<S>(maps, t, a.blocks, c, stages + s * S::STAGE + S::VECTORS, &ring.full[s]);
            }
            __syncwarp();
        }
}

/* Vectors by their order, by the other warps: a thread copies sixteen bytes of every sixth one. */
template <class S> __device__ void produce_gathered(const cuda_gemm &a, Ring &ring, uint8_t *stages)
{
    constexpr int LAG = S::STAGES > 5 ? 3 : S::STAGES > 3 ? 2 : 1;      /* stages whose vectors are under way */
    constexpr int AT_ONCE = (PRODUCERS - 32) / 16, EACH = (S::TOKENS + AT_ONCE - 1) / AT_ONCE;
    const uint32_t thread = threadIdx.x - 32, lane = thread & 31, chunks = a.cols / CUDA_CHUNK_COLS;
    const uint32_t piece = thread & 15, row0 = thread >> 4, panel = (piece >> 3) * S::TOKENS * 128;
    uint32_t step = 0, told = 0;        /* stages asked for, and those whose vectors have come */
    Tile t;
    for (uint32_t u = blockIdx.x; find_tile<S>(a, ring, u, t); u += gridDim.x) {
        const uint32_t width = width_of<S>(t.count);
        uint32_t from[EACH], live = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const uint32_t at = row0 + i * AT_ONCE;
            uint32_t row = 0;
            if (at < t.count) {
                live |= 1u << i;
                row = (uint32_t)a.order[t.start + at] / a.divide;
            }
            from[i] = row * (a.cols / 8) + piece;
        }
        for (uint32_t c = 0; c < chunks; c++, step++) {
            const uint32_t s = step % S::STAGES;
            uint8_t *stage = stages + s * S::STAGE + panel;
            barrier_wait(&ring.empty[s], (step / S::STAGES & 1) ^ 1);
            const uint4 *in = (const uint4 *)a.in + c * (CUDA_CHUNK_COLS / 8);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const uint32_t at = row0 + i * AT_ONCE;
                if (at < width) async_copy16(stage + at * 128 + ((piece & 7) ^ (at & 7)) * 16, in + from[i], live >> i & 1);
            }
            async_commit();
            if (step - told >= LAG) {
                async_wait<LAG>();
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

/* Codes become weights in two instructions for two.  Masked in place, bits 0 … 3 or 4 … 7 of a half word are the bf16 numbers
 * code * 2^-133 and code * 2^-129: with exponents of 0 and 1 bf16 is linear.  Multiplying by the scale brings the power back
 * but for SHRINK, which keeps that factor within bf16 (scales below 2^27) and is taken out of the sums.  As exact as
 * scale * code + bias rounded once. */
constexpr float SHRINK = 0x1p-32f;
struct Groups {
    uint32_t low, high, bias;       /* of two groups */
};
__device__ inline uint32_t times(uint32_t v, uint32_t power)
{
    const __nv_bfloat162 r = __hmul2(*(const __nv_bfloat162 *)&v, *(const __nv_bfloat162 *)&power);
    return *(const uint32_t *)&r;
}
__device__ inline Groups groups_of(const uint2 &sb) { return {times(sb.x, 0x72007200u), times(sb.x, 0x70007000u), times(sb.y, 0x2F802F80u)}; }

/* The weights of one group at bits 0 … 3, or, HIGH, 4 … 7 of both halves of v. */
template <bool HIGH> __device__ inline uint32_t dequantise(uint32_t v, const Groups &g, bool second)
{
    const uint32_t pick = second ? 0x3232 : 0x1010, scale = __byte_perm(HIGH ? g.high : g.low, 0, pick), bias = __byte_perm(g.bias, 0, pick);
    const uint32_t code = v & (HIGH ? 0x00F000F0u : 0x000F000Fu);
    const __nv_bfloat162 w = __hfma2(*(const __nv_bfloat162 *)&code, *(const __nv_bfloat162 *)&scale, *(const __nv_bfloat162 *)&bias);
    return *(const uint32_t *)&w;
}

/* A warp's codes of a stage, or where its operands are. */
template <class S> struct Codes {
    uint4 q[2];
    Groups g[2];
    __device__ inline void load(const uint8_t *weights, uint32_t warp)
    {
        const uint32_t lane = threadIdx.x & 31;
        const uint8_t *mine = weights + warp * S::CHUNK;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            g[h] = groups_of(*(const uint2 *)(mine + CUDA_CODES + h * 64 + (lane >> 2) * 8));
            q[h] = *(const uint4 *)(mine + h * 512 + lane * 16);
        }
    }
    /* Operands of four of the eight steps of 16 columns. */
    __device__ inline void make(uint32_t (&op)[4][4], int half) const
    {
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const uint32_t v = word_of(q[h], half * 2 + (k >> 1)) >> (k & 1) * 8;
                op[k][h] = dequantise<false>(v, g[h], half);
                op[k][2 + h] = dequantise<true>(v, g[h], half);
            }
    }
};
template <class S> struct Expanded {
    const uint8_t *mine;
    __device__ inline void load(const uint8_t *weights, uint32_t warp)
    {
        mine = weights + warp * (CUDA_EXPANDED / 2) + (threadIdx.x & 31) * 16;
    }
    __device__ inline void make(uint32_t (&op)[4][4], int half) const
    {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint4 v = *(const uint4 *)(mine + half * (S::WEIGHTS / 2) + k * 512);
            op[k][0] = v.x, op[k][1] = v.y, op[k][2] = v.z, op[k][3] = v.w;
        }
    }
};

/* All chunks of a tile.  A warpgroup makes operands of all 128 columns of its 64 rows, then multiplies, while the others
 * make theirs. */
template <class S, int N>
__device__ inline void multiply(const cuda_gemm &a, Ring &ring, const uint8_t *stages, uint32_t &step, float (&acc)[S::TOKENS / 2])
{
    const uint32_t lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) - PRODUCERS / 32;
    const uint32_t chunks = a.cols / CUDA_CHUNK_COLS;
    uint32_t op[2][4][4];
    std::conditional_t<S::EXPANDED, Expanded<S>, Codes<S>> from;
    for (uint32_t c = 0; c < chunks; c++, step++) {
        const uint32_t s = step % S::STAGES;
        const uint8_t *stage = stages + s * S::STAGE;
        barrier_wait(&ring.full[s], step / S::STAGES & 1);
        const uint32_t vectors = wgmma_vectors_low(shared_address(stage));
        from.load(stage + S::VECTORS, warp);
        from.make(op[0], 0);
        from.make(op[1], 1);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 8; k++)
            wgmma<N>(acc, op[k / 4][k % 4], wgmma_vectors(vectors + ((k >> 2) * S::TOKENS * 128 + (k & 3) * 32) / 16), c > 0 || k > 0);
        wgmma_commit();
        wgmma_wait<0>();
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
    float acc[S::TOKENS / 2];
    multiply<S, N>(a, ring, stages, step, acc);
    if constexpr (!S::EXPANDED)
#pragma unroll
        for (int i = 0; i < N / 2; i++) acc[i] *= 1 / SHRINK;
    const uint32_t block = t.block0 + warp;
    if (block >= a.blocks) return;
    __syncwarp();
    if (a.epilogue == CUDA_GATED_UNIT) {
        store_unit<N>(a, block, t, room + warp * 512, acc);
    } else {
        const Target to = target_of(a, block);
        if (half) store_half<N>(to, t, room + warp * 512, acc);
        else store_float<N>(to, t, acc);
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
        barrier_init(&ring.full[threadIdx.x], GATHER ? PRODUCERS / 32 : 1);
        barrier_init(&ring.empty[threadIdx.x], S::GROUPS * 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if (a.experts) count_tiles(a, S::TOKENS, ring);
    __syncthreads();
    if (threadIdx.x < PRODUCERS) {
        registers_give<S::KEPT>();
        if constexpr (!GATHER) produce_boxes<S>(a, maps, ring, stages);
        else if (threadIdx.x < 32) produce_weights<S>(a, maps, ring, stages);
        else produce_gathered<S>(a, ring, stages);
    } else {
        registers_take<S::TAKEN>();
        consume<S>(a, half, ring, stages, room);
    }
}

/* The control for unpacking weights on their way: a kernel of its own makes operands of all of them, a warp a chunk. */
__global__ void expand(const __grid_constant__ cuda_gemm a)
{
    const uint32_t lane = threadIdx.x & 31, chunks = a.cols / CUDA_CHUNK_COLS;
    const size_t i = blockIdx.x * (size_t)8 + (threadIdx.x >> 5);
    if (i >= (size_t)(a.experts ? a.experts : 1) * a.blocks * chunks) return;
    Codes<Shape<32, 4>> from;
    from.load(a.chunks + i * CUDA_CHUNK_BYTES(4), 0);
    uint4 *to = (uint4 *)(a.expanded + i * CUDA_EXPANDED) + lane;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t op[4][4];
        from.make(op, half);
#pragma unroll
        for (int k = 0; k < 4; k++) {
#pragma unroll
            for (int j = 0; j < 4; j++) op[k][j] = times(op[k][j], 0x4F804F80u);        /* 1 / SHRINK */
            to[(half * 4 + k) * 32] = make_uint4(op[k][0], op[k][1], op[k][2], op[k][3]);
        }
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
    if (!tensor_map(&maps.weights, CU_TENSOR_MAP_DATA_TYPE_INT64, S::EXPANDED ? a->expanded : a->chunks,
                    (uint64_t)chunks * (S::CHUNK / 8), (uint64_t)experts * a->blocks, (uint64_t)chunks * S::CHUNK,
                    S::CHUNK / (S::EXPANDED ? 16 : 8), S::BLOCKS, CU_TENSOR_MAP_SWIZZLE_NONE) ||
        (!GATHER && (!tensor_map(&maps.vectors, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, a->in, a->cols, a->n, (uint64_t)a->cols * 2, 64,
                               S::TOKENS, CU_TENSOR_MAP_SWIZZLE_128B) ||
                     !tensor_map(&maps.fewer, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, a->in, a->cols, a->n, (uint64_t)a->cols * 2, 64,
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
    if (!a->order) return launch_kernel<S, false>(a, half, s);
    if constexpr (S::TOKENS <= 128) return launch_kernel<S, true>(a, half, s);
    return cudaErrorNotSupported;       /* more vectors a stage than three warps can gather */
}

}

cudaError_t cuda_gemm_wgmma(const cuda_gemm *a, enum cuda_gemm_shape shape, bool half, cudaStream_t s)
{
    if (a->experts > MOST_EXPERTS) return cudaErrorNotSupported;
    if (a->expanded) {
        expand<<<ceil_div((size_t)(a->experts ? a->experts : 1) * a->blocks * (a->cols / CUDA_CHUNK_COLS), 8), 256, 0, s>>>(*a);
        return a->experts ? launch_shape<Shape<64, 2, true>>(a, half, s) : launch_shape<Shape<256, 2, true>>(a, half, s);
    }
    switch (shape) {
    case CUDA_GEMM_32x256: return launch_shape<Shape<32, 4>>(a, half, s);
    case CUDA_GEMM_64x256: return launch_shape<Shape<64, 4>>(a, half, s);
    case CUDA_GEMM_128x128: return launch_shape<Shape<128, 2>>(a, half, s);
    case CUDA_GEMM_64x128: return launch_shape<Shape<64, 2>>(a, half, s);
    default: return launch_shape<Shape<256, 2>>(a, half, s);
    }
}

/* Vectors x rows, and the time of a tile as measured: with experts by their mean load, else by whole rounds. */
enum cuda_gemm_shape cuda_gemm_wgmma_shape(const cuda_gemm *a)
{
    static const struct {
        enum cuda_gemm_shape shape;
        uint32_t tokens, blocks;
        float time;
    } shapes[] = {{CUDA_GEMM_256x128, 256, 8, 43.7f}, {CUDA_GEMM_128x128, 128, 8, 25.5f}, {CUDA_GEMM_64x256, 64, 16, 30.9f},
                  {CUDA_GEMM_64x128, 64, 8, 17.2f},   {CUDA_GEMM_32x256, 32, 16, 24.5f}};
    if (a->experts && a->one_shape) return CUDA_GEMM_32x256;
    if (a->experts) return a->n <= 24 * a->experts ? CUDA_GEMM_32x256 : a->order ? CUDA_GEMM_64x256 :
                           a->n <= 128 * a->experts ? CUDA_GEMM_128x128 : CUDA_GEMM_256x128;
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
    return chip().major == 9 && tensor_encoder() && a->bits == 4 && a->n >= 16 && (a->experts ? a->experts <= MOST_EXPERTS : !a->order);
}
