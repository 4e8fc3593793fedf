/* Anthropic's request as a chat request: what each form becomes, and what is refused by its place. */
#include "../check.h"

#include <string.h>

#include "api/anthropic_request.h"
#include "api/openai_request.h"

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define OFF ",\"thinking\":{\"type\":\"disabled\"}"

static json_t *parse(const char *text)
{
    json_t *j = json_loads(text, 0, NULL);
    if (!j) fail_msg("no JSON: %s", text);
    return j;
}

static void check_same(const json_t *got, const char *want, const char *of)
{
    json_t *wanted = parse(want);
    if (!json_equal(got, wanted)) {
        char *text = json_dumps(got, JSON_COMPACT);
        fail_msg("%s\n gave   %s\n wanted %s", of, text, want);
    }
    json_decref(wanted);
}

/* The body as it becomes, with the server's variables `kwargs` (or NULL). */
static void check_body(const char *text, const char *kwargs, const char *want)
{
    lily_refusal r = {0};
    json_t *body = parse(text), *vars = kwargs ? parse(kwargs) : NULL, *out;
    check_ok(lily_anthropic_chat_body(body, vars, &out, &r), &r.err);
    check_same(out, want, text);
    json_decref(out);
    json_decref(vars);
    json_decref(body);
}

static void check_messages(const char *messages, const char *want)
{
    lily_refusal r = {0};
    char text[2048];
    snprintf(text, sizeof text, "{\"messages\":%s}", messages);
    json_t *body = parse(text), *out;
    if (lily_anthropic_chat_body(body, NULL, &out, &r) != LILY_OK) fail_msg("%s: %s", messages, r.err.text);
    check_same(json_object_get(out, "messages"), want, messages);
    json_decref(out);
    json_decref(body);
}

static void test_plain(void **state)
{
    (void)state;
    check_body("{\"model\":\"m\",\"max_tokens\":9,\"temperature\":1,\"top_p\":0.5,\"top_k\":3,\"stream\":true,"
               "\"stop_sequences\":[\"a\",\"b\"],\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"auto\",\"new\":1," HI "}",
               NULL,
               "{" HI ",\"max_tokens\":9,\"temperature\":1,\"top_p\":0.5,\"top_k\":3,\"stream\":true,"
               "\"stop\":[\"a\",\"b\"]" OFF "}");
    /* Fields of chat requests that these answers could not show are not smuggled in. */
    check_body("{" HI ",\"n\":2,\"logprobs\":true,\"max_completion_tokens\":3,\"stop\":\"x\",\"tool_choice\":null}", NULL,
               "{" HI OFF "}");
}

