/* Planted engine events through the answer: the joined result must not depend on where tokens cut the text. */
#include "../check.h"

#include <stdio.h>
#include <string.h>

#include "api/answer.h"
#include "base/buf.h"

/* What the sink saw: "r{…}" reasoning, "t{…}" text, "c0{name}" "a0{…}" "e0" "x0" a call, its arguments, end and cut;
 * neighbours of one kind are joined.  The end is apart. */
typedef struct record {
    lily_buf text;
    char last[8];
    lily_finish finish;
    int stop, finishes;
    lily_usage usage;
    char err_code[32];
    lily_buf tokens;            /* "bytes|" of each token that came with an event */
    size_t n_tokens, with_text; /* events with text */
    bool fail_next;
} record;

static void note(record *rec, const char *kind, const char *text, size_t n)
{
    if (strcmp(rec->last, kind) != 0 || !text) {
        if (rec->last[0]) lily_buf_putc(&rec->text, '}');
        lily_buf_printf(&rec->text, "%s{", kind);
        snprintf(rec->last, sizeof rec->last, "%s", kind);
    }
    if (text) lily_buf_add(&rec->text, text, n);
}

static int on_event(void *user, const lily_answer_event *ev, lily_err *e)
{
    static const char kinds[] = "spRTCAEX";
    record *rec = user;
    char kind[8];
    if (rec->fail_next) return lily_fail(e, LILY_IO, "the client has gone");
    rec->usage = *ev->usage;
    for (size_t i = 0; i < ev->n_tokens; i++) {
        lily_buf_add(&rec->tokens, ev->tokens[i]->bytes, ev->tokens[i]->n_bytes);
        lily_buf_putc(&rec->tokens, '|');
    }
    rec->n_tokens += ev->n_tokens;
    rec->with_text += ev->n > 0;
    if (ev->kind == LILY_ANSWER_FINISH) {
        rec->finish = ev->finish;
        rec->stop = ev->stop;
        rec->finishes++;
        if (ev->err_code) snprintf(rec->err_code, sizeof rec->err_code, "%s", ev->err_code);
        if (rec->last[0]) lily_buf_putc(&rec->text, '}');
        return LILY_OK;
    }
    if (ev->kind == LILY_ANSWER_START || ev->kind == LILY_ANSWER_PROGRESS) return LILY_OK;
    snprintf(kind, sizeof kind, "%c%zu", kinds[ev->kind], ev->call);
    note(rec, kind, ev->text, ev->n);
    return LILY_OK;
}

static void forget(record *rec)
{
    lily_buf_free(&rec->text);
    lily_buf_free(&rec->tokens);
    *rec = (record){0};
}

/* ---- planting ---- */

static void feed(lily_answer *a, const lily_event *ev)
{
    lily_err e = {0};
    check_ok(lily_answer_feed(a, ev, &e), &e);
}

static bool is_tag(const char *text, size_t n)
{
    static const char *const tags[] = {"<think>", "</think>", "<tool_call>", "</tool_call>"};
    for (size_t i = 0; i < 4; i++)
        if (strlen(tags[i]) == n && memcmp(tags[i], text, n) == 0) return true;
    return false;
}

static void feed_token(lily_answer *a, const char *text, size_t n)
{
    lily_top top = {.token = 7, .logprob = -0.5f};
    lily_event ev = {.kind = LILY_EVENT_TOKEN, .id = 7, .bytes = text, .n_bytes = n, .added = is_tag(text, n),
                     .logprob = -0.5f, .n_top = 1, .top = &top};
    feed(a, &ev);
}

/* The length of the tag that begins at text, or 0. */
static size_t tag_at(const char *text)
{
    const char *end = strchr(text, '>');
    return end && is_tag(text, (size_t)(end - text) + 1) ? (size_t)(end - text) + 1 : 0;
}

/* Feeds text as tokens of `size` bytes (characters may be cut), tags whole. */
static void feed_text(lily_answer *a, const char *text, size_t size)
{
    while (*text) {
        size_t n = tag_at(text);
        if (n == 0) do n++; while (n < size && text[n] && tag_at(text + n) == 0);
        feed_token(a, text, n);
        text += n;
    }
}

