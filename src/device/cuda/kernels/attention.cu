/* attention.cu - gated attention step by step, any number of tokens and any head sizes.  Formulas: docs/model.md. */
#include "device/cuda/kernels/common.cuh"

/* Row of a position in the cache: keys (which 0) or values (1) of one head. */
__device__ inline uint16_t *cache_row(const cuda_attention &a, uint32_t which, uint32_t head, uint32_t position)
{
    return a.lane->pages[position / CUDA_PAGE] +
           (((size_t)(a.layer * 2 + which) * a.kv_heads + head) * CUDA_PAGE + position % CUDA_PAGE) * a.dim;
}

/* A warp a head: norm, then the rotation of the pairs (i, i + R/2).  Angles in double: at position 131071 those in
 * float are off by 4e-3. */
static __global__ void qk_rope(cuda_attention a)
{
    extern __shared__ float rows[];
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, heads = a.q_heads + a.kv_heads;
    const size_t index = blockIdx.x * (size_t)(blockDim.x >> 5) + warp;
    if (index >= (size_t)a.tokens * heads) return;
    const size_t t = index / heads, h = index % heads;
    const bool query = h < a.q_heads;
    const float *from = query ? a.qg + (t * a.q_heads + h) * 2 * a.dim : a.kp + (t * a.kv_heads + h - a.q_heads) * a.dim;
    float *to = query ? a.q + (t * a.q_heads + h) * a.dim : a.k + (t * a.kv_heads + h - a.q_heads) * a.dim;
    const float *weight = query ? a.norm_q : a.norm_k;
    float *x = rows + warp * a.dim, sum = 0;
    for (uint32_t i = lane; i < a.dim; i += 32) sum += from[i] * from[i];
    const float scale = rsqrtf(warp_sum(sum) / a.dim + a.eps);
    for (uint32_t i = lane; i < a.dim; i += 32) x[i] = from[i] * scale * weight[i];
    __syncwarp();
    const uint32_t half = a.rotary / 2;
    const double position = (double)a.lane->position + (double)t;
    for (uint32_t i = lane; i < half; i += 32) {
        double sine, cosine;
        sincos(position * a.frequency[i], &sine, &cosine);
        const float p = x[i], q = x[i + half];
        to[i] = p * (float)cosine - q * (float)sine;
        to[i + half] = q * (float)cosine + p * (float)sine;
    }
    for (uint32_t i = a.rotary + lane; i < a.dim; i += 32) to[i] = x[i];
}

cudaError_t cuda_qk_rope(const cuda_attention *a, cudaStream_t s)
{
    qk_rope<<<ceil_div((size_t)a->tokens * (a->q_heads + a->kv_heads), 4), 128, 4 * a->dim * sizeof(float), s>>>(*a);
    return cudaGetLastError();
}

static __global__ void kv_append(cuda_attention a)
{
    const size_t width = (size_t)a.kv_heads * a.dim, n = a.tokens * width;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        const uint32_t t = (uint32_t)(i / width), h = (uint32_t)(i % width / a.dim), c = (uint32_t)(i % a.dim);
        cache_row(a, 0, h, a.lane->position + t)[c] = float_bf16(a.k[i]);
        cache_row(a, 1, h, a.lane->position + t)[c] = float_bf16(a.vp[i]);
    }
}

cudaError_t cuda_kv_append(const cuda_attention *a, cudaStream_t s)
{
    kv_append<<<ceil_div((size_t)a->tokens * a->kv_heads * a->dim, 256), 256, 0, s>>>(*a);
    return cudaGetLastError();
}

/* A block a query; its warps take positions in turn, and their running softmaxes are joined at the end. */
static __global__ __launch_bounds__(128) void attend(cuda_attention a)
{
    constexpr int EACH = 8, WARPS = 4;
    extern __shared__ float joint[];        /* [WARPS][dim + 2] */
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const uint32_t t = blockIdx.x / a.q_heads, h = blockIdx.x % a.q_heads, head = h / (a.q_heads / a.kv_heads);
    const uint32_t n = a.lane->position + t + 1;
    const float *query = a.q + ((size_t)t * a.q_heads + h) * a.dim, scale = rsqrtf((float)a.dim);
    float q[EACH], acc[EACH] = {}, most = -CUDART_INF_F, sum = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) q[i] = lane + 32 * i < a.dim ? query[lane + 32 * i] * scale : 0.f;
    for (uint32_t p = warp; p < n; p += WARPS) {
        const uint16_t *k = cache_row(a, 0, head, p), *v = cache_row(a, 1, head, p);
        float dot = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) dot += lane + 32 * i < a.dim ? q[i] * bf16_float(k[lane + 32 * i]) : 0.f;
        dot = warp_sum(dot);
        const float top = fmaxf(most, dot), keep = expf(most - top), w = expf(dot - top);
        most = top;
        sum = sum * keep + w;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            acc[i] = acc[i] * keep + (lane + 32 * i < a.dim ? w * bf16_float(v[lane + 32 * i]) : 0.f);
    }
    float *mine = joint + warp * (a.dim + 2);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + 32 * i < a.dim) mine[lane + 32 * i] = acc[i];
    if (lane == 0) mine[a.dim] = most, mine[a.dim + 1] = sum;
    __syncthreads();
    float top = -CUDART_INF_F, all = 0;
    for (int w = 0; w < WARPS; w++) top = fmaxf(top, joint[w * (a.dim + 2) + a.dim]);
    for (int w = 0; w < WARPS; w++) all += joint[w * (a.dim + 2) + a.dim + 1] * expf(joint[w * (a.dim + 2) + a.dim] - top);
    for (uint32_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
        float o = 0;
        for (int w = 0; w < WARPS; w++) o += joint[w * (a.dim + 2) + i] * expf(joint[w * (a.dim + 2) + a.dim] - top);
        a.ao[(size_t)blockIdx.x * a.dim + i] = o / all;
    }
}

cudaError_t cuda_attend(const cuda_attention *a, cudaStream_t s)
{
    attend<<<a->tokens * a->q_heads, 128, 4 * (a->dim + 2) * sizeof(float), s>>>(*a);
    return cudaGetLastError();
}

static __global__ void o_gate(cuda_attention a)
{
    const size_t n = (size_t)a.tokens * a.q_heads * a.dim;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        store_act(a.aog, i, a.ao[i] * sigmoidf(a.qg[i / a.dim * 2 * a.dim + a.dim + i % a.dim]), a.half);
}

cudaError_t cuda_o_gate(const cuda_attention *a, cudaStream_t s)
{
    o_gate<<<1056, 256, 0, s>>>(*a);
    return cudaGetLastError();
}
