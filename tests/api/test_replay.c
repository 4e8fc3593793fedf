/* A reply that comes back as JSON becomes the tokens that were sampled: with the demo model's template and tokenizer,
 * and replies whose tokens are cut as no tokenizer would cut them, one byte each. */
#include "../check.h"

#include <string.h>

#include "api/replay.h"
#include "text/decode.h"

static lily_template *template;
static lily_tokenizer *tokenizer;
static int32_t byte_id[256];

static int load(void **state)
{
    (void)state;
    lily_err e = {0};
    check_ok(lily_template_load(&template, LILY_SOURCE_DIR "/models/demo", &e), &e);
    check_ok(lily_tokenizer_open(&tokenizer, LILY_SOURCE_DIR "/models/demo", &e), &e);
    for (int32_t id = 0; id < lily_tokenizer_n_vocab(tokenizer); id++) {
        size_t n;
        const char *bytes = lily_token_bytes(tokenizer, id, &n);
        if (bytes && n == 1) byte_id[(unsigned char)*bytes] = id;
    }
    return 0;
}

static int unload(void **state)
{
    (void)state;
    lily_template_free(template);
    lily_tokenizer_free(tokenizer);
    return 0;
}

#define NO_THINK "{\"enable_thinking\":false}"
#define PRESERVE "{\"preserve_thinking\":true}"
#define TOOLS                                                                                                   \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":" \
    "{\"x\":{\"type\":\"number\"},\"s\":{\"type\":\"string\"}}}}}]"

/* ---- a conversation with one server ---- */

typedef struct talk {
    lily_replies *replies;
    json_t *messages, *tools;
    lily_chat_prompt prompt;
} talk;

static void open_talk(talk *t)
{
    lily_err e = {0};
    *t = (talk){.messages = json_array(), .tools = json_loads(TOOLS, 0, NULL)};
    check_ok(lily_replies_new(&t->replies, 1 << 20, &e), &e);
}

static void close_talk(talk *t)
{
    json_decref(t->messages);
    json_decref(t->tools);
    lily_replies_free(t->replies);
    lily_chat_prompt_free(&t->prompt);
}

static void add(talk *t, const char *message)
{
    json_t *m = json_loads(message, 0, NULL);
    if (!m) fail_msg("no JSON: %s", message);
    json_array_append_new(t->messages, m);
}

static void render(talk *t, const char *kwargs, bool replay)
{
    lily_err e = {0};
    json_t *k = kwargs ? json_loads(kwargs, 0, NULL) : NULL;
    lily_chat_prompt_free(&t->prompt);
    check_ok(lily_chat_prompt_make(&t->prompt, template, tokenizer, t->messages, t->tools, k, false, &e), &e);
    if (replay) check_ok(lily_replay_prompt(&t->prompt, t->replies, tokenizer, t->messages, &e), &e);
    json_decref(k);
}

static int note(void *user, const lily_answer_event *ev, lily_err *e)
{
    (void)e;
    void **both = user;
    lily_replay_note_event(both[0], ev, both[1]);
    return LILY_OK;
}

/* The model says `text` to the present prompt: a token a byte, but for added tokens.  The state's tokens after it. */
static lily_ids say(talk *t, const char *text, enum lily_end end)
{
    static const char *const added[] = {"</think>", "<tool_call>", "</tool_call>", "<|im_start|>"};
    lily_err e = {0};
    lily_replay_note n;
    lily_answer *a;
    void *both[] = {&n, t->replies};
    lily_ids ids = {0};
    lily_answer_options o = {.tokenizer = tokenizer,
                             .thinking = t->prompt.in_think,
                             .tools = t->tools,
                             .sink = note,
                             .user = both};
    for (size_t i = 0; i < t->prompt.ids.n; i++) check_ok(lily_ids_add(&ids, t->prompt.ids.id[i], &e), &e);
    check_ok(lily_answer_new(&a, &o, &e), &e);
    lily_replay_note_begin(&n, &t->prompt, tokenizer);
    while (*text) {
        size_t len = 1;
        for (size_t i = 0; i < 4; i++)
            if (strncmp(text, added[i], strlen(added[i])) == 0) len = strlen(added[i]);
        int32_t id = len == 1 ? byte_id[(unsigned char)*text] : lily_token_find(tokenizer, text, len);
        lily_event ev = {.kind = LILY_EVENT_TOKEN, .id = id, .bytes = text, .n_bytes = len, .added = len > 1};
        lily_replay_note_token(&n, id);
        check_ok(lily_answer_feed(a, &ev, &e), &e);
        check_ok(lily_ids_add(&ids, id, &e), &e);
        text += len;
    }
    n.ended = end == LILY_END_STOP;
    check_ok(lily_answer_feed(a, &(lily_event){.kind = LILY_EVENT_END, .end = end}, &e), &e);
    lily_answer_free(a);
    lily_replay_note_free(&n);
    return ids;
}

