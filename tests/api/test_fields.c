/* The fields of a chat request: read, checked against their range, refused by name. */
#include "../check.h"

#include <stdlib.h>
#include <string.h>

#include "api/json_out.h"
#include "api/openai_request.h"

#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static const lily_sampling_defaults sampling = {
    .temperature = 0.6f, .top_p = 0.95f, .presence = 1.5f, .repetition = 1, .top_k = 20};

static int read_with(lily_openai_request *q, const json_t *kwargs, const char *fields, lily_refusal *r)
{
    char text[2048];
    snprintf(text, sizeof text, "{" MESSAGES "%s%s}", *fields ? "," : "", fields);
    json_t *body;
    *r = (lily_refusal){0};
    if (lily_body_object(text, strlen(text), &body, r) != LILY_OK) fail_msg("%s: %s", text, r->err.text);
    lily_openai_defaults d = {.sampling = &sampling, .kwargs = kwargs, .n_vocab = 1000};
    return lily_openai_request_read(q, body, &d, r);
}

static int read_fields(lily_openai_request *q, const char *fields, lily_refusal *r)
{
    return read_with(q, NULL, fields, r);
}

static void test_defaults(void **state)
{
    (void)state;
    lily_openai_request q;
    lily_refusal r;
    check_ok(read_fields(&q, "\"temperature\":null,\"n\":null,\"stop\":null,\"tools\":[],\"new_field\":[1]", &r), &r.err);
    assert_true(q.chat.sampling.temperature == 0.6f && q.chat.sampling.top_p == 0.95f);
    assert_true(q.chat.sampling.presence == 1.5f && q.chat.sampling.top_k == 20);
    assert_int_equal(q.chat.max_tokens, 0);
    assert_int_equal(q.chat.script_reply, -1);
    assert_null(q.chat.tools);
    assert_false(q.stream || q.chat.no_reuse || q.chat.single_call || q.chat.sampling.logprobs);
    lily_openai_request_free(&q);
}

static void test_values(void **state)
{
    (void)state;
    lily_openai_request q;
    lily_refusal r;
    check_ok(read_fields(&q,
                         "\"max_tokens\":9,\"max_completion_tokens\":7,\"temperature\":0,\"top_k\":-1,\"seed\":-1,"
                         "\"stop\":[\"a\",\"bc\"],\"logit_bias\":{\"3\":-100,\"999\":1.5},\"logprobs\":true,"
                         "\"top_logprobs\":20,\"stream\":true,\"stream_options\":{\"include_usage\":true},"
                         "\"cache_prompt\":false,\"parallel_tool_calls\":false,\"response_format\":{\"type\":\"text\"}",
                         &r),
             &r.err);
    assert_int_equal(q.chat.max_tokens, 7);
    assert_true(q.chat.sampling.temperature == 0);
    assert_int_equal(q.chat.sampling.top_k, 0);
    assert_true(q.chat.sampling.seed == UINT64_MAX);
    assert_int_equal(q.chat.n_stop, 2);
    assert_string_equal(q.chat.stop[1], "bc");
    assert_int_equal(q.chat.stop_len[1], 2);
    assert_int_equal(q.chat.sampling.n_bias, 2);
    assert_int_equal(q.chat.sampling.bias[1].token, 999);
    assert_true(q.chat.sampling.bias[1].add == 1.5f);
    assert_int_equal(q.chat.sampling.n_logprobs, 20);
    assert_true(q.stream && q.include_usage && q.chat.no_reuse && q.chat.single_call);
    lily_openai_request_free(&q);
}

#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define TOOLS "\"tools\":[" TOOL("f") "," TOOL("g") "]"
#define ALLOWED(mode, name)                                                                                            \
    "\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"" mode "\",\"tools\":[" TOOL(name) "]}}"

