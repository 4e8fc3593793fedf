/* test_reply.c - the reader of replies: what comes out, and that it does not depend on how the reply is cut. */
#include "../check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/reply.h"

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"read_file\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{\"path\":{\"type\":\"string\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"write_file\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{\"path\":{\"type\":\"string\"},\"content\":{\"type\":\"string\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"clock\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"typed\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{\"i\":{\"type\":\"integer\"},\"f\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},\"a\":{\"type\":\"array\"},"
    "\"o\":{\"type\":\"object\"},\"m\":{\"type\":[\"string\",\"null\"]},\"u\":{\"anyOf\":[{\"type\":\"string\"},"
    "{\"type\":\"array\"}]},\"x\":{},\"e\":{\"enum\":[\"a\",\"b\"]},\"r\":{\"$ref\":\"#/$defs/n\"}},"
    "\"$defs\":{\"n\":{\"type\":\"integer\"}}}}},"
    "{\"name\":\"flat\",\"parameters\":{\"properties\":{\"n\":{\"type\":\"integer\"}}}}]";

/* Writes events as text: R: reasoning, T: text, C0: name, A: arguments, E end, X cut; equal neighbours join. */
typedef struct log {
    lily_buf text;
    int last;
    bool stop;
} log_t;

static int sink(void *user, const lily_reply_event *ev, lily_err *e)
{
    static const char letters[] = "RTCAEX";
    log_t *log = user;
    if (log->stop) return lily_fail(e, LILY_CANCELLED, "stop");
    if (ev->n) assert_true(lily_utf8_valid(ev->text, ev->n));
    bool joins = log->last == (int)ev->kind && (ev->kind <= LILY_REPLY_TEXT || ev->kind == LILY_REPLY_ARGUMENTS);
    if (!joins) lily_buf_printf(&log->text, "[%c", letters[ev->kind]);
    if (ev->kind == LILY_REPLY_CALL) lily_buf_printf(&log->text, "%zu:", ev->call);
    if (ev->kind != LILY_REPLY_CALL_END && ev->kind != LILY_REPLY_CALL_CUT) lily_buf_add(&log->text, ev->text, ev->n);
    log->last = (int)ev->kind;
    return LILY_OK;
}

static const char *const TAGS[] = {"<think>", "</think>", "<tool_call>", "</tool_call>"};

/* Length of the added token at s, or 0. */
static size_t tag_at(const char *s)
{
    for (size_t i = 0; i < 4; i++)
        if (strncmp(s, TAGS[i], strlen(TAGS[i])) == 0) return strlen(TAGS[i]);
    return 0;
}

enum how { THINKING = 1, NO_TOOLS = 2, CUT = 4, LETTERS = 8 };    /* LETTERS: no piece is an added token */

/* Feeds the reply in pieces of `piece` bytes, the added tokens whole unless LETTERS. */
static char *read_reply(const char *reply, size_t piece, int how)
{
    lily_err e = {0};
    log_t log = {.last = -1};
    lily_reply *r;
    json_t *list;
    check_ok(lily_json_parse(&list, TOOLS, sizeof TOOLS - 1, "tools", &e), &e);
    lily_reply_options options = {.thinking = how & THINKING, .tools = how & NO_TOOLS ? NULL : list, .sink = sink, .user = &log};
    check_ok(lily_reply_new(&r, &options, &e), &e);
    for (const char *at = reply; *at;) {
        size_t n = how & LETTERS ? 0 : tag_at(at);
        bool special = n > 0;
        if (!special)
            for (n = 1; n < piece && at[n] && (how & LETTERS || !tag_at(at + n)); n++) continue;
        check_ok(lily_reply_feed(r, at, n, special, &e), &e);
        at += n;
    }
    check_ok(lily_reply_finish(r, how & CUT, &e), &e);
    lily_reply_free(r);
    json_decref(list);
    return log.text.data ? log.text.data : strdup("");
}

typedef struct sample {
    const char *name, *reply, *want;
    int how;
} sample;

#define CALL(x)    "<tool_call>\n<function=read_file>\n<parameter=path>\n" x "\n</parameter>\n</function>\n</tool_call>"
#define BARE(x)    "<function=read_file>\n<parameter=path>\n" x "\n</parameter>\n</function>"
#define READ(k, x) "[C" k ":read_file[A{\"path\": \"" x "\"}[E"

static const sample SAMPLES[] = {
    {"TC01 no wrapper", "I will read it.\n" BARE("src/a.c") "\n</tool_call>", "[TI will read it." READ("0", "src/a.c"), 0},
    {"TC03 call alone", CALL("a.txt"), READ("0", "a.txt"), 0},
    {"TC04 two calls", CALL("a.txt") "\n" CALL("b.txt"), READ("0", "a.txt") READ("1", "b.txt"), 0},
    {"TC05 closing tags inside a value",
     "<tool_call>\n<function=write_file>\n<parameter=path>\nsnippet.txt\n</parameter>\n<parameter=content>\nbegin\n"
     "<function=list_all>\n</function>\n</tool_call>\nend\n</parameter>\n</function>\n</tool_call>",
     "[C0:write_file[A{\"path\": \"snippet.txt\", \"content\": \"begin\\n<function=list_all>\\n</function>\\n"
     "</tool_call>\\nend\"}[E", 0},
    {"TC07 white space of a value",
     "<tool_call>\n<function=write_file>\n<parameter=path>\n    while n > 0:\n        n -= 1\n\n</parameter>\n"
     "<parameter=content>\n\tpass  \n</parameter>\n</function>\n</tool_call>",
     "[C0:write_file[A{\"path\": \"    while n > 0:\\n        n -= 1\\n\", \"content\": \"\\tpass  \"}[E", 0},
    {"TC08 no parameters", "<tool_call>\n<function=clock>\n</function>\n</tool_call>", "[C0:clock[A{}[E", 0},
    {"TC09 cut inside a value", "<tool_call>\n<function=write_file>\n<parameter=content>\nprint(\"hel",
     "[C0:write_file[A{\"content\": \"print(\\\"hel[X", CUT},
    {"TC10 strings that look like something else",
     "<tool_call>\n<function=write_file>\n<parameter=path>\n00720\n</parameter>\n<parameter=content>\n[1, 2]\n</parameter>\n"
     "</function>\n</tool_call>",
     "[C0:write_file[A{\"path\": \"00720\", \"content\": \"[1, 2]\"}[E", 0},
    {"TC11 typed values",
     "<tool_call>\n<function=typed>\n<parameter=i>\n42\n</parameter>\n<parameter=f>\n52.5\n</parameter>\n<parameter=b>\n"
     "False\n</parameter>\n<parameter=a>\n[\"x\", \"y\"]\n</parameter>\n<parameter=o>\n{\n  \"k\": {\"n\": 1}\n}\n"
     "</parameter>\n</function>\n</tool_call>",
     "[C0:typed[A{\"i\": 42, \"f\": 52.5, \"b\": false, \"a\": [\"x\", \"y\"], \"o\": {\n  \"k\": {\"n\": 1}\n}}[E", 0},
    {"TC13 values that do not fit",
     "<tool_call>\n<function=typed>\n<parameter=i>\n2031-07-04\n</parameter>\n<parameter=o>\nnot json\n</parameter>\n"
     "<parameter=f>\n012\n</parameter>\n<parameter=a>\n{}\n</parameter>\n</function>\n</tool_call>",
     "[C0:typed[A{\"i\": \"2031-07-04\", \"o\": \"not json\", \"f\": \"012\", \"a\": \"{}\"}[E", 0},
    {"numbers of any size",
     "<tool_call>\n<function=typed>\n<parameter=i>\n123456789012345678901234567890\n</parameter>\n<parameter=o>\n"
     "{\"n\": 18446744073709551616}\n</parameter>\n<parameter=f>\n1e999\n</parameter>\n</function>\n</tool_call>",
     "[C0:typed[A{\"i\": 123456789012345678901234567890, \"o\": {\"n\": 18446744073709551616}, \"f\": 1e999}[E", 0},
    {"unions, references and no type",
     "<tool_call>\n<function=typed>\n<parameter=m>\nnull\n</parameter>\n<parameter=u>\n[1]\n</parameter>\n<parameter=x>\n"
     "true\n</parameter>\n<parameter=e>\na\n</parameter>\n<parameter=r>\n7\n</parameter>\n<parameter=other>\n1\n</parameter>\n"
     "</function>\n</tool_call>",
     "[C0:typed[A{\"m\": null, \"u\": [1], \"x\": true, \"e\": \"a\", \"r\": 7, \"other\": \"1\"}[E", 0},
    {"unions, the other way",
     "<tool_call>\n<function=typed>\n<parameter=m>\nnullable\n</parameter>\n<parameter=u>\n[1\n</parameter>\n<parameter=x>\n"
     "so so\n</parameter>\n<parameter=i>\nnull\n</parameter>\n</function>\n</tool_call>",
     "[C0:typed[A{\"m\": \"nullable\", \"u\": \"[1\", \"x\": \"so so\", \"i\": null}[E", 0},
    {"TC17 JSON in the wrapper", "Well.\n\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"Lima\", \"n\": 1e400}}\n</tool_call>",
     "[TWell.[C0:read_file[A{\"path\": \"Lima\", \"n\": 1e400}[E", 0},
    {"JSON with its arguments as a string", "<tool_call>\n{\"name\": \"clock\", \"arguments\": \"{\\\"a\\\": 1}\"}\n</tool_call>",
     "[C0:clock[A{\"a\": 1}[E", 0},
    {"JSON without arguments, unclosed", "<tool_call>{\"name\": \"clock\"}", "[C0:clock[A{}[E", 0},
    {"JSON that is none", "<tool_call>\n{\"name\": }\n</tool_call>", "[T<tool_call>\n{\"name\": }\n", 0},
    {"JSON cut", "ok <tool_call>\n{\"name\": \"clock\", \"argu", "[Tok", CUT},
    {"TC18 call inside thinking",
     "Maybe I should use\n" CALL("x") "\nbut no.</think>\n\nDone.",
     "[RMaybe I should use\n" CALL("x") "\nbut no.[TDone.", THINKING},
    {"call at the end of closed thinking", "Maybe\n" CALL("x") "\n</think>\n\nDone.", "[RMaybe\n" CALL("x") "[TDone.",
     THINKING},
    {"bare call inside thinking", "Maybe\n" BARE("x") "\nno</think>ok", "[RMaybe\n" BARE("x") "\nno[Tok", THINKING},
    {"TC19 thinking never closed", "I need the file.\n" CALL("x.c"), "[RI need the file." READ("0", "x.c"), THINKING},
    {"thinking never closed, two calls, one bare", "I need it.\n" CALL("x") "\n" BARE("y") "\n", "[RI need it." READ("0", "x") READ("1", "y"),
     THINKING},
    {"thinking never closed, JSON call", "Hm.\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>",
     "[RHm.[C0:clock[A{}[E", THINKING},
    {"thinking never closed, call not declared", "Hm.\n<tool_call>\n<function=nope>\n</function>\n</tool_call>",
     "[RHm.\n<tool_call>\n<function=nope>\n</function>\n</tool_call>", THINKING},
    {"thinking cut behind a call", "Hm.\n" CALL("x"), "[RHm.\n" CALL("x"), THINKING | CUT},
    {"thinking ends inside a call", "Hm.\n<tool_call>\n<function=read_file>\n<parameter=path>\nx",
     "[RHm.\n<tool_call>\n<function=read_file>\n<parameter=path>\nx", THINKING},
    {"TC22 no tools", CALL("a"), "[T" CALL("a"), NO_TOOLS},
    {"RS01", "Seven minus two is five.</think>\n\n5", "[RSeven minus two is five.[T5", THINKING},
    {"RS01 as templates write it", "\nSeven.\n\nFive.\n</think>\n\n  5\n", "[RSeven.\n\nFive.[T  5\n", THINKING},
    {"RS02 cut while thinking", "Let me think about this for", "[RLet me think about this for", THINKING | CUT},
    {"RS03 no thinking", "Hello there.", "[THello there.", 0},
    {"no thinking, white space stays", "\n  a\n", "[T\n  a\n", 0},
    {"thinking opened twice", "<think>\nhm\n</think>\n\nyes", "[Rhm[Tyes", THINKING},
    {"thinking closed twice", "hm</think>\n</think>\n\nyes", "[Rhm[Tyes", THINKING},
    {"thinking although it is off", "<think>\nhm\n</think>\n\nyes", "[Rhm[Tyes", 0},
    {"empty thinking", "</think>\n\nyes", "[Tyes", THINKING},
    {"thinking again", "a</think>\n\nb\n<think>\nc\n</think>\nd", "[Ra[Tb[Rc[Td", THINKING},
    {"tags in inline code", "Use `<think>` and `</think>` and `<tool_call>`.", "[TUse `<think>` and `</think>` and `<tool_call>`.", 0},
    {"letters are no tags", "a</think>b<tool_call>c", "[Ra</think>b<tool_call>c", THINKING | LETTERS},
    {"letters around a call", "x\n" CALL("a"), "[Tx" READ("0", "a"), LETTERS},
    {"call in a code fence", "Like this:\n```\n" CALL("a") "\n```\nSee?", "[TLike this:\n```\n" CALL("a") "\n```\nSee?", 0},
    {"bare call in a code fence", "~~~xml\n" BARE("a") "\n~~~", "[T~~~xml\n" BARE("a") "\n~~~", 0},
    {"call behind a closed fence", "```\nx\n```\n" CALL("a"), "[T```\nx\n```" READ("0", "a"), 0},
    {"call on a quoted line", "> " CALL("a"), "[T> " CALL("a"), 0},
    {"call in quotation marks", "Write \"" CALL("a") "\".", "[TWrite \"" CALL("a") "\".", 0},
    {"bare call inside a line", "Write " BARE("a"), "[TWrite " BARE("a"), 0},
    {"bare call of no tool", "<function=nope>\n</function>", "[T<function=nope>\n</function>", 0},
    {"wrapped call of no tool", "<tool_call>\n<function=nope>\n</function>\n</tool_call>", "[C0:nope[A{}[E", 0},
    {"flat declaration", "<function=flat>\n<parameter=n>\n3\n</parameter>\n</function>", "[C0:flat[A{\"n\": 3}[E", 0},
    {"wrapper without a call", "<tool_call> is a tag.", "[T<tool_call> is a tag.", 0},
    {"wrapper at the end", "Hm <tool_call>\n<func", "[THm", 0},
    {"bare opening at the end", "a <b\n<function", "[Ta <b\n<function", 0},
    {"doubled tags", "<tool_call>\n<tool_call>\n<function=read_file>\n<function=read_file>\n<parameter=path>\na\n</parameter>\n"
     "</function>\n</function>\n</tool_call>\n</tool_call>\n", READ("0", "a"), 0},
    {"function not closed", "<tool_call>\n<function=read_file>\n<parameter=path>\na\n</parameter>\n</tool_call>\n" CALL("b"),
     READ("0", "a") READ("1", "b"), 0},
    {"nothing closed", "<tool_call>\n<function=read_file>\n<parameter=path>\na\n</parameter>\n", READ("0", "a"), 0},
    {"parameter not closed", "<tool_call>\n<function=read_file>\n<parameter=path>\na\n</function>\n</tool_call>\n", READ("0", "a"), 0},
    {"closing tag not on its own line", "<tool_call>\n<function=read_file>\n<parameter=path>\na</parameter>\n</function>\n</tool_call>",
     READ("0", "a"), 0},
    {"values on one line", "<tool_call><function=write_file><parameter=path>a</parameter><parameter=content>b</parameter>"
     "</function></tool_call>", "[C0:write_file[A{\"path\": \"a\", \"content\": \"b\"}[E", 0},
    {"cut between parameters", "<tool_call>\n<function=read_file>\n<parameter=path>\na\n</parameter>\n", "[C0:read_file[A{\"path\": \"a\"[X",
     CUT},
    {"cut behind the function", "<tool_call>\n<function=clock>\n</function>", "[C0:clock[A{}[E", CUT},
    {"ends inside a value", "<tool_call>\n<function=read_file>\n<parameter=path>\na", "[C0:read_file[A{\"path\": \"a[X", 0},
    {"empty values", "<tool_call>\n<function=write_file>\n<parameter=path>\n\n</parameter>\n<parameter=content>\n</parameter>\n"
     "</function>\n</tool_call>", "[C0:write_file[A{\"path\": \"\", \"content\": \"\"}[E", 0},
    {"a key twice", "<tool_call>\n<function=read_file>\n<parameter=path>\na\n</parameter>\n<parameter=path>\nb\n</parameter>\n"
     "</function>\n</tool_call>", READ("0", "a"), 0},
    {"quoted names", "<tool_call>\n<function=\"read_file\">\n<parameter='path'>\na\n</parameter>\n</function>\n</tool_call>", READ("0", "a"), 0},
    {"tags of thinking in a value", CALL("<think>x</think> <tool_call>"), READ("0", "<think>x</think> <tool_call>"), 0},
    {"control characters and quotation marks", CALL("a\"\\\t\x01/\xc3\xa9\xf0\x9f\x98\x80"), READ("0", "a\\\"\\\\\\t\\u0001/\xc3\xa9\xf0\x9f\x98\x80"), 0},
    {"text behind a call", "One.\n\n" CALL("a") "\n\nTwo.", "[TOne." READ("0", "a") "[T\n\nTwo.", 0},
    {"text only behind a call", CALL("a") "\n\nTwo.", READ("0", "a") "[TTwo.", 0},
    {"characters of several bytes", "h\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80</think>\n\n\xe4\xbd\xa0", "[Rh\xc3\xa9\xe4\xbd\xa0\xf0\x9f\x98\x80[T\xe4\xbd\xa0",
     THINKING},
    {"bytes that are no UTF-8", "a\xff\xe4\xbd""b\xf0\x9f\x98", "[Ta\xef\xbf\xbd\xef\xbf\xbd""b\xef\xbf\xbd", 0},
    {"bytes that stand for tokens inside the reader", "a\xfc\xfd\xfe\xff", "[Ta\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", 0},
    {"nothing", "", "", 0},
};

static void test_samples(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof SAMPLES / sizeof *SAMPLES; i++) {
        const sample *s = &SAMPLES[i];
        size_t n = strlen(s->reply);
        for (size_t piece = 1; piece <= n + 1; piece++) {
            char *got = read_reply(s->reply, piece, s->how);
            if (strcmp(got, s->want) != 0)
                fail_msg("%s, pieces of %zu:\nwanted %s\ngot    %s", s->name, piece, s->want, got);
            free(got);
        }
    }
}

