/* reply_call.c - tool calls. */
#include <string.h>

#include "text/big_number.h"
#include "text/json_text.h"
#include "text/reply_state.h"

enum { MAX_NAME = 256, MAX_GAP = 1024 };    /* bytes of a name; of white space between tags that belong together */

static const char FUNCTION[] = "<function=", FUNCTION_END[] = "</function>", PARAMETER[] = "<parameter=",
                  PARAMETER_END[] = "</parameter>", WRAPPER[] = "<tool_call>", WRAPPER_END[] = "</tool_call>";

static unsigned char byte_at(const lily_reply *r, size_t at)
{
    return (unsigned char)r->in.data[at];
}

bool reply_is_declared(const lily_reply *r, const char *name, size_t n)
{
    size_t i;
    json_t *tool;
    json_array_foreach (r->tools, i, tool) {
        const json_t *function = json_object_get(tool, "function");
        const json_t *declared = json_object_get(function ? function : tool, "name");
        if (json_is_string(declared) && json_string_length(declared) == n &&
            memcmp(json_string_value(declared), name, n) == 0)
            return true;
    }
    return false;
}

/* "NAME>" from `from`: trimmed of white space and quotation marks. */
static enum reply_look look_name(const lily_reply *r, size_t from, size_t *name, size_t *name_end, size_t *end)
{
    size_t at = from;
    while (at < r->in.len && at - from <= MAX_NAME && byte_at(r, at) != '>')
        if (byte_at(r, at) == '\n' || byte_at(r, at) == '<' || byte_at(r, at) >= TOK_THINK) return LOOK_NO;
        else at++;
    if (at - from > MAX_NAME) return LOOK_NO;
    if (at == r->in.len) return r->final ? LOOK_NO : LOOK_MORE;
    *end = at + 1;
    while (from < at && strchr(" \t\"'", r->in.data[from])) from++;
    while (at > from && strchr(" \t\"'", r->in.data[at - 1])) at--;
    *name = from;
    *name_end = at;
    return at > from ? LOOK_YES : LOOK_NO;
}

static enum reply_look look_function(const lily_reply *r, size_t from, bool wrapped, reply_opening *o)
{
    enum reply_look look = reply_match(r, from, FUNCTION);
    if (look == LOOK_YES) look = look_name(r, from + strlen(FUNCTION), &o->name, &o->name_end, &o->end);
    if (look == LOOK_YES && !wrapped && !reply_is_declared(r, r->in.data + o->name, o->name_end - o->name)) return LOOK_NO;
    return look;
}

enum reply_look reply_look_call(const lily_reply *r, size_t from, reply_opening *o)
{
    bool wrapped = false;
    enum reply_look look = LOOK_NO;
    *o = (reply_opening){0};
    for (;;) {    /* wrappers, doubled ones too */
        if (from == r->in.len) return r->final ? LOOK_NO : LOOK_MORE;
        if (byte_at(r, from) == TOK_CALL) {
            wrapped = true;
            from++;
        } else if ((look = reply_match(r, from, WRAPPER)) == LOOK_YES) {
            from += strlen(WRAPPER);
        } else {
            break;
        }
        size_t next = reply_skip_space(r, from);
        if (next - from > MAX_GAP) return LOOK_NO;
        from = next;
    }
    if (wrapped && byte_at(r, from) == '{') {
        size_t next = reply_skip_space(r, from + 1);
        o->json = true;
        o->end = from;
        if (next == r->in.len) return r->final ? LOOK_NO : LOOK_MORE;
        return byte_at(r, next) == '"' ? LOOK_YES : LOOK_NO;
    }
    if (look == LOOK_MORE) return LOOK_MORE;
    return look_function(r, from, wrapped, o);
}

static int begin_named(lily_reply *r, const char *name, size_t n, lily_err *e)
{
    lily_buf_clear(&r->name);
    lily_buf_clear(&r->keys);
    lily_buf_add(&r->name, name, n);
    TRY(lily_buf_ok(&r->name, "the name of a call", e));
    return reply_emit(r, LILY_REPLY_CALL, lily_buf_str(&r->name), r->name.len, e);
}

int reply_begin_call(lily_reply *r, const reply_opening *o, lily_err *e)
{
    r->at = o->end;
    r->state = IN_BODY;
    return begin_named(r, r->in.data + o->name, o->name_end - o->name, e);
}

