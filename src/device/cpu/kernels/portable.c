/* portable.c - the kernels for any machine: what the compiler makes of plain C and its vector types. */
#include "device/cpu/kernels/table.h"

static bool runs_here(void) { return true; }

const lily_cpu_kernels lily_cpu_portable = {
    .name = "portable",
    .runs_here = runs_here,
    .packed_bytes = words_bytes,
    .pack = words_pack,
    .matmul = matmul_f32,
    LILY_CPU_COMMON,
};
