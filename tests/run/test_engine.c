/* test_engine.c - requests from submit to END: order of events, limits, reuse; opening. */
#include "engine_rig.h"

static void events_in_order(void **state)
{
    const world *w = *state;
    lily_ask ask = greedy(w->text, 100, 7);
    lily_request *r = submit(w->g, &ask);
    uint32_t done = 0, n_tokens = 0, last_kind = 0, n_progress = 0;
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) {
        assert_true(ev->kind >= last_kind);
        last_kind = ev->kind;
        assert_int_equal(ev->n_prompt, 100);
        if (ev->kind == LILY_EVENT_PROGRESS) {
            assert_true(ev->n_done > done);
            done = ev->n_done;
            n_progress++;
        }
        if (ev->kind == LILY_EVENT_TOKEN) {
            size_t n;
            const char *bytes = lily_token_bytes(lily_engine_tokenizer(w->g), ev->id, &n);
            assert_int_equal(ev->n_bytes, n);
            assert_memory_equal(ev->bytes, bytes, n);
            n_tokens++;
        }
        if (ev->kind == LILY_EVENT_END) {
            assert_int_equal(ev->end, LILY_END_LENGTH);
            assert_int_equal(ev->n_generated, 7);
            assert_null(ev->err);
            assert_true(ev->prompt_seconds > 0 && ev->reply_seconds > 0);
        }
    }
    assert_int_equal(done, 100);
    assert_true(n_progress >= 4);
    assert_int_equal(n_tokens, 7);
    assert_int_equal(last_kind, LILY_EVENT_END);
    assert_null(lily_request_next(r));
    lily_request_free(r);
}

static void every_eos_stops(void **state)
{
    const world *w = *state;
    const lily_config *c = lily_engine_config(w->g);
    assert_true(c->n_eos >= 2);
    for (uint32_t i = 0; i < c->n_eos; i++) {
        lily_bias bias = {c->eos[i], 100};
        lily_ask ask = greedy(w->text, PROMPT, 5);
        ask.sampling.bias = &bias;
        ask.sampling.n_bias = 1;
        ask.ignore_eos = false;
        outcome o = run(w->g, &ask);
        assert_int_equal(o.end, LILY_END_STOP);
        assert_int_equal(o.n, 0);
        ask.ignore_eos = true;
        o = run(w->g, &ask);
        assert_int_equal(o.end, LILY_END_LENGTH);
        assert_int_equal(o.n, 5);
        assert_int_equal(o.ids[4], c->eos[i]);
    }
}

static void context_limits_a_reply(void **state)
{
    const world *w = *state;
    lily_engine *g = open_engine(64, 0, 0);
    lily_ask ask = greedy(w->text, 60, 0);
    outcome o = run(g, &ask);
    assert_int_equal(o.n, 4);
    assert_int_equal(o.end, LILY_END_LENGTH);
    ask.max_tokens = 100;
    assert_int_equal(run(g, &ask).n, 4);
    ask = greedy(w->text, 63, 0);
    assert_int_equal(run(g, &ask).n, 1);
    ask = greedy(w->text, 1, 3);
    assert_int_equal(run(g, &ask).n, 3);
    lily_engine_close(g);
}

static void refusals(void **state)
{
    const world *w = *state;
    lily_err e;
    lily_request *r;
    int32_t *many = calloc(5000, sizeof *many);
    lily_ask ask = greedy(many, 5000, 10);
    check_fails(lily_engine_submit(w->g, &ask, &r, &e), LILY_CONTEXT, &e);
    assert_non_null(strstr(e.text, "5000"));
    assert_non_null(strstr(e.text, "1024"));
    ask = greedy(many, CONTEXT, 1);
    check_fails(lily_engine_submit(w->g, &ask, &r, &e), LILY_CONTEXT, &e);
    ask = greedy(many, 0, 1);
    check_fails(lily_engine_submit(w->g, &ask, &r, &e), LILY_ARGUMENT, &e);
    ask = greedy(many, 3, 1);
    many[1] = (int32_t)lily_engine_config(w->g)->vocab;
    check_fails(lily_engine_submit(w->g, &ask, &r, &e), LILY_ARGUMENT, &e);
    many[1] = -1;
    check_fails(lily_engine_submit(w->g, &ask, &r, &e), LILY_ARGUMENT, &e);
    many[1] = 0;
    lily_bias bias = {(int32_t)lily_engine_config(w->g)->vocab, 1};
    ask.sampling.bias = &bias;
    ask.sampling.n_bias = 1;
    check_fails(lily_engine_submit(w->g, &ask, &r, &e), LILY_ARGUMENT, &e);
    ask = greedy(many, 3, 1);
    ask.sampling.n_logprobs = 21;
    check_fails(lily_engine_submit(w->g, &ask, &r, &e), LILY_ARGUMENT, &e);
    static const uint32_t bad[][2] = {{0, 1}, {2, 2}, {2, 4}};
    for (int i = 0; i < 3; i++) {
        ask = greedy(many, 3, 1);
        ask.marks = bad[i];
        ask.n_marks = 2;
        check_fails(lily_engine_submit(w->g, &ask, &r, &e), LILY_ARGUMENT, &e);
    }
    free(many);
}

