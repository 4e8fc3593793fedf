/* test_cpu_kernels.c - each kernel of each table against its formula in double. */
#include "kernels_check.h"

#include "base/bytes.h"

static void norms(void **state)
{
    (void)state;
    FOR_TABLES(k) for (uint32_t n = 1; n < 300; n += 13)
    {
        float *x = random_floats(n, 1), *w = random_floats(n, 2), *z = random_floats(n, 3), *y = random_floats(n, 4);
        double square = 0;
        for (uint32_t i = 0; i < n; i++) square += (double)x[i] * x[i];
        double rms = 1 / sqrt(square / n + 1e-6), l2 = 0.5 / sqrt(square + 1e-6);
        k->rmsnorm(x, w, n, 1e-6f, y);
        for (uint32_t i = 0; i < n; i++) check_near(y[i], x[i] * rms * w[i], 1e-6, "rmsnorm");
        k->gated_rmsnorm(x, w, z, n, 1e-6f, y);
        for (uint32_t i = 0; i < n; i++)
            check_near(y[i], x[i] * rms * w[i] * z[i] / (1 + exp(-(double)z[i])), 1e-6, "gated rmsnorm");
        k->l2norm(x, n, 1e-6f, 0.5f, y);
        for (uint32_t i = 0; i < n; i++) check_near(y[i], x[i] * l2, 1e-6, "l2norm");
        check_near(k->dot(x, x, n), square, 1e-5, "dot");
        lily_free_aligned(x);
        lily_free_aligned(w);
        lily_free_aligned(z);
        lily_free_aligned(y);
    }
}

static void activations(void **state)
{
    (void)state;
    enum { N = 4001 };
    FOR_TABLES(k)
    {
        float *x = random_floats(N, 1), *one = random_floats(N, 2), *y = random_floats(N, 3);
        for (int i = 0; i < N; i++) {
            x[i] = (float)(i - N / 2) * 0.04f;    /* -80 … 80 */
            one[i] = 1;
        }
        k->silu_mul(x, one, N, y);
        for (int i = 0; i < N; i++) {
            double want = x[i] / (1 + exp(-(double)x[i]));
            check_near(y[i], want, fabs(want) * 4e-7 + 1e-38, "silu");
        }
        k->sigmoid_mul(one, x, N, y);
        for (int i = 0; i < N; i++) {
            double want = 1 / (1 + exp(-(double)x[i]));
            check_near(y[i], want, want * 4e-7, "sigmoid");
        }
        const float far[9] = {-INFINITY, INFINITY, NAN, -1000, 1000, -104, 104, -88, 89};
        k->sigmoid_mul(one, far, 9, y);
        const float want[9] = {0, 1, NAN, 0, 1, 0, 1, 0, 1};
        for (int i = 0; i < 9; i++) {
            if (i == 2)
                assert_true(isnan(y[i]));
            else
                check_near(y[i], want[i], 1e-37, "sigmoid far out");
        }
        k->add(x, one, N, y);
        k->axpy(2.0f, one, N, y);
        for (int i = 0; i < N; i++) check_near(y[i], x[i] + 3.0, 2e-5, "add, axpy");
        lily_free_aligned(x);
        lily_free_aligned(one);
        lily_free_aligned(y);
    }
}

static void rounding(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        float x[11] = {1.0f, 1.00390625f, 1.01171875f, -3.0e38f, 3.4e38f, INFINITY, NAN, 0.0f, -0.0f, 1e-40f, 1.0039064f};
        uint16_t y[11];
        k->to_bf16(x, 11, y);
        for (int i = 0; i < 11; i++) {
            if (i == 6)
                assert_true(isnan(lily_bf16_to_float(y[i])));
            else
                assert_int_equal(y[i], lily_float_to_bf16(x[i]));
        }
    }
}

