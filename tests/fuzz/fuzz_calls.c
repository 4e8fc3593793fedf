/* fuzz_calls.c - a list of tools, a NUL, then bytes that choose a way through the grammar of their calls.  What is refused
 * must say why; a way can always go on until it is complete; what is complete is read as one call with an object of
 * arguments. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "sample/call_grammar.h"
#include "sample/match.h"
#include "text/big_number.h"
#include "text/reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct call {
    lily_buf arguments;
    unsigned ended;
} call;

static int on_event(void *user, const lily_reply_event *ev, lily_err *e)
{
    call *c = user;
    (void)e;
    if (ev->kind == LILY_REPLY_ARGUMENTS) lily_buf_add(&c->arguments, ev->text, ev->n);
    if (ev->kind == LILY_REPLY_CALL_END) c->ended++;
    return LILY_OK;
}

static void must(bool holds)
{
    if (!holds) abort();
}

static void read_call(const json_t *tools, const lily_buf *text)
{
    lily_err e;
    lily_reply *r;
    call c = {0};
    json_t *arguments = NULL;
    lily_reply_options o = {.tools = tools, .sink = on_event, .user = &c};
    must(lily_reply_new(&r, &o, &e) == LILY_OK);
    must(lily_reply_feed(r, "<tool_call>", strlen("<tool_call>"), true, &e) == LILY_OK);
    must(lily_reply_feed(r, text->data, text->len, false, &e) == LILY_OK);
    must(lily_reply_feed(r, "</tool_call>", strlen("</tool_call>"), true, &e) == LILY_OK);
    must(lily_reply_finish(r, false, &e) == LILY_OK);
    must(c.ended == 1);
    must(lily_json_parse_big(&arguments, c.arguments.data, c.arguments.len, "arguments", &e) == LILY_OK);
    must(json_is_object(arguments));
    json_decref(arguments);
    lily_reply_free(r);
    lily_buf_free(&c.arguments);
}

/* The choice-th of the bytes that fit; -1: none does. */
static int fitting(lily_matcher *m, lily_match at, uint8_t choice)
{
    int list[256], n = 0;
    for (int b = 0; b < 256; b++)
        if (lily_matcher_step(m, at, (uint8_t)b) != LILY_MATCH_NONE) list[n++] = b;
    return n ? list[choice % n] : -1;
}

static void walk(lily_grammar *g, const json_t *tools, const uint8_t *choices, size_t n)
{
    lily_matcher *m;
    lily_err e;
    lily_buf text = {0};
    bool forgotten;
    if (lily_matcher_new(&m, g, false, &e) != LILY_OK) return;
    lily_match at = lily_matcher_start(m);
    for (size_t i = 0; !lily_matcher_complete(m, at);) {
        int byte = fitting(m, at, i < n ? choices[i] : 0);
        if (byte < 0 || lily_matcher_ok(m, &e) != LILY_OK) break;
        lily_buf_putc(&text, (char)byte);
        at = lily_matcher_tidy(m, lily_matcher_step(m, at, (uint8_t)byte), &forgotten);
        /* What is certain takes no choice, so that few bytes reach far. */
        i += fitting(m, at, 0) != fitting(m, at, 1);
        if (i > n || text.len > 4096) break;
    }
    bool ok = lily_matcher_ok(m, &e) == LILY_OK;
    if (ok && lily_matcher_complete(m, at)) read_call(tools, &text);
    must(!ok || lily_matcher_complete(m, at) || fitting(m, at, 0) >= 0);
    lily_buf_free(&text);
    lily_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lily_err e = {0};
    json_t *tools;
    lily_grammar *g;
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    if (lily_json_parse_big(&tools, (const char *)data, n, "the tools", &e) != LILY_OK) return 0;
    int rc = lily_call_grammar(&g, tools, NULL, &e);
    if (rc == LILY_OK) {
        if (end) walk(g, tools, end + 1, size - n - 1);
        lily_grammar_let_go(g);
    } else {
        must((rc == LILY_ARGUMENT || rc == LILY_UNSUPPORTED) && strncmp(e.text, "tool", 4) == 0);
    }
    json_decref(tools);
    return 0;
}
