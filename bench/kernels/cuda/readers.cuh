/* readers.cuh - the same bytes read in four ways with nothing computed: the limit of what is bound by memory. */
#pragma once
#include "bench.cuh"

namespace readers {

enum { PIECE = 16384, RING = 8 };

static __global__ __launch_bounds__(512) void plain(const uint4 *p, size_t n, uint32_t *sink)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    uint32_t x = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += 8 * stride) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = i + k * stride < n ? __ldcs(p + i + k * stride) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < 8; k++) x ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (x == 0x9E3779B9u) *sink = x;
}

/* The same with lines asked for a few rounds ahead. */
static __global__ __launch_bounds__(512) void prefetch(const uint4 *p, size_t n, uint32_t *sink)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    uint32_t x = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += 4 * stride) {
        uint4 v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if ((threadIdx.x & 7) == 0 && i + (k + 4) * stride < n)
                asm volatile("prefetch.global.L2 [%0];" ::"l"(p + i + (k + 4) * stride));
            v[k] = i + k * stride < n ? __ldcs(p + i + k * stride) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) x ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (x == 0x9E3779B9u) *sink = x;
}

static __global__ __launch_bounds__(1024) void copies(const uint4 *p, size_t n, uint32_t *sink)
{
    extern __shared__ __align__(128) uint8_t room[];
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(room) + threadIdx.x * 16;
    int turn = 0;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride, turn = turn == RING - 1 ? 0 : turn + 1) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + turn * PIECE), "l"(p + i));
        asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group %0;" ::"n"(RING - 1));
    }
    asm volatile("cp.async.wait_group 0;");
    if (n == 1) *sink = room[threadIdx.x];
}

static __global__ void bulk(const uint8_t *p, size_t pieces, uint32_t *sink)
{
    extern __shared__ __align__(128) uint8_t room[];
    __shared__ uint64_t full[RING];
    const uint32_t bars = (uint32_t)__cvta_generic_to_shared(full), to = (uint32_t)__cvta_generic_to_shared(room);
    for (int i = 0; i < RING; i++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bars + i * 8));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    uint32_t asked = 0, done = 0;
    size_t at = blockIdx.x;
    while (at < pieces || done < asked) {
        if (at < pieces && asked - done < RING) {
            const uint32_t s = asked % RING;
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bars + s * 8), "r"((uint32_t)PIECE) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to + s * PIECE),
                         "l"(p + at * PIECE), "r"((uint32_t)PIECE), "r"(bars + s * 8) : "memory");
            asked++;
            at += gridDim.x;
            continue;
        }
        const uint32_t s = done % RING, parity = done / RING & 1;
        uint32_t ok = 0;
        while (!ok)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(ok) : "r"(bars + s * 8), "r"(parity) : "memory");
        done++;
    }
    if (pieces == 1) *sink = room[0];
}

/* The fastest of the four, in bytes a second; each alone is printed. */
static double best(const void *p, size_t bytes, uint32_t *sink, cudaStream_t s, const char *shape)
{
    CK(cudaFuncSetAttribute(copies, cudaFuncAttributeMaxDynamicSharedMemorySize, RING * PIECE));
    CK(cudaFuncSetAttribute(bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, RING * PIECE));
    std::vector<Way> ways = {
        {"plain", [=] { plain<<<132 * 4, 512, 0, s>>>((const uint4 *)p, bytes / 16, sink); }, {}},
        {"prefetch", [=] { prefetch<<<132 * 4, 512, 0, s>>>((const uint4 *)p, bytes / 16, sink); }, {}},
        {"cp.async", [=] { copies<<<132, 1024, RING * PIECE, s>>>((const uint4 *)p, bytes / 16, sink); }, {}},
        {"bulk", [=] { bulk<<<132, 1, RING * PIECE, s>>>((const uint8_t *)p, bytes / PIECE, sink); }, {}},
    };
    alternate(ways, 15, s);
    CK(cudaGetLastError());
    double most = 0;
    for (const Way &w : ways) {
        const double rate = bytes / (w.median() * 1e-3);
        std::printf("{\"bench\":\"read\",\"shape\":\"%s\",\"way\":\"%s\",\"bytes\":%zu,\"ms_med\":%.4f,\"ms_min\":%.4f,\"gbps\":%.0f}\n",
                    shape, w.name.c_str(), bytes, w.median(), w.least(), rate * 1e-9);
        most = std::max(most, rate);
    }
    return most;
}

}