static void end(lily_answer *a, enum lily_end how)
{
    lily_err err = {0};
    if (how == LILY_END_ERROR) lily_fail(&err, LILY_DEVICE, "the device failed");
    lily_event ev = {.kind = LILY_EVENT_END, .end = how, .prompt_seconds = 2, .reply_seconds = 3};
    if (how == LILY_END_ERROR) {
        ev.err = &err;
        ev.err_code = "script_exhausted";
    }
    feed(a, &ev);
}

typedef struct plan {
    const char *text;
    enum lily_end how;
    bool thinking, single_call, logprobs, plain;
    const char *begun;
    const char *tools;              /* JSON */
    const char *stop[4];
    size_t n_stop;
} plan;

/* Runs the plan with tokens of `size` bytes. The engine obeys a stop at once, as far as one can see here. */
static void run(const plan *p, size_t size, record *rec)
{
    lily_err e = {0};
    lily_answer *a;
    size_t len[4] = {0};
    for (size_t i = 0; i < p->n_stop; i++) len[i] = strlen(p->stop[i]);
    json_t *tools = p->tools ? json_loads(p->tools, 0, NULL) : NULL;
    lily_answer_options o = {.plain = p->plain, .begun = p->begun, .n_begun = p->begun ? strlen(p->begun) : 0,
                             .thinking = p->thinking, .tools = tools, .single_call = p->single_call,
                             .logprobs = p->logprobs, .stop = p->stop, .stop_len = len, .n_stop = p->n_stop,
                             .sink = on_event, .user = rec};
    check_ok(lily_answer_new(&a, &o, &e), &e);
    feed(a, &(lily_event){.kind = LILY_EVENT_START, .n_prompt = 10, .n_reused = 4, .n_done = 4});
    feed_text(a, p->text, size);
    end(a, lily_answer_complete(a) ? LILY_END_CANCELLED : p->how);
    lily_answer_free(a);
    json_decref(tools);
    assert_int_equal(rec->finishes, 1);
}

static void check_plan(const plan *p, const char *want, lily_finish finish)
{
    static const size_t sizes[] = {1, 2, 3, 5, 7, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        record rec = {0};
        run(p, sizes[i], &rec);
        assert_string_equal(lily_buf_str(&rec.text), want);
        assert_int_equal(rec.finish, finish);
        forget(&rec);
    }
}

static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"read\",\"parameters\":{\"type\":\"object\","
                            "\"properties\":{\"path\":{\"type\":\"string\"}}}}}]";
#define CALL(path) "<tool_call>\n<function=read>\n<parameter=path>\n" path "\n</parameter>\n</function>\n</tool_call>"

/* ---- tests ---- */

static void test_text(void **state)
{
    (void)state;
    check_plan(&(plan){.text = "Hello, w\xc3\xb6rld \xf0\x9f\x98\x80."}, "T0{Hello, w\xc3\xb6rld \xf0\x9f\x98\x80.}",
               LILY_FINISH_STOP);
    check_plan(&(plan){.text = "a < b", .how = LILY_END_LENGTH}, "T0{a < b}", LILY_FINISH_LENGTH);
    check_plan(&(plan){.text = ""}, "", LILY_FINISH_STOP);
}

static void test_character_cut_at_the_limit(void **state)
{
    (void)state;
    check_plan(&(plan){.text = "hi\xf0\x9f", .how = LILY_END_LENGTH}, "T0{hi\xef\xbf\xbd}", LILY_FINISH_LENGTH);
}

static void test_reasoning(void **state)
{
    (void)state;
    check_plan(&(plan){.text = "Two.\n</think>\n\n2", .thinking = true}, "R0{Two.}T0{2}", LILY_FINISH_STOP);
    check_plan(&(plan){.text = "Let me", .thinking = true, .how = LILY_END_LENGTH}, "R0{Let me}", LILY_FINISH_LENGTH);
    record rec = {0};
    run(&(plan){.text = "ab</think>cd", .thinking = true}, 1, &rec);
    assert_int_equal(rec.usage.n_reply, 5);
    assert_int_equal(rec.usage.n_reasoning, 2);
    forget(&rec);
}

