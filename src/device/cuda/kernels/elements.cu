/* elements.cu - norms, activations, sums: a few operations a value. */
#include "device/cuda/kernels/common.cuh"

static __global__ void rms_norm(const float *x, const float *weight, void *y, uint32_t width, float eps, bool half,
                                bool tail)
{
    __shared__ float room[33];
    const float *from = x + (size_t)blockIdx.x * width;
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) sum += from[i] * from[i];
    const float scale = rsqrtf(block_sum(sum, room) / width + eps);
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x)
        store_act(y, (size_t)blockIdx.x * width + i, from[i] * scale * weight[i], half);
    if (tail && threadIdx.x == 0) ((float *)y)[width] = __uint_as_float(0);
}

cudaError_t cuda_rms_norm(const float *x, const float *weight, void *y, uint32_t width, uint32_t tokens, float eps,
                          bool half, bool tail, cudaStream_t s)
{
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(rms_norm, 0, allowed);
    if (e != cudaSuccess) return e;
    rms_norm<<<tokens, 256, 0, s>>>(x, weight, y, width, eps, half, tail);
    return cudaGetLastError();
}

static __global__ void embed_rows(cuda_matrix w, const int32_t *tokens, cuda_lane *lane, float *x)
{
    const int32_t token = tokens ? tokens[blockIdx.x] : lane->token;
    for (uint32_t c = threadIdx.x; c < w.cols; c += blockDim.x)
        x[(size_t)blockIdx.x * w.cols + c] = weight_at(w, 0, (uint32_t)token, c);
    if (threadIdx.x == 0 && lane->counts) atomicAdd(lane->count + token, 1u);
}

cudaError_t cuda_embed(const cuda_matrix *w, const int32_t *tokens, cuda_lane *lane, float *x, uint32_t n,
                       cudaStream_t s)
{
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(embed_rows, 0, allowed);
    if (e != cudaSuccess) return e;
    embed_rows<<<n, 256, 0, s>>>(*w, tokens, lane, x);
    return cudaGetLastError();
}

/* One token: x, and n = x * weight with its norm left behind (cuda_norm_tail). */
static __global__ void embed_token(cuda_matrix w, cuda_lane *lane, float *x, const float *weight, float *n)
{
    __shared__ float room[33];
    dependency_launch();
    const uint32_t token = (uint32_t)lane->token, c = blockIdx.x * blockDim.x + threadIdx.x;
    const float value = c < w.cols ? weight_at(w, 0, token, c) : 0.f;
    if (c < w.cols) {
        x[c] = value;
        n[c] = value * weight[c];
    }
    const float square = block_sum(value * value, room);
    if (threadIdx.x) return;
    n[w.cols + 1 + blockIdx.x] = square;
    if (blockIdx.x) return;
    n[w.cols] = __uint_as_float(gridDim.x);
    if (lane->counts) atomicAdd(lane->count + token, 1u);
}

cudaError_t cuda_embed_token(const cuda_matrix *w, cuda_lane *lane, float *x, const float *weight, float *n, cudaStream_t s)
{
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(embed_token, 0, allowed);
    if (e != cudaSuccess) return e;
    embed_token<<<ceil_div(w->cols, 128), 128, 0, s>>>(*w, lane, x, weight, n);
    return cudaGetLastError();
}

static __global__ void gated_unit(const float *gu, void *h, size_t n, uint32_t width, bool half)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        const size_t row = i / width, at = row * 2 * width + i % width;
        store_act(h, i, siluf(gu[at]) * gu[at + width], half);
    }
}

static unsigned blocks_for(size_t n)
{
    unsigned blocks = ceil_div(n, 256);
    return blocks < 132 * 8 ? blocks : 132 * 8;
}

cudaError_t cuda_gated_unit(const float *gu, void *h, size_t rows, uint32_t width, bool half, cudaStream_t s)
{
    gated_unit<<<blocks_for(rows * width), 256, 0, s>>>(gu, h, rows * width, width, half);
    return cudaGetLastError();
}

static __global__ void sigmoid_all(float *x, uint32_t n)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = sigmoidf(x[i]);
}

cudaError_t cuda_sigmoid(float *x, uint32_t n, cudaStream_t s)
{
    sigmoid_all<<<blocks_for(n), 256, 0, s>>>(x, n);
    return cudaGetLastError();
}

static __global__ void add_all(float *x, const float *y, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) x[i] += y[i];
}

cudaError_t cuda_add(float *x, const float *y, size_t n, cudaStream_t s)
{
    add_all<<<blocks_for(n), 256, 0, s>>>(x, y, n);
    return cudaGetLastError();
}

/* The experts are added in the order of their weights, wherever their rows lie. */
static __global__ void combine(float *x, const void *ed, bool half, const float *topw, const int32_t *place, const float *sd,
                               const float *sg, uint32_t top_k, uint32_t width)
{
    const size_t t = blockIdx.x;
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
        float v = x[t * width + i];
        for (uint32_t a = 0; a < top_k; a++) {
            const size_t pair = t * top_k + a, row = place ? (size_t)place[pair] : pair;
            v += topw[pair] * load_act(ed, row * width + i, half);
        }
        x[t * width + i] = v + sg[t] * sd[t * width + i];
    }
}

