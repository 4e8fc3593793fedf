/* test_engine_sampling.c - the next token: seeds, penalties, log-probabilities; formats that hold whatever the model wants. */
#include <math.h>

#include "base/json.h"
#include "engine_rig.h"
#include "sample/json_schema.h"

/* ---- formats ---- */

static lily_grammar *format(const char *schema)
{
    lily_err e;
    lily_grammar *g;
    json_t *j;
    check_ok(lily_json_parse(&j, schema, strlen(schema), "a schema", &e), &e);
    check_ok(lily_json_schema(&g, j, &e), &e);
    json_decref(j);
    return g;
}

/* Whether the tokens from `from` on are a whole text, or the beginning of one. */
static bool holds(const world *w, lily_grammar *g, const outcome *o, uint32_t from, bool late)
{
    lily_err e;
    lily_matcher *m;
    check_ok(lily_matcher_new(&m, g, late, &e), &e);
    lily_match at = lily_matcher_start(m);
    for (uint32_t i = from; i < o->n; i++) {
        size_t n;
        const char *bytes = lily_token_bytes(lily_engine_tokenizer(w->g), o->ids[i], &n);
        for (size_t k = 0; k < n; k++) at = lily_matcher_step(m, at, (uint8_t)bytes[k]);
    }
    bool yes = o->end == LILY_END_STOP ? lily_matcher_complete(m, at) : at != LILY_MATCH_NONE;
    lily_matcher_free(m);
    return yes;
}

#define SHORT                                                                                                                \
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"maximum\":99},\"s\":{\"type\":\"string\",\"maxLength\":9},"      \
    "\"l\":{\"items\":{\"enum\":[\"a\",null]},\"maxItems\":4}},\"required\":[\"n\",\"s\"]}"

/* A model of random weights says what the format asks for, whatever the seed. */
static void formats_hold(void **state)
{
    const world *w = *state;
    lily_grammar *g = format(SHORT);
    uint32_t whole = 0;
    for (uint64_t seed = 0; seed < 24; seed++) {
        lily_ask ask = greedy(w->text, 20, seed % 4 ? 80 : 5);
        ask.sampling.temperature = 1;
        ask.sampling.seed = seed;
        ask.grammar = g;
        outcome o = run(w->g, &ask);
        assert_true(o.end == LILY_END_STOP || (o.end == LILY_END_LENGTH && o.n == ask.max_tokens));
        assert_true(holds(w, g, &o, 0, false));
        whole += o.end == LILY_END_STOP;
    }
    assert_true(whole >= 10);
    lily_grammar_let_go(g);
}

/* Masks made during the run and before it: the same tokens. */
static void masks_overlap(void **state)
{
    const world *w = *state;
    lily_err e;
    lily_engine *before;
    lily_engine_options o = {.model_dir = TINY,
                             .device = device,
                             .context = CONTEXT,
                             .chunk = CHUNK,
                             .ablated = lily_bit(ABLATE_MASK_OVERLAP)};
    lily_grammar *g = format(SHORT);
    check_ok(lily_engine_open(&before, &o, &e), &e);
    assert_non_null(w->g->m.ahead);
    assert_null(before->m.ahead);
    for (uint64_t seed = 0; seed < 6; seed++) {
        lily_ask ask = greedy(w->text, 20, 60);
        ask.sampling.temperature = 1;
        ask.sampling.seed = seed;
        ask.sampling.logprobs = true;
        ask.grammar = g;
        outcome during = run(w->g, &ask), earlier = run(before, &ask);
        assert_true(during.n > 0);
        check_same(&during, &earlier);
    }
    lily_engine_close(before);
    lily_grammar_let_go(g);
}

/* The thought is free, but it cannot end the turn; the format begins behind it. */
static void formats_hold_behind_a_thought(void **state)
{
    const world *w = *state;
    const lily_tokenizer *t = lily_engine_tokenizer(w->g);
    lily_grammar *g = format("{\"const\":\"yes\"}");
    int32_t end = lily_token_find(t, "</think>", 8), eos = w->g->m.config->eos[0];
    lily_bias to_eos = {eos, 100}, to_end = {end, 100};
    assert_true(end >= 0);
    lily_ask ask = greedy(w->text, 20, 30);
    ask.ignore_eos = false;
    ask.grammar = g;
    ask.in_think = true;
    ask.sampling.n_bias = 1;
    ask.sampling.bias = &to_eos;
    outcome o = run(w->g, &ask);
    assert_true(o.n > 1);
    for (uint32_t i = 0; i < o.n; i++) assert_int_not_equal(o.ids[i], eos);
    ask.sampling.bias = &to_end;
    o = run(w->g, &ask);
    assert_int_equal(o.ids[0], end);
    assert_int_equal(o.end, LILY_END_STOP);
    assert_true(holds(w, g, &o, 1, true));
    lily_grammar_let_go(g);
}

