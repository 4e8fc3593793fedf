/* route.cu - which experts a token takes, and the pairs of token and expert sorted by expert: nothing of it leaves the
 * device. */
#include "device/cuda/kernels/common.cuh"

/* Order of choice: larger logit first, lower id on ties. */
__device__ inline uint64_t choice_key(float logit, uint32_t id)
{
    uint32_t u = __float_as_uint(logit);
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    return (uint64_t)u << 32 | (uint32_t)~id;
}

/* A warp a token; lane l looks at ids 8l … 8l + 7 of at most 256. */
static __global__ void topk_256(const float *logits, int32_t *ids, float *weights, uint32_t tokens, uint32_t experts,
                                uint32_t top_k)
{
    const uint32_t t = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (t >= tokens) return;
    const float *logit = logits + (size_t)t * experts;
    uint32_t key[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        key[i] = lane * 8 + i < experts ? max((uint32_t)(choice_key(logit[lane * 8 + i], 0) >> 32), 1u) : 0;
    uint32_t mine = 0;
    int32_t id = 0;
    for (uint32_t a = 0; a < top_k; a++) {
        const uint32_t most = max(max(max(key[0], key[1]), max(key[2], key[3])), max(max(key[4], key[5]), max(key[6], key[7])));
        const uint32_t best = __reduce_max_sync(~0u, most), owner = __ffs(__ballot_sync(~0u, most == best)) - 1;
        uint32_t at = 0;
#pragma unroll
        for (int i = 7; i >= 0; i--) at = key[i] == best ? i : at;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (lane == owner && at == (uint32_t)i) key[i] = 0;
        at = __shfl_sync(~0u, at, owner);
        if (lane == a) mine = best, id = (int32_t)(owner * 8 + at);
    }
    const float value = __uint_as_float(mine & 0x80000000u ? mine & 0x7FFFFFFFu : ~mine), first = __shfl_sync(~0u, value, 0);
    const float w = lane < top_k ? expf(value - first) : 0.f, sum = warp_sum(w);
    if (lane >= top_k) return;
    ids[(size_t)t * top_k + lane] = id;
    weights[(size_t)t * top_k + lane] = w / sum;
}

/* A warp a token. */
static __global__ void topk(const float *logits, int32_t *ids, float *weights, uint32_t tokens, uint32_t experts,
                            uint32_t top_k)
{
    const uint32_t t = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (t >= tokens) return;
    const float *logit = logits + (size_t)t * experts;
    uint64_t below = ~0ull;
    float sum = 0, first = 0;
    for (uint32_t a = 0; a < top_k; a++) {
        uint64_t best = 0;
        for (uint32_t e = lane; e < experts; e += 32) {
            const uint64_t key = choice_key(logit[e], e);
            if (key < below && key > best) best = key;
        }
#pragma unroll
        for (int o = 16; o; o >>= 1) {
            const uint64_t other = __shfl_xor_sync(~0u, best, o);
            if (other > best) best = other;
        }
        below = best;
        const uint32_t id = ~(uint32_t)best;
        const float value = logit[min(id, experts - 1)];
        if (a == 0) first = value;
        const float w = expf(value - first);
        sum += w;
        if (lane == 0) {
            ids[(size_t)t * top_k + a] = (int32_t)min(id, experts - 1);
            weights[(size_t)t * top_k + a] = w;
        }
    }
    __syncwarp();
    for (uint32_t a = lane; a < top_k; a += 32) weights[(size_t)t * top_k + a] /= sum;
}

cudaError_t cuda_topk(const float *logits, int32_t *ids, float *weights, uint32_t tokens, uint32_t experts,
                      uint32_t top_k, cudaStream_t s)
{
    if (experts <= 256 && top_k <= 32)
        topk_256<<<ceil_div(tokens, 4), 128, 0, s>>>(logits, ids, weights, tokens, experts, top_k);
    else
        topk<<<ceil_div(tokens, 4), 128, 0, s>>>(logits, ids, weights, tokens, experts, top_k);
    return cudaGetLastError();
}

/* A block an expert. */
static __global__ void route_count(const int32_t *ids, int32_t *counts, uint32_t pairs)
{
    __shared__ float room[33];
    float n = 0; /* exact: far below 2^24 */
    for (uint32_t p = threadIdx.x; p < pairs; p += blockDim.x) n += ids[p] == (int32_t)blockIdx.x;
    n = block_sum(n, room);
    if (threadIdx.x == 0) counts[blockIdx.x] = (int32_t)n;
}

cudaError_t cuda_route_count(const int32_t *ids, int32_t *counts, uint32_t pairs, uint32_t experts, cudaStream_t s)
{
    route_count<<<experts, 256, 0, s>>>(ids, counts, pairs);
    return cudaGetLastError();
}

static __global__ void route_offsets(const int32_t *counts, int32_t *offsets, uint32_t experts)
{
    const uint32_t lane = threadIdx.x;
    int32_t at = 0;
    for (uint32_t e0 = 0; e0 < experts; e0 += 32) {
        const int32_t n = e0 + lane < experts ? counts[e0 + lane] : 0;
        int32_t sum = n;
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
            const int32_t below = __shfl_up_sync(~0u, sum, o);
            if (lane >= (uint32_t)o) sum += below;
        }
        if (e0 + lane < experts) offsets[e0 + lane] = at + sum - n;
        at += __shfl_sync(~0u, sum, 31);
    }
    if (lane == 0) offsets[experts] = at;
}

