/* test_cuda_card.c - what is said to drivers and cards that will not do, and which GPU a variant names; no GPU is needed. */
#include "../check.h"

#include <string.h>

#include "device/cuda/cuda.h"

static void drivers(void **state)
{
    (void)state;
    lily_err e;
    check_fails(cuda_check_driver(0, &e), LILY_UNSUPPORTED, &e);
    assert_non_null(strstr(e.text, "no NVIDIA driver"));
    check_fails(cuda_check_driver(12080, &e), LILY_UNSUPPORTED, &e);
    assert_non_null(strstr(e.text, "knows CUDA 12.8, at least 13.0 (driver 580)"));
    check_ok(cuda_check_driver(13000, &e), &e);
    check_ok(cuda_check_driver(14010, &e), &e);
}

static void cards(void **state)
{
    (void)state;
    lily_err e;
    check_fails(cuda_check_card("Tesla T4", 7, 5, &e), LILY_UNSUPPORTED, &e);
    assert_non_null(strstr(e.text, "Tesla T4 has compute capability 7.5, at least 8.0"));
    check_ok(cuda_check_card("A100", 8, 0, &e), &e);
    check_ok(cuda_check_card("a later one", 13, 0, &e), &e);
}

static void switches(void **state)
{
    (void)state;
    lily_err e;
    const lily_dev hopper = {.hopper = true}, other = {0};
    const uint64_t some = lily_bit(ABLATE_TILE_SELECT) | lily_bit(ABLATE_GRAPH);
    check_ok(cuda_check_switches(&hopper, some | lily_bit(ABLATE_FUSED_DEQUANT), &e), &e);
    check_ok(cuda_check_switches(&other, some, &e), &e);
    check_fails(cuda_check_switches(&other, some | lily_bit(ABLATE_FUSED_DEQUANT), &e), LILY_UNSUPPORTED, &e);
    assert_non_null(strstr(e.text, "fused-dequant"));
}

static void variants(void **state)
{
    static const struct {
        const char *which;
        int rc, index;
        bool portable;
    } cases[] = {
        {NULL, LILY_OK, 0, false},          {"", LILY_OK, 0, false},
        {"0", LILY_OK, 0, false},           {"1", LILY_OK, 1, false},
        {"portable", LILY_OK, 0, true},     {"1,portable", LILY_OK, 1, true},
        {"2", LILY_ARGUMENT, 0, false},     {"99999999999999999999", LILY_ARGUMENT, 0, false},
        {"1,", LILY_ARGUMENT, 0, false},    {"-1", LILY_ARGUMENT, 0, false},
        {"1portable", LILY_ARGUMENT, 0, false},    {"portable,1", LILY_ARGUMENT, 0, false},
        {"fast", LILY_ARGUMENT, 0, false},  {" 1", LILY_ARGUMENT, 0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lily_err e;
        int index;
        bool portable = false;
        const int rc = cuda_choose(cases[i].which, 2, &index, &portable, &e);
        if (rc != cases[i].rc) fail_msg("'%s': %s", cases[i].which, lily_err_name(rc));
        if (rc != LILY_OK) continue;
        assert_int_equal(index, cases[i].index);
        assert_int_equal(portable, cases[i].portable);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(drivers), cmocka_unit_test(cards), cmocka_unit_test(switches),
                                       cmocka_unit_test(variants)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