static void rotation(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        float x[14], before[14], cosine[7], sine[7];
        for (int i = 0; i < 14; i++) before[i] = x[i] = random_float(1, (uint64_t)i);
        for (int i = 0; i < 7; i++) cosine[i] = cosf((float)i), sine[i] = sinf((float)i);
        k->rope(x, cosine, sine, 7);
        for (int i = 0; i < 7; i++) {
            check_near(x[i], before[i] * cos(i) - before[i + 7] * sin(i), 1e-6, "rope, first half");
            check_near(x[i + 7], before[i + 7] * cos(i) + before[i] * sin(i), 1e-6, "rope, second half");
        }
    }
}

static void convolution(void **state)
{
    (void)state;
    enum { C = 77, T = 9, TAPS = 4 };
    float *u = random_floats(T * C, 1), *tail = random_floats(3 * C, 2), *w = random_floats(C * TAPS, 3),
          *y = random_floats(T * C, 4), *alone = random_floats(C, 5);
    FOR_TABLES(k)
    {
        k->conv_silu(u, tail, w, TAPS, C, 0, 64, T, y, C);
        k->conv_silu(u, tail, w, TAPS, C, 64, C, T, y + 64, C);
        for (int t = 0; t < T; t++)
            for (int c = 0; c < C; c++) {
                double sum = 0;
                for (int j = 0; j < TAPS; j++) {
                    int at = t + j - 3;
                    sum += w[c * TAPS + j] * (double)(at < 0 ? tail[(at + 3) * C + c] : u[at * C + c]);
                }
                check_near(y[t * C + c], sum / (1 + exp(-sum)), 2e-6, "convolution");
            }
        /* The last token by itself, its predecessors as the tail. */
        k->conv_silu(u + (T - 1) * C, u + (T - 4) * C, w, TAPS, C, 0, C, 1, alone, C);
        assert_memory_equal(alone, y + (T - 1) * C, sizeof(float) * C);
    }
    lily_free_aligned(u);
    lily_free_aligned(tail);
    lily_free_aligned(w);
    lily_free_aligned(y);
    lily_free_aligned(alone);
}

/* ---- attention ---- */

enum { POSITIONS = 107, QUERIES = 11 };

static void attend(const lily_cpu_kernels *k, const uint16_t *keys, const uint16_t *values, uint32_t dim, const float *q,
                   const uint32_t *limit, uint32_t nq, uint32_t split, float *out)
{
    size_t wide = LILY_CPU_PAD8(dim);
    float *a = random_floats(2 * nq + nq * wide, 1), *b = random_floats(2 * nq + nq * wide, 1);
    void *scratch = lily_calloc_aligned(k->attn_scratch(dim, nq), 64);
    uint32_t part[QUERIES];
    lily_cpu_softmax sa = {a, a + nq, a + 2 * nq}, sb = {b, b + nq, b + 2 * nq};
    lily_cpu_softmax_begin(&sa, nq, dim);
    lily_cpu_softmax_begin(&sb, nq, dim);
    for (uint32_t i = 0; i < nq; i++) part[i] = limit[i] < split ? limit[i] : split;
    lily_cpu_span s = {keys, values, dim, split};
    k->attn_span(&s, q, part, nq, dim, &sa, scratch);
    for (uint32_t i = 0; i < nq; i++) part[i] = limit[i] > split ? limit[i] - split : 0;
    s = (lily_cpu_span){keys + split * dim, values + split * dim, dim, POSITIONS - split};
    k->attn_span(&s, q, part, nq, dim, &sb, scratch);
    lily_cpu_softmax_merge(&sa, &sb, nq, dim);
    for (uint32_t i = 0; i < nq; i++)
        for (uint32_t d = 0; d < dim; d++) out[i * dim + d] = sa.out[i * wide + d] / sa.sum[i];
    lily_free_aligned(a);
    lily_free_aligned(b);
    lily_free_aligned(scratch);
}

