/* /v1/responses: requests as chat requests, answers as items, and memory that runs out in between. */
#include "../check.h"

#include <string.h>

#include "api/responses_json.h"
#include "lost_memory.h"

static const lily_sampling_defaults sampling = {.temperature = 0.6f, .top_p = 0.95f, .repetition = 1, .top_k = 20};

static int read_text(lily_responses_request *q, const char *text, lily_refusal *r)
{
    json_t *body;
    lily_openai_defaults d = {.sampling = &sampling, .n_vocab = 1000};
    *r = (lily_refusal){0};
    *q = (lily_responses_request){0};
    int rc = lily_body_object(text, strlen(text), &body, r);
    return rc == LILY_OK ? lily_responses_request_read(q, body, &d, r) : rc;
}

static void check_value(const json_t *value, const char *want)
{
    json_t *wanted = json_loads(want, JSON_DECODE_ANY, NULL);
    assert_non_null(wanted);
    char *told = json_dumps(value, JSON_ENCODE_ANY);
    if (!json_equal(value, wanted)) fail_msg("%s is not %s", told, want);
    free(told);
    json_decref(wanted);
}

static void check_messages(const char *input, const char *want)
{
    char text[2048];
    lily_responses_request q;
    lily_refusal r;
    snprintf(text, sizeof text, "{\"input\":%s}", input);
    check_ok(read_text(&q, text, &r), &r.err);
    check_value(q.chat.chat.messages, want);
    lily_responses_request_free(&q);
}

#define THOUGHT(t) "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"" t "\"}]}"
#define SAID(t) "{\"role\":\"assistant\",\"content\":\"" t "\"}"
#define CALLED(id) "{\"type\":\"function_call\",\"call_id\":\"" id "\",\"name\":\"f\",\"arguments\":\"{}\"}"
#define GOT(id) "{\"type\":\"function_call_output\",\"call_id\":\"" id "\",\"output\":\"o\"}"
#define TOOL(id) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"o\"}"
#define CALL(id) "{\"type\":\"function\",\"id\":\"" id "\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}"

static void test_items_of_a_turn_are_one_message(void **state)
{
    (void)state;
    check_messages("\"hi\"", "[{\"role\":\"user\",\"content\":\"hi\"}]");
    check_messages("[" THOUGHT("t") "," SAID("a") "," CALLED("1") "," CALLED("2") "," GOT("1") "," GOT("2") "]",
                   "[{\"role\":\"assistant\",\"reasoning_content\":\"t\",\"content\":\"a\",\"tool_calls\":[" CALL("1") "," CALL("2") "]},"
                   TOOL("1") "," TOOL("2") "]");
    /* A thought begins the next turn, and so does a message behind a message. */
    check_messages("[" SAID("a") "," THOUGHT("t") "," SAID("b") "," SAID("c") "]",
                   "[" SAID("a") ",{\"role\":\"assistant\",\"reasoning_content\":\"t\",\"content\":\"b\"}," SAID("c") "]");
    /* Text behind a call belongs to the same turn. */
    check_messages("[" SAID("a") "," CALLED("1") "," SAID("b") "]",
                   "[{\"role\":\"assistant\",\"content\":\"ab\",\"tool_calls\":[" CALL("1") "]}]");
    check_messages("[" CALLED("1") "," GOT("1") "," CALLED("2") "]",
                   "[{\"role\":\"assistant\",\"tool_calls\":[" CALL("1") "]}," TOOL("1") ",{\"role\":\"assistant\",\"tool_calls\":[" CALL("2") "]}]");
    check_messages("[{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"gAAAA\"}," SAID("a") "]", "[" SAID("a") "]");
}

static void check_tools(const char *fields, const char *tools, const char *names)
{
    char text[2048];
    lily_responses_request q;
    lily_refusal r;
    snprintf(text, sizeof text, "{\"input\":\"hi\",%s}", fields);
    check_ok(read_text(&q, text, &r), &r.err);
    check_value(q.tools, tools);
    check_value(q.names, names);
    lily_responses_request_free(&q);
}