static void test_refused(void **state)
{
    (void)state;
    /* Each of these fields is named in the refusal. */
    static const struct {
        const char *param, *fields;
    } bad[] = {
        {"temperature", "\"temperature\":\"hot\""},
        {"temperature", "\"temperature\":-0.5"},
        {"temperature", "\"temperature\":100.0"},
        {"temperature", "\"temperature\":true"},
        {"top_p", "\"top_p\":1.5"},
        {"top_k", "\"top_k\":-7"},
        {"top_k", "\"top_k\":1.5"},
        {"min_p", "\"min_p\":-0.5"},
        {"presence_penalty", "\"presence_penalty\":3"},
        {"frequency_penalty", "\"frequency_penalty\":-9"},
        {"repetition_penalty", "\"repetition_penalty\":0"},
        {"seed", "\"seed\":\"x\""},
        {"seed", "\"seed\":18446744073709551615"},
        {"temperature", "\"temperature\":1e999"},
        {"max_tokens", "\"max_tokens\":0"},
        {"max_tokens", "\"max_tokens\":\"many\""},
        {"max_completion_tokens", "\"max_completion_tokens\":-1"},
        {"n", "\"n\":0"},
        {"n", "\"n\":129"},
        {"n", "\"n\":\"two\""},
        {"stream", "\"stream\":\"yes\""},
        {"stream_options", "\"stream_options\":true"},
        {"stream_options", "\"stream_options\":18446744073709551616"},
        {"chat_template_kwargs", "\"chat_template_kwargs\":-1e999"},
        {"logit_bias", "\"logit_bias\":18446744073709551616"},
        {"include_usage", "\"stream_options\":{\"include_usage\":1}"},
        {"stop", "\"stop\":5"},
        {"stop", "\"stop\":[\"\"]"},
        {"stop", "\"stop\":[\"a\",1]"},
        {"stop", "\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\",\"14\",\"15\","
                 "\"16\",\"17\"]"},
        {"logit_bias", "\"logit_bias\":[1]"},
        {"logit_bias", "\"logit_bias\":{\"1000\":1}"},
        {"logit_bias", "\"logit_bias\":{\"-1\":1}"},
        {"logit_bias", "\"logit_bias\":{\"7x\":1}"},
        {"logit_bias", "\"logit_bias\":{\"\":1}"},
        {"logit_bias", "\"logit_bias\":{\"99999999999999999999\":1}"},
        {"logit_bias", "\"logit_bias\":{\"0\":101}"},
        {"logit_bias", "\"logit_bias\":{\"0\":\"x\"}"},
        {"top_logprobs", "\"top_logprobs\":5"},
        {"top_logprobs", "\"logprobs\":true,\"top_logprobs\":21"},
        {"logprobs", "\"logprobs\":3"},
        {"tools", "\"tools\":\"all\""},
        {"tools", "\"tools\":[{\"type\":\"web_search\"}]"},
        {"tools", "\"tools\":[{\"type\":\"function\",\"function\":{}}]"},
        {"tool_choice", "\"tool_choice\":\"maybe\""},
        {"tool_choice", "\"tool_choice\":\"required\""},
        {"tool_choice", "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"},
        {"tool_choice", "\"tool_choice\":{\"type\":\"function\"}," TOOLS},
        {"tool_choice", "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"h\"}}," TOOLS},
        {"tool_choice", "\"tool_choice\":{\"type\":\"allowed_tools\"}," TOOLS},
        {"tool_choice", ALLOWED("sometimes", "f") "," TOOLS},
        {"tool_choice", ALLOWED("auto", "h") "," TOOLS},
        {"tools", "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":1}}]"},
        {"response_format", "\"response_format\":{\"type\":\"json_schema\"}"},
        {"response_format", "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\"}}"},
        {"response_format", "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"not\":{}}}}"},
        {"response_format", "\"response_format\":{\"type\":\"nonsense\"}"},
        {"response_format", "\"response_format\":\"json\""},
        {"chat_template_kwargs", "\"chat_template_kwargs\":[]"},
        {"chat_template_kwargs", "\"chat_template_kwargs\":{\"enable_thinking\":\"no\"}"},
        {"enable_thinking", "\"enable_thinking\":\"no\""},
        {"reasoning_effort", "\"reasoning_effort\":\"huge\""},
        {"reasoning_effort", "\"reasoning_effort\":3"},
        {"modalities", "\"modalities\":[\"audio\"]"},
        {"functions", "\"functions\":[{\"name\":\"f\"}]"},
        {"thinking_budget", "\"thinking_budget\":-2"},
        {"thinking_budget", "\"thinking_budget\":1.5"},
        {"thinking_budget", "\"thinking_budget\":4294967296"},
        {"chat_template_kwargs", "\"chat_template_kwargs\":{\"thinking_budget\":\"few\"}"},
        {"thinking", "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":true}"},
        {"guided_json", "\"guided_json\":{\"type\":\"object\"}"},
        {"typical_p", "\"typical_p\":0.5"},
        {"repeat_penalty", "\"repeat_penalty\":1.1"},
        {"chat_template", "\"chat_template\":\"{{ messages }}\""},
        {"echo", "\"echo\":true"},
        {"n_predict", "\"n_predict\":100"},
        {"stop_token_ids", "\"stop_token_ids\":[1]"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lily_openai_request q;
        lily_refusal r;
        if (read_fields(&q, bad[i].fields, &r) == LILY_OK) fail_msg("%s was taken", bad[i].fields);
        assert_string_equal(r.param, bad[i].param);
        assert_non_null(strstr(r.err.text, bad[i].param));
        assert_int_equal(lily_refusal_status(&r), 400);
        lily_openai_request_free(&q);
    }
}

