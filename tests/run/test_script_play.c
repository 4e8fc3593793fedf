/* test_script_play.c - what acts on scripted tokens: the sampler on scores, the guide that closes thinking and forces
 * calls, and the model that reads along. */
#include "device/dev.h"
#include "sample/call_grammar.h"
#include "sample/json_schema.h"
#include "scripted.h"

static char pieces[4096];

static lily_ask plain_ask(void)
{
    lily_ask ask = ask_of("", -1);
    ask.sampling.top_p = ask.sampling.repetition = 1;
    return ask;
}

/* One request; its pieces are in `pieces`. */
static void ask_for(lily_engine *g, const lily_ask *ask, outcome *o)
{
    request(g, ask, o);
    snprintf(pieces, sizeof pieces, "%s", lily_buf_str(&o->pieces));
    lily_buf_free(&o->pieces);
}

static void check(const char *json, const lily_ask *ask, const char *wanted, enum lily_end end)
{
    outcome o;
    lily_engine *g = open_script(json);
    ask_for(g, ask, &o);
    if (strcmp(pieces, wanted) != 0) fail_msg("%s\ngives %s\nnot   %s", json, pieces, wanted);
    assert_int_equal(o.end, end);
    lily_engine_close(g);
}

/* ---- scores ---- */

#define ABC "{\" a\": 5, \" b\": 4.5, \" c\": 4.2}"

static void scores_are_sampled(void **state)
{
    (void)state;
    lily_ask ask = plain_ask();
    ask.max_tokens = 5;
    check("{\"replies\": [{\"logits\": " ABC "}]}", &ask, " a| a| a| a| a", LILY_END_LENGTH);
    check("{\"replies\": [{\"logits\": [" ABC ", {\" b\": 1}]}]}", &ask, " a| b", LILY_END_STOP);
    check("{\"replies\": [{\"logits\": [" ABC "], \"cut\": true}]}", &ask, " a", LILY_END_LENGTH);
    check("{\"replies\": [{\"logits\": [" ABC ", {\"<|im_end|>\": 9}, " ABC "]}]}", &ask, " a", LILY_END_STOP);
    check("{\"replies\": [{\"logits\": []}]}", &ask, "", LILY_END_STOP);
    ask.sampling.presence = 1.5f;
    check("{\"replies\": [{\"logits\": " ABC "}]}", &ask, " a| b| c| a| a", LILY_END_LENGTH);
    ask.sampling.presence = 0;
    lily_bias ban = {.add = -100};
    lily_engine *g = open_script("{\"replies\": [{\"text\": \" a\", \"splits\": \"tokens\"}]}");
    lily_ids ids = {0};
    lily_err e;
    check_ok(lily_encode(lily_engine_tokenizer(g), " a", 2, false, &ids, &e), &e);
    ban.token = ids.id[0];
    lily_ids_free(&ids);
    lily_engine_close(g);
    ask.sampling.bias = &ban;
    ask.sampling.n_bias = 1;
    check("{\"replies\": [{\"logits\": " ABC "}]}", &ask, " b| b| b| b| b", LILY_END_LENGTH);
}

static void scores_with_temperature_repeat_by_seed(void **state)
{
    (void)state;
    char first[sizeof pieces];
    bool differs = false;
    lily_engine *g = open_script("{\"replies\": [{\"logits\": " ABC ", \"times\": 0}]}");
    lily_ask ask = plain_ask();
    outcome o;
    ask.max_tokens = 20;
    ask.sampling.temperature = 1;
    for (uint64_t seed = 0; seed < 4; seed++) {
        ask.sampling.seed = seed;
        ask_for(g, &ask, &o);
        memcpy(first, pieces, sizeof first);
        ask_for(g, &ask, &o);
        assert_string_equal(first, pieces);
        differs = differs || (strchr(pieces, 'a') && strchr(pieces, 'b') && strchr(pieces, 'c'));
    }
    assert_true(differs);
    lily_engine_close(g);
}

