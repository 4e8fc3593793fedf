/* The option table: every option parses, every help fits 80 columns, every refusal names the option. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "base/mem.h"
#include "cli/options.h"

static const enum lily_command all[] = {CHAT, SERVE, SCORE, BENCH, INSPECT, REPLAY};
enum { N_ALL = sizeof all / sizeof all[0] };

static int parse(lily_args *a, enum lily_command c, lily_err *e, const char *first, const char *second)
{
    const char *argv[] = {"lily", lily_command_name(c), first, second};
    return lily_args_parse(a, c, second ? 4 : first ? 3 : 2, (char **)argv, e);
}

static void values_in_both_forms(void **state)
{
    (void)state;
    lily_err e;
    lily_args a;
    uint64_t n;
    check_ok(parse(&a, SERVE, &e, "--port", "81"), &e);
    check_ok(lily_arg_uint(&a, OPT_PORT, 0, 65535, 8080, &n, &e), &e);
    assert_int_equal(n, 81);
    check_ok(parse(&a, SERVE, &e, "--port=82", NULL), &e);
    check_ok(lily_arg_uint(&a, OPT_PORT, 0, 65535, 8080, &n, &e), &e);
    assert_int_equal(n, 82);
    check_ok(parse(&a, SERVE, &e, "-p", "83"), &e);
    assert_string_equal(a.value[OPT_PORT], "83");
    check_ok(parse(&a, SERVE, &e, NULL, NULL), &e);
    check_ok(lily_arg_uint(&a, OPT_PORT, 0, 65535, 8080, &n, &e), &e);
    assert_int_equal(n, 8080);
    check_ok(parse(&a, INSPECT, &e, "plan", NULL), &e);
    assert_string_equal(a.word, "plan");
}

static void without_accumulates(void **state)
{
    (void)state;
    lily_err e;
    lily_args a;
    char *argv[] = {"lily", "bench", "--without", "a", "--without=b,c"};
    check_ok(lily_args_parse(&a, BENCH, 5, argv, &e), &e);
    assert_string_equal(a.value[OPT_WITHOUT], "a,b,c");
    lily_args_free(&a);
}

static void refusals_name_the_option(void **state)
{
    (void)state;
    static const struct {
        enum lily_command command;
        const char *first, *second, *says;
    } bad[] = {
        {SERVE, "--prot", "1", "--prot"},     {SERVE, "--port", NULL, "--port"}, {CHAT, "--port", "1", "--port"},
        {SCORE, "--json=1", NULL, "--json"},  {SERVE, "x", NULL, "'x'"},         {INSPECT, "plans", NULL, "plans"},
        {CHAT, "--", NULL, "'--'"},           {CHAT, "-pq", NULL, "-pq"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lily_err e;
        lily_args a;
        check_fails(parse(&a, bad[i].command, &e, bad[i].first, bad[i].second), LILY_ARGUMENT, &e);
        assert_non_null(strstr(e.text, bad[i].says));
    }
    static const char *const numbers[] = {"", "-1", "+1", " 1", "1x", "99999999999999999999999", "65536", "0x10"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        lily_err e;
        lily_args a;
        uint64_t n;
        check_ok(parse(&a, SERVE, &e, "--port", numbers[i]), &e);
        check_fails(lily_arg_uint(&a, OPT_PORT, 0, 65535, 0, &n, &e), LILY_ARGUMENT, &e);
        assert_non_null(strstr(e.text, "--port"));
    }
}

static void lists(void **state)
{
    (void)state;
    lily_err e;
    lily_args a;
    uint32_t *list, n;
    check_ok(parse(&a, BENCH, &e, "--lengths", "1,22,333"), &e);
    check_ok(lily_arg_list(&a, OPT_LENGTHS, &list, &n, &e), &e);
    assert_int_equal(n, 3);
    assert_int_equal(list[2], 333);
    lily_free(list);
    static const char *const bad[] = {"", ",", "1,", "1,,2", "0", "1,-2", "a", "1;2", "4294967296"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_ok(parse(&a, BENCH, &e, "--lengths", bad[i]), &e);
        check_fails(lily_arg_list(&a, OPT_LENGTHS, &list, &n, &e), LILY_ARGUMENT, &e);
    }
}

static void help_fits_80_columns(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    lily_help_all(f);
    for (int i = 0; i < N_ALL; i++) assert_true(lily_help_command(f, lily_command_name(all[i])));
    fclose(f);
    size_t column = 0;
    for (size_t i = 0; i < n; i++) {
        column = text[i] == '\n' ? 0 : column + ((text[i] & 0xc0) != 0x80);
        assert_in_range(column, 0, 80);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_in_both_forms), cmocka_unit_test(without_accumulates),
        cmocka_unit_test(refusals_name_the_option), cmocka_unit_test(lists), cmocka_unit_test(help_fits_80_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