static int end_call(lily_reply *r, bool closed, lily_err *e)
{
    TRY(reply_say(r, LILY_REPLY_ARGUMENTS, r->keys.len ? "}" : "{}", r->keys.len ? 1 : 2, e));
    TRY(reply_emit(r, LILY_REPLY_CALL_END, NULL, 0, e));
    r->n_calls++;
    r->call++;
    r->closed = closed;
    r->state = IN_AFTER;
    return LILY_OK;
}

/* The object in[o->end … to) as a call; false if it is none. */
static int take_json(lily_reply *r, const reply_opening *o, size_t to, bool *taken, lily_err *e)
{
    const char *text = r->in.data + o->end;
    size_t n = to - o->end, from, end;
    lily_err scratch;
    json_t *call, *inner = NULL;
    *taken = false;
    if (memchr(text, TOK_CALL, n) || memchr(text, TOK_CALL_END, n) || memchr(text, TOK_THINK, n) ||
        memchr(text, TOK_THINK_END, n) || lily_json_parse_big(&call, text, n, "call", &scratch) != LILY_OK)
        return LILY_OK;
    const json_t *name = json_object_get(call, "name");
    const char *key = json_object_get(call, "arguments") ? "arguments" : "parameters";
    const json_t *arguments = json_object_get(call, key);
    bool object = json_is_object(arguments) && lily_json_member(text, n, key, &from, &end);
    bool string = json_is_string(arguments) &&
                  lily_json_parse_big(&inner, json_string_value(arguments), json_string_length(arguments), "call", &scratch) ==
                      LILY_OK &&
                  json_is_object(inner);
    int rc = LILY_OK;
    if (json_is_string(name) && json_string_length(name) && (object || string || !arguments)) {
        *taken = true;
        lily_buf_clear(&r->space);
        rc = begin_named(r, json_string_value(name), json_string_length(name), e);
        if (rc == LILY_OK && object) rc = reply_say(r, LILY_REPLY_ARGUMENTS, text + from, end - from, e);
        if (rc == LILY_OK && string)
            rc = reply_say(r, LILY_REPLY_ARGUMENTS, json_string_value(arguments), json_string_length(arguments), e);
        if (rc == LILY_OK && !arguments) rc = reply_say(r, LILY_REPLY_ARGUMENTS, "{}", 2, e);
        if (rc == LILY_OK) rc = reply_emit(r, LILY_REPLY_CALL_END, NULL, 0, e);
        r->n_calls++;
        r->call++;
        r->closed = true;
        r->state = IN_AFTER;
        r->at = to;
    }
    json_decref(inner);
    json_decref(call);
    return rc;
}

int reply_json_call(lily_reply *r, const reply_opening *o, enum reply_look *look, lily_err *e)
{
    bool taken = false;
    size_t at = r->scanned > o->end ? r->scanned : o->end;
    for (; at < r->in.len && !taken; at++)
        if (byte_at(r, at) == TOK_CALL_END) TRY(take_json(r, o, at, &taken, e));
    if (!taken && r->final) TRY(take_json(r, o, r->in.len, &taken, e));
    r->scanned = taken ? 0 : at;
    *look = taken ? LOOK_YES : r->final ? LOOK_NO : LOOK_MORE;
    return LILY_OK;
}

static bool has_key(const lily_reply *r, const char *key)
{
    for (size_t at = 0; at < r->keys.len; at += strlen(r->keys.data + at) + 1)
        if (strcmp(r->keys.data + at, key) == 0) return true;
    return false;
}

/* A parameter begins: ', "KEY": ' */
static int begin_value(lily_reply *r, const char *name, size_t n, size_t end, lily_err *e)
{
    char key[MAX_NAME + 1];
    lily_buf json = {0};
    memcpy(key, name, n);
    key[n] = 0;
    r->at = end;
    r->state = IN_VALUE;
    r->own_line = false;
    r->value_empty = true;
    r->skip_value = has_key(r, key) || strlen(key) != n;
    reply_value_begin(&r->value, reply_types_of(r->tools, lily_buf_str(&r->name), key));
    if (r->skip_value) return LILY_OK;
    lily_buf_puts(&json, r->keys.len ? ", \"" : "{\"");
    lily_json_escape(&json, key, n);
    lily_buf_puts(&json, "\": ");
    lily_buf_add(&r->keys, key, n + 1);
    int rc = lily_buf_ok(&json, "the arguments of a call", e);
    if (rc == LILY_OK) rc = lily_buf_ok(&r->keys, "the arguments of a call", e);
    if (rc == LILY_OK) rc = reply_say(r, LILY_REPLY_ARGUMENTS, json.data, json.len, e);
    lily_buf_free(&json);
    return rc;
}

