/* test_engine_queue.c - cancels in every phase, the queue, many clients, wake. */
#include <unistd.h>

#include "engine_rig.h"

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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(cancel_in_each_phase),
    cmocka_unit_test(stop_string_ends_with_stop),
    cmocka_unit_test(queue_is_bounded),
    cmocka_unit_test(close_ends_everything),
    cmocka_unit_test(sixty_four_requests),
    cmocka_unit_test(wake_tells_of_news),
};

RUN_ENGINE_TESTS(tests)
