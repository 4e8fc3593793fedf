/* Answers in Anthropic's form: events of an answer in, blocks and their order out, streamed and whole alike. */
#include "../check.h"

#include <jansson.h>
#include <string.h>

#include "api/anthropic_json.h"
#include "base/mem.h"

static const char *const stop[] = {"zz", "END"};
static const size_t stop_len[] = {2, 3};
static const lily_usage usage = {.n_prompt = 10, .n_reused = 4, .n_reply = 7, .n_reasoning = 2};

typedef struct step {
    lily_answer_kind kind;
    const char *text;
    lily_finish finish;
    int stop;
} step;

/* Thought, text, two calls, the end. */
static const step all[] = {
    {LILY_ANSWER_START, NULL, 0, -1},
    {LILY_ANSWER_PROGRESS, NULL, 0, -1},
    {LILY_ANSWER_REASONING, "th", 0, -1},
    {LILY_ANSWER_REASONING, "ink", 0, -1},
    {LILY_ANSWER_TEXT, "a\"b", 0, -1},
    {LILY_ANSWER_CALL, "f", 0, -1},
    {LILY_ANSWER_ARGUMENTS, "{\"x\":", 0, -1},
    {LILY_ANSWER_ARGUMENTS, "18446744073709551615}", 0, -1},
    {LILY_ANSWER_CALL_END, NULL, 0, -1},
    {LILY_ANSWER_CALL, "g", 0, -1},
    {LILY_ANSWER_ARGUMENTS, "{}", 0, -1},
    {LILY_ANSWER_CALL_END, NULL, 0, -1},
    {LILY_ANSWER_FINISH, NULL, LILY_FINISH_CALLS, -1},
};

static lily_answer_event event_of(const step *s)
{
    return (lily_answer_event){.kind = s->kind, .text = s->text, .n = s->text ? strlen(s->text) : 0,
                               .finish = s->finish, .stop = s->stop, .usage = &usage};
}

static void write_stream(const step *steps, size_t n, lily_buf *out)
{
    lily_anthropic_head head = {.id = "msg_1", .model = "lily", .stop = stop, .stop_len = stop_len};
    lily_anthropic_stream s = {.head = &head};
    lily_anthropic_stream_open(&s, out);
    assert_int_equal(out->len, 0);    /* nothing to say before its turn */
    for (size_t i = 0; i < n; i++) {
        lily_answer_event ev = event_of(&steps[i]);
        lily_anthropic_stream_event(&s, &ev, out);
        if (i == 0) assert_int_equal(out->len, 0);    /* an error may still be a status */
    }
}

static int write_whole(const step *steps, size_t n, lily_buf *out, lily_err *e)
{
    lily_anthropic_head head = {.id = "msg_1", .model = "lily", .stop = stop, .stop_len = stop_len};
    lily_anthropic_answer a = {.head = &head};
    int rc = LILY_OK;
    for (size_t i = 0; i < n; i++) {
        lily_answer_event ev = event_of(&steps[i]);
        lily_anthropic_answer_event(&a, &ev);
        if (i + 1 == n) rc = lily_anthropic_answer_json(&a, &ev, out, e);
    }
    lily_anthropic_answer_free(&a);
    return rc;
}

/* The data of the next event of a stream, whose name must be its type. */
static json_t *next_event(const char **at)
{
    static const char name[] = "event: ", data[] = "\ndata: ";
    assert_memory_equal(*at, name, sizeof name - 1);
    const char *type = *at + sizeof name - 1, *end = strchr(type, '\n');
    assert_memory_equal(end, data, sizeof data - 1);
    const char *text = end + sizeof data - 1, *stop_at = strstr(text, "\n\n");
    assert_non_null(stop_at);
    json_t *j = json_loadb(text, (size_t)(stop_at - text), 0, NULL);
    assert_non_null(j);
    const char *told = json_string_value(json_object_get(j, "type"));
    assert_int_equal(strlen(told), end - type);
    assert_memory_equal(told, type, strlen(told));
    *at = stop_at + 2;
    return j;
}

