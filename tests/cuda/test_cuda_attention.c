/* test_cuda_attention.c - attention of one token against a softmax in double, at short and at long context; the same bytes
 * with packed query heads and without, and however the cache is read. */
#include "gpu.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/random.h"
#include "device/cuda/cuda.h"

enum { DIM = 256, KV_HEADS = 2, SHARE = 8, HEADS = KV_HEADS * SHARE, ROTARY = 64, LAYERS = 2, LAYER = 1, OUT = HEADS * DIM };
static const float eps = 1e-6f;

/* A session's cache with n - 1 positions, and one token more; the same data here and there. */
typedef struct bench {
    uint32_t n, pages;
    uint16_t *cache, *on_card;          /* pages lie in it from the last to the first */
    float *qg, *kp, *vp, *norm;         /* here */
    double frequency[ROTARY / 2];
    float *there, *out, *work;          /* on the card: qg, kp, vp, norm; what comes out */
    uint16_t **table;
    double *frequencies;
    cuda_lane *lane;
} bench;

static const size_t page_elements = (size_t)LAYERS * 2 * KV_HEADS * CUDA_PAGE * DIM;
enum { QG = HEADS * 2 * DIM, KV = KV_HEADS * DIM, INPUTS = QG + 2 * KV + 2 * DIM };

static void *on_card(size_t bytes, const void *from)
{
    void *p;
    assert_int_equal(cudaMalloc(&p, bytes), cudaSuccess);
    if (from) assert_int_equal(cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    return p;
}

/* About normal. */
static float draw(uint64_t seed, uint64_t i)
{
    float sum = 0;
    for (uint64_t k = 0; k < 4; k++) sum += (float)lily_uniform(seed, 4 * i + k);
    return (sum - 2) * 1.7320508f;
}

/* A draw for each row and a column's share from few draws: one for each value would take longer than all else. */
static void fill_row(uint16_t *row, uint64_t seed, uint64_t p)
{
    static float few[4096];
    if (few[0] == 0)
        for (uint64_t i = 0; i < 4096; i++) few[i] = draw(5, i);
    const float all = draw(seed, p);
    for (uint64_t i = 0; i < DIM; i++) row[i] = lily_float_to_bf16(0.3f * all + 0.9f * few[(p * 37 + i * 11 + seed) % 4096]);
}

static size_t row_at(const bench *b, uint32_t which, uint32_t head, uint32_t p)
{
    const size_t page = page_elements * (b->pages - 1 - p / CUDA_PAGE);
    return page + (((size_t)(LAYER * 2) + which) * KV_HEADS + head) * CUDA_PAGE * DIM + (size_t)(p % CUDA_PAGE) * DIM;
}

static void bench_open(bench *b, uint32_t n)
{
    *b = (bench){.n = n, .pages = (n + CUDA_PAGE - 1) / CUDA_PAGE};
    b->cache = lily_calloc(b->pages, page_elements * sizeof *b->cache);
    b->qg = lily_calloc(INPUTS, sizeof *b->qg);
    assert_true(b->cache && b->qg);
    b->kp = b->qg + QG, b->vp = b->kp + KV, b->norm = b->vp + KV;
    for (size_t i = 0; i < INPUTS; i++) b->qg[i] = draw(1, i);
    for (int i = 0; i < 2 * DIM; i++) b->norm[i] = 1.5f + 0.5f * draw(2, (uint64_t)i);     /* the largest score moves */
    for (uint32_t which = 0; which < 2; which++)
        for (uint32_t head = 0; head < KV_HEADS; head++)
            for (uint32_t p = 0; p + 1 < n; p++) fill_row(b->cache + row_at(b, which, head, p), 10 + 2 * which + head, p);
    for (int i = 0; i < ROTARY / 2; i++) b->frequency[i] = pow(1e7, -2.0 * i / ROTARY);
    b->on_card = on_card(b->pages * page_elements * sizeof *b->cache, b->cache);
    b->there = on_card(INPUTS * sizeof *b->qg, b->qg);
    b->out = on_card(OUT * sizeof *b->out, NULL);
    b->work = on_card(cuda_attend_token_room(HEADS), NULL);
    b->frequencies = on_card(sizeof b->frequency, b->frequency);
    uint16_t **rows = lily_calloc(b->pages, sizeof *rows);
    for (uint32_t i = 0; i < b->pages; i++) rows[i] = b->on_card + page_elements * (b->pages - 1 - i);
    b->table = on_card(b->pages * sizeof *rows, rows);
    lily_free(rows);
    const cuda_lane lane = {.pages = b->table, .position = n - 1};
    b->lane = on_card(sizeof lane, &lane);
}

static void bench_close(bench *b)
{
    void *all[] = {b->on_card, b->there, b->out, b->work, b->frequencies, b->table, b->lane};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) cudaFree(all[i]);
    lily_free(b->cache);
    lily_free(b->qg);
}