static void test_values_that_ask_for_nothing(void **state)
{
    (void)state;
    lily_openai_request q;
    lily_refusal r;
    check_ok(read_fields(&q,
                         "\"functions\":[],\"guided_json\":null,\"typical_p\":1.0,\"mirostat\":0,\"best_of\":1,"
                         "\"min_tokens\":0,\"use_beam_search\":false,\"grammar\":\"\",\"thinking_budget\":-1,"
                         "\"repeat_penalty\":1,\"n_predict\":-1,\"echo\":false,\"metadata\":{\"a\":\"b\"},\"user\":\"u\","
                         "\"store\":true,\"service_tier\":\"auto\",\"prompt_cache_key\":\"k\",\"verbosity\":\"low\"",
                         &r),
             &r.err);
    lily_openai_request_free(&q);
}

static void test_messages(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{}", "{\"messages\":[]}", "{\"messages\":\"hi\"}", "{\"messages\":null}", "{\"messages\":[{\"role\":\"user\"}]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lily_openai_request q;
        lily_refusal r = {0};
        json_t *body;
        lily_openai_defaults d = {.sampling = &sampling, .n_vocab = 1000};
        check_ok(lily_body_object(bad[i], strlen(bad[i]), &body, &r), &r.err);
        if (lily_openai_request_read(&q, body, &d, &r) == LILY_OK) fail_msg("%s was taken", bad[i]);
        assert_string_equal(r.param, "messages");
        lily_openai_request_free(&q);
    }
}

/* -1: refused. */
static int goes_on(const char *last, const char *fields, const char *param)
{
    char text[1024];
    lily_openai_request q;
    lily_refusal r = {0};
    json_t *body;
    lily_openai_defaults d = {.sampling = &sampling, .n_vocab = 1000};
    snprintf(text, sizeof text, "{\"messages\":[{\"role\":\"user\",\"content\":\"U\"},%s]%s}", last, fields);
    check_ok(lily_body_object(text, strlen(text), &body, &r), &r.err);
    int on = lily_openai_request_read(&q, body, &d, &r) == LILY_OK ? q.chat.go_on : -1;
    if (param) assert_string_equal(r.param, param);
    lily_openai_request_free(&q);
    return on;
}

static void test_which_messages_go_on(void **state)
{
    (void)state;
    static const char user[] = "{\"role\":\"user\",\"content\":\"U\"}", text[] = "{\"role\":\"assistant\",\"content\":\"A\"}",
                      parts[] = "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"A\"}],\"tool_calls\":[]}",
                      empty[] = "{\"role\":\"assistant\",\"content\":\"\"}",
                      call[] = "{\"role\":\"assistant\",\"content\":\"A\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}";
    assert_int_equal(goes_on(text, "", NULL), 1);
    assert_int_equal(goes_on(parts, "", NULL), 1);
    assert_int_equal(goes_on(user, "", NULL), 0);
    assert_int_equal(goes_on(empty, "", NULL), 0);
    assert_int_equal(goes_on(call, "", NULL), 0);
    assert_int_equal(goes_on(text, ",\"continue_final_message\":false", NULL), 0);
    assert_int_equal(goes_on(text, ",\"add_generation_prompt\":true", NULL), 0);
    assert_int_equal(goes_on(text, ",\"continue_final_message\":true,\"add_generation_prompt\":false", NULL), 1);
    assert_int_equal(goes_on(user, ",\"continue_final_message\":true", "continue_final_message"), -1);
    assert_int_equal(goes_on(call, ",\"continue_final_message\":true", "continue_final_message"), -1);
    assert_int_equal(goes_on(text, ",\"continue_final_message\":true,\"add_generation_prompt\":true", "add_generation_prompt"), -1);
    assert_int_equal(goes_on(user, ",\"add_generation_prompt\":false", "add_generation_prompt"), -1);
    assert_int_equal(goes_on(text, ",\"continue_final_message\":1", "continue_final_message"), -1);
    assert_int_equal(goes_on(text, ",\"response_format\":{\"type\":\"json_object\"}", "response_format"), -1);
}

/* -1: the template is left to itself. */
static int thinking_of(const char *server, const char *fields)
{
    lily_openai_request q;
    lily_refusal r;
    json_t *kwargs = server ? json_loads(server, 0, NULL) : NULL;
    check_ok(read_with(&q, kwargs, fields, &r), &r.err);
    const json_t *value = json_object_get(q.chat.kwargs, "enable_thinking");
    int thinking = value ? json_is_true(value) : -1;
    lily_openai_request_free(&q);
    json_decref(kwargs);
    return thinking;
}