static void not_a_number(void **state)
{
    (void)state;
    static const char *const scripts[] = {"{\"replies\": [{\"logits\": \"nan\"}]}",
                                          "{\"replies\": [{\"logits\": [" ABC ", \"nan\"]}]}"};
    for (size_t i = 0; i < 2; i++) {
        lily_ask ask = plain_ask();
        outcome o;
        lily_engine *g = open_script(scripts[i]);
        ask_for(g, &ask, &o);
        assert_string_equal(pieces, i ? " a" : "");
        assert_int_equal(o.end, LILY_END_ERROR);
        assert_int_equal(o.err.code, LILY_DEVICE);
        lily_engine_close(g);
    }
}

static void logprobs_of_scores(void **state)
{
    (void)state;
    lily_err e;
    lily_request *r;
    lily_engine *g = open_script("{\"replies\": [{\"logits\": [{\" a\": 5, \" b\": 5}]}]}");
    lily_ask ask = plain_ask();
    ask.sampling.logprobs = true;
    ask.sampling.n_logprobs = 2;
    check_ok(lily_engine_submit(g, &ask, &r, &e), &e);
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) {
        if (ev->kind != LILY_EVENT_TOKEN) continue;
        assert_int_equal(ev->n_top, 2);
        assert_true(ev->logprob > -0.7f && ev->logprob < -0.69f);
        assert_true(ev->top[0].token == ev->id && ev->top[1].token != ev->id);
    }
    lily_request_free(r);
    lily_engine_close(g);
}

/* ---- a budget of thinking ---- */

static const char answer[] = "\"after_think\": {\"text\": \"so 5\"}";

static void thinking_is_closed(void **state)
{
    (void)state;
    static const struct {
        const char *source, *wanted;
        uint32_t budget;
    } rows[] = {
        {"\"text\": \"abcdefgh\", \"splits\": 1", "*</think>|\n\n|so 5", 0},
        {"\"text\": \"abcdefgh\", \"splits\": 1", "a|*</think>|\n\n|so 5", 1},
        {"\"text\": \"abcdefgh\", \"splits\": 1", "a|\n|*</think>|\n\n|so 5", 2},
        {"\"text\": \"abcdefgh\", \"splits\": 1", "a|b|c|\n|*</think>|\n\n|so 5", 4},
        {"\"text\": \"ab\\ncdefg\", \"splits\": 1", "a|b|\n|*</think>|\n\n|so 5", 4},
        {"\"text\": \"ab</think>\\n\\nown\", \"splits\": 1", "a|b|*</think>|\n|\n|o|w|n", 4},
        /* One budget for all thoughts; quoted tags are none. */
        {"\"pieces\": [\"a\", \"</think>\", \"x\\n\", \"<think>\", \"b\", \"c\", \"d\"]",
         "a|*</think>|x\n|*<think>|b|\n|*</think>|\n\n|so 5", 3},
        {"\"pieces\": [\"</think>\", \"see `\", \"<think>\", \"` b\", \"c\", \"d\"]", "*</think>|see `|*<think>|` b|c|d", 2},
        /* A character is finished first. */
        {"\"bytes_hex\": [\"61\", \"f0\", \"9f\", \"99\", \"82\", \"62\"]", "a|\xf0|\x9f|\x99|\x82|*</think>|\n\n|so 5", 3},
        /* A call that has just ended may be the end. */
        {"\"pieces\": [\"a\", \"<tool_call>\", \"c\", \"</tool_call>\", \"\\n\"]", "a|*<tool_call>|c|*</tool_call>|\n", 5},
        {"\"pieces\": [\"a\", \"<tool_call>\", \"c\", \"</tool_call>\", \"so\", \"x\"]",
         "a|*<tool_call>|c|*</tool_call>|so|*</think>|\n\n|so 5", 5},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char json[512];
        lily_ask ask = plain_ask();
        ask.in_think = ask.think_limited = true;
        ask.think_budget = rows[i].budget;
        snprintf(json, sizeof json, "{\"replies\": [{%s, %s}]}", rows[i].source, answer);
        check(json, &ask, rows[i].wanted, LILY_END_STOP);
    }
}

