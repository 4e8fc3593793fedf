/* gemv.cu - products of one token with matrices that every token uses: projections and the head. */
#include "device/cuda/kernels/gemv.cuh"

enum { SLOTS = 6, TILES_AT_MOST = 8 };

struct Residual {
    float *x, *m;
    const float *weight;
};

static inline size_t gemv_shared(uint32_t chunks, uint32_t tiles)
{
    return (size_t)(tiles < SLOTS ? tiles : SLOTS) * chunks * CUDA_CHUNK_BYTES(4) + vector_bytes(chunks) +
           tiles * GEMV_WARPS * 16 * 4 + 256;
}

static __device__ void store_rows(const cuda_gemv &a, uint32_t block, uint32_t row, float value)
{
    uint32_t s = 0;
#pragma unroll
    for (uint32_t i = 1; i < CUDA_MAX_SECTIONS; i++)
        if (i < a.n_sections && block >= a.section[i].block0) s = i;
    const uint32_t b = block - a.section[s].block0;
    const uint32_t at = a.pair ? (row >> 3) * a.pair + b * 8 + (row & 7) : b * 16 + row;
    if (at < a.section[s].rows) a.section[s].out[at] = value;
}

/* A tile is 16 rows.  Each block has a few, whose weights it asks for before the kernels before it have ended; a warp
 * has SETS chunks of every tile. */
