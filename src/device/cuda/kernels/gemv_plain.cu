/* gemv_plain.cu - packed rows times one vector on any card: plain loads, products in bf16 with exact codes.
 *
 * A block has a tile of 16 rows, its warps take the tile's chunks in turn and ask for them before the vector is ready.  Of
 * the vector each value becomes three bf16 parts (24 bits), which take three of the eight columns that mma has; 128 + code
 * is exact in bf16, so sums are as good as in float.  Scale and bias are applied to the sum of a group of 64 columns. */
#include "device/cuda/kernels/common.cuh"

enum { WARPS = 8, THREADS = WARPS * 32, PARTS = 3, AT_ONCE = 2 };
enum { PART_WORDS = 64 + 16, CHUNK_WORDS = PARTS * PART_WORDS };       /* parts begin in other banks */

/* ---- the vector ---- */

struct Vector {
    uint32_t *words;            /* [chunks][PARTS][word of a lane's codes][lane & 3][4], bf16 pairs as mma wants them */
    float *sums;                /* [chunks * 2] of 64 columns */
};

static size_t vector_bytes(uint32_t chunks) { return chunks * (CHUNK_WORDS * 4 + 2 * sizeof(float)); }

static size_t shared_bytes(uint32_t chunks) { return vector_bytes(chunks) + WARPS * 16 * sizeof(float); }

static __device__ Vector vector_at(uint8_t *room, uint32_t chunks)
{
    return {(uint32_t *)room, (float *)(room + (size_t)chunks * CHUNK_WORDS * 4)};
}

/* Columns 2p and 2p + 1, by whole warps: 32 neighbours are a group. */
static __device__ void vector_put(const Vector &v, uint32_t p, float a, float b)
{
    const uint32_t chunk = p / 64, step = p % 64 / 8, half = p % 8 / 4, j = p % 4;
    uint32_t *to = v.words + chunk * CHUNK_WORDS + (step / 2) * 16 + j * 4 + step % 2 * 2 + half;
    const float sum = warp_sum(a + b);
    if ((threadIdx.x & 31) == 0) v.sums[p / 32] = sum;
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        const uint32_t two = pack_bf16(a, b);
        to[part * PART_WORDS] = two;
        a -= bf_lo(two);
        b -= bf_hi(two);
    }
}

/* squares: a head of 128 is still to be scaled (cuda_gemv.squares), or NULL. */
static __device__ void vector_load(const Vector &v, const float *x, uint32_t cols, uint32_t p0, const float *squares, float eps)
{
    for (uint32_t p = threadIdx.x; p < cols / 2; p += THREADS) {
        const float2 two = *((const float2 *)x + p);
        float scale = 1;
        if (squares) {
            const float4 q = *((const float4 *)squares + p / (CUDA_HEAD / 2));
            scale = rsqrtf((q.x + q.y + q.z + q.w) / CUDA_HEAD + eps);
        }
        vector_put(v, p0 + p, two.x * scale, two.y * scale);
    }
}

/* ---- a chunk ---- */

struct Codes {
    uint4 q[2], high[2];        /* of the two halves of the rows; high nibbles of 8 bits */
    uint2 sb[2];                /* scales, biases */
};

template <int BITS> static __device__ void codes_load(Codes &c, const uint8_t *chunk)
{
    const uint32_t lane = threadIdx.x & 31;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        c.q[h] = __ldcs((const uint4 *)chunk + h * 32 + lane);
        if (BITS == 8) c.high[h] = __ldcs((const uint4 *)(chunk + CUDA_CODES) + h * 32 + lane);
        c.sb[h] = __ldcs((const uint2 *)(chunk + CUDA_CODES * BITS / 4) + h * 8 + (lane >> 2));
    }
}

static __device__ void step_times(float (&c)[4], uint32_t x, uint32_t y, uint32_t b0, uint32_t b1)
{
    mma16816(c, nibbles(x), nibbles(y), nibbles(x >> 4), nibbles(y >> 4), b0, b1);
}