/* How many of the tokens `ids` the present prompt begins with. */
static size_t shared(const talk *t, const lily_ids *ids)
{
    size_t i = 0;
    while (i < ids->n && i < t->prompt.ids.n && ids->id[i] == t->prompt.ids.id[i]) i++;
    return i;
}

/* The marks are where they are without replay, told by the text before them. */
static void check_text(talk *t, const char *kwargs, bool same_text)
{
    lily_err e = {0};
    talk plain = {.messages = t->messages, .tools = t->tools};
    render(&plain, kwargs, false);
    assert_int_equal(plain.prompt.n_marks, t->prompt.n_marks);
    assert_int_equal(plain.prompt.n_turns, t->prompt.n_turns);
    for (uint32_t i = 0; i < t->prompt.n_marks && same_text; i++) {
        lily_buf a = {0}, b = {0};
        check_ok(lily_decode(tokenizer, t->prompt.ids.id, t->prompt.marks[i], false, &a, &e), &e);
        check_ok(lily_decode(tokenizer, plain.prompt.ids.id, plain.prompt.marks[i], false, &b, &e), &e);
        assert_string_equal(lily_buf_str(&a), lily_buf_str(&b));
        lily_buf_free(&a);
        lily_buf_free(&b);
    }
    lily_chat_prompt_free(&plain.prompt);
}

/* user, the reply `said` (given to the client as `message`), user: all that the state has read is read again. */
static void check_whole(const char *kwargs, const char *said, const char *message, bool same_text)
{
    talk t;
    open_talk(&t);
    add(&t, "{\"role\":\"user\",\"content\":\"Hi\"}");
    render(&t, kwargs, true);
    lily_ids ids = say(&t, said, LILY_END_STOP);
    add(&t, message);
    add(&t, "{\"role\":\"tool\",\"content\":\"done\"}");
    render(&t, kwargs, true);
    if (shared(&t, &ids) != ids.n) fail_msg("%zu of %zu tokens of: %s", shared(&t, &ids), ids.n, said);
    assert_int_equal(t.prompt.ids.id[ids.n], lily_token_find(tokenizer, "<|im_end|>", 10));
    check_text(&t, kwargs, same_text);
    lily_ids_free(&ids);
    close_talk(&t);
}

static void test_whole_turns(void **state)
{
    (void)state;
    check_whole(NO_THINK, "Hello there.", "{\"role\":\"assistant\",\"content\":\"Hello there.\"}", true);
    check_whole(NULL, "I think.\n</think>\n\nHello.",
                "{\"role\":\"assistant\",\"content\":\"Hello.\",\"reasoning_content\":\"I think.\"}", true);
    check_whole(PRESERVE, "I think.\n</think>\n\nHello.",
                "{\"role\":\"assistant\",\"content\":\"Hello.\",\"reasoning\":\"I think.\"}", true);
    /* White space that a template does not write. */
    check_whole(PRESERVE, "  I think.</think>Hello.  \n",
                "{\"role\":\"assistant\",\"content\":\"Hello.\",\"reasoning\":\"I think.\"}", false);
    /* A call; arguments in another order, with other spaces, as an object, as a string, 1.0 as 1. */
    static const char call[] = "Now.\n\n<tool_call>\n<function=f>\n<parameter=x>\n 1.0\n</parameter>\n<parameter=s>\na\n</parameter>\n"
                               "</function>\n</tool_call>";
    check_whole(NO_THINK, call,
                "{\"role\":\"assistant\",\"content\":\"Now.\",\"tool_calls\":[{\"id\":\"q\",\"type\":\"function\","
                "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"s\\\":\\\"a\\\",   \\\"x\\\":1}\"}}]}",
                false);
    check_whole(NO_THINK, call,
                "{\"role\":\"assistant\",\"content\":\"Now.\",\"tool_calls\":[{\"type\":\"function\","
                "\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1.0,\"s\":\"a\"}}}]}",
                false);
    /* Slips that the reader mended: what the client got is what counts. */
    check_whole(NO_THINK, "<function=f>\n<parameter=s>\na\n</parameter>\n</function>",
                "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":"
                "{\"name\":\"f\",\"arguments\":\"{\\\"s\\\":\\\"a\\\"}\"}}]}",
                false);
}

