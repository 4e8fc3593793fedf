/* prefill_gemm.cu - products of packed 4-bit matrices with many vectors: the warpgroup kernel in its shapes, the one on
 * mma.sync, cuBLAS on bf16 weights, and plain reads of the same bytes.  Random data; a sample of results is checked
 * against sums in double of the raw codes.  One JSON line a result. */
#include <cublas_v2.h>
#include <dlfcn.h>

#include "bench.cuh"
#include "device/cuda/kernels/gemm_wgmma.cuh"
#include "readers.cuh"

static cudaStream_t stream;

/* ---- weights: raw, packed, and as bf16 ---- */

static __global__ void fill_bytes(uint32_t *p, size_t words, uint64_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
        p[i] = hash32(seed + i);
}
/* scales of both signs, biases that centre the codes but for a little */
static __global__ void fill_groups(uint16_t *scales, uint16_t *biases, size_t n, uint64_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        const uint32_t h = hash32(seed + i);
        const float scale = (h & 1 ? 1.f : -1.f) * (0.003f + 0.003f * (h >> 8 & 255) / 256.f);
        scales[i] = to_bf16(scale);
        biases[i] = to_bf16(-7.5f * scale + 0.0005f * ((int)(h >> 16 & 15) - 7));
    }
}
static __global__ void expand(const uint8_t *codes, const uint16_t *scales, const uint16_t *biases, uint16_t *w, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        w[i] = to_bf16(from_bf16(scales[i / 64]) * (float)(codes[i / 2] >> (4 * (i & 1)) & 15) + from_bf16(biases[i / 64]));
}

struct Weights {
    uint32_t experts, rows, cols;
    bool pair;
    Buffer<uint8_t> codes, chunks;
    Buffer<uint16_t> scales, biases;
    uint32_t blocks() const { return (rows + 15) / 16; }
    size_t bytes() const { return (size_t)experts * blocks() * (cols / 128) * CUDA_CHUNK_BYTES(4); }
    Weights(uint32_t e, uint32_t r, uint32_t c, bool p)
        : experts(e), rows(r), cols(c), pair(p), codes((size_t)e * r * c / 2), chunks((size_t)e * ((r + 15) / 16) * (c / 128) * CUDA_CHUNK_BYTES(4)),
          scales((size_t)e * r * c / 64), biases((size_t)e * r * c / 64)
    {
        fill_bytes<<<1024, 256>>>((uint32_t *)codes.p, codes.n / 4, 77);
        fill_groups<<<1024, 256>>>(scales.p, biases.p, scales.n, 99);
        CK(cudaMemset(chunks.p, 0, chunks.n));
        for (uint32_t i = 0; i < e; i++) {
            uint8_t *to = chunks.p + (size_t)i * blocks() * (cols / 128) * CUDA_CHUNK_BYTES(4);
            const uint32_t parts = pair ? 2 : 1, each = rows / parts;
            for (uint32_t k = 0; k < parts; k++) {
                const size_t at = ((size_t)i * rows + k * each) * cols;
                const cuda_repack_args a = {codes.p + at / 2, (const uint8_t *)(scales.p + at / 64), (const uint8_t *)(biases.p + at / 64), to, 0,
                                            each, cols, 4, (uint16_t)(pair ? CUDA_PAIR_FIRST + k : CUDA_PACKED)};
                CK(cuda_repack(&a, 0));
            }
        }
        CK(cudaDeviceSynchronize());
    }
    /* sum of row r of expert e with x */
    double times(uint32_t e, uint32_t r, const std::vector<uint16_t> &x) const
    {
        const size_t at = ((size_t)e * rows + r) * cols;
        const std::vector<uint8_t> q = codes.get(at / 2, cols / 2);
        const std::vector<uint16_t> s = scales.get(at / 64, cols / 64), b = biases.get(at / 64, cols / 64);
        double sum = 0;
        for (uint32_t c = 0; c < cols; c++)
            sum += ((double)from_bf16(s[c / 64]) * (q[c / 2] >> (4 * (c & 1)) & 15) + from_bf16(b[c / 64])) * from_bf16(x[c]);
        return sum;
    }
};

/* ---- cuBLAS, found at run time ---- */

typedef cublasStatus_t blas_gemm_fn(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *, const void *,
                                    cudaDataType, int, const void *, cudaDataType, int, const void *, void *, cudaDataType, int,
                                    cublasComputeType_t, cublasGemmAlgo_t);
struct Blas {
    cublasHandle_t handle = nullptr;
    blas_gemm_fn *gemm = nullptr;
    Buffer<uint8_t> room{64 << 20};
    Blas()
    {
        void *lib = dlopen("libcublas.so.13", RTLD_NOW);
        if (!lib) lib = dlopen("libcublas.so.12", RTLD_NOW);
        if (!lib) {
            std::fprintf(stderr, "no cuBLAS: %s\n", dlerror());
            return;
        }
        auto create = (decltype(&cublasCreate))dlsym(lib, "cublasCreate_v2");
        auto set = (decltype(&cublasSetStream))dlsym(lib, "cublasSetStream_v2");
        auto space = (decltype(&cublasSetWorkspace))dlsym(lib, "cublasSetWorkspace_v2");
        gemm = (blas_gemm_fn *)dlsym(lib, "cublasGemmEx");
        if (create(&handle) != CUBLAS_STATUS_SUCCESS) { gemm = nullptr; return; }
        set(handle, stream);
        space(handle, room.p, room.n);
    }
};

