/* What may stand inside a tool call, and what the reader of replies makes of it. */
#include <stdio.h>
#include <string.h>

#include "../check.h"
#include "base/buf.h"
#include "base/mem.h"
#include "sample/call_grammar.h"
#include "sample/match.h"
#include "text/big_number.h"
#include "text/reply.h"

static json_t *parse(const char *text)
{
    lily_err e;
    json_t *j;
    check_ok(lily_json_parse_big(&j, text, strlen(text), "tools", &e), &e);
    return j;
}

static bool fits(lily_grammar *g, const char *text)
{
    lily_err e;
    lily_matcher *m;
    check_ok(lily_matcher_new(&m, g, false, &e), &e);
    lily_match at = lily_matcher_start(m);
    for (const char *c = text; *c && at; c++) at = lily_matcher_step(m, at, (uint8_t)*c);
    check_ok(lily_matcher_ok(m, &e), &e);
    bool complete = lily_matcher_complete(m, at);
    lily_matcher_free(m);
    return complete;
}

static int collect(void *user, const lily_reply_event *ev, lily_err *e)
{
    (void)e;
    if (ev->kind == LILY_REPLY_ARGUMENTS) lily_buf_add(user, ev->text, ev->n);
    return LILY_OK;
}

/* The arguments that the reader makes of a call. */
static json_t *read_back(const json_t *tools, const char *call)
{
    lily_err e;
    lily_reply *r;
    lily_buf arguments = {0};
    lily_reply_options o = {.tools = tools, .sink = collect, .user = &arguments};
    check_ok(lily_reply_new(&r, &o, &e), &e);
    check_ok(lily_reply_feed(r, "<tool_call>", strlen("<tool_call>"), true, &e), &e);
    check_ok(lily_reply_feed(r, call, strlen(call), false, &e), &e);
    check_ok(lily_reply_feed(r, "</tool_call>", strlen("</tool_call>"), true, &e), &e);
    check_ok(lily_reply_finish(r, false, &e), &e);
    assert_int_equal(lily_reply_calls(r), 1);
    json_t *j = parse(lily_buf_str(&arguments));
    lily_reply_free(r);
    lily_buf_free(&arguments);
    return j;
}

/* ---- one parameter, called a ---- */

typedef struct row {
    const char *schema;
    const char *yes[8]; /* "TEXT" or "TEXT => JSON" for what is read back; else the text itself */
    const char *no[10];
} row;

