/* common.cuh - what several kernels use. */
#pragma once
#include <cuda_bf16.h>
#include <math_constants.h>

#include "device/cuda/kernels/kernels.h"

static inline unsigned ceil_div(size_t a, size_t b) { return (unsigned)((a + b - 1) / b); }

__device__ inline float bf16_float(uint16_t v) { return __uint_as_float((uint32_t)v << 16); }
__device__ inline float bf_lo(uint32_t v) { return __uint_as_float(v << 16); }
__device__ inline float bf_hi(uint32_t v) { return __uint_as_float(v & 0xFFFF0000u); }
__device__ inline uint16_t float_bf16(float f) { return __bfloat16_as_ushort(__float2bfloat16_rn(f)); }
__device__ inline uint32_t pack_bf16(float lo, float hi)
{
    __nv_bfloat162 p = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&p);
}

/* Two fp16; what is too large becomes 65,504. */
__device__ inline uint32_t pack_half(float low, float high)
{
    uint32_t r;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* Element i of an activation slot. */
__device__ inline float load_act(const void *p, size_t i, bool half)
{
    return half ? bf16_float(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}
__device__ inline void store_act(void *p, size_t i, float v, bool half)
{
    if (half)
        ((uint16_t *)p)[i] = float_bf16(v);
    else
        ((float *)p)[i] = v;
}

__device__ inline float sigmoidf(float x) { return 1.f / (1.f + expf(-x)); }
__device__ inline float siluf(float x) { return x / (1.f + expf(-x)); }
__device__ inline float softplusf(float x) { return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x)); }

__device__ inline float warp_sum(float v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
__device__ inline float warp_max(float v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}
/* Of a block of at most 1024 threads; every thread gets it.  room: 33 floats. */
__device__ inline float block_sum(float v, float *room)
{
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = (blockDim.x + 31) >> 5;
    v = warp_sum(v);
    __syncthreads();
    if (lane == 0) room[warp] = v;
    __syncthreads();
    float all = lane < warps ? room[lane] : 0.f;
    return warp_sum(all);
}

/* What still has to be multiplied to N or M (cuda_norm_tail), by a whole warp.  All is asked for at once, and before
 * what else the warp has to do: the compiler would wait for the number of parts first. */
struct Norm {
    enum { AT_ONCE = 5 };
    uint32_t parts;
    float part[AT_ONCE];
};

__device__ inline float load_now(const float *from)
{
    float v;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(from));
    return v;
}

__device__ inline Norm norm_load(const float *n, uint32_t width)
{
    Norm r;
    r.parts = __float_as_uint(load_now(n + width));
#pragma unroll
    for (int i = 0; i < Norm::AT_ONCE; i++) r.part[i] = load_now(n + width + 1 + (threadIdx.x & 31) + 32 * i);
    return r;
}

__device__ inline float norm_scale(const Norm &r, const float *n, uint32_t width, float eps)
{
    const uint32_t lane = threadIdx.x & 31;
    float sum = 0;
    if (r.parts == 0) return 1.f;
#pragma unroll
    for (int i = 0; i < Norm::AT_ONCE; i++) sum += lane + 32 * i < r.parts ? r.part[i] : 0.f;
    for (uint32_t i = lane + 32 * Norm::AT_ONCE; i < r.parts; i += 32) sum += __ldcg(n + width + 1 + i);
    return rsqrtf(warp_sum(sum) / width + eps);
}

__device__ inline float norm_scale(const float *n, uint32_t width, float eps)
{
    return norm_scale(norm_load(n, width), n, width, eps);
}

/* The same of a head of DNG. */
__device__ inline float head_scale(const float *squares, uint32_t head, float eps)
{
    const float4 s = __ldcg((const float4 *)squares + head);
    return rsqrtf((s.x + s.y + s.z + s.w) / CUDA_HEAD + eps);
}

/* ---- launching ---- */

/* Of the current card; 0 when it does not say. */
static inline int card_has(cudaDeviceAttr what)
{
    int device, value = 0;
    if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&value, what, device) != cudaSuccess) return 0;
    return value;
}

/* Shared memory that a block may ask for: 227 KiB on Hopper, 163 on 8.0, 99 on 8.6, 8.9 and 12.0. */
static inline size_t shared_at_most(void) { return (size_t)card_has(cudaDevAttrMaxSharedMemoryPerBlockOptin); }

static inline unsigned processors(void) { return (unsigned)card_has(cudaDevAttrMultiProcessorCount); }

/* Rows of one token follow each other within microseconds and overlap: all of them want the same split of a
 * multiprocessor's memory, since changing it waits until it is idle.  Remembers what a kernel was given. */
template <typename K> static cudaError_t allow_shared(K kernel, size_t bytes, size_t &allowed)
{
    if (bytes < allowed) return cudaSuccess;
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    if (e == cudaSuccess && bytes > 48 * 1024)
        e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (e == cudaSuccess) allowed = bytes + 1;
    return e;
}

/* Rows of one token have a block on every multiprocessor, with work or without, and ask for so much shared memory that
 * beside each there is room for just one of the next kernel.  Otherwise two of those crowd where there is room first, and
 * what they do takes twice as long.  Of two kernels in turn one is large, so that two of its blocks never fit one
 * multiprocessor (228 KiB, 1 more a block), the other small.  Registers must allow for both, too: each quarter of a
 * multiprocessor has 512 for a lane, and of 17 warps five. */
