/* test_template.c - recorded conversations, each construct, refusals at load, bounds and origins. */
#include "../check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "text/big_number.h"
#include "text/template.h"

static json_t *parse(const char *text)
{
    lily_err e = {0};
    json_t *j;
    check_ok(lily_json_parse_big(&j, text, strlen(text), "test", &e), &e);
    return j;
}

static lily_template *demo_template(void)
{
    lily_err e = {0};
    lily_template *t;
    check_ok(lily_template_load(&t, LILY_SOURCE_DIR "/models/demo", &e), &e);
    return t;
}

/* All conversations that transformers rendered, in strict mode. */
static void check_fixture(const char *path)
{
    lily_err e = {0};
    json_t *rows, *row;
    size_t i;
    lily_template *t = demo_template();
    check_ok(lily_json_read(&rows, path, 1 << 20, &e), &e);
    assert_true(json_array_size(rows) >= 48);
    json_array_foreach (rows, i, row) {
        lily_rendered r = {0};
        json_t *kwargs = json_object_get(row, "kwargs"), *text = json_object_get(row, "text");
        const char *name = json_string_value(json_object_get(row, "name"));
        bool prompt = json_is_true(json_object_get(kwargs, "add_generation_prompt"));
        int rc = lily_template_render(t, json_object_get(row, "messages"), json_object_get(row, "tools"), kwargs, prompt, &r, &e);
        if (!text) {
            assert_int_equal(rc, LILY_ARGUMENT);
        } else if (rc != LILY_OK) {
            fail_msg("%s: %s", name, e.text);
        } else if (r.text.len != json_string_length(text) || memcmp(r.text.data, json_string_value(text), r.text.len) != 0) {
            fail_msg("%s:\n%s\nwanted\n%s", name, r.text.data, json_string_value(text));
        } else {
            bool thinks = prompt && !json_is_false(json_object_get(kwargs, "enable_thinking"));
            assert_int_equal(lily_rendered_in_think(&r), thinks);
        }
        lily_rendered_free(&r);
    }
    json_decref(rows);
    lily_template_free(t);
}

static void test_conversations(void **state)
{
    (void)state;
    check_fixture(LILY_SOURCE_DIR "/tests/fixtures/tiny/chat.json");
    check_fixture(LILY_SOURCE_DIR "/tests/fixtures/odd/chat.json");
}

static int render(const char *source, const char *kwargs, lily_rendered *r, lily_err *e)
{
    lily_template *t;
    int rc = lily_template_parse(&t, source, strlen(source), "t", e);
    if (rc != LILY_OK) return rc;
    json_t *k = parse(kwargs), *messages = json_array();
    rc = lily_template_render(t, messages, NULL, k, false, r, e);
    json_decref(k);
    json_decref(messages);
    lily_template_free(t);
    return rc;
}

static const char DATA[] = "{\"s\": \"h\xc3\xa9llo\", \"l\": [1, \"two\", null, true, 1.5], \"d\": {\"b\": 1.0, \"a\": {\"items\": 2}, \"items\": 3},"
                           "\"big\": 18446744073709551616, \"nb\": \"\xc2\xa0 x\xe3\x80\x80\", \"q\": \"it's\", \"e\": []}";