/* ---- one case ---- */

struct Case {
    const char *name;
    uint32_t experts, rows, cols, tokens, top_k;
    bool unit, gather;
};

static const char *shape_names[] = {"32x256", "64x256", "64x128", "128x128", "256x128"};

static void check(const Weights &w, const Case &k, const std::vector<int32_t> &offsets, const std::vector<int32_t> &order,
                  const Buffer<uint16_t> &x, const std::function<float(uint32_t, uint32_t)> &got, double &error)
{
    double num = 0, den = 0;
    const uint32_t n = k.tokens * k.top_k, results = k.unit ? k.rows / 2 : k.rows;
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t v = i == 0 ? n - 1 : hash32(i * 7 + 2) % n, r = i == 0 ? results - 1 : hash32(i * 7 + 3) % results;
        const uint32_t e = k.experts ? (uint32_t)(std::upper_bound(offsets.begin(), offsets.end(), (int32_t)v) - offsets.begin() - 1) : 0;
        const uint32_t from = k.gather ? (uint32_t)order[v] / k.top_k : v;
        const std::vector<uint16_t> in = x.get((size_t)from * k.cols, k.cols);
        double want = w.times(e, r, in);
        if (k.unit) want = want / (1 + std::exp(-want)) * w.times(e, results + r, in);
        const double d = got(v, r) - want;
        num += d * d;
        den += want * want;
        if (!(std::fabs(d) < 1e9)) num = NAN;
    }
    error = std::sqrt(num / den);
}

