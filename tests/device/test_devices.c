/* test_devices.c - devices by name. */
#include "../check.h"

#include <string.h>

#include "device/dev.h"

static void names(void **state)
{
    (void)state;
    lily_err e;
    const lily_dev_ops *ops;
    lily_dev *dev;
    size_t n;
    const lily_dev_ops *const *all = lily_devices(&n);
    assert_true(n >= 1);
    assert_ptr_equal(all[n - 1], &lily_dev_ref);
    for (size_t i = 0; i < n; i++) assert_ptr_equal(lily_device_find(all[i]->name), all[i]);
    assert_null(lily_device_find("re"));
    assert_null(lily_device_find("auto"));
    check_ok(lily_device_open(&ops, &dev, "ref", &(lily_dev_options){0}, &e), &e);
    assert_ptr_equal(ops, &lily_dev_ref);
    char text[100];
    uint64_t total, unused;
    ops->describe(dev, text, sizeof text, &total, &unused);
    assert_non_null(strstr(text, "ref"));
    ops->close(dev);
    check_fails(lily_device_open(&ops, &dev, "rex", &(lily_dev_options){0}, &e), LILY_ARGUMENT, &e);
    assert_non_null(strstr(e.text, "'rex'"));
    assert_non_null(strstr(e.text, "ref"));
    check_fails(lily_device_open(&ops, &dev, "ref:fast", &(lily_dev_options){0}, &e), LILY_ARGUMENT, &e);
    /* ref is for tests: auto never takes it. */
    if (lily_device_open(&ops, &dev, "auto", &(lily_dev_options){.threads = 1}, &e) == LILY_OK) {
        assert_ptr_not_equal(ops, &lily_dev_ref);
        ops->close(dev);
    }
}

static void every_device_covers_the_model(void **state)
{
    (void)state;
    size_t n;
    const lily_dev_ops *const *all = lily_devices(&n);
    for (size_t i = 0; i < n; i++) {
        uint64_t steps = 0;
        for (size_t k = 0; k < all[i]->n_rows; k++) {
            const lily_row *row = &all[i]->rows[k];
            if (row->steps & (row->steps - 1)) continue;
            assert_false(row->off); /* a step alone cannot be switched off */
            steps |= row->steps;
        }
        assert_true(steps == (N_STEPS == 64 ? ~0ull : lily_bit(N_STEPS) - 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names),
                                       cmocka_unit_test(every_device_covers_the_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
