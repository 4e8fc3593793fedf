/* test_script.c - scripted replies: what a file may say, how it is cut into tokens, which reply is taken, what the
 * record tells. */
#include "run/script.h"
#include "sample/json_schema.h"
#include "scripted.h"

/* ---- the file ---- */

static const struct {
    const char *json, *place;
} wrong[] = {
    {"[]", "not an object"},
    {"{}", "replies:"},
    {"{\"replies\": []}", "replies:"},
    {"{\"replies\": [1]}", "replies[0]:"},
    {"{\"replies\": [{\"text\": \"a\"}], \"ends\": \"last\"}", "ends: unknown key"},
    {"{\"replies\": [{\"text\": \"a\"}], \"end\": \"first\"}", "end:"},
    {"{\"replies\": [{\"text\": \"a\"}], \"end\": \"model\"}", "end:"},
    {"{\"replies\": [{\"text\": \"a\"}], \"model\": true}", "replies[0].text:"},
    {"{\"replies\": [{\"text\": \"a\", \"splits\": \"tokens\"}, {\"pieces\": [\"a\"]}], \"model\": true}", "replies[1].pieces:"},
    {"{\"replies\": [{\"text\": \"a\"}], \"model\": 1}", "model:"},
    {"{\"replies\": [{\"text\": \"a\"}, {\"text\": \"b\"}, {\"text\": \"c\", \"splits\": 0}]}", "replies[2].splits:"},
    {"{\"replies\": [{\"text\": \"a\", \"splits\": \"word\"}]}", "replies[0].splits:"},
    {"{\"replies\": [{\"text\": \"a\", \"splits\": 1.5}]}", "replies[0].splits:"},
    {"{\"replies\": [{\"text\": \"a\", \"splits\": true}]}", "replies[0].splits:"},
    {"{\"replies\": [{\"pieces\": [\"a\"], \"splits\": 1}]}", "replies[0].splits:"},
    {"{\"replies\": [{\"text\": 5}]}", "replies[0].text:"},
    {"{\"replies\": [{\"text\": \"a\", \"pieces\": []}]}", "two sources"},
    {"{\"replies\": [{\"cut\": true}]}", "no source"},
    {"{\"replies\": [{\"text\": \"a\", \"delay\": 1}]}", "replies[0].delay: unknown key"},
    {"{\"replies\": [{\"text\": \"a\", \"delay_ms\": -1}]}", "replies[0].delay_ms:"},
    {"{\"replies\": [{\"text\": \"a\", \"prefill_ms\": \"5\"}]}", "replies[0].prefill_ms:"},
    {"{\"replies\": [{\"text\": \"a\", \"fail_at\": 0}]}", "replies[0].fail_at:"},
    {"{\"replies\": [{\"text\": \"a\", \"times\": -1}]}", "replies[0].times:"},
    {"{\"replies\": [{\"text\": \"a\", \"cut\": 1}]}", "replies[0].cut:"},
    {"{\"replies\": [{\"text\": \"a\", \"when\": 1}]}", "replies[0].when:"},
    {"{\"replies\": [{\"text\": \"a\", \"after_think\": {}}]}", "replies[0].after_think: has no source"},
    {"{\"replies\": [{\"text\": \"a\", \"after_think\": \"b\"}]}", "replies[0].after_think: not an object"},
    {"{\"replies\": [{\"text\": \"a\", \"after_think\": {\"text\": \"b\", \"cut\": true}}]}", "replies[0].after_think.cut: unknown key"},
    {"{\"replies\": [{\"text\": \"a\", \"after_think\": {\"text\": 1}}]}", "replies[0].after_think.text:"},
    {"{\"replies\": [{\"logits\": \"no\"}]}", "replies[0].logits:"},
    {"{\"replies\": [{\"logits\": [{}, 5]}]}", "replies[0].logits[1]:"},
    {"{\"replies\": [{\"logits\": {\" a\": \"5\"}}]}", "replies[0].logits. a: not a number"},
    {"{\"replies\": [{\"logits\": {\" a\": 1e300}}]}", "replies[0].logits. a: too large"},
    {"{\"replies\": [{\"logits\": {\"two words\": 5}}]}", "replies[0].logits.two words: not exactly one token"},
    {"{\"replies\": [{\"logits\": [{\"\": 5}]}]}", "replies[0].logits[0].: not exactly one token"},
    {"{\"replies\": [{\"logits\": {\"#99999999\": 5}}]}", "replies[0].logits.#99999999: the model has no such row"},
    {"{\"replies\": [{\"logits\": {\"#-1\": 5}}]}", "replies[0].logits.#-1:"},
    {"{\"replies\": [{\"pieces\": \"a\"}]}", "replies[0].pieces:"},
    {"{\"replies\": [{\"pieces\": [\"a\", 2]}]}", "replies[0].pieces[1]:"},
    {"{\"replies\": [{\"bytes_hex\": [\"e2\", \"8\"]}]}", "replies[0].bytes_hex[1]:"},
    {"{\"replies\": [{\"bytes_hex\": [\"zz\"]}]}", "replies[0].bytes_hex[0]:"},
    {"{\"replies\": [{\"repeat\": {\"piece\": \"a\"}}]}", "replies[0].repeat:"},
    {"{\"replies\": [{\"repeat\": {\"piece\": \"a\", \"count\": 1, \"x\": 1}}]}", "replies[0].repeat:"},
    {"{\"replies\": [{\"repeat\": {\"piece\": \"a\", \"count\": -1}}]}", "replies[0].repeat.count:"},
    {"{\"replies\": [{\"text\": \"a\"}]} x", "not valid JSON"},
    {"", "not valid JSON"},
};