/* The parts' sums in a lane, without the 128 of each code. */
static __device__ float parts_sum(float first, float second, float sum, uint32_t j)
{
    return j == 0 ? first + second - 128.f * sum : j == 1 ? first : 0.f;
}

/* Adds a lane's share of rows g and g + 8: see rows_sum. */
template <int BITS> static __device__ void chunk_times(const Codes &w, const Vector &v, uint32_t chunk, float &row0, float &row1)
{
    const uint32_t lane = threadIdx.x & 31, j = lane & 3, part = min(lane >> 2, (uint32_t)PARTS - 1);
    const uint4 *from = (const uint4 *)(v.words + chunk * CHUNK_WORDS + part * PART_WORDS) + j;
#pragma unroll
    for (int group = 0; group < 2; group++) {
        float low[4] = {}, high[4] = {};
#pragma unroll
        for (int t = 2 * group; t < 2 * group + 2; t++) {
            const uint4 b = from[t * 4];
            step_times(low, word_of(w.q[0], t), word_of(w.q[1], t), b.x, b.y);
            step_times(low, word_of(w.q[0], t) >> 8, word_of(w.q[1], t) >> 8, b.z, b.w);
            if (BITS == 4) continue;
            step_times(high, word_of(w.high[0], t), word_of(w.high[1], t), b.x, b.y);
            step_times(high, word_of(w.high[0], t) >> 8, word_of(w.high[1], t) >> 8, b.z, b.w);
        }
        const float sum = v.sums[2 * chunk + group];
        float x = parts_sum(low[0], low[1], sum, j), y = parts_sum(low[2], low[3], sum, j);
        if (BITS == 8) x += 16.f * parts_sum(high[0], high[1], sum, j), y += 16.f * parts_sum(high[2], high[3], sum, j);
        const float bias = j == 0 ? sum : 0.f;
        row0 += (group ? bf_hi(w.sb[0].x) : bf_lo(w.sb[0].x)) * x + (group ? bf_hi(w.sb[0].y) : bf_lo(w.sb[0].y)) * bias;
        row1 += (group ? bf_hi(w.sb[1].x) : bf_lo(w.sb[1].x)) * y + (group ? bf_hi(w.sb[1].y) : bf_lo(w.sb[1].y)) * bias;
    }
}

static __device__ float rows_sum(float v)
{
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}

/* A warp's rows into shared memory; then thread r of the first 16 gets row r. */
static __device__ float tile_sum(float *part, float row0, float row1)
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    row0 = rows_sum(row0);
    row1 = rows_sum(row1);
    if ((lane & 3) == 0) {
        part[warp * 16 + (lane >> 2)] = row0;
        part[warp * 16 + 8 + (lane >> 2)] = row1;
    }
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += part[w * 16 + threadIdx.x % 16];
    return sum;
}

/* ---- a tile of 16 rows ---- */

/* The tile's chunks lie one behind the other; `ready` makes the vector while the first ones are on their way. */
template <int BITS, typename Ready>
static __device__ float tile_times(const uint8_t *tile, uint32_t chunks, const Vector &v, float *part, Ready ready)
{
    const uint32_t warp = threadIdx.x >> 5;
    Codes c[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        if (warp + i * WARPS < chunks) codes_load<BITS>(c[i], tile + (size_t)(warp + i * WARPS) * CUDA_CHUNK_BYTES(BITS));
    ready();
    __syncthreads();
    float row0 = 0, row1 = 0;
    for (uint32_t k = warp; k < chunks; k += AT_ONCE * WARPS) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const uint32_t at = k + i * WARPS, next = at + AT_ONCE * WARPS;
            if (at >= chunks) break;
            chunk_times<BITS>(c[i], v, at, row0, row1);
            if (next < chunks) codes_load<BITS>(c[i], tile + (size_t)next * CUDA_CHUNK_BYTES(BITS));
        }
    }
    return tile_sum(part, row0, row1);
}

static __device__ void store_row(const cuda_gemv &a, uint32_t block, uint32_t row, float value)
{
    uint32_t s = 0;
#pragma unroll
    for (uint32_t i = 1; i < CUDA_MAX_SECTIONS; i++)
        if (i < a.n_sections && block >= a.section[i].block0) s = i;
    const uint32_t at = (block - a.section[s].block0) * 16 + row;
    if (at < a.section[s].rows) a.section[s].out[at] = value;
}

