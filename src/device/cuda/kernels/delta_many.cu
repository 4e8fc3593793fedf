/* delta_many.cu - Gated DeltaNet of many tokens between its projections, heads of 128 and four taps: convolution, norms
 * and gates in one kernel; the scan with the state in registers; the gated norm.
 *
 * In the scan a block has 32 rows of one head's state, eight lanes have a row.  The dots with k and q are taken of
 * the state before its update (o = g S q + d (k.q)), so that one exchange serves both, and the next token's operands
 * are on their way meanwhile. */
#include "device/cuda/kernels/common.cuh"

enum { RUN = 16, HEAD = 128, LEAST_BLOCKS = 48 };      /* fewer tokens are scanned sooner */

/* ---- before the scan: a warp has one head of 128 channels through RUN tokens ---- */

struct Window {
    float4 kernel[4];           /* of the lane's four channels */
    float4 before[3];           /* their three inputs before the next */
};

__device__ inline float tap(const float4 &k, float a, float b, float c, float x) { return siluf(k.x * a + k.y * b + k.z * c + k.w * x); }

__device__ inline float4 window_step(Window &w, const float4 &x)
{
    const float4 u = make_float4(tap(w.kernel[0], w.before[0].x, w.before[1].x, w.before[2].x, x.x),
                                 tap(w.kernel[1], w.before[0].y, w.before[1].y, w.before[2].y, x.y),
                                 tap(w.kernel[2], w.before[0].z, w.before[1].z, w.before[2].z, x.z),
                                 tap(w.kernel[3], w.before[0].w, w.before[1].w, w.before[2].w, x.w));
    w.before[0] = w.before[1], w.before[1] = w.before[2], w.before[2] = x;
    return u;
}

/* Four channels of a token, as float or, HALF, as fp16. */
template <bool HALF> __device__ inline void put4(float *wide, uint16_t *half, size_t at, const float4 &v)
{
    if (HALF)
        *(uint2 *)(half + at) = make_uint2(pack_half(v.x, v.y), pack_half(v.z, v.w));
    else
        *(float4 *)(wide + at) = v;
}

template <bool HALF> static __global__ __launch_bounds__(256) void delta_prepare(const __grid_constant__ cuda_delta d, uint32_t width)
{
    const uint32_t lane = threadIdx.x & 31, head = blockIdx.x * 8 + (threadIdx.x >> 5), t0 = blockIdx.y * RUN;
    if (head * HEAD >= width) return;
    const uint32_t channel = head * HEAD + lane * 4, key_width = d.k_heads * HEAD;
    const uint32_t n = min((uint32_t)RUN, d.tokens - t0), first = d.lane->position;
    const float *tail = d.lane->recurrent + d.tail_at;
    Window w;
#pragma unroll
    for (int i = 0; i < 4; i++) w.kernel[i] = *(const float4 *)(d.conv + (size_t)(channel + i) * 4);
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const int64_t t = (int64_t)t0 - 3 + i, position = (int64_t)first + t;
        const float *from = t >= 0 ? d.qkv + (size_t)t * width : tail + (size_t)(position & 3) * width;
        w.before[i] = position >= 0 ? *(const float4 *)(from + channel) : make_float4(0, 0, 0, 0);
    }
    float4 x[RUN];
#pragma unroll
    for (int i = 0; i < RUN; i++)
        if ((uint32_t)i < n) x[i] = *(const float4 *)(d.qkv + (size_t)(t0 + i) * width + channel);
    if (head < 2 * d.k_heads) {
        const float scale = head < d.k_heads ? 0.08838834764831845f : 1.f;
#pragma unroll
        for (int i = 0; i < RUN; i++) {
            if ((uint32_t)i >= n) break;
            const float4 u = window_step(w, x[i]);
            const float r = rsqrtf(warp_sum(u.x * u.x + u.y * u.y + u.z * u.z + u.w * u.w) + 1e-6f) * scale;
            put4<HALF>(d.qk, d.half_qk, (size_t)(t0 + i) * 2 * key_width + channel, make_float4(u.x * r, u.y * r, u.z * r, u.w * r));
        }
        return;
    }
    const uint32_t row = HALF ? width - 2 * key_width : width, at_value = HALF ? channel - 2 * key_width : channel;
#pragma unroll
    for (int i = 0; i < RUN; i++)
        if ((uint32_t)i < n) put4<HALF>(d.u, d.half_v, (size_t)(t0 + i) * row + at_value, window_step(w, x[i]));
    if (lane >= n) return;
    const uint32_t h = head - 2 * d.k_heads;
    const size_t at = (size_t)(t0 + lane) * 2 * d.v_heads + h;
    d.g[at] = sigmoidf(d.ba[at]);
    d.g[at + d.v_heads] = expf(-d.decay[h] * softplusf(d.ba[at + d.v_heads] + d.dt_bias[h]));
}

