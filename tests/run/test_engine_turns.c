/* test_engine_turns.c - several requests at once: turns, what is reused, figures; random conversations against cold
 * ones. */
#include "engine_rig.h"

/* ---- turns ---- */

/* Has a token the same bits however a prompt is cut into runs? */
static bool is_invariant(void)
{
    const lily_dev_ops *ops = lily_device_find(device);
    bool all = ops;
    for (size_t i = 0; ops && i < ops->n_rows; i++) all &= ops->rows[i].invariant;
    return all;
}

static uint32_t take_tokens(lily_request *r, bool *ended)
{
    uint32_t n = 0;
    for (lily_event *ev; (ev = lily_request_next(r)); lily_event_free(ev)) {
        n += ev->kind == LILY_EVENT_TOKEN;
        *ended |= ev->kind == LILY_EVENT_END;
    }
    return n;
}

/* While a long prompt is read in slices, a reply gets a token between each two. */
static void a_stream_flows_on(void **state)
{
    const world *w = *state;
    bool ended = false;
    lily_ask stream = greedy(w->text, 5, 900), prompt = greedy(w->text + 10, LONG - 10, 1);
    stream.no_reuse = prompt.no_reuse = true;
    outcome alone = run(w->g, &prompt);
    lily_request *a = submit(w->g, &stream);
    wait_for(a, LILY_EVENT_TOKEN);
    lily_request *b = submit(w->g, &prompt);
    wait_for(b, LILY_EVENT_START);
    (void)take_tokens(a, &ended);
    uint32_t slices = 0;
    for (lily_event *ev; (ev = lily_request_wait(b)) && ev->kind != LILY_EVENT_END; lily_event_free(ev)) {
        slices += ev->kind == LILY_EVENT_PROGRESS;
        if (ev->kind == LILY_EVENT_TOKEN && is_invariant()) assert_int_equal(ev->id, alone.ids[0]);
    }
    uint32_t between = take_tokens(a, &ended);
    assert_false(ended);
    assert_true(slices >= LONG / CHUNK);
    assert_true(between + 3 >= slices);
    lily_request_free(a);
    lily_request_free(b);
}

/* Alone, a prompt is read in whole chunks, whatever its marks. */
static void marks_cut_no_chunk(void **state)
{
    const world *w = *state;
    uint32_t marks[20], n_progress = 0;
    for (uint32_t i = 0; i < 20; i++) marks[i] = 7 + 13 * i;
    lily_ask ask = greedy(w->text + 3, 10 * CHUNK + 1, 1);
    ask.marks = marks;
    ask.n_marks = 20;
    lily_request *r = submit(w->g, &ask);
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) n_progress += ev->kind == LILY_EVENT_PROGRESS;
    assert_int_equal(n_progress, 10 + 1);
    lily_request_free(r);
}

/* Two prompts with the same beginning that come together read it once. */
static void a_beginning_is_read_once(void **state)
{
    const world *w = *state;
    enum { SAME = 600, N = 3 };
    static const uint32_t mark = SAME;
    lily_engine_stats before, after;
    lily_request *r[N];
    outcome o;
    int32_t prompts[N][LONG];
    lily_engine *g = open_engine(CONTEXT, 0, 0);
    lily_engine_get_stats(g, &before);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < LONG; k++) prompts[i][k] = k < SAME ? w->text[k] : (w->text[k] + i) % 100;
        lily_ask ask = greedy(prompts[i], LONG, 3);
        ask.marks = &mark;
        ask.n_marks = 1;
        r[i] = submit(g, &ask);
    }
    for (int i = 0; i < N; i++) {
        drain(r[i], &o);
        assert_true(i == 0 || o.n_reused >= SAME);
        lily_request_free(r[i]);
    }
    lily_engine_get_stats(g, &after);
    assert_int_equal(after.prompt_tokens - before.prompt_tokens, SAME + N * (LONG - SAME));
    lily_engine_close(g);
}

/* ---- distance ---- */

