/* script_source.c - the sources of a scripted reply, cut into tokens. */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "run/script_file.h"

enum { MAX_TOKENS = 1 << 24 };      /* of a repeat: more than any context */

const char *const lily_script_sources[] = {"text", "pieces", "bytes_hex", "repeat", "logits", NULL};

/* ---- tokens ---- */

int lily_script_cutter_init(lily_script_cutter *c, const lily_tokenizer *t, lily_arena *arena, lily_err *e)
{
    int32_t n_vocab = lily_tokenizer_n_vocab(t);
    size_t n = 0;
    for (int32_t id = 0; id < n_vocab; id++) n += lily_token_is_added(t, id);
    *c = (lily_script_cutter){.tokenizer = t, .arena = arena, .added = lily_arena_calloc(arena, n, sizeof *c->added)};
    if (!c->added) return lily_no_memory(e, n * sizeof *c->added, "added tokens");
    for (int32_t id = 0; id < n_vocab && c->n_added < n; id++) {
        size_t len;
        const char *bytes = lily_token_is_added(t, id) ? lily_token_bytes(t, id, &len) : NULL;
        if (bytes && len) c->added[c->n_added++] = (lily_script_token){id, true, bytes, len};
    }
    return LILY_OK;
}

/* The longest added token at the start of text, or NULL. */
static const lily_script_token *added_at(const lily_script_cutter *c, const char *text, size_t n)
{
    const lily_script_token *best = NULL;
    for (size_t i = 0; i < c->n_added; i++) {
        const lily_script_token *a = &c->added[i];
        if (a->n <= n && memcmp(a->bytes, text, a->n) == 0 && (!best || a->n > best->n)) best = a;
    }
    return best;
}

static void add(lily_buf *tokens, lily_script_token t) { lily_buf_add(tokens, &t, sizeof t); }

/* Ordinary text in tokens of `each` code points; 0: one token. */
static void add_text(lily_buf *tokens, const char *text, size_t n, uint64_t each)
{
    for (size_t at = 0; at < n;) {
        size_t end = each ? at : n;
        for (uint64_t i = 0; i < each && end < n; i++) end += lily_utf8_length((const unsigned char *)text + end, n - end);
        add(tokens, (lily_script_token){-1, false, text + at, end - at});
        at = end;
    }
}

/* A piece that is exactly an added token is that token. */
static void add_piece(const lily_script_cutter *c, lily_buf *tokens, const char *text, size_t n)
{
    const lily_script_token *a = added_at(c, text, n);
    add(tokens, a && a->n == n ? *a : (lily_script_token){-1, false, text, n});
}

static int take_tokens(const lily_script_cutter *c, lily_buf *tokens, lily_script_source *out, lily_err *e)
{
    TRY(lily_buf_ok(tokens, "a scripted reply", e));
    size_t n = tokens->len / sizeof *out->tokens;
    lily_script_token *kept = lily_arena_calloc(c->arena, n, sizeof *kept);
    if (!kept) return lily_no_memory(e, tokens->len, "a scripted reply");
    if (n) memcpy(kept, tokens->data, tokens->len);
    out->tokens = kept;
    out->n_tokens = n;
    out->times_over = 1;
    return LILY_OK;
}

/* A copy in the arena: the JSON goes away. */
static int own_string(const lily_script_cutter *c, const json_t *v, const char **text, size_t *n, lily_err *e)
{
    *n = json_string_length(v);
    *text = lily_arena_strndup(c->arena, json_string_value(v), *n);
    return *text ? LILY_OK : lily_no_memory(e, *n, "a scripted reply");
}

/* ---- text ---- */

/* Real ids, as the tokenizer cuts the text. */
static int tokenize(const lily_script_cutter *c, const char *text, size_t n, lily_buf *tokens, lily_err *e)
{
    lily_ids ids = {0};
    int rc = lily_encode(c->tokenizer, text, n, true, &ids, e);
    for (size_t i = 0; rc == LILY_OK && i < ids.n; i++) {
        lily_script_token t = {.id = ids.id[i], .added = lily_token_is_added(c->tokenizer, ids.id[i])};
        t.bytes = lily_token_bytes(c->tokenizer, t.id, &t.n);
        add(tokens, t);
    }
    lily_ids_free(&ids);
    return rc;
}

static void cut(const lily_script_cutter *c, const char *text, size_t n, uint64_t each, lily_buf *tokens)
{
    size_t plain = 0, at = 0;
    while (at < n) {
        const lily_script_token *a = added_at(c, text + at, n - at);
        if (!a) {
            at++;
            continue;
        }
        add_text(tokens, text + plain, at - plain, each);
        add(tokens, *a);
        plain = at += a->n;
    }
    add_text(tokens, text + plain, n - plain, each);
}

