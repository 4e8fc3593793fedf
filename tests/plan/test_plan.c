/* test_plan.c - plans of a table of rows and of ref: right in every combination of switches, and as golden
 * text. */
#include "../check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "checker.h"
#include "configs.h"
#include "device/dev.h"
#include "rows.h"

static lily_plan_device table_device(void)
{
    return (lily_plan_device){.name = "table", .rows = table_rows, .n_rows = n_table_rows};
}

static lily_plan *make(const lily_plan_device *d, const lily_config *c, enum lily_mode mode, uint64_t ablated,
                       uint64_t keep)
{
    lily_err e = {0};
    lily_plan *p;
    lily_plan_ask ask = {mode, mode == LILY_DECODE ? 1 : 64, 1000, ablated, keep};
    check_ok(lily_plan_make(&p, d, c, &ask, &e), &e);
    return p;
}

static void check_right(const lily_plan *p, const lily_plan_device *d, const lily_config *c, uint64_t keep)
{
    const char *bad = check_plan(p, d, c, keep);
    if (bad)
        fail_msg("%s without %llx: %s", p->mode == LILY_DECODE ? "decode" : "prefill",
                 (unsigned long long)p->ablated, bad);
}

static void every_combination_of_switches(void **state)
{
    (void)state;
    const lily_plan_device d = table_device();
    const lily_config c = small_config(5);
    for (uint64_t off = 0; off < 1ull << N_FUSIONS; off++)
        for (unsigned mode = LILY_DECODE; mode <= LILY_PREFILL; mode++) {
            lily_plan *p = make(&d, &c, (enum lily_mode)mode, off, 0);
            check_right(p, &d, &c, 0);
            lily_plan_free(p);
        }
}

static uint32_t stages_of_row(const lily_plan *p, const lily_plan_device *d, const char *name)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_stages; i++) n += strcmp(d->rows[p->stages[i].row].name, name) == 0;
    return n;
}

static void fused_rows_are_taken_and_switched_off(void **state)
{
    (void)state;
    const lily_plan_device d = table_device();
    const lily_config c = small_config(8);
    lily_plan *all = make(&d, &c, LILY_PREFILL, 0, 0);
    assert_int_equal(stages_of_row(all, &d, "scan_norm"), 6);
    assert_int_equal(stages_of_row(all, &d, "rope_append"), 2);
    assert_int_equal(stages_of_row(all, &d, "experts_down"), 8);
    assert_int_equal(stages_of_row(all, &d, "impossible"), 0);
    /* What stayed inside a fused row has no memory. */
    assert_true(all->slot_at[SLOT_DN] == LILY_NO_PLACE);
    assert_true(all->slot_at[SLOT_SGU] == LILY_NO_PLACE);
    assert_true(all->slot_at[SLOT_MIX] != LILY_NO_PLACE);
    lily_plan *some = make(&d, &c, LILY_PREFILL, lily_bit(FUSION_scan_norm), 0);
    assert_int_equal(stages_of_row(some, &d, "scan_norm"), 0);
    assert_int_equal(stages_of_row(some, &d, "GNORM"), 6);
    assert_true(some->slot_at[SLOT_DN] != LILY_NO_PLACE);
    assert_true(some->n_stages == all->n_stages + 6);
    lily_plan *decode = make(&d, &c, LILY_DECODE, 0, 0);
    assert_int_equal(stages_of_row(decode, &d, "sort"), 0);
    lily_plan_free(all);
    lily_plan_free(some);
    lily_plan_free(decode);
}

/* A fused row need not write what only it reads: each value of a kept slot has a reader elsewhere, or a writer
 * of one step. */
static void check_not_inside(const lily_plan *p, unsigned slot)
{
    for (uint32_t i = 0; i < p->n_stages; i++) {
        const uint64_t steps = p->stages[i].steps;
        if (!(p->stages[i].writes & lily_bit(slot)) || !(steps & (steps - 1))) continue;
        uint32_t j = i + 1;
        while (j < p->n_stages && !((p->stages[j].reads | p->stages[j].writes) & lily_bit(slot))) j++;
        assert_true(j < p->n_stages && (p->stages[j].reads & lily_bit(slot)));
    }
}

