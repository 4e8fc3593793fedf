/* decode_gemv.cu - the experts of one token against plain reads of the same bytes, and against themselves without their
 * products.
 *
 * A launch reads the weights of eight of 256 experts, other ones each time, in 1.8 GB of weights, so that the second-level
 * cache holds none of them.  All ways are graphs of the same many launches, one after the other, as a token's are.  With
 * `early` each is launched before the one before it has ended and waits for its end, as kernels of a token do; readers
 * named "stream" do not wait, so that one launch's reads run into the next one's: what memory gives at most, but no chain of
 * dependent products can have.  Readers: loads, loads behind prefetches, copies of 16 bytes, bulk copies. */
#include "bench.cuh"
#include "device/cuda/kernels/common.cuh"

cudaError_t reads_moe_up(const cuda_moe_token *, bool early, cudaStream_t);
cudaError_t reads_moe_down(const cuda_moe_token *, bool early, cudaStream_t);

namespace {

enum : uint32_t { HIDDEN = 2048, EXPERTS = 256, TOP_K = 8, INTER = 512, LAYERS = 4, SETS = LAYERS * EXPERTS / TOP_K };
constexpr size_t UP = (size_t)INTER / 8 * (HIDDEN / 128) * CUDA_CHUNK_BYTES(4);        /* bytes of an expert */
constexpr size_t DOWN = (size_t)HIDDEN / 16 * (INTER / 128) * CUDA_CHUNK_BYTES(4);

/* ---- readers ---- */

enum { MOST = 3 * TOP_K + 1, PIECE = 9216 };

struct Slabs {                  /* what one launch reads: each of `n` slabs whole */
    const uint8_t *at[MOST];
    uint32_t n;
    uint32_t pieces;            /* of a slab */
    bool waits;                 /* for what was launched before */
};

__device__ inline const uint8_t *piece_at(const Slabs &s, uint32_t i)
{
    return s.at[i / s.pieces] + (size_t)(i % s.pieces) * PIECE;
}

enum { WORDS = PIECE / 16, WAYS = 8 };

template <bool PREFETCH> static __global__ __launch_bounds__(WORDS) void read_loads(const __grid_constant__ Slabs s, uint32_t *sink)
{
    dependency_launch();
    if (s.waits) dependency_wait();
    const uint32_t all = s.n * s.pieces;
    uint32_t x = 0;
    for (uint32_t i = blockIdx.x; i < all; i += WAYS * gridDim.x) {
        uint4 v[WAYS];
        if (PREFETCH && threadIdx.x % 8 == 0)
#pragma unroll
            for (int k = 0; k < WAYS; k++)
                if (i + k * gridDim.x < all)
                    asm volatile("prefetch.global.L2 [%0];" ::"l"(piece_at(s, i + k * gridDim.x) + threadIdx.x * 16));
#pragma unroll
        for (int k = 0; k < WAYS; k++)
            v[k] = i + k * gridDim.x < all ? __ldcs((const uint4 *)piece_at(s, i + k * gridDim.x) + threadIdx.x) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < WAYS; k++) x ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (x == 0x9E3779B9u) *sink = x;
}

enum { RING = 16 };

static __global__ __launch_bounds__(WORDS) void read_copies(const __grid_constant__ Slabs s, uint32_t *sink)
{
    extern __shared__ __align__(128) uint8_t room[];
    dependency_launch();
    if (s.waits) dependency_wait();
    const uint32_t all = s.n * s.pieces;
    uint32_t turn = 0;
    for (uint32_t i = blockIdx.x; i < all; i += gridDim.x, turn = turn + 1 == RING ? 0 : turn + 1) {
        async_copy16(room + turn * PIECE + threadIdx.x * 16, piece_at(s, i) + threadIdx.x * 16, true);
        async_commit();
        async_wait<RING - 1>();
    }
    async_wait<0>();
    if (all == 1) *sink = room[threadIdx.x];
}

static __global__ void read_bulk(const __grid_constant__ Slabs s, uint32_t *sink)
{
    extern __shared__ __align__(128) uint8_t room[];
    __shared__ uint64_t full[RING];
    dependency_launch();
    if (s.waits) dependency_wait();
    const uint32_t all = s.n * s.pieces;
    for (int i = 0; i < RING; i++) barrier_init(full + i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    uint32_t asked = 0, done = 0;
    for (uint32_t i = blockIdx.x; i < all; i += gridDim.x, asked++) {
        if (asked - done == RING) barrier_wait(full + done % RING, done / RING & 1), done++;
        barrier_expect(full + asked % RING, PIECE);
        bulk_copy(room + asked % RING * PIECE, piece_at(s, i), PIECE, full + asked % RING);
    }
    for (; done < asked; done++) barrier_wait(full + done % RING, done / RING & 1);
    if (all == 1) *sink = room[0];
}

/* ---- what is read ---- */

static __global__ void fill_chunks(uint32_t *p, size_t words, uint64_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
        p[i] = i % (CUDA_CHUNK_BYTES(4) / 4) < CUDA_CODES / 4 ? hash32(seed + i) : 0x3A803A80u; /* scales and biases 2^-10 */
}

struct Weights {
    Buffer<uint8_t> up{LAYERS * EXPERTS * UP}, down{LAYERS * EXPERTS * DOWN}, shared{LAYERS * DOWN};
    Buffer<float> logits{SETS * EXPERTS}, m{HIDDEN + 1025}, n{HIDDEN + 1025}, x{HIDDEN}, norm{HIDDEN}, sh{INTER}, eh{TOP_K * INTER},
        sg{1}, topw{SETS * TOP_K};
    Buffer<int32_t> topi{SETS * TOP_K};

    explicit Weights(cudaStream_t s)
    {
        fill_chunks<<<1024, 256, 0, s>>>((uint32_t *)up.p, up.n / 4, 1);
        fill_chunks<<<1024, 256, 0, s>>>((uint32_t *)down.p, down.n / 4, 2);
        fill_chunks<<<1024, 256, 0, s>>>((uint32_t *)shared.p, shared.n / 4, 3);
        for (const Buffer<float> *b : {&m, &n, &x, &norm, &sh, &eh, &sg}) CK(cudaMemsetAsync(b->p, 0, b->n * 4, s));
        fill_normal_float<<<64, 256, 0, s>>>(m.p, HIDDEN, 4, 1.f);
        fill_normal_float<<<64, 256, 0, s>>>(eh.p, eh.n, 5, 1.f);
        std::vector<float> l(SETS * EXPERTS, 0.f), w(SETS * TOP_K, 1.f / TOP_K);
        std::vector<int32_t> ids(SETS * TOP_K);
        for (uint32_t i = 0; i < SETS * TOP_K; i++) {
            ids[i] = (int32_t)(i * 37 % EXPERTS); /* 37 is odd: each expert once in 32 sets */
            l[i / TOP_K * EXPERTS + ids[i]] = 5.f + (float)(i % TOP_K);
        }
        logits.set(l), topw.set(w), topi.set(ids);
        CK(cudaStreamSynchronize(s));
    }

    static uint32_t layer(uint32_t set) { return set / (EXPERTS / TOP_K); }

    cuda_moe_token args(uint32_t set) const
    {
        cuda_moe_token a = {};
        a.m = m.p, a.x = x.p, a.norm = norm.p, a.n = n.p;
        a.ex_up = up.p + layer(set) * EXPERTS * UP, a.ex_down = down.p + layer(set) * EXPERTS * DOWN;
        a.sh_down = shared.p + layer(set) * DOWN;
        a.rl = logits.p + set * EXPERTS, a.sg = sg.p, a.sh = sh.p, a.eh = eh.p;
        a.topi = topi.p + set * TOP_K, a.topw = topw.p + set * TOP_K;
        a.hidden = HIDDEN, a.experts = EXPERTS, a.top_k = TOP_K, a.inter = a.shared_inter = INTER;
        a.router_bits = a.gate_bits = 8;
        a.chosen = false;
        a.eps = 1e-6f;
        return a;
    }

    Slabs slabs(uint32_t set, bool with_up, bool with_down, bool waits) const
    {
        Slabs s = {};
        s.waits = waits;
        s.pieces = DOWN / PIECE;
        for (uint32_t i = 0; i < TOP_K; i++) {
            const size_t e = layer(set) * EXPERTS + (set * TOP_K + i) * 37 % EXPERTS;
            if (with_up) s.at[s.n++] = up.p + e * UP, s.at[s.n++] = up.p + e * UP + DOWN; /* a slab is as large as a down */
            if (with_down) s.at[s.n++] = down.p + e * DOWN;
        }
        if (with_down) s.at[s.n++] = shared.p + layer(set) * DOWN;
        return s;
    }
};

/* ---- ways ---- */

/* A graph of one launch for each set. */
static std::function<void()> graph_of(cudaStream_t s, const std::function<cudaError_t(uint32_t)> &launch_set)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CK(launch_set(0)); /* attributes are set outside a capture */
    CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < SETS; i++) CK(launch_set(i));
    CK(cudaStreamEndCapture(s, &graph));
    CK(cudaGraphInstantiate(&exec, graph, 0));
    CK(cudaGraphDestroy(graph));
    return [=] { CK(cudaGraphLaunch(exec, s)); };
}

