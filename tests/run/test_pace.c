/* test_pace.c - slices of a prompt stay within their time on machines that are imagined. */
#include <math.h>

#include "../check.h"
#include "run/pace.h"

/* What n tokens cost together: a decoded one `one` ms, many of them less each. */
static uint64_t cost_ns(double one, double power, uint32_t n) { return (uint64_t)(one * pow(n, power) * 1e6); }

static void slices_stay_short(void **state)
{
    (void)state;
    static const double ones[] = {1, 5, 20, 104, 300}, powers[] = {0.5, 0.7, 0.9, 1};
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        for (size_t k = 0; k < sizeof powers / sizeof *powers; k++) {
            lily_pace p = {0};
            double ms = 0;
            lily_pace_decoded(&p, cost_ns(ones[i], powers[k], 1));
            for (int slice = 0; slice < 40; slice++) {
                uint32_t n = lily_pace_slice(&p, LILY_SLICE_MS);
                ms = (double)cost_ns(ones[i], powers[k], n) * 1e-6;
                assert_true(ms <= LILY_SLICE_MS * 1.01 || n == 1);
                lily_pace_sliced(&p, n, cost_ns(ones[i], powers[k], n));
            }
            /* And do not become much shorter than they may be. */
            assert_true(ms > LILY_SLICE_MS * 0.5);
        }
}

static void a_slower_machine_is_noticed(void **state)
{
    (void)state;
    lily_pace p = {0};
    lily_pace_decoded(&p, cost_ns(10, 0.8, 1));
    for (int i = 0; i < 10; i++) {
        uint32_t n = lily_pace_slice(&p, LILY_SLICE_MS);
        lily_pace_sliced(&p, n, cost_ns(10, 0.8, n));
    }
    uint32_t n = lily_pace_slice(&p, LILY_SLICE_MS);
    lily_pace_sliced(&p, n, cost_ns(30, 0.8, n));
    n = lily_pace_slice(&p, LILY_SLICE_MS);
    assert_true((double)cost_ns(30, 0.8, n) * 1e-6 <= 500);
}

/* The last slice of a prompt may be one token, which costs far more than its share of a long slice. */
static void a_rest_says_nothing(void **state)
{
    (void)state;
    lily_pace p = {0};
    for (int i = 0; i < 20; i++) {
        uint32_t n = lily_pace_slice(&p, LILY_SLICE_MS);
        lily_pace_sliced(&p, n, cost_ns(50, 0.5, n));
    }
    uint32_t before = lily_pace_slice(&p, LILY_SLICE_MS);
    lily_pace_sliced(&p, 1, cost_ns(50, 0.5, 1));
    assert_int_equal(lily_pace_slice(&p, LILY_SLICE_MS), before);
    assert_true(lily_pace_slice(&p, LILY_SLICE_READING_MS) > before);
}

static void nothing_known(void **state)
{
    (void)state;
    lily_pace p = {0};
    assert_true(lily_pace_slice(&p, LILY_SLICE_MS) >= 1);
    lily_pace_sliced(&p, 1, UINT64_C(1) << 60);
    assert_int_equal(lily_pace_slice(&p, LILY_SLICE_MS), 1);
    lily_pace_sliced(&p, 1, 0);
    assert_int_equal(lily_pace_slice(&p, LILY_SLICE_MS), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_stay_short),
        cmocka_unit_test(a_slower_machine_is_noticed),
        cmocka_unit_test(a_rest_says_nothing),
        cmocka_unit_test(nothing_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