static void test_thinking_switches(void **state)
{
    (void)state;
    static const char off[] = "{\"enable_thinking\":false}";
    assert_int_equal(thinking_of(NULL, ""), -1);
    assert_int_equal(thinking_of(off, ""), 0);
    assert_int_equal(thinking_of(NULL, "\"chat_template_kwargs\":{\"enable_thinking\":false}"), 0);
    assert_int_equal(thinking_of(NULL, "\"enable_thinking\":false"), 0);
    assert_int_equal(thinking_of(NULL, "\"reasoning_effort\":\"none\""), 0);
    assert_int_equal(thinking_of(NULL, "\"thinking\":{\"type\":\"disabled\"}"), 0);
    assert_int_equal(thinking_of(off, "\"reasoning_effort\":\"low\""), 1);
    assert_int_equal(thinking_of(off, "\"enable_thinking\":true"), 1);
    /* The more explicit one wins. */
    assert_int_equal(thinking_of(NULL, "\"enable_thinking\":true,\"reasoning_effort\":\"none\""), 1);
    assert_int_equal(thinking_of(NULL, "\"enable_thinking\":true,\"chat_template_kwargs\":{\"enable_thinking\":false}"), 0);
}

/* -1: no limit. */
static int64_t budget_of(bool limited, const char *fields)
{
    lily_openai_request q;
    lily_refusal r = {0};
    json_t *body;
    char text[512];
    lily_openai_defaults d = {.sampling = &sampling, .n_vocab = 1000, .think_limited = limited, .think_budget = 7};
    snprintf(text, sizeof text, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]%s%s}", fields[0] ? "," : "", fields);
    check_ok(lily_body_object(text, strlen(text), &body, &r), &r.err);
    check_ok(lily_openai_request_read(&q, body, &d, &r), &r.err);
    int64_t budget = q.chat.think_limited ? (int64_t)q.chat.think_budget : -1;
    lily_openai_request_free(&q);
    return budget;
}

static void test_thinking_budget(void **state)
{
    (void)state;
    assert_int_equal(budget_of(false, ""), -1);
    assert_int_equal(budget_of(true, ""), 7);
    assert_int_equal(budget_of(true, "\"thinking_budget\":null"), 7);
    assert_int_equal(budget_of(true, "\"thinking_budget\":-1"), -1);
    assert_int_equal(budget_of(true, "\"thinking_budget\":0"), 0);
    assert_int_equal(budget_of(false, "\"thinking_budget\":100"), 100);
    assert_int_equal(budget_of(false, "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}"), 1024);
    assert_int_equal(budget_of(false, "\"chat_template_kwargs\":{\"thinking_budget\":5},\"thinking_budget\":9"), 5);
}

static void check_choice(const char *choice, enum lily_tool_choice wanted, size_t n_tools)
{
    lily_openai_request q;
    lily_refusal r;
    char fields[512];
    snprintf(fields, sizeof fields, "%s%s" TOOLS, choice, choice[0] ? "," : "");
    check_ok(read_fields(&q, fields, &r), &r.err);
    assert_int_equal(q.chat.tool_choice, wanted);
    assert_int_equal(json_array_size(q.chat.tools), n_tools);
    if (wanted == LILY_TOOLS_NAMED) assert_string_equal(q.chat.tool_name, "g");
    lily_openai_request_free(&q);
}

static void test_tool_choice(void **state)
{
    (void)state;
    check_choice("", LILY_TOOLS_AUTO, 2);
    check_choice("\"tool_choice\":\"auto\"", LILY_TOOLS_AUTO, 2);
    check_choice("\"tool_choice\":\"none\"", LILY_TOOLS_NONE, 0);
    check_choice("\"tool_choice\":\"required\"", LILY_TOOLS_REQUIRED, 2);
    check_choice("\"tool_choice\":" TOOL("g"), LILY_TOOLS_NAMED, 2);
    check_choice(ALLOWED("auto", "f"), LILY_TOOLS_AUTO, 1);
    check_choice(ALLOWED("required", "f"), LILY_TOOLS_REQUIRED, 1);
}

static void test_bodies(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "{", "not json", "[]", "5", "\"x\"", "true", "null", "{\"a\":1}x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lily_refusal r = {0};
        json_t *body = NULL;
        if (lily_body_object(bad[i], strlen(bad[i]), &body, &r) == LILY_OK) fail_msg("%s was taken", bad[i]);
        assert_int_equal(lily_refusal_status(&r), 400);
        assert_null(body);
    }
}