/* A tag between parameters; NO if it is none. */
static int step_tag(lily_reply *r, enum reply_look *look, lily_err *e)
{
    size_t name, name_end, end;
    reply_opening o;
    bool more = false;
    *look = reply_match(r, r->at, PARAMETER);
    if (*look == LOOK_YES) {
        *look = look_name(r, r->at + strlen(PARAMETER), &name, &name_end, &end);
        if (*look != LOOK_YES) return LILY_OK;
        return begin_value(r, r->in.data + name, name_end - name, end, e);
    }
    more |= *look == LOOK_MORE;
    *look = reply_match(r, r->at, FUNCTION_END);
    if (*look == LOOK_YES) {
        r->at += strlen(FUNCTION_END);
        return end_call(r, true, e);
    }
    more |= *look == LOOK_MORE;
    *look = look_function(r, r->at, false, &o);
    if (*look == LOOK_YES) {    /* doubled, or the end of this one is missing */
        bool doubled = r->keys.len == 0 && o.name_end - o.name == r->name.len &&
                       memcmp(r->in.data + o.name, r->name.data, r->name.len) == 0;
        if (!doubled) return end_call(r, false, e);
        r->at = o.end;
        return LILY_OK;
    }
    more |= *look == LOOK_MORE;
    if (more) *look = LOOK_MORE;
    return LILY_OK;
}

int reply_step_body(lily_reply *r, bool *more, lily_err *e)
{
    enum reply_look look = LOOK_NO;
    unsigned char c = byte_at(r, r->at);
    if (c == TOK_CALL || c == TOK_CALL_END) return end_call(r, c == TOK_CALL_END, e);
    if (c == '<') TRY(step_tag(r, &look, e));
    *more = look == LOOK_MORE;
    if (look == LOOK_NO) r->at++;    /* white space, an orphaned closing tag, or a slip */
    return LILY_OK;
}

/* Whether nothing but closing tags and white space comes from `at` to the end of the reply. */
static enum reply_look look_closings(const lily_reply *r, size_t at)
{
    const char *const closings[] = {FUNCTION_END, WRAPPER_END, PARAMETER_END};
    for (;;) {
        at = reply_skip_space(r, at);
        if (at == r->in.len) return r->final && !r->cut ? LOOK_YES : r->final ? LOOK_NO : LOOK_MORE;
        if (byte_at(r, at) == TOK_CALL_END) {
            at++;
            continue;
        }
        enum reply_look look = LOOK_NO;
        for (size_t i = 0; i < 3 && look == LOOK_NO; i++) {
            look = reply_match(r, at, closings[i]);
            if (look == LOOK_YES) at += strlen(closings[i]);
        }
        if (look != LOOK_YES) return look;
    }
}

/* Whether the closing tag of a parameter that ends at `at` is followed by what may follow it. */
static enum reply_look look_behind_value(const lily_reply *r, size_t at)
{
    size_t next = reply_skip_space(r, at);
    if (next - at > MAX_GAP) return LOOK_NO;
    if (next == r->in.len) return r->final ? LOOK_YES : LOOK_MORE;
    if (byte_at(r, next) == TOK_CALL_END || byte_at(r, next) == TOK_CALL) return LOOK_YES;
    enum reply_look a = reply_match(r, next, PARAMETER), b = reply_match(r, next, FUNCTION_END);
    if (a == LOOK_YES || b == LOOK_YES) return LOOK_YES;
    return a == LOOK_MORE || b == LOOK_MORE ? LOOK_MORE : LOOK_NO;
}

/* Whether the value ends at in[at]; *next is then where reading goes on.  A value ends at a closing tag on
 * its own line (or anywhere, if it began on the line of its opening tag) that another parameter or the end
 * of the function follows; or where nothing but closing tags follows to the end of the reply. */
