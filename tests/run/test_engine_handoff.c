/* test_engine_handoff.c - runs that are submitted before the token in front of them is read: the same answers, whatever
 * comes between. */
#include <unistd.h>

#include "base/json.h"
#include "engine_rig.h"
#include "sample/call_grammar.h"

static outcome run_as(const world *w, const lily_ask *ask, bool handed)
{
    hand_over(w->g, handed);
    outcome o = run(w->g, ask);
    hand_over(w->g, false);
    return o;
}

/* What comes after events that were thrown away. */
static void drain_rest(lily_request *r, outcome *out)
{
    *out = (outcome){0};
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) {
        if (ev->kind == LILY_EVENT_TOKEN) out->ids[out->n++] = ev->id;
        if (ev->kind == LILY_EVENT_END) out->end = ev->end;
    }
}

static void check_both(const world *w, const lily_ask *ask)
{
    outcome want = run_as(w, ask, false);
    hand_over(w->g, true);
    outcome got = run(w->g, ask);
    assert_int_equal(atomic_load(&late_device.handed), got.n ? got.n - (got.end == LILY_END_LENGTH) : 0);
    hand_over(w->g, false);
    check_same(&want, &got);
    assert_int_equal(want.end, got.end);
    for (uint32_t i = 0; ask->sampling.logprobs && i < want.n; i++) assert_true(want.logprob[i] == got.logprob[i]);
}

static void same_answers(void **state)
{
    const world *w = *state;
    lily_ask ask = greedy(w->text, PROMPT, 30);
    check_both(w, &ask);
    ask.max_tokens = 1;
    check_both(w, &ask);
    ask.max_tokens = 25;
    ask.sampling = (lily_sampling){.temperature = 1.3f, .top_p = 0.9f, .repetition = 1.3f, .presence = 0.4f, .seed = 9, .logprobs = true};
    for (ask.sampling.seed = 0; ask.sampling.seed < 8; ask.sampling.seed++) check_both(w, &ask);
    ask.ignore_eos = false;
    lily_bias often = {w->g->m.config->eos[0], 5};
    ask.sampling.n_bias = 1;
    ask.sampling.bias = &often;
    for (ask.sampling.seed = 0; ask.sampling.seed < 16; ask.sampling.seed++) {
        outcome want = run_as(w, &ask, false), got = run_as(w, &ask, true);
        check_same(&want, &got);
        assert_int_equal(want.end, got.end);
    }
}

static void the_context_is_the_end(void **state)
{
    const world *w = *state;
    lily_ask ask = greedy(w->text, CONTEXT - 124, 0);
    check_both(w, &ask);
}

/* The turn's end has been read too: who goes on from there finds it, and the answer is that of a prompt read anew. */
static void the_next_turn_reuses_all(void **state)
{
    const world *w = *state;
    int32_t next[2 * PROMPT];
    lily_ask ask = greedy(w->text, PROMPT, 40);
    lily_bias often = {w->g->m.config->eos[0], 6};
    ask.ignore_eos = false;
    ask.sampling = (lily_sampling){.temperature = 1, .top_p = 1, .repetition = 1, .n_bias = 1, .bias = &often};
    outcome o = {0};
    for (; o.end != LILY_END_STOP || o.n < 3; ask.sampling.seed++) {
        lily_engine_cache_clear(w->g);
        while (atomic_load(&w->g->clear)) usleep(1000);        /* the engine's thread does it */
        o = run_as(w, &ask, true);
    }
    uint32_t n = PROMPT;
    memcpy(next, w->text, PROMPT * sizeof *next);
    for (uint32_t i = 0; i < o.n && n < 2 * PROMPT - 20; i++) next[n++] = o.ids[i];
    next[n++] = often.token;
    const uint32_t known = n;
    for (uint32_t i = 0; i < 10; i++) next[n++] = w->text[i];
    lily_ask more = greedy(next, n, 12);
    hand_over(w->g, true);
    outcome warm = run(w->g, &more);
    assert_int_equal(warm.n_reused, known);
    more.no_reuse = true;
    outcome cold = run(w->g, &more);
    hand_over(w->g, false);
    check_same(&warm, &cold);
}

