/* test_ref_runs.c - the bits do not depend on how tokens are cut into runs; snapshots, branches, cancelling.
 */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/ref/ref.h"

enum { PROMPT = 200 };

/* Every test runs on one rig over tiny; those that take a name open their own. */
static rig_model tiny;
static rig r;

static int set_up(void **state)
{
    (void)state;
    rig_model_open(&tiny, rig_dir("tiny"));
    rig_open(&r, tiny.model, "ref", 2048, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_close(&r);
    rig_model_close(&tiny);
    return 0;
}

static void make_prompt(int32_t *tokens, uint32_t n, uint32_t vocab)
{
    for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)((i * 7919u + i * i * 31u + 17u) % (vocab - 100));
}

/* All that can be seen of a state and a run, to compare bits. */
typedef struct trace {
    float *memory, *logits;
    size_t n;
    int32_t token;
} trace;

static trace take_trace(const rig *on, const lily_state *s, const lily_done *done)
{
    trace t = {.token = done->token};
    t.memory = rig_memory(on, s, &t.n);
    t.logits = malloc(on->c->vocab * sizeof *t.logits);
    memcpy(t.logits, done->logits, on->c->vocab * sizeof *t.logits);
    return t;
}

static void drop_trace(trace *t)
{
    free(t->memory);
    free(t->logits);
}

static void check_same(const rig *on, const trace *want, const lily_state *s, const lily_done *done,
                       const char *what, uint32_t at)
{
    trace got = take_trace(on, s, done);
    if (got.n != want->n || memcmp(got.memory, want->memory, got.n * sizeof *got.memory) != 0)
        fail_msg("%s %u: the state has other bits", what, at);
    if (memcmp(got.logits, want->logits, on->c->vocab * sizeof *got.logits) != 0)
        fail_msg("%s %u: the logits have other bits", what, at);
    assert_int_equal(got.token, want->token);
    drop_trace(&got);
}

static void chunks_do_not_matter(void **state)
{
    (void)state;
    static const char *const names[] = {"tiny", "odd", "demo"};
    for (size_t i = 0; i < 3; i++) {
        rig_model m;
        rig on;
        int32_t tokens[PROMPT];
        rig_model_open(&m, rig_dir(names[i]));
        rig_open(&on, m.model, "ref", 2048, 0);
        make_prompt(tokens, PROMPT, on.c->vocab);
        static const uint32_t chunks[] = {2048, 1, 7, 64, 0};
        trace want = {0};
        for (size_t k = 0; k < 5; k++) {
            lily_state *s = rig_state(&on);
            lily_done done = rig_feed(&on, s, tokens, PROMPT, chunks[k]);
            if (k == 0)
                want = take_trace(&on, s, &done);
            else
                check_same(&on, &want, s, &done, names[i], chunks[k]);
            on.ops->state_free(on.dev, s);
        }
        drop_trace(&want);
        rig_close(&on);
        rig_model_close(&m);
    }
}

/* Warm: the rest after a snapshot taken inside one run.  Cold: two runs from nothing.  Four layers have one
 * of each kind, and half the work. */