static double run_case(const Case &k, const Weights &w, Blas &blas, int rounds, double read_rate)
{
    const uint32_t n = k.tokens * k.top_k, results = k.unit ? k.rows / 2 : k.rows;
    std::vector<int32_t> offsets(k.experts + 1), order(n);
    if (k.experts) {        /* experts of uneven popularity: the product of two draws */
        std::vector<std::vector<int32_t>> of(k.experts);
        uint32_t seed = 1;
        for (uint32_t t = 0; t < k.tokens; t++) {
            std::vector<uint32_t> chosen;
            while (chosen.size() < k.top_k) {
                const uint32_t e = hash32(seed++) % k.experts;
                if (std::find(chosen.begin(), chosen.end(), e) == chosen.end() && hash32(e * 31 + 5) % 100 < 40 + hash32(seed++) % 60)
                    chosen.push_back(e);
            }
            for (uint32_t a = 0; a < k.top_k; a++) of[chosen[a]].push_back((int32_t)(t * k.top_k + a));
        }
        uint32_t at = 0;
        for (uint32_t e = 0; e < k.experts; e++) {
            offsets[e] = (int32_t)at;
            for (int32_t p : of[e]) order[at++] = p;
        }
        offsets[k.experts] = (int32_t)at;
    }
    const uint32_t vectors = k.gather ? k.tokens : n;
    Buffer<uint16_t> x((size_t)vectors * k.cols), half((size_t)n * k.rows), bf16(k.experts ? 0 : (size_t)k.rows * k.cols);
    Buffer<float> y(k.unit ? 0 : (size_t)n * results);
    Buffer<int32_t> d_offsets(k.experts + 1), d_order(n);
    Buffer<uint8_t> map(cuda_gemm_room(n, k.experts ? k.experts : 1));
    d_offsets.set(offsets);
    d_order.set(order);
    fill_normal<<<1024, 256>>>(x.p, x.n, 12345, 1.f);
    if (bf16.n) expand<<<1024, 256>>>(w.codes.p, w.scales.p, w.biases.p, bf16.p, bf16.n);
    CK(cudaDeviceSynchronize());
    cuda_gemm a = {};
    a.chunks = w.chunks.p;
    a.cols = k.cols;
    a.blocks = w.blocks();
    a.n_sections = 1;
    a.section[0] = {y.p, 0, k.rows};
    a.stride[0] = k.rows;
    a.unit = half.p;
    a.in = x.p;
    a.n = n;
    a.experts = k.experts;
    a.offsets = d_offsets.p;
    a.order = k.gather ? d_order.p : nullptr;
    a.map = map.p;
    a.divide = k.top_k;
    a.bits = 4;
    a.hopper = true;
    a.epilogue = k.unit ? CUDA_GATED_UNIT : CUDA_STORE;
    cuda_gemm h = a;
    h.section[0].out = (float *)half.p;
    h.half = true;
    std::vector<Way> ways;
    ways.push_back({"mma.sync", [=] { CK(cuda_gemm_mma(&a, stream)); }, {}});
    for (int s = 0; s < CUDA_GEMM_SHAPES; s++) {
        if (k.gather && s == CUDA_GEMM_256x128) continue;       /* refused */
        ways.push_back({std::string("wgmma ") + shape_names[s] + " bf16",
                        [=] { CK(cuda_gemm_wgmma(&h, (enum cuda_gemm_shape)s, true, stream)); }, {}});
        if (!k.unit && s == CUDA_GEMM_256x128)
            ways.push_back({std::string("wgmma ") + shape_names[s] + " f32",
                            [=] { CK(cuda_gemm_wgmma(&a, (enum cuda_gemm_shape)s, false, stream)); }, {}});
    }
    ways.push_back({"chosen f32", [=] { CK(cuda_gemm_many(&a, stream)); }, {}});
    ways.push_back({"chosen bf16", [=] { CK(cuda_gemm_many(&h, stream)); }, {}});
    if (blas.gemm && bf16.n && !k.unit)
        ways.push_back({"cublas", [&] {
            const float one = 1, zero = 0;
            if (blas.gemm(blas.handle, CUBLAS_OP_T, CUBLAS_OP_N, (int)k.rows, (int)n, (int)k.cols, &one, bf16.p, CUDA_R_16BF, (int)k.cols, x.p,
                          CUDA_R_16BF, (int)k.cols, &zero, half.p, CUDA_R_16BF, (int)k.rows, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS)
                std::fprintf(stderr, "cuBLAS failed\n");
        }, {}});
    std::vector<double> errors;
    std::vector<size_t> unwritten;
    for (Way &v : ways) {
        CK(cudaMemset(half.p, 0xFF, half.n * 2));
        if (y.n) CK(cudaMemset(y.p, 0xFF, y.n * 4));
        v.run();
        CK(cudaDeviceSynchronize());
        const bool in_float = y.n && (v.name == "mma.sync" || v.name == "chosen f32" || v.name.find("f32") != std::string::npos);
        double error;
        check(w, k, offsets, order, x, [&](uint32_t i, uint32_t r) {
            const size_t at = (size_t)i * results + r;
            return in_float ? y.get(at, 1)[0] : from_bf16(half.get(at, 1)[0]);
        }, error);
        errors.push_back(error);
        size_t bad = 0;
        const size_t some = std::min((size_t)n * results, (size_t)4 << 20), at = (size_t)n * results - some;
        if (in_float)
            for (float f : y.get(at, some)) bad += f != f;
        else
            for (uint16_t b : half.get(at, some)) bad += (b & 0x7FFF) > 0x7F80;
        unwritten.push_back(bad);
    }
    alternate(ways, rounds, stream);
    const double flops = 2.0 * n * k.rows * k.cols;
    double best = 0;
    for (size_t i = 0; i < ways.size(); i++) {
        const double ms = ways[i].median();
        std::printf("{\"bench\":\"prefill_gemm\",\"shape\":\"%s\",\"tokens\":%u,\"rows\":%u,\"cols\":%u,\"experts\":%u,\"way\":\"%s\",\"ms_med\":%.4f,"
                    "\"ms_min\":%.4f,\"tflops\":%.1f,\"weight_gbps\":%.0f,\"read_share\":%.3f,\"rel_err\":%.2e,\"unwritten\":%zu}\n",
                    k.name, k.tokens, k.rows, k.cols, k.experts, ways[i].name.c_str(), ms, ways[i].least(), flops / (ms * 1e9),
                    w.bytes() / (ms * 1e6), read_rate > 0 ? w.bytes() / (ms * 1e-3) / read_rate : 0, errors[i], unwritten[i]);
        best = std::max(best, flops / (ms * 1e9));
    }
    std::fflush(stdout);
    return best;
}

/* prefill_gemm [ROUNDS [SHAPE [TOKENS]]]: all shapes and lengths, or one. */
int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
    const std::string only = argc > 2 ? argv[2] : "";
    const uint32_t one_length = argc > 3 ? (uint32_t)std::atoi(argv[3]) : 0;
    CK(cudaStreamCreate(&stream));
    Blas blas;
    Buffer<uint32_t> sink(1);
    const Case cases[] = {{"experts_up", 256, 1024, 2048, 0, 8, true, true}, {"experts_down", 256, 2048, 512, 0, 8, false, false},
                          {"delta_in", 0, 12352, 2048, 0, 1, false, false}, {"attn_in", 0, 9216, 2048, 0, 1, false, false},
                          {"out", 0, 2048, 4096, 0, 1, false, false}, {"shared_up", 0, 1024, 2048, 0, 1, true, false},
                          {"shared_down", 0, 2048, 512, 0, 1, false, false}, {"square", 0, 8192, 8192, 0, 1, false, false}};
    for (Case c : cases) {
        if (!only.empty() && only != c.name) continue;
        const Weights w(c.experts ? c.experts : 1, c.rows, c.cols, c.unit);
        const double rate = c.experts ? readers::best(w.chunks.p, w.bytes(), sink.p, stream, c.name) : 0;
        for (uint32_t t : {512u, 2048u, 4096u, 8192u}) {
            if (one_length && t != one_length) continue;
            c.tokens = t;
            run_case(c, w, blas, rounds, rate);
        }
    }
    CK(cudaDeviceSynchronize());
    return 0;
}
