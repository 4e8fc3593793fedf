/* The delta rule of each kernel table against the recurrence of docs/model.md in double. */
#include <math.h>
#include <string.h>

#include "kernels_check.h"

typedef struct head {
    uint32_t dk, dv, tokens;
    float *state, *q, *k, *v, *decay, *beta, *kq, *out;
} head;

/* How decay and v are drawn: as log-decays and values in these ranges. */
typedef struct range {
    float g_low, g_high, v_low, v_high;
} range;

static float between(float low, float high, float unit) { return low + (high - low) * (0.5f + 0.5f * unit); }

static head make_head(uint32_t dk, uint32_t dv, uint32_t tokens, const range *r)
{
    head h = {dk, dv, tokens, random_floats((size_t)dk * dv, 1), random_floats((size_t)tokens * dk, 2),
              random_floats((size_t)tokens * dk, 3), random_floats((size_t)tokens * dv, 4),
              random_floats(tokens, 5), random_floats(tokens, 6), random_floats(tokens, 7),
              random_floats((size_t)tokens * dv, 8)};
    for (uint32_t t = 0; t < tokens; t++) {
        lily_cpu_portable.l2norm(h.q + (size_t)t * dk, dk, 1e-6f, 1.0f, h.q + (size_t)t * dk);
        lily_cpu_portable.l2norm(h.k + (size_t)t * dk, dk, 1e-6f, 1.0f, h.k + (size_t)t * dk);
        h.kq[t] = lily_cpu_portable.dot(h.q + (size_t)t * dk, h.k + (size_t)t * dk, dk);
        h.beta[t] = 0.5f + 0.5f * h.beta[t];
        h.decay[t] = expf(between(r->g_low, r->g_high, h.decay[t]));
        for (uint32_t i = 0; i < dv; i++) h.v[(size_t)t * dv + i] = between(r->v_low, r->v_high, h.v[(size_t)t * dv + i]);
    }
    return h;
}

static void free_head(head *h)
{
    float *all[] = {h->state, h->q, h->k, h->v, h->decay, h->beta, h->kq, h->out};
    for (int i = 0; i < 8; i++) lily_free_aligned(all[i]);
}

static void run_head(const lily_cpu_kernels *k, head *h, uint32_t from, uint32_t to)
{
    lily_cpu_delta d = {.state = h->state, .q = h->q + from * h->dk, .k = h->k + from * h->dk,
                        .v = h->v + from * h->dv, .decay = h->decay + from, .beta = h->beta + from,
                        .out = h->out + from * h->dv, .kq = h->kq + from, .q_stride = h->dk, .k_stride = h->dk,
                        .v_stride = h->dv, .gate_stride = 1, .out_stride = h->dv, .dk = h->dk, .dv = h->dv,
                        .tokens = to - from};
    uint32_t cut = h->dv / 2;
    k->delta_rule(&d, 0, cut);
    k->delta_rule(&d, cut, h->dv);
}

/* model.md section 4, step 5, word for word. */
static void recurrence(const head *h, double *s, double *out)
{
    for (uint32_t t = 0; t < h->tokens; t++)
        for (uint32_t v = 0; v < h->dv; v++) {
            double *row = s + (size_t)v * h->dk, r = 0, o = 0;
            for (uint32_t i = 0; i < h->dk; i++) {
                row[i] *= (double)h->decay[t];
                r += row[i] * (double)h->k[t * h->dk + i];
            }
            double d = (double)h->beta[t] * ((double)h->v[t * h->dv + v] - r);
            for (uint32_t i = 0; i < h->dk; i++) {
                row[i] += d * (double)h->k[t * h->dk + i];
                o += row[i] * (double)h->q[t * h->dk + i];
            }
            out[t * h->dv + v] = o;
        }
}

static void check_delta(const lily_cpu_kernels *k, uint32_t dk, uint32_t dv, uint32_t tokens, const range *r)
{
    head whole = make_head(dk, dv, tokens, r), cut = make_head(dk, dv, tokens, r);
    double *s = lily_calloc((size_t)dk * dv, sizeof *s), *out = lily_calloc((size_t)tokens * dv, sizeof *out);
    for (uint32_t i = 0; i < dk * dv; i++) s[i] = whole.state[i];
    recurrence(&whole, s, out);
    run_head(k, &whole, 0, tokens);
    for (uint32_t i = 0; i < tokens * dv; i++) check_near(whole.out[i], out[i], 2e-5, "delta rule, output");
    for (uint32_t i = 0; i < dk * dv; i++) check_near(whole.state[i], s[i], 2e-5, "delta rule, state");
    for (uint32_t t = 0; t < tokens;) {
        uint32_t n = 1 + t * 7 % 5;
        if (n > tokens - t) n = tokens - t;
        run_head(k, &cut, t, t + n);
        t += n;
    }
    assert_memory_equal(cut.out, whole.out, sizeof(float) * tokens * dv);
    assert_memory_equal(cut.state, whole.state, sizeof(float) * dk * dv);
    lily_free(s);
    lily_free(out);
    free_head(&whole);
    free_head(&cut);
}

static const range usual = {-0.7f, 0, -1, 1};

/* Whatever the number of tokens in one call, outputs and state are those of the recurrence, and the same bits as
 * with the tokens cut in another way. */
static void any_number_of_tokens(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        for (uint32_t tokens = 1; tokens <= 130; tokens++) check_delta(k, 128, 16, tokens, &usual);
        for (uint32_t tokens = 2047; tokens <= 2050; tokens++) check_delta(k, 128, 16, tokens, &usual);
        check_delta(k, 128, 128, 130, &usual);
        check_delta(k, 32, 32, 65, &usual);
        check_delta(k, 20, 7, 33, &usual);
    }
}

/* Log-decays as measured on the real model, and states that are forgotten at once, never, or through the subnormal
 * numbers: finite, and equal to the recurrence. */
static void extreme_decay(void **state)
{
    (void)state;
    const range measured = {-316, -0.0001f, -0.3f, 25};
    FOR_TABLES(k)
    {
        check_delta(k, 128, 16, 4096, &measured);
        const float logs[] = {-1000, 0, -69, -101, -1e-7f};
        for (int i = 0; i < 5; i++) check_delta(k, 128, 16, 70, &(range){logs[i], logs[i], -0.3f, 25});
    }
}

/* The field cases' names: NU01, NU06.  Without one, both. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_number_of_tokens), cmocka_unit_test(extreme_decay)};
    if (argc > 1) cmocka_set_test_filter(strcmp(argv[1], "NU01") == 0 ? "any_number_of_tokens" : "extreme_decay");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