static void kept_slots_split_the_rows_that_hide_them(void **state)
{
    (void)state;
    const lily_plan_device d = table_device();
    const lily_config c = small_config(8);
    lily_plan *all = make(&d, &c, LILY_PREFILL, 0, 0);
    lily_plan *p = make(&d, &c, LILY_PREFILL, 0, lily_bit(SLOT_DN));
    assert_int_equal(stages_of_row(p, &d, "scan_norm"), 0);
    assert_int_equal(stages_of_row(p, &d, "GNORM"), 6);
    assert_int_equal(p->n_stages, all->n_stages + 6);   /* no other row is split */
    lily_plan_free(p);
    /* Read by other rows too: those that write them stay whole. */
    p = make(&d, &c, LILY_PREFILL, 0, lily_bit(SLOT_DNG) | lily_bit(SLOT_EH) | lily_bit(SLOT_Q) | lily_bit(SLOT_N));
    assert_int_equal(p->n_stages, all->n_stages);
    lily_plan_free(p);
    /* The last layer's row is the only reader of its own X; all other layers' X is read by the next layer. */
    p = make(&d, &c, LILY_PREFILL, 0, lily_bit(SLOT_X));
    assert_int_equal(stages_of_row(p, &d, "experts_down"), 7);
    lily_plan_free(p);
    lily_plan_free(all);
}

/* A stage that may run at once with another one may not share its memory: with each step alone the order that
 * a wide device could choose is widest. */
static void kept_slots_stay(void **state)
{
    (void)state;
    const lily_plan_device d = table_device();
    const lily_config c = small_config(5);
    for (unsigned s = 0; s < N_SLOTS; s++) {
        if (lily_slot_kind(s) != SLOT_SCRATCH) continue;
        for (uint64_t off = 0; off < 1ull << N_FUSIONS; off += (1ull << N_FUSIONS) - 1) {
            lily_plan *p = make(&d, &c, LILY_PREFILL, off, lily_bit(s));
            check_right(p, &d, &c, lily_bit(s));
            for (uint32_t i = 0; i < p->n_stages; i++) assert_false(p->stages[i].dies & lily_bit(s));
            check_not_inside(p, s);
            lily_plan_free(p);
        }
    }
    uint64_t all = 0;
    for (unsigned s = 0; s < N_SLOTS; s++)
        if (lily_slot_kind(s) == SLOT_SCRATCH) all |= lily_bit(s);
    lily_plan *p = make(&d, &c, LILY_PREFILL, 0, all);
    check_right(p, &d, &c, all);
    lily_plan_free(p);
}

/* The checker's own test: a plan with a wait, a barrier or a place spoilt is found to be wrong. */
static void the_checker_finds_faults(void **state)
{
    (void)state;
    const lily_plan_device d = table_device();
    const lily_config c = small_config(5);
    for (uint64_t off = 0; off < 1ull << N_FUSIONS; off += (1ull << N_FUSIONS) - 1) {
        lily_plan *p = make(&d, &c, LILY_PREFILL, off, 0);
        lily_stage *stages = (lily_stage *)(uintptr_t)p->stages;
        for (uint32_t i = 0; i < p->n_stages; i++) {
            const lily_stage whole = stages[i];
            if (whole.n_wait) {
                stages[i].n_wait--;
                assert_non_null(check_plan(p, &d, &c, 0));
                stages[i] = whole;
            }
            if (whole.barrier) {
                stages[i].barrier = false;
                p->n_barriers--;
                assert_non_null(check_plan(p, &d, &c, 0));
                stages[i] = whole;
                p->n_barriers++;
            }
        }
        size_t at = p->slot_at[SLOT_M];
        p->slot_at[SLOT_M] = p->slot_at[SLOT_X];
        assert_non_null(check_plan(p, &d, &c, 0));
        p->slot_at[SLOT_M] = at;
        assert_null(check_plan(p, &d, &c, 0));
        lily_plan_free(p);
    }
}

/* Two rows that are possible one by one and not together: the one that is preferred stays. */
static void rows_that_need_each_other(void **state)
{
    (void)state;
    lily_row rows[N_STEPS + 2];
    size_t n = 0;
    rows[n++] = (lily_row){
        .name = "a", .steps = lily_bit(STEP_PROJ_QKV) | lily_bit(STEP_GATES), .modes = LILY_DECODE};
    rows[n++] =
        (lily_row){.name = "b", .steps = lily_bit(STEP_PROJ_BA) | lily_bit(STEP_CONV), .modes = LILY_DECODE};
    for (unsigned s = 0; s < N_STEPS; s++)
        rows[n++] = (lily_row){.name = lily_step_name(s), .steps = lily_bit(s), .modes = LILY_DECODE};
    const lily_plan_device both = {.name = "both", .rows = rows, .n_rows = n};
    const lily_config c = small_config(4);
    lily_plan *p = make(&both, &c, LILY_DECODE, 0, 0);
    check_right(p, &both, &c, 0);
    assert_int_equal(stages_of_row(p, &both, "a"), 3);
    assert_int_equal(stages_of_row(p, &both, "b"), 0);
    lily_plan_free(p);
    const lily_plan_device second = {.name = "second", .rows = rows + 1, .n_rows = n - 1};
    p = make(&second, &c, LILY_DECODE, 0, 0);
    check_right(p, &second, &c, 0);
    assert_int_equal(stages_of_row(p, &second, "b"), 3);
    lily_plan_free(p);
}

