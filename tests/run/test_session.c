/* test_session.c - what a session reuses, and that reuse, chunks, cancels and failures never change an answer.
 * ref must give the same bits whatever the cuts; cpu the same top token wherever the margin is clear. */
#include <math.h>

#include "base/mem.h"
#include "run/session.h"
#include "text.h"

enum { PROMPT = 200, OTHER = 60, FAR = 500, CONTEXT = 2048 };

/* A device that fails or is cancelled at its n-th submit, around a real one. */
static struct {
    const lily_dev_ops *real;
    int countdown;                  /* submits until it acts; negative: never */
    bool fail;                      /* else it sets the flag below */
    atomic_bool *cancel;
    const lily_state *state;        /* of the last submit */
} faulty;

static int faulty_submit(lily_dev *d, lily_exec *x, enum lily_segment first, enum lily_segment last,
                         const lily_lane *lane, uint32_t n_lanes, uint64_t *ticket, lily_err *e)
{
    faulty.state = lane->state;
    if (faulty.countdown-- == 0) {
        if (faulty.fail) {
            /* As a real failure: the run was cut somewhere in the middle. */
            lily_lane cut = *lane;
            atomic_bool now = true;
            cut.cancel = &now;
            TRY(faulty.real->submit(d, x, first, last, &cut, n_lanes, ticket, e));
            return lily_fail(e, LILY_DEVICE, "planted failure");
        }
        atomic_store(faulty.cancel, true);
    }
    return faulty.real->submit(d, x, first, last, lane, n_lanes, ticket, e);
}

typedef struct world {
    const char *device;
    lily_loaded m;
    lily_dev_ops ops;               /* m.ops with the faulty submit */
    int32_t *text;                  /* [FAR] */
} world;

static void load(world *w, const char *model, const char *device, uint32_t chunk)
{
    lily_err e;
    lily_engine_options o = {.model_dir = model, .device = device, .context = CONTEXT, .chunk = chunk, .threads = 2};
    *w = (world){.device = device};
    check_ok(lily_load(&w->m, &o, LILY_LOAD_FULL, &e), &e);
    w->text = some_tokens(&w->m, FAR);
    w->ops = *w->m.ops;
    faulty.real = w->m.ops;
    faulty.countdown = -1;
    w->ops.submit = faulty_submit;
    w->m.ops = &w->ops;
}

static void unload(world *w)
{
    free(w->text);
    w->m.ops = faulty.real;
    lily_unload(&w->m);
}

static lily_session *session(world *w)
{
    lily_err e;
    lily_session *s;
    check_ok(lily_session_new(&s, &w->m, &e), &e);
    return s;
}

/* All that the answer to a prompt depends on: the logits of its last token. */
typedef struct answer {
    float *logits;
    uint32_t vocab;
    int32_t token;
    uint32_t n_reused;
} answer;

static lily_reading reading_of(const int32_t *tokens, uint32_t n, const uint32_t *marks, uint32_t n_marks)
{
    return (lily_reading){.tokens = tokens, .n = n - 1, .marks = marks, .n_marks = n_marks};
}

static int step(world *w, lily_session *s, int32_t token, bool count, lily_done *done, lily_err *e)
{
    const lily_pick greedy = {.top_p = 1, .repetition = 1, .n_vocab = (int32_t)w->m.config->vocab};
    lily_feed f = {.tokens = &token, .n = 1, .pick = &greedy, .count = count};
    return lily_session_feed(s, &f, done, e);
}

static answer ask_prompt(world *w, lily_session *s, lily_reading *p, int32_t last)
{
    lily_err e;
    lily_done done;
    answer a = {.vocab = w->m.config->vocab};
    check_ok(lily_session_begin(s, p, &e), &e);
    a.n_reused = p->n_read;
    while (p->n_read < p->n) check_ok(lily_session_read(s, p, UINT32_MAX, NULL, &e), &e);
    check_ok(step(w, s, last, false, &done, &e), &e);
    a.token = done.token;
    assert_non_null(done.logits);
    a.logits = malloc(a.vocab * sizeof *a.logits);
    memcpy(a.logits, done.logits, a.vocab * sizeof *a.logits);
    return a;
}

static answer ask(world *w, lily_session *s, const int32_t *tokens, uint32_t n)
{
    lily_reading p = reading_of(tokens, n, NULL, 0);
    return ask_prompt(w, s, &p, tokens[n - 1]);
}