static void test_stop_strings(void **state)
{
    (void)state;
    check_plan(&(plan){.text = "red green blue black", .stop = {"green blue"}, .n_stop = 1}, "T0{red }", LILY_FINISH_STOP);
    check_plan(&(plan){.text = "a </donut> b </do", .stop = {"</done>"}, .n_stop = 1}, "T0{a </donut> b </do}",
               LILY_FINISH_STOP);
    check_plan(&(plan){.text = "12X34", .stop = {"a long stop phrase", "X"}, .n_stop = 2}, "T0{12}", LILY_FINISH_STOP);
    check_plan(&(plan){.text = "stop at once", .stop = {"stop"}, .n_stop = 1}, "", LILY_FINISH_STOP);
    check_plan(&(plan){.text = "caf\xc3\xa9 now", .stop = {"\xc3\xa9"}, .n_stop = 1}, "T0{caf}", LILY_FINISH_STOP);
    /* The limit comes while a beginning is held: it is given back. */
    check_plan(&(plan){.text = "abc st", .stop = {"stop"}, .n_stop = 1, .how = LILY_END_LENGTH}, "T0{abc st}",
               LILY_FINISH_LENGTH);
}

static void test_stop_strings_count_in_the_answer_only(void **state)
{
    (void)state;
    check_plan(&(plan){.text = "The Q: is easy.</think>\n\nYes. Q: next", .thinking = true, .stop = {"Q:"}, .n_stop = 1},
               "R0{The Q: is easy.}T0{Yes. }", LILY_FINISH_STOP);
    check_plan(&(plan){.text = "Sure.\n\n" CALL("stop.c"), .tools = tools, .stop = {"stop"}, .n_stop = 1},
               "T0{Sure.}C0{read}A0{{\"path\": \"stop.c\"}}E0{}", LILY_FINISH_CALLS);
}

static void test_which_stop_string(void **state)
{
    (void)state;
    record rec = {0};
    run(&(plan){.text = "one two three", .stop = {"three", "two"}, .n_stop = 2}, 3, &rec);
    assert_int_equal(rec.stop, 1);
    forget(&rec);
    run(&(plan){.text = "one", .stop = {"three", "two"}, .n_stop = 2}, 3, &rec);
    assert_int_equal(rec.stop, -1);
    forget(&rec);
}

/* Tokens behind the stop string do not count, though the engine may have made some. */
static void test_usage_ends_at_the_stop_string(void **state)
{
    (void)state;
    record rec = {0};
    run(&(plan){.text = "abXcdefgh", .stop = {"X"}, .n_stop = 1}, 1, &rec);
    assert_int_equal(rec.usage.n_reply, 3);
    assert_int_equal(rec.usage.n_prompt, 10);
    assert_int_equal(rec.usage.n_reused, 4);
    assert_true(rec.usage.prompt_seconds == 2 && rec.usage.reply_seconds == 3);
    forget(&rec);
}

static void test_calls(void **state)
{
    (void)state;
    check_plan(&(plan){.text = "I read.\n\n" CALL("a.c"), .tools = tools}, "T0{I read.}C0{read}A0{{\"path\": \"a.c\"}}E0{}",
               LILY_FINISH_CALLS);
    check_plan(&(plan){.text = CALL("a") "\n" CALL("b"), .tools = tools},
               "C0{read}A0{{\"path\": \"a\"}}E0{}C1{read}A1{{\"path\": \"b\"}}E1{}", LILY_FINISH_CALLS);
    check_plan(&(plan){.text = CALL("a") "\n" CALL("b"), .tools = tools, .single_call = true},
               "C0{read}A0{{\"path\": \"a\"}}E0{}", LILY_FINISH_CALLS);
    check_plan(&(plan){.text = CALL("a"), .how = LILY_END_LENGTH, .tools = tools},
               "C0{read}A0{{\"path\": \"a\"}}E0{}", LILY_FINISH_LENGTH);
}