/* Where a prompt of 4,000 tokens is left, no more than one distance is read again. */
static void one_distance_at_most(void **state)
{
    (void)state;
    enum { FIRST = 4000, NEW = 60 };
    static const uint32_t parts[] = {FIRST, 3998, 3900, 3000, 2049, 2048, 2047, 500};
    lily_err e;
    lily_engine *g;
    lily_engine_options o = {.model_dir = TINY, .device = device, .context = 4096, .cache_bytes = CACHE};
    if (strcmp(device, "ref") == 0) skip();     /* too slow */
    check_ok(lily_engine_open(&g, &o, &e), &e);
    int32_t *text = some_tokens(&g->m, FIRST + NEW);
    lily_ask ask = greedy(text, FIRST, 1);
    (void)run(g, &ask);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int32_t *other = some_tokens(&g->m, FIRST + NEW);
        for (uint32_t k = parts[i]; k < parts[i] + NEW; k++) other[k] = (other[k] + 1) % 100;
        ask = greedy(other, parts[i] + NEW, 1);
        uint32_t reused = run(g, &ask).n_reused;
        assert_true(reused <= parts[i] && reused + LILY_SNAPSHOT_DISTANCE > parts[i]);
        if (parts[i] == FIRST) assert_true(reused >= FIRST - 1);
        free(other);
    }
    free(text);
    lily_engine_close(g);
}

/* ---- figures ---- */

static void figures(void **state)
{
    const world *w = *state;
    lily_engine_stats s;
    lily_engine *g = open_engine(CONTEXT, 0, 0);
    lily_ask ask = greedy(w->text, PROMPT, 4);
    (void)run(g, &ask);
    (void)run(g, &ask);
    ask.max_tokens = 0;
    lily_request *r = submit(g, &ask);
    wait_for(r, LILY_EVENT_TOKEN);
    lily_request_stop(r);
    for (lily_event *ev; (ev = lily_request_wait(r));) lily_event_free(ev);
    lily_request_free(r);
    lily_engine_get_stats(g, &s);
    assert_int_equal(s.requests[LILY_END_LENGTH], 2);
    assert_int_equal(s.requests[LILY_END_STOP], 1);
    assert_int_equal(s.requests[LILY_END_ERROR] + s.requests[LILY_END_CANCELLED], 0);
    assert_int_equal(s.prompt_tokens, PROMPT + 1 + 1);
    assert_int_equal(s.reused_tokens, 2 * (PROMPT - 1));
    assert_true(s.generated_tokens >= 9);
    assert_true(s.prompt_seconds > 0 && s.reply_seconds > 0);
    assert_int_equal(s.running + s.queued, 0);
    assert_int_equal(s.sessions, 1);
    assert_int_equal(s.running_bytes, 0);
    assert_true(s.kept_bytes > 0 && s.kept_bytes <= s.cache_bytes && s.cache_bytes == CACHE);
    lily_engine_cache_clear(g);
    lily_engine_get_stats(g, &s);
    assert_int_equal(s.kept_bytes, 0);
    assert_int_equal(s.requests[LILY_END_LENGTH], 2);
    ask.max_tokens = 1;
    assert_int_equal(run(g, &ask).n_reused, 0);
    lily_engine_close(g);
}

/* ---- random conversations ---- */

enum { CONVERSATIONS = 14, REQUESTS = 60, AT_ONCE = 5, REPLY = 4 };

typedef struct talk {
    int32_t tokens[400];
    uint32_t n, marks[8], n_marks;
    outcome cold;
} talk;

static uint32_t dice(uint32_t seed, uint64_t n, uint32_t sides) { return (uint32_t)(lily_uniform(seed, n) * sides); }

/* Each goes on from a prefix of an earlier one, or begins anew. */
static void grow_talks(const world *w, talk *t, uint32_t seed)
{
    for (uint32_t i = 0; i < CONVERSATIONS; i++) {
        uint64_t d = i * 1000;
        t[i] = (talk){.n = 0};
        if (i && dice(seed, d, 4)) {
            const talk *from = &t[dice(seed, d + 1, i)];
            t[i].n = 1 + dice(seed, d + 2, from->n);
            memcpy(t[i].tokens, from->tokens, t[i].n * sizeof *t[i].tokens);
            for (uint32_t k = 0; k < from->n_marks && k < 4 && from->marks[k] <= t[i].n; k++)
                t[i].marks[t[i].n_marks++] = from->marks[k];
        }
        uint32_t more = 1 + dice(seed, d + 3, i % 5 ? 60 : 180);
        for (uint32_t k = 0; k < more && t[i].n < 400; k++)
            t[i].tokens[t[i].n++] = (int32_t)dice(seed, d + 10 + k, w->g->m.config->vocab);
        if (!t[i].n_marks || t[i].marks[t[i].n_marks - 1] < t[i].n) t[i].marks[t[i].n_marks++] = t[i].n;
    }
}

