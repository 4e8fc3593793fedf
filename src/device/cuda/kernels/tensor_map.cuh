/* tensor_map.cuh - maps of matrices in memory for the tensor copy engine, and copies of boxes of them (Hopper and later). */
#pragma once
#include <cuda.h>

#include "device/cuda/kernels/common.cuh"

typedef CUresult tensor_encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                                  const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                  CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function, found at run time; NULL: there is none. */
static inline tensor_encode_fn *tensor_encoder(void)
{
    static tensor_encode_fn *found = nullptr;
    if (!found) {
        void *at = nullptr;
        cudaDriverEntryPointQueryResult state;
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &at, 12000, cudaEnableDefault, &state) == cudaSuccess)
            found = (tensor_encode_fn *)at;
    }
    return found;
}

/* `rows` rows of `width` values; what a box has outside of them becomes zeros. */
static inline bool tensor_map(CUtensorMap *map, CUtensorMapDataType type, const void *at, uint64_t width, uint64_t rows,
                              uint64_t row_bytes, uint32_t box_width, uint32_t box_rows, CUtensorMapSwizzle swizzle)
{
    const cuuint64_t size[] = {width, rows}, stride[] = {row_bytes};
    const cuuint32_t box[] = {box_width, box_rows}, step[] = {1, 1};
    tensor_encode_fn *encode = tensor_encoder();
    return encode && encode(map, type, 2, (void *)at, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

__device__ inline void box_copy(void *to, const CUtensorMap *map, uint32_t x, uint32_t y, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                     shared_address(to)), "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier)) : "memory");
}
/* Into the second-level cache only. */
__device__ inline void box_prefetch(const CUtensorMap *map, uint32_t x, uint32_t y)
{
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(map), "r"(x), "r"(y) : "memory");
}