static bool never(const struct lily_dev *d, const lily_config *c)
{
    (void)d, (void)c;
    return false;
}

static void rows_apply_by_numbers(void **state)
{
    (void)state;
    lily_row rows[N_STEPS + 5];
    const uint64_t pair = lily_bit(STEP_GDN) | lily_bit(STEP_GNORM);
    size_t n = 0;
    rows[n++] = (lily_row){.name = "chip", .steps = pair, .modes = LILY_PREFILL, .fits = never};
    rows[n++] = (lily_row){.name = "other mode", .steps = pair, .modes = LILY_DECODE};
    rows[n++] = (lily_row){.name = "wide", .steps = pair, .modes = LILY_PREFILL, .min_tokens = 65};
    rows[n++] = (lily_row){.name = "short", .steps = pair, .modes = LILY_PREFILL, .max_context = 999};
    rows[n++] = (lily_row){.name = "fits",
                           .steps = pair,
                           .modes = LILY_PREFILL,
                           .min_tokens = 64,
                           .max_tokens = 64,
                           .min_context = 1000,
                           .max_context = 1000};
    for (unsigned s = 0; s < N_STEPS; s++)
        rows[n++] = (lily_row){.name = lily_step_name(s), .steps = lily_bit(s), .modes = LILY_PREFILL};
    const lily_plan_device d = {.name = "numbers", .rows = rows, .n_rows = n};
    const lily_config c = small_config(4);
    lily_plan *p = make(&d, &c, LILY_PREFILL, 0, 0);
    assert_int_equal(stages_of_row(p, &d, "fits"), 3);
    lily_plan_free(p);
}

static void refusals(void **state)
{
    (void)state;
    lily_err e;
    lily_plan *p;
    const lily_config c = small_config(4);
    lily_plan_device d = table_device();
    lily_plan_ask ask = {LILY_DECODE, 2, 1000, 0, 0};
    check_fails(lily_plan_make(&p, &d, &c, &ask, &e), LILY_ARGUMENT, &e);
    ask.max_tokens = 0;
    check_fails(lily_plan_make(&p, &d, &c, &ask, &e), LILY_ARGUMENT, &e);
    ask.max_tokens = 1;
    d.n_rows = LILY_MAX_ROWS + 1;
    check_fails(lily_plan_make(&p, &d, &c, &ask, &e), LILY_INTERNAL, &e);
    d = table_device();
    d.n_rows--; /* COMMIT */
    ask.ablated = lily_bit(FUSION_pick);
    check_fails(lily_plan_make(&p, &d, &c, &ask, &e), LILY_UNSUPPORTED, &e);
    assert_string_equal(e.text, "device table has no row for step COMMIT");
    assert_null(p);
}

static void allocation_faults(void **state)
{
    (void)state;
    lily_err e;
    const lily_config c = small_config(6);
    const lily_plan_device d = table_device();
    const lily_plan_ask ask = {LILY_PREFILL, 7, 1000, 0, 0};
    int rc = LILY_NO_MEMORY;
    int64_t n = 0;
    for (; rc == LILY_NO_MEMORY; n++) {
        lily_plan *p;
        lily_mem_fail_after(n);
        rc = lily_plan_make(&p, &d, &c, &ask, &e);
        lily_mem_fail_after(-1);
        assert_true((rc == LILY_OK) == (p != NULL));
        lily_plan_free(p);
    }
    assert_int_equal(rc, LILY_OK);
    assert_true(n > 5);
}

static void many_layers(void **state)
{
    (void)state;
    const lily_plan_device d = table_device();
    const lily_config c = small_config(LILY_MAX_LAYERS);
    lily_plan *p = make(&d, &c, LILY_PREFILL, (1ull << N_FUSIONS) - 1, 0);
    const lily_config few = small_config(8);
    lily_plan *q = make(&d, &few, LILY_PREFILL, (1ull << N_FUSIONS) - 1, 0);
    assert_int_equal(p->scratch_bytes, q->scratch_bytes);
    assert_int_equal((p->n_stages - 5) / (q->n_stages - 5), LILY_MAX_LAYERS / 8);
    assert_int_equal((p->n_stages - 5) % (q->n_stages - 5), 0);
    lily_plan_free(p);
    lily_plan_free(q);
}