static void mistakes_are_named(void **state)
{
    lily_engine *g = *state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        lily_err e;
        lily_script *s = NULL;
        write_script(wrong[i].json);
        int rc = lily_script_open(&s, path, lily_engine_tokenizer(g), lily_engine_config(g)->vocab, &e);
        if (rc == LILY_OK) fail_msg("taken: %s", wrong[i].json);
        if (!strstr(e.text, wrong[i].place)) fail_msg("%s\nsays: %s", wrong[i].json, e.text);
        if (strncmp(e.text, "script.json: ", 13) != 0) fail_msg("no file name: %s", e.text);
    }
    lily_err e;
    lily_script *s = NULL;
    unlink(path);
    check_fails(lily_script_open(&s, path, lily_engine_tokenizer(g), lily_engine_config(g)->vocab, &e), LILY_IO, &e);
}

/* ---- requests ---- */

static void check_reply(lily_engine *g, const char *prompt, const char *pieces, enum lily_end end)
{
    outcome o;
    lily_ask ask = ask_of(prompt, -1);
    request(g, &ask, &o);
    assert_string_equal(lily_buf_str(&o.pieces), pieces);
    assert_int_equal(o.end, end);
    assert_int_equal(o.n_generated, o.n);
    lily_buf_free(&o.pieces);
}

static void sources_are_cut(void **state)
{
    (void)state;
    lily_engine *g = open_script(
        "{\"replies\": ["
        "{\"text\": \"a b</think>\\n\\nc\"},"
        "{\"text\": \"h\\u00e9y</think>\", \"splits\": \"char\"},"
        "{\"text\": \"h\\u00e9yho\", \"splits\": 2},"
        "{\"pieces\": [\"<think>\", \"</think>x\", \"\"]},"
        "{\"bytes_hex\": [\"c3\", \"A9\", \"\"]},"
        "{\"repeat\": {\"piece\": \" a\", \"count\": 3}},"
        "{\"repeat\": {\"piece\": \" a\", \"count\": 0}},"
        "{\"text\": \"\"},"
        "{\"text\": \"a\", \"cut\": true},"
        "{\"pieces\": [\"a\", \"<|im_end|>\", \"b\"]}"
        "]}");
    check_reply(g, "", "a b|*</think>|\n\nc", LILY_END_STOP);
    check_reply(g, "", "h|\xc3\xa9|y|*</think>", LILY_END_STOP);
    check_reply(g, "", "h\xc3\xa9|yh|o", LILY_END_STOP);
    check_reply(g, "", "*<think>|</think>x|", LILY_END_STOP);
    check_reply(g, "", "\xc3|\xa9|", LILY_END_STOP);
    check_reply(g, "", " a| a| a", LILY_END_STOP);
    check_reply(g, "", "", LILY_END_STOP);
    check_reply(g, "", "", LILY_END_STOP);
    check_reply(g, "", "a", LILY_END_LENGTH);
    check_reply(g, "", "a", LILY_END_STOP);
    lily_engine_close(g);
}

static void real_tokens_join_to_the_text(void **state)
{
    (void)state;
    lily_engine *g = open_script("{\"replies\": [{\"text\": \"Hello there, world.</think>\\n\\nHi!\", \"splits\": \"tokens\"}]}");
    lily_err e;
    lily_request *r;
    lily_ask ask = ask_of("", -1);
    lily_buf text = {0};
    unsigned n = 0;
    check_ok(lily_engine_submit(g, &ask, &r, &e), &e);
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) {
        if (ev->kind != LILY_EVENT_TOKEN) continue;
        assert_true(ev->id >= 0);
        lily_buf_add(&text, ev->bytes, ev->n_bytes);
        n++;
    }
    assert_string_equal(lily_buf_str(&text), "Hello there, world.</think>\n\nHi!");
    assert_true(n > 4 && n < text.len);
    lily_buf_free(&text);
    lily_request_free(r);
    lily_engine_close(g);
}