static void closing_words(void **state)
{
    (void)state;
    lily_ask ask = plain_ask();
    outcome o;
    lily_engine *g = open_script("{\"replies\": [{\"repeat\": {\"piece\": \" a\", \"count\": 1000}, \"after_think\": {\"text\": \"5\"}}],"
                                 "\"end\": \"last\"}");
    ask.in_think = ask.think_limited = true;
    ask.think_budget = 320;
    ask_for(g, &ask, &o);
    assert_non_null(strstr(pieces, "|*</think>|\n\n|5"));
    assert_non_null(strstr(pieces, "|.\n|*</think>"));
    assert_int_equal(o.n_generated, 320 + 3);
    assert_int_equal(o.end, LILY_END_STOP);
    /* The whole limit may come first; without a budget, or behind a closed thought, nothing is closed. */
    ask.max_tokens = 10;
    ask_for(g, &ask, &o);
    assert_int_equal(o.end, LILY_END_LENGTH);
    assert_null(strchr(pieces, '*'));
    ask.max_tokens = 400;
    ask.in_think = false;
    ask_for(g, &ask, &o);
    assert_int_equal(o.end, LILY_END_LENGTH);
    assert_null(strchr(pieces, '*'));
    lily_engine_close(g);
}

/* The rest of the source is the answer when the script has no other; a format holds behind a closed thought. */
static void behind_the_budget(void **state)
{
    (void)state;
    lily_err e;
    lily_grammar *format;
    lily_ask ask = plain_ask();
    ask.in_think = ask.think_limited = true;
    ask.think_budget = 1;
    check("{\"replies\": [{\"text\": \"abc\", \"splits\": 1}]}", &ask, "a|*</think>|\n\n|b|c", LILY_END_STOP);
    json_t *schema = json_pack("{s:s}", "type", "boolean");
    check_ok(lily_json_schema(&format, schema, &e), &e);
    json_decref(schema);
    ask.grammar = format;
    check("{\"replies\": [{\"text\": \"abc\", \"splits\": 1, \"after_think\": {\"text\": \"true\"}}]}", &ask,
          "a|*</think>|\n\n|true", LILY_END_STOP);
    check("{\"replies\": [{\"text\": \"abc\", \"splits\": 1, \"after_think\": {\"logits\": {\" a\": 5, \"false\": 4}}}]}", &ask,
          "a|*</think>|\n\n|false", LILY_END_STOP);
    lily_grammar_let_go(format);
}

/* ---- calls ---- */

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"read\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"path\":{\"type\":\"string\"}},\"required\":[\"path\"],\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

static lily_grammar *calls_of(const char *only)
{
    lily_err e;
    lily_grammar *g;
    json_t *tools = json_loads(tools_json, 0, NULL);
    check_ok(lily_call_grammar(&g, tools, only, &e), &e);
    json_decref(tools);
    return g;
}

/* The reply without its "|" and "*". */
static const char *joined(void)
{
    static char text[sizeof pieces];
    char *out = text;
    for (const char *p = pieces; *p; p++)
        if (*p != '|' && *p != '*') *out++ = *p;
    *out = 0;
    return text;
}

#define READ "<tool_call>\n<function=read>\n<parameter=path>\na.c\n</parameter>\n</function>\n</tool_call>"
#define NOW "<tool_call>\n<function=now>\n</function>\n</tool_call>"