static answer ask_cold(world *w, const int32_t *tokens, uint32_t n)
{
    lily_session *s = session(w);
    answer a = ask(w, s, tokens, n);
    assert_int_equal(a.n_reused, 0);
    lily_session_free(s);
    return a;
}

/* Every row of ref and cpu is invariant: a token has the same bits however its prompt was cut. */
static void check_same(const answer *a, const answer *b)
{
    assert_memory_equal(a->logits, b->logits, a->vocab * sizeof *a->logits);
    assert_int_equal(a->token, b->token);
}

static void drop_answer(answer *a) { free(a->logits); }

static void check_and_drop(const answer *want, answer got)
{
    check_same(want, &got);
    drop_answer(&got);
}

/* ---- cuts ---- */

/* A prompt that was read up to the cut, and then is asked as a whole. */
static void split_warm(world *w, uint32_t stride)
{
    answer want = ask_cold(w, w->text, PROMPT);
    lily_session *s = session(w);
    for (uint32_t cut = 1; cut < PROMPT; cut += stride) {
        answer first = ask(w, s, w->text, cut);
        answer got = ask(w, s, w->text, PROMPT);
        assert_int_equal(got.n_reused, cut);
        check_same(&want, &got);
        drop_answer(&first);
        drop_answer(&got);
    }
    lily_session_free(s);
    drop_answer(&want);
}

/* Cold: the same cut as two passes of one session that has no snapshot to go back to. */
static void split_cold(world *w, uint32_t stride)
{
    answer want = ask_cold(w, w->text, PROMPT);
    lily_session *s = session(w);
    for (uint32_t cut = 1; cut < PROMPT; cut += stride) {
        lily_err e;
        lily_done done;
        check_ok(lily_session_reset(s, &e), &e);
        lily_feed f = {.tokens = w->text, .n = cut};
        check_ok(lily_session_feed(s, &f, &done, &e), &e);
        f = (lily_feed){.tokens = w->text + cut, .n = PROMPT - 1 - cut};
        if (f.n) check_ok(lily_session_feed(s, &f, &done, &e), &e);
        check_ok(step(w, s, w->text[PROMPT - 1], false, &done, &e), &e);
        answer got = {(float *)done.logits, want.vocab, done.token, 0};
        check_same(&want, &got);
    }
    lily_session_free(s);
    drop_answer(&want);
}

/* ref is slow: all cuts of the larger models are taken only when the test is called with "slow". */
static bool slow;

static void splits_of(const char *model, const char *device, uint32_t warm_stride, uint32_t cold_stride)
{
    world w;
    load(&w, model, device, 256);
    split_warm(&w, slow ? 1 : warm_stride);
    split_cold(&w, slow ? 1 : cold_stride);
    unload(&w);
}

static void splits(const char *device)
{
    splits_of(TINY, device, 1, 5);
    splits_of(DEMO, device, 43, 61);
    if (slow) splits_of(ODD, device, 1, 1);
}

static void splits_ref(void **state)
{
    (void)state;
    splits("ref");
}

static void splits_cpu(void **state)
{
    (void)state;
    if (!lily_device_find("cpu")) skip();
    splits("cpu");
}

static void chunks(const char *model, const char *device)
{
    static const uint32_t sizes[] = {1, 7, 64, 2048};
    answer want = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        world w;
        load(&w, model, device, sizes[i]);
        answer got = ask_cold(&w, w.text, 333);
        if (i == 0) {
            want = got;
        } else {
            check_same(&want, &got);
            drop_answer(&got);
        }
        unload(&w);
    }
    drop_answer(&want);
}

static void chunks_ref(void **state)
{
    (void)state;
    chunks(TINY, "ref");
    chunks(DEMO, "ref");
    if (slow) chunks(ODD, "ref");
}

static void chunks_cpu(void **state)
{
    (void)state;
    if (!lily_device_find("cpu")) skip();
    chunks(TINY, "cpu");
    chunks(DEMO, "cpu");
    if (slow) chunks(ODD, "cpu");
}

/* ---- reuse ---- */

