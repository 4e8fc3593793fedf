/* delta.cu - Gated DeltaNet step by step, any number of tokens and any head sizes up to 256.  Formulas: docs/model.md. */
#include "device/cuda/kernels/common.cuh"

/* The input of the convolution at a position: of this run, or of the ring. */
__device__ inline float conv_input(const cuda_delta &d, const float *tail, int64_t t, uint32_t first, uint32_t i,
                                   uint32_t width)
{
    if (t >= 0) return d.qkv[(size_t)t * width + i];
    const int64_t position = (int64_t)first + t;
    return position < 0 ? 0.f : tail[(size_t)(position % d.taps) * width + i];
}

static __global__ void conv(cuda_delta d, uint32_t width)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, first = d.lane->position;
    const float *tail = d.lane->recurrent + d.tail_at;
    if (i >= width) return;
    const float *kernel = d.conv + (size_t)i * d.taps;
    for (uint32_t t = blockIdx.y; t < d.tokens; t += gridDim.y) {
        float u = 0;
        for (uint32_t j = 0; j < d.taps; j++)
            u += kernel[j] * conv_input(d, tail, (int64_t)t - d.taps + 1 + j, first, i, width);
        d.u[(size_t)t * width + i] = siluf(u);
    }
}

/* The ring of a recurrent block as it is after n tokens of the run. */
__device__ inline void save_ring(const cuda_delta &d, float *to, const float *tail, uint32_t n, uint32_t first,
                                 uint32_t i, uint32_t width)
{
    for (int64_t t = (int64_t)n - d.taps; t < n; t++) {
        const int64_t position = (int64_t)first + t;
        if (position >= 0 && (t >= 0 || to != tail))
            to[(size_t)(position % d.taps) * width + i] = conv_input(d, tail, t, first, i, width);
    }
}

static __global__ void save_tails(cuda_delta d, uint32_t width)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width) return;
    float *tail = d.lane->recurrent + d.tail_at;
    for (uint32_t m = 0; m < d.lane->n_marks; m++)
        save_ring(d, d.lane->mark[m] + d.tail_at, tail, d.lane->mark_at[m], d.lane->position, i, width);
    save_ring(d, tail, tail, d.tokens, d.lane->position, i, width);
}

static uint32_t conv_width(const cuda_delta *d) { return 2 * d->k_heads * d->dk + d->v_heads * d->dv; }

cudaError_t cuda_save_tails(const cuda_delta *d, cudaStream_t s)
{
    save_tails<<<ceil_div(conv_width(d), 256), 256, 0, s>>>(*d, conv_width(d));
    return cudaGetLastError();
}

cudaError_t cuda_conv(const cuda_delta *d, cudaStream_t s)
{
    const uint32_t width = conv_width(d);
    conv<<<dim3(ceil_div(width, 256), d->tokens < 64 ? d->tokens : 64), 256, 0, s>>>(*d, width);
    return cuda_save_tails(d, s);
}

/* A warp a head of q or k. */
static __global__ void qk_l2(cuda_delta d, uint32_t width)
{
    const uint32_t heads = 2 * d.k_heads, lane = threadIdx.x & 31;
    const size_t head = blockIdx.x * (size_t)(blockDim.x >> 5) + (threadIdx.x >> 5);
    if (head >= (size_t)d.tokens * heads) return;
    const float *u = d.u + head / heads * width + head % heads * d.dk;
    float sum = 0;
    for (uint32_t i = lane; i < d.dk; i += 32) sum += u[i] * u[i];
    const float scale = rsqrtf(warp_sum(sum) + 1e-6f) * (head % heads < d.k_heads ? rsqrtf((float)d.dk) : 1.f);
    for (uint32_t i = lane; i < d.dk; i += 32) d.qk[head * d.dk + i] = u[i] * scale;
}

cudaError_t cuda_qk_l2(const cuda_delta *d, cudaStream_t s)
{
    qk_l2<<<ceil_div((size_t)d->tokens * 2 * d->k_heads, 8), 256, 0, s>>>(*d, conv_width(d));
    return cudaGetLastError();
}