template <typename K>
static void add_reader(std::vector<Way> &ways, const char *name, K kernel, unsigned grid, unsigned threads, size_t shared,
                       const Weights &w, bool with_up, bool with_down, bool early, bool waits, uint32_t *sink, cudaStream_t s)
{
    ways.push_back({(waits ? "read " : "stream ") + std::string(name) + " x" + std::to_string(grid),
                    graph_of(s, [&, kernel, grid, threads, shared](uint32_t i) {
                        return launch(kernel, grid, threads, shared, early, s, w.slabs(i, with_up, with_down, waits), sink);
                    }), {}});
}

static void add_readers(std::vector<Way> &ways, const Weights &w, bool with_up, bool with_down, bool early, bool waits,
                        uint32_t *sink, cudaStream_t s)
{
    for (unsigned grid : {132u, 264u}) {
        add_reader(ways, "plain", read_loads<false>, grid, WORDS, 0, w, with_up, with_down, early, waits, sink, s);
        add_reader(ways, "prefetch", read_loads<true>, grid, WORDS, 0, w, with_up, with_down, early, waits, sink, s);
    }
    add_reader(ways, "cp.async", read_copies, 132, WORDS, RING * PIECE, w, with_up, with_down, early, waits, sink, s);
    add_reader(ways, "bulk", read_bulk, 132, 1, RING * PIECE, w, with_up, with_down, early, waits, sink, s);
}

