/* avx2.c - the kernels for x86-64 with AVX2 and FMA; compiled with those switched on. */
#include "device/cpu/kernels/table.h"

#include "device/cpu/kernels/matmul_s16.h"

static bool runs_here(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

const lily_cpu_kernels lily_cpu_avx2 = {
    .name = "avx2",
    .runs_here = runs_here,
    .packed_step = 1.0f / 32767.0f,
    .packed_bytes = s16_bytes,
    .pack = s16_pack,
    .matmul = matmul_s16,
    LILY_CPU_COMMON,
};

/* 4-bit products with f32 activations: slower, and exact but for the order of sums. */
const lily_cpu_kernels lily_cpu_avx2_f32 = {
    .name = "avx2-f32",
    .runs_here = runs_here,
    .packed_bytes = words_bytes,
    .pack = words_pack,
    .matmul = matmul_f32,
    LILY_CPU_COMMON,
};
