/* test_engine.c - requests from submit to END: order of events, limits, sampling, cancels in every phase, the queue,
 * lost memory; scores and benchmarks on the same thread. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "run/bench.h"
#include "run/engine_inside.h"
#include "run/score.h"
#include "sample/json_schema.h"
#include "text.h"

enum { CONTEXT = 1024, CHUNK = 32, PROMPT = 50, LONG = 900, CACHE = 32 << 20 };

/* The program's argument: the tests are run on each device. */
static const char *device = "ref";

typedef struct world {
    lily_engine *g;
    int32_t *text;      /* [LONG] */
} world;

static lily_engine *open_engine(uint32_t context, uint32_t queue, uint32_t parallel)
{
    lily_err e;
    lily_engine *g;
    lily_engine_options o = {.model_dir = TINY,
                             .device = device,
                             .context = context,
                             .chunk = CHUNK,
                             .queue = queue,
                             .parallel = parallel,
                             .cache_bytes = CACHE};
    check_ok(lily_engine_open(&g, &o, &e), &e);
    return g;
}

static lily_ask greedy(const int32_t *tokens, uint32_t n, uint32_t max_tokens)
{
    return (lily_ask){.tokens = tokens,
                      .n_tokens = n,
                      .max_tokens = max_tokens,
                      .sampling = {.top_p = 1, .repetition = 1},
                      .ignore_eos = true,
                      .script_reply = -1};
}

typedef struct outcome {
    int32_t ids[CONTEXT];
    uint32_t n, n_reused;
    enum lily_end end;
    lily_err err;
} outcome;

static void drain(lily_request *r, outcome *out)
{
    *out = (outcome){0};
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) {
        if (ev->kind == LILY_EVENT_START) out->n_reused = ev->n_reused;
        if (ev->kind == LILY_EVENT_TOKEN) out->ids[out->n++] = ev->id;
        if (ev->kind != LILY_EVENT_END) continue;
        out->end = ev->end;
        assert_int_equal(ev->n_generated, out->n);
        if (ev->err) out->err = *ev->err;
    }
}

static lily_request *submit(lily_engine *g, const lily_ask *ask)
{
    lily_err e;
    lily_request *r;
    check_ok(lily_engine_submit(g, ask, &r, &e), &e);
    return r;
}

static outcome run(lily_engine *g, const lily_ask *ask)
{
    outcome o;
    lily_request *r = submit(g, ask);
    drain(r, &o);
    lily_request_free(r);
    return o;
}

static void check_same(const outcome *a, const outcome *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
}

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

/* ---- events ---- */

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

/* ---- cancel and the queue ---- */

static void wait_for(lily_request *r, enum lily_event_kind kind)
{
    for (bool found = false; !found;) {
        lily_event *ev = lily_request_wait(r);
        assert_non_null(ev);
        found = ev->kind == kind;
        lily_event_free(ev);
    }
}

static void cancel_in_each_phase(void **state)
{
    const world *w = *state;
    static const enum lily_event_kind phases[] = {LILY_EVENT_START, LILY_EVENT_PROGRESS, LILY_EVENT_TOKEN};
    lily_ask ask = greedy(w->text, LONG, 100);
    ask.no_reuse = true;
    lily_ask small = greedy(w->text, PROMPT, 5);
    outcome want = run(w->g, &small), o;
    for (int i = 0; i < 3; i++) {
        ask.n_tokens = phases[i] == LILY_EVENT_TOKEN ? 40 : LONG;
        lily_request *r = submit(w->g, &ask);
        wait_for(r, phases[i]);
        lily_request_cancel(r);
        lily_request_cancel(r);
        lily_event *ev;
        while ((ev = lily_request_wait(r)) && ev->kind != LILY_EVENT_END) lily_event_free(ev);
        assert_non_null(ev);
        assert_int_equal(ev->end, LILY_END_CANCELLED);
        lily_event_free(ev);
        assert_null(lily_request_wait(r));
        lily_request_cancel(r);
        lily_request_free(r);
        o = run(w->g, &small);
        check_same(&want, &o);
    }
}

