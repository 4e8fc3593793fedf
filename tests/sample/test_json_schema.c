/* What schemas accept and what they refuse, byte by byte. */
#include <stdio.h>
#include <string.h>

#include "../check.h"
#include "base/mem.h"
#include "sample/json_schema.h"
#include "sample/match.h"
#include "text/big_number.h"

static json_t *parse(const char *text)
{
    lily_err e;
    json_t *j;
    check_ok(lily_json_parse_big(&j, text, strlen(text), "a schema", &e), &e);
    return j;
}

static lily_grammar *compile(const char *text)
{
    lily_err e;
    lily_grammar *g;
    json_t *j = parse(text);
    check_ok(lily_json_schema(&g, j, &e), &e);
    json_decref(j);
    return g;
}

static bool fits(lily_grammar *g, bool late, const char *text)
{
    lily_err e;
    lily_matcher *m;
    check_ok(lily_matcher_new(&m, g, late, &e), &e);
    lily_match at = lily_matcher_start(m);
    for (const char *c = text; *c && at; c++) at = lily_matcher_step(m, at, (uint8_t)*c);
    check_ok(lily_matcher_ok(m, &e), &e);
    bool complete = lily_matcher_complete(m, at);
    lily_matcher_free(m);
    return complete;
}

typedef struct row {
    const char *schema;
    const char *yes[8], *no[12];
} row;

#define OBJ "\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"}}"