static float fastest(const std::vector<Way> &ways, const char *kind)
{
    float best = 1e30f;
    for (const Way &w : ways)
        if (w.name.compare(0, std::strlen(kind), kind) == 0) best = std::min(best, w.median());
    return best;
}

static void print(const std::vector<Way> &ways, const char *shape, bool early, size_t bytes)
{
    const float read = fastest(ways, "read "), stream = early ? fastest(ways, "stream ") : 0;
    for (const Way &w : ways) {
        std::printf("{\"bench\":\"decode_gemv\",\"shape\":\"%s\",\"early\":%d,\"way\":\"%s\",\"bytes\":%zu,\"us\":%.3f,\"us_min\":%.3f,"
                    "\"gbps\":%.0f,\"of_best_read\":%.3f",
                    shape, early, w.name.c_str(), bytes, 1e3 * w.median() / SETS, 1e3 * w.least() / SETS,
                    bytes / (w.median() * 1e6 / SETS), read / w.median());
        if (early) std::printf(",\"of_best_stream\":%.3f", stream / w.median());
        std::printf("}\n");
    }
    std::fflush(stdout);
}

static void bench(const Weights &w, const char *shape, bool with_up, bool with_down, bool early, uint32_t *sink, cudaStream_t s)
{
    typedef cudaError_t fn(const cuda_moe_token *, bool, cudaStream_t);
    const auto both = [&](fn *up, fn *down) {
        return graph_of(s, [&, up, down](uint32_t i) {
            const cuda_moe_token a = w.args(i);
            cudaError_t e = with_up ? up(&a, early, s) : cudaSuccess;
            if (e == cudaSuccess && with_down) e = down(&a, early, s);
            return e;
        });
    };
    std::vector<Way> ways = {{"gemv", both(cuda_moe_up, cuda_moe_down), {}}, {"gemv without products", both(reads_moe_up, reads_moe_down), {}}};
    add_readers(ways, w, with_up, with_down, early, true, sink, s);
    if (early) add_readers(ways, w, with_up, with_down, early, false, sink, s);
    alternate(ways, 15, s);
    CK(cudaGetLastError());
    print(ways, shape, early, (with_up ? TOP_K * UP : 0) + (with_down ? (TOP_K + 1) * DOWN : 0));
}

}

int main()
{
    cudaStream_t s;
    CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CK(cudaFuncSetAttribute(read_copies, cudaFuncAttributeMaxDynamicSharedMemorySize, RING * PIECE));
    CK(cudaFuncSetAttribute(read_bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, RING * PIECE));
    const Weights w(s);
    Buffer<uint32_t> sink(1);
    for (const bool early : {false, true}) {
        bench(w, "up", true, false, early, sink.p, s);
        bench(w, "down", false, true, early, sink.p, s);
        bench(w, "up and down", true, true, early, sink.p, s);
    }
    return 0;
}
