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

cudaError_t cuda_conv(const cuda_delta *d, cudaStream_t s)
{
    const uint32_t width = conv_width(d);
    conv<<<dim3(ceil_div(width, 256), d->tokens < 64 ? d->tokens : 64), 256, 0, s>>>(*d, width);
    save_tails<<<ceil_div(width, 256), 256, 0, s>>>(*d, width);
    return cudaGetLastError();
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

/* Heads of 128.  Eight lanes have a row of the state, a warp four rows, a block 32 rows of one head.  The dots with k
 * and q are taken of the state before its update (o = g S q + d (k.q)), so that one exchange serves both. */
enum { SCAN_TOKENS = 16, SCAN_ROWS = 32 };
struct ScanTile {
    float q[SCAN_TOKENS][128], k[SCAN_TOKENS][128], v[SCAN_TOKENS][SCAN_ROWS];
};

__device__ inline void scan_fetch(const cuda_delta &d, ScanTile &tile, uint32_t t0, uint32_t head, uint32_t row0,
                                  uint32_t width)
{
    const uint32_t key_width = d.k_heads * 128, key_head = head / (d.v_heads / d.k_heads);
    for (uint32_t i = threadIdx.x; i < SCAN_TOKENS * 72; i += 256) {
        const uint32_t t = i / 72, p = i % 72;
        const bool live = t0 + t < d.tokens;
        const size_t at = live ? t0 + t : 0;
        if (p < 64) {
            const float *from = d.qk + at * 2 * key_width + (p < 32 ? 0 : key_width) + key_head * 128 + (p & 31) * 4;
            async_copy16((p < 32 ? tile.q : tile.k)[t] + (p & 31) * 4, from, live);
        } else {
            async_copy16(tile.v[t] + (p - 64) * 4, d.u + at * width + 2 * key_width + head * 128 + row0 + (p - 64) * 4, live);
        }
    }
    async_commit();
}

static __global__ __launch_bounds__(256) void gdn_128(cuda_delta d, uint32_t width)
{
    __shared__ __align__(16) ScanTile tiles[2];
    const uint32_t head = blockIdx.x >> 2, row0 = (blockIdx.x & 3) * SCAN_ROWS, part = threadIdx.x & 7;
    const uint32_t row = row0 + (threadIdx.x >> 3);
    float *s = d.lane->recurrent + d.s_at + ((size_t)head * 128 + row) * 128 + part * 4;
    float4 held[4];
#pragma unroll
    for (int i = 0; i < 4; i++) held[i] = *(const float4 *)(s + i * 32);
    const uint32_t n_marks = d.lane->n_marks;
    uint32_t mark = 0, next_mark = n_marks ? d.lane->mark_at[0] : 0;
    scan_fetch(d, tiles[0], 0, head, row0, width);
    for (uint32_t t0 = 0, turn = 0; t0 < d.tokens; t0 += SCAN_TOKENS, turn ^= 1) {
        if (t0 + SCAN_TOKENS < d.tokens) {
            scan_fetch(d, tiles[turn ^ 1], t0 + SCAN_TOKENS, head, row0, width);
            async_wait<1>();
        } else {
            async_wait<0>();
        }
        __syncthreads();
        const ScanTile &tile = tiles[turn];
        const uint32_t n = min((uint32_t)SCAN_TOKENS, d.tokens - t0);
        for (uint32_t t = 0; t < n; t++) {
            const float *gate = d.g + (size_t)(t0 + t) * 2 * d.v_heads + head;
            const float beta = __ldg(gate), g = __ldg(gate + d.v_heads);
            float4 k[4], q[4];
            float sk = 0, sq = 0, kq = 0;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                k[i] = *(const float4 *)&tile.k[t][i * 32 + part * 4];
                q[i] = *(const float4 *)&tile.q[t][i * 32 + part * 4];
                sk += held[i].x * k[i].x + held[i].y * k[i].y + held[i].z * k[i].z + held[i].w * k[i].w;
                sq += held[i].x * q[i].x + held[i].y * q[i].y + held[i].z * q[i].z + held[i].w * q[i].w;
                kq += k[i].x * q[i].x + k[i].y * q[i].y + k[i].z * q[i].z + k[i].w * q[i].w;
            }
#pragma unroll
            for (int o = 4; o; o >>= 1) {
                sk += __shfl_xor_sync(~0u, sk, o);
                sq += __shfl_xor_sync(~0u, sq, o);
                kq += __shfl_xor_sync(~0u, kq, o);
            }
            const float change = beta * (tile.v[t][row - row0] - g * sk);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                held[i].x = g * held[i].x + change * k[i].x;
                held[i].y = g * held[i].y + change * k[i].y;
                held[i].z = g * held[i].z + change * k[i].z;
                held[i].w = g * held[i].w + change * k[i].w;
            }
            if (part == 0) d.dn[(size_t)(t0 + t) * d.v_heads * 128 + head * 128 + row] = g * sq + change * kq;
            if (next_mark == t0 + t + 1) {
                float *to = d.lane->mark[mark++] + (s - d.lane->recurrent);
                next_mark = mark < n_marks ? d.lane->mark_at[mark] : 0;
#pragma unroll
                for (int i = 0; i < 4; i++) *(float4 *)(to + i * 32) = held[i];
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++) *(float4 *)(s + i * 32) = held[i];
}

cudaError_t cuda_gdn(const cuda_delta *d, cudaStream_t s)
{
    if (d->dk == 128 && d->dv == 128)
        gdn_128<<<d->v_heads * 4, 256, 0, s>>>(*d, conv_width(d));
    else
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