static void check_attention(const lily_cpu_kernels *k, uint32_t dim, float size)
{
    size_t wide = LILY_CPU_PAD8(dim);
    float *x = random_floats(2 * POSITIONS * dim, 2), *q = random_floats(QUERIES * wide, 3),
          *out = random_floats(QUERIES * dim, 4), *alone = random_floats(dim, 5);
    uint16_t *kv = lily_calloc(2 * POSITIONS * dim, sizeof *kv);
    uint32_t limit[QUERIES];
    k->to_bf16(x, 2 * POSITIONS * dim, kv);
    for (uint32_t i = 0; i < QUERIES; i++) {
        limit[i] = 1 + i * (POSITIONS - 1) / (QUERIES - 1);
        for (uint32_t d = 0; d < wide; d++) q[i * wide + d] = d < dim ? q[i * wide + d] * size : 0;
    }
    attend(k, kv, kv + POSITIONS * dim, dim, q, limit, QUERIES, 64, out);
    for (uint32_t i = 0; i < QUERIES; i++) {
        double w[POSITIONS], top = -INFINITY, sum = 0;
        for (uint32_t p = 0; p < limit[i]; p++) {
            w[p] = 0;
            for (uint32_t d = 0; d < dim; d++) w[p] += (double)q[i * wide + d] * lily_bf16_to_float(kv[p * dim + d]);
            top = fmax(top, w[p]);
        }
        for (uint32_t p = 0; p < limit[i]; p++) sum += w[p] = exp(w[p] - top);
        for (uint32_t d = 0; d < dim; d++) {
            double want = 0;
            for (uint32_t p = 0; p < limit[i]; p++)
                want += w[p] / sum * lily_bf16_to_float(kv[(POSITIONS + p) * dim + d]);
            check_near(out[i * dim + d], want, 2e-5, "attention");
        }
        attend(k, kv, kv + POSITIONS * dim, dim, q + i * wide, limit + i, 1, 64, alone);
        assert_memory_equal(alone, out + i * dim, sizeof(float) * dim);
    }
    lily_free_aligned(x);
    lily_free_aligned(q);
    lily_free_aligned(out);
    lily_free_aligned(alone);
    lily_free(kv);
}

static void attention(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        check_attention(k, 256, 0.3f);
        check_attention(k, 64, 1.0f);
        check_attention(k, 24, 40.0f);    /* weights far below the maximum */
        check_attention(k, 10, 1.0f);
    }
}

/* ---- choosing ---- */

static void experts(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        const float logits[12] = {1, 3, 2, 3, -5, 3, 0, 2, 9, 1, 2, -INFINITY};
        uint32_t ids[5];
        float w[5];
        k->topk_softmax(logits, 12, 5, ids, w);
        const uint32_t want[5] = {8, 1, 3, 5, 2};
        double sum = exp(0) + 3 * exp(-6) + exp(-7);
        for (int i = 0; i < 5; i++) assert_int_equal(ids[i], want[i]);
        check_near(w[0], 1 / sum, 1e-6, "weight");
        check_near(w[4], exp(-7) / sum, 1e-8, "weight");
    }
}

static void tokens(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        float *x = random_floats(1003, 1);
        x[77] = x[500] = x[1002] = 2;
        assert_int_equal(k->argmax(x, 1003), 77);
        x[1002] = 3;
        assert_int_equal(k->argmax(x, 1003), 1002);
        x[3] = NAN;
        assert_int_equal(k->argmax(x, 1003), 1002);
        x[3] = 0;
        double sum = 0;
        for (int i = 0; i < 1003; i++) sum += exp((double)x[i]);
        check_near(k->exp_sum(x, 1003, 3), sum * exp(-3), 1e-6 * sum, "sum of exponentials");
        lily_free_aligned(x);
    }
}

static void selection(void **state)
{
    (void)state;
    assert_ptr_equal(lily_cpu_select("portable"), &lily_cpu_portable);
    assert_non_null(lily_cpu_select(NULL));
    assert_ptr_equal(lily_cpu_select(NULL), lily_cpu_select("auto"));
    assert_null(lily_cpu_select("sse9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms), cmocka_unit_test(activations), cmocka_unit_test(rounding),
        cmocka_unit_test(rotation), cmocka_unit_test(convolution), cmocka_unit_test(attention), cmocka_unit_test(experts),
        cmocka_unit_test(tokens), cmocka_unit_test(selection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
