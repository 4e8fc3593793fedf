/* test_cuda_plan.c - the plans of the cuda device, which need no GPU: right by brute force, under every set of switches,
 * and made of the rows that are meant to run the full model. */
#include "../check.h"

#include <string.h>

#include "../plan/checker.h"
#include "../plan/configs.h"
#include "device/cuda/cuda.h"

static lily_plan *plan_of(const lily_config *c, const lily_dev *dev, enum lily_mode mode, uint32_t tokens, uint64_t without)
{
    lily_err e;
    lily_plan *p;
    const lily_plan_device d = lily_device_for_plan(&lily_dev_cuda, dev);
    const lily_plan_ask ask = {mode, tokens, 8192, without, 0};
    check_ok(lily_plan_make(&p, &d, c, &ask, &e), &e);
    const char *wrong = check_plan(p, &d, c, 0);
    if (wrong) fail_msg("%s", wrong);
    return p;
}

static lily_dev hopper(bool packed)
{
    return (lily_dev){.packed = packed, .hopper = true, .props = {.major = 9, .sharedMemPerBlockOptin = 227 << 10}};
}

/* A card as the 8.9 ones are. */
static lily_dev other(bool packed)
{
    return (lily_dev){.packed = packed, .props = {.major = 8, .minor = 9, .sharedMemPerBlockOptin = 99 << 10}};
}

static uint32_t stages_of(const lily_plan *p, const char *row)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_stages; i++) n += strcmp(lily_dev_cuda.rows[p->stages[i].row].name, row) == 0;
    return n;
}

/* Whether the checkpoint is packed decides which rows fit, and the card. */
static void right_under_all_switches(void **state)
{
    (void)state;
    const lily_config small = small_config(4);
    uint64_t switches = 0;
    for (size_t i = 0; i < lily_dev_cuda.n_rows; i++) switches |= lily_dev_cuda.rows[i].off;
    for (int kind = 0; kind < 4; kind++) {
        const lily_dev dev = kind & 2 ? hopper(kind & 1) : other(kind & 1);
        uint64_t without = 0;
        do {
            lily_plan_free(plan_of(&small, &dev, LILY_DECODE, 1, without));
            lily_plan_free(plan_of(&small, &dev, LILY_PREFILL, 64, without));
            lily_plan_free(plan_of(&small, &dev, LILY_PREFILL, 1, without));
            without = (without - switches) & switches;      /* the next subset */
        } while (without);
    }
}

static void full_model_in_few_stages(void **state)
{
    (void)state;
    const lily_config full = full_config();
    const lily_dev dev = hopper(true);
    lily_plan *p = plan_of(&full, &dev, LILY_DECODE, 1, 0);
    assert_int_equal(stages_of(p, "token_embed"), 1);
    assert_int_equal(stages_of(p, "delta_in"), 30);
    assert_int_equal(stages_of(p, "token_scan"), 30);
    assert_int_equal(stages_of(p, "token_attention"), 10);
    assert_int_equal(stages_of(p, "token_out_norm") + stages_of(p, "token_o_norm"), 40);
    assert_int_equal(stages_of(p, "token_experts"), 40);
    assert_int_equal(p->n_stages, 1 + 4 * 40 + 2);
    assert_int_equal(stages_of(p, "pick"), 1);
    lily_plan_free(p);
    p = plan_of(&full, &dev, LILY_DECODE, 1, lily_bit(ABLATE_FUSE_EXPERT_DOWN));
    assert_int_equal(stages_of(p, "token_experts"), 0);
    assert_int_equal(stages_of(p, "token_experts_up"), 40);
    lily_plan_free(p);
    p = plan_of(&full, &dev, LILY_PREFILL, 2048, 0);
    assert_int_equal(stages_of(p, "delta_blocks"), 30);
    assert_int_equal(stages_of(p, "attention_gate"), 10);
    assert_int_equal(stages_of(p, "route"), 40);
    assert_int_equal(stages_of(p, "combine_norm"), 40);
    assert_true(p->scratch_bytes < 1ull << 30);
    lily_plan_free(p);
}

/* On other cards too no product of the full model is left to plain loads of single weights. */
static void other_cards_have_packed_rows(void **state)
{
    (void)state;
    const lily_config full = full_config();
    const lily_dev dev = other(true);
    lily_plan *p = plan_of(&full, &dev, LILY_DECODE, 1, 0);
    assert_int_equal(stages_of(p, "delta_in"), 30);
    assert_int_equal(stages_of(p, "token_scan"), 30);
    assert_int_equal(stages_of(p, "token_attention"), 10);
    assert_int_equal(stages_of(p, "plain_out") + stages_of(p, "plain_o"), 40);
    assert_int_equal(stages_of(p, "router_gate"), 40);
    assert_int_equal(stages_of(p, "plain_up"), 40);
    assert_int_equal(stages_of(p, "plain_down"), 40);
    lily_plan_free(p);
    p = plan_of(&full, &dev, LILY_PREFILL, 2048, 0);
    assert_int_equal(stages_of(p, "delta_scan"), 30);       /* blocks want 160 KiB of shared memory */
    assert_int_equal(stages_of(p, "attention_gate"), 10);
    assert_int_equal(stages_of(p, "experts_up"), 40);
    lily_plan_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(right_under_all_switches), cmocka_unit_test(full_model_in_few_stages),
                                       cmocka_unit_test(other_cards_have_packed_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