static void test_system(void **state)
{
    (void)state;
    static const char hi[] = ",{\"role\":\"user\",\"content\":\"hi\"}]" OFF "}";
    static const struct { const char *system, *want; } rows[] = {
        {"\"S\"", "\"S\""},
        {"[{\"type\":\"text\",\"text\":\"S\"},{\"type\":\"text\",\"text\":\"T\"}]",
         "[{\"type\":\"text\",\"text\":\"S\"},{\"type\":\"text\",\"text\":\"T\"}]"},
        {"[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cc_version=1; cch=2;\"},{\"type\":\"text\",\"text\":\"S\"}]",
         "[{\"type\":\"text\",\"text\":\"S\"}]"},
        {"[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cch=2;\\nS\\nT\",\"cache_control\":{}}]",
         "[{\"type\":\"text\",\"text\":\"S\\nT\"}]"},
        {"\"x-anthropic-billing-header: cch=2;\\nS\"", "\"S\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512], want[512];
        snprintf(text, sizeof text, "{\"system\":%s," HI "}", rows[i].system);
        snprintf(want, sizeof want, "{\"messages\":[{\"role\":\"system\",\"content\":%s}%s", rows[i].want, hi);
        check_body(text, NULL, want);
    }
    check_body("{\"system\":\"\"," HI "}", NULL, "{" HI OFF "}");
    check_body("{\"system\":[]," HI "}", NULL, "{" HI OFF "}");
    check_body("{\"system\":\"x-anthropic-billing-header: cch=2;\"," HI "}", NULL, "{" HI OFF "}");
}

static void test_messages(void **state)
{
    (void)state;
    check_messages("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}]",
                   "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}]");
    check_messages("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"b\"}]",
                   "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"b\"}]");
    check_messages("[{\"role\":\"user\",\"content\":[]}]", "[{\"role\":\"user\",\"content\":[]}]");
}

static void test_assistant(void **state)
{
    (void)state;
    check_messages("[{\"role\":\"assistant\",\"content\":["
                   "{\"type\":\"thinking\",\"thinking\":\"T\",\"signature\":\"any\"},"
                   "{\"type\":\"redacted_thinking\",\"data\":\"x\"},{\"type\":\"thinking\",\"thinking\":\"U\"},"
                   "{\"type\":\"text\",\"text\":\"A\"},"
                   "{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{\"b\":1,\"a\":[2]}},"
                   "{\"type\":\"tool_use\",\"name\":\"g\"}]},{\"role\":\"user\",\"content\":\"x\"}]",
                   "[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"A\"}],\"reasoning_content\":\"TU\","
                   "\"tool_calls\":[{\"id\":\"t1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
                   "{\"b\":1,\"a\":[2]}}},{\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]},"
                   "{\"role\":\"user\",\"content\":\"x\"}]");
    check_messages("[{\"role\":\"assistant\",\"content\":\"A\"},{\"role\":\"user\",\"content\":\"x\"}]",
                   "[{\"role\":\"assistant\",\"content\":\"A\"},{\"role\":\"user\",\"content\":\"x\"}]");
}

/* Results first, as messages of tools, then what the user said, wherever it stood. */
static void test_tool_results(void **state)
{
    (void)state;
    check_messages("[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"before\"},"
                   "{\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":\"5\"},"
                   "{\"type\":\"tool_result\",\"tool_use_id\":\"t2\",\"is_error\":true,\"content\":[{\"type\":\"text\",\"text\":\"no\"}]},"
                   "{\"type\":\"tool_result\",\"is_error\":true,\"content\":\"bad\"},"
                   "{\"type\":\"tool_result\",\"tool_use_id\":\"t4\",\"is_error\":false},"
                   "{\"type\":\"text\",\"text\":\"after\"}]}]",
                   "[{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":\"5\"},"
                   "{\"role\":\"tool\",\"tool_call_id\":\"t2\",\"content\":[{\"type\":\"text\",\"text\":\"Error: \"},"
                   "{\"type\":\"text\",\"text\":\"no\"}]},"
                   "{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"Error: \"},{\"type\":\"text\",\"text\":\"bad\"}]},"
                   "{\"role\":\"tool\",\"tool_call_id\":\"t4\",\"content\":\"\"},"
                   "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"before\"},{\"type\":\"text\",\"text\":\"after\"}]}]");
    check_messages("[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t1\",\"content\":[]}]}]",
                   "[{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":[]}]");
}

static void test_tools(void **state)
{
    (void)state;
    check_body("{" HI ",\"tools\":[{\"name\":\"f\",\"description\":\"D\",\"input_schema\":{\"type\":\"object\"},"
               "\"cache_control\":{\"type\":\"ephemeral\"},\"strict\":false},"
               "{\"type\":\"custom\",\"name\":\"g\",\"input_schema\":{},\"strict\":true}],"
               "\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\",\"disable_parallel_tool_use\":true}}",
               NULL,
               "{" HI ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"D\",\"parameters\":"
               "{\"type\":\"object\"}}},{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":{},\"strict\":true}}],"
               "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}},\"parallel_tool_calls\":false" OFF "}");
    static const char *const choices[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        char text[256], want[256];
        snprintf(text, sizeof text, "{" HI ",\"tool_choice\":{\"type\":\"%s\"}}", choices[i][0]);
        snprintf(want, sizeof want, "{" HI ",\"tool_choice\":\"%s\",\"parallel_tool_calls\":true" OFF "}", choices[i][1]);
        check_body(text, NULL, want);
    }
}

