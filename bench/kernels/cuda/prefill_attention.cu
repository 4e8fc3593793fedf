/* prefill_attention.cu - attention of many tokens behind a context: warpgroup products against a block a query,
 * which long contexts are spared.  Random data; a sample of rows is checked against a softmax in double.  One JSON line a result. */
#include "bench.cuh"
#include "device/cuda/kernels/kernels.h"

enum { DIM = 256, HEADS = 16, KV_HEADS = 2 };

static cudaStream_t stream;

static void run_length(uint32_t first, uint32_t tokens, int rounds)
{
    const uint32_t n_pages = (first + tokens + CUDA_PAGE - 1) / CUDA_PAGE;
    const size_t page = (size_t)2 * KV_HEADS * CUDA_PAGE * DIM;
    Buffer<uint16_t> kv(page * n_pages), aog((size_t)tokens * HEADS * DIM);
    Buffer<float> q((size_t)tokens * HEADS * DIM), qg((size_t)tokens * HEADS * DIM * 2);
    Buffer<uint16_t *> table(n_pages);
    Buffer<cuda_lane> lane(1);
    std::vector<uint16_t *> pages(n_pages);
    for (uint32_t i = 0; i < n_pages; i++) pages[i] = kv.p + page * (n_pages - 1 - i);
    table.set(pages);
    cuda_lane l = {};
    l.pages = table.p;
    l.position = first;
    lane.set({l});
    fill_normal<<<1024, 256>>>(kv.p, kv.n, 1, 1.f);
    fill_normal_float<<<1024, 256>>>(q.p, q.n, 2, 2.f);
    fill_normal_float<<<1024, 256>>>(qg.p, qg.n, 3, 1.f);
    CK(cudaDeviceSynchronize());
    cuda_attention a = {};
    a.lane = lane.p;
    a.q = q.p, a.qg = qg.p, a.aog = aog.p;
    a.tokens = tokens, a.q_heads = HEADS, a.kv_heads = KV_HEADS, a.dim = DIM;
    a.half = true;
    Buffer<float> ao((size_t)tokens * HEADS * DIM);
    a.ao = ao.p;
    std::vector<Way> ways = {{"wgmma", [=] { CK(cuda_attend_wgmma(&a, true, stream)); }, {}}};
    if (first + tokens <= 2048)
        ways.push_back({"a block a query", [=] {
            CK(cuda_attend(&a, stream));
            CK(cuda_o_gate(&a, stream));
        }, {}});
    const std::vector<uint16_t> h_kv = kv.get(0, kv.n);
    std::vector<double> errors;
    for (Way &w : ways) {
        CK(cudaMemset(aog.p, 0xFF, aog.n * 2));
        w.run();
        CK(cudaDeviceSynchronize());
        double num = 0, den = 0;
        for (uint32_t i = 0; i < 12; i++) {
            const uint32_t t = i == 0 ? tokens - 1 : i == 1 ? 0 : hash32(i) % tokens, h = hash32(100 + i) % HEADS, n = first + t + 1;
            const size_t at = ((size_t)t * HEADS + h) * DIM;
            const std::vector<float> x = q.get(at, DIM), z = qg.get(2 * at + DIM, DIM);
            const std::vector<uint16_t> got = aog.get(at, DIM);
            std::vector<double> score(n), out(DIM);
            double top = -1e30, sum = 0;
            auto row = [&](uint32_t which, uint32_t p) {
                return &h_kv[page * (n_pages - 1 - p / CUDA_PAGE) + (((size_t)which * KV_HEADS + h / 8) * CUDA_PAGE + p % CUDA_PAGE) * DIM];
            };
            for (uint32_t p = 0; p < n; p++) {
                const uint16_t *k = row(0, p);
                for (int c = 0; c < DIM; c++) score[p] += (double)from_bf16(to_bf16(x[c])) * from_bf16(k[c]) / 16;
                top = std::max(top, score[p]);
            }
            for (uint32_t p = 0; p < n; p++) {
                const double w = std::exp(score[p] - top);
                sum += w;
                const uint16_t *v = row(1, p);
                for (int c = 0; c < DIM; c++) out[c] += w * from_bf16(v[c]);
            }
            for (int c = 0; c < DIM; c++) {
                const double want = out[c] / sum / (1 + std::exp(-(double)z[c])), d = from_bf16(got[c]) - want;
                num += d * d, den += want * want;
                if (d != d) num = NAN;
            }
        }
        errors.push_back(std::sqrt(num / den));
    }
    if (rounds) alternate(ways, rounds, stream);
    const double flops = 4.0 * HEADS * DIM * ((double)tokens * first + 0.5 * tokens * (tokens + 1.0));
    for (size_t i = 0; i < ways.size(); i++)
        std::printf("{\"bench\":\"prefill_attention\",\"first\":%u,\"tokens\":%u,\"way\":\"%s\",\"ms_med\":%.4f,\"ms_min\":%.4f,\"tflops\":%.1f,\"rel_err\":%.2e}\n",
                    first, tokens, ways[i].name.c_str(), ways[i].median(), ways[i].least(), rounds ? flops / (ways[i].median() * 1e9) : 0, errors[i]);
    std::fflush(stdout);
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
    CK(cudaStreamCreate(&stream));
    for (uint32_t t : {2u, 63u, 64u, 65u, 200u}) run_length(t == 200 ? 37 : 0, t, 0);
    for (uint32_t t : {512u, 2048u, 4096u}) run_length(0, t, rounds);
    for (uint32_t f : {28672u, 126976u}) run_length(f, 4096, rounds / 2);
    return 0;
}