static const row rows[] = {
    {"{\"type\":\"string\"}",
     {"\"\"", "\"a\\n\\u00e9\"", "\"\xc3\xa9\xf0\x9f\x99\x82\"", "\"\\ud83d\\ude42\""},
     {"", "a", "\"", "\"a\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"a\" ",
      "\"\xf5\x80\x80\x80\"", " \"\""}},
    {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":2}",
     {"\"a\"", "\"\xc3\xa9\xe4\xb8\x96\"", "\"\\ud83d\\ude42x\""},
     {"\"\"", "\"abc\""}},
    {"{\"type\":\"string\",\"minLength\":2}", {"\"ab\"", "\"abcdef\""}, {"\"a\"", "\"\""}},
    {"{\"type\":\"integer\"}",
     {"0", "-5", "10", "999999999999999999"},
     {"01", "1.0", "+1", "-", "1e2", "1000000000000000000"}},
    {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":120}",
     {"0", "9", "99", "100", "119", "120"},
     {"-1", "121", "130", "200", "1000", "00"}},
    {"{\"type\":\"integer\",\"minimum\":-25,\"exclusiveMaximum\":7}",
     {"-25", "-19", "-3", "0", "6"},
     {"-26", "-30", "7", "10", "-0"}},
    {"{\"exclusiveMinimum\":9.5}", {"10", "11", "123456"}, {"9", "0", "-11", "\"a\""}},
    {"{\"type\":\"number\"}",
     {"0", "-1.50", "2e10", "1E-7", "3.14e+01"},
     {".5", "1.", "1e", "1e100", "NaN", "--1"}},
    {"{\"type\":[\"boolean\",\"null\"]}", {"true", "false", "null"}, {"True", "0", "nul"}},
    {"true",
     {"{\"a\": [1, {\"b\": null}], \"c\": \"\"}", "[]", "3", "\"x\"", "{\n  \"a\": 1\n}"},
     {"", "{a:1}", "[1,]", "{,}", "[1,  2]", "\n1"}},
    {"{" OBJ ",\"required\":[\"a\"],\"additionalProperties\":false}",
     {"{\"a\":1}", "{\"a\": 1, \"b\": true}", "{\n  \"a\": 1,\n  \"b\": false\n}", "{ \"a\":1 }"},
     {"{}", "{\"b\":true}", "{\"b\":true,\"a\":1}", "{\"a\":1,\"a\":1}", "{\"a\":1,\"c\":2}", "{\"a\":1,}",
      "{\"a\" :1}", "{\"a\":\"1\"}"}},
    {"{" OBJ ",\"additionalProperties\":{\"type\":\"null\"}}",
     {"{}", "{\"a\":1,\"x\":null}", "{\"x\":null,\"aa\":null}", "{\"\":null}",
      "{\"b\":true,\"\xc3\xa9\":null}"},
     {"{\"x\":1}", "{\"a\":null}", "{\"x\":null,\"a\":1}", "{\"a\":1,\"a\":null}", "{\"\\u0061\":null}"}},
    {"{\"type\":\"object\",\"required\":[\"z\"]}",
     {"{\"z\":1}", "{\"z\":{\"q\":[]},\"y\":2}"},
     {"{}", "{\"y\":1}"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\"]},\"minItems\":1,\"maxItems\":3}",
     {"[\"a\"]", "[\"a\", \"b\",\"a\"]", "[\n\"a\"\n]"},
     {"[]", "[\"c\"]", "[\"a\",\"a\",\"a\",\"a\"]", "[\"a\",]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]", "[ ]"}, {"[1]"}},
    {"{\"items\":{\"type\":\"null\"}}", {"[]", "[null]", "[null,null,null,null]"}, {"[1]", "{}"}},
    {"{\"const\":{\"k\":[1,2.5,\"\xc3\xa9\\\"\"],\"n\":null}}",
     {"{\"k\":[1,2.5,\"\xc3\xa9\\\"\"],\"n\":null}", "{\"k\": [1, 2.5, \"\xc3\xa9\\\"\"], \"n\": null}"},
     {"{\"k\":[1,2.5]}", "{}", "{\"n\":null,\"k\":[1,2.5,\"\xc3\xa9\\\"\"]}"}},
    {"{\"enum\":[1,\"1\",true,18446744073709551616,0.1],\"type\":[\"number\",\"boolean\"]}",
     {"1", "true", "18446744073709551616", "0.1"},
     {"\"1\"", "0", "0.10"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"number\"},{\"type\":\"string\"}]}",
     {"1", "1.5", "\"\""},
     {"null", "[]"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"x\"}},\"required\":[\"k\"]},{"
     "\"type\":\"object\","
     "\"properties\":{\"k\":{\"enum\":[\"y\",\"z\"]},\"v\":{\"type\":\"integer\"}},\"required\":[\"k\",\"v\"]"
     "}]}",
     {"{\"k\":\"x\"}", "{\"k\":\"z\",\"v\":1}"},
     {"{\"k\":\"y\"}", "{\"k\":\"x\",\"v\":1}"}},
    {"{\"$ref\":\"#/$defs/"
     "tree\",\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"kids\":"
     "{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/tree\"}}},\"required\":[\"v\",\"kids\"]}}}",
     {"{\"v\":1,\"kids\":[]}",
      "{\"v\":1,\"kids\":[{\"v\":2,\"kids\":[{\"v\":3,\"kids\":[]}]}, {\"v\":4,\"kids\":[]}]}"},
     {"{\"v\":1}", "{\"v\":1,\"kids\":[1]}"}},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#\"}},"
     "\"required\":[\"next\"]}]}",
     {"null", "{\"next\":{\"next\":null}}"},
     {"{}", "{\"next\":{}}"}},
    {"{\"pattern\":\"^[a-z]{2,3}$\"}",
     {"\"ab\"", "\"abc\""},
     {"\"a\"", "\"abcd\"", "\"aB\"", "\"\\u0061b\""}},
    {"{\"pattern\":\"b\"}",
     {"\"abc\"", "\"b\"", "\"\xc3""\xa9""b\\n\"", "\"\xc3""\xa9""\\\"b\""},
     {"\"ac\"", "\"\"", "\"B\""}},
    {"{\"pattern\":\"^a|b$\"}",
     {"\"axx\"", "\"xxb\"", "\"b\""},
     {"\"xx\"", "\"bx\""}},
    {"{\"pattern\":\"^[^a-z]*$\"}",
     {"\"A\xc3""\x89""\\n\\\"\"", "\"\xe4""\xb8""\x96""\xf0""\x9f""\x99""\x82""\"", "\"\\u0001\"", "\"\""},
     {"\"a\"", "\"\x01""\""}},
    {"{\"pattern\":\"^[\xc3""\xa9""-\xe4""\xb8""\x96""]$\"}",
     {"\"\xc3""\xa9""\"", "\"\xe4""\xb8""\x96""\"", "\"\xdf""\xbf""\""},
     {"\"\xc3""\xa8""\"", "\"\xe4""\xb8""\x97""\"", "\"\xf0""\x9f""\x99""\x82""\"", "\"\xed""\xa0""\x80""\""}},
    {"{\"pattern\":\"^\\\\u{1f642}?\\\\x41\\\\t$\"}",
     {"\"A\\t\"", "\"\xf0""\x9f""\x99""\x82""A\\t\""},
     {"\"\\t\"", "\"A\"", "\"A\x09""\""}},
    {"{\"pattern\":\"^\\\\d+$\",\"minLength\":2,\"maxLength\":4}",
     {"\"12\"", "\"1234\""},
     {"\"1\"", "\"12345\"", "\"1a\""}},
    {"{\"pattern\":\"^(?:a|b)+?(?<x>c{2,})$\"}",
     {"\"acc\"", "\"abccc\""},
     {"\"cc\"", "\"ac\""}},
    {"{\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\"", "\"2024-12-31\"", "\"1000-01-01\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"2024-13-01\"", "\"0999-01-01\"", "\"2024-2-1\""}},
    {"{\"format\":\"date-time\"}",
     {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.123+02:00\""},
     {"\"2024-02-29T24:00:00Z\"", "\"2023-02-29T00:00:00Z\"", "\"2024-01-01T00:00:00\""}},
    {"{\"format\":\"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123e4567\"", "\"123e4567-e89b-12d3-a456-42661417400g\""}},
    {"{\"format\":\"uri\",\"minLength\":1,\"maxLength\":2083}",
     {"\"https://x.org/a?b=c#d\"", "\"http://localhost:8080\""},
     {"\"x\"", "\"https://\""}},
    {"{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":20.25}",
     {"-1.5", "-1.49", "0.0", "20.24999", "-0.5", "3", "19", "20.2"},
     {"-1.51", "20.25", "20.250", "20.3", "-0", "1e1", "21", "200"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}",
     {"0.01", "1", "1.0", "0.00000000000001"},
     {"0", "0.0", "1.01", "2", "-1", "10"}},
    {"{\"type\":\"number\",\"minimum\":0.1,\"maximum\":0.2}",
     {"0.1", "0.15", "0.2", "0.20", "0.100"},
     {"0.21", "0.09", "0.3", "1"}},
    {"{\"type\":\"number\",\"minimum\":99.5}",
     {"99.5", "100", "123456789012345", "99.50"},
     {"99.4", "99", "-100", "1234567890123456"}},
    {"{\"type\":\"integer\",\"format\":\"int32\"}",
     {"2147483647", "-2147483648"},
     {"2147483648", "-2147483649"}},
    {"{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":false}",
     {"[1,\"a\"]", "[1]", "[]"},
     {"[\"a\"]", "[1,\"a\",2]"}},
    {"{\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"minItems\":2,\"maxItems\":3}",
     {"[1,\"a\"]", "[1,\"a\",2]"},
     {"[1]", "[]", "[1,\"a\",2,3]"}},
    {"{\"items\":[{\"type\":\"integer\"}],\"additionalItems\":{\"type\":\"null\"}}",
     {"[]", "[1,null,null]"},
     {"[null]", "[1,1]"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"properties\":{\"y\":{\"type\":\"integer\"}},\"required\":[\"y\"]}],\"$defs\":{\"a\":{\"properties\":{\"x\":{\"type\":\"string\"}},\"required\":[\"x\"]}}}",
     {"{\"x\":\"a\",\"y\":1}"},
     {"{\"x\":\"a\"}", "{\"y\":1}"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":3}},\"additionalProperties\":false},{\"properties\":{\"a\":{\"maximum\":5},\"b\":{}}}]}",
     {"{\"a\":3}", "{}", "{\"a\":5}"},
     {"{\"a\":2}", "{\"a\":6}", "{\"b\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":2}"},
     {"{}", "{\"c\":1}"}},
    {"{\"$ref\":\"#/$defs/n%20x\",\"minimum\":3,\"$defs\":{\"n x\":{\"type\":\"integer\",\"maximum\":5}}}",
     {"3", "5"},
     {"2", "6"}},
    {"{\"allOf\":[{\"enum\":[\"a\",\"b\"]},{\"enum\":[\"b\",\"c\"]}]}",
     {"\"b\""},
     {"\"a\"", "\"c\""}},
    {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\",\"maxLength\":3}]}",
     {"\"ab\"", "\"cba\""},
     {"\"a\"", "\"b\"", "\"aabb\""}},
    {"{\"allOf\":[{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]},{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}]}",
     {"1"},
     {"\"a\"", "null"}},
    {"{\"type\":\"string\",\"nullable\":true}",
     {"null", "\"a\""},
     {"1"}},
    {"{\"enum\":[\"a\",\"ab\",\"abc\",1,12]}",
     {"\"a\"", "\"ab\"", "\"abc\"", "1", "12"},
     {"\"b\"", "2", "\"", "\"abcd\""}},
    {"{\"type\":[\"string\",\"integer\"],\"minLength\":2,\"minimum\":5}",
     {"\"ab\"", "5"},
     {"\"a\"", "4"}},
    {"{\"x-note\":{\"not\":1},\"type\":\"null\"}",
     {"null"},
     {"1"}},
    {"{\"properties\":{\"never\":false,\"a\":{}}}", {"{}", "{\"a\":1}"}, {"{\"never\":1}"}},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lily_grammar *g = compile(rows[i].schema);
        for (size_t k = 0; k < 8 && rows[i].yes[k]; k++)
            if (!fits(g, false, rows[i].yes[k])) fail_msg("%s refuses %s", rows[i].schema, rows[i].yes[k]);
        for (size_t k = 0; k < 12 && rows[i].no[k]; k++)
            if (fits(g, false, rows[i].no[k])) fail_msg("%s accepts %s", rows[i].schema, rows[i].no[k]);
        lily_grammar_let_go(g);
    }
}