static const row rows[] = {
    {"{\"type\":\"string\"}",
     {"", "x", "007", "true", "{\"a\": 1}", " two  ", "line\n\nline\n", "a </parameter> b\n<parameter=x>"},
     {"\n</parameter>", "a\n</parameter>\nb", "</parameter>", "\xc3", "\x01"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", {"ab", "\xc3\xa9\xc3\xa9\xc3\xa9", "a\n", "\n\n\n"},
     {"", "a", "abcd", "\n", "\n</", "<a"}},
    {"{\"type\":\"string\",\"minLength\":1}", {"a", "\n", "a\n", "abc\n<"}, {""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-c]{2,}$\",\"maxLength\":3}", {"ab", "abc"}, {"a", "abca", "abd", "ab\n", ""}},
    {"{\"type\":\"string\",\"pattern\":\"b.\"}", {"abc", "x\n\"b\\\n", "b\xc3\xa9"}, {"b", "ac", "bc\n<", "<bc", "b\n", "bx\x01"}},
    {"{\"type\":\"string\",\"format\":\"date\"}", {"2026-11-30"}, {"2026-13-30", "\"2026-11-30\"", "today"}},
    {"{\"type\":\"string\",\"enum\":[\"Oslo\",\"null\",\"1\"]}", {"Oslo", "null => \"null\"", "1 => \"1\""}, {"Lima", "", "Oslo "}},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":12}", {"3 => 3", "12 => 12"}, {"2", "13", "3.0", "\"3\"", "", " 3"}},
    {"{\"type\":\"number\"}", {"1.5 => 1.5", "-2 => -2"}, {"one", "NaN"}},
    {"{\"type\":\"boolean\"}", {"true => true", "false => false"}, {"True", "1", ""}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1}", {"[1, 2] => [1,2]", "[1] => [1]"}, {"[]", "[\"a\"]", "1"}},
    {"{\"type\":\"object\",\"properties\":{\"b\":{\"type\":\"string\"}},\"required\":[\"b\"],\"additionalProperties\":false}",
     {"{\"b\": \"x\\n</parameter>\"} => {\"b\":\"x\\n</parameter>\"}"},
     {"{}", "{\"c\": 1}"}},
    {"{\"type\":[\"string\",\"null\"]}", {"null => null", "nul", "nothing", "5 => \"5\""}, {"a\n</parameter>"}},
    {"{\"anyOf\":[{\"type\":\"string\",\"format\":\"date\"},{\"type\":\"null\"}]}", {"2026-11-30", "null => null"}, {"nul", ""}},
    {"{\"type\":[\"string\",\"null\"],\"minLength\":2}", {"ab", "null => null"}, {"a", ""}},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}",
     {"5 => \"5\"", "five", "null => \"null\""},
     {"a\n</parameter>"}},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"boolean\"},{\"type\":\"null\"}]}",
     {"true => \"true\"", "null => null", "truth", ""},
     {"a\n</parameter>"}},
    {"{\"type\":[\"string\",\"array\"],\"items\":{\"type\":\"integer\"}}", {"[1] => [1]", "a[1]", "{}"}, {"[a", "[\"a\"]", " [1]"}},
    {"{\"enum\":[\"a\",null]}", {"a", "null => null"}, {"b", ""}},
    {"{\"enum\":[2,true]}", {"2 => 2", "true => true"}, {"3", "false"}},
    {"{\"anyOf\":[{\"type\":\"object\"},{\"enum\":[\"a\",\"b\"]}]}", {"a", "{\"a\": 1} => {\"a\":1}"}, {"c", "{"}},
    {"{\"const\":\"two\\nlines\"}", {"two\nlines"}, {"two"}},
    {"{\"$ref\":\"#/$defs/t\"}", {"7 => 7"}, {"x"}},
    {"{}", {"x", "5 => 5", "[1] => [1]"}, {"a\n</parameter>"}},
};

/* Tools with the one function f(a), strict or not. */
static json_t *tools_of(const char *schema, bool strict)
{
    lily_buf text = {0};
    lily_buf_printf(&text,
                    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":%s,\"parameters\":{\"type\":\"object\","
                    "\"properties\":{\"a\":%s},\"required\":[\"a\"],\"additionalProperties\":false,"
                    "\"$defs\":{\"t\":{\"type\":\"integer\"}}}}}]",
                    strict ? "true" : "false", schema);
    json_t *tools = parse(text.data);
    lily_buf_free(&text);
    return tools;
}

static void call_with(lily_buf *call, const char *value, size_t n)
{
    lily_buf_clear(call);
    lily_buf_puts(call, "\n<function=f>\n<parameter=a>\n");
    lily_buf_add(call, value, n);
    lily_buf_puts(call, "\n</parameter>\n</function>\n");
}

static void check_value(lily_grammar *g, const json_t *tools, const char *schema, const char *yes)
{
    const char *arrow = strstr(yes, " => ");
    lily_buf call = {0};
    call_with(&call, yes, arrow ? (size_t)(arrow - yes) : strlen(yes));
    if (!fits(g, call.data)) fail_msg("%s refuses %s", schema, yes);
    json_t *got = read_back(tools, call.data), *wanted = arrow ? json_loads(arrow + 4, JSON_DECODE_ANY, NULL) : json_string(yes);
    if (!json_equal(json_object_get(got, "a"), wanted)) fail_msg("%s: %s is read as something else", schema, yes);
    json_decref(got);
    json_decref(wanted);
    lily_buf_free(&call);
}

