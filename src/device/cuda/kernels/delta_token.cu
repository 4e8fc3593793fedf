/* delta_token.cu - Gated DeltaNet of one token between its projections: convolution, norms, gates, recurrence and the
 * gated norm.  Heads of 128, four taps.  Four blocks, a cluster, have one value head: 32 rows of its state each, in
 * registers before the projections are done. */
#include <cooperative_groups.h>

#include "device/cuda/kernels/common.cuh"

namespace cg = cooperative_groups;

enum { QUARTERS = 4, WARPS = 8, ROWS = 4 };     /* rows of the state a warp */

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

static __global__ __launch_bounds__(WARPS * 32) void delta_token(const __grid_constant__ cuda_delta d, uint32_t width)
{
    __shared__ float squares[WARPS], quarter_square;
    const cg::cluster_group cluster = cg::this_cluster();
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const uint32_t head = blockIdx.x / QUARTERS, quarter = blockIdx.x % QUARTERS, share = d.v_heads / d.k_heads;
    const uint32_t row0 = quarter * 32 + warp * ROWS, key_width = d.k_heads * 128;
    const uint32_t cq = head / share * 128 + lane * 4, ck = key_width + cq, cv = 2 * key_width + head * 128 + row0;
    const uint32_t position = d.lane->position;
    float *tail = d.lane->recurrent + d.tail_at;
    float *state = d.lane->recurrent + d.s_at + ((size_t)head * 128 + row0) * 128 + lane * 4;
    float4 held[ROWS];
    Channel hq[4], hk[4], hv;
#pragma unroll
    for (int r = 0; r < ROWS; r++) held[r] = *(const float4 *)(state + r * 128);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        hq[i] = channel_load(d, tail, cq + i, width, position);
        hk[i] = channel_load(d, tail, ck + i, width, position);
    }
    hv = channel_load(d, tail, cv + (lane & 3), width, position);
    const float decay = d.decay[head], dt_bias = d.dt_bias[head];
    dependency_wait();
    dependency_launch();

    const float4 xq = __ldcg((const float4 *)(d.qkv + cq)), xk = __ldcg((const float4 *)(d.qkv + ck));
    const float xv = __ldcg(d.qkv + cv + (lane & 3));
    const float b = __ldcg(d.ba + head), a = __ldcg(d.ba + d.v_heads + head);
    const float z = __ldcg(d.z + head * 128 + row0 + (lane & 3));
    float *ring = tail + (size_t)(position & 3) * width;
    if (warp == 0 && quarter == 0 && head % share == 0) {
        *(float4 *)(ring + cq) = xq;
        *(float4 *)(ring + ck) = xk;
    }
    if (lane < ROWS) ring[cv + lane] = xv;

    float q[4] = {channel_step(hq[0], xq.x), channel_step(hq[1], xq.y), channel_step(hq[2], xq.z), channel_step(hq[3], xq.w)};
    float k[4] = {channel_step(hk[0], xk.x), channel_step(hk[1], xk.y), channel_step(hk[2], xk.z), channel_step(hk[3], xk.w)};
    const float v = channel_step(hv, xv);
    const float qq = warp_sum(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
    const float kk = warp_sum(k[0] * k[0] + k[1] * k[1] + k[2] * k[2] + k[3] * k[3]);
    const float q_scale = rsqrtf(qq + 1e-6f) * 0.08838834764831845f, k_scale = rsqrtf(kk + 1e-6f);
#pragma unroll
    for (int i = 0; i < 4; i++) q[i] *= q_scale, k[i] *= k_scale;
    const float kq = warp_sum(q[0] * k[0] + q[1] * k[1] + q[2] * k[2] + q[3] * k[3]);
    const float beta = sigmoidf(b), g = expf(-decay * softplusf(a + dt_bias));

    float o[ROWS], square = 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float sk = warp_sum(held[r].x * k[0] + held[r].y * k[1] + held[r].z * k[2] + held[r].w * k[3]);
        const float sq = warp_sum(held[r].x * q[0] + held[r].y * q[1] + held[r].z * q[2] + held[r].w * q[3]);
        const float change = beta * (__shfl_sync(~0u, v, r) - g * sk);
        held[r].x = g * held[r].x + change * k[0];
        held[r].y = g * held[r].y + change * k[1];
        held[r].z = g * held[r].z + change * k[2];
        held[r].w = g * held[r].w + change * k[3];
        *(float4 *)(state + r * 128) = held[r];
        o[r] = g * sq + change * kq;
        square += o[r] * o[r];
    }
    if (lane == 0) squares[warp] = square;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < WARPS; i++) sum += squares[i];
        quarter_square = sum;
    }
    cluster.sync();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < QUARTERS; i++) sum += *cluster.map_shared_rank(&quarter_square, i);
    const float scale = rsqrtf(sum / 128 + d.eps);
    if (lane < ROWS) {
        const float mine = lane == 0 ? o[0] : lane == 1 ? o[1] : lane == 2 ? o[2] : o[3];
        store_act(d.dng, head * 128 + row0 + lane, mine * scale * d.norm[row0 + lane] * siluf(z), d.half);
    }
    cluster.sync();     /* nobody leaves while its sum may be read */
}

cudaError_t cuda_delta_token(const cuda_delta *d, bool early, cudaStream_t s)
{
    const uint32_t width = 2 * d->k_heads * d->dk + d->v_heads * d->dv;
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(delta_token, 0, allowed);
    return e != cudaSuccess ? e : launch(delta_token, d->v_heads * QUARTERS, WARPS * 32, 0, QUARTERS, early, s, *d, width);
}
