/* test_pool.c - which conversation a prompt goes on with, what is shared, what is given up; lost memory. */
#include "base/mem.h"
#include "run/pool.h"
#include "text.h"

enum { CONTEXT = 1024, CHUNK = 64, TEXT = 1000 };

typedef struct world {
    lily_loaded m;
    int32_t *text;      /* [TEXT] */
} world;

static void load(world *w, uint64_t cache)
{
    lily_err e;
    lily_engine_options o = {
        .model_dir = TINY, .device = "cpu", .context = CONTEXT, .chunk = CHUNK, .threads = 1, .cache_bytes = cache};
    if (!lily_device_find("cpu")) o.device = "ref";
    check_ok(lily_load(&w->m, &o, LILY_LOAD_FULL, &e), &e);
    w->text = some_tokens(&w->m, TEXT);
}

static void unload(world *w)
{
    free(w->text);
    lily_unload(&w->m);
}

static lily_pool *pool(world *w)
{
    lily_err e;
    lily_pool *p;
    check_ok(lily_pool_new(&p, &w->m, NULL, &e), &e);
    return p;
}

/* n tokens: the first `same` of the text, then some that depend on `who`. */
typedef struct prompt {
    int32_t tokens[TEXT];
    uint32_t n, marks[8], n_marks;
} prompt;

static prompt prompt_of(const world *w, uint32_t same, uint32_t n, uint32_t who)
{
    prompt p = {.n = n, .marks = {same}, .n_marks = same > 0};
    for (uint32_t i = 0; i < n; i++)
        p.tokens[i] = i < same ? w->text[i] : (int32_t)(lily_uniform(who, i) * w->m.config->vocab);
    return p;
}

typedef struct told {
    uint32_t reused;
    int32_t token;      /* the greedy choice behind the prompt */
    float logprob;
} told;

/* One request without its END: reads the prompt and `reply` tokens; the session stays taken. */
static int begin(world *w, lily_pool *p, const prompt *q, uint32_t reply, lily_session **s, told *out, lily_err *e)
{
    const lily_pick greedy = {.top_p = 1, .repetition = 1, .n_vocab = (int32_t)w->m.config->vocab};
    lily_reading r = {.tokens = q->tokens, .n = q->n - 1, .marks = q->marks, .n_marks = q->n_marks};
    TRY(lily_pool_take(p, &r, s, e));
    if (!*s) return LILY_OK;
    TRY(lily_session_begin(*s, &r, e));
    out->reused = r.n_read;
    while (r.n_read < r.n) TRY(lily_session_read(*s, &r, UINT32_MAX, NULL, e));
    int32_t token = q->tokens[q->n - 1];
    for (uint32_t i = 0; i < reply; i++) {
        lily_done done;
        lily_feed f = {.tokens = &token, .n = 1, .pick = &greedy};
        assert_true(lily_pool_grow(p, *s));
        TRY(lily_session_feed(*s, &f, &done, e));
        if (i == 0) out->token = done.token;
        if (i == 0) out->logprob = done.logprob;
        token = done.token;
    }
    return LILY_OK;
}

static told ask(world *w, lily_pool *p, const prompt *q, uint32_t reply)
{
    lily_err e;
    lily_session *s = NULL;
    told t = {0};
    check_ok(begin(w, p, q, reply, &s, &t, &e), &e);
    assert_non_null(s);
    lily_pool_give(p, s, true);
    return t;
}

static lily_engine_stats stats(const lily_pool *p)
{
    lily_engine_stats s = {0};
    lily_pool_stats(p, &s);
    return s;
}

static void check_cold(world *w, const prompt *q, told warm)
{
    lily_pool *p = pool(w);
    told cold = ask(w, p, q, 1);
    assert_int_equal(cold.reused, 0);
    assert_int_equal(cold.token, warm.token);
    assert_true(cold.logprob == warm.logprob);
    lily_pool_free(p);
}

/* ---- taking ---- */