static enum reply_look look_value_end(const lily_reply *r, size_t at, size_t *next)
{
    bool newline = byte_at(r, at) == '\n';
    bool fits = newline || !r->own_line || r->value_empty;
    size_t tag = at + newline;
    if (tag == r->in.len) return r->final ? LOOK_NO : LOOK_MORE;
    unsigned char c = byte_at(r, tag);
    if (c != '<' && c != TOK_CALL_END) return LOOK_NO;
    enum reply_look look = c == '<' ? reply_match(r, tag, PARAMETER_END) : LOOK_NO;
    if (look == LOOK_MORE) return LOOK_MORE;
    bool closed = look == LOOK_YES;
    if (closed && fits) {
        *next = tag + strlen(PARAMETER_END);
        look = look_behind_value(r, *next);
        if (look != LOOK_NO) return look;
    }
    if (!fits && !closed) return LOOK_NO;
    *next = closed ? tag + strlen(PARAMETER_END) : tag;
    return look_closings(r, tag);
}

static int add_to_value(lily_reply *r, const char *text, size_t n, lily_err *e)
{
    lily_buf json = {0};
    r->value_empty = false;
    if (r->skip_value) return LILY_OK;
    reply_value_add(&r->value, text, n, &json);
    int rc = lily_buf_ok(&json, "the arguments of a call", e);
    if (rc == LILY_OK) rc = reply_say(r, LILY_REPLY_ARGUMENTS, lily_buf_str(&json), json.len, e);
    lily_buf_free(&json);
    return rc;
}

static int end_value(lily_reply *r, lily_err *e)
{
    lily_buf json = {0};
    r->state = IN_BODY;
    if (r->skip_value) return LILY_OK;
    int rc = reply_value_end(&r->value, &json, e);
    if (rc == LILY_OK) rc = lily_buf_ok(&json, "the arguments of a call", e);
    if (rc == LILY_OK) rc = reply_say(r, LILY_REPLY_ARGUMENTS, lily_buf_str(&json), json.len, e);
    lily_buf_free(&json);
    return rc;
}

int reply_step_value(lily_reply *r, bool *more, lily_err *e)
{
    size_t next, at = r->at;
    if (r->value_empty && !r->own_line && byte_at(r, at) == '\n') {
        r->own_line = true;
        r->at++;
        return LILY_OK;
    }
    while (at < r->in.len && byte_at(r, at) != '\n' && byte_at(r, at) != '<' && byte_at(r, at) < TOK_THINK) at++;
    if (at > r->at) {
        size_t from = r->at;
        r->at = at;
        return add_to_value(r, r->in.data + from, at - from, e);
    }
    enum reply_look look = look_value_end(r, at, &next);
    *more = look == LOOK_MORE;
    if (look == LOOK_MORE) return LILY_OK;
    if (look == LOOK_YES) {
        r->at = next;
        return end_value(r, e);
    }
    r->at++;
    if (byte_at(r, at) < TOK_THINK) return add_to_value(r, r->in.data + at, 1, e);
    const char *letters = reply_letters(byte_at(r, at));
    return add_to_value(r, letters, strlen(letters), e);
}

int reply_step_after(lily_reply *r, bool *more, lily_err *e)
{
    const char *const closings[] = {WRAPPER_END, FUNCTION_END, PARAMETER_END};
    unsigned char c = byte_at(r, r->at);
    (void)e;
    if (c == TOK_CALL_END) {
        lily_buf_clear(&r->space);
        r->at++;
        return LILY_OK;
    }
    if (reply_skip_space(r, r->at) > r->at) {
        lily_buf_putc(&r->space, (char)c);
        r->at++;
        return LILY_OK;
    }
    for (size_t i = 0; c == '<' && i < 3; i++) {
        enum reply_look look = reply_match(r, r->at, closings[i]);
        *more |= look == LOOK_MORE;
        if (look == LOOK_YES) {
            lily_buf_clear(&r->space);
            r->at += strlen(closings[i]);
        }
        if (look != LOOK_NO) return LILY_OK;
    }
    r->state = IN_TEXT;
    r->started = false;
    r->trim_start = true;
    r->line = (markdown){0};
    if (!r->any_text) lily_buf_clear(&r->space);
    return LILY_OK;
}

int reply_finish_call(lily_reply *r, lily_err *e)
{
    /* Between parameters everything that came is complete; only the closing tags are missing. */
    if (r->state == IN_BODY && !r->cut) return end_call(r, false, e);
    return reply_emit(r, LILY_REPLY_CALL_CUT, NULL, 0, e);
}