static void stop_string_ends_with_stop(void **state)
{
    const world *w = *state;
    lily_ask ask = greedy(w->text, PROMPT, 900);
    lily_request *r = submit(w->g, &ask);
    wait_for(r, LILY_EVENT_TOKEN);
    lily_request_stop(r);
    lily_event *ev;
    while ((ev = lily_request_wait(r)) && ev->kind != LILY_EVENT_END) lily_event_free(ev);
    assert_int_equal(ev->end, LILY_END_STOP);
    lily_event_free(ev);
    lily_request_free(r);
}

static void queue_is_bounded(void **state)
{
    const world *w = *state;
    lily_err e;
    outcome o;
    uint32_t running, queued;
    lily_engine *g = open_engine(CONTEXT, 2, 1);
    lily_ask ask = greedy(w->text, LONG, 0), small = greedy(w->text, 5, 1);
    lily_request *first = submit(g, &ask), *a, *b, *c;
    wait_for(first, LILY_EVENT_START);
    a = submit(g, &small);
    b = submit(g, &small);
    check_fails(lily_engine_submit(g, &small, &c, &e), LILY_BUSY, &e);
    lily_engine_load(g, &running, &queued);
    assert_int_equal(running, 1);
    assert_int_equal(queued, 2);
    /* One that waits ends at once, and its place is free. */
    lily_request_cancel(a);
    drain(a, &o);
    assert_int_equal(o.end, LILY_END_CANCELLED);
    lily_engine_load(g, &running, &queued);
    assert_int_equal(running, 1);
    assert_int_equal(queued, 1);
    c = submit(g, &small);
    lily_request_cancel(first);
    drain(b, &o);
    assert_int_equal(o.end, LILY_END_LENGTH);
    drain(c, &o);
    assert_int_equal(o.end, LILY_END_LENGTH);
    lily_engine_load(g, &running, &queued);
    assert_int_equal(running + queued, 0);
    lily_request_free(first);
    lily_request_free(a);
    lily_request_free(b);
    lily_request_free(c);
    lily_engine_close(g);
}

static void close_ends_everything(void **state)
{
    const world *w = *state;
    outcome o;
    lily_request *r[4];
    lily_engine *g = open_engine(CONTEXT, 0, 0);
    lily_ask ask = greedy(w->text, LONG, 0);
    for (int i = 0; i < 4; i++) r[i] = submit(g, &ask);
    wait_for(r[0], LILY_EVENT_START);
    lily_engine_close(g);
    for (int i = 0; i < 4; i++) {
        lily_request_cancel(r[i]);
        if (i != 2) drain(r[i], &o);
        if (i != 2) assert_int_equal(o.end, LILY_END_CANCELLED);
        lily_request_free(r[i]);
    }
}

typedef struct client {
    lily_engine *g;
    const int32_t *text;
    int number;
    bool ok;
    const outcome *want;
} client;

/* Every third request is abandoned, every fourth freed without being drained. */
static void *client_thread(void *user)
{
    client *c = user;
    c->ok = true;
    for (int i = 0; i < 8; i++) {
        lily_err e;
        lily_request *r;
        outcome o;
        lily_ask ask = greedy(c->text, PROMPT, 6);
        if (lily_engine_submit(c->g, &ask, &r, &e) != LILY_OK) {
            c->ok = false;
            continue;
        }
        int kind = (c->number + i) % 4;
        if (kind == 2) lily_request_cancel(r);
        if (kind != 3) drain(r, &o);
        if (kind < 2 && (o.n != c->want->n || memcmp(o.ids, c->want->ids, o.n * sizeof *o.ids) != 0)) c->ok = false;
        lily_request_free(r);
    }
    return NULL;
}