static void limits_end_a_reply(void **state)
{
    (void)state;
    lily_engine *g = open_script("{\"replies\": [{\"repeat\": {\"piece\": \" a\", \"count\": 1000}}], \"end\": \"last\"}");
    outcome o;
    lily_ask ask = ask_of("", -1);
    ask.max_tokens = 5;
    request(g, &ask, &o);
    assert_int_equal(o.n, 5);
    assert_int_equal(o.end, LILY_END_LENGTH);
    lily_buf_free(&o.pieces);
    ask.max_tokens = 0;
    request(g, &ask, &o);
    assert_int_equal(o.n, 512 - 3);
    assert_int_equal(o.end, LILY_END_LENGTH);
    lily_buf_free(&o.pieces);
    lily_engine_close(g);
}

static void replies_are_chosen(void **state)
{
    (void)state;
    lily_engine *g = open_script("{\"replies\": ["
                                 "{\"text\": \"red\", \"when\": \"apple\", \"times\": 2},"
                                 "{\"text\": \"any\"},"
                                 "{\"text\": \"always\", \"when\": \"pear\", \"times\": 0}]}");
    outcome o;
    check_reply(g, "an apple", "red", LILY_END_STOP);
    check_reply(g, "a pear", "any", LILY_END_STOP);
    check_reply(g, "a pear", "always", LILY_END_STOP);
    check_reply(g, "an apple and a pear", "red", LILY_END_STOP);
    check_reply(g, "an apple and a pear", "always", LILY_END_STOP);
    lily_ask ask = ask_of("an apple", -1);
    request(g, &ask, &o);
    assert_int_equal(o.end, LILY_END_ERROR);
    assert_string_equal(o.err_code, "script_exhausted");
    /* A named one, used up or not. */
    ask = ask_of("", 0);
    request(g, &ask, &o);
    assert_string_equal(lily_buf_str(&o.pieces), "red");
    lily_buf_free(&o.pieces);
    ask = ask_of("", 3);
    request(g, &ask, &o);
    assert_int_equal(o.end, LILY_END_ERROR);
    assert_int_equal(o.err.code, LILY_ARGUMENT);
    lily_engine_close(g);
}

static void ends_of_a_script(void **state)
{
    (void)state;
    lily_engine *g = open_script("{\"replies\": [{\"text\": \"1\"}, {\"text\": \"2\"}], \"end\": \"last\"}");
    check_reply(g, "", "1", LILY_END_STOP);
    for (int i = 0; i < 3; i++) check_reply(g, "", "2", LILY_END_STOP);
    lily_engine_close(g);
    g = open_script("{\"replies\": [{\"text\": \"1\"}, {\"text\": \"2\"}], \"end\": \"restart\"}");
    for (int i = 0; i < 3; i++) {
        check_reply(g, "", "1", LILY_END_STOP);
        check_reply(g, "", "2", LILY_END_STOP);
    }
    lily_engine_close(g);
}

static void planted_failure(void **state)
{
    (void)state;
    lily_engine *g = open_script("{\"replies\": [{\"pieces\": [\"a\", \"b\", \"c\"], \"fail_at\": 3}, {\"text\": \"ok\"}]}");
    outcome o;
    lily_ask ask = ask_of("", -1);
    request(g, &ask, &o);
    assert_string_equal(lily_buf_str(&o.pieces), "a|b");
    assert_int_equal(o.end, LILY_END_ERROR);
    assert_int_equal(o.err.code, LILY_DEVICE);
    lily_buf_free(&o.pieces);
    check_reply(g, "", "ok", LILY_END_STOP);
    lily_engine_close(g);
}