/* ---- the scan ---- */

enum { ROWS = 32, THREADS = 256 };

struct Tile {
    float q[RUN][HEAD], k[RUN][HEAD], v[RUN][ROWS], gate[RUN][2], kq[RUN];
};

__device__ inline void copy4(void *to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from));
}

static __device__ void fetch(const cuda_delta &d, Tile &tile, uint32_t t0, uint32_t head, uint32_t row0, uint32_t width)
{
    const uint32_t key_width = d.k_heads * HEAD, key_head = head / (d.v_heads / d.k_heads);
    for (uint32_t i = threadIdx.x; i < RUN * 72; i += THREADS) {
        const uint32_t t = i / 72, p = i % 72;
        const bool live = t0 + t < d.tokens;
        const size_t at = live ? t0 + t : 0;
        if (p < 64) {
            const float *from = d.qk + at * 2 * key_width + (p < 32 ? 0 : key_width) + key_head * HEAD + (p & 31) * 4;
            async_copy16((p < 32 ? tile.q : tile.k)[t] + (p & 31) * 4, from, live);
        } else {
            async_copy16(tile.v[t] + (p - 64) * 4, d.u + at * width + 2 * key_width + head * HEAD + row0 + (p - 64) * 4, live);
        }
    }
    if (threadIdx.x < 2 * RUN) {
        const uint32_t t = threadIdx.x / 2, which = threadIdx.x % 2;
        if (t0 + t < d.tokens)
            copy4(&tile.gate[t][which], d.g + (size_t)(t0 + t) * 2 * d.v_heads + which * d.v_heads + head);
        else
            tile.gate[t][which] = (float)which;         /* behind the end nothing is learned or forgotten */
    }
    async_commit();
}

/* k.q of each token, by one warp. */
static __device__ void multiply_keys(Tile &tile)
{
    const uint32_t lane = threadIdx.x & 31;
    for (uint32_t t = threadIdx.x >> 5; t < RUN; t += THREADS / 32) {
        const float4 k = *(const float4 *)&tile.k[t][lane * 4], q = *(const float4 *)&tile.q[t][lane * 4];
        const float sum = warp_sum(k.x * q.x + k.y * q.y + k.z * q.z + k.w * q.w);
        if (lane == 0) tile.kq[t] = sum;
    }
}

struct Operands {
    float4 k[4], q[4];
    float v, beta, g, kq;
};

__device__ inline void operands(Operands &o, const Tile &tile, uint32_t t, uint32_t part, uint32_t row)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        o.k[i] = *(const float4 *)&tile.k[t][i * 32 + part * 4];
        o.q[i] = *(const float4 *)&tile.q[t][i * 32 + part * 4];
    }
    o.v = tile.v[t][row], o.beta = tile.gate[t][0], o.g = tile.gate[t][1], o.kq = tile.kq[t];
}

__device__ inline float dot16(const float4 (&a)[4], const float4 (&b)[4])
{
    float x = 0, y = 0, z = 0, w = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) x += a[i].x * b[i].x, y += a[i].y * b[i].y, z += a[i].z * b[i].z, w += a[i].w * b[i].w;
    return (x + y) + (z + w);
}

/* Of a row; its output is in all eight lanes. */
static __device__ float scan_step(float4 (&held)[4], const Operands &o)
{
    float sk = dot16(held, o.k), sq = dot16(held, o.q);
#pragma unroll
    for (int i = 0; i < 4; i++) held[i].x *= o.g, held[i].y *= o.g, held[i].z *= o.g, held[i].w *= o.g;
#pragma unroll
    for (int s = 4; s; s >>= 1) {
        sk += __shfl_xor_sync(~0u, sk, s);
        sq += __shfl_xor_sync(~0u, sq, s);
    }
    const float change = o.beta * (o.v - o.g * sk);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        held[i].x += change * o.k[i].x;
        held[i].y += change * o.k[i].y;
        held[i].z += change * o.k[i].z;
        held[i].w += change * o.k[i].w;
    }
    return o.g * sq + change * o.kq;
}

/* The state to memory and back, as a scan does that takes a block of tokens at a time. */
static __device__ void pass_through_memory(float4 (&held)[4], float *s)
{
#pragma unroll
    for (int i = 0; i < 4; i++) __stcg((float4 *)(s + i * 32), held[i]);
    __threadfence();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) held[i] = __ldcg((const float4 *)(s + i * 32));
}