enum { TOKEN_BLOCKS = 132, TOKEN_SHARED = 80 * 1024, TOKEN_LARGE = 115 * 1024 };
static inline size_t token_shared(size_t bytes) { return bytes > TOKEN_SHARED ? bytes : (size_t)TOKEN_SHARED; }
static inline size_t token_large(size_t bytes) { return bytes > TOKEN_LARGE ? bytes : (size_t)TOKEN_LARGE; }

/* ---- programmatic dependent launch ---- */

/* Nothing where it does not exist: kernels are then launched in order. */
__device__ inline void dependency_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void dependency_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* early: before the kernel before it has ended, once all its blocks have called dependency_launch. */
template <typename... P, typename... A>
static cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, bool early,
                          cudaStream_t stream, A... args)
{
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = shared;
    c.stream = stream;
    cudaLaunchAttribute at = {};
    at.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at.val.programmaticStreamSerializationAllowed = 1;
    c.attrs = &at;
    c.numAttrs = early;
    return cudaLaunchKernelEx(&c, kernel, P(args)...);
}

/* ---- tensor cores ---- */

__device__ inline void mma16816(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Two nibbles, at bits 0 and 16, as bf16 of 128 + code: one instruction, where the compiler would make two. */
__device__ inline uint32_t nibbles(uint32_t v)
{
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(v), "n"(0x000F000F), "r"(0x43004300));
    return r;
}

__device__ inline uint32_t word_of(const uint4 &v, int t) { return t == 0 ? v.x : t == 1 ? v.y : t == 2 ? v.z : v.w; }

/* ---- asynchronous copies ---- */

__device__ inline uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ inline void barrier_init(uint64_t *b, uint32_t n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(n));
}
__device__ inline void barrier_expect(uint64_t *b, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
__device__ inline void barrier_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ inline void barrier_wait(uint64_t *b, uint32_t parity)
{
    uint32_t done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared_address(b)), "r"(parity) : "memory");
}
/* A multiple of 16 bytes, both sides aligned to 16. */
__device__ inline void bulk_copy(void *to, const void *from, uint32_t bytes, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}
__device__ inline void async_copy16(void *to, const void *from, bool live)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(live ? 16 : 0));
}
__device__ inline void async_commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ inline void async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N)); }

/* ---- weights, element by element ---- */

struct Code {
    float scale, bias;
    uint32_t code;
};

/* Where in its chunk column c (of 128) of a row in half `half`, row g of it, lies: byte of the word, and shift. */
__device__ inline uint32_t code_byte(uint32_t half, uint32_t g, uint32_t c)
{
    uint32_t s = c >> 4, j = (c & 7) >> 1;
    return (half * 32 + g * 4 + j) * 16 + (s >> 1) * 4;
}
__device__ inline uint32_t code_shift(uint32_t c) { return 4 * (((c >> 4) & 1) * 2 + ((c >> 3) & 1) + 4 * (c & 1)); }

__device__ inline void place_row(const cuda_matrix &w, uint32_t row, uint32_t &block, uint32_t &half, uint32_t &g)
{
    if (w.layout == CUDA_PACKED) {
        block = row >> 4, half = (row >> 3) & 1, g = row & 7;
    } else {
        block = row >> 3, half = w.layout == CUDA_PAIR_SECOND, g = row & 7;
    }
}

__device__ inline Code packed_code(const cuda_matrix &w, uint32_t expert, uint32_t row, uint32_t col)
{
    uint32_t block, half, g;
    place_row(w, row, block, half, g);
    const uint8_t *chunk = w.codes + (((size_t)expert * w.blocks + block) * (w.cols / CUDA_CHUNK_COLS) +
                                      col / CUDA_CHUNK_COLS) * CUDA_CHUNK_BYTES(w.bits);
    const uint32_t c = col % CUDA_CHUNK_COLS, at = code_byte(half, g, c), shift = code_shift(c);
    Code r;
    r.code = (*(const uint32_t *)(chunk + at) >> shift) & 15;
    if (w.bits == 8) r.code |= ((*(const uint32_t *)(chunk + CUDA_CODES + at) >> shift) & 15) << 4;
    const uint16_t *sb = (const uint16_t *)(chunk + CUDA_CODES * w.bits / 4) + (half * 8 + g) * 4;
    r.scale = bf16_float(sb[c >> 6]);
    r.bias = bf16_float(sb[2 + (c >> 6)]);
    return r;
}

/* One weight. */
__device__ inline float weight_at(const cuda_matrix &w, uint32_t expert, uint32_t row, uint32_t col)
{
    if (w.layout != CUDA_RAW) {
        Code c = packed_code(w, expert, row, col);
        return c.scale * (float)c.code + c.bias;
    }
    const size_t r = (size_t)expert * w.rows + row;
    const uint8_t *codes = w.codes + r * ((size_t)w.cols * w.bits / 8);
    if (w.bits == 32) return ((const float *)codes)[col];
    if (w.bits == 16) return bf16_float(((const uint16_t *)codes)[col]);
    const uint32_t code = w.bits == 8 ? codes[col] : (codes[col >> 1] >> (4 * (col & 1))) & 15;
    const size_t group = r * (w.cols / w.group) + col / w.group;
    return bf16_float(((const uint16_t *)w.scales)[group]) * (float)code + bf16_float(((const uint16_t *)w.biases)[group]);
}