static void a_prompt_split_at_every_point(void **state)
{
    (void)state;
    int32_t tokens[PROMPT];
    uint32_t marks[PROMPT - 1];
    for (uint32_t i = 0; i < PROMPT - 1; i++) marks[i] = i + 1;
    lily_config four = *tiny.model->config;
    lily_model cut = *tiny.model;
    four.layers = 4;
    cut.config = &four;
    rig on;
    rig_open(&on, &cut, "ref", PROMPT, 0);
    make_prompt(tokens, PROMPT, four.vocab);
    lily_pick pick = rig_greedy_pick;
    pick.n_vocab = (int32_t)four.vocab;
    lily_state *whole = rig_state(&on), *warm = rig_state(&on), *cold = rig_state(&on);
    const lily_lane lane = {.state = whole,
                            .tokens = tokens,
                            .n_tokens = PROMPT,
                            .pick = &pick,
                            .mark = marks,
                            .n_marks = PROMPT - 1};
    lily_done done = rig_run(&on, on.prefill, LILY_PICK, &lane);
    trace want = take_trace(&on, whole, &done);
    lily_err e = {0};
    for (uint32_t at = 1; at < PROMPT; at++) {
        check_ok(on.ops->state_copy(on.dev, warm, whole, at, &e), &e);
        done = rig_feed(&on, warm, tokens + at, PROMPT - at, PROMPT);
        check_same(&on, &want, warm, &done, "warm from", at);
        check_ok(on.ops->state_copy(on.dev, cold, cold, 0, &e), &e);
        rig_feed(&on, cold, tokens, at, PROMPT);
        done = rig_feed(&on, cold, tokens + at, PROMPT - at, PROMPT);
        check_same(&on, &want, cold, &done, "cold at", at);
    }
    drop_trace(&want);
    on.ops->state_free(on.dev, whole);
    on.ops->state_free(on.dev, warm);
    on.ops->state_free(on.dev, cold);
    rig_close(&on);
}

/* A scored position has the log-probability of the logits there, in one run as in many. */
static void scores(void **state)
{
    (void)state;
    enum { N = 70 };
    int32_t tokens[N + 1];
    float want[N];
    int32_t best[N];
    make_prompt(tokens, N + 1, r.c->vocab);
    lily_state *s = rig_state(&r);
    for (uint32_t i = 0; i < N; i++) {
        lily_pick pick = rig_greedy_pick;
        const lily_bias only = {tokens[i + 1], 1000}; /* the choice is then the token that follows */
        pick.n_vocab = (int32_t)r.c->vocab;
        pick.n_logprobs = 1;
        pick.bias = &only;
        pick.n_bias = 1;
        const lily_lane lane = {.state = s, .tokens = tokens + i, .n_tokens = 1, .pick = &pick};
        lily_done done = rig_run(&r, r.decode, LILY_PICK, &lane);
        assert_int_equal(done.token, tokens[i + 1]);
        want[i] = done.logprob;
        best[i] = done.top[0].token;
    }
    lily_err e = {0};
    for (uint32_t chunk = 1; chunk <= N; chunk += 23) {
        check_ok(r.ops->state_copy(r.dev, s, s, 0, &e), &e);
        for (uint32_t at = 0; at < N; at += chunk) {
            uint32_t n = chunk < N - at ? chunk : N - at;
            const lily_lane lane = {
                .state = s, .tokens = tokens + at, .n_tokens = n, .scored = tokens + at + 1};
            lily_done done = rig_run(&r, r.prefill, LILY_HEAD, &lane);
            for (uint32_t i = 0; i < n; i++) {
                assert_true(rig_difference(&done.scores[i], &want[at + i], 1) < 2e-6);
                assert_int_equal(done.best[i], best[at + i]);
            }
        }
    }
    r.ops->state_free(r.dev, s);
}

static void check_positions(const lily_state *s, const uint32_t *want, size_t n)
{
    uint32_t got[16];
    assert_int_equal(r.ops->state_positions(s, NULL, 0), n);
    assert_int_equal(r.ops->state_positions(s, got, 16), n);
    assert_memory_equal(got, want, n * sizeof *want);
    assert_int_equal(r.ops->state_position(s), want[n - 1]);
}

static void feed_marked(lily_state *s, const int32_t *tokens, uint32_t n, const uint32_t *marks,
                        uint32_t n_marks)
{
    const lily_lane lane = {.state = s, .tokens = tokens, .n_tokens = n, .mark = marks, .n_marks = n_marks};
    rig_run(&r, r.prefill, LILY_FORWARD, &lane);
}

