/* What a state writes down and another reads is the same state: to the bit, for each device that can. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "rig.h"

enum { LENGTH = 300, MARK = 60, MORE = 20, PIECE = 77 };    /* beyond one page of keys and values */

static rig_model odd;

static int open_odd(void **state)
{
    (void)state;
    rig_model_open(&odd, rig_dir("odd"));
    return 0;
}

static int close_odd(void **state)
{
    (void)state;
    rig_model_close(&odd);
    return 0;
}

static void make_tokens(int32_t *out, uint32_t n, uint32_t vocab)
{
    for (uint32_t i = 0; i < n; i++) out[i] = (int32_t)((i * 7919u + 13u) % vocab);
}

/* A device that does not open here is skipped, by name. */
static void open_or_skip(rig *r, const char *device)
{
    lily_err e;
    const lily_dev_ops *ops;
    lily_dev *dev;
    if (lily_device_open(&ops, &dev, device, &(lily_dev_options){0}, &e) == LILY_OK)
        ops->close(dev);
    else if (e.code == LILY_UNSUPPORTED || !lily_device_find("cuda")) {
        print_message("skipped: %s\n", e.text);
        skip();
    }
    rig_open(r, odd.model, device, LENGTH, 0);
}

static void fill(const rig *r, lily_state *s, const int32_t *tokens)
{
    const uint32_t mark = MARK;
    const lily_lane lane = {.state = s, .tokens = tokens, .n_tokens = LENGTH, .mark = &mark, .n_marks = 1};
    rig_run(r, r->prefill, LILY_FORWARD, &lane);
}

/* Rows in pieces, then the states at MARK and at the end. */
static void carry(const rig *r, const lily_state *from, lily_state *to)
{
    lily_err e = {0};
    uint64_t fixed, snapshot, per_token;
    r->ops->state_cost(r->c, &fixed, &snapshot, &per_token);
    /* Room for exactly that, so that a sanitizer sees a byte too many. */
    for (uint32_t at = 0; at < LENGTH; at += PIECE) {
        uint32_t n = LENGTH - at < PIECE ? LENGTH - at : PIECE;
        void *bytes = malloc(n * per_token);
        check_ok(r->ops->rows_save(r->dev, from, at, n, bytes, &e), &e);
        check_ok(r->ops->rows_load(r->dev, to, at, n, bytes, &e), &e);
        free(bytes);
    }
    const uint32_t positions[] = {MARK, LENGTH};
    for (int i = 0; i < 2; i++) {
        void *bytes = malloc(snapshot);
        check_ok(r->ops->recurrent_save(r->dev, from, positions[i], bytes, &e), &e);
        check_ok(r->ops->recurrent_load(r->dev, to, positions[i], bytes, &e), &e);
        free(bytes);
    }
}

static void check_same_memory(const rig *r, const lily_state *a, const lily_state *b)
{
    size_t n, m;
    float *x = rig_memory(r, a, &n), *y = rig_memory(r, b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n * sizeof *x);
    free(x);
    free(y);
}

static void carried_state_is_the_same(void **state)
{
    rig r;
    lily_err e = {0};
    int32_t tokens[LENGTH + MORE];
    uint32_t at[4];
    open_or_skip(&r, *state);
    make_tokens(tokens, LENGTH + MORE, r.c->vocab);
    lily_state *a = rig_state(&r), *b = rig_state(&r);
    fill(&r, a, tokens);
    carry(&r, a, b);
    assert_int_equal(r.ops->state_position(b), LENGTH);
    assert_int_equal(r.ops->state_positions(b, at, 4), 2);
    assert_true(at[0] == MARK && at[1] == LENGTH);
    check_same_memory(&r, a, b);
    rig_feed(&r, a, tokens + LENGTH, MORE, 7);
    rig_feed(&r, b, tokens + LENGTH, MORE, 7);
    check_same_memory(&r, a, b);
    /* It goes back to a loaded snapshot as to its own. */
    check_ok(r.ops->state_copy(r.dev, a, a, MARK, &e), &e);
    check_ok(r.ops->state_copy(r.dev, b, b, MARK, &e), &e);
    rig_feed(&r, a, tokens + 5, MORE, 0);
    rig_feed(&r, b, tokens + 5, MORE, 0);
    check_same_memory(&r, a, b);
    r.ops->state_free(r.dev, a);
    r.ops->state_free(r.dev, b);
    rig_close(&r);
}

