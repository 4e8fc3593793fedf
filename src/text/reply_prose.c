/* reply_prose.c - reasoning and text, up to the tags that end them. */
#include <string.h>

#include "text/reply_state.h"

enum { SPACE_LIMIT = 4096 };    /* more white space than this is no framing */

static lily_reply_kind kind_of(const lily_reply *r)
{
    return r->state == IN_THINK ? LILY_REPLY_REASONING : LILY_REPLY_TEXT;
}

/* One character (or the letters of a token) of reasoning or text. */
static int say_letters(lily_reply *r, const char *s, size_t n, lily_err *e)
{
    for (size_t i = 0; i < n; i++) markdown_byte(&r->line, s[i]);
    bool space = n == 1 && strchr(" \t\r\n", *s) && *s;
    if (space && !r->started && r->trim_start) {
        lily_buf_putc(&r->space, *s);
        if (*s == '\n') lily_buf_clear(&r->space);
        return LILY_OK;
    }
    if (space && r->space.len < SPACE_LIMIT) {
        lily_buf_putc(&r->space, *s);
        return LILY_OK;
    }
    TRY(lily_buf_ok(&r->space, "a reply", e));
    TRY(reply_say(r, kind_of(r), lily_buf_str(&r->space), r->space.len, e));
    lily_buf_clear(&r->space);
    r->started = true;
    r->behind_quoted = false;
    return reply_say(r, kind_of(r), s, n, e);
}

/* The next stretch is reasoning or text; the white space before it was framing. */
static void turn_to(lily_reply *r, enum reply_state state)
{
    r->state = state;
    r->started = false;
    r->trim_start = true;
    r->scanned = r->shown_wrappers = 0;
    r->behind_quoted = false;
    r->line = (markdown){0};
    lily_buf_clear(&r->space);
}

/* The call at `from` opens: inside thinking it is held, elsewhere it begins. */
static int open_call(lily_reply *r, const reply_opening *o, lily_err *e)
{
    if (r->state == IN_THINK) {
        r->state = IN_THINK_CALL;
        r->scanned = o->end;
        r->scanned_call = false;
        return LILY_OK;
    }
    lily_buf_clear(&r->space);
    return reply_begin_call(r, o, e);
}

/* Whether the reply ends inside what would have opened a call.  Such a rest is not shown. */
static bool is_cut_opening(lily_reply *r)
{
    static const size_t enough = sizeof "<function=" - 1;    /* of a bare one: less may be any text */
    reply_opening o;
    if (!r->final || r->state != IN_TEXT) return false;
    r->final = false;
    enum reply_look look = reply_look_call(r, r->at, &o);
    r->final = true;
    bool wrapped = (unsigned char)r->in.data[r->at] == TOK_CALL;
    if (look == LOOK_YES) return o.json && r->cut;
    return look == LOOK_MORE && (wrapped || (r->cut && r->in.len - r->at >= enough));
}

/* A call may open here.  *look is NO when the character is an ordinary one. */
static int try_call(lily_reply *r, enum reply_look *look, lily_err *e)
{
    reply_opening o;
    unsigned char c = (unsigned char)r->in.data[r->at];
    *look = LOOK_NO;
    if (!r->calls_allowed || markdown_is_quoted(&r->line)) return LILY_OK;
    if (c != TOK_CALL && (r->behind_quoted || !markdown_at_line_start(&r->line))) return LILY_OK;
    *look = reply_look_call(r, r->at, &o);
    if (*look == LOOK_YES && !(o.json && r->state == IN_TEXT)) return open_call(r, &o, e);
    if (*look == LOOK_YES) TRY(reply_json_call(r, &o, look, e));
    if (*look == LOOK_NO && is_cut_opening(r)) {
        lily_buf_clear(&r->space);
        r->at = r->in.len;
        *look = LOOK_YES;
    }
    return LILY_OK;
}

/* A wrapper that is quoted, in letters or as the token: what it wraps is quoted too. */
static int show_wrapper(lily_reply *r, enum reply_look *look, lily_err *e)
{
    static const char wrapper[] = "<tool_call>";
    bool token = (unsigned char)r->in.data[r->at] == TOK_CALL;
    *look = LOOK_NO;
    if (!r->calls_allowed || !markdown_is_quoted(&r->line)) return LILY_OK;
    *look = token ? LOOK_YES : reply_match(r, r->at, wrapper);
    if (*look != LOOK_YES) return LILY_OK;
    r->at += token ? 1 : sizeof wrapper - 1;
    r->shown_wrappers += token;
    TRY(say_letters(r, wrapper, sizeof wrapper - 1, e));
    r->behind_quoted = true;
    return LILY_OK;
}

