#include "text/jinja_text.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

void jinja_out_free(jinja_out *o)
{
    lily_buf_free(&o->text);
    lily_free(o->runs);
    o->runs = NULL;
    o->n_runs = o->cap_runs = 0;
}

void jinja_out_bytes(jinja_out *o, const char *p, size_t n, bool control)
{
    if (n == 0 || o->failed || o->full) return;
    if (n > o->limit - o->text.len) {
        o->full = true;
        return;
    }
    if (o->n_runs == 0 || o->runs[o->n_runs - 1].control != control) {
        if (o->n_runs == o->cap_runs) {
            size_t cap = o->cap_runs ? 2 * o->cap_runs : 8;
            jinja_run *runs = lily_realloc(o->runs, cap, sizeof *runs);
            if (!runs) {
                o->failed = true;
                return;
            }
            o->runs = runs;
            o->cap_runs = cap;
        }
        o->runs[o->n_runs++] = (jinja_run){o->text.len, control};
    }
    lily_buf_add(&o->text, p, n);
    o->failed = o->text.failed;
    if (!o->failed) o->runs[o->n_runs - 1].end = o->text.len;
}

void jinja_out_str(jinja_out *o, const jinja_str *s)
{
    if (!s->runs) jinja_out_bytes(o, s->p, s->n, s->control);
    size_t at = 0;
    for (size_t i = 0; i < s->n_runs; at = s->runs[i++].end)
        jinja_out_bytes(o, s->p + at, s->runs[i].end - at, s->runs[i].control);
}

int jinja_out_ok(jinja_ctx *c, const jinja_out *o)
{
    if (o->failed) return lily_no_memory(c->err, o->text.len, "the rendered prompt");
    if (!o->full) return LILY_OK;
    if (o->is_prompt) return jinja_error(c, LILY_CONTEXT, "the prompt is longer than %zu bytes", o->limit);
    return jinja_error(c, LILY_UNSUPPORTED, "the template takes more memory than any honest one needs");
}

/* Gives s the runs[0 … n) that begin `from` bytes before it and cover it. */
static int set_runs(jinja_ctx *c, jinja_str *s, const jinja_run *runs, size_t n, size_t from)
{
    if (n <= 1) {
        s->control = n == 1 && runs[0].control;
        return LILY_OK;
    }
    jinja_run *copy;
    TRY(jinja_step(c, n * sizeof *copy));
    TRY(jinja_alloc(c, &copy, n, sizeof *copy));
    for (size_t i = 0; i < n; i++) {
        size_t end = runs[i].end - from;
        copy[i] = (jinja_run){end < s->n ? end : s->n, runs[i].control};
    }
    s->runs = copy;
    s->n_runs = n;
    return LILY_OK;
}

int jinja_out_value(jinja_ctx *c, jinja_out *o, jinja_value *out)
{
    int rc = jinja_out_ok(c, o);
    jinja_str *s;
    char *p;
    if (rc == LILY_OK) rc = jinja_alloc(c, &s, 1, sizeof *s);
    if (rc == LILY_OK) rc = jinja_step(c, o->text.len);
    if (rc == LILY_OK) rc = jinja_alloc(c, &p, o->text.len + 1, 1);
    if (rc == LILY_OK) {
        if (o->text.len) memcpy(p, o->text.data, o->text.len);
        *s = (jinja_str){.p = p, .n = o->text.len};
        rc = set_runs(c, s, o->runs, o->n_runs, 0);
        *out = (jinja_value){JINJA_STR, {.s = s}};
    }
    jinja_out_free(o);
    return rc;
}

int jinja_text(jinja_ctx *c, const char *p, size_t n, bool control, bool copy, jinja_value *out)
{
    jinja_str *s;
    TRY(jinja_alloc(c, &s, 1, sizeof *s));
    if (copy) {
        char *own;
        TRY(jinja_alloc(c, &own, n + 1, 1));
        if (n) memcpy(own, p, n);
        p = own;
    }
    *s = (jinja_str){.p = p, .n = n, .control = control};
    *out = (jinja_value){JINJA_STR, {.s = s}};
    return LILY_OK;
}