/* A raw prompt's answer: nothing has a meaning but stop strings. */
static void test_plain_text(void **state)
{
    (void)state;
    check_plan(&(plan){.plain = true, .text = "a</think>\n\nb<think>"}, "T0{a</think>\n\nb<think>}", LILY_FINISH_STOP);
    check_plan(&(plan){.plain = true, .text = "\n " CALL("x") " ", .tools = tools}, "T0{\n " CALL("x") " }", LILY_FINISH_STOP);
    check_plan(&(plan){.plain = true, .text = "caf\xc3\xa9 \xf0\x9f", .how = LILY_END_LENGTH}, "T0{caf\xc3\xa9 \xef\xbf\xbd}",
               LILY_FINISH_LENGTH);
    check_plan(&(plan){.plain = true, .text = "red green", .stop = {"d g"}, .n_stop = 1}, "T0{re}", LILY_FINISH_STOP);
    record rec = {0};
    run(&(plan){.plain = true, .text = "ab\xc3\xa9", .logprobs = true}, 1, &rec);
    assert_string_equal(lily_buf_str(&rec.tokens), "a|b|\xc3|\xa9|");
    assert_int_equal(rec.usage.n_reply, 4);
    assert_int_equal(rec.usage.n_reasoning, 0);
    forget(&rec);
}

/* What was said before decides what the continuation is. */
static void test_an_answer_that_goes_on(void **state)
{
    (void)state;
    check_plan(&(plan){.begun = "Hello", .text = "\n\nworld"}, "T0{\n\nworld}", LILY_FINISH_STOP);
    check_plan(&(plan){.begun = "I read.\n", .text = CALL("a.c"), .tools = tools}, "C0{read}A0{{\"path\": \"a.c\"}}E0{}",
               LILY_FINISH_CALLS);
    check_plan(&(plan){.begun = "```\n", .text = CALL("a.c"), .tools = tools}, "T0{" CALL("a.c") "}", LILY_FINISH_STOP);
    check_plan(&(plan){.begun = "It says `", .text = CALL("a.c") "`", .tools = tools}, "T0{" CALL("a.c") "`}", LILY_FINISH_STOP);
}

static void test_usage_of_several_answers(void **state)
{
    (void)state;
    lily_usage sum = {0}, one = {.n_prompt = 10, .n_reused = 0, .n_reply = 3, .n_reasoning = 2, .prompt_seconds = 1,
                                 .reply_seconds = 2};
    lily_usage_add(&sum, &one, false);
    one.n_reused = 9;
    lily_usage_add(&sum, &one, true);
    assert_int_equal(sum.n_prompt, 10);
    assert_int_equal(sum.n_reused, 0);
    assert_int_equal(sum.n_reply, 6);
    assert_int_equal(sum.n_reasoning, 4);
    assert_true(sum.prompt_seconds == 1 && sum.reply_seconds == 4);
    lily_usage_add(&sum, &one, false);
    assert_int_equal(sum.n_prompt, 20);
    assert_int_equal(sum.n_reused, 9);
}

static void test_call_cut_at_the_limit(void **state)
{
    (void)state;
    record rec = {0};
    run(&(plan){.text = "<tool_call>\n<function=read>\n<parameter=path>\nbig", .tools = tools, .how = LILY_END_LENGTH}, 2,
        &rec);
    assert_int_equal(rec.finish, LILY_FINISH_LENGTH);
    assert_null(strstr(lily_buf_str(&rec.text), "E0"));
    forget(&rec);
}

static void test_errors_and_cancels(void **state)
{
    (void)state;
    record rec = {0};
    run(&(plan){.text = "abc", .how = LILY_END_ERROR}, 1, &rec);
    assert_int_equal(rec.finish, LILY_FINISH_ERROR);
    assert_string_equal(rec.err_code, "script_exhausted");
    forget(&rec);
    run(&(plan){.text = "abc <", .how = LILY_END_CANCELLED}, 1, &rec);
    assert_int_equal(rec.finish, LILY_FINISH_CANCELLED);
    assert_string_equal(lily_buf_str(&rec.text), "T0{abc <}");
    forget(&rec);
}