/* Not HELD: the control for holding the state in registers through all tokens; it leaves them every 2 RUN tokens. */
template <bool HELD>
static __global__ __launch_bounds__(THREADS) void delta_scan(const __grid_constant__ cuda_delta d, uint32_t width)
{
    __shared__ __align__(16) Tile tiles[2];
    const uint32_t head = blockIdx.x >> 2, row0 = (blockIdx.x & 3) * ROWS, part = threadIdx.x & 7, row = threadIdx.x >> 3;
    const size_t at = d.s_at + ((size_t)head * HEAD + row0 + row) * HEAD + part * 4;
    float *s = d.lane->recurrent + at;
    float4 held[4];
#pragma unroll
    for (int i = 0; i < 4; i++) held[i] = *(const float4 *)(s + i * 32);
    const uint32_t n_marks = d.lane->n_marks;
    uint32_t mark = 0, next_mark = n_marks ? d.lane->mark_at[0] : 0;
    float *dn = d.dn + head * HEAD + row0 + row;
    fetch(d, tiles[0], 0, head, row0, width);
    for (uint32_t t0 = 0, turn = 0; t0 < d.tokens; t0 += RUN, turn ^= 1) {
        if (t0 + RUN < d.tokens) {
            fetch(d, tiles[turn ^ 1], t0 + RUN, head, row0, width);
            async_wait<1>();
        } else {
            async_wait<0>();
        }
        __syncthreads();
        Tile &tile = tiles[turn];
        multiply_keys(tile);
        __syncthreads();
        const uint32_t n = min((uint32_t)RUN, d.tokens - t0);
        Operands o[2];
        operands(o[0], tile, 0, part, row);
#pragma unroll
        for (uint32_t t = 0; t < RUN; t++) {
            if (t + 1 < RUN) operands(o[(t + 1) & 1], tile, t + 1, part, row);
            const float out = scan_step(held, o[t & 1]);
            if (part == 0 && t < n) dn[(size_t)(t0 + t) * d.v_heads * HEAD] = out;
            if (next_mark != t0 + t + 1) continue;
            float *to = d.lane->mark[mark++] + at;
#pragma unroll
            for (int k = 0; k < 4; k++) *(float4 *)(to + k * 32) = held[k];
            next_mark = mark < n_marks ? d.lane->mark_at[mark] : 0;
        }
        __syncthreads();
        if (!HELD && turn) pass_through_memory(held, s);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) *(float4 *)(s + i * 32) = held[i];
}

/* ---- all of it ---- */

static size_t aligned(size_t floats) { return (floats + 63) / 64 * 64; }

size_t cuda_delta_many_room(uint32_t tokens, uint32_t k_heads, uint32_t v_heads)
{
    const size_t width = 2 * (size_t)k_heads * HEAD + (size_t)v_heads * HEAD;
    return sizeof(float) * (aligned(tokens * width) + aligned(tokens * 2 * (size_t)k_heads * HEAD) +
                            aligned(tokens * 2 * (size_t)v_heads) + aligned(tokens * (size_t)v_heads * HEAD));
}

cudaError_t cuda_delta_many(const cuda_delta *given, float *work, void *blocks, cudaStream_t s)
{
    cuda_delta d = *given;
    const uint32_t width = 2 * d.k_heads * HEAD + d.v_heads * HEAD;
    d.u = work;
    d.qk = d.u + aligned((size_t)d.tokens * width);
    d.g = d.qk + aligned((size_t)d.tokens * 2 * d.k_heads * HEAD);
    d.dn = d.g + aligned((size_t)d.tokens * 2 * d.v_heads);
    d.half_qk = (uint16_t *)d.qk;
    d.half_v = (uint16_t *)d.u;
    const bool in_blocks = blocks && d.tokens >= LEAST_BLOCKS, by_warpgroup = in_blocks && d.hopper;
    (by_warpgroup ? delta_prepare<true> : delta_prepare<false>)<<<dim3(ceil_div(width, 8 * HEAD), ceil_div(d.tokens, RUN)), 256, 0, s>>>(d, width);
    cudaError_t e = cuda_save_tails(&d, s);
    if (e != cudaSuccess) return e;
    if (by_warpgroup)
        e = cuda_delta_wgmma(&d, blocks, s);
    else if (in_blocks)
        e = cuda_delta_chunk(&d, blocks, s);
    else if (d.through_memory)
        delta_scan<false><<<d.v_heads * 4, THREADS, 0, s>>>(d, width);
    else
        delta_scan<true><<<d.v_heads * 4, THREADS, 0, s>>>(d, width);
    if (e != cudaSuccess) return e;
    return cuda_gnorm(&d, s);
}