static void reuse_is_told(void **state)
{
    const world *w = *state;
    lily_ask ask = greedy(w->text, PROMPT, 5);
    outcome first = run(w->g, &ask), second = run(w->g, &ask);
    assert_int_equal(second.n_reused, PROMPT - 1);
    check_same(&first, &second);
    ask.no_reuse = true;
    second = run(w->g, &ask);
    assert_int_equal(second.n_reused, 0);
    check_same(&first, &second);
    ask.no_reuse = false;
    second = run(w->g, &ask);
    assert_int_equal(second.n_reused, PROMPT - 1);
    check_same(&first, &second);
    /* What was read without reuse is not kept. */
    ask = greedy(w->text + 1, PROMPT, 5);
    ask.no_reuse = true;
    (void)run(w->g, &ask);
    ask.no_reuse = false;
    assert_int_equal(run(w->g, &ask).n_reused, 0);
}

/* ---- opening ---- */

static void opening_is_refused(void **state)
{
    (void)state;
    lily_err e;
    lily_engine *g;
    lily_memory m;
    uint32_t context;
    lily_engine_options o = {.model_dir = TINY, .device = device, .memory_limit = 1 << 20};
    check_fails(lily_engine_open(&g, &o, &e), LILY_NO_MEMORY, &e);
    assert_non_null(strstr(e.text, "GiB"));
    check_fails(lily_engine_check(&o, &m, &context, &e), LILY_NO_MEMORY, &e);
    o.memory_limit = 0;
    o.context = 1u << 30;
    check_fails(lily_engine_open(&g, &o, &e), LILY_ARGUMENT, &e);
    o.context = 0;
    o.device = "abacus";
    check_fails(lily_engine_open(&g, &o, &e), LILY_ARGUMENT, &e);
    o.device = device;
    o.model_dir = "/nowhere";
    assert_int_not_equal(lily_engine_open(&g, &o, &e), LILY_OK);
}

static void check_and_open_agree(void **state)
{
    const world *w = *state;
    lily_err e;
    lily_memory m;
    uint32_t context;
    lily_engine_options o = {
        .model_dir = TINY, .device = device, .context = CONTEXT, .chunk = CHUNK, .cache_bytes = CACHE};
    check_ok(lily_engine_check(&o, &m, &context, &e), &e);
    assert_memory_equal(&m, lily_engine_memory(w->g), sizeof m);
    assert_int_equal(m.planned, m.weights + m.device + m.kv + m.state + m.replies + m.cache + m.scratch);
    assert_int_equal(context, CONTEXT);
    assert_string_equal(lily_engine_model_name(w->g), "tiny");
    assert_int_equal(lily_engine_sampling(w->g)->top_k, 20);
    assert_int_not_equal(lily_engine_plan_hash(w->g, LILY_DECODE), lily_engine_plan_hash(w->g, LILY_PREFILL));
    assert_int_equal(strlen(lily_engine_fingerprint(w->g)), 32);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(events_in_order),
    cmocka_unit_test(every_eos_stops),
    cmocka_unit_test(context_limits_a_reply),
    cmocka_unit_test(refusals),
    cmocka_unit_test(reuse_is_told),
    cmocka_unit_test(opening_is_refused),
    cmocka_unit_test(check_and_open_agree),
};

RUN_ENGINE_TESTS(tests)
