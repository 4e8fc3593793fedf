/* gemm_wgmma.cuh - cuda_gemm on Hopper's warpgroup products. */
#pragma once
#include "device/cuda/kernels/kernels.h"

/* Vectors x rows of a tile. */
enum cuda_gemm_shape { CUDA_GEMM_32x256, CUDA_GEMM_64x256, CUDA_GEMM_64x128, CUDA_GEMM_128x128, CUDA_GEMM_256x128, CUDA_GEMM_SHAPES };

bool cuda_gemm_wgmma_takes(const cuda_gemm *a);
enum cuda_gemm_shape cuda_gemm_wgmma_shape(const cuda_gemm *a);
/* half: the sections' outputs are bf16 */
cudaError_t cuda_gemm_wgmma(const cuda_gemm *a, enum cuda_gemm_shape shape, bool half, cudaStream_t s);