/* A tool that is loaded late is described by the result that refers to it; what it is called stays as it was. */
static void test_tools_loaded_late(void **state)
{
    (void)state;
    lily_refusal r = {0};
    json_t *body, *out;
    static const char text[] =
        "{\"tools\":[{\"name\":\"find\",\"input_schema\":{}},{\"name\":\"f\",\"description\":\"D\",\"defer_loading\":true,"
        "\"input_schema\":{\"maximum\":18446744073709551615}}],\"messages\":[{\"role\":\"user\",\"content\":"
        "[{\"type\":\"tool_result\",\"content\":[{\"type\":\"tool_reference\",\"tool_name\":\"f\"}]}]}]}";
    check_ok(lily_body_object(text, sizeof text - 1, &body, &r), &r.err);
    check_ok(lily_anthropic_chat_body(body, NULL, &out, &r), &r.err);
    const json_t *tools = json_object_get(out, "tools");
    assert_null(json_object_get(json_array_get(tools, 0), "defer_loading"));
    assert_true(json_is_true(json_object_get(json_array_get(tools, 1), "defer_loading")));
    check_same(json_object_get(out, "messages"),
               "[{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"<functions>\\n<function>{\\\"name\\\": "
               "\\\"f\\\", \\\"description\\\": \\\"D\\\", \\\"parameters\\\": {\\\"maximum\\\": 18446744073709551615}}"
               "</function>\\n</functions>\\n\"}]}]",
               text);
    json_decref(out);
    json_decref(body);
}

/* A request without the field gets no thinking, unless the server's own variables decide. */
static void test_thinking(void **state)
{
    (void)state;
    static const struct { const char *given, *kwargs, *want; } rows[] = {
        {"", NULL, OFF},
        {"", "{\"preserve_thinking\":true}", OFF},
        {"", "{\"enable_thinking\":true}", ""},
        {",\"thinking\":null", NULL, OFF},
        {",\"thinking\":{\"type\":\"disabled\"}", "{\"enable_thinking\":true}", OFF},
        {",\"thinking\":{\"type\":\"adaptive\"}", NULL, ",\"thinking\":{\"type\":\"enabled\"}"},
        {",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":2000}", NULL,
         ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":2000}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256], want[256];
        snprintf(text, sizeof text, "{" HI "%s}", rows[i].given);
        snprintf(want, sizeof want, "{" HI "%s}", rows[i].want);
        check_body(text, rows[i].kwargs, want);
    }
}

static void test_format_and_context(void **state)
{
    (void)state;
    static const char made[] = "{" HI ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"answer\","
                               "\"schema\":{\"type\":\"object\"}}}" OFF "}";
    check_body("{" HI ",\"output_config\":{\"effort\":\"low\",\"format\":{\"type\":\"json_schema\",\"schema\":"
               "{\"type\":\"object\"}}}}", NULL, made);
    check_body("{" HI ",\"output_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}}", NULL, made);
    check_body("{" HI ",\"output_config\":{\"effort\":\"high\"}}", NULL, "{" HI OFF "}");
    check_body("{" HI ",\"context_management\":{\"edits\":[{\"type\":\"clear_thinking_20251015\",\"keep\":\"all\"}]},"
               "\"chat_template_kwargs\":{\"a\":1}}", NULL,
               "{" HI ",\"chat_template_kwargs\":{\"preserve_thinking\":true,\"a\":1}" OFF "}");
    check_body("{" HI ",\"context_management\":{\"edits\":[{\"type\":\"clear_thinking_20251015\",\"keep\":"
               "{\"type\":\"thinking_turns\",\"value\":1}}]}}", NULL, "{" HI OFF "}");
}

static void test_refused(void **state)
{
    (void)state;
    static const struct { const char *body, *sentence; } rows[] = {
        {"{}", "messages is missing"},
        {"{\"messages\":null}", "messages is missing"},
        {"{\"messages\":{}}", "messages must be a list, not an object"},
        {"{\"messages\":[]}", "messages is an empty list"},
        {"{\"messages\":[5]}", "messages[0] must be an object, not an integer"},
        {"{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", "messages[0].role must be 'user' or 'assistant'"},
        {"{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content is missing, it must be a string or a list of blocks"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":null}]}",
         "messages[0].content must be a string or a list of blocks, not null"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{}}]}]}",
         "messages[0].content[0]: image input is not supported, only text"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"content\":[{\"type\":\"document\"}]}]}]}",
         "messages[0].content[0].content[0]: document input is not supported, only text"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"\"}]}]}",
         "messages[0].content[0]: a block of type 'thinking' is not supported here"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"\"}]}]}", "messages[0].content[0].type must be a string"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", "messages[0].content[0].text must be a string"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"server_tool_use\"}]}]}",
         "messages[0].content[0]: a block of type 'server_tool_use' is not supported here"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"input\":{}}]}]}",
         "messages[0].content[0].name must be the name of a tool"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"name\":\"f\",\"input\":\"{}\"}]}]}",
         "messages[0].content[0].input must be an object, not a string"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\"}]}]}",
         "messages[0].content[0].thinking must be a string"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"content\":[{\"type\":\"tool_reference\","
         "\"tool_name\":\"g\"}]}]}],\"tools\":[{\"name\":\"f\",\"input_schema\":{}}]}",
         "messages[0].content[0].content[0]: there is no tool 'g'"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_reference\",\"tool_name\":\"f\"}]}]}",
         "messages[0].content[0]: a block of type 'tool_reference' is not supported here"},
        {"{\"system\":[{\"type\":\"image\"}]," HI "}", "system[0]: image input is not supported, only text"},
        {"{\"system\":5," HI "}", "system must be a string or a list of blocks, not an integer"},
        {"{" HI ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]}",
         "tools[0]: the tool 'web_search' of type 'web_search_20250305' is Anthropic's own and is not supported, only tools "
         "with an input_schema are"},
        {"{" HI ",\"tools\":[{\"input_schema\":{}}]}", "tools[0].name must be a non-empty string"},
        {"{" HI ",\"tools\":[{\"name\":\"f\"}]}", "tools[0].input_schema must be a JSON Schema"},
        {"{" HI ",\"tool_choice\":\"any\"}", "tool_choice must have the type 'auto', 'any' or 'none', or 'tool' and a name"},
        {"{" HI ",\"tool_choice\":{\"type\":\"tool\"}}",
         "tool_choice must have the type 'auto', 'any' or 'none', or 'tool' and a name"},
        {"{" HI ",\"stop_sequences\":\"x\"}", "stop_sequences must be a list of strings, not a string"},
        {"{" HI ",\"stop_sequences\":[\"a\",\"\"]}", "stop_sequences[1] must be a string of 1 to 256 bytes"},
        {"{" HI ",\"thinking\":{\"type\":\"on\"}}", "thinking.type must be 'enabled', 'adaptive' or 'disabled'"},
        {"{" HI ",\"output_format\":{\"type\":\"json\"}}",
         "output_format: a format must have the type 'json_schema' and a schema"},
        {"{" HI ",\"context_management\":{\"edits\":[{\"type\":\"clear_tool_uses_20250919\"}]}}",
         "context_management.edits[0]: 'clear_tool_uses_20250919' is not supported"},
        {"{" HI ",\"mcp_servers\":[{}]}", "mcp_servers is not supported"},
        {"{" HI ",\"container\":\"c\"}", "container is not supported"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lily_refusal r = {0};
        json_t *body = parse(rows[i].body), *out;
        if (lily_anthropic_chat_body(body, NULL, &out, &r) == LILY_OK) fail_msg("%s was taken", rows[i].body);
        assert_null(out);
        assert_int_equal(lily_refusal_status(&r), 400);
        assert_string_equal(r.err.text, rows[i].sentence);
        json_decref(body);
    }
}