static void snapshots_and_branches(void **state)
{
    (void)state;
    int32_t tokens[60], other[20];
    make_prompt(tokens, 60, r.c->vocab);
    make_prompt(other, 20, r.c->vocab / 2);
    lily_err e = {0};
    lily_state *a = rig_state(&r), *b = rig_state(&r), *straight = rig_state(&r);
    check_positions(a, (const uint32_t[]){0}, 1);
    feed_marked(a, tokens, 30, (const uint32_t[]){2, 10, 30}, 3);
    feed_marked(a, tokens + 30, 20, (const uint32_t[]){5}, 1);
    check_positions(a, (const uint32_t[]){2, 10, 30, 35, 50}, 5);
    check_fails(r.ops->state_copy(r.dev, b, a, 11, &e), LILY_ARGUMENT, &e);
    check_positions(b, (const uint32_t[]){0}, 1);

    /* A branch goes its own way and leaves the other alone. */
    check_ok(r.ops->state_copy(r.dev, b, a, 30, &e), &e);
    check_positions(b, (const uint32_t[]){2, 10, 30}, 3);
    rig_feed(&r, straight, tokens, 30, 7);
    lily_done done = rig_feed(&r, straight, other, 20, 3);
    trace want = take_trace(&r, straight, &done);
    done = rig_feed(&r, b, other, 20, 64);
    check_same(&r, &want, b, &done, "branch", 30);
    drop_trace(&want);
    check_ok(r.ops->state_copy(r.dev, straight, straight, 0, &e), &e);
    done = rig_feed(&r, straight, tokens, 60, 64);
    want = take_trace(&r, straight, &done);
    done = rig_feed(&r, a, tokens + 50, 10, 64);
    check_same(&r, &want, a, &done, "the branched one", 60);

    /* Back: what comes later is forgotten; the shared snapshots of b stay. */
    check_ok(r.ops->state_copy(r.dev, a, a, 10, &e), &e);
    check_positions(a, (const uint32_t[]){2, 10}, 2);
    done = rig_feed(&r, a, tokens + 10, 50, 64);
    check_same(&r, &want, a, &done, "again from", 10);
    r.ops->state_drop(r.dev, a, 10);
    r.ops->state_drop(r.dev, a, 11);
    check_positions(a, (const uint32_t[]){2, 60}, 2);
    check_ok(r.ops->state_copy(r.dev, b, b, 10, &e), &e);
    done = rig_feed(&r, b, tokens + 10, 50, 64);
    check_same(&r, &want, b, &done, "the branch, from", 10);

    /* The live state can be branched too. */
    check_ok(r.ops->state_copy(r.dev, b, a, 60, &e), &e);
    check_same(&r, &want, b, &done, "the live state at", 60);
    assert_true(r.ops->state_bytes(a) > 0);
    drop_trace(&want);
    r.ops->state_free(r.dev, a);
    r.ops->state_free(r.dev, b);
    r.ops->state_free(r.dev, straight);
}

/* ---- cancelling ---- */

typedef struct stopper {
    atomic_bool cancel;
    uint32_t after; /* this stage */
} stopper;

static void stop_after(void *arg, lily_exec *x, uint32_t stage)
{
    (void)x;
    stopper *s = arg;
    if (stage == s->after) atomic_store(&s->cancel, true);
}