static void same_prompt_again(void **state)
{
    world *w = *state;
    lily_session *s = session(w);
    answer want = ask(w, s, w->text, PROMPT);
    for (int i = 0; i < 3; i++) {
        /* A reply in between: the second is of another length. */
        lily_err e;
        lily_done done;
        for (int32_t n = 0, token = want.token; n < 5 * i; n++, token = done.token)
            check_ok(step(w, s, token, true, &done, &e), &e);
        answer got = ask(w, s, w->text, PROMPT);
        assert_int_equal(got.n_reused, PROMPT - 1);
        check_and_drop(&want, got);
    }
    drop_answer(&want);
    lily_session_free(s);
}

/* The reply is part of the next prompt: all of it is reused. */
static void conversation_goes_on(void **state)
{
    world *w = *state;
    lily_err e;
    int32_t tokens[PROMPT + 40];
    memcpy(tokens, w->text, sizeof tokens);
    lily_session *s = session(w);
    answer a = ask(w, s, tokens, PROMPT);
    tokens[PROMPT] = a.token;
    for (uint32_t i = PROMPT; i < PROMPT + 10; i++) {
        lily_done done;
        check_ok(step(w, s, tokens[i], true, &done, &e), &e);
        tokens[i + 1] = done.token;
    }
    answer warm = ask(w, s, tokens, PROMPT + 40);
    assert_int_equal(warm.n_reused, PROMPT + 10);
    answer cold = ask_cold(w, tokens, PROMPT + 40);
    check_and_drop(&cold, warm);
    drop_answer(&cold);
    drop_answer(&a);
    lily_session_free(s);
}

static void prompts_that_part(void **state)
{
    world *w = *state;
    static const uint32_t marks[] = {50, 90, 150};
    static const struct {
        uint32_t same, reused;
    } cases[] = {{0, 0}, {49, 0}, {50, 50}, {89, 50}, {90, 90}, {149, 90}, {150, 150}, {198, 150}, {199, 199}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t other[PROMPT];
        memcpy(other, w->text, sizeof other);
        for (uint32_t k = cases[i].same; k < PROMPT; k++) other[k] = w->text[250 + k] == other[k] ? 7 : w->text[250 + k];
        lily_session *s = session(w);
        lily_reading p = reading_of(w->text, PROMPT, marks, 3);
        answer first = ask_prompt(w, s, &p, w->text[PROMPT - 1]);
        answer warm = ask(w, s, other, PROMPT), cold = ask_cold(w, other, PROMPT);
        assert_int_equal(warm.n_reused, cases[i].reused);
        check_and_drop(&cold, warm);
        drop_answer(&cold);
        /* And back: what was forgotten is read again. */
        answer again = ask(w, s, w->text, PROMPT);
        check_and_drop(&first, again);
        drop_answer(&first);
        lily_session_free(s);
    }
}

static void shorter_prompt(void **state)
{
    world *w = *state;
    static const uint32_t marks[] = {30, 60};
    lily_session *s = session(w);
    lily_reading p = reading_of(w->text, PROMPT, marks, 2);
    answer long_one = ask_prompt(w, s, &p, w->text[PROMPT - 1]);
    answer warm = ask(w, s, w->text, 61), cold = ask_cold(w, w->text, 61);
    assert_int_equal(warm.n_reused, 60);
    check_and_drop(&cold, warm);
    drop_answer(&cold);
    answer one = ask(w, s, w->text, 1);
    assert_int_equal(one.n_reused, 0);
    drop_answer(&one);
    drop_answer(&long_one);
    lily_session_free(s);
}

static void fresh_prompt_keeps_nothing(void **state)
{
    world *w = *state;
    static const uint32_t marks[] = {50, 90};
    uint32_t positions[LILY_SNAPSHOTS + 1];
    lily_session *s = session(w);
    answer want = ask(w, s, w->text, PROMPT);
    lily_reading p = reading_of(w->text, PROMPT, marks, 2);
    p.fresh = true;
    answer got = ask_prompt(w, s, &p, w->text[PROMPT - 1]);
    assert_int_equal(got.n_reused, 0);
    check_and_drop(&want, got);
    assert_int_equal(lily_session_positions(s, positions), 1);
    assert_int_equal(positions[0], PROMPT);
    drop_answer(&want);
    lily_session_free(s);
}

/* ---- snapshots ---- */

static void check_positions(const lily_session *s, const uint32_t *want, uint32_t n)
{
    uint32_t got[LILY_SNAPSHOTS + 1];
    assert_int_equal(lily_session_positions(s, got), n);
    for (uint32_t i = 0; i < n; i++) assert_int_equal(got[i], want[i]);
}