/* Pairs of template and text; jinja2 gave the texts (the property test compares many more). */
static void test_constructs(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"{{ s }}|{{ l }}|{{ d }}", "h\xc3\xa9llo|[1, 'two', None, True, 1.5]|{'b': 1.0, 'a': {'items': 2}, 'items': 3}"},
        {"{{ d|tojson }} {{ l|tojson }} {{ big }} {{ [big]|tojson }}",
         "{\"b\": 1.0, \"a\": {\"items\": 2}, \"items\": 3} [1, \"two\", null, true, 1.5] 18446744073709551616 [18446744073709551616]"},
        {"{{ {'a': [1, {}], 'b': []}|tojson(indent=2) }}", "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}"},
        {"{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.0 }} {{ 0.1 + 0.2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }}",
         "1e+16 1000000000000000.0 0.0001 1e-05 1.0 0.30000000000000004 3 -4 2 3.5"},
        {"{{ none }}{{ true }}{{ missing }}|{{ none ~ 1 ~ missing }}|{{ [q, '\"', \"\\n\\x00\\xad\"] }}", "NoneTrue|None1|[\"it's\", '\"', '\\n\\x00\\xad']"},
        {"[{{ nb|trim }}] [{{ nb.strip() }}] [{{ '\\n\\na'.lstrip('\\n') }}] [{{ 'xxaxx'.strip('x') }}] {{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }}",
         "[x] [x] [a] [a] ['a', 'b', '', 'c'] ['a', 'b']"},
        {"{{ s[1] }}{{ s[-1] }}{{ s[1:3] }}{{ s[::-1] }} {{ l[-2:] }} {{ l[::-1][0] }} {{ l[9] is undefined }} {{ s|length }}", "\xc3\xa9o\xc3\xa9loll\xc3\xa9h [True, 1.5] 1.5 True 5"},
        {"{{ d.b }} {{ d['a'] }} {{ d.items()|list }} {{ d['items'] }} {{ d.get('zz', 4) }} {{ d.zz is defined }}", "1.0 {'items': 2} [('b', 1.0), ('a', {'items': 2}), ('items', 3)] 3 4 False"},
        {"{% for k, v in d|items %}{{ loop.index }}{{ loop.first }}{{ k }}={{ v }}{{ ';' if not loop.last }}{% else %}none{% endfor %}{% for x in e %}{% else %}none{% endfor %}",
         "1Trueb=1.0;2Falsea={'items': 2};3Falseitems=3none"},
        {"{% for x in l if x %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "<1>two 1<two>True two<True>1.5 True<1.5> "},
        {"{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}", "15151"},
        {"{% set ns = namespace(a=1, b='x') %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}", "4x"},
        {"{% macro m(a, b=a, c='c') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m(b=3) }}", "11c;112;3c;"},
        {"{% set b %}x{{ s }}{% endset %}{{ b|upper }} {{ '\xc3\x9f\xef\xac\x81'|upper }} {{ '\xce\x9f\xce\xa3 \xc4\xb0'|lower }}", "XH\xc3\x89LLO SSFI \xce\xbf\xcf\x82 i\xcc\x87"},
        {"{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 == true }} {{ 'l' in s }} {{ 'b' not in d }} {{ 'two' in l }} {{ not 1 or 2 }} {{ 0 and x.y }}", "True False True True False True 2 0"},
        {"{{ l is iterable }} {{ d is mapping }} {{ s is sequence }} {{ missing is iterable }} {{ 1 is number }} {{ true is true }} {{ 1 is boolean }} {{ none is not none }}", "True True True True True True False False"},
        {"{{ missing|default('x') }} {{ ''|d('y', true) }} {{ l|first }} {{ l|last }} {{ ['a', 1]|join('-') }} {{ 'aXa'|replace('a', 'b', 1) }}", "x y 1 1.5 a-1 bXa"},
        {"{{ '<' + ('a<'|safe) }} {{ '<' ~ ('a<'|safe) }} {{ 'a' 'b' }} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ (1,) }} {{ () }}", "&lt;a< <a< ab abab [1, 2] (1,) ()"},
        {"a\n  {% if true %}\nb\n  {%- endif %}\n  c {%- if true -%}  d  {%+ endif %}\n{# x #}\n  {#- y -#}  e\n", "a\nb  cd  e"},
        {"{% if false %}a{% elif none %}b{% elif '' %}c{% else %}d{% endif %}{% generation %}g{% endgeneration %}", "dg"},
        {"x\r\ny\rz\n\n", "x\ny\nz\n"},
        {"{{ {'a': {}}['a'] }}{{ \"}}\" }}{{ '\\u00e9\\101\\q' }}", "{}}}\xc3\xa9" "A\\q"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        lily_err e = {0};
        lily_rendered r = {0};
        check_ok(render(pairs[i][0], DATA, &r, &e), &e);
        if (strcmp(lily_buf_str(&r.text), pairs[i][1]) != 0)
            fail_msg("%s\ngave   %s\nwanted %s", pairs[i][0], lily_buf_str(&r.text), pairs[i][1]);
        lily_rendered_free(&r);
    }
}

