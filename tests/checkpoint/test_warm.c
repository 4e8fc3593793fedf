/* Warming reads every page of the text tensors once, tells a progress that only rises, and is silent the second time. */
#include <string.h>

#include "../check.h"
#include "base/mem.h"
#include "model/warm.h"

typedef struct told {
    int calls;
    double last;
} told;

static void on_progress(void *user, double fraction)
{
    told *t = user;
    assert_true(fraction > t->last && fraction <= 1);
    t->last = fraction;
    t->calls++;
}

static void a_warm_checkpoint_is_left_alone(void **state)
{
    (void)state;
    lily_err e;
    lily_ckpt *c;
    told first = {0}, second = {0};
    check_ok(lily_ckpt_open(&c, LILY_SOURCE_DIR "/models/demo", &e), &e);
    check_ok(lily_model_warm(c, NULL, on_progress, &first, &e), &e);
    assert_in_range(first.calls, 0, 100);
    assert_true(first.calls == 0 || first.last == 1);
    check_ok(lily_model_warm(c, NULL, on_progress, &second, &e), &e);
    assert_int_equal(second.calls, 0);
    lily_mem_fail_after(0);
    int rc = lily_model_warm(c, NULL, on_progress, &second, &e);
    lily_mem_fail_after(-1);
    check_fails(rc, LILY_NO_MEMORY, &e);
    lily_ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_warm_checkpoint_is_left_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