static void calls_are_forced(void **state)
{
    (void)state;
    static const struct {
        const char *only, *source, *wanted;     /* wanted NULL: refused */
        bool in_think, many;
    } rows[] = {
        {"read", "\"pieces\": [\"a.c\", \"\\n</parameter>\"]", READ, false, false},
        {"read", "\"text\": \"a.c\\n</parameter>\\n</function>\\n</tool_call>\"", READ, false, false},
        {"read", "\"text\": \"<tool_call>\\n<function=read>\\n<parameter=path>\\na.c\\n</parameter>\\n</function>\\n</tool_call>\"", READ,
         false, false},
        {"now", "\"text\": \"\"", NOW, false, false},
        {NULL, "\"pieces\": [\"now\"]", NOW, false, false},
        {NULL, "\"text\": \"read>\\n<parameter=path>\\na.c\\n</parameter>\\n\"", READ, false, false},
        {NULL, "\"text\": \"write\"", NULL, false, false},
        {"read", "\"text\": \"a.c\"", NULL, false, false},
        {"now", "\"text\": \"hm</think>\"", "hm</think>\n\n" NOW, true, false},
        {"now", "\"text\": \"hm\"", NULL, true, false},
        {"now", "\"text\": \"</tool_call>\\n<tool_call>\"", NOW "\n" NOW, false, true},
        {"now", "\"pieces\": [\"</tool_call>\", \"\\n\"]", NOW "\n", false, true},
        {"now", "\"text\": \"</tool_call> and more\"", NULL, false, true},
        {"now", "\"logits\": []", NOW, false, false},
        {"now", "\"logits\": [{\" a\": 5, \"<tool_call>\": 1}]", NOW, false, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char json[512];
        outcome o;
        lily_ask ask = plain_ask();
        lily_grammar *calls = calls_of(rows[i].only);
        snprintf(json, sizeof json, "{\"replies\": [{%s}]}", rows[i].source);
        lily_engine *g = open_script(json);
        ask.calls = calls;
        ask.must_call = true;
        ask.single_call = !rows[i].many;
        ask.in_think = rows[i].in_think;
        ask_for(g, &ask, &o);
        lily_engine_close(g);
        lily_grammar_let_go(calls);
        if (!rows[i].wanted) {
            assert_string_equal(o.err_code, "script_refused");
            continue;
        }
        if (strcmp(joined(), rows[i].wanted) != 0 || o.end != LILY_END_STOP)
            fail_msg("%s\ngives %s, %s %s", rows[i].source, joined(), o.err_code, o.err.text);
    }
}

/* Without being required a call is held to its form from where it begins, unless it is quoted. */
static void strict_calls(void **state)
{
    (void)state;
    static const struct {
        const char *source, *wanted;
    } rows[] = {
        {"\"text\": \"Just text.\"", "Just text."},
        {"\"text\": \"I read.\\n\\n<tool_call>\\n<function=now>\\n</function>\\n</tool_call> ok\"", "I read.\n\n" NOW " ok"},
        {"\"pieces\": [\"<tool_call>\", \"now\", \"and more\", \"<tool_call>\", \"now\"]", NOW "and more" NOW},
        {"\"pieces\": [\"<tool_call>\", \"write\"]", NULL},
        {"\"pieces\": [\"<tool_call>\", \"\\n<function=now>\\n\", \"<parameter=a>\"]", NOW "<parameter=a>"},
        {"\"pieces\": [\"It is `\", \"<tool_call>\", \"` and\", \" so on\"]", "It is `<tool_call>` and so on"},
        {"\"text\": \"<tool_call>\\n<function=re\", \"cut\": true", "<tool_call>\n<function=re"},
    };
    lily_grammar *calls = calls_of(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char json[512];
        outcome o;
        lily_ask ask = plain_ask();
        snprintf(json, sizeof json, "{\"replies\": [{%s}]}", rows[i].source);
        lily_engine *g = open_script(json);
        ask.calls = calls;
        ask.may_call = true;
        ask_for(g, &ask, &o);
        lily_engine_close(g);
        if (rows[i].wanted ? strcmp(joined(), rows[i].wanted) != 0 : strcmp(o.err_code, "script_refused") != 0)
            fail_msg("%s\ngives %s, %s %s", rows[i].source, joined(), o.err_code, o.err.text);
    }
    lily_grammar_let_go(calls);
}

/* Values that share a part of a character, or are spelt in a form that the tokenizer does not keep. */
static void odd_values_are_forced(void **state)
{
    (void)state;
    static const struct {
        const char *values, *source, *wanted;
    } rows[] = {
        {"[\"\u00e9\", \"\u00e8\"]", "\"text\": \"\u00e8\"", "\xc3\xa8"},
        {"[\"a\u00e9\", \"a\u00e8\"]", "\"bytes_hex\": [\"61c3\", \"a9\"]", "a\xc3\xa9"},
        {"[\"e\u0301\"]", "\"text\": \"e\u0301\"", "e\xcc\x81"},
        {"[\"only\"]", "\"text\": \"\"", "only"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char json[512], wanted[256];
        lily_err e;
        outcome o;
        lily_ask ask = plain_ask();
        json_t *values = json_loads(rows[i].values, 0, NULL);
        json_t *tools = json_pack("[{s:s, s:{s:s, s:{s:{s:o}}, s:[s]}}]", "name", "f", "parameters", "type", "object",
                                  "properties", "a", "enum", values, "required", "a");
        check_ok(lily_call_grammar(&ask.calls, tools, NULL, &e), &e);
        json_decref(tools);
        snprintf(json, sizeof json, "{\"replies\": [{%s}]}", rows[i].source);
        snprintf(wanted, sizeof wanted, "<tool_call>\n<function=f>\n<parameter=a>\n%s\n</parameter>\n</function>\n</tool_call>",
                 rows[i].wanted);
        lily_engine *g = open_script(json);
        ask.must_call = ask.single_call = true;
        ask_for(g, &ask, &o);
        lily_engine_close(g);
        lily_grammar_let_go(ask.calls);
        if (strcmp(joined(), wanted) != 0) fail_msg("%s\ngives %s, %s %s", rows[i].source, joined(), o.err_code, o.err.text);
    }
}

/* ---- with the model ---- */

static uint32_t reused(lily_engine *g, const int32_t *tokens, uint32_t n, char *text, size_t room, enum lily_end *end)
{
    lily_err e;
    lily_request *r;
    uint32_t n_reused = 0;
    lily_ask ask = {.tokens = tokens, .n_tokens = n, .prompt_text = "", .endpoint = "/", .script_reply = -1, .max_tokens = 6};
    size_t len = 0;
    check_ok(lily_engine_submit(g, &ask, &r, &e), &e);
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) {
        if (ev->kind == LILY_EVENT_START) n_reused = ev->n_reused;
        if (ev->kind == LILY_EVENT_TOKEN) len += (size_t)snprintf(text + len, room - len, "%.*s", (int)ev->n_bytes, ev->bytes);
        if (ev->kind == LILY_EVENT_END) *end = ev->end;
    }
    lily_request_free(r);
    return n_reused;
}

/* The states behind scripted tokens are those that the model would have: what it says after them is the same, warm and
 * cold. */
static void model_reads_along(void **state)
{
    (void)state;
    enum lily_end end;
    char said[256], warm[256], cold[256];
    lily_engine *g = open_script("{\"replies\": [{\"text\": \" a b\", \"splits\": \"tokens\"}], \"model\": true, \"end\": \"model\"}");
    lily_ids ids = {0};
    lily_err e;
    static const char prompt[] = "The sea is wide and the house is red. The sea is wide.";
    check_ok(lily_encode(lily_engine_tokenizer(g), prompt, sizeof prompt - 1, false, &ids, &e), &e);
    uint32_t n = (uint32_t)ids.n;
    assert_int_equal(reused(g, ids.id, n, said, sizeof said, &end), 0);
    assert_string_equal(said, " a b");
    assert_int_equal(end, LILY_END_STOP);
    check_ok(lily_encode(lily_engine_tokenizer(g), " a b c", 6, false, &ids, &e), &e);
    assert_int_equal(reused(g, ids.id, (uint32_t)ids.n, warm, sizeof warm, &end), (uint32_t)ids.n - 1);
    json_t *root = record(g);
    assert_int_equal(json_array_size(json_object_get(root, "requests")), 1);
    assert_int_equal(json_integer_value(json_object_get(root, "left")), 0);
    json_decref(root);
    lily_engine_close(g);

    g = open_script("{\"replies\": [{\"text\": \"\", \"splits\": \"tokens\", \"when\": \"never\"}], \"model\": true, \"end\": \"model\"}");
    assert_int_equal(reused(g, ids.id, (uint32_t)ids.n, cold, sizeof cold, &end), 0);
    assert_string_equal(warm, cold);
    lily_engine_close(g);
    lily_ids_free(&ids);
}

static int setup(void **state)
{
    (void)state;
    script_setup();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    script_teardown();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_sampled),
        cmocka_unit_test(scores_with_temperature_repeat_by_seed),
        cmocka_unit_test(not_a_number),
        cmocka_unit_test(logprobs_of_scores),
        cmocka_unit_test(thinking_is_closed),
        cmocka_unit_test(closing_words),
        cmocka_unit_test(behind_the_budget),
        cmocka_unit_test(calls_are_forced),
        cmocka_unit_test(strict_calls),
        cmocka_unit_test(odd_values_are_forced),
        cmocka_unit_test(model_reads_along),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