static int text_source(const lily_script_cutter *c, const json_t *v, const json_t *splits, const char *place,
                       lily_buf *tokens, lily_err *e)
{
    const char *text, *how = json_is_string(splits) ? json_string_value(splits) : "";
    size_t n;
    if (!json_is_string(v)) return lily_fail(e, LILY_ARGUMENT, "%s.text: not a string", place);
    TRY(own_string(c, v, &text, &n, e));
    if (strcmp(how, "tokens") == 0) return tokenize(c, text, n, tokens, e);
    uint64_t each = 0;
    if (strcmp(how, "char") == 0)
        each = 1;
    else if (json_is_integer(splits) && json_integer_value(splits) >= 1)
        each = (uint64_t)json_integer_value(splits);
    else if (splits && strcmp(how, "whole") != 0)
        return lily_fail(e, LILY_ARGUMENT, "%s.splits: not \"whole\", \"char\", \"tokens\" or a number from 1", place);
    cut(c, text, n, each, tokens);
    return LILY_OK;
}

/* ---- the others ---- */

static int pieces_source(const lily_script_cutter *c, const json_t *v, const char *place, lily_buf *tokens, lily_err *e)
{
    if (!json_is_array(v)) return lily_fail(e, LILY_ARGUMENT, "%s.pieces: not a list of strings", place);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *text;
        size_t n;
        if (!json_is_string(json_array_get(v, i)))
            return lily_fail(e, LILY_ARGUMENT, "%s.pieces[%zu]: not a string", place, i);
        TRY(own_string(c, json_array_get(v, i), &text, &n, e));
        add_piece(c, tokens, text, n);
    }
    return LILY_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place; false when it is no even number of hexadecimal digits. */
static bool from_hex(char *text, size_t n)
{
    if (n % 2) return false;
    for (size_t i = 0; i < n / 2; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        text[i] = (char)(high << 4 | low);
    }
    return true;
}

static int hex_source(const lily_script_cutter *c, const json_t *v, const char *place, lily_buf *tokens, lily_err *e)
{
    if (!json_is_array(v)) return lily_fail(e, LILY_ARGUMENT, "%s.bytes_hex: not a list of strings", place);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *entry = json_array_get(v, i);
        size_t n = json_string_length(entry);
        char *bytes = json_is_string(entry) ? lily_arena_strndup(c->arena, json_string_value(entry), n) : NULL;
        if (json_is_string(entry) && !bytes) return lily_no_memory(e, n, "a scripted reply");
        if (!bytes || !from_hex(bytes, n))
            return lily_fail(e, LILY_ARGUMENT, "%s.bytes_hex[%zu]: not a string of hexadecimal bytes", place, i);
        add(tokens, (lily_script_token){-1, false, bytes, n / 2});
    }
    return LILY_OK;
}

static int repeat_source(const lily_script_cutter *c, const json_t *v, const char *place, lily_buf *tokens,
                         uint64_t *times, lily_err *e)
{
    const json_t *piece = json_object_get(v, "piece"), *count = json_object_get(v, "count");
    const char *text;
    size_t n;
    if (!json_is_object(v) || json_object_size(v) != 2 || !json_is_string(piece) || !json_is_integer(count))
        return lily_fail(e, LILY_ARGUMENT, "%s.repeat: not an object of \"piece\", a string, and \"count\", a number", place);
    if (json_integer_value(count) < 0 || json_integer_value(count) > MAX_TOKENS)
        return lily_fail(e, LILY_ARGUMENT, "%s.repeat.count: not between 0 and %d", place, MAX_TOKENS);
    TRY(own_string(c, piece, &text, &n, e));
    add_piece(c, tokens, text, n);
    *times = (uint64_t)json_integer_value(count);
    return LILY_OK;
}

static int tokens_source(const lily_script_cutter *c, const json_t *holder, const char *name, const char *place,
                         lily_buf *tokens, uint64_t *times, lily_err *e)
{
    const json_t *v = json_object_get(holder, name);
    if (strcmp(name, "text") == 0) return text_source(c, v, json_object_get(holder, "splits"), place, tokens, e);
    if (strcmp(name, "pieces") == 0) return pieces_source(c, v, place, tokens, e);
    if (strcmp(name, "bytes_hex") == 0) return hex_source(c, v, place, tokens, e);
    return repeat_source(c, v, place, tokens, times, e);
}

/* The model reads real tokens only. */
static int check_real(const lily_script_cutter *c, const json_t *holder, const char *name, const char *place, lily_err *e)
{
    const char *splits = json_string_value(json_object_get(holder, "splits"));
    if (!c->real || (strcmp(name, "text") == 0 && splits && strcmp(splits, "tokens") == 0)) return LILY_OK;
    return lily_fail(e, LILY_ARGUMENT, "%s.%s: with \"model\": true a source is text with splits \"tokens\", or logits",
                     place, name);
}

int lily_script_read_source(const lily_script_cutter *c, const json_t *holder, const char *name, const char *place,
                            lily_script_source *out, lily_err *e)
{
    lily_buf tokens = {0};
    uint64_t times = 1;
    if (strcmp(name, "logits") == 0) return lily_script_read_logits(c, json_object_get(holder, name), place, out, e);
    int rc = tokens_source(c, holder, name, place, &tokens, &times, e);
    if (rc == LILY_OK) rc = check_real(c, holder, name, place, e);
    if (rc == LILY_OK) rc = take_tokens(c, &tokens, out, e);
    out->times_over = times;
    lily_buf_free(&tokens);
    return rc;
}