static void values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        json_t *tools = tools_of(r->schema, true);
        lily_err e;
        lily_grammar *g;
        lily_buf call = {0};
        check_ok(lily_call_grammar(&g, tools, NULL, &e), &e);
        for (size_t k = 0; k < 8 && r->yes[k]; k++) check_value(g, tools, r->schema, r->yes[k]);
        for (size_t k = 0; k < 10 && r->no[k]; k++) {
            call_with(&call, r->no[k], strlen(r->no[k]));
            if (fits(g, call.data)) fail_msg("%s takes %s", r->schema, r->no[k]);
        }
        lily_buf_free(&call);
        lily_grammar_let_go(g);
        json_decref(tools);
    }
}

/* ---- whole calls ---- */

#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define CALL(name, parameters) "\n<function=" name ">\n" parameters "</function>\n"

static const char two_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},\"c\":{\"type\":\"string\"}},\"required\":[\"b\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"get_all\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"free\",\"parameters\":{\"type\":\"object\"}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"typed\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"a\":{\"type\":\"string\"}},\"additionalProperties\":{\"type\":\"integer\"}}}}]";

static void functions(void **state)
{
    (void)state;
    static const char *const yes[] = {
        CALL("get", P("b", "true")), CALL("get", P("a", "1") P("b", "true") P("c", "x")), CALL("get", P("b", "true") P("c", "")),
        CALL("get_all", ""),         CALL("free", ""), CALL("free", P("x", "1") P("y.z", "two")),
        CALL("typed", P("a", "s") P("n", "5")), CALL("typed", P("n", "5")),
    };
    static const char *const no[] = {
        CALL("get", ""), CALL("get", P("a", "1")), CALL("get", P("b", "true") P("a", "1")), CALL("get", P("b", "true") P("d", "x")),
        CALL("get_all", P("a", "1")), CALL("ge", P("b", "true")), CALL("other", ""), CALL("typed", P("n", "x")),
        "\n<function=get_all>\n</function>", "<function=get_all>\n</function>\n", CALL("get", P("b", "true") P("b", "true")),
    };
    lily_err e;
    lily_grammar *g;
    json_t *tools = parse(two_tools);
    check_ok(lily_call_grammar(&g, tools, NULL, &e), &e);
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!fits(g, yes[i])) fail_msg("refused: %s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (fits(g, no[i])) fail_msg("taken: %s", no[i]);
    lily_grammar_let_go(g);
    check_ok(lily_call_grammar(&g, tools, "get_all", &e), &e);
    assert_true(fits(g, CALL("get_all", "")));
    assert_false(fits(g, CALL("get", P("b", "true"))));
    lily_grammar_let_go(g);
    check_fails(lily_call_grammar(&g, tools, "gone", &e), LILY_ARGUMENT, &e);
    check_fails(lily_call_grammar(&g, NULL, NULL, &e), LILY_ARGUMENT, &e);
    json_decref(tools);
    tools = parse("[{\"name\":\"two\\nlines\"}]");
    check_fails(lily_call_grammar(&g, tools, NULL, &e), LILY_ARGUMENT, &e);
    assert_non_null(strstr(e.text, "tools[0].function.name"));
    json_decref(tools);
}

/* ---- what cannot be held to ---- */