static cuda_attention bench_attention(const bench *b)
{
    return (cuda_attention){.lane = b->lane,
                            .layer = LAYER,
                            .norm_q = b->there + QG + 2 * KV,
                            .norm_k = b->there + QG + 2 * KV + DIM,
                            .frequency = b->frequencies,
                            .qg = b->there,
                            .kp = b->there + QG,
                            .vp = b->there + QG + KV,
                            .aog = b->out,
                            .work = b->work,
                            .tokens = 1,
                            .q_heads = HEADS,
                            .kv_heads = KV_HEADS,
                            .dim = DIM,
                            .rotary = ROTARY,
                            .eps = eps};
}

/* What the card makes of it; nothing is left over from a run before. */
static void attend(const bench *b, const cuda_attention *a, bool early, float *out)
{
    assert_int_equal(cudaMemset(b->out, 0xFF, OUT * sizeof *out), cudaSuccess);
    assert_int_equal(cudaMemset(b->work, 0xFF, cuda_attend_token_room(HEADS)), cudaSuccess);
    for (uint32_t which = 0; which < 2; which++)
        for (uint32_t head = 0; head < KV_HEADS; head++)
            assert_int_equal(cudaMemset(b->on_card + row_at(b, which, head, b->n - 1), 0xFF, DIM * sizeof *b->cache), cudaSuccess);
    assert_int_equal(cuda_attend_token(a, early, NULL), cudaSuccess);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    assert_int_equal(cudaMemcpy(out, b->out, OUT * sizeof *out, cudaMemcpyDeviceToHost), cudaSuccess);
}

static void norm_rotate(const bench *b, const float *x, const float *weight, double *out)
{
    double square = 0, y[DIM];
    for (int i = 0; i < DIM; i++) square += (double)x[i] * (double)x[i];
    for (int i = 0; i < DIM; i++) out[i] = y[i] = (double)x[i] * (double)weight[i] / sqrt(square / DIM + (double)eps);
    for (int i = 0; i < ROTARY / 2; i++) {
        const double angle = (b->n - 1) * b->frequency[i];
        out[i] = y[i] * cos(angle) - y[i + ROTARY / 2] * sin(angle);
        out[i + ROTARY / 2] = y[i + ROTARY / 2] * cos(angle) + y[i] * sin(angle);
    }
}

static double value_of(const bench *b, uint32_t which, uint32_t head, uint32_t p, uint32_t i)
{
    return (double)lily_bf16_to_float(b->cache[row_at(b, which, head, p) + i]);
}

/* ||got - want|| / ||want|| of a query head. */
static double error_of_head(const bench *b, uint32_t h, const float *got)
{
    double q[DIM], out[DIM] = {0}, top = -1e30, sum = 0, off = 0, all = 0;
    double *score = lily_calloc(b->n, sizeof *score);
    norm_rotate(b, b->qg + (size_t)h * 2 * DIM, b->norm, q);
    for (uint32_t p = 0; p < b->n; p++) {
        for (uint32_t i = 0; i < DIM; i++) score[p] += q[i] * value_of(b, 0, h / SHARE, p, i) / 16;
        if (score[p] > top) top = score[p];
    }
    for (uint32_t p = 0; p < b->n; p++) {
        const double w = exp(score[p] - top);
        sum += w;
        for (uint32_t i = 0; i < DIM; i++) out[i] += w * value_of(b, 1, h / SHARE, p, i);
    }
    for (uint32_t i = 0; i < DIM; i++) {
        const double want = out[i] / sum / (1 + exp(-(double)b->qg[((size_t)h * 2 + 1) * DIM + i]));
        off += (got[h * DIM + i] - want) * (got[h * DIM + i] - want);
        all += want * want;
    }
    lily_free(score);
    return sqrt(off / all);
}