/* ---- golden texts ---- */

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *s = calloc(1, 1 << 20);
    size_t n = fread(s, 1, (1 << 20) - 1, f);
    s[n] = 0;
    fclose(f);
    return s;
}

static void check_golden(const char *name, const lily_config *c, enum lily_mode mode, uint32_t tokens)
{
    lily_err e = {0};
    lily_plan *p;
    lily_buf text = {0};
    const lily_plan_device d = lily_device_for_plan(&lily_dev_ref, NULL);
    const lily_plan_ask ask = {mode, tokens, 4096, 0, 0};
    check_ok(lily_plan_make(&p, &d, c, &ask, &e), &e);
    check_right(p, &d, c, 0);
    check_ok(lily_plan_print(p, &d, false, &text, &e), &e);
    char golden[512], made[512];
    snprintf(golden, sizeof golden, "%s/tests/golden/%s", LILY_SOURCE_DIR, name);
    snprintf(made, sizeof made, "%s/tests/%s", LILY_BINARY_DIR, name);
    FILE *f = fopen(made, "wb");
    assert_non_null(f);
    fwrite(text.data, 1, text.len, f);
    fclose(f);
    char *want = read_text(golden);
    if (!want || strcmp(want, text.data) != 0)
        fail_msg("%s is not %s any more: if that is meant, copy it there", golden, made);
    free(want);
    lily_buf_free(&text);
    lily_plan_free(p);
}

static void golden_plans(void **state)
{
    (void)state;
    lily_err e = {0};
    lily_model_config *demo;
    check_ok(lily_config_open(&demo, LILY_SOURCE_DIR "/models/demo", &e), &e);
    check_golden("plan-demo-decode-ref.txt", lily_config_numbers(demo), LILY_DECODE, 1);
    check_golden("plan-demo-prefill-ref.txt", lily_config_numbers(demo), LILY_PREFILL, 2048);
    lily_config_close(demo);
    const lily_config full = full_config();
    check_golden("plan-full-decode-ref.txt", &full, LILY_DECODE, 1);
    check_golden("plan-full-prefill-ref.txt", &full, LILY_PREFILL, 2048);
}

static void equal_plans_have_equal_hashes(void **state)
{
    (void)state;
    const lily_plan_device d = table_device();
    const lily_config c = small_config(5);
    lily_plan *a = make(&d, &c, LILY_PREFILL, 0, 0), *b = make(&d, &c, LILY_PREFILL, 0, 0),
              *other = make(&d, &c, LILY_PREFILL, 1, 0);
    assert_true(lily_plan_hash(a, &d) == lily_plan_hash(b, &d));
    assert_true(lily_plan_hash(a, &d) != lily_plan_hash(other, &d));
    lily_plan_free(a);
    lily_plan_free(b);
    lily_plan_free(other);
}

static void switch_names(void **state)
{
    (void)state;
    lily_err e;
    uint64_t mask = 0;
    check_ok(lily_ablation_parse("fuse-qk, prompt-chunks", &mask, &e), &e);
    assert_true(mask == (lily_bit(ABLATE_FUSE_QK) | lily_bit(ABLATE_PROMPT_CHUNKS)));
    check_ok(lily_ablation_parse("", &mask, &e), &e);
    check_fails(lily_ablation_parse("fuse-qkx", &mask, &e), LILY_ARGUMENT, &e);
    assert_non_null(strstr(e.text, "'fuse-qkx'"));
    assert_non_null(strstr(e.text, "fuse-qk,"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_combination_of_switches),
        cmocka_unit_test(fused_rows_are_taken_and_switched_off),
        cmocka_unit_test(kept_slots_split_the_rows_that_hide_them),
        cmocka_unit_test(kept_slots_stay),
        cmocka_unit_test(the_checker_finds_faults),
        cmocka_unit_test(rows_that_need_each_other),
        cmocka_unit_test(rows_apply_by_numbers),
        cmocka_unit_test(refusals),
        cmocka_unit_test(allocation_faults),
        cmocka_unit_test(many_layers),
        cmocka_unit_test(golden_plans),
        cmocka_unit_test(equal_plans_have_equal_hashes),
        cmocka_unit_test(switch_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
