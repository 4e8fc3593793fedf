/* The tables of docs/structured-output.md say what the code knows. */
#include <stdio.h>
#include <string.h>

#include "../check.h"
#include "base/file.h"
#include "sample/json_keywords.h"
#include "sample/json_schema.h"

static void check_table(void (*table)(lily_buf *), const char *what)
{
    lily_err e;
    lily_buf wanted = {0}, doc = {0};
    check_ok(lily_file_read(&doc, LILY_SOURCE_DIR "/docs/structured-output.md", 1 << 20, &e), &e);
    table(&wanted);
    bool there = strstr(lily_buf_str(&doc), lily_buf_str(&wanted)) != NULL;
    if (!there) printf("docs/structured-output.md lacks the table of %s:\n\n%s", what, lily_buf_str(&wanted));
    assert_true(there);
    lily_buf_free(&wanted);
    lily_buf_free(&doc);
}

static void test_keywords(void **state)
{
    (void)state;
    check_table(lily_json_keyword_table, "keywords");
}

static void test_formats(void **state)
{
    (void)state;
    check_table(lily_json_format_table, "formats");
}

/* Every format's expression compiles, alone and with a length. */
static void test_formats_compile(void **state)
{
    (void)state;
    static const char *const names[] = {
#define X(name, pattern, note) name,
#include "sample/formats.def"
#undef X
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lily_err e;
        lily_grammar *g;
        json_t *s = json_pack("{s:s}", "format", names[i]);
        check_ok(lily_json_schema(&g, s, &e), &e);
        lily_grammar_let_go(g);
        json_object_set_new(s, "maxLength", json_integer(2000));
        check_ok(lily_json_schema(&g, s, &e), &e);
        lily_grammar_let_go(g);
        json_decref(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keywords),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_formats_compile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