static void test_refused_at_load(void **state)
{
    (void)state;
    static const struct {
        const char *source, *sentence;
        int code;
    } cases[] = {
        {"a\n\n{{ x|groupby('y') }}", "t: line 3: filter 'groupby' is not supported", LILY_UNSUPPORTED},
        {"{% include 'x' %}", "t: line 1: statement 'include' is not supported", LILY_UNSUPPORTED},
        {"\n{{ 'a'.format(1) }}", "t: line 2: method 'format' is not supported", LILY_UNSUPPORTED},
        {"{{ x is divisibleby(2) }}", "t: line 1: test 'divisibleby' is not supported", LILY_UNSUPPORTED},
        {"{{ strftime_now('%Y') }}", "t: line 1: function 'strftime_now' is not supported", LILY_UNSUPPORTED},
        {"{{ 2 ** 3 }}", "t: line 1: operator '**' is not supported", LILY_UNSUPPORTED},
        {"{{ f(*x) }}", "t: line 1: function 'f' is not supported", LILY_UNSUPPORTED},
        {"{{ range(*x) }}", "t: line 1: an argument with '*' is not supported", LILY_UNSUPPORTED},
        {"{{ x.__class__ }}", "t: line 1: attribute '__class__' is not supported", LILY_UNSUPPORTED},
        {"{% for x in y recursive %}{% endfor %}", "t: line 1: 'recursive' is not supported", LILY_UNSUPPORTED},
        {"{% for x in y %}{{ loop.cycle('a') }}{% endfor %}", "t: line 1: 'loop.cycle' is not supported", LILY_UNSUPPORTED},
        {"{{ x|tojson(separators=1) }}", "t: line 1: this argument of filter 'tojson' is not supported", LILY_UNSUPPORTED},
        {"{% call m() %}{% endcall %}", "t: line 1: statement 'call' is not supported", LILY_UNSUPPORTED},
        {"a\n{% if x %}\nb", "t: line 2: 'endif' is missing", LILY_FORMAT},
        {"{% endfor %}", "t: line 1: 'endfor' without its beginning", LILY_FORMAT},
        {"{{ 'x }}", "t: line 1: the string has no end", LILY_FORMAT},
        {"{{ x", "t: line 1: the expression has no end", LILY_FORMAT},
        {"{# x", "t: line 1: the comment has no end", LILY_FORMAT},
        {"{{ }}", "t: line 1: an expression is missing", LILY_FORMAT},
        {"{{ x) }}", "t: line 1: a bracket that was not opened", LILY_FORMAT},
        {"{{ ! }}", "t: line 1: an unexpected character", LILY_FORMAT},
        {"a\xff", "t: line 1: not UTF-8", LILY_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lily_err e = {0};
        lily_rendered r = {0};
        check_fails(render(cases[i].source, "{}", &r, &e), cases[i].code, &e);
        assert_string_equal(e.text, cases[i].sentence);
    }
}

static void test_errors_and_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *source, *sentence;
        int code;
    } cases[] = {
        {"{{ raise_exception('No.') }}", "No.", LILY_ARGUMENT},
        {"\n{{ x.y }}", "t: line 2: 'x' is undefined", LILY_ARGUMENT},
        {"{{ 'a' + 1 }}", "t: line 1: a string and a int do not combine", LILY_ARGUMENT},
        {"{{ none|length }}", "t: line 1: a None has no length", LILY_ARGUMENT},
        {"{% for i in 5 %}{% endfor %}", "t: line 1: a int cannot be walked", LILY_ARGUMENT},
        {"{{ none.strip() }}", "t: line 1: a None has no method 'strip'", LILY_ARGUMENT},
        {"{{ 9223372036854775807 + 1 }}", "t: line 1: an int beyond 64 bits", LILY_UNSUPPORTED},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "t: line 1: nested too deeply", LILY_UNSUPPORTED},
        {"{% set s = 'a' * 60000 %}{% for a in range(99999) %}{% if 'b' in s %}{% endif %}{% endfor %}",
         "t: line 1: the template takes more steps than any honest one needs", LILY_UNSUPPORTED},
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
         "t: line 1: the template takes more memory than any honest one needs", LILY_UNSUPPORTED},
        {"{% set n = namespace(s='abcdefgh') %}{% for a in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
         "t: line 1: the template takes more memory than any honest one needs", LILY_UNSUPPORTED},
        {"{% set n = namespace(s=[]) %}{% for a in range(9999) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s }}",
         "t: line 1: nested too deeply", LILY_UNSUPPORTED},
    };
    lily_err e = {0};
    lily_rendered r = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_fails(render(cases[i].source, "{}", &r, &e), cases[i].code, &e);
        assert_string_equal(e.text, cases[i].sentence);
    }
    r.limit = 10;
    check_ok(render("{{ s * 5 }}", "{\"s\": \"ab\"}", &r, &e), &e);
    check_fails(render("{{ s * 5 }}c", "{\"s\": \"ab\"}", &r, &e), LILY_CONTEXT, &e);
    lily_rendered_free(&r);
}

/* The bytes that are control, the others as '.'. */
static void check_origin(const char *source, const char *kwargs, const char *want)
{
    lily_err e = {0};
    lily_rendered r = {0};
    char got[256] = {0};
    check_ok(render(source, kwargs, &r, &e), &e);
    assert_true(r.text.len < sizeof got);
    for (size_t i = 0, span = 0; i < r.text.len; i++) {
        if (r.spans[span].end == i) span++;
        got[i] = r.spans[span].control ? r.text.data[i] : '.';
    }
    assert_string_equal(got, want);
    lily_rendered_free(&r);
}