/* A format refuses a token, or the end before the text is whole; up to there tokens come, behind a thought too. */
static void formats_refuse(void **state)
{
    (void)state;
    static const struct {
        const char *source, *pieces;
        bool in_think, refused;
    } rows[] = {
        {"\"pieces\": [\"{}\"]", "{}", false, false},
        {"\"pieces\": [\"{\", \"\\\"a\\\"\", \"x\", \":\"]", "{|\"a\"", false, true},
        {"\"pieces\": [\"{\"]", "{", false, true},
        {"\"pieces\": [\"{\"], \"cut\": true", "{", false, false},
        {"\"pieces\": [\"no {\", \"</think>\", \"\\n\\n{\", \"}\"]", "no {|*</think>|\n\n{|}", true, false},
        {"\"pieces\": [\"a\", \"</think>\", \"so\"]", "a|*</think>", true, true},
        {"\"pieces\": [\"a\"]", "a", true, true},
        {"\"pieces\": [\"</think>\", \"<tool_call>\", \"any\"]", "*</think>|*<tool_call>|any", true, false},
        {"\"pieces\": [\"{\", \"<tool_call>\"]", "{", false, true},
        {"\"pieces\": [\"a\", \"</tool_call>\", \"\\n\"]", "a|*</tool_call>|\n", true, false},
        {"\"pieces\": [\"a\", \"</tool_call>\", \"b\"]", "a|*</tool_call>|b", true, true},
    };
    lily_err e;
    lily_grammar *format;
    check_ok(lily_json_object(&format, &e), &e);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char json[256];
        outcome o;
        snprintf(json, sizeof json, "{\"replies\": [{%s}]}", rows[i].source);
        lily_engine *g = open_script(json);
        lily_ask ask = ask_of("", -1);
        ask.grammar = format;
        ask.in_think = rows[i].in_think;
        ask.may_call = true;
        request(g, &ask, &o);
        assert_string_equal(lily_buf_str(&o.pieces), rows[i].pieces);
        assert_string_equal(o.err_code, rows[i].refused ? "script_refused" : "");
        assert_int_equal(o.end == LILY_END_ERROR, rows[i].refused);
        lily_buf_free(&o.pieces);
        lily_engine_close(g);
    }
    lily_grammar_let_go(format);
}

static void logprobs_are_their_own(void **state)
{
    (void)state;
    lily_err e;
    lily_request *r;
    lily_engine *g = open_script("{\"replies\": [{\"pieces\": [\"a\", \"</think>\"]}]}");
    lily_ask ask = ask_of("", -1);
    ask.sampling.logprobs = true;
    ask.sampling.n_logprobs = 5;
    check_ok(lily_engine_submit(g, &ask, &r, &e), &e);
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) {
        if (ev->kind != LILY_EVENT_TOKEN) continue;
        assert_int_equal(ev->n_top, 1);
        assert_int_equal(ev->top[0].token, ev->id);
        assert_true(ev->logprob == 0 && ev->top[0].logprob == 0);
    }
    lily_request_free(r);
    lily_engine_close(g);
}

/* ---- pauses and the record ---- */

static void wait_for(lily_request *r, enum lily_event_kind kind)
{
    bool found = false;
    while (!found) {
        lily_event *ev = lily_request_wait(r);
        assert_non_null(ev);
        found = ev->kind == kind;
        lily_event_free(ev);
    }
}

static void pauses_are_cancelled(void **state)
{
    (void)state;
    lily_err e;
    lily_request *r;
    outcome o;
    lily_engine *g = open_script("{\"replies\": [{\"text\": \"never\", \"prefill_ms\": 600000},"
                                 "{\"text\": \"ab\", \"splits\": 1, \"delay_ms\": 600000},"
                                 "{\"text\": \"abcd\", \"splits\": 1, \"delay_ms\": 20},"
                                 "{\"text\": \"x\", \"prefill_ms\": 50}]}");
    lily_ask ask = ask_of("", -1);
    for (int i = 0; i < 2; i++) {
        check_ok(lily_engine_submit(g, &ask, &r, &e), &e);
        wait_for(r, LILY_EVENT_START);
        json_t *running = record(g);
        assert_true(json_is_null(json_object_get(entry(running, (size_t)i), "ended")));
        json_decref(running);
        lily_request_cancel(r);
        drain(r, &o);
        assert_int_equal(o.end, LILY_END_CANCELLED);
        lily_request_free(r);
    }
    check_ok(lily_engine_submit(g, &ask, &r, &e), &e);
    wait_for(r, LILY_EVENT_TOKEN);
    lily_request_stop(r);
    drain(r, &o);
    assert_int_equal(o.end, LILY_END_STOP);
    lily_buf_free(&o.pieces);
    lily_request_free(r);
    request(g, &ask, &o);
    assert_true(o.n_progress > 5);
    lily_buf_free(&o.pieces);
    json_t *root = record(g);
    assert_string_equal(text_of(entry(root, 0), "ended"), "cancel");
    assert_string_equal(text_of(entry(root, 1), "ended"), "cancel");
    assert_string_equal(text_of(entry(root, 2), "ended"), "stop_string");
    assert_string_equal(text_of(entry(root, 3), "ended"), "stop");
    json_decref(root);
    lily_engine_close(g);
}