/* ---- log probabilities ---- */

static void check_tokens(const plan *p, size_t size, const char *want)
{
    record rec = {0};
    run(p, size, &rec);
    assert_string_equal(lily_buf_str(&rec.tokens), want);
    forget(&rec);
}

static void test_each_token_is_told_once(void **state)
{
    (void)state;
    check_tokens(&(plan){.text = "a</think>\n\nbc", .thinking = true, .logprobs = true}, 1, "a|</think>|\n|\n|b|c|");
    check_tokens(&(plan){.text = "a\xc3\xa9z", .logprobs = true}, 1, "a|\xc3|\xa9|z|");
    check_tokens(&(plan){.text = "ab </do", .stop = {"</done>"}, .n_stop = 1, .logprobs = true}, 1, "a|b| |<|/|d|o|");
    check_tokens(&(plan){.text = "abc"}, 1, "");
}

static void test_tokens_of_a_stop_string_are_not_told(void **state)
{
    (void)state;
    check_tokens(&(plan){.text = "abSTOPcd", .stop = {"STOP"}, .n_stop = 1, .logprobs = true}, 1, "a|b|");
    /* A token that reaches into the stop string belongs to the text that it brought. */
    check_tokens(&(plan){.text = "abSTOPcd", .stop = {"STOP"}, .n_stop = 1, .logprobs = true}, 3, "abS|");
    check_tokens(&(plan){.text = "abSTOPcd", .stop = {"STOP"}, .n_stop = 1, .logprobs = true}, 1000, "abSTOPcd|");
    /* A held beginning that turned out to be text, then a stop string in the same token. */
    check_tokens(&(plan){.text = "xSTxSTOP", .stop = {"STOP"}, .n_stop = 1, .logprobs = true}, 1, "x|S|T|x|");
}

/* No token is told before its text: an event never has text of tokens that are still to come. */
static void test_tokens_come_with_their_text(void **state)
{
    (void)state;
    record rec = {0};
    run(&(plan){.text = "abcdef", .logprobs = true}, 1, &rec);
    assert_int_equal(rec.n_tokens, 6);
    assert_int_equal(rec.with_text, 6);
    forget(&rec);
}

/* ---- failure ---- */

static void test_a_failing_sink_ends_the_answer(void **state)
{
    (void)state;
    lily_err e = {0};
    lily_answer *a;
    record rec = {.fail_next = true};
    lily_answer_options o = {.logprobs = true, .sink = on_event, .user = &rec};
    check_ok(lily_answer_new(&a, &o, &e), &e);
    lily_event ev = {.kind = LILY_EVENT_TOKEN, .id = 1, .bytes = "hello", .n_bytes = 5};
    check_fails(lily_answer_feed(a, &ev, &e), LILY_IO, &e);
    lily_answer_free(a);
    forget(&rec);
}

static void test_impossible_stop_strings(void **state)
{
    (void)state;
    lily_err e = {0};
    lily_answer *a;
    const char *stop[] = {""};
    const size_t len[] = {0};
    record rec = {0};
    lily_answer_options o = {.stop = stop, .stop_len = len, .n_stop = 1, .sink = on_event, .user = &rec};
    check_fails(lily_answer_new(&a, &o, &e), LILY_ARGUMENT, &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_character_cut_at_the_limit),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_stop_strings_count_in_the_answer_only),
        cmocka_unit_test(test_which_stop_string),
        cmocka_unit_test(test_usage_ends_at_the_stop_string),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_plain_text),
        cmocka_unit_test(test_an_answer_that_goes_on),
        cmocka_unit_test(test_usage_of_several_answers),
        cmocka_unit_test(test_call_cut_at_the_limit),
        cmocka_unit_test(test_errors_and_cancels),
        cmocka_unit_test(test_each_token_is_told_once),
        cmocka_unit_test(test_tokens_of_a_stop_string_are_not_told),
        cmocka_unit_test(test_tokens_come_with_their_text),
        cmocka_unit_test(test_a_failing_sink_ends_the_answer),
        cmocka_unit_test(test_impossible_stop_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