struct Residual {               /* of `rows` values */
    float *x, *m;
    const float *weight;
    uint32_t rows;
};

/* x += value, and m without its norm; the square of x. */
static __device__ float add_row(const Residual &r, uint32_t row, float value)
{
    if (row >= r.rows) return 0;
    const float x = r.x[row] + value;
    r.x[row] = x;
    r.m[row] = x * r.weight[row];
    return x * x;
}

/* By the first warp of each block: its squares go behind m (cuda_norm_tail). */
static __device__ void leave_norm(const Residual &r, float squares)
{
    const float sum = warp_sum(squares);
    if (threadIdx.x) return;
    r.m[r.rows + 1 + blockIdx.x] = sum;
    if (blockIdx.x == 0) r.m[r.rows] = __uint_as_float(gridDim.x);
}

/* Many tiles a block where there are many: the vector is made once. */
template <int BITS, bool ADD>
static __global__ __launch_bounds__(THREADS, BITS == 4 ? 4 : 2)
void gemv_plain(const __grid_constant__ cuda_gemv a, const __grid_constant__ Residual r)
{
    extern __shared__ __align__(16) uint8_t shared[];
    const uint32_t chunks = a.cols / CUDA_CHUNK_COLS;
    const Vector v = vector_at(shared, chunks);
    float scale = 1, squares = 0;
    const auto ready = [&](bool first) {
        if (!first) return;
        if (a.norm_tail && threadIdx.x < 32) scale = norm_scale(a.in, a.cols, a.eps);
        vector_load(v, a.in, a.cols, 0, a.squares, a.eps);
    };
    for (uint32_t tile = blockIdx.x; tile < a.blocks; tile += gridDim.x) {
        const float y = tile_times<BITS>(a.chunks + (size_t)tile * chunks * CUDA_CHUNK_BYTES(BITS), chunks, v, v.sums + 2 * chunks,
                                         [&] { ready(tile == blockIdx.x); });
        if (threadIdx.x >= 16) continue;
        if (ADD) squares += add_row(r, tile * 16 + threadIdx.x, y * scale);
        else store_row(a, tile, threadIdx.x, y * scale);
    }
    if (ADD && threadIdx.x < 32) leave_norm(r, squares);
}

template <int BITS, bool ADD> static cudaError_t launch_plain(const cuda_gemv *a, const Residual &r, cudaStream_t s)
{
    const unsigned most = 4 * processors();
    gemv_plain<BITS, ADD><<<a->blocks < most ? a->blocks : most, THREADS, shared_bytes(a->cols / CUDA_CHUNK_COLS), s>>>(*a, r);
    return cudaGetLastError();
}

cudaError_t cuda_gemv_any(const cuda_gemv *a, uint16_t bits, cudaStream_t s)
{
    const Residual none = {};
    return bits == 8 ? launch_plain<8, false>(a, none, s) : launch_plain<4, false>(a, none, s);
}

cudaError_t cuda_gemv_add(const cuda_gemv *a, uint32_t rows, float *x, const float *weight, float *m, cudaStream_t s)
{
    return launch_plain<4, true>(a, {x, m, weight, rows}, s);
}

/* ---- experts: topi, topw and sg are there ---- */