cudaError_t cuda_combine(float *x, const void *ed, bool half, const float *topw, const int32_t *place, const float *sd,
                         const float *sg, uint32_t tokens, uint32_t top_k, uint32_t width, cudaStream_t s)
{
    combine<<<tokens, 256, 0, s>>>(x, ed, half, topw, place, sd, sg, top_k, width);
    return cudaGetLastError();
}

/* ---- with the norm behind them: a block a token, its values in registers ---- */

enum { NORM_THREADS = 256, NORM_EACH = 8 };     /* of four values: widths up to 8192 */

__device__ inline void norm_store(const float4 (&v)[NORM_EACH], const float *weight, uint16_t *to, uint32_t width, float eps)
{
    __shared__ float room[33];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < NORM_EACH; k++) sum += v[k].x * v[k].x + v[k].y * v[k].y + v[k].z * v[k].z + v[k].w * v[k].w;
    const float scale = rsqrtf(block_sum(sum, room) / width + eps);
#pragma unroll
    for (int k = 0; k < NORM_EACH; k++) {
        const uint32_t i = (threadIdx.x + k * NORM_THREADS) * 4;
        if (i >= width) break;
        const float4 w = *(const float4 *)(weight + i);
        *(uint2 *)(to + i) = make_uint2(pack_bf16(v[k].x * scale * w.x, v[k].y * scale * w.y),
                                        pack_bf16(v[k].z * scale * w.z, v[k].w * scale * w.w));
    }
}

__device__ inline void add4(float4 &a, float w, const float4 &b)
{
    a.x += w * b.x, a.y += w * b.y, a.z += w * b.z, a.w += w * b.w;
}

__device__ inline float4 half4(const uint2 &v) { return make_float4(bf_lo(v.x), bf_hi(v.x), bf_lo(v.y), bf_hi(v.y)); }

static __global__ __launch_bounds__(NORM_THREADS) void add_norm(float *x, const float *mix, const float *weight, uint16_t *m,
                                                                uint32_t width, float eps)
{
    const size_t at = (size_t)blockIdx.x * width;
    float4 v[NORM_EACH] = {};
#pragma unroll
    for (int k = 0; k < NORM_EACH; k++) {
        const uint32_t i = (threadIdx.x + k * NORM_THREADS) * 4;
        if (i >= width) break;
        v[k] = *(const float4 *)(x + at + i);
        add4(v[k], 1.f, *(const float4 *)(mix + at + i));
        *(float4 *)(x + at + i) = v[k];
    }
    norm_store(v, weight, m + at, width, eps);
}

cudaError_t cuda_add_norm(float *x, const float *mix, const float *weight, uint16_t *m, uint32_t width, uint32_t tokens,
                          float eps, cudaStream_t s)
{
    add_norm<<<tokens, NORM_THREADS, 0, s>>>(x, mix, weight, m, width, eps);
    return cudaGetLastError();
}

static __global__ __launch_bounds__(NORM_THREADS) void combine_norm(float *x, const uint16_t *ed, const float *topw,
                                                                    const int32_t *place, const float *sd, const float *sg,
                                                                    const float *weight, uint16_t *n, uint32_t top_k,
                                                                    uint32_t width, float eps)
{
    const size_t t = blockIdx.x, at = t * width;
    float4 v[NORM_EACH] = {};
#pragma unroll
    for (int k = 0; k < NORM_EACH; k++) {
        const uint32_t i = (threadIdx.x + k * NORM_THREADS) * 4;
        if (i >= width) break;
        v[k] = *(const float4 *)(x + at + i);
#pragma unroll 8
        for (uint32_t a = 0; a < top_k; a++)
            add4(v[k], __ldg(topw + t * top_k + a), half4(__ldcs((const uint2 *)(ed + (size_t)__ldg(place + t * top_k + a) * width + i))));
        add4(v[k], sg[t], *(const float4 *)(sd + at + i));
        *(float4 *)(x + at + i) = v[k];
    }
    norm_store(v, weight, n + at, width, eps);
}

cudaError_t cuda_combine_norm(float *x, const uint16_t *ed, const float *topw, const int32_t *place, const float *sd,
                              const float *sg, const float *weight, uint16_t *n, uint32_t tokens, uint32_t top_k,
                              uint32_t width, float eps, cudaStream_t s)
{
    combine_norm<<<tokens, NORM_THREADS, 0, s>>>(x, ed, topw, place, sd, sg, weight, n, top_k, width, eps);
    return cudaGetLastError();
}

bool cuda_has_kernels(void)
{
    cudaFuncAttributes found;
    const bool has = cudaFuncGetAttributes(&found, gated_unit) == cudaSuccess;
    (void)cudaGetLastError();
    return has;
}

static __global__ void commit(cuda_lane *lane, const int32_t *token, uint32_t n)
{
    lane->position += n;
    lane->turn++;
    lane->token = *token;
}

cudaError_t cuda_commit(cuda_lane *lane, const int32_t *token, uint32_t n, cudaStream_t s)
{
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(commit, 0, allowed);
    if (e != cudaSuccess) return e;
    commit<<<1, 1, 0, s>>>(lane, token, n);
    return cudaGetLastError();
}
