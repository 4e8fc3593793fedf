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