cudaError_t cuda_route_offsets(const int32_t *counts, int32_t *offsets, uint32_t experts, cudaStream_t s)
{
    route_offsets<<<1, 32, 0, s>>>(counts, offsets, experts);
    return cudaGetLastError();
}

/* A block an expert; the pairs keep their order. */
static __global__ void route_scatter(const int32_t *ids, const int32_t *offsets, int32_t *order, int32_t *place,
                                     uint32_t pairs)
{
    __shared__ uint32_t found[8];
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    uint32_t row = (uint32_t)offsets[blockIdx.x];
    if (row == (uint32_t)offsets[blockIdx.x + 1]) return;
    for (uint32_t p0 = 0; p0 < pairs; p0 += 256) {
        const uint32_t p = p0 + threadIdx.x;
        const bool mine = p < pairs && ids[p] == (int32_t)blockIdx.x;
        const uint32_t votes = __ballot_sync(~0u, mine);
        if (lane == 0) found[warp] = __popc(votes);
        __syncthreads();
        uint32_t before = 0, all = 0;
#pragma unroll
        for (uint32_t w = 0; w < 8; w++) {
            if (w < warp) before += found[w];
            all += found[w];
        }
        if (mine) {
            const uint32_t at = row + before + __popc(votes & ((1u << lane) - 1));
            order[at] = (int32_t)p;
            place[p] = (int32_t)at;
        }
        row += all;
        __syncthreads();
    }
}

cudaError_t cuda_route_scatter(const int32_t *ids, const int32_t *offsets, int32_t *order, int32_t *place,
                               uint32_t pairs, uint32_t experts, cudaStream_t s)
{
    route_scatter<<<experts, 256, 0, s>>>(ids, offsets, order, place, pairs);
    return cudaGetLastError();
}

/* All of it in two kernels: each block of ROUTE_PAIRS pairs counts its own; then each adds up what those before it have,
 * and puts its pairs where they belong.  Pairs of an expert keep their order. */
enum { ROUTE_WARPS = CUDA_ROUTE_PAIRS / 32 };