static void cancelling_after_every_stage(void **state)
{
    (void)state;
    int32_t tokens[24];
    make_prompt(tokens, 24, r.c->vocab);
    lily_err e = {0};
    lily_pick pick = rig_greedy_pick;
    pick.n_vocab = (int32_t)r.c->vocab;
    lily_state *s = rig_state(&r);
    lily_done done = rig_feed(&r, s, tokens, 24, 24);
    trace want = take_trace(&r, s, &done);
    const lily_plan *p = r.prefill_plan;
    stopper stop = {.after = 0};
    r.prefill->watch_arg = &stop;
    for (; stop.after < p->n_stages; stop.after++) {
        check_ok(r.ops->state_copy(r.dev, s, s, 0, &e), &e);
        r.prefill->watch = NULL;
        feed_marked(s, tokens, 12, (const uint32_t[]){5}, 1);
        r.prefill->watch = stop_after;
        atomic_store(&stop.cancel, false);
        const lily_lane lane = {.state = s,
                                .tokens = tokens + 12,
                                .n_tokens = 12,
                                .pick = &pick,
                                .cancel = &stop.cancel,
                                .mark = (const uint32_t[]){4},
                                .n_marks = 1};
        done = rig_run(&r, r.prefill, LILY_PICK, &lane);
        bool in_forward = stop.after + 1 < p->segment_end[LILY_FORWARD];
        assert_int_equal(done.cancelled, stop.after + 1 < p->n_stages);
        assert_int_equal(done.token == -1, stop.after < p->n_stages - 2);
        if (in_forward)
            check_positions(s, (const uint32_t[]){5}, 1);
        else
            check_positions(s, (const uint32_t[]){5, 16, 24}, 3);
        r.prefill->watch = NULL;
        uint32_t from = in_forward ? 5 : 16;
        check_ok(r.ops->state_copy(r.dev, s, s, from, &e), &e);
        done = rig_feed(&r, s, tokens + from, 24 - from, 24);
        check_same(&r, &want, s, &done, "after cancelling at stage", stop.after);
    }
    /* Nothing kept: back to the beginning.  Cancelled before it began: the same. */
    check_ok(r.ops->state_copy(r.dev, s, s, 0, &e), &e);
    feed_marked(s, tokens, 12, NULL, 0);
    const lily_lane lane = {.state = s, .tokens = tokens, .n_tokens = 3, .cancel = &stop.cancel};
    done = rig_run(&r, r.prefill, LILY_FORWARD, &lane);
    assert_true(done.cancelled);
    check_positions(s, (const uint32_t[]){0}, 1);
    done = rig_feed(&r, s, tokens, 24, 24);
    check_same(&r, &want, s, &done, "from nothing", 0);
    drop_trace(&want);
    r.ops->state_free(r.dev, s);
}

/* ---- refusals ---- */

static void refused(const lily_lane *lane, lily_exec *x, int code)
{
    lily_err e = {0};
    uint64_t ticket;
    uint32_t position = r.ops->state_position(lane->state);
    check_fails(r.ops->submit(r.dev, x, LILY_FORWARD, LILY_PICK, lane, 1, &ticket, &e), code, &e);
    assert_int_equal(r.ops->state_position(lane->state), position);
}

static void wrong_arguments_leave_the_state(void **state)
{
    (void)state;
    lily_err e = {0};
    uint64_t ticket;
    lily_done done;
    const int32_t good[3] = {1, 2, 3}, negative[] = {-1}, large[] = {(int32_t)r.c->vocab};
    lily_state *s;
    check_ok(r.ops->state_new(r.dev, r.weights, &s, &e), &e);
    refused(&(lily_lane){.state = s, .tokens = good, .n_tokens = 3}, r.prefill, LILY_CONTEXT);
    check_ok(r.ops->state_grow(r.dev, s, 10, &e), &e);
    feed_marked(s, good, 3, NULL, 0);
    refused(&(lily_lane){.state = s, .tokens = negative, .n_tokens = 1}, r.prefill, LILY_ARGUMENT);
    refused(&(lily_lane){.state = s, .tokens = large, .n_tokens = 1}, r.prefill, LILY_ARGUMENT);
    refused(&(lily_lane){.state = s, .tokens = good, .n_tokens = 0}, r.prefill, LILY_ARGUMENT);
    refused(&(lily_lane){.state = s, .tokens = good, .n_tokens = 2}, r.decode, LILY_ARGUMENT);
    refused(&(lily_lane){.state = s, .n_tokens = 1}, r.decode, LILY_ARGUMENT); /* nothing was chosen yet */
    refused(
        &(lily_lane){.state = s, .tokens = good, .n_tokens = 2, .mark = (const uint32_t[]){0}, .n_marks = 1},
        r.prefill, LILY_ARGUMENT);
    refused(
        &(lily_lane){.state = s, .tokens = good, .n_tokens = 2, .mark = (const uint32_t[]){3}, .n_marks = 1},
        r.prefill, LILY_ARGUMENT);
    refused(
        &(lily_lane){
            .state = s, .tokens = good, .n_tokens = 2, .mark = (const uint32_t[]){2, 2}, .n_marks = 2},
        r.prefill, LILY_ARGUMENT);
    lily_pick pick = rig_greedy_pick;
    refused(&(lily_lane){.state = s, .tokens = good, .n_tokens = 2, .pick = &pick}, r.prefill, LILY_ARGUMENT);
    const lily_lane two[2] = {{.state = s, .tokens = good, .n_tokens = 1},
                              {.state = s, .tokens = good, .n_tokens = 1}};
    check_fails(r.ops->submit(r.dev, r.prefill, LILY_FORWARD, LILY_PICK, two, 2, &ticket, &e),
                LILY_UNSUPPORTED, &e);
    check_fails(r.ops->wait(r.dev, UINT64_MAX, &done, 1, &e), LILY_ARGUMENT, &e);
    check_fails(r.ops->peek(r.dev, r.prefill, SLOT_KV, NULL, 0, &e), LILY_ARGUMENT, &e);
    check_fails(r.ops->peek(r.dev, r.prefill, SLOT_LOGITS, NULL, 0, &e), LILY_ARGUMENT, &e);
    r.ops->state_free(r.dev, s);
}

