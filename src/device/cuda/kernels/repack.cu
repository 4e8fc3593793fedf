/* repack.cu - the checkpoint's rows into chunks and back. */
#include "device/cuda/kernels/common.cuh"

/* One thread a word of codes; the first of each 16 words also carries a row's two scales and biases. */
static __global__ void repack_words(cuda_repack_args a)
{
    const uint32_t chunks = a.cols / CUDA_CHUNK_COLS, planes = a.bits / 4;
    const uint32_t per_block = a.layout == CUDA_PACKED ? 16 : 8;
    const size_t words = (size_t)((a.rows + per_block - 1) / per_block) * per_block * chunks * 16 * planes;
    const size_t row_bytes = (size_t)a.cols * a.bits / 8;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x) {
        /* i = ((row * chunks + chunk) * planes + plane) * 16 + j * 4 + t */
        const uint32_t t = i & 3, j = (i >> 2) & 3, plane = (uint32_t)(i >> 4) % planes;
        const uint32_t chunk = (uint32_t)(i / (16 * planes) % chunks), r = (uint32_t)(i / (16 * planes) / chunks);
        const uint32_t row = a.row0 + r;
        const uint32_t block = row / per_block, g = row & 7;
        const uint32_t half = a.layout == CUDA_PACKED ? (row >> 3) & 1 : a.layout == CUDA_PAIR_SECOND;
        uint8_t *to = a.chunks + ((size_t)block * chunks + chunk) * CUDA_CHUNK_BYTES(a.bits);
        uint32_t word = 0;
        if (r < a.rows)
            for (uint32_t n = 0; n < 8; n++) {
                const uint32_t s = 2 * t + ((n >> 1) & 1), c = chunk * 128 + 16 * s + 2 * j + 8 * (n & 1) + (n >> 2);
                const uint32_t code = a.bits == 4 ? (a.codes[r * row_bytes + c / 2] >> (4 * (c & 1))) & 15
                                                  : (a.codes[r * row_bytes + c] >> (4 * plane)) & 15;
                word |= code << (4 * n);
            }
        ((uint32_t *)to)[plane * 256 + (half * 32 + g * 4 + j) * 4 + t] = word;
        if ((i & 15) == 0 && plane == 0) {
            uint16_t *sb = (uint16_t *)(to + CUDA_CODES * planes) + (half * 8 + g) * 4;
            const size_t at = (size_t)r * (a.cols / 64) + chunk * 2;
            for (int k = 0; k < 2; k++) {
                sb[k] = r < a.rows ? ((const uint16_t *)a.scales)[at + k] : 0;
                sb[2 + k] = r < a.rows ? ((const uint16_t *)a.biases)[at + k] : 0;
            }
        }
    }
}

cudaError_t cuda_repack(const cuda_repack_args *a, cudaStream_t s)
{
    repack_words<<<132 * 8, 256, 0, s>>>(*a);
    return cudaGetLastError();
}

static __global__ void unpack_codes(cuda_matrix w, uint32_t expert, uint8_t *codes, uint8_t *scales, uint8_t *biases)
{
    const size_t n = (size_t)w.rows * w.cols;
    for (size_t i = 2 * (blockIdx.x * (size_t)blockDim.x + threadIdx.x); i < n; i += 2 * (size_t)gridDim.x * blockDim.x) {
        const uint32_t row = (uint32_t)(i / w.cols), col = (uint32_t)(i % w.cols);
        const Code a = packed_code(w, expert, row, col), b = packed_code(w, expert, row, col + 1);
        if (w.bits == 4) {
            codes[i / 2] = (uint8_t)(a.code | b.code << 4);
        } else {
            codes[i] = (uint8_t)a.code;
            codes[i + 1] = (uint8_t)b.code;
        }
        if (col % 64 == 0) {
            ((uint16_t *)scales)[i / 64] = (uint16_t)(__float_as_uint(a.scale) >> 16);
            ((uint16_t *)biases)[i / 64] = (uint16_t)(__float_as_uint(a.bias) >> 16);
        }
    }
}

cudaError_t cuda_unpack(const cuda_matrix *w, uint32_t expert, uint8_t *codes, uint8_t *scales, uint8_t *biases,
                        cudaStream_t s)
{
    unpack_codes<<<132 * 8, 256, 0, s>>>(*w, expert, codes, scales, biases);
    return cudaGetLastError();
}

/* 16 bytes a load, four under way in each thread. */
static __global__ __launch_bounds__(512) void read_words(const uint4 *p, size_t n, uint32_t *sink)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    uint32_t x = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) v[k] = i + k * stride < n ? __ldcs(p + i + k * stride) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < 4; k++) x ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (x == 0x9E3779B9u) *sink = x;
}

cudaError_t cuda_read(const void *bytes, size_t n, uint32_t *sink, cudaStream_t s)
{
    read_words<<<132 * 4, 512, 0, s>>>((const uint4 *)bytes, n / 16, sink);
    return cudaGetLastError();
}

static __global__ void convert(const uint16_t *from, float *to, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        to[i] = bf16_float(from[i]);
}

cudaError_t cuda_convert_bf16(const uint16_t *from, float *to, size_t n, cudaStream_t s)
{
    convert<<<512, 256, 0, s>>>(from, to, n);
    return cudaGetLastError();
}