static __global__ __launch_bounds__(CUDA_ROUTE_PAIRS) void route_histogram(const int32_t *ids, uint32_t *histogram, uint32_t pairs)
{
    __shared__ uint32_t count[CUDA_ROUTED];
    const uint32_t p = blockIdx.x * CUDA_ROUTE_PAIRS + threadIdx.x, lane = threadIdx.x & 31;
    if (threadIdx.x < CUDA_ROUTED) count[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t e = p < pairs ? (uint32_t)ids[p] : ~0u, same = __match_any_sync(~0u, e);
    if (e != ~0u && (same & ((1u << lane) - 1)) == 0) atomicAdd(&count[e], __popc(same));
    __syncthreads();
    if (threadIdx.x < CUDA_ROUTED) histogram[blockIdx.x * CUDA_ROUTED + threadIdx.x] = count[threadIdx.x];
}

/* Where the block's first pair of each expert goes, by one thread an expert; block 0 writes the offsets. */
static __device__ void route_starts(const uint32_t *histogram, uint32_t *start, int32_t *counts, int32_t *offsets, uint32_t experts)
{
    __shared__ uint32_t sums[CUDA_ROUTED / 32];
    const uint32_t e = threadIdx.x, lane = e & 31, warp = e >> 5;
    uint32_t before = 0, total = 0;
    if (e < CUDA_ROUTED)
#pragma unroll 8
        for (uint32_t b = 0; b < gridDim.x; b++) {
            const uint32_t n = histogram[b * CUDA_ROUTED + e];
            before += b < blockIdx.x ? n : 0;
            total += n;
        }
    uint32_t sum = total;
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        const uint32_t below = __shfl_up_sync(~0u, sum, o);
        if (lane >= (uint32_t)o) sum += below;
    }
    if (e < CUDA_ROUTED && lane == 31) sums[warp] = sum;
    __syncthreads();
    if (e >= CUDA_ROUTED) return;
    for (uint32_t w = 0; w < warp; w++) sum += sums[w];
    start[e] = sum - total + before;
    if (blockIdx.x || e >= experts) return;
    if (counts) counts[e] = (int32_t)total;
    offsets[e] = (int32_t)(sum - total);
    if (e == experts - 1) offsets[experts] = (int32_t)sum;
}

static __global__ __launch_bounds__(CUDA_ROUTE_PAIRS) void route_place(const int32_t *ids, const uint32_t *histogram, int32_t *counts,
                                                                       int32_t *offsets, int32_t *order, int32_t *place,
                                                                       uint32_t pairs, uint32_t experts)
{
    __shared__ uint32_t start[CUDA_ROUTED];
    __shared__ uint16_t own[ROUTE_WARPS][CUDA_ROUTED];
    const uint32_t p = blockIdx.x * CUDA_ROUTE_PAIRS + threadIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const uint32_t e = p < pairs ? (uint32_t)ids[p] : ~0u;
    for (uint32_t i = threadIdx.x; i < ROUTE_WARPS * CUDA_ROUTED / 2; i += CUDA_ROUTE_PAIRS) ((uint32_t *)own)[i] = 0;
    route_starts(histogram, start, counts, offsets, experts);
    __syncthreads();
    const uint32_t same = __match_any_sync(~0u, e), before = __popc(same & ((1u << lane) - 1));
    if (e != ~0u && before == 0) own[warp][e] = (uint16_t)__popc(same);
    __syncthreads();
    if (e == ~0u) return;
    uint32_t at = start[e] + before;
    for (uint32_t w = 0; w < warp; w++) at += own[w][e];
    order[at] = (int32_t)p;
    place[p] = (int32_t)at;
}

size_t cuda_route_room(uint32_t pairs) { return (size_t)ceil_div(pairs, CUDA_ROUTE_PAIRS) * CUDA_ROUTED * sizeof(uint32_t); }

cudaError_t cuda_route(const int32_t *ids, int32_t *counts, int32_t *offsets, int32_t *order, int32_t *place, void *work,
                       uint32_t pairs, uint32_t experts, cudaStream_t s)
{
    const unsigned blocks = ceil_div(pairs, CUDA_ROUTE_PAIRS);
    route_histogram<<<blocks, CUDA_ROUTE_PAIRS, 0, s>>>(ids, (uint32_t *)work, pairs);
    route_place<<<blocks, CUDA_ROUTE_PAIRS, 0, s>>>(ids, (const uint32_t *)work, counts, offsets, order, place, pairs, experts);
    return cudaGetLastError();
}