static void what_is_not_there_is_refused(void **state)
{
    rig r;
    lily_err e = {0};
    int32_t tokens[LENGTH];
    uint64_t fixed, snapshot, per_token;
    open_or_skip(&r, *state);
    r.ops->state_cost(r.c, &fixed, &snapshot, &per_token);
    make_tokens(tokens, LENGTH, r.c->vocab);
    lily_state *a = rig_state(&r), *b;
    fill(&r, a, tokens);
    void *bytes = calloc(1, snapshot + LENGTH * per_token);
    check_fails(r.ops->rows_save(r.dev, a, 0, LENGTH + 1, bytes, &e), LILY_ARGUMENT, &e);
    check_fails(r.ops->rows_save(r.dev, a, LENGTH + 1, 0, bytes, &e), LILY_ARGUMENT, &e);
    check_fails(r.ops->rows_save(r.dev, a, 1, UINT32_MAX, bytes, &e), LILY_ARGUMENT, &e);
    check_fails(r.ops->recurrent_save(r.dev, a, MARK + 1, bytes, &e), LILY_ARGUMENT, &e);
    check_fails(r.ops->recurrent_save(r.dev, a, 0, bytes, &e), LILY_ARGUMENT, &e);
    check_fails(r.ops->rows_load(r.dev, a, 0, 1, bytes, &e), LILY_ARGUMENT, &e);
    check_fails(r.ops->recurrent_load(r.dev, a, LENGTH, bytes, &e), LILY_ARGUMENT, &e);
    check_ok(r.ops->state_new(r.dev, r.weights, &b, &e), &e);
    check_fails(r.ops->rows_load(r.dev, b, 0, 1, bytes, &e), LILY_ARGUMENT, &e);
    check_fails(r.ops->recurrent_load(r.dev, b, 1, bytes, &e), LILY_ARGUMENT, &e);
    check_ok(r.ops->state_grow(r.dev, b, 10, &e), &e);
    check_ok(r.ops->rows_load(r.dev, b, 0, 10, bytes, &e), &e);
    check_fails(r.ops->rows_load(r.dev, b, 3, UINT32_MAX, bytes, &e), LILY_ARGUMENT, &e);
    lily_mem_fail_after(0);
    check_fails(r.ops->recurrent_load(r.dev, b, 5, bytes, &e), LILY_NO_MEMORY, &e);
    lily_mem_fail_after(-1);
    assert_int_equal(r.ops->state_position(b), 0);
    check_ok(r.ops->recurrent_load(r.dev, b, 5, bytes, &e), &e);
    check_fails(r.ops->recurrent_load(r.dev, b, 5, bytes, &e), LILY_ARGUMENT, &e);
    free(bytes);
    r.ops->state_free(r.dev, a);
    r.ops->state_free(r.dev, b);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {.name = "carried_state_is_the_same ref", .test_func = carried_state_is_the_same, .initial_state = "ref"},
        {.name = "carried_state_is_the_same cpu", .test_func = carried_state_is_the_same, .initial_state = "cpu"},
        {.name = "carried_state_is_the_same cuda", .test_func = carried_state_is_the_same, .initial_state = "cuda"},
        {.name = "what_is_not_there_is_refused ref", .test_func = what_is_not_there_is_refused, .initial_state = "ref"},
        {.name = "what_is_not_there_is_refused cpu", .test_func = what_is_not_there_is_refused, .initial_state = "cpu"},
        {.name = "what_is_not_there_is_refused cuda", .test_func = what_is_not_there_is_refused, .initial_state = "cuda"},
    };
    return cmocka_run_group_tests(tests, open_odd, close_odd);
}
