/* gemv.cu - products of one token with matrices that every token uses: projections and the head. */
#include "device/cuda/kernels/gemv.cuh"

enum { TILES_AT_MOST = CUDA_GEMV_BLOCKS / TOKEN_BLOCKS };

struct Residual {
    float *x, *m;
    const float *weight;
};

static inline size_t gemv_shared(uint32_t chunks, uint32_t tiles)
{
    return (size_t)tiles * chunks * CUDA_CHUNK_BYTES(4) + vector_bytes(chunks) +
           tiles * GEMV_WARPS * 16 * 4;
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

/* Tiles of 18 KiB that a block has under way at once: what the memory takes to be busy.  More would only let others wait. */
enum { UNDER_WAY = 2 };

/* A tile is 16 rows.  Each block has a few, whose weights a warp beside the others asks for before the kernels before it
 * have ended; the others have SETS chunks of every tile. */
template <int SETS, bool RESIDUAL>
static __global__ __launch_bounds__(GEMV_THREADS + 32, 2) void gemv(const __grid_constant__ cuda_gemv a,
                                                                 const __grid_constant__ Residual r, uint32_t tiles_at_most)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ uint64_t full[TILES_AT_MOST];
    __shared__ float scale;
    const uint32_t chunks = a.cols / CUDA_CHUNK_COLS, tile_bytes = chunks * CUDA_CHUNK_BYTES(4);
    const Vector v = vector_at(shared + tiles_at_most * tile_bytes, chunks);
    float *part = vector_end(v, chunks);
    const uint32_t tid = threadIdx.x, warp = tid >> 5;
    const uint32_t tiles = (a.blocks + gridDim.x - 1 - blockIdx.x) / gridDim.x;

    dependency_launch();
    if (tid == 0) {
        for (uint32_t i = 0; i < tiles; i++) barrier_init(full + i, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (a.patient) dependency_wait();
    if (warp == GEMV_WARPS) {
        for (uint32_t i = 0; tid % 32 == 0 && i < tiles; i++) {
            if (i >= UNDER_WAY) barrier_wait(full + i - UNDER_WAY, 0);
            barrier_expect(full + i, tile_bytes);
            bulk_copy(shared + i * tile_bytes, a.chunks + (size_t)(blockIdx.x + i * gridDim.x) * tile_bytes, tile_bytes, full + i);
        }
        return;
    }
    /* Of the first tile's rows: their weights, and below what they are added to, are asked for early. */
    const uint32_t first = blockIdx.x * 16 + tid;
    const bool adds = RESIDUAL && tid < 16 && first < a.section[0].rows;
    const float weight0 = adds ? r.weight[first] : 0.f;
    dependency_wait();
    const float x0 = adds ? load_now(r.x + first) : 0.f;
    Norm norm = {};
    if (a.norm_tail && warp == GEMV_WARPS - 1) norm = norm_load(a.in, a.cols);
    vector_load<2 * SETS>(v, a.in, a.cols, a.squares, a.eps);
    if (warp == GEMV_WARPS - 1) {
        const float s = norm_scale(norm, a.in, a.cols, a.eps);
        if ((tid & 31) == 0) scale = s;
    }
    Fragment f;
    if (SETS == 1 && warp < chunks) fragment_load(f, v, warp);
    for (uint32_t i = 0; i < tiles; i++) {
        const uint8_t *tile = shared + i * tile_bytes;
        barrier_wait(full + i, 0);
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
    }
    gemv_sync();
    if (!RESIDUAL) {
        if (tid < tiles * 16)
            store_rows(a, blockIdx.x + tid / 16 * gridDim.x, tid % 16, part_sum(part, tid / 16, tid % 16) * scale);
    } else if (warp == 0) {
        float square = 0;
        for (uint32_t i = 0; i < tiles; i++) {
            const uint32_t row = (blockIdx.x + i * gridDim.x) * 16 + tid;
            if (tid >= 16 || row >= a.section[0].rows) continue;
            const float x = (i ? __ldcg(r.x + row) : x0) + part_sum(part, i, tid) * scale;
            r.x[row] = x;
            r.m[row] = x * (i ? r.weight[row] : weight0);
            square += x * x;
        }
        norm_tail_put(r.m, a.section[0].rows, square);
    }
}

template <int SETS, bool RESIDUAL>
static cudaError_t launch_gemv(const cuda_gemv *a, const Residual &r, bool early, cudaStream_t s)
{
    const uint32_t each = ceil_div(a->blocks, TOKEN_BLOCKS);
    const size_t shared = token_large(gemv_shared(a->cols / CUDA_CHUNK_COLS, each));
    if (each > TILES_AT_MOST || shared > 227 * 1024) return cudaErrorInvalidValue;
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(gemv<SETS, RESIDUAL>, shared, allowed);
    return e != cudaSuccess ? e : launch(gemv<SETS, RESIDUAL>, TOKEN_BLOCKS, GEMV_THREADS + 32, shared, early, s, *a, r, each);
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
enum { AHEAD = 3 };

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

static __global__ __maxnreg__(72) void gemv_head(const __grid_constant__ cuda_gemv a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    const uint32_t chunks = a.cols / CUDA_CHUNK_COLS, lane = threadIdx.x & 31;
    const Vector v = vector_at(shared, chunks);
    const uint32_t warps = gridDim.x * GEMV_WARPS, first = (threadIdx.x >> 5) * gridDim.x + blockIdx.x;
    const uint32_t tiles = first < a.blocks ? (a.blocks - first + warps - 1) / warps : 0;
    const size_t tile_bytes = (size_t)chunks * CUDA_CHUNK_BYTES(4), jump = (warps - 1) * tile_bytes;
    Walk ask = {a.chunks + first * tile_bytes, 0, tiles * chunks};
    dependency_launch();
    if (a.patient) dependency_wait();
    Codes c[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; k++)
        if (ask.left) codes_load<false>(c[k], ask.at, ask.at + CUDA_CODES), ask.next(chunks, jump);
    dependency_wait();
    const Norm norm = a.norm_tail ? norm_load(a.in, a.cols) : Norm{};
    if (chunks <= GEMV_WARPS)
        vector_load<2>(v, a.in, a.cols);
    else
        vector_load<4>(v, a.in, a.cols);
    __syncthreads();
    const float scale = norm_scale(norm, a.in, a.cols, a.eps);
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
    return e != cudaSuccess ? e : launch(gemv_head, TOKEN_BLOCKS, GEMV_THREADS, shared, early, s, *a);
}