static void strict_or_not(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *says, *taken;
    } odd[] = {
        {"{\"type\":\"array\",\"uniqueItems\":true}", "#/properties/a: 'uniqueItems'", "[1, 1]"},
        {"{\"type\":\"array\",\"items\":{\"type\":\"object\",\"patternProperties\":{}}}", "#/properties/a/items: 'patternProperties'", "[5]"},
        {"{\"anyOf\":[{\"type\":\"string\",\"minLength\":3},{\"type\":\"integer\"}]}", "#/properties/a: a limit", "x"},
        {"{\"type\":[\"string\",\"integer\"],\"allOf\":[{}]}", "#/properties/a: allOf", "5"},
        {"{\"minLength\":2}", "#/properties/a: a schema without 'type'", "x"},
        {"{\"$ref\":\"#/$defs/none\"}", "#/properties/a: '$ref'", "x"},
        {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "#/properties/a: 'pattern'", "x"},
        {"{\"type\":\"string\",\"format\":\"nonsense\"}", "#/properties/a: 'format' nonsense", "x"},
        {"{\"enum\":[\"a\",\"bc\"],\"minLength\":2}", "#/properties/a: 'enum'", "bc"},
        {"{\"enum\":[\"a\",5]}", "#/properties/a: a listed value", "a"},
        {"{\"type\":\"string\",\"not\":{\"const\":\"x\"}}", "#/properties/a: 'not'", "y"},
        {"{\"not\":{\"const\":\"x\"}}", "#/properties/a: 'not'", "y"},
        {"{\"anyOf\":[{\"type\":\"string\",\"if\":{}},{\"type\":\"null\"}]}", "#/properties/a: 'if'", "x"},
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        lily_err e;
        lily_grammar *g;
        lily_buf call = {0};
        json_t *tools = tools_of(odd[i].schema, true);
        assert_true(lily_calls_strict(tools));
        if (lily_call_grammar(&g, tools, NULL, &e) == LILY_OK) fail_msg("taken: %s", odd[i].schema);
        assert_null(g);
        if (!strstr(e.text, odd[i].says) || strncmp(e.text, "tools[0].function.parameters: ", 30) != 0)
            fail_msg("%s\nsays: %s", odd[i].schema, e.text);
        json_decref(tools);
        tools = tools_of(odd[i].schema, false);
        assert_false(lily_calls_strict(tools));
        check_ok(lily_call_grammar(&g, tools, NULL, &e), &e);
        call_with(&call, odd[i].taken, strlen(odd[i].taken));
        if (!fits(g, call.data)) fail_msg("%s refuses %s", odd[i].schema, odd[i].taken);
        lily_buf_free(&call);
        lily_grammar_let_go(g);
        json_decref(tools);
    }
}

/* What only describes may stand beside the parameters, too. */
static void strict_beside_parameters(void **state)
{
    (void)state;
    static const char with[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":"
                               "{\"type\":\"object\",\"$id\":\"x\",\"x-order\":1,\"examples\":[],\"properties\":{}%s}}}]";
    static const char *const more[] = {"", ",\"minProperties\":1", ",\"anyOf\":[]"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        lily_err e;
        lily_grammar *g;
        lily_buf text = {0};
        lily_buf_printf(&text, with, more[i]);
        json_t *tools = parse(text.data);
        int rc = lily_call_grammar(&g, tools, NULL, &e);
        if (i == 0) check_ok(rc, &e);
        else check_fails(rc, LILY_UNSUPPORTED, &e);
        lily_grammar_let_go(g);
        json_decref(tools);
        lily_buf_free(&text);
    }
}

/* Schemas too large for a grammar are held to their types, unless they are strict. */
static void too_large(void **state)
{
    (void)state;
    static const char schema[] = "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":120000}}";
    lily_err e;
    lily_grammar *g;
    json_t *tools = tools_of(schema, false);
    check_ok(lily_call_grammar(&g, tools, NULL, &e), &e);
    lily_grammar_let_go(g);
    json_decref(tools);
    tools = tools_of(schema, true);
    check_fails(lily_call_grammar(&g, tools, NULL, &e), LILY_UNSUPPORTED, &e);
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(functions),
        cmocka_unit_test(strict_or_not),
        cmocka_unit_test(strict_beside_parameters),
        cmocka_unit_test(too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