static void test_origin(void **state)
{
    (void)state;
    const char *data = "{\"s\": \" <b> \", \"d\": {\"<b>\": \"<b>\"}, \"n\": 5}";
    check_origin("<b>{{ s }}<b>", data, "<b>.....<b>");
    check_origin("{{ '<b>' + s + '</b>' }}", data, "<b>.....</b>");
    check_origin("{{ ('<b>' + s + '</b>')[1:9]|trim }}", data, "b>.....<");
    check_origin("{{ ('<' ~ s ~ '>').split('b')|join('|') }}", data, "<..|..>");
    check_origin("{{ ('x' ~ s).replace('<', 'y')|upper }}", data, "X.Y...");
    check_origin("{{ d|tojson }}{{ d }}{{ {'<b>': 1}|tojson }}", data, "......................................");
    check_origin("{% for k, v in d|items %}<{{ k }}={{ v }}>{% endfor %}", data, "<...=...>");
    check_origin("{% set x %}<{{ s|trim }}>{% endset %}{{ x }}{{ n }}", data, "<...>.");
    check_origin("{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m(s.strip()) }}{{ m('<b>') }}", data, "[...][<b>]");
    check_origin("{{ s.strip()[::-1] ~ '<b>'[::-1] }}{{ s.strip()|safe }}", data, "...>b<...");
}

/* Special tokens of tokenizer_config.json are the checkpoint's own words; a request's are not. */
static void test_load(void **state)
{
    (void)state;
    static const char dir[] = LILY_BINARY_DIR "/tests/template_dir";
    lily_err e = {0};
    lily_template *t;
    lily_rendered r = {0};
    char path[512];
    snprintf(path, sizeof path, "mkdir -p %s && rm -f %s/*", dir, dir);
    assert_int_equal(system(path), 0);
    check_fails(lily_template_load(&t, dir, &e), LILY_FORMAT, &e);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    FILE *f = fopen(path, "w");
    fputs("{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\", \"pad_token\": null, \"chat_template\": "
          "[{\"name\": \"x\", \"template\": \"no\"}, {\"name\": \"default\", \"template\": \"{{ bos_token }}{{ pad_token }}{{ eos_token }}\"}]}", f);
    fclose(f);
    json_t *messages = json_array(), *kwargs = parse("{\"eos_token\": \"mine\"}");
    check_ok(lily_template_load(&t, dir, &e), &e);
    check_ok(lily_template_render(t, messages, NULL, kwargs, false, &r, &e), &e);
    assert_string_equal(r.text.data, "<s>mine");
    assert_int_equal(r.n_spans, 2);
    assert_true(r.spans[0].control && r.spans[0].end == 3 && !r.spans[1].control);
    lily_template_free(t);
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    f = fopen(path, "w");
    fputs("\n{{ x|nope }}", f);
    fclose(f);
    check_fails(lily_template_load(&t, dir, &e), LILY_UNSUPPORTED, &e);
    assert_string_equal(e.text, "chat_template.jinja: line 2: filter 'nope' is not supported");
    lily_rendered_free(&r);
    json_decref(messages);
    json_decref(kwargs);
}

static void test_no_memory(void **state)
{
    (void)state;
    lily_err e = {0};
    json_t *messages = parse("[{\"role\":\"user\",\"content\":\" a \"},{\"role\":\"assistant\",\"content\":\"<think>x</think>b\",\"tool_calls\":"
                             "[{\"name\":\"f\",\"arguments\":{\"a\":[1]}}]}]");
    json_t *kwargs = parse("{\"preserve_thinking\": true}");
    int rc = LILY_NO_MEMORY;
    for (int64_t n = 0; rc != LILY_OK; n++) {
        lily_template *t;
        lily_rendered r = {0};
        assert_in_range(n, 0, 2000);
        lily_mem_fail_after(n);
        rc = lily_template_load(&t, LILY_SOURCE_DIR "/models/demo", &e);
        if (rc == LILY_OK) rc = lily_template_render(t, messages, NULL, kwargs, true, &r, &e);
        lily_mem_fail_after(-1);
        if (rc != LILY_OK) assert_int_equal(rc, LILY_NO_MEMORY);
        lily_template_free(t);
        lily_rendered_free(&r);
    }
    json_decref(messages);
    json_decref(kwargs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversations),     cmocka_unit_test(test_constructs), cmocka_unit_test(test_refused_at_load),
        cmocka_unit_test(test_errors_and_bounds), cmocka_unit_test(test_origin),     cmocka_unit_test(test_load),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