static __global__ void gates(cuda_delta d)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= (size_t)d.tokens * d.v_heads) return;
    const size_t t = i / d.v_heads, h = i % d.v_heads, at = t * 2 * d.v_heads + h;
    d.g[at] = sigmoidf(d.ba[at]);
    d.g[at + d.v_heads] = expf(-d.decay[h] * softplusf(d.ba[at + d.v_heads] + d.dt_bias[h]));
}

cudaError_t cuda_gates(const cuda_delta *d, cudaStream_t s)
{
    gates<<<ceil_div((size_t)d->tokens * d->v_heads, 256), 256, 0, s>>>(*d);
    return cudaGetLastError();
}

/* One row of a head's state in a warp's registers through all tokens. */
static __global__ void gdn_any(cuda_delta d, uint32_t width)
{
    constexpr int EACH = 8;
    const uint32_t lane = threadIdx.x & 31, index = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (index >= d.v_heads * d.dv) return;
    const uint32_t head = index / d.dv, key_head = head / (d.v_heads / d.k_heads), key_width = d.k_heads * d.dk;
    float *s = d.lane->recurrent + d.s_at + (size_t)index * d.dk, held[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) held[i] = lane + 32 * i < d.dk ? s[lane + 32 * i] : 0.f;
    for (uint32_t t = 0, mark = 0; t < d.tokens; t++) {
        const float *q = d.qk + (size_t)t * 2 * key_width + key_head * d.dk, *k = q + key_width;
        const float v = d.u[(size_t)t * width + 2 * key_width + index];
        const float beta = d.g[(size_t)t * 2 * d.v_heads + head], g = d.g[(size_t)t * 2 * d.v_heads + d.v_heads + head];
        float dot = 0, o = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            held[i] *= g;
            dot += lane + 32 * i < d.dk ? held[i] * k[lane + 32 * i] : 0.f;
        }
        const float change = beta * (v - warp_sum(dot));
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (lane + 32 * i >= d.dk) continue;
            held[i] += change * k[lane + 32 * i];
            o += held[i] * q[lane + 32 * i];
        }
        o = warp_sum(o);
        if (lane == 0) d.dn[(size_t)t * d.v_heads * d.dv + index] = o;
        if (mark < d.lane->n_marks && d.lane->mark_at[mark] == t + 1) {
            float *to = d.lane->mark[mark++] + d.s_at + (size_t)index * d.dk;
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (lane + 32 * i < d.dk) to[lane + 32 * i] = held[i];
        }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + 32 * i < d.dk) s[lane + 32 * i] = held[i];
}

cudaError_t cuda_gdn(const cuda_delta *d, cudaStream_t s)
{
    gdn_any<<<ceil_div((size_t)d->v_heads * d->dv, 4), 128, 0, s>>>(*d, conv_width(d));
    return cudaGetLastError();
}

/* A warp a head. */
static __global__ void gnorm(cuda_delta d)
{
    const uint32_t lane = threadIdx.x & 31;
    const size_t head = blockIdx.x * (size_t)(blockDim.x >> 5) + (threadIdx.x >> 5);
    if (head >= (size_t)d.tokens * d.v_heads) return;
    const float *o = d.dn + head * d.dv, *z = d.z + head * d.dv;
    float sum = 0;
    for (uint32_t i = lane; i < d.dv; i += 32) sum += o[i] * o[i];
    const float scale = rsqrtf(warp_sum(sum) / d.dv + d.eps);
    for (uint32_t i = lane; i < d.dv; i += 32) store_act(d.dng, head * d.dv + i, o[i] * scale * d.norm[i] * siluf(z[i]), d.half);
}

cudaError_t cuda_gnorm(const cuda_delta *d, cudaStream_t s)
{
    gnorm<<<ceil_div((size_t)d->tokens * d->v_heads, 8), 256, 0, s>>>(*d);
    return cudaGetLastError();
}