/* However fast a script is, nothing is taken from it behind the token that a stop string ended in. */
static void stop_takes_no_more(void **state)
{
    (void)state;
    lily_engine *g = open_script("{\"replies\": [{\"text\": \"abcdefgh\", \"splits\": 1, \"times\": 0}]}");
    for (int i = 0; i < 20; i++) {
        lily_err e;
        lily_request *r;
        lily_ask ask = ask_of("", -1);
        check_ok(lily_engine_submit(g, &ask, &r, &e), &e);
        for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev))
            if (ev->kind == LILY_EVENT_TOKEN && ev->bytes[0] == 'c') lily_request_stop(r);
        lily_request_free(r);
        json_t *root = record(g);
        assert_int_equal(json_integer_value(json_object_get(entry(root, (size_t)i), "tokens")), 3);
        json_decref(root);
    }
    lily_engine_close(g);
}

static void record_tells_all(void **state)
{
    (void)state;
    outcome o;
    lily_engine *g = open_script("{\"replies\": [{\"pieces\": [\"a\", \"</think>\"]}, {\"text\": \"x\", \"cut\": true},"
                                 "{\"text\": \"y\", \"fail_at\": 1}, {\"text\": \"z\", \"times\": 0, \"when\": \"never\"}]}");
    int32_t think_end = lily_token_find(lily_engine_tokenizer(g), "</think>", 8);
    assert_true(think_end > 0);
    lily_ask ask = ask_of("a \"prompt\"\n\xc3\xa9", -1);
    for (int i = 0; i < 4; i++) {
        request(g, &ask, &o);
        lily_buf_free(&o.pieces);
    }
    json_t *root = record(g);
    assert_int_equal(json_integer_value(json_object_get(root, "left")), 1);
    assert_int_equal(json_array_size(json_object_get(root, "requests")), 3);
    const json_t *first = entry(root, 0);
    assert_int_equal(json_integer_value(json_object_get(first, "n")), 0);
    assert_int_equal(json_integer_value(json_object_get(first, "reply")), 0);
    assert_string_equal(text_of(first, "endpoint"), "/v1/chat/completions");
    assert_string_equal(text_of(first, "prompt"), "a \"prompt\"\n\xc3\xa9");
    assert_int_equal(json_array_size(json_object_get(first, "prompt_ids")), 3);
    assert_int_equal(json_integer_value(json_object_get(first, "tokens")), 2);
    const json_t *ids = json_object_get(first, "ids");
    assert_int_equal(json_integer_value(json_array_get(ids, 0)), -1);
    assert_int_equal(json_integer_value(json_array_get(ids, 1)), think_end);
    assert_string_equal(text_of(first, "ended"), "stop");
    assert_string_equal(text_of(entry(root, 1), "ended"), "length");
    assert_string_equal(text_of(entry(root, 2), "ended"), "error");
    assert_int_equal(json_integer_value(json_object_get(entry(root, 2), "tokens")), 0);
    json_decref(root);
    lily_engine_close(g);
}

static void record_keeps_the_last(void **state)
{
    (void)state;
    outcome o;
    lily_engine *g = open_script("{\"replies\": [{\"text\": \"a\", \"times\": 0}]}");
    lily_ask ask = ask_of("p", -1);
    for (int i = 0; i < 300; i++) {
        request(g, &ask, &o);
        lily_buf_free(&o.pieces);
    }
    json_t *root = record(g);
    assert_int_equal(json_array_size(json_object_get(root, "requests")), 256);
    assert_int_equal(json_integer_value(json_object_get(entry(root, 0), "n")), 44);
    assert_int_equal(json_integer_value(json_object_get(entry(root, 255), "n")), 299);
    json_decref(root);
    lily_engine_close(g);
}

/* The demo model's tokenizer serves the tests of the file alone. */
static int setup(void **state)
{
    script_setup();
    *state = open_script("{\"replies\": [{\"text\": \"a\"}]}");
    return 0;
}

static int teardown(void **state)
{
    lily_engine_close(*state);
    script_teardown();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(sources_are_cut),
        cmocka_unit_test(real_tokens_join_to_the_text),
        cmocka_unit_test(limits_end_a_reply),
        cmocka_unit_test(replies_are_chosen),
        cmocka_unit_test(ends_of_a_script),
        cmocka_unit_test(planted_failure),
        cmocka_unit_test(formats_refuse),
        cmocka_unit_test(logprobs_are_their_own),
        cmocka_unit_test(pauses_are_cancelled),
        cmocka_unit_test(stop_takes_no_more),
        cmocka_unit_test(record_tells_all),
        cmocka_unit_test(record_keeps_the_last),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
