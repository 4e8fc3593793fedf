#include "text/reply.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/reply_state.h"

int lily_reply_new(lily_reply **out, const lily_reply_options *options, lily_err *e)
{
    lily_reply *r = *out = lily_calloc(1, sizeof *r);
    if (!r) return lily_no_memory(e, sizeof *r, "a reply reader");
    r->calls_allowed = json_array_size(options->tools) > 0;
    r->tools = options->tools;
    r->sink = options->sink;
    r->user = options->user;
    r->state = options->thinking ? IN_THINK : IN_TEXT;
    r->trim_start = options->thinking;
    r->started = r->any_text = options->n_begun > 0;
    for (size_t i = 0; i < options->n_begun; i++) markdown_byte(&r->line, options->begun[i]);
    return LILY_OK;
}

void lily_reply_free(lily_reply *r)
{
    if (!r) return;
    lily_buf_free(&r->in);
    lily_buf_free(&r->out);
    lily_buf_free(&r->space);
    lily_buf_free(&r->name);
    lily_buf_free(&r->keys);
    lily_buf_free(&r->value.text);
    lily_free(r);
}

bool lily_reply_is_reasoning(const lily_reply *r)
{
    return r->state == IN_THINK || r->state == IN_THINK_CALL;
}

size_t lily_reply_calls(const lily_reply *r)
{
    return r->n_calls;
}

static const char *const LETTERS[] = {"<think>", "</think>", "<tool_call>", "</tool_call>"};

const char *reply_letters(unsigned char token)
{
    return LETTERS[token - TOK_THINK];
}

int reply_emit(lily_reply *r, lily_reply_kind kind, const char *text, size_t n, lily_err *e)
{
    TRY(reply_flush(r, e));
    lily_reply_event ev = {.kind = kind, .call = r->call, .text = text, .n = n};
    return r->sink(r->user, &ev, e);
}

int reply_flush(lily_reply *r, lily_err *e)
{
    if (r->out.len == 0) return LILY_OK;
    TRY(lily_buf_ok(&r->out, "a reply", e));
    lily_reply_event ev = {.kind = r->out_kind, .call = r->call, .text = r->out.data, .n = r->out.len};
    int rc = r->sink(r->user, &ev, e);
    lily_buf_clear(&r->out);
    return rc;
}

int reply_say(lily_reply *r, lily_reply_kind kind, const char *text, size_t n, lily_err *e)
{
    if (n == 0) return LILY_OK;
    if (r->out_kind != kind) TRY(reply_flush(r, e));
    r->out_kind = kind;
    r->any_text |= kind == LILY_REPLY_TEXT;
    lily_buf_add(&r->out, text, n);
    return lily_buf_ok(&r->out, "a reply", e);
}

enum reply_look reply_match(const lily_reply *r, size_t from, const char *tag)
{
    size_t n = strlen(tag), have = r->in.len - from;
    if (have >= n) return memcmp(r->in.data + from, tag, n) == 0 ? LOOK_YES : LOOK_NO;
    if (have && memcmp(r->in.data + from, tag, have) != 0) return LOOK_NO;
    return r->final ? LOOK_NO : LOOK_MORE;
}

size_t reply_skip_space(const lily_reply *r, size_t from)
{
    while (from < r->in.len && strchr(" \t\r\n", r->in.data[from]) && r->in.data[from]) from++;
    return from;
}

static int step(lily_reply *r, bool *more, lily_err *e)
{
    switch (r->state) {
    case IN_THINK:
    case IN_TEXT: return reply_step_prose(r, more, e);
    case IN_THINK_CALL: return reply_step_think_call(r, more, e);
    case IN_BODY: return reply_step_body(r, more, e);
    case IN_VALUE: return reply_step_value(r, more, e);
    default: return reply_step_after(r, more, e);
    }
}

int reply_run(lily_reply *r, lily_err *e)
{
    TRY(lily_buf_ok(&r->in, "a reply", e));
    for (bool more = false; r->at < r->in.len && !more;) TRY(step(r, &more, e));
    TRY(reply_flush(r, e));
    lily_buf_drop(&r->in, r->at);
    r->scanned -= r->scanned < r->at ? r->scanned : r->at;
    r->literal_until -= r->literal_until < r->at ? r->literal_until : r->at;
    r->at = 0;
    return LILY_OK;
}

/* Adds ordinary text to `in`, whole characters only; what is no UTF-8 becomes U+FFFD. */
static void take_text(lily_reply *r, const char *bytes, size_t n)
{
    static const char replacement[] = "\xef\xbf\xbd";
    for (size_t i = 0; i < n;) {
        size_t len = r->n_part ? 0 : lily_utf8_length((const unsigned char *)bytes + i, n - i);
        if (len) {
            lily_buf_add(&r->in, bytes + i, len);
            i += len;
            continue;
        }
        bool open;
        r->part[r->n_part++] = (unsigned char)bytes[i++];
        if (lily_utf8_length(r->part, r->n_part)) {
            lily_buf_add(&r->in, r->part, r->n_part);
            r->n_part = 0;
            continue;
        }
        size_t bad = lily_utf8_subpart(r->part, r->n_part, &open);
        if (open) continue;
        lily_buf_add(&r->in, replacement, 3);
        i -= r->n_part - bad;    /* the byte that did not belong is read again */
        r->n_part = 0;
    }
}

static void end_text(lily_reply *r)
{
    if (r->n_part) lily_buf_add(&r->in, "\xef\xbf\xbd", 3);
    r->n_part = 0;
}

int lily_reply_feed(lily_reply *r, const char *bytes, size_t n, bool special, lily_err *e)
{
    unsigned char token = 0;
    if (r->done) return lily_fail(e, LILY_INTERNAL, "the reply is over");
    for (size_t i = 0; special && i < sizeof LETTERS / sizeof *LETTERS; i++)
        if (strlen(LETTERS[i]) == n && memcmp(LETTERS[i], bytes, n) == 0) token = (unsigned char)(TOK_THINK + i);
    if (token) {
        end_text(r);
        lily_buf_putc(&r->in, (char)token);
    } else {
        take_text(r, bytes, n);
    }
    int rc = reply_run(r, e);
    r->done = rc != LILY_OK;
    return rc;
}

int lily_reply_finish(lily_reply *r, bool cut, lily_err *e)
{
    if (r->done) return lily_fail(e, LILY_INTERNAL, "the reply is over");
    r->done = true;
    r->final = true;
    r->cut = cut;
    end_text(r);
    TRY(reply_run(r, e));
    TRY(r->state == IN_BODY || r->state == IN_VALUE ? reply_finish_call(r, e) : reply_finish_prose(r, e));
    return reply_flush(r, e);
}