static const struct {
    const char *schema, *says;
    int code;
} refused[] = {
    {"{\"type\":\"nonsense\"}", "#: 'type'", LILY_ARGUMENT},
    {"{\"items\":{\"anyOf\":[{},{\"not\":{}}]}}", "#/items/anyOf/1: 'not' is not supported",
     LILY_UNSUPPORTED},
    {"{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"uniqueItems\":true}}}", "#/$defs/x: 'uniqueItems'",
     LILY_UNSUPPORTED},
    {"{\"$ref\":\"#/$defs/missing\"}", "'$ref' to '#/$defs/missing', which does not exist", LILY_ARGUMENT},
    {"{\"$ref\":\"http://x/y\"}", "only '#/", LILY_UNSUPPORTED},
    {"{\"$ref\":\"#\"}", "leads back to itself without a value", LILY_ARGUMENT},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "leads back to itself without a value", LILY_ARGUMENT},
    {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no finite text fits it",
     LILY_ARGUMENT},
    {"{\"properties\":{},\"required\":[\"a\"],\"additionalProperties\":false}", "no finite text fits it",
     LILY_ARGUMENT},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "alternatives 0 and 1 may fit",
     LILY_UNSUPPORTED},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"properties\":{}}]}", "alternatives 0 and 1 may fit",
     LILY_UNSUPPORTED},
    {"{\"enum\":[]}", "'enum'", LILY_ARGUMENT},
    {"{\"type\":\"integer\",\"minimum\":1e30}", "no finite text fits it", LILY_ARGUMENT},
    {"{\"minLength\":-1}", "'minLength'", LILY_ARGUMENT},
    {"{\"minItems\":2,\"maxItems\":1}", "no finite text fits it", LILY_ARGUMENT},
    {"{\"properties\":[]}", "'properties' must be", LILY_ARGUMENT},
    {"{\"properties\":{\"a/b\":{\"propertyNames\":{}}}}", "#/properties/a~1b: 'propertyNames' is not supported", LILY_UNSUPPORTED},
    {"{\"allOf\":[{\"type\":\"object\"},{\"not\":{}}]}", "#/allOf/1: 'not' is not supported", LILY_UNSUPPORTED},
    {"{\"type\":\"integer\",\"multipleOf\":3}", "'multipleOf' is not supported", LILY_UNSUPPORTED},
    {"{\"items\":{\"format\":\"regex\"}}", "#/items: 'format' regex is not supported", LILY_UNSUPPORTED},
    {"{\"pattern\":\"(?=a)\"}", "#: 'pattern': look-ahead", LILY_UNSUPPORTED},
    {"{\"pattern\":\"(?<!a)b\"}", "look-behind", LILY_UNSUPPORTED},
    {"{\"pattern\":\"(a)\\\\1\"}", "a back reference", LILY_UNSUPPORTED},
    {"{\"pattern\":\"\\\\bx\"}", "\\b in a pattern", LILY_UNSUPPORTED},
    {"{\"pattern\":\"\\\\p{L}\"}", "\\p in a pattern", LILY_UNSUPPORTED},
    {"{\"pattern\":\"(a\"}", "no regular expression", LILY_ARGUMENT},
    {"{\"pattern\":\"[b-a]\"}", "out of order", LILY_ARGUMENT},
    {"{\"pattern\":[\"a\"]}", "'pattern' must be a string", LILY_ARGUMENT},
    {"{\"pattern\":\"^(a|b)*a(a|b){12}$\"}", "too many states", LILY_UNSUPPORTED},
    {"{\"pattern\":\"^a{100000}$\"}", "too many states", LILY_UNSUPPORTED},
    {"{\"pattern\":\"[^\\\\s\\\\S]\",\"minLength\":2}", "no finite text fits it", LILY_ARGUMENT},
    {"{\"allOf\":[{\"pattern\":\"[^\\\\s\\\\S]\"},{\"pattern\":\"a\"}]}", "no finite text fits it", LILY_ARGUMENT},
    {"{\"pattern\":\"^a$\",\"minLength\":2}", "no finite text fits it", LILY_ARGUMENT},
    {"{\"minLength\":100000}", "'minLength' is more than 10000", LILY_UNSUPPORTED},
    {"{\"minItems\":1e9}", "'minItems' is more than 10000", LILY_UNSUPPORTED},
    {"{\"type\":\"number\",\"minimum\":\"1\"}", "'minimum' must be a number", LILY_ARGUMENT},
    {"{\"type\":\"number\",\"minimum\":1,\"maximum\":0.5}", "no finite text fits it", LILY_ARGUMENT},
    {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "no finite text fits it", LILY_ARGUMENT},
    {"{\"allOf\":[{\"$ref\":\"#\"}]}", "nested deeper than", LILY_UNSUPPORTED},
    {"{\"allOf\":[{\"oneOf\":[{\"const\":1}]},{\"oneOf\":[{\"const\":2}]}]}", "#/allOf/1: 'oneOf' in two schemas", LILY_UNSUPPORTED},
    {"{\"enum\":[\"a\"],\"minLength\":1}", "'minLength' beside 'enum'", LILY_UNSUPPORTED},
    {"[]", "#: a schema must be", LILY_ARGUMENT},
    {"false", "no finite text fits it", LILY_ARGUMENT},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        lily_err e;
        lily_grammar *g;
        json_t *j = parse(refused[i].schema);
        int rc = lily_json_schema(&g, j, &e);
        if (rc != refused[i].code || !strstr(e.text, refused[i].says))
            fail_msg("%s: %s (%s)", refused[i].schema, lily_err_name(rc), rc ? e.text : "");
        json_decref(j);
    }
}