static void check_types(const lily_buf *out, const char *want)
{
    lily_buf types = {0};
    for (const char *at = out->data; *at;) {
        json_t *j = next_event(&at), *index = json_object_get(j, "index");
        lily_buf_printf(&types, "%s", json_string_value(json_object_get(j, "type")));
        if (index) lily_buf_printf(&types, ":%d", (int)json_integer_value(index));
        lily_buf_putc(&types, ' ');
        json_decref(j);
    }
    assert_string_equal(types.data, want);
    lily_buf_free(&types);
}

static void test_order_of_blocks(void **state)
{
    (void)state;
    lily_buf out = {0};
    write_stream(all, sizeof all / sizeof all[0], &out);
    check_types(&out, "message_start content_block_start:0 content_block_delta:0 content_block_delta:0 "
                      "content_block_delta:0 content_block_stop:0 content_block_start:1 content_block_delta:1 "
                      "content_block_stop:1 content_block_start:2 content_block_delta:2 content_block_delta:2 "
                      "content_block_stop:2 content_block_start:3 content_block_delta:3 content_block_stop:3 "
                      "message_delta message_stop ");
    lily_buf_free(&out);
}

static const char *member(const json_t *j, const char *key) { return json_string_value(json_object_get(j, key)); }

/* Puts a stream together as clients do: blocks with their deltas joined. */
static json_t *join(const char *at)
{
    json_t *content = json_array();
    while (*at) {
        json_t *j = next_event(&at), *delta = json_object_get(j, "delta");
        if (strcmp(member(j, "type"), "content_block_start") == 0)
            json_array_append(content, json_object_get(j, "content_block"));
        json_t *block = json_array_get(content, json_array_size(content) - 1);
        static const char *const keys[][2] = {
            {"thinking", "thinking"}, {"signature", "signature"}, {"text", "text"}, {"partial_json", "joined"}};
        for (size_t i = 0; i < 4 && block; i++) {
            const char *more = member(delta, keys[i][0]), *old = member(block, keys[i][1]);
            char text[128];
            if (!more) continue;
            snprintf(text, sizeof text, "%s%s", old ? old : "", more);
            json_object_set_new(block, keys[i][1], json_string(text));
        }
        json_decref(j);
    }
    return content;
}

static void test_stream_says_what_the_whole_says(void **state)
{
    (void)state;
    lily_err e = {0};
    lily_buf streamed = {0}, whole = {0};
    write_stream(all, sizeof all / sizeof all[0], &streamed);
    check_ok(write_whole(all, sizeof all / sizeof all[0], &whole, &e), &e);
    assert_non_null(strstr(whole.data, "\"input\":{\"x\":18446744073709551615}"));
    char *digits = strstr(whole.data, "18446744073709551615");
    memset(digits, '7', 3);
    memset(digits + 3, ' ', 17);    /* jansson has no such number */
    json_t *a = json_loads(whole.data, 0, NULL), *content = join(streamed.data);
    json_t *blocks = json_object_get(a, "content");
    assert_int_equal(json_array_size(blocks), 4);
    assert_int_equal(json_array_size(content), 4);
    for (size_t i = 0; i < 2; i++) {
        if (!json_equal(json_array_get(blocks, i), json_array_get(content, i))) fail_msg("block %zu differs", i);
    }
    assert_string_equal(member(json_array_get(blocks, 0), "thinking"), "think");
    assert_string_equal(member(json_array_get(blocks, 1), "text"), "a\"b");
    assert_string_equal(member(json_array_get(content, 2), "joined"), "{\"x\":18446744073709551615}");
    assert_string_equal(member(json_array_get(content, 3), "name"), "g");
    assert_string_not_equal(member(json_array_get(blocks, 2), "id"), member(json_array_get(blocks, 3), "id"));
    assert_string_equal(member(a, "stop_reason"), "tool_use");
    const json_t *u = json_object_get(a, "usage");
    assert_int_equal(json_integer_value(json_object_get(u, "input_tokens")), 6);
    assert_int_equal(json_integer_value(json_object_get(u, "cache_read_input_tokens")), 4);
    assert_int_equal(json_integer_value(json_object_get(u, "output_tokens")), 7);
    const json_t *details = json_object_get(u, "output_tokens_details");
    assert_int_equal(json_integer_value(json_object_get(details, "thinking_tokens")), 2);
    json_decref(a);
    json_decref(content);
    lily_buf_free(&streamed);
    lily_buf_free(&whole);
}