static void snapshot_budget(void **state)
{
    world *w = *state;
    uint32_t marks[30];
    for (uint32_t i = 0; i < 30; i++) marks[i] = 10 * (i + 1);
    lily_session *s = session(w);
    /* One long prompt: the first mark, the newest four, the end, and of the others some spread between. */
    lily_reading p = reading_of(w->text, 200, marks, 20);
    answer a = ask_prompt(w, s, &p, w->text[199]);
    drop_answer(&a);
    check_positions(s, (const uint32_t[]){10, 50, 70, 90, 110, 140, 170, 180, 190, 199, 200}, 11);
    /* It goes on: older ones make room, the first stays. */
    p = reading_of(w->text, 225, marks, 22);
    a = ask_prompt(w, s, &p, w->text[224]);
    assert_int_equal(a.n_reused, 200);
    drop_answer(&a);
    check_positions(s, (const uint32_t[]){10, 50, 90, 110, 140, 170, 199, 210, 220, 224, 225}, 11);
    lily_session_free(s);
}

/* A full context with all its snapshots holds no more than was announced before loading. */
static void memory_as_planned(void **state)
{
    world *w = *state;
    uint32_t marks[8];
    int32_t *tokens = calloc(CONTEXT, sizeof *tokens);
    for (uint32_t i = 0; i < 8; i++) marks[i] = 200 * (i + 1);
    lily_session *s = session(w);
    lily_reading p = reading_of(tokens, CONTEXT - 1, marks, 8);
    answer a = ask_prompt(w, s, &p, tokens[CONTEXT - 2]);
    uint64_t held = w->m.ops->state_bytes(faulty.state), planned = w->m.memory.kv + w->m.memory.state;
    assert_true(held <= planned);
    assert_true(held > planned / 2);
    drop_answer(&a);
    free(tokens);
    lily_session_free(s);
}

/* ---- cancel and failure ---- */

/* 500 tokens in chunks of 64, cut in the submit-th run; what remains must be true and useful. */
static void cut_run(world *w, int submit, bool fail, const answer *want)
{
    lily_err e;
    atomic_bool cancel = false;
    lily_session *s = session(w);
    lily_reading p = reading_of(w->text, FAR, NULL, 0);
    faulty.countdown = submit;
    faulty.fail = fail;
    faulty.cancel = &cancel;
    check_ok(lily_session_begin(s, &p, &e), &e);
    int rc = LILY_OK;
    while (rc == LILY_OK && p.n_read < p.n) rc = lily_session_read(s, &p, UINT32_MAX, &cancel, &e);
    faulty.countdown = -1;
    assert_int_equal(rc, fail ? LILY_DEVICE : LILY_CANCELLED);
    uint32_t n;
    const int32_t *tokens = lily_session_tokens(s, &n);
    assert_int_equal(n, 64 * submit);
    assert_memory_equal(tokens, w->text, n * sizeof *tokens);
    answer got = ask(w, s, w->text, FAR);
    assert_int_equal(got.n_reused, n);
    check_and_drop(want, got);
    lily_session_free(s);
}

static void cancel_and_failure(const char *device)
{
    world w;
    load(&w, TINY, device, 64);
    answer want = ask_cold(&w, w.text, FAR);
    static const int submits[] = {0, 1, 4, 7};
    for (int i = 0; i < 4; i++) {
        cut_run(&w, submits[i], false, &want);
        cut_run(&w, submits[i], true, &want);
    }
    drop_answer(&want);
    unload(&w);
}

static void cancel_ref(void **state)
{
    (void)state;
    cancel_and_failure("ref");
}

static void cancel_cpu(void **state)
{
    (void)state;
    if (!lily_device_find("cpu")) skip();
    cancel_and_failure("cpu");
}

/* A reply that is cut falls back to the prompt's end, not further. */
static void cancelled_reply(void **state)
{
    world *w = *state;
    lily_err e;
    lily_done done;
    atomic_bool cancel = false;
    lily_session *s = session(w);
    answer want = ask(w, s, w->text, PROMPT);
    for (int32_t i = 0, token = want.token; i < 5; i++, token = done.token)
        check_ok(step(w, s, token, true, &done, &e), &e);
    atomic_store(&cancel, true);
    lily_feed f = {.tokens = w->text, .n = 1, .cancel = &cancel};
    check_fails(lily_session_feed(s, &f, &done, &e), LILY_CANCELLED, &e);
    check_positions(s, (const uint32_t[]){PROMPT - 1}, 1);
    check_and_drop(&want, ask(w, s, w->text, PROMPT));
    drop_answer(&want);
    lily_session_free(s);
}

