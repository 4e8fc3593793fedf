/* test_engine_faults.c - memory is lost while a request runs, is submitted, or an engine is opened. */
#include "engine_rig.h"

/* wake runs on the engine's thread: the first one makes that thread's n-th allocation from there on fail. */
typedef struct fault {
    int64_t after;
    atomic_bool armed;
} fault;

static void arm(void *user)
{
    fault *f = user;
    if (!atomic_exchange(&f->armed, true)) lily_mem_fail_after(f->after);
}

static void disarm(void *user)
{
    *(int64_t *)user = lily_mem_count();
    lily_mem_fail_after(-1);
}

static void engine_loses_memory(void **state)
{
    const world *w = *state;
    lily_ask ask = greedy(w->text, PROMPT, 6);
    ask.no_reuse = true;
    outcome want = run(w->g, &ask);
    int failures = 0;
    int64_t asked = 1;
    for (int64_t after = 0; asked >= after; after++) {
        fault f = {.after = after};
        lily_ask faulty = ask;
        faulty.wake = arm;
        faulty.user = &f;
        outcome o = run(w->g, &faulty);
        lily_queue_call(w->g->queue, disarm, &asked);
        if (o.end == LILY_END_ERROR) {
            assert_int_equal(o.err.code, LILY_NO_MEMORY);
            failures++;
        } else {
            assert_true(asked <= after);
        }
        o = run(w->g, &ask);
        check_same(&want, &o);
    }
    assert_true(failures > 5);
}

static void submit_loses_memory(void **state)
{
    const world *w = *state;
    lily_bias bias = {1, 1};
    lily_ask ask = greedy(w->text, PROMPT, 1);
    ask.sampling.bias = &bias;
    ask.sampling.n_bias = 1;
    int rc = LILY_NO_MEMORY;
    for (int64_t after = 0; rc != LILY_OK; after++) {
        lily_err e;
        lily_request *r;
        lily_mem_fail_after(after);
        rc = lily_engine_submit(w->g, &ask, &r, &e);
        lily_mem_fail_after(-1);
        if (rc == LILY_OK)
            lily_request_free(r);
        else
            assert_int_equal(rc, LILY_NO_MEMORY);
        assert_true(after < 100);
    }
}

/* A sample of the places where opening can lose memory. */
static void open_loses_memory(void **state)
{
    (void)state;
    lily_engine_options o = {.model_dir = TINY, .device = device, .context = 64};
    lily_memory memory;
    uint32_t context;
    lily_err e;
    lily_mem_fail_after(-1);
    check_ok(lily_engine_check(&o, &memory, &context, &e), &e);
    int64_t n = lily_mem_count();
    for (int i = 0; i < 40; i++) {
        lily_engine *g = NULL;
        lily_mem_fail_after(i < 20 ? i : n * (i - 19) / 20 - 5 + i % 5);
        int rc = lily_engine_open(&g, &o, &e);
        lily_mem_fail_after(-1);
        if (rc == LILY_OK)
            lily_engine_close(g);
        else
            assert_null(g);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(engine_loses_memory),
    cmocka_unit_test(submit_loses_memory),
    cmocka_unit_test(open_loses_memory),
};

RUN_ENGINE_TESTS(tests)