/* user, a reply, user: the message differs from what was said, so the prompt is as if nothing had been noted. */
static void check_ordinary(const char *kwargs, const char *said, const char *message)
{
    talk t;
    open_talk(&t);
    add(&t, "{\"role\":\"user\",\"content\":\"Hi\"}");
    render(&t, kwargs, true);
    lily_ids ids = say(&t, said, LILY_END_STOP);
    lily_ids_free(&ids);
    add(&t, message);
    add(&t, "{\"role\":\"user\",\"content\":\"And?\"}");
    render(&t, kwargs, true);
    talk plain = {.messages = t.messages, .tools = t.tools};
    render(&plain, kwargs, false);
    if (t.prompt.ids.n != plain.prompt.ids.n ||
        memcmp(t.prompt.ids.id, plain.prompt.ids.id, t.prompt.ids.n * sizeof(int32_t)) != 0)
        fail_msg("replaced: %s", message);
    lily_chat_prompt_free(&plain.prompt);
    close_talk(&t);
}

static void test_changed_messages(void **state)
{
    (void)state;
    check_ordinary(NO_THINK, "Hello there.", "{\"role\":\"assistant\",\"content\":\"Hello here.\"}");
    check_ordinary(NO_THINK, "Hello there.", "{\"role\":\"assistant\",\"content\":\"\"}");
    check_ordinary(NO_THINK, "Hello there.",
                   "{\"role\":\"assistant\",\"content\":\"Hello there.\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}");
    check_ordinary(PRESERVE, "One.</think>Hello.",
                   "{\"role\":\"assistant\",\"content\":\"Hello.\",\"reasoning_content\":\"Two.\"}");
    check_ordinary(PRESERVE, "One.</think>Hello.", "{\"role\":\"assistant\",\"content\":\"Hello.\"}");
    static const char call[] = "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>";
    check_ordinary(NO_THINK, call,
                   "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
                   "\"arguments\":{\"x\":2}}}]}");
    check_ordinary(NO_THINK, call,
                   "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"g\","
                   "\"arguments\":{\"x\":1}}}]}");
    check_ordinary(NO_THINK, call, "{\"role\":\"assistant\",\"content\":\"\"}");
    /* A token that was chosen and that no client saw. */
    check_ordinary(NO_THINK, "Hello <|im_start|>there.", "{\"role\":\"assistant\",\"content\":\"Hello there.\"}");
}

static void test_other_beginning(void **state)
{
    (void)state;
    talk t;
    open_talk(&t);
    add(&t, "{\"role\":\"user\",\"content\":\"Hi\"}");
    render(&t, NO_THINK, true);
    lily_ids ids = say(&t, "Hello there.", LILY_END_STOP);
    lily_ids_free(&ids);
    json_array_clear(t.messages);
    add(&t, "{\"role\":\"user\",\"content\":\"Hi!\"}");
    add(&t, "{\"role\":\"assistant\",\"content\":\"Hello there.\"}");
    add(&t, "{\"role\":\"user\",\"content\":\"And?\"}");
    render(&t, NO_THINK, true);
    for (size_t i = 0; i < t.prompt.ids.n; i++)
        assert_int_not_equal(t.prompt.ids.id[i], byte_id['H']);    /* "Hello" is one token for everybody else */
    close_talk(&t);
}

/* The thought of an older turn is not rendered: what follows it is what was sampled. */
static void test_hidden_thought(void **state)
{
    (void)state;
    talk t;
    open_talk(&t);
    add(&t, "{\"role\":\"user\",\"content\":\"Hi\"}");
    render(&t, NULL, true);
    uint32_t fork = t.prompt.fork;
    lily_ids ids = say(&t, "I think.\n</think>\n\nHello there.", LILY_END_STOP);
    add(&t, "{\"role\":\"assistant\",\"content\":\"Hello there.\",\"reasoning_content\":\"I think.\"}");
    add(&t, "{\"role\":\"user\",\"content\":\"And?\"}");
    render(&t, NULL, true);
    assert_int_equal(shared(&t, &ids), fork);
    assert_memory_equal(t.prompt.ids.id + fork, ids.id + ids.n - 12, 12 * sizeof(int32_t));
    check_text(&t, NULL, true);
    assert_int_equal(t.prompt.fork, t.prompt.turns[1]);
    /* A client that does not keep thoughts gets the same. */
    size_t n = t.prompt.ids.n;
    json_object_del(json_array_get(t.messages, 1), "reasoning_content");
    render(&t, NULL, true);
    assert_int_equal(t.prompt.ids.n, n);
    lily_ids_free(&ids);
    close_talk(&t);
}