int jinja_substr(jinja_ctx *c, const jinja_str *s, size_t from, size_t to, jinja_value *out)
{
    if (from == 0 && to == s->n) {
        *out = (jinja_value){JINJA_STR, {.s = s}};
        return LILY_OK;
    }
    jinja_str *part;
    TRY(jinja_alloc(c, &part, 1, sizeof *part));
    *part = (jinja_str){.p = s->p + from, .n = to - from, .control = s->control, .markup = s->markup};
    *out = (jinja_value){JINJA_STR, {.s = part}};
    if (!s->runs || from == to) return LILY_OK;
    size_t first = 0, last;
    while (s->runs[first].end <= from) first++;
    for (last = first; s->runs[last].end < to; last++) continue;
    TRY(jinja_step(c, s->n_runs * sizeof *s->runs));
    return set_runs(c, part, s->runs + first, last - first + 1, from);
}

int jinja_concat(jinja_ctx *c, const jinja_str *const *parts, size_t n, jinja_value *out)
{
    jinja_out o = {.limit = c->arena_limit};
    for (size_t i = 0; i < n; i++) jinja_out_str(&o, parts[i]);
    return jinja_out_value(c, &o, out);
}

/* markupsafe.escape */
static void add_escaped(jinja_out *o, const jinja_str *s)
{
    size_t run = 0;
    for (size_t i = 0; i < s->n; i++) {
        while (s->runs && s->runs[run].end <= i) run++;
        bool control = s->runs ? s->runs[run].control : s->control;
        switch (s->p[i]) {
        case '&': jinja_out_bytes(o, "&amp;", 5, control); break;
        case '<': jinja_out_bytes(o, "&lt;", 4, control); break;
        case '>': jinja_out_bytes(o, "&gt;", 4, control); break;
        case '\'': jinja_out_bytes(o, "&#39;", 5, control); break;
        case '"': jinja_out_bytes(o, "&#34;", 5, control); break;
        default: jinja_out_bytes(o, s->p + i, 1, control);
        }
    }
}

int jinja_add_text(jinja_ctx *c, const jinja_str *a, const jinja_str *b, jinja_value *out)
{
    if (a->markup == b->markup) {
        TRY(jinja_concat(c, (const jinja_str *[]){a, b}, 2, out));
    } else {
        jinja_out o = {.limit = c->arena_limit};
        if (a->markup) jinja_out_str(&o, a);
        else add_escaped(&o, a);
        if (b->markup) jinja_out_str(&o, b);
        else add_escaped(&o, b);
        TRY(jinja_out_value(c, &o, out));
    }
    if (a->markup || b->markup) ((jinja_str *)out->u.s)->markup = true;    /* it is new: nobody else has it */
    return LILY_OK;
}

bool jinja_is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static bool strips(const unsigned char *p, size_t len, const jinja_str *chars)
{
    if (!chars) return jinja_is_space(lily_utf8_decode(p, len));
    for (size_t at = 0; at < chars->n;) {
        size_t l = lily_utf8_length((const unsigned char *)chars->p + at, chars->n - at);
        if (l == len && memcmp(chars->p + at, p, len) == 0) return true;
        at += l;
    }
    return false;
}

void jinja_strip(const jinja_str *s, const jinja_str *chars, int sides, size_t *from, size_t *to)
{
    const unsigned char *p = (const unsigned char *)s->p;
    *from = 0;
    *to = s->n;
    while (sides & JINJA_LEFT && *from < *to) {
        size_t len = lily_utf8_length(p + *from, *to - *from);
        if (!strips(p + *from, len, chars)) break;
        *from += len;
    }
    while (sides & JINJA_RIGHT && *to > *from) {
        size_t at = *to - 1;
        while ((p[at] & 0xc0) == 0x80) at--;
        if (!strips(p + at, *to - at, chars)) break;
        *to = at;
    }
}

size_t jinja_find(const jinja_str *s, const jinja_str *needle, size_t from)
{
    if (needle->n == 0) return from <= s->n ? from : SIZE_MAX;
    if (needle->n > s->n || from > s->n - needle->n) return SIZE_MAX;
    const char *found = memmem(s->p + from, s->n - from, needle->p, needle->n);
    return found ? (size_t)(found - s->p) : SIZE_MAX;
}