/* What the chat request's own reader refuses is named as Anthropic's field is. */
static void test_ranges(void **state)
{
    (void)state;
    static const lily_sampling_defaults sampling = {.temperature = 1, .top_p = 1, .repetition = 1};
    static const char *const bad[] = {"\"max_tokens\":0", "\"temperature\":-1", "\"top_p\":2", "\"top_k\":-2",
                                      "\"stream\":1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "{" HI ",%s}", bad[i]);
        lily_refusal r = {0};
        lily_openai_defaults d = {.sampling = &sampling, .n_vocab = 100};
        lily_openai_request q;
        json_t *body = parse(text), *out;
        check_ok(lily_anthropic_chat_body(body, NULL, &out, &r), &r.err);
        check_fails(lily_openai_request_read(&q, out, &d, &r), LILY_ARGUMENT, &r.err);
        lily_anthropic_names(&r);
        assert_memory_equal(r.err.text, bad[i] + 1, strcspn(bad[i] + 1, "\""));
        lily_openai_request_free(&q);
        json_decref(body);
    }
}

static void test_names_in_refusals(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"response_format.json_schema.schema: #: 'not' is not supported",
         "output_config.format.schema: #: 'not' is not supported"},
        {"tools[3].function.parameters: #/a: no", "tools[3].input_schema: #/a: no"},
        {"max_tokens must be an integer", "max_tokens must be an integer"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lily_refusal r = {0};
        lily_refuse(&r, LILY_ARGUMENT, NULL, "%s", rows[i][0]);
        lily_anthropic_names(&r);
        assert_string_equal(r.err.text, rows[i][1]);
    }
    lily_refusal r = {0};    /* the longest sentence stays one */
    char text[LILY_ERR_TEXT];
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "response_format.json_schema", strlen("response_format.json_schema"));
    text[sizeof text - 1] = '\0';
    lily_refuse(&r, LILY_ARGUMENT, NULL, "%s", text);
    lily_anthropic_names(&r);
    assert_memory_equal(r.err.text, "output_config.formatxxx", 23);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),      cmocka_unit_test(test_system),   cmocka_unit_test(test_messages),
        cmocka_unit_test(test_assistant),  cmocka_unit_test(test_tool_results), cmocka_unit_test(test_tools),
        cmocka_unit_test(test_tools_loaded_late),
        cmocka_unit_test(test_thinking),   cmocka_unit_test(test_format_and_context),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_names_in_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
