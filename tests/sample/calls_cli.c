/* calls_cli - a line of standard input is {"tools": T, "only": NAME or null, "seed": N, "walks": N}; the answer is a
 * line of JSON: for each random walk through the grammar of calls what the reader of replies makes of it,
 * {"text", "name", "arguments"}, or null for a walk that found no end; or {"error": SENTENCE}. */
#include <string.h>

#include "base/buf.h"
#include "base/random.h"
#include "sample/call_grammar.h"
#include "sample/match.h"
#include "text/reply.h"
#include "lines.h"

enum { LONGEST = 6000 };

typedef struct walk {
    lily_matcher *m;
    lily_match at;
    lily_buf text;
    uint64_t seed, n;
} walk;

static uint32_t below(walk *w, uint32_t n)
{
    return (uint32_t)(lily_uniform(w->seed, w->n++) * n);
}

/* Goes on with these bytes if they fit. */
static bool follow(walk *w, const char *bytes, size_t n)
{
    lily_match at = w->at;
    for (size_t i = 0; i < n && at; i++) at = lily_matcher_step(w->m, at, (uint8_t)bytes[i]);
    if (at == LILY_MATCH_NONE) return false;
    w->at = at;
    lily_buf_add(&w->text, bytes, n);
    return true;
}

/* What ends something comes often, or no text would have an end. */
static bool step(walk *w)
{
    static const char *const ends[] = {"\n</parameter>\n", "</function>\n", "\"", "}", "]", ",", "\"\n</parameter>\n"};
    static const char *const odd[] = {"</parameter>", "\n", "<", "\n</", " ", "null", "true", "5", "[", "{", "\xc3\xa9",
                                      "\xf0\x9f\x99\x82", "\\", "\"", "<tool_call>", "</function>"};
    for (int tries = 0; tries < 8; tries++) {
        const char *s = below(w, 3) == 0 ? ends[below(w, sizeof ends / sizeof *ends)] : odd[below(w, sizeof odd / sizeof *odd)];
        if (below(w, 2) == 0 && follow(w, s, strlen(s))) return true;
        char byte = (char)(' ' + below(w, 95));
        if (follow(w, &byte, 1)) return true;
    }
    uint32_t from = below(w, 256);
    for (uint32_t i = 0; i < 256; i++) {
        char byte = (char)((from + i) % 256);
        if (follow(w, &byte, 1)) return true;
    }
    return false;
}

typedef struct call {
    lily_buf name, arguments;
    unsigned ended;
} call;

static int on_event(void *user, const lily_reply_event *ev, lily_err *e)
{
    call *c = user;
    (void)e;
    if (ev->kind == LILY_REPLY_CALL) lily_buf_add(&c->name, ev->text, ev->n);
    if (ev->kind == LILY_REPLY_ARGUMENTS) lily_buf_add(&c->arguments, ev->text, ev->n);
    if (ev->kind == LILY_REPLY_CALL_END) c->ended++;
    return LILY_OK;
}

static int read_call(const json_t *tools, walk *w, call *c, lily_err *e)
{
    lily_reply *r;
    lily_reply_options o = {.tools = tools, .sink = on_event, .user = c};
    TRY(lily_reply_new(&r, &o, e));
    int rc = lily_reply_feed(r, "<tool_call>", strlen("<tool_call>"), true, e);
    for (size_t i = 0; i < w->text.len && rc == LILY_OK;) {
        size_t n = 1 + below(w, 7), left = w->text.len - i;
        rc = lily_reply_feed(r, w->text.data + i, n < left ? n : left, false, e);
        i += n;
    }
    if (rc == LILY_OK) rc = lily_reply_feed(r, "</tool_call>", strlen("</tool_call>"), true, e);
    if (rc == LILY_OK) rc = lily_reply_finish(r, false, e);
    lily_reply_free(r);
    return rc;
}

/* One walk: NULL after a failure. */
static json_t *take(lily_grammar *g, const json_t *tools, uint64_t seed, lily_err *e)
{
    walk w = {.seed = seed};
    call c = {0};
    json_t *out = NULL;
    if (lily_matcher_new(&w.m, g, false, e) != LILY_OK) return NULL;
    w.at = lily_matcher_start(w.m);
    while (w.text.len < LONGEST && !lily_matcher_complete(w.m, w.at) && step(&w)) {
        bool forgotten;
        w.at = lily_matcher_tidy(w.m, w.at, &forgotten);
    }
    if (!lily_matcher_complete(w.m, w.at))
        out = json_null();
    else if (read_call(tools, &w, &c, e) == LILY_OK && c.ended == 1)
        out = json_pack("{s:s%,s:s,s:s}", "text", w.text.data, w.text.len, "name", lily_buf_str(&c.name), "arguments",
                        lily_buf_str(&c.arguments));
    else
        out = json_pack("{s:s%,s:n,s:n}", "text", w.text.data, w.text.len, "name", "arguments");
    lily_buf_free(&c.name);
    lily_buf_free(&c.arguments);
    lily_buf_free(&w.text);
    lily_matcher_free(w.m);
    return out;
}

static json_t *answer(const json_t *in)
{
    lily_err e = {0};
    lily_grammar *g;
    const json_t *tools = json_object_get(in, "tools");
    if (lily_call_grammar(&g, tools, json_string_value(json_object_get(in, "only")), &e) != LILY_OK)
        return json_pack("{s:s}", "error", e.text);
    json_t *out = json_array();
    uint64_t seed = (uint64_t)json_integer_value(json_object_get(in, "seed")) << 20;
    for (json_int_t i = 0; i < json_integer_value(json_object_get(in, "walks")); i++)
        json_array_append_new(out, take(g, tools, seed + (uint64_t)i, &e));
    lily_grammar_let_go(g);
    return out;
}

int main(void) { return answer_lines("calls_cli", answer); }
