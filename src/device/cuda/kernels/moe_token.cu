/* moe_token.cu - the experts of one token: route, up, down.  The weights of the chosen experts are asked for as soon as
 * the router's logits are there; those of the down projections while the up projections still run. */
#include "device/cuda/kernels/gemv.cuh"

enum { MOST_EXPERTS = 256, MOST_CHOSEN = 16, UNDER_WAY = 2 };

struct Chosen {
    int32_t id[MOST_CHOSEN];
    float weight[MOST_CHOSEN];
};

/* By GEMV_THREADS threads: the largest of at most 256 logits, of which each has one, lowest id on ties.  Each of eight warps ranks 32 of
 * them, and the first ones of all warps are ranked again. */
static __device__ void choose_experts(Chosen *to, float logit, uint32_t experts, uint32_t top_k)
{
    __shared__ __align__(16) uint32_t first[8 * MOST_CHOSEN];
    __shared__ uint8_t ids[8 * MOST_CHOSEN];
    const uint32_t tid = threadIdx.x, lane = tid & 31, n = 8 * top_k;
    if (tid < MOST_EXPERTS) {
        const uint32_t u = tid < experts ? __float_as_uint(logit) : 0;
        const uint32_t key = tid < experts ? max(u & 0x80000000u ? ~u : u | 0x80000000u, 1u) : 0;
        uint32_t rank = 0;
#pragma unroll 8
        for (uint32_t i = 0; i < 32; i++) rank += __shfl_sync(~0u, key, i) > key - (i < lane);
        if (key == 0) rank = MOST_CHOSEN;
        if (rank < top_k) first[tid / 32 * top_k + rank] = key, ids[tid / 32 * top_k + rank] = (uint8_t)tid;
        const uint32_t found = __popc(__ballot_sync(~0u, key != 0));
        if (lane >= found && lane < top_k) first[tid / 32 * top_k + lane] = 0;
    }
    gemv_sync();
    for (uint32_t c0 = 0; c0 < n; c0 += GEMV_THREADS / 8) {     /* eight threads a candidate */
        const uint32_t c = c0 + tid / 8, key = c < n ? first[c] : 0;
        uint32_t rank = 0;
        for (uint32_t i = tid % 8; i < n; i += 8) rank += first[i] > key - (i < c);
#pragma unroll
        for (int o = 4; o; o >>= 1) rank += __shfl_xor_sync(~0u, rank, o);
        if (tid % 8 == 0 && key && rank < top_k) {
            to->id[rank] = ids[c];
            to->weight[rank] = __uint_as_float(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
        }
    }
}

/* Logits become weights, by one warp. */
static __device__ void weigh_experts(Chosen *to, uint32_t top_k)
{
    const uint32_t lane = threadIdx.x & 31;
    const float w = lane < top_k ? expf(to->weight[lane] - to->weight[0]) : 0.f, sum = warp_sum(w);
    __syncwarp();
    if (lane < top_k) to->weight[lane] = w / sum;
    __syncwarp();
}

/* ---- route: router, gate of the shared expert, its gate and up ---- */

static __global__ __launch_bounds__(GEMV_THREADS, 2) void moe_route(const __grid_constant__ cuda_moe_token a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ uint64_t full;
    __shared__ float scale;
    const uint32_t chunks = a.hidden / CUDA_CHUNK_COLS, tid = threadIdx.x, warp = tid >> 5;
    const uint32_t router_tiles = (a.experts + 15) / 16;
    const bool idle = blockIdx.x > router_tiles + a.shared_inter / 8;
    const uint8_t *from;
    uint32_t bits = 4, tile = blockIdx.x;
    if (tile < router_tiles) {
        bits = a.router_bits, from = a.router;
    } else if (tile == router_tiles) {
        bits = a.gate_bits, from = a.shared_gate, tile = 0;
    } else {
        from = a.sh_up, tile -= router_tiles + 1;
    }
    const uint32_t tile_bytes = chunks * CUDA_CHUNK_BYTES(bits);
    const Vector v = vector_at(shared, chunks);
    float *part = vector_end(v, chunks);
    uint8_t *codes = (uint8_t *)(part + GEMV_WARPS * 16);
    dependency_launch();
    if (a.patient) dependency_wait();
    if (tid == 0 && !idle) {
        barrier_init(&full, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        barrier_expect(&full, tile_bytes);
        bulk_copy(codes, from + (size_t)tile * tile_bytes, tile_bytes, &full);
    }
    __syncthreads();
    dependency_wait();
    Norm norm = {};
    if (warp == GEMV_WARPS - 1) norm = norm_load(a.m, a.hidden);
    vector_load<2>(v, a.m, a.hidden);
    if (idle) return;
    if (warp == GEMV_WARPS - 1) {
        const float s = norm_scale(norm, a.m, a.hidden, a.eps);
        if ((tid & 31) == 0) scale = s;
    }
    barrier_wait(&full, 0);
    float row0 = 0, row1 = 0;
    if (warp < chunks) {
        Fragment f;
        fragment_load(f, v, warp);
        chunk_times_any(codes + warp * CUDA_CHUNK_BYTES(bits), bits, f, row0, row1);
    }
    part_put(part, 0, row0, row1);
    __syncthreads();
    if (warp == 0) {
        const float y = part_sum(part, 0, tid % 16) * scale, up = __shfl_down_sync(~0u, y, 8);
        if (blockIdx.x < router_tiles) {
            if (tid < 16 && tile * 16 + tid < a.experts) a.rl[tile * 16 + tid] = y;
        } else if (blockIdx.x == router_tiles) {
            if (tid == 0) *a.sg = sigmoidf(y);
        } else {
            if (tid < 8 && tile * 8 + tid < a.shared_inter) a.sh[tile * 8 + tid] = siluf(y) * up;
        }
    }
}

cudaError_t cuda_moe_route(const cuda_moe_token *a, bool early, cudaStream_t s)
{
    const uint32_t chunks = a->hidden / CUDA_CHUNK_COLS;
    const size_t shared = token_shared(vector_bytes(chunks) + GEMV_WARPS * 16 * 4 + chunks * CUDA_CHUNK_BYTES(8));
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(moe_route, shared, allowed);
    const uint32_t busy = (a->experts + 15) / 16 + 1 + a->shared_inter / 8;
    return e != cudaSuccess ? e : launch(moe_route, max(busy, (uint32_t)TOKEN_BLOCKS), GEMV_THREADS, shared, early, s, *a);
}

/* ---- up: gate, up and activation of the chosen experts ---- */

/* A warp beside the others asks for weights once the experts are chosen, a few tiles ahead of those that are there. */
static __device__ void up_ask(const cuda_moe_token &a, const Chosen &chosen, uint8_t *to, uint64_t *full, uint32_t first, uint32_t tiles)
{
    const uint32_t tile_bytes = a.hidden / CUDA_CHUNK_COLS * CUDA_CHUNK_BYTES(4), blocks = a.inter / 8, lane = threadIdx.x & 31;
    const uint32_t t = first + lane, rank = min(t / blocks, a.top_k - 1), block = t % blocks;
    __syncthreads();
    const uint8_t *mine = a.ex_up + ((size_t)chosen.id[rank] * blocks + block) * tile_bytes;
    for (uint32_t i = 0; i < tiles; i++) {
        if (i >= UNDER_WAY) barrier_wait(full + i - UNDER_WAY, 0);
        if (lane == i) {
            barrier_expect(full + i, tile_bytes);
            bulk_copy(to + i * tile_bytes, mine, tile_bytes, full + i);
        }
        __syncwarp();
    }
}

static __global__ __launch_bounds__(GEMV_THREADS + 32, 2) void moe_up(const __grid_constant__ cuda_moe_token a, uint32_t each)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ uint64_t full[8];
    __shared__ Chosen chosen;
    __shared__ float scale;
    const uint32_t chunks = a.hidden / CUDA_CHUNK_COLS, tile_bytes = chunks * CUDA_CHUNK_BYTES(4);
    const uint32_t tid = threadIdx.x, warp = tid >> 5, blocks = a.inter / 8, all = a.top_k * blocks;
    const uint32_t first = min(blockIdx.x * each, all), tiles = min(each, all - first);
    const Vector v = vector_at(shared + each * tile_bytes, chunks);
    float *part = vector_end(v, chunks);
    if (tid == 0) {
        for (uint32_t i = 0; i < each; i++) barrier_init(full + i, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    dependency_wait();
    dependency_launch();        /* after the wait: the next kernel reads the router's logits before its own */
    if (warp == GEMV_WARPS) {
        up_ask(a, chosen, shared, full, first, tiles);
        return;
    }
    Asked<2> m;
    Norm norm = {};
    const float logit = load_now(a.rl + min(tid, a.experts - 1));
    vector_ask(m, a.m, a.hidden);
    if (warp == GEMV_WARPS - 1) norm = norm_load(a.m, a.hidden);
    choose_experts(&chosen, logit, a.experts, a.top_k);
    __syncthreads();
    vector_put(v, m, a.hidden);
    if (warp == 0) {
        weigh_experts(&chosen, a.top_k);
        if (blockIdx.x == 0 && tid < a.top_k) a.topi[tid] = chosen.id[tid], a.topw[tid] = chosen.weight[tid];
    }
    if (warp == GEMV_WARPS - 1) {
        const float s = norm_scale(norm, a.m, a.hidden, a.eps);
        if ((tid & 31) == 0) scale = s;
    }
    const uint32_t t = first + tid / 8;
    float *to = a.eh + (size_t)(t / blocks) * a.inter + t % blocks * 8 + tid % 8;
    Fragment f;
    if (warp < chunks) fragment_load(f, v, warp);
    for (uint32_t i = 0; i < tiles; i++) {
        const uint8_t *chunk = shared + i * tile_bytes + warp * CUDA_CHUNK_BYTES(4);
        barrier_wait(full + i, 0);
        float row0 = 0, row1 = 0;
        if (warp < chunks) {
            Codes q;
            codes_load<true>(q, chunk, chunk + CUDA_CODES);
            chunk_times(q, f, row0, row1);
        }
        part_put(part, i, row0, row1);
    }
    gemv_sync();
    if (tid < tiles * 8) {
        const float gate = part_sum(part, tid / 8, tid % 8) * scale, up = part_sum(part, tid / 8, tid % 8 + 8) * scale;
        *to = siluf(gate) * up;
    }
}

cudaError_t cuda_moe_up(const cuda_moe_token *a, bool early, cudaStream_t s)
{
    const uint32_t chunks = a->hidden / CUDA_CHUNK_COLS, all = a->top_k * (a->inter / 8), each = ceil_div(all, TOKEN_BLOCKS);
    const size_t shared = token_large((size_t)each * chunks * CUDA_CHUNK_BYTES(4) + vector_bytes(chunks) + each * GEMV_WARPS * 16 * 4);
    if (each > 8 || shared > 226 * 1024) return cudaErrorInvalidValue;
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(moe_up, shared, allowed);
    return e != cudaSuccess ? e : launch(moe_up, TOKEN_BLOCKS, GEMV_THREADS + 32, shared, early, s, *a, each);
}

/* ---- down: the chosen and the shared expert, the residual, and the next norm ---- */

/* A warp's chunks at most. */
enum { DOWN_SETS = 4, DOWN_UNITS = DOWN_SETS * GEMV_WARPS };

/* What up and route left. */
template <int SETS>
static __device__ void down_load(const Vector &v, const cuda_moe_token &a, uint32_t routed, uint32_t units)
{
    float2 f[2 * SETS];
    float factor[2 * SETS];
#pragma unroll
    for (int i = 0; i < 2 * SETS; i++) {
        const uint32_t p = min(pair_at(i), units * 64 - 1);
        f[i] = __ldcg(p < routed * 64 ? (const float2 *)a.eh + p : (const float2 *)a.sh + (p - routed * 64));
        factor[i] = 1.f;
    }
    vector_put(v, units * 64, f, factor);
}

template <int SETS>
static __global__ __maxnreg__(56) void moe_down(const __grid_constant__ cuda_moe_token a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ uint64_t full[2];
    __shared__ Chosen chosen;
    const uint32_t each = a.inter / CUDA_CHUNK_COLS, last = a.shared_inter / CUDA_CHUNK_COLS;
    const uint32_t routed = a.top_k * each, units = routed + last, tid = threadIdx.x, warp = tid >> 5;
    const uint32_t blocks = (a.hidden + 15) / 16;
    const Vector v = vector_at(shared + units * CUDA_CHUNK_BYTES(4), units);
    float *part = vector_end(v, units);
    const bool idle = blockIdx.x >= blocks;
    dependency_launch();
    if (a.patient) dependency_wait();
    if (tid == 0 && !idle) {
        barrier_init(full, 1), barrier_init(full + 1, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        barrier_expect(full + 1, last * CUDA_CHUNK_BYTES(4));
        bulk_copy(shared + routed * CUDA_CHUNK_BYTES(4), a.sh_down + (size_t)blockIdx.x * last * CUDA_CHUNK_BYTES(4),
                  last * CUDA_CHUNK_BYTES(4), full + 1);
    }
    if (a.chosen) {
        dependency_wait();
        if (tid < a.top_k) chosen.id[tid] = __ldcg(a.topi + tid), chosen.weight[tid] = __ldcg(a.topw + tid);
        __syncthreads();
    } else {
        choose_experts(&chosen, load_now(a.rl + min(tid, a.experts - 1)), a.experts, a.top_k);
        __syncthreads();
    }
    if (warp == 0 && !idle) {
        const uint32_t bytes = each * CUDA_CHUNK_BYTES(4);
        if (tid == 0) barrier_expect(full, a.top_k * bytes);
        __syncwarp();
        if (tid < a.top_k)
            bulk_copy(shared + tid * bytes, a.ex_down + ((size_t)chosen.id[tid] * blocks + blockIdx.x) * bytes, bytes, full);
        if (!a.chosen) weigh_experts(&chosen, a.top_k);
    }
    __syncthreads();
    float weight[SETS];
#pragma unroll
    for (uint32_t k = 0; k < SETS; k++) weight[k] = chosen.weight[min((warp + k * GEMV_WARPS) / each, a.top_k - 1)];
    const uint32_t row = blockIdx.x * 16 + tid;
    const bool adds = tid < 16 && row < a.hidden;
    const float norm = adds ? a.norm[row] : 0.f;
    dependency_wait();
    const float before = adds ? load_now(a.x + row) : 0.f, gate = load_now(a.sg);
    down_load<SETS>(v, a, routed, units);
    if (!idle) {
        barrier_wait(full, 0);
        barrier_wait(full + 1, 0);
    }
    float row0 = 0, row1 = 0;
#pragma unroll
    for (uint32_t k = 0; k < SETS; k++) {
        const uint32_t u = warp + k * GEMV_WARPS;
        if (u >= units || idle) break;
        const uint8_t *chunk = shared + u * CUDA_CHUNK_BYTES(4);
        const float its = u < routed ? weight[k] : gate;
        Fragment f;
        Codes c;
        float r0 = 0, r1 = 0;
        fragment_load(f, v, u);
        codes_load<true>(c, chunk, chunk + CUDA_CODES);
        chunk_times(c, f, r0, r1);
        row0 += its * r0;
        row1 += its * r1;
    }
    part_put(part, 0, row0, row1);
    __syncthreads();
    if (warp == 0) {
        float x = 0;
        if (adds) {
            x = before + part_sum(part, 0, tid);
            a.x[row] = x;
            a.n[row] = x * norm;
        }
        norm_tail_put(a.n, a.hidden, x * x);
    }
}

template <int SETS>
static cudaError_t launch_down(const cuda_moe_token *a, uint32_t units, bool early, cudaStream_t s)
{
    const size_t shared = token_shared(units * CUDA_CHUNK_BYTES(4) + vector_bytes(units) + GEMV_WARPS * 16 * 4);
    if (shared > 226 * 1024) return cudaErrorInvalidValue;
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(moe_down<SETS>, shared, allowed);
    return e != cudaSuccess ? e : launch(moe_down<SETS>, TOKEN_BLOCKS, GEMV_THREADS, shared, early, s, *a);
}

cudaError_t cuda_moe_down(const cuda_moe_token *a, bool early, cudaStream_t s)
{
    const uint32_t units = a->top_k * (a->inter / CUDA_CHUNK_COLS) + a->shared_inter / CUDA_CHUNK_COLS;
    if (units > DOWN_UNITS) return cudaErrorInvalidValue;
    return units <= 3 * GEMV_WARPS ? launch_down<3>(a, units, early, s) : launch_down<DOWN_SETS>(a, units, early, s);
}
