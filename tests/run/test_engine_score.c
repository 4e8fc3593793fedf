/* test_engine_score.c - scores and benchmarks on the engine's thread. */
#include <math.h>

#include "engine_rig.h"
#include "run/bench.h"
#include "run/score.h"

static void check_same_score(const lily_scored *want, lily_scored *got)
{
    assert_int_equal(want->n, got->n);
    assert_memory_equal(want->nll, got->nll, (want->n - 1) * sizeof *want->nll);
    assert_memory_equal(want->best, got->best, (want->n - 1) * sizeof *want->best);
    assert_memory_equal(want->top_id, got->top_id, sizeof want->top_id);
    assert_memory_equal(want->top_logit, got->top_logit, sizeof want->top_logit);
    lily_scored_free(got);
}

static void scores(void **state)
{
    const world *w = *state;
    static const uint32_t windows[][4] = {{200, 0}, {1, 199}, {199, 1}, {64, 100, 1, 35}};
    static const uint32_t n_windows[] = {1, 2, 2, 4};
    lily_err e;
    lily_scored want, got;
    check_ok(lily_engine_score(w->g, w->text, 200, NULL, 0, &want, &e), &e);
    assert_int_equal(want.n_top, 20);
    double sum = 0;
    for (int i = 0; i < 199; i++) {
        assert_true(want.nll[i] > 0);
        sum += (double)want.nll[i];
    }
    assert_true(fabs(want.ppl - exp(sum / 199)) < 1e-9 * want.ppl);
    for (int i = 1; i < 20; i++) assert_true(want.top_logit[i] <= want.top_logit[i - 1]);
    /* The same digits again; on ref also for any other passes, there a run's length changes no bit. */
    check_ok(lily_engine_score(w->g, w->text, 200, NULL, 0, &got, &e), &e);
    check_same_score(&want, &got);
    for (int i = 0; i < 4 && strcmp(device, "ref") == 0; i++) {
        check_ok(lily_engine_score(w->g, w->text, 200, windows[i], n_windows[i], &got, &e), &e);
        check_same_score(&want, &got);
    }
    /* The score agrees with what is generated: the top id is the greedy choice. */
    lily_ask ask = greedy(w->text, 200, 1);
    outcome o = run(w->g, &ask);
    assert_int_equal(o.ids[0], want.top_id[0]);
    ask = greedy(w->text, 100, 1);
    o = run(w->g, &ask);
    assert_int_equal(o.ids[0], want.best[99]);
    lily_scored_free(&want);

    static const uint32_t wrong[] = {100, 99};
    check_fails(lily_engine_score(w->g, w->text, 200, wrong, 2, &got, &e), LILY_ARGUMENT, &e);
    check_fails(lily_engine_score(w->g, w->text, 1, NULL, 0, &got, &e), LILY_ARGUMENT, &e);
    int32_t *many = calloc(CONTEXT + 1, sizeof *many);
    check_fails(lily_engine_score(w->g, many, CONTEXT + 1, NULL, 0, &got, &e), LILY_CONTEXT, &e);
    free(many);
}

static void on_result(void *user, const lily_bench_result *r)
{
    unsigned *seen = user;
    assert_int_equal(r->n_samples, 2);
    double low = fmin(r->samples[0], r->samples[1]), high = fmax(r->samples[0], r->samples[1]);
    assert_true(low > 0 && r->tok_s >= low && r->tok_s <= high);
    assert_true(r->context == 20 || r->context == 40);
    assert_int_equal(r->rows, r->phase[0] == 'v' ? 3 : 0);
    *seen |= 1u << ((r->phase[0] == 'd') + 2 * (r->phase[0] == 'v') + 3 * (r->context == 40));
}

static void benchmarks(void **state)
{
    const world *w = *state;
    lily_err e;
    unsigned seen = 0;
    static const uint32_t lengths[] = {20, 40}, rows[] = {3}, too_many[] = {CHUNK + 1};
    lily_bench_options o = {{lengths, 2, 5, 2}, rows, 1};
    check_ok(lily_engine_bench(w->g, &o, on_result, &seen, &e), &e);
    assert_int_equal(seen, 63);
    o.rows = too_many;
    check_fails(lily_engine_bench(w->g, &o, on_result, &seen, &e), LILY_ARGUMENT, &e);
    o.n_rows = 0;
    o.timing.decode_tokens = CONTEXT;
    check_fails(lily_engine_bench(w->g, &o, on_result, &seen, &e), LILY_CONTEXT, &e);
    o.timing = (lily_timing){lengths, 0, 5, 2};
    check_fails(lily_engine_bench(w->g, &o, on_result, &seen, &e), LILY_ARGUMENT, &e);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(scores),
    cmocka_unit_test(benchmarks),
};

RUN_ENGINE_TESTS(tests)