/* A helper's request in between does not cost the conversation. */
static void others_do_not_matter(void **state)
{
    world *w = *state;
    lily_pool *p = pool(w);
    prompt a = prompt_of(w, 300, 300, 0), helper = prompt_of(w, 0, 80, 7), b = prompt_of(w, 300, 340, 1);
    ask(w, p, &a, 5);
    assert_int_equal(ask(w, p, &helper, 3).reused, 0);
    told t = ask(w, p, &b, 1);
    assert_int_equal(t.reused, 299);
    check_cold(w, &b, t);
    lily_pool_free(p);
}

/* Single questions neither pile up nor push out a conversation that goes on. */
static void single_questions_do_not_pile_up(void **state)
{
    world *w = *state;
    lily_pool *p = pool(w);
    prompt a = prompt_of(w, 300, 300, 0), b = prompt_of(w, 300, 340, 1);
    ask(w, p, &a, 1);
    ask(w, p, &b, 1);
    uint64_t full = 0;
    for (uint32_t i = 0; i < 60; i++) {
        prompt single = prompt_of(w, 0, 80, 100 + i);
        assert_int_equal(ask(w, p, &single, 1).reused, 0);
        if (i == 20) full = stats(p).kept_bytes;
    }
    assert_int_equal(stats(p).kept_bytes, full);
    assert_int_equal(stats(p).sessions, 9);
    prompt c = prompt_of(w, 300, 360, 1);
    assert_true(ask(w, p, &c, 1).reused >= 300);
    prompt last = prompt_of(w, 0, 80, 100 + 59);
    assert_int_equal(ask(w, p, &last, 1).reused, 79);
    lily_pool_free(p);
}

/* Two that share a system prompt branch from it, and neither loses what it has. */
static void a_beginning_is_shared(void **state)
{
    world *w = *state;
    lily_pool *p = pool(w);
    prompt a = prompt_of(w, 200, 500, 1), b = prompt_of(w, 200, 400, 2), c = prompt_of(w, 200, 300, 3);
    ask(w, p, &a, 4);
    uint64_t one = stats(p).kept_bytes;
    told tb = ask(w, p, &b, 1), tc = ask(w, p, &c, 1);
    assert_int_equal(tb.reused, 200);
    assert_int_equal(tc.reused, 200);
    check_cold(w, &b, tb);
    check_cold(w, &c, tc);
    assert_int_equal(stats(p).sessions, 3);
    assert_true(stats(p).kept_bytes < 3 * one);
    told again = ask(w, p, &a, 1);
    assert_int_equal(again.reused, 499);
    check_cold(w, &a, again);
    assert_int_equal(stats(p).sessions, 3);
    lily_pool_free(p);
}

/* Asking again loses a reply and nothing else: no branch is made for that. */
static void a_reply_may_be_lost(void **state)
{
    world *w = *state;
    lily_pool *p = pool(w);
    prompt a = prompt_of(w, 90, 100, 1);
    for (int i = 0; i < 3; i++) ask(w, p, &a, 20);
    assert_int_equal(stats(p).sessions, 1);
    /* The next turn parts from the prompt at its last mark, a few tokens before the end. */
    prompt b = prompt_of(w, 90, 180, 2);
    assert_int_equal(ask(w, p, &b, 1).reused, 90);
    assert_int_equal(stats(p).sessions, 1);
    lily_pool_free(p);
}

static void one_that_runs_is_branched_from(void **state)
{
    world *w = *state;
    lily_err e;
    lily_pool *p = pool(w);
    lily_session *first = NULL;
    told t = {0}, late = {0};
    prompt a = prompt_of(w, 200, 300, 1), b = prompt_of(w, 200, 260, 2);
    check_ok(begin(w, p, &a, 3, &first, &t, &e), &e);
    lily_session *second = NULL, *third = NULL;
    check_ok(begin(w, p, &b, 1, &second, &late, &e), &e);
    assert_ptr_not_equal(first, second);
    assert_int_equal(late.reused, 200);
    check_cold(w, &b, late);
    check_ok(begin(w, p, &a, 1, &third, &late, &e), &e);
    assert_int_equal(late.reused, 299);
    check_cold(w, &a, late);
    assert_true(stats(p).running_bytes > 0 && stats(p).kept_bytes == 0);
    lily_pool_give(p, second, true);
    lily_pool_give(p, first, true);
    lily_pool_give(p, third, false);
    assert_int_equal(stats(p).sessions, 2);
    lily_pool_free(p);
}