/* ---- sampling ---- */

static lily_ask sampled(const world *w, uint64_t seed)
{
    lily_ask ask = greedy(w->text, PROMPT, 12);
    ask.sampling.temperature = 1.5f;
    ask.sampling.seed = seed;
    return ask;
}

static void seeds(void **state)
{
    const world *w = *state;
    lily_ask one = sampled(w, 1), two = sampled(w, 2);
    outcome a = run(w->g, &one), b = run(w->g, &two), c = run(w->g, &one);
    check_same(&a, &c);
    assert_memory_not_equal(a.ids, b.ids, sizeof a.ids);
}

static void nothing_without_text_is_chosen(void **state)
{
    const world *w = *state;
    int32_t n_vocab = lily_tokenizer_n_vocab(lily_engine_tokenizer(w->g));
    if ((uint32_t)n_vocab >= lily_engine_config(w->g)->vocab) skip();
    lily_bias bias = {n_vocab, 100};
    lily_ask ask = sampled(w, 3);
    ask.sampling.bias = &bias;
    ask.sampling.n_bias = 1;
    outcome o = run(w->g, &ask);
    for (uint32_t i = 0; i < o.n; i++) assert_true(o.ids[i] < n_vocab);
}

/* Two biased tokens take turns only because the penalty counts the reply; that the prompt is full of the first
 * changes nothing. */
static void penalties_count_the_reply(void **state)
{
    const world *w = *state;
    lily_bias bias[2] = {{20, 90}, {21, 80}};
    int32_t prompt[40];
    for (int i = 0; i < 40; i++) prompt[i] = 20;
    lily_ask ask = greedy(prompt, 40, 30);
    ask.sampling.bias = bias;
    ask.sampling.n_bias = 2;
    outcome plain = run(w->g, &ask);
    for (uint32_t i = 0; i < plain.n; i++) assert_int_equal(plain.ids[i], 20);
    ask.sampling.frequency = 2;
    outcome with = run(w->g, &ask);
    assert_int_equal(with.ids[0], 20);
    assert_int_equal(with.ids[1], 20);
    bool other = false;
    for (uint32_t i = 0; i < with.n; i++) other |= with.ids[i] == 21;
    assert_true(other);
    /* The next request starts anew. */
    outcome again = run(w->g, &ask);
    check_same(&with, &again);
}

static void logprobs(void **state)
{
    const world *w = *state;
    lily_ask ask = greedy(w->text, PROMPT, 4);
    ask.sampling.logprobs = true;
    ask.sampling.n_logprobs = 20;
    lily_request *r = submit(w->g, &ask);
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) {
        if (ev->kind != LILY_EVENT_TOKEN) continue;
        assert_int_equal(ev->n_top, 20);
        assert_int_equal(ev->top[0].token, ev->id);
        assert_true(ev->top[0].logprob == ev->logprob);
        double sum = 0;
        for (int i = 0; i < 20; i++) {
            assert_true(i == 0 || ev->top[i].logprob <= ev->top[i - 1].logprob);
            sum += exp(ev->top[i].logprob);
        }
        assert_true(sum > 0 && sum < 1.0001);
    }
    lily_request_free(r);
    /* Not asked for, not sent. */
    ask.sampling.logprobs = false;
    r = submit(w->g, &ask);
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) assert_int_equal(ev->n_top, 0);
    lily_request_free(r);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(formats_hold),
    cmocka_unit_test(masks_overlap),
    cmocka_unit_test(formats_hold_behind_a_thought),
    cmocka_unit_test(seeds),
    cmocka_unit_test(nothing_without_text_is_chosen),
    cmocka_unit_test(penalties_count_the_reply),
    cmocka_unit_test(logprobs),
};

RUN_ENGINE_TESTS(tests)