/* A device that says it stands where no snapshot is must not be believed. */
static uint32_t wrong_position(const lily_state *s)
{
    uint32_t p = faulty.real->state_position(s);
    return p ? p - 1 : p;
}

static void lying_device(void **state)
{
    world *w = *state;
    lily_err e;
    lily_done done;
    uint32_t n;
    lily_session *s = session(w);
    w->ops.state_position = wrong_position;
    lily_feed f = {.tokens = w->text, .n = 5};
    check_fails(lily_session_feed(s, &f, &done, &e), LILY_INTERNAL, &e);
    w->ops.state_position = faulty.real->state_position;
    lily_session_tokens(s, &n);
    assert_int_equal(n, 0);
    answer cold = ask_cold(w, w->text, OTHER);
    check_and_drop(&cold, ask(w, s, w->text, OTHER));
    drop_answer(&cold);
    lily_session_free(s);
}

/* Each allocation of a warm request fails once; the session stays usable and right. */
static void allocation_faults(void **state)
{
    world *w = *state;
    static const uint32_t marks[] = {20, 40};
    answer want = ask_cold(w, w->text, OTHER);
    int64_t most = 0;
    for (int64_t fail_at = 0; fail_at <= most; fail_at++) {
        lily_err e = {0};
        lily_done done;
        lily_session *s = session(w);
        lily_reading p = reading_of(w->text, OTHER, marks, 2);
        lily_mem_fail_after(fail_at);
        int rc = lily_session_begin(s, &p, &e);
        while (rc == LILY_OK && p.n_read < p.n) rc = lily_session_read(s, &p, UINT32_MAX, NULL, &e);
        if (rc == LILY_OK) rc = step(w, s, w->text[OTHER - 1], false, &done, &e);
        if (lily_mem_count() > most) most = lily_mem_count();
        lily_mem_fail_after(-1);
        if (rc != LILY_OK) assert_int_equal(rc, LILY_NO_MEMORY);
        check_and_drop(&want, ask(w, s, w->text, OTHER));
        lily_session_free(s);
    }
    assert_true(most > 2);
    drop_answer(&want);
}

static void context_is_full(void **state)
{
    world *w = *state;
    lily_err e;
    lily_done done;
    int32_t *tokens = calloc(CONTEXT, sizeof *tokens);
    lily_session *s = session(w);
    lily_reading p = reading_of(tokens, CONTEXT + 1, NULL, 0);
    check_fails(lily_session_begin(s, &p, &e), LILY_CONTEXT, &e);
    lily_feed f = {.tokens = tokens, .n = 0};
    check_fails(lily_session_feed(s, &f, &done, &e), LILY_CONTEXT, &e);
    free(tokens);
    lily_session_free(s);
}

static int setup(void **state)
{
    static world w;
    load(&w, TINY, "ref", 64);
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
    slow = argc > 1 && strcmp(argv[1], "slow") == 0;
    if (argc > 2) cmocka_set_test_filter(argv[2]);
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(splits_ref), cmocka_unit_test(splits_cpu), cmocka_unit_test(chunks_ref),
        cmocka_unit_test(chunks_cpu), cmocka_unit_test(cancel_ref), cmocka_unit_test(cancel_cpu),
    };
    const struct CMUnitTest shared[] = {
        cmocka_unit_test(same_prompt_again),
        cmocka_unit_test(conversation_goes_on),
        cmocka_unit_test(prompts_that_part),
        cmocka_unit_test(shorter_prompt),
        cmocka_unit_test(fresh_prompt_keeps_nothing),
        cmocka_unit_test(snapshot_budget),
        cmocka_unit_test(memory_as_planned),
        cmocka_unit_test(cancelled_reply),
        cmocka_unit_test(lying_device),
        cmocka_unit_test(allocation_faults),
        cmocka_unit_test(context_is_full),
    };
    int failed = cmocka_run_group_tests(alone, NULL, NULL);
    return failed + cmocka_run_group_tests(shared, setup, teardown);
}