/* Schemas that would cost too much are refused, and large ones that are sound work. */
static void test_size(void **state)
{
    (void)state;
    lily_err e;
    lily_grammar *g;
    json_t *properties = json_object(), *alternatives = json_array(), *text = json_object();
    char name[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "p%d", i);
        json_object_set(properties, name, json_true());
        json_array_append_new(alternatives, json_pack("{s:i}", "const", i));
    }
    json_object_set_new(text, "properties", properties);
    check_ok(lily_json_schema(&g, text, &e), &e);
    assert_true(fits(g, false, "{\"p0\":1, \"p500\":[], \"p999\":{}}"));
    assert_false(fits(g, false, "{\"p5\":1, \"p4\":1}"));
    lily_grammar_let_go(g);
    json_object_clear(text);
    json_object_set_new(text, "oneOf", alternatives);
    check_fails(lily_json_schema(&g, text, &e), LILY_UNSUPPORTED, &e);
    assert_non_null(strstr(e.text, "comparisons"));
    json_decref(text);
}

static void test_white_space_after_a_thought(void **state)
{
    (void)state;
    lily_grammar *g = compile("{\"const\":1}");
    assert_true(fits(g, true, "1"));
    assert_true(fits(g, true, "\n\n1"));
    assert_false(fits(g, true, "\n\n\n\n\n1"));
    assert_false(fits(g, false, "\n1"));
    lily_grammar_let_go(g);
}