/* Gate, up and activation: the chosen experts' blocks of eight rows of each, then the shared one's. */
static __global__ __launch_bounds__(THREADS, 4) void moe_up_plain(const __grid_constant__ cuda_moe_token a)
{
    extern __shared__ __align__(16) uint8_t shared[];
    const uint32_t chunks = a.hidden / CUDA_CHUNK_COLS, blocks = a.inter / 8, routed = a.top_k * blocks;
    const bool own = blockIdx.x < routed;
    const uint32_t tile = own ? blockIdx.x % blocks : blockIdx.x - routed;
    const uint8_t *from = own ? a.ex_up + (size_t)a.topi[blockIdx.x / blocks] * blocks * chunks * CUDA_CHUNK_BYTES(4) : a.sh_up;
    const Vector v = vector_at(shared, chunks);
    float scale = 1;
    const float y = tile_times<4>(from + (size_t)tile * chunks * CUDA_CHUNK_BYTES(4), chunks, v, v.sums + 2 * chunks, [&] {
        if (threadIdx.x < 32) scale = norm_scale(a.m, a.hidden, a.eps);
        vector_load(v, a.m, a.hidden, 0, nullptr, 0);
    });
    if (threadIdx.x >= 32) return;
    const float mine = y * scale, up = __shfl_down_sync(~0u, mine, 8);
    if (threadIdx.x >= 8) return;
    float *to = own ? a.eh + (size_t)(blockIdx.x / blocks) * a.inter : a.sh;
    to[tile * 8 + threadIdx.x] = siluf(mine) * up;
}

cudaError_t cuda_moe_up_any(const cuda_moe_token *a, cudaStream_t s)
{
    const uint32_t tiles = a->top_k * (a->inter / 8) + a->shared_inter / 8;
    moe_up_plain<<<tiles, THREADS, shared_bytes(a->hidden / CUDA_CHUNK_COLS), s>>>(*a);
    return cudaGetLastError();
}

/* x += sum of weight * down, and the next norm; a block has 16 rows of all experts. */
static __global__ __launch_bounds__(THREADS, 2) void moe_down_plain(const __grid_constant__ cuda_moe_token a)
{
    extern __shared__ __align__(16) uint8_t shared[];
    constexpr int EACH = 5;
    const uint32_t each = a.inter / CUDA_CHUNK_COLS, last = a.shared_inter / CUDA_CHUNK_COLS, warp = threadIdx.x >> 5;
    const uint32_t routed = a.top_k * each, units = routed + last;
    const Vector v = vector_at(shared, units);
    const auto chunk_of = [&](uint32_t u) {
        const uint8_t *from = u < routed ? a.ex_down + ((size_t)a.topi[u / each] * gridDim.x + blockIdx.x) * each * CUDA_CHUNK_BYTES(4)
                                         : a.sh_down + (size_t)blockIdx.x * last * CUDA_CHUNK_BYTES(4);
        return from + (u < routed ? u % each : u - routed) * CUDA_CHUNK_BYTES(4);
    };
    Codes c[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (warp + i * WARPS < units) codes_load<4>(c[i], chunk_of(warp + i * WARPS));
    vector_load(v, a.eh, a.top_k * a.inter, 0, nullptr, 0);
    vector_load(v, a.sh, a.shared_inter, routed * CUDA_CHUNK_COLS / 2, nullptr, 0);
    __syncthreads();
    float row0 = 0, row1 = 0;
    for (uint32_t k = warp; k < units; k += EACH * WARPS) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const uint32_t u = k + i * WARPS, next = u + EACH * WARPS;
            if (u >= units) break;
            const float weight = u < routed ? a.topw[u / each] : *a.sg;
            float r0 = 0, r1 = 0;
            chunk_times<4>(c[i], v, u, r0, r1);
            row0 += weight * r0;
            row1 += weight * r1;
            if (next < units) codes_load<4>(c[i], chunk_of(next));
        }
    }
    const float y = tile_sum(v.sums + 2 * units, row0, row1);
    if (threadIdx.x >= 32) return;
    const Residual r = {a.x, a.n, a.norm, a.hidden};
    leave_norm(r, threadIdx.x < 16 ? add_row(r, blockIdx.x * 16 + threadIdx.x, y) : 0.f);
}

cudaError_t cuda_moe_down_any(const cuda_moe_token *a, cudaStream_t s)
{
    const uint32_t units = a->top_k * (a->inter / CUDA_CHUNK_COLS) + a->shared_inter / CUDA_CHUNK_COLS;
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(moe_down_plain, shared_bytes(units), allowed);
    if (e != cudaSuccess) return e;
    moe_down_plain<<<(a->hidden + 15) / 16, THREADS, shared_bytes(units), s>>>(*a);
    return cudaGetLastError();
}
