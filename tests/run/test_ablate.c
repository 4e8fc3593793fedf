/* What a switch is worth: pairs of samples with it and without it, and why some cannot be measured. */
#include <math.h>
#include <string.h>

#include "../check.h"
#include "plan/plan.h"
#include "run/ablate.h"

#define TINY LILY_BINARY_DIR "/tests/ck/tiny"

typedef struct seen {
    unsigned prefill, decode, refused;      /* switches, one bit each */
} seen;

static lily_engine *open_engine(const char *device, uint64_t ablated)
{
    lily_err e;
    lily_engine *g;
    lily_engine_options o = {.model_dir = TINY, .device = device, .context = 128, .chunk = 32, .ablated = ablated};
    check_ok(lily_engine_open(&g, &o, &e), &e);
    return g;
}

static void on_result(void *user, const lily_ablate_result *r)
{
    seen *s = user;
    unsigned bit = 1u << r->which;
    if (r->refused) {
        assert_true(strlen(r->refused) > 10);
        s->refused |= bit;
        return;
    }
    assert_int_equal(r->n_pairs, 4);
    assert_true(r->context == 16 || r->context == 40);
    double low = INFINITY, high = -INFINITY;
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(r->with[i] > 0 && r->without[i] > 0);
        low = fmin(low, r->with[i] / r->without[i] - 1);
        high = fmax(high, r->with[i] / r->without[i] - 1);
    }
    assert_true(r->low == low && r->high == high);      /* of four pairs, all of them */
    assert_true(r->effect >= low && r->effect <= high);
    *(r->phase[0] == 'd' ? &s->decode : &s->prefill) |= bit;
}

static void measures_what_the_device_can_remove(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {16, 40};
    lily_ablate_options o = {lily_bit(N_ABLATIONS) - 1, lengths, 2, 3, 4};
    const char *devices[] = {"ref", "cpu:portable"};
    for (int i = 0; i < 2; i++) {
        lily_err e;
        seen s = {0};
        lily_engine *g = open_engine(devices[i], 0);
        check_ok(lily_engine_ablate(g, &o, on_result, &s, &e), &e);
        assert_int_equal(s.prefill, s.decode);
        assert_int_equal(s.prefill | s.refused, lily_bit(N_ABLATIONS) - 1);
        assert_int_equal(s.prefill & s.refused, 0);
        assert_true(s.prefill & lily_bit(ABLATE_PROMPT_CHUNKS));
        assert_true(s.refused & lily_bit(ABLATE_MASK_OVERLAP));
        assert_int_equal((s.prefill & lily_bit(ABLATE_FUSE_QK)) != 0, i == 1);   /* ref has single steps alone */
        lily_engine_close(g);
    }
}

static void refuses_what_is_off_already(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {16};
    lily_err e;
    seen s = {0};
    lily_engine *g = open_engine("cpu:portable", lily_bit(ABLATE_FUSE_QK));
    lily_ablate_options o = {lily_bit(ABLATE_FUSE_QK), lengths, 1, 3, 4};
    check_ok(lily_engine_ablate(g, &o, on_result, &s, &e), &e);
    assert_int_equal(s.refused, lily_bit(ABLATE_FUSE_QK));
    o.decode_tokens = 128;
    check_fails(lily_engine_ablate(g, &o, on_result, &s, &e), LILY_CONTEXT, &e);
    o.decode_tokens = o.pairs = 0;
    check_fails(lily_engine_ablate(g, &o, on_result, &s, &e), LILY_ARGUMENT, &e);
    lily_engine_close(g);
}

/* The ranks that tables of the sign test give. */
static void intervals(void **state)
{
    (void)state;
    static const struct { uint32_t n, rank; } table[] = {{1, 0}, {5, 0}, {6, 0}, {8, 0}, {9, 1}, {12, 2}, {20, 5}, {100, 39}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_int_equal(lily_ablate_rank(table[i].n), table[i].rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measures_what_the_device_can_remove),
        cmocka_unit_test(refuses_what_is_off_already),
        cmocka_unit_test(intervals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