static lily_ask ask_of(const talk *t)
{
    lily_ask ask = greedy(t->tokens, t->n, REPLY);
    ask.marks = t->marks;
    ask.n_marks = t->n_marks;
    ask.sampling.logprobs = true;
    return ask;
}

/* Waits for the END; a reply that came to it has the bits of the cold one, where the device can promise that. */
static void check_answer(lily_request *r, const talk *t)
{
    uint32_t n = 0;
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) {
        if (ev->kind == LILY_EVENT_TOKEN) {
            if (is_invariant()) {
                assert_int_equal(ev->id, t->cold.ids[n]);
                assert_true(ev->logprob == t->cold.logprob[n]);
            }
            n++;
        }
        if (ev->kind == LILY_EVENT_END) assert_true(ev->end == LILY_END_CANCELLED || (ev->end == LILY_END_LENGTH && n == REPLY));
    }
}

static void check_memory(lily_engine *g)
{
    lily_engine_stats s;
    lily_engine_get_stats(g, &s);
    const lily_memory *m = lily_engine_memory(g);
    assert_true(s.kept_bytes <= s.cache_bytes);
    assert_true(s.kept_bytes + s.running_bytes <= m->kv + m->state + m->cache);
}

static void random_talks(const world *w, uint32_t seed, uint64_t cache, uint32_t parallel)
{
    static talk t[CONVERSATIONS];
    lily_err e;
    lily_engine *g;
    lily_engine_options o = {.model_dir = TINY,
                             .device = device,
                             .context = 512,
                             .chunk = CHUNK,
                             .parallel = parallel,
                             .cache_bytes = cache};
    lily_request *r[AT_ONCE] = {0};
    const talk *of[AT_ONCE];
    check_ok(lily_engine_open(&g, &o, &e), &e);
    grow_talks(w, t, seed);
    for (uint32_t i = 0; i < CONVERSATIONS; i++) {
        lily_ask ask = ask_of(&t[i]);
        ask.no_reuse = true;
        t[i].cold = run(w->g, &ask);
    }
    for (uint32_t i = 0; i < REQUESTS + AT_ONCE; i++) {
        uint32_t at = i % AT_ONCE, fate = dice(seed + 1, i, 8);
        if (r[at]) {
            if (fate == 0) lily_request_cancel(r[at]);
            if (fate != 1) check_answer(r[at], of[at]);
            lily_request_free(r[at]);
            check_memory(g);
        }
        r[at] = NULL;
        if (i >= REQUESTS) continue;
        of[at] = &t[dice(seed + 2, i, CONVERSATIONS)];
        lily_ask ask = ask_of(of[at]);
        ask.no_reuse = fate == 2;
        r[at] = submit(g, &ask);
        if (dice(seed + 3, i, 40) == 0) lily_engine_cache_clear(g);
    }
    lily_engine_stats s;
    lily_engine_get_stats(g, &s);
    assert_true(cache == LILY_NO_CACHE || s.reused_tokens > 0);
    assert_int_equal(s.requests[LILY_END_ERROR], 0);
    lily_engine_close(g);
}

static void warm_equals_cold(void **state)
{
    const world *w = *state;
    for (uint32_t seed = 0; seed < (slow ? 10 : 1); seed++) {
        random_talks(w, 10 * seed, CACHE, 3);
        random_talks(w, 10 * seed + 100, 1 << 20, 4);   /* few of them find room */
        if (!slow) continue;
        random_talks(w, 10 * seed + 200, LILY_NO_CACHE, 2);
        random_talks(w, 10 * seed + 300, CACHE, 1);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_stream_flows_on),
    cmocka_unit_test(marks_cut_no_chunk),
    cmocka_unit_test(a_beginning_is_read_once),
    cmocka_unit_test(one_distance_at_most),
    cmocka_unit_test(figures),
    cmocka_unit_test(warm_equals_cold),
};

RUN_ENGINE_TESTS(tests)