template <int SETS, bool RESIDUAL>
static __global__ __launch_bounds__(GEMV_THREADS, 2) void gemv(const __grid_constant__ cuda_gemv a,
                                                            const __grid_constant__ Residual r, uint32_t tiles_at_most)
{
    extern __shared__ __align__(128) uint8_t shared[];
    const uint32_t chunks = a.cols / CUDA_CHUNK_COLS, tile_bytes = chunks * CUDA_CHUNK_BYTES(4);
    const uint32_t slots = min(tiles_at_most, (uint32_t)SLOTS);
    const Vector v = vector_at(shared + slots * tile_bytes, chunks);
    float *part = vector_end(v, chunks);
    uint64_t *full = (uint64_t *)(part + tiles_at_most * GEMV_WARPS * 16), *empty = full + SLOTS;
    float *scale = (float *)(empty + SLOTS);
    const uint32_t tid = threadIdx.x, warp = tid >> 5;
    const uint32_t tiles = (a.blocks + gridDim.x - 1 - blockIdx.x) / gridDim.x;

    if (a.patient) dependency_wait();
    if (tid == 0) {
        for (uint32_t i = 0; i < slots; i++) barrier_init(full + i, 1), barrier_init(empty + i, GEMV_WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (uint32_t i = 0; i < min(tiles, slots); i++) {
            barrier_expect(full + i, tile_bytes);
            bulk_copy(shared + i * tile_bytes, a.chunks + (size_t)(blockIdx.x + i * gridDim.x) * tile_bytes, tile_bytes, full + i);
        }
    }
    dependency_wait();
    dependency_launch();
    if (warp == GEMV_WARPS - 1) {
        const float s = a.norm_tail ? norm_scale(a.in, a.cols, a.eps) : 1.f;
        if ((tid & 31) == 0) *scale = s;
    }
    vector_load<2 * SETS>(v, a.in, a.cols, a.squares, a.eps);
    __syncthreads();

    Fragment f;
    if (SETS == 1 && warp < chunks) fragment_load(f, v, warp);
    for (uint32_t i = 0; i < tiles; i++) {
        const uint32_t slot = i % slots;
        const uint8_t *tile = shared + slot * tile_bytes;
        barrier_wait(full + slot, (i / slots) & 1);
        float row0 = 0, row1 = 0;
#pragma unroll
        for (int k = 0; k < SETS; k++)
            if (warp + k * GEMV_WARPS < chunks) {
                const uint8_t *chunk = tile + (warp + k * GEMV_WARPS) * CUDA_CHUNK_BYTES(4);
                Codes c;
                codes_load<true>(c, chunk, chunk + CUDA_CODES);
                if (SETS > 1) fragment_load(f, v, warp + k * GEMV_WARPS);
                chunk_times(c, f, row0, row1);
            }
        part_put(part, i, row0, row1);
        if (i + slots < tiles) {
            __syncwarp();
            if ((tid & 31) == 0) barrier_arrive(empty + slot);
            if (tid == 0) {
                barrier_wait(empty + slot, (i / slots) & 1);
                barrier_expect(full + slot, tile_bytes);
                bulk_copy(shared + slot * tile_bytes, a.chunks + (size_t)(blockIdx.x + (i + slots) * gridDim.x) * tile_bytes,
                          tile_bytes, full + slot);
            }
        }
    }
    __syncthreads();
    if (!RESIDUAL) {
        if (tid < tiles * 16)
            store_rows(a, blockIdx.x + tid / 16 * gridDim.x, tid % 16, part_sum(part, tid / 16, tid % 16) * *scale);
    } else if (warp == 0) {
        float square = 0;
        for (uint32_t i = 0; i < tiles; i++) {
            const uint32_t row = (blockIdx.x + i * gridDim.x) * 16 + tid;
            if (tid >= 16 || row >= a.section[0].rows) continue;
            const float x = __ldcg(r.x + row) + part_sum(part, i, tid) * *scale;
            r.x[row] = x;
            r.m[row] = x * r.weight[row];
            square += x * x;
        }
        norm_tail_put(r.m, a.section[0].rows, square);
    }
}

template <int SETS, bool RESIDUAL>
static cudaError_t launch_gemv(const cuda_gemv *a, const Residual &r, bool early, cudaStream_t s)
{
    const uint32_t each = ceil_div(a->blocks, TOKEN_BLOCKS);
    const size_t shared = token_shared(gemv_shared(a->cols / CUDA_CHUNK_COLS, each));
    if (each > TILES_AT_MOST || shared > 227 * 1024) return cudaErrorInvalidValue;
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(gemv<SETS, RESIDUAL>, shared, allowed);
    return e != cudaSuccess ? e : launch(gemv<SETS, RESIDUAL>, TOKEN_BLOCKS, GEMV_THREADS, shared, 1, early, s, *a, r, each);
}

cudaError_t cuda_gemv_plain(const cuda_gemv *a, bool early, cudaStream_t s)
{
    const Residual none = {};
    return a->cols <= 2048 ? launch_gemv<1, false>(a, none, early, s) : launch_gemv<2, false>(a, none, early, s);
}

cudaError_t cuda_gemv_residual(const cuda_gemv *a, float *x, const float *weight, float *m, bool early, cudaStream_t s)
{
    const Residual r = {x, m, weight};
    return a->cols <= 2048 ? launch_gemv<1, true>(a, r, early, s) : launch_gemv<2, true>(a, r, early, s);
}

/* The head: a warp has whole tiles, chunk after chunk, the next ones on their way in registers. */
enum { AHEAD = 4 };

struct Walk {                   /* over the chunks of a warp's tiles */
    const uint8_t *at;
    uint32_t chunk, left;       /* in the tile; chunks in all */

    __device__ void next(uint32_t chunks, size_t jump)
    {
        at += CUDA_CHUNK_BYTES(4);
        left--;
        if (++chunk == chunks) chunk = 0, at += jump;
    }
};

static __global__ __launch_bounds__(GEMV_THREADS, 1) void gemv_head(const __grid_constant__ cuda_gemv a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    const uint32_t chunks = a.cols / CUDA_CHUNK_COLS, lane = threadIdx.x & 31;
    const Vector v = vector_at(shared, chunks);
    const uint32_t warps = gridDim.x * GEMV_WARPS, first = blockIdx.x * GEMV_WARPS + (threadIdx.x >> 5);
    const uint32_t tiles = first < a.blocks ? (a.blocks - first + warps - 1) / warps : 0;
    const size_t tile_bytes = (size_t)chunks * CUDA_CHUNK_BYTES(4), jump = (warps - 1) * tile_bytes;
    Walk ask = {a.chunks + first * tile_bytes, 0, tiles * chunks};
    if (a.patient) dependency_wait();
    Codes c[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
        if (ask.left) codes_load<false>(c[k], ask.at, ask.at + CUDA_CODES), ask.next(chunks, jump);
    dependency_wait();
    const float scale = a.norm_tail ? norm_scale(a.in, a.cols, a.eps) : 1.f;
    vector_load<4>(v, a.in, a.cols);
    __syncthreads();
    float row0 = 0, row1 = 0;
    uint32_t row = first * 16 + (lane >> 2), chunk = 0, left = tiles * chunks;
    while (left) {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (!left) break;
            left--;
            Fragment f;
            fragment_load(f, v, chunk);
            chunk_times(c[k], f, row0, row1);
            if (ask.left) codes_load<false>(c[k], ask.at, ask.at + CUDA_CODES), ask.next(chunks, jump);
            if (++chunk < chunks) continue;
            row0 = rows_sum(row0);
            row1 = rows_sum(row1);
            if ((lane & 3) == 0) {
                if (row < a.section[0].rows) a.section[0].out[row] = row0 * scale;
                if (row + 8 < a.section[0].rows) a.section[0].out[row + 8] = row1 * scale;
            }
            row0 = row1 = 0;
            chunk = 0;
            row += warps * 16;
        }
    }
}

cudaError_t cuda_gemv_head(const cuda_gemv *a, bool early, cudaStream_t s)
{
    const size_t shared = vector_bytes(a->cols / CUDA_CHUNK_COLS);
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(gemv_head, shared, allowed);
    return e != cudaSuccess ? e : launch(gemv_head, 132, GEMV_THREADS, shared, 1, early, s, *a);
}