static void test_stop_reasons(void **state)
{
    (void)state;
    static const struct { lily_finish finish; int stop; const char *reason, *sequence; } rows[] = {
        {LILY_FINISH_STOP, -1, "end_turn", NULL},
        {LILY_FINISH_STOP, 1, "stop_sequence", "END"},
        {LILY_FINISH_LENGTH, -1, "max_tokens", NULL},
        {LILY_FINISH_CALLS, -1, "tool_use", NULL},
        {LILY_FINISH_CALLS, 0, "tool_use", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lily_err e = {0};
        lily_buf out = {0};
        step steps[] = {{LILY_ANSWER_START, NULL, 0, -1}, {LILY_ANSWER_FINISH, NULL, rows[i].finish, rows[i].stop}};
        check_ok(write_whole(steps, 2, &out, &e), &e);
        json_t *a = json_loads(out.data, 0, NULL);
        assert_string_equal(member(a, "stop_reason"), rows[i].reason);
        if (rows[i].sequence) assert_string_equal(member(a, "stop_sequence"), rows[i].sequence);
        else assert_true(json_is_null(json_object_get(a, "stop_sequence")));
        assert_int_equal(json_array_size(json_object_get(a, "content")), 0);
        json_decref(a);
        lily_buf_free(&out);
    }
}

/* Half a call: its block ends in a stream, where it has begun, and is left out of a whole answer. */
static void test_call_cut(void **state)
{
    (void)state;
    static const step steps[] = {
        {LILY_ANSWER_START, NULL, 0, -1}, {LILY_ANSWER_TEXT, "t", 0, -1},  {LILY_ANSWER_CALL, "f", 0, -1},
        {LILY_ANSWER_ARGUMENTS, "{\"x\":1", 0, -1}, {LILY_ANSWER_CALL_CUT, NULL, 0, -1},
        {LILY_ANSWER_FINISH, NULL, LILY_FINISH_LENGTH, -1},
    };
    lily_err e = {0};
    lily_buf out = {0};
    write_stream(steps, 6, &out);
    check_types(&out, "message_start content_block_start:0 content_block_delta:0 content_block_stop:0 "
                      "content_block_start:1 content_block_delta:1 content_block_stop:1 message_delta message_stop ");
    lily_buf_clear(&out);
    check_ok(write_whole(steps, 6, &out, &e), &e);
    assert_non_null(strstr(out.data, "\"content\":[{\"type\":\"text\",\"text\":\"t\"}]"));
    lily_buf_free(&out);
}

static void test_lost_memory_is_told(void **state)
{
    (void)state;
    int failed = 0;
    for (int64_t n = 0;; n++) {
        lily_err e = {0};
        lily_buf out = {0};
        lily_mem_fail_after(n);
        int rc = write_whole(all, sizeof all / sizeof all[0], &out, &e);
        int64_t asked = lily_mem_count();
        lily_mem_fail_after(-1);
        lily_buf_free(&out);
        if (rc == LILY_OK) {
            assert_true(asked <= n);    /* nothing was refused, so nothing is missing */
            break;
        }
        assert_int_equal(rc, LILY_NO_MEMORY);
        failed++;
    }
    assert_true(failed > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_blocks),
        cmocka_unit_test(test_stream_says_what_the_whole_says),
        cmocka_unit_test(test_stop_reasons),
        cmocka_unit_test(test_call_cut),
        cmocka_unit_test(test_lost_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