static void test_tools(void **state)
{
    (void)state;
    check_tools("\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":null},{\"type\":\"file_search\"}]",
                "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", "{\"f\":{\"name\":\"f\"}}");
    check_tools("\"tools\":[{\"type\":\"namespace\",\"name\":\"mcp__x__\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"description\":\"d\"},"
                "{\"type\":\"tool_search\"}]}]",
                "[{\"type\":\"function\",\"function\":{\"name\":\"mcp__x__f\",\"description\":\"d\"}}]",
                "{\"mcp__x__f\":{\"name\":\"f\",\"namespace\":\"mcp__x__\"}}");
    check_tools("\"tools\":[{\"type\":\"custom\",\"name\":\"p\",\"format\":{\"type\":\"text\"}}]",
                "[{\"type\":\"function\",\"function\":{\"name\":\"p\",\"parameters\":{\"type\":\"object\",\"properties\":{\"input\":{\"type\":"
                "\"string\"}},\"required\":[\"input\"]}}}]",
                "{\"p\":{\"name\":\"p\",\"custom\":true}}");
}

/* Names of a chat request are none that this client has written. */
static void test_refusals_name_this_form(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"\"max_output_tokens\":0", "max_output_tokens"},
        {"\"reasoning\":{\"effort\":\"huge\"}", "reasoning.effort"},
        {"\"text\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"not\":{}}}}", "text.format"},
        {"\"text\":{\"format\":{\"type\":\"json_schema\"}}", "text.format"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[512];
        lily_responses_request q;
        lily_refusal r;
        snprintf(text, sizeof text, "{\"input\":\"hi\",%s}", bad[i][0]);
        if (read_text(&q, text, &r) == LILY_OK) fail_msg("%s was taken", bad[i][0]);
        assert_string_equal(r.param, bad[i][1]);
        assert_ptr_equal(strstr(r.err.text, bad[i][1]), r.err.text);
        lily_responses_request_free(&q);
    }
    lily_refusal r = {.param = "messages", .err = {.text = "messages: too many"}};
    lily_responses_rename(&r);
    assert_string_equal(r.param, "input");
    assert_string_equal(r.err.text, "input: too many");
}

/* ---- memory ---- */

static const char request[] =
    "{\"input\":[" THOUGHT("t") "," SAID("a") "," CALLED("1") "," GOT("1") ",{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
    "\"text\":\"hi\"}]}],\"instructions\":\"i\",\"tools\":[{\"type\":\"custom\",\"name\":\"p\"}],\"text\":{\"format\":{\"type\":\"json_object\"}}}";

static int answer(const lily_responses_request *q, bool streamed, lily_buf *out, lily_err *e)
{
    static const lily_answer_event events[] = {
        {.kind = LILY_ANSWER_START},
        {.kind = LILY_ANSWER_REASONING, .text = "Hm.", .n = 3},
        {.kind = LILY_ANSWER_TEXT, .text = "Yes.", .n = 4},
        {.kind = LILY_ANSWER_CALL, .text = "p", .n = 1},
        {.kind = LILY_ANSWER_ARGUMENTS, .text = "{\"input\": \"x\"}", .n = 14},
        {.kind = LILY_ANSWER_CALL_END},
        {.kind = LILY_ANSWER_FINISH, .finish = LILY_FINISH_CALLS},
    };
    lily_responses_writer w;
    lily_usage usage = {.n_prompt = 3, .n_reply = 5};
    int rc = LILY_OK;
    lily_responses_writer_init(&w, q, "m", NULL);
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        lily_answer_event ev = events[i];
        ev.usage = &usage;
        if (streamed) lily_responses_event(&w, &ev, out);
        else lily_responses_gather(&w, &ev);
        if (!streamed && ev.kind == LILY_ANSWER_FINISH) rc = lily_responses_whole(&w, &ev, out, e);
    }
    lily_responses_writer_free(&w);
    return rc == LILY_OK ? lily_buf_ok(out, "a stream", e) : rc;
}

static int whole_request(bool streamed, lily_buf *out, lily_err *e)
{
    lily_responses_request q;
    lily_refusal r;
    int rc = read_text(&q, request, &r);
    if (rc == LILY_OK) rc = answer(&q, streamed, out, e);
    else *e = r.err;
    lily_responses_request_free(&q);
    return rc;
}

/* Each allocation fails once: the answer is whole, or it is told that it is not. */
static void test_memory_runs_out(void **state)
{
    (void)state;
    check_lost_memory(whole_request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items_of_a_turn_are_one_message),
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_refusals_name_this_form),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
