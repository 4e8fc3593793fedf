/* prefill_delta.cu - the delta rule of many tokens: the register-resident scan against blocks of tokens as products of
 * warps and of warpgroups.  Random data with keys that have a common part; outputs, the state behind and marks are checked against the recurrence in
 * double for some rows.  One JSON line a result. */
#include <cuda_fp16.h>

#include "bench.cuh"
#include "device/cuda/kernels/kernels.h"

enum { HEAD = 128, KEYS = 16, VALUES = 32, KEY_WIDTH = KEYS * HEAD, WIDTH = 2 * KEY_WIDTH + VALUES * HEAD };

static cudaStream_t stream;

static __global__ void fill_keys(float *qk, uint32_t tokens)
{
    const size_t head = blockIdx.x * (size_t)(blockDim.x >> 5) + (threadIdx.x >> 5);
    const uint32_t lane = threadIdx.x & 31, h = head % (2 * KEYS);
    if (head >= (size_t)tokens * 2 * KEYS) return;
    float v[4], sum = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t c = lane + 32 * i;
        v[i] = normal(head * HEAD + c + 17) + 0.7f * normal(1000000007ull + h * HEAD + c);
        sum += v[i] * v[i];
    }
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    const float scale = rsqrtf(sum + 1e-6f) * (h < KEYS ? 0.08838834764831845f : 1.f);
    for (int i = 0; i < 4; i++) qk[head * HEAD + lane + 32 * i] = v[i] * scale;
}
static __global__ void fill_gates(float *g, uint32_t tokens)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= tokens * VALUES) return;
    const uint32_t t = i / VALUES, h = i % VALUES;
    const float strength = h % 4 == 0 ? 2.f : h % 4 == 1 ? 0.3f : h % 4 == 2 ? 0.02f : 0.001f, n = normal(500 + i);
    g[(size_t)t * 2 * VALUES + h] = 1.f / (1.f + expf(-normal(900000 + i)));
    g[(size_t)t * 2 * VALUES + VALUES + h] = expf(-strength * n * n);
}

/* What cuda_delta_wgmma takes. */
static __global__ void halve(const float *from, size_t stride, size_t at, uint16_t *to, size_t width, size_t rows)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < width * rows; i += (size_t)gridDim.x * blockDim.x)
        to[i] = __half_as_ushort(__float2half_rn(from[i / width * stride + at + i % width]));
}

struct Errors {
    double out = 0, state = 0, mark = 0;
};

/* Rows of some heads by the recurrence. */
static Errors compare(uint32_t tokens, uint32_t mark_at, const std::vector<float> &qk, const std::vector<float> &u, const std::vector<float> &g,
                      const std::vector<float> &before, const std::vector<float> &dn, const std::vector<float> &after,
                      const std::vector<float> &mark)
{
    double num[3] = {}, den[3] = {};
    auto add = [&](int i, double got, double want) {
        num[i] += (got - want) * (got - want);
        den[i] += want * want;
        if (got != got) num[i] = NAN;
    };
    for (uint32_t head : {0u, 1u, 14u, 31u})
        for (uint32_t row : {0u, 37u, 127u}) {
            std::vector<double> s(HEAD);
            const size_t at = ((size_t)head * HEAD + row) * HEAD;
            for (int c = 0; c < HEAD; c++) s[c] = before[at + c];
            for (uint32_t t = 0; t < tokens; t++) {
                const float *q = &qk[((size_t)t * 2 * KEYS + head / 2) * HEAD], *k = q + KEY_WIDTH;
                const double beta = g[(size_t)t * 2 * VALUES + head], gate = g[(size_t)t * 2 * VALUES + VALUES + head];
                double dot = 0, o = 0;
                for (int c = 0; c < HEAD; c++) s[c] *= gate, dot += s[c] * k[c];
                const double change = beta * (u[(size_t)t * WIDTH + 2 * KEY_WIDTH + head * HEAD + row] - dot);
                for (int c = 0; c < HEAD; c++) s[c] += change * k[c], o += s[c] * q[c];
                add(0, dn[(size_t)t * VALUES * HEAD + head * HEAD + row], o);
                if (t + 1 == mark_at)
                    for (int c = 0; c < HEAD; c++) add(2, mark[at + c], s[c]);
            }
            for (int c = 0; c < HEAD; c++) add(1, after[at + c], s[c]);
        }
    return {std::sqrt(num[0] / den[0]), std::sqrt(num[1] / den[1]), den[2] > 0 ? std::sqrt(num[2] / den[2]) : 0};
}

