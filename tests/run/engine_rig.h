/* engine_rig.h - an engine on the tiny checkpoint and requests to it, for the tests named test_engine*.  The program's
 * first argument is the device, "late:" before it makes it one that takes runs ahead (late_device.h), a second one asks for
 * more cases. */
#ifndef LILY_TESTS_RUN_ENGINE_RIG_H
#define LILY_TESTS_RUN_ENGINE_RIG_H

#include "base/mem.h"
#include "late_device.h"
#include "run/engine_inside.h"
#include "text.h"

enum { CONTEXT = 1024, CHUNK = 32, PROMPT = 50, LONG = 900, CACHE = 32 << 20 };

static const char *device = "ref";
static bool hands_over; /* it was named with "late:" */
static bool slow;       /* a second argument: take more cases */

typedef struct world {
    lily_engine *g;
    int32_t *text;      /* [LONG] */
} world;

static inline lily_engine *open_engine(uint32_t context, uint32_t queue, uint32_t parallel)
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
    if (hands_over) hand_over(g, true);
    return g;
}

static inline lily_ask greedy(const int32_t *tokens, uint32_t n, uint32_t max_tokens)
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
    float logprob[CONTEXT];
    uint32_t n, n_reused;
    enum lily_end end;
    lily_err err;
} outcome;

static inline void drain(lily_request *r, outcome *out)
{
    *out = (outcome){0};
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) {
        if (ev->kind == LILY_EVENT_START) out->n_reused = ev->n_reused;
        if (ev->kind == LILY_EVENT_TOKEN) {
            out->logprob[out->n] = ev->logprob;
            out->ids[out->n++] = ev->id;
        }
        if (ev->kind != LILY_EVENT_END) continue;
        out->end = ev->end;
        assert_int_equal(ev->n_generated, out->n);
        if (ev->err) out->err = *ev->err;
    }
}

static inline lily_request *submit(lily_engine *g, const lily_ask *ask)
{
    lily_err e;
    lily_request *r;
    check_ok(lily_engine_submit(g, ask, &r, &e), &e);
    return r;
}

static inline outcome run(lily_engine *g, const lily_ask *ask)
{
    outcome o;
    lily_request *r = submit(g, ask);
    drain(r, &o);
    lily_request_free(r);
    return o;
}

static inline void check_same(const outcome *a, const outcome *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
}

/* Throws events away up to the first of a kind. */
static inline void wait_for(lily_request *r, enum lily_event_kind kind)
{
    for (bool found = false; !found;) {
        lily_event *ev = lily_request_wait(r);
        assert_non_null(ev);
        found = ev->kind == kind;
        lily_event_free(ev);
    }
}

static inline int setup(void **state)
{
    static world w;
    w.g = open_engine(CONTEXT, 0, 0);
    w.text = some_tokens(&w.g->m, LONG);
    *state = &w;
    return 0;
}

static inline int teardown(void **state)
{
    world *w = *state;
    free(w->text);
    lily_engine_close(w->g);
    return 0;
}

enum { SKIPPED = 77 };      /* what ctest takes for a skipped test */

/* Says why the device cannot be opened here, if it cannot. */
static inline bool is_absent(const char *name)
{
    const lily_dev_ops *ops;
    lily_dev *d;
    lily_err e;
    const int rc = lily_device_open(&ops, &d, name, &(lily_dev_options){.threads = 1}, &e);
    if (rc == LILY_OK) ops->close(d);
    if (rc == LILY_UNSUPPORTED) print_message("skipped: %s\n", e.text);
    return rc == LILY_UNSUPPORTED;
}

#define RUN_ENGINE_TESTS(tests)                                     \
    int main(int argc, char **argv)                                 \
    {                                                               \
        if (argc > 1) device = argv[1];                             \
        hands_over = strncmp(device, "late:", 5) == 0;              \
        if (hands_over) device += 5;                                \
        slow = argc > 2;                                            \
        if (argc > 3) cmocka_set_test_filter(argv[3]);              \
        if (is_absent(device)) return SKIPPED;                      \
        return cmocka_run_group_tests(tests, setup, teardown);      \
    }

#endif
