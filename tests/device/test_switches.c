/* Which switch each device can turn off: a reason for each that it cannot, and the table in docs/architecture.md. */
#include <stdio.h>
#include <string.h>

#include "../check.h"
#include "base/buf.h"
#include "base/file.h"
#include "device/dev.h"

static bool can(const char *device, unsigned i)
{
    const lily_dev_ops *ops = lily_device_find(device);
    return ops && !lily_device_keeps(ops, i);
}

static void every_switch_goes_or_has_a_reason(void **state)
{
    (void)state;
    size_t n;
    const lily_dev_ops *const *devices = lily_devices(&n);
    for (size_t d = 0; d < n; d++)
        for (unsigned i = 0; i < N_ABLATIONS; i++) {
            lily_err e;
            const lily_dev_ops *ops = devices[d];
            const char *why = lily_device_keeps(ops, i);
            if (!why != !(ops->keeps && ops->keeps[i]))
                fail_msg("%s: %s %s", ops->name, lily_ablation_name(i),
                         why ? "is kept without a reason" : "can be turned off, and has a reason why not");
            if (!why) {
                check_ok(lily_device_without(ops, lily_bit(i), &e), &e);
                continue;
            }
            assert_true(strlen(why) > 10);
            check_fails(lily_device_without(ops, lily_bit(i) | LILY_ENGINE_ABLATIONS, &e), LILY_UNSUPPORTED, &e);
            assert_non_null(strstr(e.text, lily_ablation_name(i)));
            assert_non_null(strstr(e.text, why));
        }
}

static void ref_has_the_engines_alone(void **state)
{
    (void)state;
    for (unsigned i = 0; i < N_ABLATIONS; i++) assert_int_equal(can("ref", i), (LILY_ENGINE_ABLATIONS & lily_bit(i)) != 0);
}

static const char *phases(unsigned i)
{
    const char *names[] = {"", "decode", "prefill", "both"};
    return names[lily_ablation_phases(i)];
}

/* A device that was not built keeps its column. */
static bool same_row(const char *found, const char *row, bool whole)
{
    const size_t n = strlen(row), end = strcspn(found, "\n");
    if (whole) return n == end && memcmp(found, row, n) == 0;
    const size_t most = n - strlen("| no |");
    return end >= most && memcmp(found, row, most) == 0;
}

static void the_table_in_the_documents_is_true(void **state)
{
    (void)state;
    lily_err e;
    lily_buf text = {0};
    unsigned wrong = 0;
    check_ok(lily_file_read(&text, LILY_SOURCE_DIR "/docs/architecture.md", 1 << 20, &e), &e);
    for (unsigned i = 0; i < N_ABLATIONS; i++) {
        lily_buf row = {0}, name = {0};
        lily_buf_printf(&name, "\n| `%s` ", lily_ablation_name(i));
        lily_buf_printf(&row, "| `%s` | %s | %s | %s | %s | %s |", lily_ablation_name(i), lily_ablation_with(i),
                        lily_ablation_without(i), phases(i), can("cpu", i) ? "yes" : "no", can("cuda", i) ? "yes" : "no");
        const char *found = strstr(lily_buf_str(&text), lily_buf_str(&name));
        if (!found || !same_row(found + 1, lily_buf_str(&row), lily_device_find("cuda") != NULL)) {
            wrong++;
            printf("%s\n", lily_buf_str(&row));
        }
        lily_buf_free(&row);
        lily_buf_free(&name);
    }
    lily_buf_free(&text);
    if (wrong) fail_msg("docs/architecture.md does not have the %u rows above", wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_switch_goes_or_has_a_reason),
        cmocka_unit_test(ref_has_the_engines_alone),
        cmocka_unit_test(the_table_in_the_documents_is_true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