/* Others come while one replies; their runs go between. */
static void others_come_between(void **state)
{
    const world *w = *state;
    lily_ask ask = greedy(w->text, PROMPT, 60), other = greedy(w->text + 100, PROMPT, 20);
    ask.sampling.temperature = other.sampling.temperature = 1;
    outcome want = run_as(w, &ask, false), want_other = run_as(w, &other, false), got, got_other;
    hand_over(w->g, true);
    for (int round = 0; round < 4; round++) {
        lily_request *r = submit(w->g, &ask), *q;
        for (int i = 0; i <= round; i++) wait_for(r, LILY_EVENT_TOKEN);
        q = submit(w->g, &other);
        drain(q, &got_other);
        drain_rest(r, &got);
        check_same(&want_other, &got_other);
        assert_int_equal(got.n, want.n - (uint32_t)round - 1);
        assert_memory_equal(got.ids, want.ids + round + 1, got.n * sizeof *got.ids);
        lily_request_free(r);
        lily_request_free(q);
    }
    hand_over(w->g, false);
}

#define TOOLS                                                                                                               \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":"      \
    "{\"n\":{\"type\":\"integer\",\"maximum\":99}},\"required\":[\"n\"],\"additionalProperties\":false}}}]"

/* A call begins in the middle of free text: what was chosen behind its first token is chosen again. */
static void a_call_begins(void **state)
{
    const world *w = *state;
    lily_err e;
    json_t *tools;
    check_ok(lily_json_parse(&tools, TOOLS, strlen(TOOLS), "tools", &e), &e);
    lily_ask ask = greedy(w->text, PROMPT, 60);
    check_ok(lily_call_grammar(&ask.calls, tools, NULL, &e), &e);
    lily_bias often = {lily_token_find(lily_engine_tokenizer(w->g), "<tool_call>", 11), 6};
    ask.sampling = (lily_sampling){.temperature = 1, .top_p = 1, .repetition = 1, .n_bias = 1, .bias = &often};
    unsigned again = 0;
    for (ask.sampling.seed = 0; ask.sampling.seed < 12; ask.sampling.seed++) {
        outcome want = run_as(w, &ask, false);
        hand_over(w->g, true);
        outcome got = run(w->g, &ask);
        again += atomic_load(&late_device.again);
        assert_true(atomic_load(&late_device.handed) > 0);
        check_same(&want, &got);
    }
    hand_over(w->g, false);
    assert_true(again > 3);
    lily_grammar_let_go(ask.calls);
    json_decref(tools);
}

static void cancelled_and_failed(void **state)
{
    const world *w = *state;
    lily_ask ask = greedy(w->text, PROMPT, 200), small = greedy(w->text, PROMPT, 20);
    outcome want = run_as(w, &small, false), o;
    hand_over(w->g, true);
    lily_request *r = submit(w->g, &ask);
    wait_for(r, LILY_EVENT_TOKEN);
    lily_request_cancel(r);
    drain_rest(r, &o);
    assert_int_equal(o.end, LILY_END_CANCELLED);
    lily_request_free(r);
    o = run(w->g, &small);
    check_same(&want, &o);
    for (int n = 0; n < 4; n++) {
        atomic_store(&late_device.until_fault, n);
        o = run(w->g, &small);
        assert_int_equal(o.end, LILY_END_ERROR);
        assert_non_null(strstr(o.err.text, "planted failure"));
        atomic_store(&late_device.until_fault, -1);
        o = run(w->g, &small);
        check_same(&want, &o);
    }
    hand_over(w->g, false);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(same_answers),          cmocka_unit_test(the_context_is_the_end),
    cmocka_unit_test(the_next_turn_reuses_all), cmocka_unit_test(others_come_between),
    cmocka_unit_test(a_call_begins),         cmocka_unit_test(cancelled_and_failed),
};

RUN_ENGINE_TESTS(tests)