/* Text comes as early as it can, a call's arguments while they are written. */
static void test_early(void **state)
{
    (void)state;
    lily_err e = {0};
    log_t log = {.last = -1};
    lily_reply *r;
    json_t *list;
    check_ok(lily_json_parse(&list, TOOLS, sizeof TOOLS - 1, "tools", &e), &e);
    lily_reply_options options = {.thinking = true, .tools = list, .sink = sink, .user = &log};
    check_ok(lily_reply_new(&r, &options, &e), &e);
    static const struct {
        const char *piece, *so_far;
        bool special, reasoning;
    } steps[] = {
        {"one ", "[Rone", false, true},
        {"two", "[Rone two", false, true},
        {"</think>", "[Rone two", true, false},
        {"\n\nThree <", "[Rone two[TThree <", false, false},
        {"four\n<fun", "[Rone two[TThree <four", false, false},
        {"d>", "[Rone two[TThree <four\n<fund>", false, false},
        {"<tool_call>", "[Rone two[TThree <four\n<fund>", true, false},
        {"\n<function=read_file>", "[Rone two[TThree <four\n<fund>[C0:read_file", false, false},
        {"\n<parameter=path>\nab", "[Rone two[TThree <four\n<fund>[C0:read_file[A{\"path\": \"ab", false, false},
        {"c\n", "[Rone two[TThree <four\n<fund>[C0:read_file[A{\"path\": \"abc", false, false},
        {"d", "[Rone two[TThree <four\n<fund>[C0:read_file[A{\"path\": \"abc\\nd", false, false},
        {"\n</parameter>\n</function>", "[Rone two[TThree <four\n<fund>[C0:read_file[A{\"path\": \"abc\\nd\"}[E", false, false},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        check_ok(lily_reply_feed(r, steps[i].piece, strlen(steps[i].piece), steps[i].special, &e), &e);
        assert_string_equal(lily_buf_str(&log.text), steps[i].so_far);
        assert_int_equal(lily_reply_is_reasoning(r), steps[i].reasoning);
    }
    assert_int_equal(lily_reply_calls(r), 1);
    check_ok(lily_reply_finish(r, false, &e), &e);
    check_fails(lily_reply_feed(r, "x", 1, false, &e), LILY_INTERNAL, &e);
    lily_reply_free(r);
    json_decref(list);
    lily_buf_free(&log.text);
}