/* Not-a-number weights: the choice fails, and says so. */
static void broken_weights_are_seen(void **state)
{
    (void)state;
    lily_model broken = *tiny.model;
    float *norm = calloc(r.c->hidden, sizeof *norm);
    norm[3] = __builtin_nanf("");
    broken.norm_final = norm;
    rig on;
    rig_open(&on, &broken, "ref", 8, 0);
    lily_state *s = rig_state(&on);
    lily_pick pick = rig_greedy_pick;
    pick.n_vocab = (int32_t)on.c->vocab;
    const int32_t tokens[2] = {5, 6};
    lily_err e = {0};
    uint64_t ticket;
    lily_lane lane = {.state = s, .tokens = tokens, .n_tokens = 2, .pick = &pick};
    check_fails(on.ops->submit(on.dev, on.prefill, LILY_FORWARD, LILY_PICK, &lane, 1, &ticket, &e),
                LILY_DEVICE, &e);
    lane.scored = tokens;
    check_fails(on.ops->submit(on.dev, on.prefill, LILY_FORWARD, LILY_HEAD, &lane, 1, &ticket, &e),
                LILY_DEVICE, &e);
    on.ops->state_free(on.dev, s);
    rig_close(&on);
    free(norm);
}

/* A token counts when it becomes an input, and only when the lane says so. */
static void replies_are_counted(void **state)
{
    (void)state;
    lily_pick pick = rig_greedy_pick;
    pick.n_vocab = (int32_t)r.c->vocab;
    pick.frequency = 1000;
    const int32_t prompt[3] = {9, 8, 7};
    bool seen[2048] = {false};
    assert_true(r.c->vocab <= 2048);
    lily_err e = {0};
    lily_state *s = rig_state(&r);
    lily_lane lane = {.state = s, .tokens = prompt, .n_tokens = 3, .pick = &pick};
    int32_t first = rig_run(&r, r.prefill, LILY_PICK, &lane).token, token = first;
    lane = (lily_lane){.state = s, .n_tokens = 1, .pick = &pick, .count = true};
    for (int i = 0; i < 100; i++) {
        assert_false(seen[token]);
        seen[token] = true;
        token = rig_run(&r, r.decode, LILY_PICK, &lane).token;
    }
    r.ops->state_count_reset(s);
    check_ok(r.ops->state_copy(r.dev, s, s, 0, &e), &e);
    lane = (lily_lane){.state = s, .tokens = prompt, .n_tokens = 3, .pick = &pick};
    assert_int_equal(rig_run(&r, r.prefill, LILY_PICK, &lane).token, first);
    r.ops->state_free(r.dev, s);
}