static void test_refusal_json(void **state)
{
    (void)state;
    lily_refusal r = {.n_prompt = 700, .n_ctx = 512};
    lily_buf out = {0};
    lily_refuse(&r, LILY_CONTEXT, NULL, "the prompt has %d \"tokens\"", 700);
    lily_refusal_json(&r, "/v1/chat/completions", &out);
    assert_string_equal(out.data, "{\"error\":{\"message\":\"the prompt has 700 \\\"tokens\\\"\",\"type\":"
                                  "\"invalid_request_error\",\"param\":null,\"code\":\"context_length_exceeded\","
                                  "\"n_prompt_tokens\":700,\"n_ctx\":512}}");
    lily_buf_clear(&out);
    lily_http_error_json("/nowhere", 404, "no such path", &out);
    assert_string_equal(out.data, "{\"error\":{\"message\":\"no such path\",\"type\":\"invalid_request_error\","
                                  "\"param\":null,\"code\":\"not_found\"}}");
    lily_buf_free(&out);
}

static void test_anthropic_refusal_json(void **state)
{
    (void)state;
    lily_refusal r = {.n_prompt = 700, .n_ctx = 512};
    lily_buf out = {0};
    lily_refuse(&r, LILY_CONTEXT, NULL, "no room");
    lily_refusal_json(&r, "/v1/messages", &out);
    assert_string_equal(out.data, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
                                  "\"prompt is too long: 700 tokens > 512 maximum\",\"code\":"
                                  "\"context_length_exceeded\",\"n_prompt_tokens\":700,\"n_ctx\":512}}");
    static const struct { int status; const char *type; } types[] = {
        {400, "invalid_request_error"}, {401, "authentication_error"}, {403, "permission_error"},
        {404, "not_found_error"}, {405, "invalid_request_error"}, {413, "request_too_large"},
        {429, "rate_limit_error"}, {500, "api_error"}, {503, "overloaded_error"},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char want[160];
        snprintf(want, sizeof want, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"a \\\"b\\\"\"}}",
                 types[i].type);
        lily_buf_clear(&out);
        lily_http_error_json("/v1/messages/count_tokens", types[i].status, "a \"b\"", &out);
        assert_string_equal(out.data, want);
    }
    lily_buf_clear(&out);
    lily_http_error_json("/v1/messagesx", 404, "x", &out);
    assert_memory_equal(out.data, "{\"error\"", 8);
    lily_buf_free(&out);
}

static void test_place_of_a_message(void **state)
{
    (void)state;
    lily_refusal r = {0};
    lily_refuse(&r, LILY_ARGUMENT, NULL, "messages[2].content[0]: image input is not supported");
    lily_name_messages(&r);
    assert_string_equal(r.param, "messages[2].content[0]");
    r = (lily_refusal){0};
    lily_refuse(&r, LILY_ARGUMENT, NULL, "the template says no");
    lily_name_messages(&r);
    assert_string_equal(r.param, "");
}

static void test_json_strings(void **state)
{
    (void)state;
    lily_buf out = {0};
    lily_json_put_string(&out, "a\"\\\n\x01\x7f\xc3\xa4\xff\xf0\x9f!", 12);
    assert_string_equal(out.data, "\"a\\\"\\\\\\n\\u0001\x7f\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd!\"");
    lily_buf_clear(&out);
    lily_json_put_bytes(&out, "\xf0\x41", 2);
    lily_json_put_number(&out, -0.0);
    lily_json_put_number(&out, -1.0 / 0.0);
    lily_json_put_text(&out, NULL);
    assert_string_equal(out.data, "[240,65]0-9999null");
    lily_buf_clear(&out);
    static const float floats[] = {0.6f, 1, 0x1.fffffep-1f, -8.98719081e-05f, 16777217, 3.4028235e38f};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        lily_json_put_number(&out, (double)floats[i]);
        assert_true(strtof(lily_buf_str(&out), NULL) == floats[i]);
        if (i == 0) assert_string_equal(lily_buf_str(&out), "0.6");
        lily_buf_clear(&out);
    }
    lily_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_values_that_ask_for_nothing),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_which_messages_go_on),
        cmocka_unit_test(test_thinking_switches),
        cmocka_unit_test(test_tool_choice),
        cmocka_unit_test(test_thinking_budget),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_refusal_json),
        cmocka_unit_test(test_anthropic_refusal_json),
        cmocka_unit_test(test_place_of_a_message),
        cmocka_unit_test(test_json_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