/* What runs is forgotten when it is given back. */
static void clearing(void **state)
{
    world *w = *state;
    lily_err e;
    lily_pool *p = pool(w);
    lily_session *s = NULL;
    told t = {0};
    prompt a = prompt_of(w, 100, 100, 0), b = prompt_of(w, 0, 100, 2);
    ask(w, p, &b, 1);
    check_ok(begin(w, p, &a, 3, &s, &t, &e), &e);
    lily_pool_clear(p);
    assert_int_equal(stats(p).sessions, 1);
    assert_int_equal(stats(p).kept_bytes, 0);
    lily_pool_give(p, s, true);
    assert_int_equal(stats(p).sessions, 0);
    assert_int_equal(stats(p).running_bytes, 0);
    assert_int_equal(ask(w, p, &a, 1).reused, 0);
    lily_pool_free(p);
}

/* ---- memory ---- */

static void check_bounds(const world *w, const lily_pool *p)
{
    lily_engine_stats s = stats(p);
    assert_true(s.kept_bytes <= s.cache_bytes);
    assert_true(s.kept_bytes + s.running_bytes <= w->m.memory.kv + w->m.memory.state + w->m.memory.cache);
}

/* The one that was used longest ago goes first. */
static void eviction(void **state)
{
    (void)state;
    world w = {0};
    load(&w, LILY_NO_CACHE);
    uint64_t one = w.m.memory.kv + w.m.memory.state;
    unload(&w);
    load(&w, one);
    lily_pool *p = pool(&w);
    for (uint32_t i = 0; i < 20; i++) {
        prompt q = prompt_of(&w, 0, 500, i);
        for (uint32_t k = 0; k < 8; k++) q.marks[q.n_marks++] = 50 * (k + 1);
        ask(&w, p, &q, 2);
        check_bounds(&w, p);
    }
    lily_engine_stats s = stats(p);
    assert_true(s.evicted_sessions > 0 && s.evicted_snapshots > 0);
    assert_true(s.sessions > 1 && s.sessions < 20);
    prompt newest = prompt_of(&w, 0, 500, 19), oldest = prompt_of(&w, 0, 500, 0);
    assert_int_equal(ask(&w, p, &newest, 1).reused, 499);
    told t = ask(&w, p, &oldest, 1);
    assert_int_equal(t.reused, 0);
    check_cold(&w, &oldest, t);
    lily_pool_free(p);
    unload(&w);
}

/* Nothing is kept, and a second one waits for the first. */
static void no_budget(void **state)
{
    (void)state;
    world w = {0};
    lily_err e;
    lily_session *s = NULL, *other = NULL;
    told t = {0};
    load(&w, LILY_NO_CACHE);
    lily_pool *p = pool(&w);
    prompt a = prompt_of(&w, 0, 900, 1), b = prompt_of(&w, 0, 400, 2);
    check_ok(begin(&w, p, &a, 1, &s, &t, &e), &e);
    check_ok(begin(&w, p, &b, 1, &other, &t, &e), &e);
    assert_null(other);
    lily_pool_give(p, s, true);
    assert_int_equal(stats(p).sessions, 0);
    assert_int_equal(ask(&w, p, &b, 1).reused, 0);
    assert_int_equal(ask(&w, p, &b, 1).reused, 0);
    lily_pool_free(p);
    unload(&w);
}