static void test_sink_stops(void **state)
{
    (void)state;
    lily_err e = {0};
    log_t log = {.last = -1, .stop = true};
    lily_reply *r;
    lily_reply_options options = {.sink = sink, .user = &log};
    check_ok(lily_reply_new(&r, &options, &e), &e);
    check_fails(lily_reply_feed(r, "x", 1, false, &e), LILY_CANCELLED, &e);
    check_fails(lily_reply_finish(r, false, &e), LILY_INTERNAL, &e);
    lily_reply_free(r);
}

/* A megabyte in small pieces: held text is not read again and again. */
static void test_long(void **state)
{
    (void)state;
    lily_err e = {0};
    log_t log = {.last = -1};
    lily_reply *r;
    json_t *list;
    check_ok(lily_json_parse(&list, TOOLS, sizeof TOOLS - 1, "tools", &e), &e);
    lily_reply_options options = {.thinking = true, .tools = list, .sink = sink, .user = &log};
    check_ok(lily_reply_new(&r, &options, &e), &e);
    check_ok(lily_reply_feed(r, "<tool_call>", 11, true, &e), &e);
    const char *head = "\n<function=read_file>\n<parameter=path>\n", *tail = "\n</parameter>\n</function>\n";
    check_ok(lily_reply_feed(r, head, strlen(head), false, &e), &e);
    for (int i = 0; i < 1000000; i++) check_ok(lily_reply_feed(r, i % 80 ? "x" : "\n", 1, false, &e), &e);
    check_ok(lily_reply_feed(r, tail, strlen(tail), false, &e), &e);
    check_ok(lily_reply_feed(r, "</tool_call>", 12, true, &e), &e);
    check_ok(lily_reply_finish(r, false, &e), &e);
    assert_int_equal(lily_reply_calls(r), 1);
    assert_true(log.text.len > 1000000);
    lily_reply_free(r);
    json_decref(list);
    lily_buf_free(&log.text);
}