/* The rows that the token added, which become those of `cache`. */
static void check_appended(bench *b)
{
    for (uint32_t head = 0; head < KV_HEADS; head++) {
        double want[DIM];
        norm_rotate(b, b->kp + head * DIM, b->norm + DIM, want);
        for (uint32_t which = 0; which < 2; which++) {
            const size_t at = row_at(b, which, head, b->n - 1);
            assert_int_equal(cudaMemcpy(b->cache + at, b->on_card + at, DIM * sizeof *b->cache, cudaMemcpyDeviceToHost), cudaSuccess);
            for (uint32_t i = 0; i < DIM; i++) {
                const double row = value_of(b, which, head, b->n - 1, i), should = which ? (double)b->vp[head * DIM + i] : want[i];
                assert_true(fabs(row - should) <= fabs(should) / 200 + 1e-3);
            }
        }
    }
}

static const uint32_t contexts[] = {1, 2, 31, 32, 33, 64, 255, 256, 257, 1000, 2112, 2113, 5000, 40000};
enum { N_CONTEXTS = sizeof contexts / sizeof *contexts };

static bool launches_early(void)
{
    int device, major = 0;
    assert_int_equal(cudaGetDevice(&device), cudaSuccess);
    assert_int_equal(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), cudaSuccess);
    return major >= 9;
}

static void agrees_with_double(void **state)
{
    (void)state;
    gpu_or_skip();
    float out[OUT];
    for (int c = 0; c < N_CONTEXTS; c++) {
        bench b;
        bench_open(&b, contexts[c]);
        cuda_attention a = bench_attention(&b);
        for (int general = 0; general < 2; general++) {
            a.general = general;
            attend(&b, &a, launches_early(), out);
            check_appended(&b);
            for (uint32_t h = 0; h < HEADS; h += b.n > 5000 ? 5 : 3)
                gpu_expect(error_of_head(&b, h, out), 4e-3, "%u positions, head %u%s", b.n, h, general ? ", few stretches" : "");
        }
        bench_close(&b);
    }
    gpu_settle();
}

static void same_bytes_however_read(void **state)
{
    (void)state;
    gpu_or_skip();
    float want[OUT], out[OUT];
    for (int c = 0; c < N_CONTEXTS; c++) {
        bench b;
        bench_open(&b, contexts[c]);
        cuda_attention a = bench_attention(&b);
        attend(&b, &a, false, want);
        for (int i = 0; i < 8; i++) {
            a.unpacked = i & 1, a.scattered = i & 2, a.general = false;
            attend(&b, &a, i & 4 && launches_early(), out);
            assert_memory_equal(out, want, sizeof want);
        }
        a.general = true, a.unpacked = a.scattered = false;
        attend(&b, &a, false, want);
        a.unpacked = a.scattered = true;
        attend(&b, &a, false, out);
        assert_memory_equal(out, want, sizeof want);
        bench_close(&b);
    }
}

/* The switches reach the kernel: whole runs of a model with them and without. */
static void replies_are_the_same_without_switches(void **state)
{
    (void)state;
    gpu_or_skip();
    enum { PROMPT = 200, REPLY = 70 };
    static const uint64_t without[] = {0, 1ull << ABLATE_GQA_PACK, 1ull << ABLATE_KV_COALESCE, 1ull << ABLATE_FIXED_BLOCK};
    opened o;
    int32_t tokens[PROMPT + REPLY];
    float *want = NULL;
    open_model(&o, DEMO, 0, 0);
    gpu_tokens(&o, tokens, PROMPT + REPLY);
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        session s;
        lily_done done;
        open_session(&s, &o, &lily_dev_cuda, gpu_variant, 0, without[i], 0);
        float *logits = gpu_run(&s, (lily_lane){.tokens = tokens, .n_tokens = PROMPT}, false, &done);
        for (int k = 0; k < REPLY; k++) {
            lily_free(logits);
            logits = gpu_run(&s, (lily_lane){.tokens = tokens + PROMPT + k, .n_tokens = 1}, true, &done);
        }
        if (i == 0)
            want = logits;
        else if (without[i] >> ABLATE_FIXED_BLOCK & 1)
            assert_true(difference(logits, want, o.config.vocab) < 0.05);
        else
            assert_memory_equal(logits, want, o.config.vocab * sizeof *want);
        if (i) lily_free(logits);
        close_session(&s);
    }
    lily_free(want);
    close_model(&o);
}

int main(int argc, char **argv)
{
    if (argc > 1) gpu_variant = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_double),
        cmocka_unit_test(same_bytes_however_read),
        cmocka_unit_test(replies_are_the_same_without_switches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