/* One that was begun beside an older one waits when it would exceed its share, and goes on when it is the oldest. */
static void a_guest_waits(void **state)
{
    (void)state;
    enum { AHEAD = 512 };
    world w = {0};
    lily_err e;
    lily_session *host = NULL, *guest = NULL, *third = NULL;
    told t = {0};
    load(&w, LILY_NO_CACHE);
    uint64_t share = lily_session_cost(&w.m, 99 + AHEAD, 3);
    unload(&w);
    load(&w, share);
    lily_pool *p = pool(&w);
    prompt a = prompt_of(&w, 0, 900, 1), b = prompt_of(&w, 0, 100, 2);
    check_ok(begin(&w, p, &a, 1, &host, &t, &e), &e);
    check_ok(begin(&w, p, &b, 500, &guest, &t, &e), &e);
    assert_non_null(guest);
    check_ok(begin(&w, p, &b, 1, &third, &t, &e), &e);
    assert_null(third);
    uint32_t n = 0;
    for (; lily_pool_grow(p, guest); n++) {
        lily_done done;
        lily_feed f = {.tokens = w.text, .n = 1};
        check_ok(lily_session_feed(guest, &f, &done, &e), &e);
        check_bounds(&w, p);
    }
    assert_int_equal(n, 99 + AHEAD - 599);
    assert_true(lily_pool_grow(p, host));
    lily_pool_give(p, host, true);
    assert_true(lily_pool_grow(p, guest));
    check_bounds(&w, p);
    lily_pool_give(p, guest, true);
    lily_pool_free(p);
    unload(&w);
}

/* Many that run at once, and many that are kept, at their largest: no more than was planned. */
static void never_more_than_planned(void **state)
{
    (void)state;
    world w = {0};
    lily_err e;
    load(&w, 3 << 20);
    lily_pool *p = pool(&w);
    lily_session *running[64];
    uint32_t n = 0, most = 0;
    for (uint32_t i = 0; i < 60; i++) {
        uint32_t same = lily_uniform(3, i) < 0.5 ? 0 : 64 * (uint32_t)(1 + lily_uniform(4, i) * 4);
        prompt q = prompt_of(&w, same, same + 40 + (uint32_t)(lily_uniform(5, i) * 400), i % 11);
        told t = {0};
        lily_session *s = NULL;
        check_ok(begin(&w, p, &q, 2, &s, &t, &e), &e);
        if (s) running[n++] = s;
        check_bounds(&w, p);
        if (n > most) most = n;
        while (n && (!s || lily_uniform(6, i + n) < 0.5)) {
            lily_pool_give(p, running[--n], lily_uniform(7, i) < 0.9);
            check_bounds(&w, p);
            s = running[0];
        }
    }
    assert_true(most > 1);
    while (n) lily_pool_give(p, running[--n], true);
    lily_pool_free(p);
    unload(&w);
}

/* Each allocation of a request that branches fails once; what is kept stays whole, and answers stay right. */
static void memory_is_lost(void **state)
{
    world *w = *state;
    prompt a = prompt_of(w, 30, 100, 1), b = prompt_of(w, 30, 90, 2);
    int64_t most = 0;
    int failures = 0;
    for (int64_t fail_at = 0; fail_at <= most; fail_at++) {
        lily_err e = {0};
        lily_session *s = NULL;
        told t = {0};
        lily_pool *p = pool(w);
        told whole = ask(w, p, &a, 3);
        lily_mem_fail_after(fail_at);
        int rc = begin(w, p, &b, 3, &s, &t, &e);
        if (lily_mem_count() > most) most = lily_mem_count();
        lily_mem_fail_after(-1);
        if (rc != LILY_OK) assert_int_equal(rc, LILY_NO_MEMORY);
        failures += rc != LILY_OK;
        if (s) lily_pool_give(p, s, true);
        assert_int_equal(stats(p).running_bytes, 0);
        check_bounds(w, p);
        told again = ask(w, p, &a, 1), other = ask(w, p, &b, 1);
        assert_true(again.token == whole.token && again.logprob == whole.logprob);
        assert_int_equal(again.reused, 99);
        assert_true(other.reused >= 30);
        check_cold(w, &b, other);
        lily_pool_free(p);
    }
    assert_true(failures > 5);
}

static int setup(void **state)
{
    static world w;
    load(&w, 64 << 20);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    unload(*state);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_do_not_matter),
        cmocka_unit_test(single_questions_do_not_pile_up),
        cmocka_unit_test(a_beginning_is_shared),
        cmocka_unit_test(a_reply_may_be_lost),
        cmocka_unit_test(one_that_runs_is_branched_from),
        cmocka_unit_test(clearing),
        cmocka_unit_test(eviction),
        cmocka_unit_test(no_budget),
        cmocka_unit_test(a_guest_waits),
        cmocka_unit_test(never_more_than_planned),
        cmocka_unit_test(memory_is_lost),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