size_t jinja_char_count(const jinja_str *s)
{
    size_t count = 0;
    for (size_t i = 0; i < s->n; i++) count += ((unsigned char)s->p[i] & 0xc0) != 0x80;
    return count;
}

size_t jinja_char_at(const jinja_str *s, size_t index)
{
    size_t at = 0;
    while (at < s->n && index > 0) {
        at++;
        while (at < s->n && ((unsigned char)s->p[at] & 0xc0) == 0x80) at++;
        index--;
    }
    return at;
}

static int add_part(jinja_ctx *c, jinja_list *l, const jinja_str *s, size_t from, size_t to)
{
    jinja_value part;
    TRY(jinja_step(c, 0));
    TRY(jinja_substr(c, s, from, to, &part));
    return jinja_list_add(c, l, part);
}

/* str.split() at runs of white space. */
static int split_space(jinja_ctx *c, const jinja_str *s, int64_t max, jinja_list *l)
{
    const unsigned char *p = (const unsigned char *)s->p;
    size_t at = 0;
    for (;;) {
        jinja_str rest = {.p = s->p + at, .n = s->n - at};
        size_t skip, end;
        jinja_strip(&rest, NULL, JINJA_LEFT, &skip, &end);
        at += skip;
        if (at == s->n) return LILY_OK;
        size_t to = at;
        if (max == 0) {    /* the rest is one part, without the white space at its end */
            rest = (jinja_str){.p = s->p + at, .n = s->n - at};
            jinja_strip(&rest, NULL, JINJA_RIGHT, &skip, &end);
            return add_part(c, l, s, at, at + end);
        }
        while (to < s->n) {
            size_t len = lily_utf8_length(p + to, s->n - to);
            if (jinja_is_space(lily_utf8_decode(p + to, len))) break;
            to += len;
        }
        TRY(add_part(c, l, s, at, to));
        at = to;
        max--;
    }
}

int jinja_split(jinja_ctx *c, const jinja_str *s, const jinja_str *sep, int64_t max, jinja_list **out)
{
    TRY(jinja_step(c, s->n));
    TRY(jinja_list_new(c, out));
    if (!sep) return split_space(c, s, max, *out);
    if (sep->n == 0) return jinja_error(c, LILY_ARGUMENT, "split by an empty string");
    size_t at = 0;
    for (; max != 0; max--) {
        size_t hit = jinja_find(s, sep, at);
        if (hit == SIZE_MAX) break;
        TRY(add_part(c, *out, s, at, hit));
        at = hit + sep->n;
    }
    return add_part(c, *out, s, at, s->n);
}

int jinja_replace(jinja_ctx *c, const jinja_str *s, const jinja_str *old, const jinja_str *with, int64_t max,
                  jinja_value *out)
{
    jinja_out o = {.limit = c->arena_limit};
    size_t at = 0;
    int rc = jinja_step(c, s->n);
    while (rc == LILY_OK && max-- != 0 && !o.full && !o.failed) {
        size_t hit = jinja_find(s, old, at);
        if (hit == SIZE_MAX) break;
        jinja_value before;
        /* An empty `old` matches before every character and at the end. */
        size_t step = old->n ? old->n : s->n - hit ? lily_utf8_length((const unsigned char *)s->p + hit, s->n - hit) : 0;
        rc = jinja_step(c, with->n);
        if (rc == LILY_OK) rc = jinja_substr(c, s, at, hit, &before);
        if (rc != LILY_OK) break;
        jinja_out_str(&o, before.u.s);
        jinja_out_str(&o, with);
        at = hit + old->n;
        if (old->n == 0) {
            if (step == 0) break;
            rc = jinja_substr(c, s, hit, hit + step, &before);
            if (rc == LILY_OK) jinja_out_str(&o, before.u.s);
            at = hit + step;
        }
    }
    jinja_value rest;
    if (rc == LILY_OK) rc = jinja_substr(c, s, at, s->n, &rest);
    if (rc == LILY_OK) jinja_out_str(&o, rest.u.s);
    if (rc == LILY_OK) return jinja_out_value(c, &o, out);
    jinja_out_free(&o);
    return rc;
}