static void sixty_four_requests(void **state)
{
    const world *w = *state;
    enum { CLIENTS = 8 };
    pthread_t thread[CLIENTS];
    client c[CLIENTS];
    lily_ask ask = greedy(w->text, PROMPT, 6);
    outcome want = run(w->g, &ask);
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = (client){w->g, w->text, i, false, &want};
        assert_int_equal(pthread_create(&thread[i], NULL, client_thread, &c[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(thread[i], NULL);
        assert_true(c[i].ok);
    }
    uint32_t running, queued;
    outcome o = run(w->g, &ask);
    check_same(&want, &o);
    lily_engine_load(w->g, &running, &queued);
    assert_int_equal(running + queued, 0);
}

/* ---- lost memory ---- */

static void count_wake(void *user) { atomic_fetch_add((atomic_int *)user, 1); }

static void wake_tells_of_news(void **state)
{
    const world *w = *state;
    atomic_int woken = 0;
    lily_ask ask = greedy(w->text, PROMPT, 3);
    ask.wake = count_wake;
    ask.user = &woken;
    outcome o = run(w->g, &ask);
    assert_int_equal(o.n, 3);
    assert_true(atomic_load(&woken) >= 2);
    /* Freed at once: it is not called any more. */
    ask.max_tokens = 0;
    lily_request *r = submit(w->g, &ask);
    lily_request_free(r);
    int then = atomic_load(&woken);
    usleep(50000);
    assert_int_equal(atomic_load(&woken), then);
}

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

/* ---- scores and benchmarks ---- */

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
    *seen |= 1u << ((r->phase[0] == 'd') + 2 * (r->context == 40));
}

static void benchmarks(void **state)
{
    const world *w = *state;
    lily_err e;
    unsigned seen = 0;
    static const uint32_t lengths[] = {20, 40};
    lily_bench_options o = {lengths, 2, 5, 2};
    check_ok(lily_engine_bench(w->g, &o, on_result, &seen, &e), &e);
    assert_int_equal(seen, 15);
    o.decode_tokens = CONTEXT;
    check_fails(lily_engine_bench(w->g, &o, on_result, &seen, &e), LILY_CONTEXT, &e);
    o = (lily_bench_options){lengths, 0, 5, 2};
    check_fails(lily_engine_bench(w->g, &o, on_result, &seen, &e), LILY_ARGUMENT, &e);
}

static int setup(void **state)
{
    static world w;
    w.g = open_engine(CONTEXT, 0, 0);
    w.text = some_tokens(&w.g->m, LONG);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;
    free(w->text);
    lily_engine_close(w->g);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) device = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_hold),
        cmocka_unit_test(masks_overlap),
        cmocka_unit_test(formats_hold_behind_a_thought),
        cmocka_unit_test(events_in_order),
        cmocka_unit_test(every_eos_stops),
        cmocka_unit_test(context_limits_a_reply),
        cmocka_unit_test(refusals),
        cmocka_unit_test(reuse_is_told),
        cmocka_unit_test(seeds),
        cmocka_unit_test(nothing_without_text_is_chosen),
        cmocka_unit_test(penalties_count_the_reply),
        cmocka_unit_test(logprobs),
        cmocka_unit_test(cancel_in_each_phase),
        cmocka_unit_test(stop_string_ends_with_stop),
        cmocka_unit_test(queue_is_bounded),
        cmocka_unit_test(close_ends_everything),
        cmocka_unit_test(sixty_four_requests),
        cmocka_unit_test(wake_tells_of_news),
        cmocka_unit_test(engine_loses_memory),
        cmocka_unit_test(submit_loses_memory),
        cmocka_unit_test(open_loses_memory),
        cmocka_unit_test(opening_is_refused),
        cmocka_unit_test(check_and_open_agree),
        cmocka_unit_test(scores),
        cmocka_unit_test(benchmarks),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
