/* product.cu - a matrix of any layout times any vectors: what packed chunks are not made for, and the yardstick of
 * what they are.  A warp has one row; eight rows a block; vectors four at a time. */
#include "device/cuda/kernels/common.cuh"

enum { WARPS = 8, AT_ONCE = 4 };

static __device__ void row_times(const cuda_product_args &a, uint32_t expert, uint32_t row, uint32_t first,
                                 uint32_t end, uint32_t step)
{
    const int lane = threadIdx.x & 31;
    const float scale = a.norm_tail ? norm_scale((const float *)a.in, a.w.cols, a.eps) : 1.f;
    for (uint32_t i0 = first; i0 < end; i0 += step) {
        const uint32_t some = min((uint32_t)AT_ONCE, end - i0);
        size_t in[AT_ONCE];
        float sum[AT_ONCE] = {};
        for (uint32_t v = 0; v < AT_ONCE; v++) {
            const uint32_t i = i0 + (v < some ? v : 0);
            in[v] = (size_t)((a.order ? (uint32_t)a.order[i] : i) / a.divide) * a.in_stride;
        }
        for (uint32_t c = lane; c < a.w.cols; c += 32) {
            const float w = weight_at(a.w, expert, row, c) * (a.squares ? head_scale(a.squares, c / CUDA_HEAD, a.eps) : 1.f);
#pragma unroll
            for (int v = 0; v < AT_ONCE; v++) sum[v] += w * load_act(a.in, in[v] + c, a.half);
        }
#pragma unroll
        for (int v = 0; v < AT_ONCE; v++) {
            sum[v] = warp_sum(sum[v]) * scale;
            if (lane == 0 && (uint32_t)v < some) store_act(a.out, (size_t)(i0 + v) * a.out_stride + a.out_at + row, sum[v], a.half_out);
        }
    }
}

static __global__ void product(cuda_product_args a)
{
    const uint32_t row = blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (row >= a.w.rows) return;
    if (a.offsets) {
        const uint32_t e = blockIdx.y;
        row_times(a, e, row, (uint32_t)a.offsets[e], (uint32_t)a.offsets[e + 1], AT_ONCE);
    } else if (a.ids) {
        const uint32_t i = blockIdx.y;
        row_times(a, (uint32_t)a.ids[i], row, i, i + 1, AT_ONCE);
    } else {
        row_times(a, 0, row, blockIdx.y * AT_ONCE, a.n, gridDim.y * AT_ONCE);
    }
}

cudaError_t cuda_product(const cuda_product_args *a, cudaStream_t s)
{
    const unsigned tiles = ceil_div(a->n, AT_ONCE);
    const unsigned y = a->offsets ? a->w.experts : a->ids ? a->n : tiles < 256 ? tiles : 256;
    product<<<dim3(ceil_div(a->w.rows, WARPS), y), WARPS * 32, 0, s>>>(*a);
    return cudaGetLastError();
}