/* Each allocation fails once: an error, no leak, no crash. */
static void test_no_memory(void **state)
{
    (void)state;
    lily_err e = {0};
    json_t *list;
    static const char body[] = "\n<function=typed>\n<parameter=o>\n{\"a\": 1}\n</parameter>\n<parameter=m>\nx\n</parameter>\n"
                               "</function>\n";
    const char *reply[] = {"think ", "</think>", "\n\nText\n\n", "<tool_call>", body, "</tool_call>"};
    check_ok(lily_json_parse(&list, TOOLS, sizeof TOOLS - 1, "tools", &e), &e);
    int rc = LILY_NO_MEMORY;
    for (int64_t n = 0; rc != LILY_OK; n++) {
        assert_in_range(n, 0, 1000);
        log_t log = {.last = -1};
        lily_reply *r = NULL;
        lily_reply_options options = {.thinking = true, .tools = list, .sink = sink, .user = &log};
        lily_mem_fail_after(n);
        rc = lily_reply_new(&r, &options, &e);
        for (size_t i = 0; i < sizeof reply / sizeof *reply && rc == LILY_OK; i++)
            rc = lily_reply_feed(r, reply[i], strlen(reply[i]), tag_at(reply[i]) > 0, &e);
        if (rc == LILY_OK) rc = lily_reply_finish(r, false, &e);
        bool whole = !log.text.failed;
        lily_mem_fail_after(-1);
        lily_reply_free(r);
        lily_buf_free(&log.text);
        if (!whole) rc = LILY_NO_MEMORY;
        assert_true(rc == LILY_OK || rc == LILY_NO_MEMORY);
    }
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples), cmocka_unit_test(test_early), cmocka_unit_test(test_sink_stops),
        cmocka_unit_test(test_long), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