/* A limit ended it: the rendered turn goes on where the sampled tokens end. */
static void check_cut(const char *said, const char *message)
{
    talk t;
    open_talk(&t);
    add(&t, "{\"role\":\"user\",\"content\":\"Hi\"}");
    render(&t, PRESERVE, true);
    lily_ids ids = say(&t, said, LILY_END_LENGTH);
    add(&t, message);
    add(&t, "{\"role\":\"user\",\"content\":\"And?\"}");
    render(&t, PRESERVE, true);
    if (shared(&t, &ids) != ids.n) fail_msg("%zu of %zu tokens of: %s", shared(&t, &ids), ids.n, said);
    check_text(&t, PRESERVE, true);
    lily_ids_free(&ids);
    close_talk(&t);
}

static void test_cut_replies(void **state)
{
    (void)state;
    check_cut("I think.\n</think>\n\nHello th",
              "{\"role\":\"assistant\",\"content\":\"Hello th\",\"reasoning_content\":\"I think.\"}");
    check_cut("I thin", "{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"I thin\"}");
}

static void test_several_turns(void **state)
{
    (void)state;
    talk t;
    lily_ids ids = {0};
    open_talk(&t);
    for (int i = 0; i < 12; i++) {
        add(&t, "{\"role\":\"user\",\"content\":\"Next\"}");
        render(&t, i % 2 ? PRESERVE : "{\"preserve_thinking\":true,\"enable_thinking\":false}", true);
        assert_int_equal(shared(&t, &ids), ids.n);
        lily_ids_free(&ids);
        ids = say(&t, i % 2 ? "So.</think>Good." : "Well.", LILY_END_STOP);
        add(&t, i % 2 ? "{\"role\":\"assistant\",\"content\":\"Good.\",\"reasoning_content\":\"So.\"}"
                      : "{\"role\":\"assistant\",\"content\":\"Well.\"}");
    }
    lily_ids_free(&ids);
    close_talk(&t);
}

/* A store that was read from the disk may hold anything. */
static void test_forged_notes(void **state)
{
    (void)state;
    const int32_t forged[] = {lily_token_find(tokenizer, "<|im_start|>", 12), lily_tokenizer_n_vocab(tokenizer), -1,
                              INT32_MAX};
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        lily_err e = {0};
        talk t;
        open_talk(&t);
        add(&t, "{\"role\":\"user\",\"content\":\"Hi\"}");
        render(&t, NO_THINK, true);
        uint32_t from = t.prompt.turns[0];
        lily_ids turn = {0};
        for (size_t k = from; k < t.prompt.ids.n; k++) check_ok(lily_ids_add(&turn, t.prompt.ids.id[k], &e), &e);
        check_ok(lily_ids_add(&turn, forged[i], &e), &e);
        lily_replied r = {.turn = turn.id, .n_turn = turn.n, .ended = true, .content = "Hello.", .n_content = 6,
                          .reasoning = "", .calls = ""};
        check_ok(lily_replies_add(t.replies, lily_replies_key_add(lily_replies_key_start(), t.prompt.ids.id, from), &r, &e),
                 &e);
        add(&t, "{\"role\":\"assistant\",\"content\":\"Hello.\"}");
        add(&t, "{\"role\":\"user\",\"content\":\"And?\"}");
        render(&t, PRESERVE, true);
        talk plain = {.messages = t.messages, .tools = t.tools};
        render(&plain, PRESERVE, false);
        assert_int_equal(t.prompt.ids.n, plain.prompt.ids.n);
        assert_memory_equal(t.prompt.ids.id, plain.prompt.ids.id, t.prompt.ids.n * sizeof(int32_t));
        lily_chat_prompt_free(&plain.prompt);
        lily_ids_free(&turn);
        close_talk(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_turns),     cmocka_unit_test(test_changed_messages),
        cmocka_unit_test(test_other_beginning), cmocka_unit_test(test_hidden_thought),
        cmocka_unit_test(test_cut_replies),     cmocka_unit_test(test_several_turns),
        cmocka_unit_test(test_forged_notes),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
