/* bench.cuh - what the stand-alone kernel benchmarks share: errors end the program, times alternate, results are JSON
 * lines. */
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#define CK(x)                                                                                                        \
    do {                                                                                                             \
        cudaError_t e_ = (x);                                                                                        \
        if (e_ != cudaSuccess) {                                                                                     \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e_));                 \
            std::exit(1);                                                                                            \
        }                                                                                                            \
    } while (0)

__host__ __device__ inline uint32_t hash32(uint64_t x)
{
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return (uint32_t)((x ^ (x >> 31)) >> 16);
}
__host__ __device__ inline float bits_float(uint32_t u)
{
#ifdef __CUDA_ARCH__
    return __uint_as_float(u);
#else
    float f;
    std::memcpy(&f, &u, 4);
    return f;
#endif
}
__host__ __device__ inline float from_bf16(uint16_t v) { return bits_float((uint32_t)v << 16); }
__host__ __device__ inline uint16_t to_bf16(float f)
{
    uint32_t u;
#ifdef __CUDA_ARCH__
    u = __float_as_uint(f);
#else
    std::memcpy(&u, &f, 4);
#endif
    return (uint16_t)((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
}
/* about normal, variance 1 */
__host__ __device__ inline float normal(uint64_t seed)
{
    const uint32_t a = hash32(2 * seed), b = hash32(2 * seed + 1);
    return ((a & 0xFFFF) + (a >> 16) + (b & 0xFFFF) + (b >> 16)) * (1.7320508f / 65536.f) - 3.4641016f;
}

template <class T> struct Buffer {
    T *p = nullptr;
    size_t n = 0;
    explicit Buffer(size_t count = 0) : n(count) { if (n) CK(cudaMalloc(&p, n * sizeof(T))); }
    Buffer(const Buffer &) = delete;
    ~Buffer() { cudaFree(p); }
    std::vector<T> get(size_t at, size_t count) const
    {
        std::vector<T> v(count);
        CK(cudaMemcpy(v.data(), p + at, count * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
    void set(const std::vector<T> &v) { CK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice)); }
};

static __global__ void fill_normal(uint16_t *p, size_t n, uint64_t seed, float scale)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        p[i] = to_bf16(scale * normal(seed + i));
}
static __global__ void fill_normal_float(float *p, size_t n, uint64_t seed, float scale)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        p[i] = scale * normal(seed + i);
}

/* A way to do a thing, and its times in milliseconds. */
struct Way {
    std::string name;
    std::function<void()> run;
    std::vector<float> ms;
    float median() const
    {
        std::vector<float> v = ms;
        std::sort(v.begin(), v.end());
        return v.empty() ? 0 : v[v.size() / 2];
    }
    float least() const { return ms.empty() ? 0 : *std::min_element(ms.begin(), ms.end()); }
};

/* Every way once a round, the order turning round by round. */
static void alternate(std::vector<Way> &ways, int rounds, cudaStream_t s)
{
    cudaEvent_t from, to;
    CK(cudaEventCreate(&from));
    CK(cudaEventCreate(&to));
    for (Way &w : ways)
        for (int i = 0; i < 2; i++) w.run();
    for (int r = 0; r < rounds; r++)
        for (size_t i = 0; i < ways.size(); i++) {
            Way &w = ways[r & 1 ? ways.size() - 1 - i : i];
            w.run();                        /* the clock of the next has no launch in front of it */
            CK(cudaEventRecord(from, s));
            w.run();
            CK(cudaEventRecord(to, s));
            CK(cudaEventSynchronize(to));
            float ms;
            CK(cudaEventElapsedTime(&ms, from, to));
            w.ms.push_back(ms);
        }
    CK(cudaEventDestroy(from));
    CK(cudaEventDestroy(to));
}
