/* decode_gemv_reads.cu - the experts' kernels of one token as they are, but for the products: what was read is only
 * mixed.  They show what the arithmetic costs. */
#include "device/cuda/kernels/kernels.h"

#define chunk_times chunk_times_whole
#include "device/cuda/kernels/gemv.cuh"
#undef chunk_times

static __device__ inline void chunk_times(const Codes &w, const Fragment &, float &row0, float &row1)
{
    const uint4 a = w.q[0], b = w.q[1];
    row0 = __uint_as_float(__float_as_uint(row0) ^ a.x ^ a.y ^ a.z ^ a.w ^ w.sb[0].x ^ w.sb[0].y);
    row1 = __uint_as_float(__float_as_uint(row1) ^ b.x ^ b.y ^ b.z ^ b.w ^ w.sb[1].x ^ w.sb[1].y);
}

#define cuda_moe_route reads_moe_route
#define cuda_moe_up reads_moe_up
#define cuda_moe_down reads_moe_down
#include "device/cuda/kernels/moe_token.cu"