/* Acts on a token; false if it is to be shown as letters. */
static bool take_think_token(lily_reply *r, unsigned char c)
{
    bool thinking = r->state == IN_THINK;
    if (c == TOK_THINK_END) {
        if (thinking) turn_to(r, IN_TEXT);
        else if (markdown_is_quoted(&r->line)) return false;
        else if (!r->started) r->trim_start = true;
        return true;
    }
    if (c == TOK_THINK && thinking) return !r->started;    /* a doubled tag */
    if (c == TOK_THINK && !markdown_is_quoted(&r->line) && markdown_at_line_start(&r->line)) {
        turn_to(r, IN_THINK);
        return true;
    }
    if (c == TOK_CALL_END && r->shown_wrappers) {
        r->shown_wrappers--;
        return false;
    }
    return c == TOK_CALL_END && !thinking && r->calls_allowed && !markdown_is_quoted(&r->line) &&
           markdown_at_line_start(&r->line);
}

int reply_step_prose(lily_reply *r, bool *more, lily_err *e)
{
    enum reply_look look = LOOK_NO;
    unsigned char c = (unsigned char)r->in.data[r->at];
    bool literal = r->at < r->literal_until;
    if (!literal && (c == TOK_CALL || c == '<')) {
        TRY(show_wrapper(r, &look, e));
        if (look == LOOK_NO) TRY(try_call(r, &look, e));
    }
    *more = look == LOOK_MORE;
    if (look != LOOK_NO) return LILY_OK;
    if (c >= TOK_THINK) {
        r->at++;
        if (!literal && take_think_token(r, c)) return LILY_OK;
        return say_letters(r, reply_letters(c), strlen(reply_letters(c)), e);
    }
    size_t n = 1;
    while (r->at + n < r->in.len && ((unsigned char)r->in.data[r->at + n] & 0xc0) == 0x80) n++;
    r->at += n;
    return say_letters(r, r->in.data + r->at - n, n, e);
}

/* The held call was only talked about. */
static void release(lily_reply *r, size_t until)
{
    r->state = IN_THINK;
    r->scanned = 0;
    r->literal_until = until;
}

/* Discards events; remembers whether they were calls and nothing else. */
static int probe_sink(void *user, const lily_reply_event *ev, lily_err *e)
{
    (void)e;
    bool *only_calls = user;
    if (ev->kind != LILY_REPLY_CALL && ev->kind != LILY_REPLY_ARGUMENTS && ev->kind != LILY_REPLY_CALL_END)
        *only_calls = false;
    return LILY_OK;
}

/* Whether what is held is complete calls of declared tools, read as if the thinking were closed. */
static int probe(const lily_reply *r, bool *is_call, lily_err *e)
{
    lily_reply *trial;
    bool only_calls = true;
    lily_reply_options options = {.tools = r->tools, .sink = probe_sink, .user = &only_calls};
    TRY(lily_reply_new(&trial, &options, e));
    lily_buf_add(&trial->in, r->in.data + r->at, r->in.len - r->at);
    trial->final = true;
    int rc = reply_run(trial, e);
    *is_call = only_calls && trial->n_calls > 0 && trial->state == IN_AFTER && trial->closed &&
               reply_is_declared(trial, lily_buf_str(&trial->name), trial->name.len);
    lily_reply_free(trial);
    return rc;
}

int reply_step_think_call(lily_reply *r, bool *more, lily_err *e)
{
    static const char *const closings[] = {"</function>", "</tool_call>"};
    while (r->scanned < r->in.len) {
        unsigned char c = (unsigned char)r->in.data[r->scanned];
        enum reply_look look = LOOK_NO;
        size_t n = 1;
        if (c == TOK_THINK_END) {
            release(r, r->scanned);
            return LILY_OK;
        }
        for (size_t i = 0; c == '<' && i < 2 && look == LOOK_NO; i++) {
            look = reply_match(r, r->scanned, closings[i]);
            n = look == LOOK_YES ? strlen(closings[i]) : 1;
        }
        bool closing = c == TOK_CALL_END || look == LOOK_YES;
        bool opens = c == TOK_CALL;
        if (look == LOOK_NO && c == '<' && r->scanned_call) {
            look = reply_match(r, r->scanned, "<function=");
            opens = look == LOOK_YES;
        }
        if (look == LOOK_MORE) break;
        if (closing) r->scanned_call = true;
        else if (opens) r->scanned_call = false;
        else if (r->scanned_call && reply_skip_space(r, r->scanned) == r->scanned) {
            release(r, r->scanned);
            return LILY_OK;
        }
        r->scanned += n;
    }
    *more = true;
    if (!r->final) return LILY_OK;
    bool is_call = false;
    if (!r->cut) TRY(probe(r, &is_call, e));
    *more = false;
    if (is_call) turn_to(r, IN_TEXT);
    else release(r, r->in.len);
    return LILY_OK;
}

int reply_finish_prose(lily_reply *r, lily_err *e)
{
    if (r->state == IN_AFTER || (r->n_calls && !r->started)) return LILY_OK;
    TRY(lily_buf_ok(&r->space, "a reply", e));
    return reply_say(r, kind_of(r), lily_buf_str(&r->space), r->space.len, e);
}