/* ---- allocations that fail ---- */

/* Everything that a session allocates, `rc` the first failure. */
static int whole_life(lily_err *e)
{
    const lily_dev_ops *o = r.ops;
    lily_dev *dev = NULL;
    lily_weights *w = NULL;
    lily_exec *x = NULL;
    lily_state *s = NULL, *t = NULL;
    uint64_t ticket;
    const int32_t tokens[4] = {1, 2, 3, 4};
    int rc;
    TRY_TO(out, o->open(&dev, &(lily_dev_options){0}, e));
    TRY_TO(out, o->load(dev, tiny.model, &w, e));
    TRY_TO(out, o->prepare(dev, w, r.decode_plan, &x, e));
    TRY_TO(out, o->state_new(dev, w, &s, e));
    TRY_TO(out, o->state_new(dev, w, &t, e));
    TRY_TO(out, o->state_grow(dev, s, 100, e));
    const lily_lane lane = {
        .state = s, .tokens = tokens, .n_tokens = 1, .mark = (const uint32_t[]){1}, .n_marks = 1};
    TRY_TO(out, o->submit(dev, x, LILY_FORWARD, LILY_FORWARD, &lane, 1, &ticket, e));
    TRY_TO(out, o->state_copy(dev, t, s, 1, e));
    assert_int_equal(o->state_position(t), 1);
out:
    if (dev) {
        o->state_free(dev, s);
        o->state_free(dev, t);
        o->release(dev, x);
        o->unload(dev, w);
        o->close(dev);
    }
    return rc;
}

static void allocation_faults(void **state)
{
    (void)state;
    int rc = LILY_NO_MEMORY, failures = -1;
    for (int64_t n = 0; rc == LILY_NO_MEMORY; n++, failures++) {
        lily_err e = {0};
        lily_mem_fail_after(n);
        rc = whole_life(&e);
        lily_mem_fail_after(-1);
    }
    assert_int_equal(rc, LILY_OK);
    assert_true(failures > 20);
}

static void growing_without_memory(void **state)
{
    (void)state;
    lily_err e = {0};
    const int32_t tokens[4] = {1, 2, 3, 4};
    lily_state *s = rig_state(&r);
    feed_marked(s, tokens, 4, NULL, 0);
    size_t n;
    float *before = rig_memory(&r, s, &n);
    lily_mem_fail_after(1);
    check_fails(r.ops->state_grow(r.dev, s, 2 * RIG_CONTEXT, &e), LILY_NO_MEMORY, &e);
    lily_mem_fail_after(0);
    uint64_t ticket;
    const lily_lane lane = {
        .state = s, .tokens = tokens, .n_tokens = 4, .mark = (const uint32_t[]){1}, .n_marks = 1};
    check_fails(r.ops->submit(r.dev, r.prefill, LILY_FORWARD, LILY_FORWARD, &lane, 1, &ticket, &e),
                LILY_NO_MEMORY, &e);
    lily_mem_fail_after(-1);
    assert_int_equal(r.ops->state_position(s), 4);
    float *after = rig_memory(&r, s, &n);
    assert_memory_equal(before, after, n * sizeof *before);
    free(before);
    free(after);
    r.ops->state_free(r.dev, s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_do_not_matter),
        cmocka_unit_test(a_prompt_split_at_every_point),
        cmocka_unit_test(scores),
        cmocka_unit_test(snapshots_and_branches),
        cmocka_unit_test(cancelling_after_every_stage),
        cmocka_unit_test(wrong_arguments_leave_the_state),
        cmocka_unit_test(broken_weights_are_seen),
        cmocka_unit_test(replies_are_counted),
        cmocka_unit_test(allocation_faults),
        cmocka_unit_test(growing_without_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