/* However deep a text has become, it can be completed. */
static void test_depth_has_an_end(void **state)
{
    (void)state;
    lily_err e;
    lily_matcher *m;
    lily_grammar *g = compile(
        "{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"k\":{\"anyOf\":"
        "[{\"$ref\":\"#/$defs/t\"},{\"type\":\"null\"}]}},\"required\":[\"k\"]}}}");
    check_ok(lily_matcher_new(&m, g, false, &e), &e);
    lily_match at = lily_matcher_start(m);
    size_t depth = 0;
    for (lily_match to; depth < 1000 && (to = lily_matcher_step(m, at, '{')); depth++) {
        at = to;
        for (const char *c = "\"k\":"; *c; c++) at = lily_matcher_step(m, at, (uint8_t)*c);
        assert_int_not_equal(at, LILY_MATCH_NONE);
    }
    assert_in_range(depth, 50, 999);
    for (const char *c = "null"; *c; c++) at = lily_matcher_step(m, at, (uint8_t)*c);
    for (size_t i = 0; i < depth; i++) at = lily_matcher_step(m, at, '}');
    assert_true(lily_matcher_complete(m, at));
    lily_matcher_free(m);
    lily_grammar_let_go(g);
}

/* A lost allocation anywhere is an error and nothing leaks (ASan). */
static void test_lost_memory(void **state)
{
    (void)state;
    json_t *j = parse("{" OBJ ",\"additionalProperties\":{\"type\":\"null\"}}");
    int failures = 0, rc;
    for (int64_t n = 0;; n++, failures++) {
        lily_err e;
        lily_grammar *g = NULL;
        lily_matcher *m = NULL;
        lily_mem_fail_after(n);
        rc = lily_json_schema(&g, j, &e);
        if (rc == LILY_OK) rc = lily_matcher_new(&m, g, false, &e);
        if (rc == LILY_OK) {
            lily_match at = lily_matcher_start(m);
            for (const char *c = "{\"a\":1,\"x\":null}"; *c; c++) at = lily_matcher_step(m, at, (uint8_t)*c);
            rc = lily_matcher_ok(m, &e);
            assert_true(rc != LILY_OK || lily_matcher_complete(m, at));
        }
        lily_mem_fail_after(-1);
        lily_matcher_free(m);
        lily_grammar_let_go(g);
        if (rc == LILY_OK) break;
        assert_int_equal(rc, LILY_NO_MEMORY);
    }
    assert_true(failures > 10);
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_white_space_after_a_thought),
        cmocka_unit_test(test_depth_has_an_end),
        cmocka_unit_test(test_lost_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
