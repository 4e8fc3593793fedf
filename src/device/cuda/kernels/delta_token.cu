/* delta_token.cu - Gated DeltaNet of one token between its projections: convolution, norms, gates, recurrence and the
 * gated norm, but for its factor.  Heads of 128, four taps.  Four blocks have one value head: 32 rows of its state each,
 * in registers before the projections are done. */
#include "device/cuda/kernels/common.cuh"

enum { QUARTERS = CUDA_QUARTERS, WARPS = 8, ROWS = 32, THREADS = 256, PIECES = 4 };

/* Channel c, and its three inputs before this one. */
struct Channel {
    float4 kernel;
    float before[3];
};

static __device__ Channel channel_load(const cuda_delta &d, const float *tail, uint32_t c, uint32_t width, uint32_t position)
{
    Channel h;
    h.kernel = *(const float4 *)(d.conv + (size_t)c * 4);
#pragma unroll
    for (int i = 0; i < 3; i++) h.before[i] = tail[(size_t)((position + 1 + i) & 3) * width + c];
    return h;
}

static __device__ float channel_step(const Channel &h, float x)
{
    return siluf(h.kernel.x * h.before[0] + h.kernel.y * h.before[1] + h.kernel.z * h.before[2] + h.kernel.w * x);
}

/* Of the eight lanes that share a row of the state. */
static __device__ float row_sum(float v)
{
#pragma unroll
    for (int o = 4; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

static __device__ float dot(const float4 &a, const float4 &b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

/* A thread has one channel of q or k, of v too if it is one of the first 32; then an eighth of a row of the state: four
 * pieces of four columns. */
static __global__ __launch_bounds__(THREADS, 2) void delta_token(const __grid_constant__ cuda_delta d, uint32_t width)
{
    __shared__ __align__(16) float qk[2][128], values[ROWS], squares[WARPS];
    const uint32_t tid = threadIdx.x, warp = tid >> 5, piece = tid % 8, row = tid / 8;
    const uint32_t head = blockIdx.x / QUARTERS, quarter = blockIdx.x % QUARTERS, share = d.v_heads / d.k_heads;
    dependency_launch();
    if (head >= d.v_heads) {
        dependency_wait();
        __nanosleep(1000);      /* keeps the place: see TOKEN_BLOCKS */
        return;
    }
    const uint32_t c_qk = tid / 128 * d.k_heads * 128 + head / share * 128 + tid % 128;
    const uint32_t out0 = head * 128 + quarter * ROWS, c_v = 2 * d.k_heads * 128 + out0 + tid % 32;
    const uint32_t position = d.lane->position;
    float *tail = d.lane->recurrent + d.tail_at;
    float *state = d.lane->recurrent + d.s_at + (size_t)(out0 + row) * 128 + piece * 4;
    float4 held[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; i++) held[i] = *(const float4 *)(state + i * 32);
    const Channel mine = channel_load(d, tail, c_qk, width, position);
    Channel of_v = {};
    if (warp == 0) of_v = channel_load(d, tail, c_v, width, position);
    const float decay = d.decay[head], dt_bias = d.dt_bias[head], weight = d.norm[quarter * ROWS + row];
    float *ring = tail + (size_t)(position & 3) * width;
    dependency_wait();
    const float x = __ldcg(d.qkv + c_qk), xv = warp == 0 ? __ldcg(d.qkv + c_v) : 0.f;
    const float b = __ldcg(d.ba + head), a = __ldcg(d.ba + d.v_heads + head), z = __ldcg(d.z + out0 + row);
    qk[tid / 128][tid % 128] = channel_step(mine, x);
    if (warp == 0) values[tid] = channel_step(of_v, xv);
    __syncthreads();
    if (quarter == 0 && head % share == 0) ring[c_qk] = x;
    if (warp == 0) ring[c_v] = xv;
    const float beta = sigmoidf(b), g = expf(-decay * softplusf(a + dt_bias)), v = values[row];

    float4 k[PIECES];
    float qq = 0, kk = 0, kq = 0, sk = 0, sq = 0;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        const float4 q = *(const float4 *)&qk[0][i * 32 + piece * 4];
        k[i] = *(const float4 *)&qk[1][i * 32 + piece * 4];
        qq += dot(q, q), kk += dot(k[i], k[i]), kq += dot(k[i], q);
        sq += dot(held[i], q), sk += dot(held[i], k[i]);
    }
    qq = row_sum(qq), kk = row_sum(kk), kq = row_sum(kq), sq = row_sum(sq), sk = row_sum(sk);
    const float q_scale = rsqrtf(qq + 1e-6f) * 0.08838834764831845f, k_scale = rsqrtf(kk + 1e-6f);
    const float change = beta * (v - g * sk * k_scale), add = change * k_scale;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        float4 s = held[i];
        s.x = g * s.x + add * k[i].x;
        s.y = g * s.y + add * k[i].y;
        s.z = g * s.z + add * k[i].z;
        s.w = g * s.w + add * k[i].w;
        *(float4 *)(state + i * 32) = s;
    }
    const float o = q_scale * (g * sq + add * kq), gated = o * weight * siluf(z);
    if (piece == 0) ((float *)d.dng)[out0 + row] = gated;
    float square = o * o;
    square += __shfl_xor_sync(~0u, square, 8);
    square += __shfl_xor_sync(~0u, square, 16);
    if (tid % 32 == 0) squares[warp] = square;
    __syncthreads();
    if (warp == 0) {
        const float sum = row_sum(tid < WARPS ? squares[tid] : 0.f);
        if (tid == 0) d.squares[head * QUARTERS + quarter] = sum;
    }
}

cudaError_t cuda_delta_token(const cuda_delta *d, bool early, cudaStream_t s)
{
    const uint32_t width = 2 * d->k_heads * d->dk + d->v_heads * d->dv;
    const uint32_t blocks = max(d->v_heads * (uint32_t)QUARTERS, (uint32_t)TOKEN_BLOCKS);
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(delta_token, TOKEN_SHARED, allowed);
    return e != cudaSuccess ? e : launch(delta_token, blocks, THREADS, TOKEN_SHARED, early, s, *d, width);
}
