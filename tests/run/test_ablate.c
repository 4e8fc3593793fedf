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
    double product = 1;
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(r->with[i] > 0 && r->without[i] > 0);
        product *= r->with[i] / r->without[i];
    }
    assert_true(fabs(pow(1 + r->effect, 4) / product - 1) < 1e-9);
    assert_true(r->low <= r->effect && r->effect <= r->high);
    if (r->which == ABLATE_PROMPT_CHUNKS) assert_int_equal(r->context, 40);     /* the only one beyond a chunk */
    /* Reading ends with the context's last token, at most a chunk before it was branched off. */
    const bool whole = r->which == ABLATE_PROMPT_CHUNKS;
    assert_int_equal(r->tokens, r->phase[0] == 'd' ? 3 : r->context == 16 || whole ? r->context : 33);
    *(r->phase[0] == 'd' ? &s->decode : &s->prefill) |= bit;
}

static void measures_what_the_device_can_remove(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {16, 40};
    lily_ablate_options o = {lily_bit(N_ABLATIONS) - 1, {lengths, 2, 3, 4}, 0};
    const char *devices[] = {"ref", "cpu:portable"};
    for (int i = 0; i < 2; i++) {
        lily_err e;
        seen s = {0};
        lily_engine *g = open_engine(devices[i], 0);
        check_ok(lily_engine_ablate(g, &o, on_result, &s, &e), &e);
        assert_int_equal(s.prefill & ~lily_bit(ABLATE_PROMPT_CHUNKS), s.decode);
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
    lily_ablate_options o = {lily_bit(ABLATE_FUSE_QK), {lengths, 1, 3, 4}, 0};
    check_ok(lily_engine_ablate(g, &o, on_result, &s, &e), &e);
    assert_int_equal(s.refused, lily_bit(ABLATE_FUSE_QK));
    o.switches = lily_bit(ABLATE_PROMPT_CHUNKS);
    s = (seen){0};
    check_ok(lily_engine_ablate(g, &o, on_result, &s, &e), &e);
    assert_int_equal(s.refused, o.switches);            /* 16 tokens are one chunk anyhow */
    o.timing.samples = 1;
    check_fails(lily_engine_ablate(g, &o, on_result, &s, &e), LILY_ARGUMENT, &e);
    o.timing.decode_tokens = 128;
    check_fails(lily_engine_ablate(g, &o, on_result, &s, &e), LILY_CONTEXT, &e);
    o.timing.decode_tokens = o.timing.samples = 0;
    check_fails(lily_engine_ablate(g, &o, on_result, &s, &e), LILY_ARGUMENT, &e);
    lily_engine_close(g);
}

/* A worked example: the interval of a paired t test. */
static void intervals(void **state)
{
    (void)state;
    static const double values[] = {1.1, 2.3, 1.7, 0.9, 2.0, 1.4};
    double reach, mean = lily_ablate_mean(values, 6, &reach);
    assert_true(fabs(mean - 1.5666667) < 1e-6);
    assert_true(fabs(reach - 0.561972) < 1e-5);
    double same[40];
    for (int i = 0; i < 40; i++) same[i] = i % 2 ? 1 : -1;
    assert_true(fabs(lily_ablate_mean(same, 40, &reach)) < 1e-12);
    assert_true(fabs(reach - 2.0227 * sqrt(40. / 39 / 40)) < 1e-3);
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