static void run_length(uint32_t tokens, uint32_t mark_at, int rounds)
{
    const size_t state = (size_t)VALUES * HEAD * HEAD;
    Buffer<float> qk((size_t)tokens * 2 * KEY_WIDTH), u((size_t)tokens * WIDTH), g((size_t)tokens * 2 * VALUES), dn((size_t)tokens * VALUES * HEAD),
        before(state), now(state), mark(state);
    Buffer<uint8_t> work(std::max(cuda_delta_chunk_room(tokens, KEYS, VALUES), cuda_delta_wgmma_room(tokens, KEYS, VALUES)));
    Buffer<uint16_t> half_qk(qk.n), half_v((size_t)tokens * VALUES * HEAD);
    Buffer<cuda_lane> lane(1);
    fill_keys<<<(tokens * 2 * KEYS + 7) / 8, 256>>>(qk.p, tokens);
    fill_gates<<<(tokens * VALUES + 255) / 256, 256>>>(g.p, tokens);
    fill_normal_float<<<1024, 256>>>(u.p, u.n, 31337, 1.f);
    fill_normal_float<<<1024, 256>>>(before.p, before.n, 4242, 0.1f);
    halve<<<1024, 256>>>(qk.p, 2 * KEY_WIDTH, 0, half_qk.p, 2 * KEY_WIDTH, tokens);
    halve<<<1024, 256>>>(u.p, WIDTH, 2 * KEY_WIDTH, half_v.p, (size_t)VALUES * HEAD, tokens);
    cuda_lane l = {};
    l.recurrent = now.p;
    l.mark[0] = mark.p;
    l.mark_at[0] = mark_at;
    l.n_marks = mark_at ? 1 : 0;
    lane.set({l});
    cuda_delta d = {};
    d.lane = lane.p;
    d.u = u.p, d.qk = qk.p, d.half_qk = half_qk.p, d.half_v = half_v.p, d.g = g.p, d.dn = dn.p;
    d.tokens = tokens, d.k_heads = KEYS, d.v_heads = VALUES, d.dk = d.dv = HEAD, d.taps = 4;
    std::vector<Way> ways = {{"scan", [=] { CK(cuda_gdn(&d, stream)); }, {}},
                             {"blocks", [=, &work] { CK(cuda_delta_chunk(&d, work.p, stream)); }, {}},
                             {"warpgroups", [=, &work] { CK(cuda_delta_wgmma(&d, work.p, stream)); }, {}}};
    std::vector<Errors> errors;
    const std::vector<float> h_qk = qk.get(0, qk.n), h_u = u.get(0, u.n), h_g = g.get(0, g.n), h_before = before.get(0, state);
    for (Way &w : ways) {
        CK(cudaMemcpy(now.p, before.p, state * 4, cudaMemcpyDeviceToDevice));
        CK(cudaMemset(dn.p, 0xFF, dn.n * 4));
        CK(cudaMemset(mark.p, 0xFF, state * 4));
        w.run();
        CK(cudaDeviceSynchronize());
        errors.push_back(compare(tokens, mark_at, h_qk, h_u, h_g, h_before, dn.get(0, dn.n), now.get(0, state), mark.get(0, state)));
    }
    if (rounds) alternate(ways, rounds, stream);
    for (size_t i = 0; i < ways.size(); i++)
        std::printf("{\"bench\":\"prefill_delta\",\"tokens\":%u,\"mark\":%u,\"way\":\"%s\",\"ms_med\":%.4f,\"ms_min\":%.4f,\"rel_err_out\":%.2e,"
                    "\"rel_err_state\":%.2e,\"rel_err_mark\":%.2e}\n", tokens, mark_at, ways[i].name.c_str(), ways[i].median(), ways[i].least(),
                    errors[i].out, errors[i].state, errors[i].mark);
    std::fflush(stdout);
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
    CK(cudaStreamCreate(&stream));
    for (uint32_t t : {1u, 2u, 63u, 64u, 65u, 200u}) run_length(t, t > 2 ? t / 2 : 0, 0);
    run_length(300, 37, 0);
    for (uint32_t t : {512u, 2048u, 4096u, 8192u}) run_length(t, t / 2 + 5, rounds);
    return 0;
}
