/* jinja_repr.c - values as text: str(), repr() and json.dumps() as Python writes them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/jinja_text.h"
#include "text/json_text.h"

size_t jinja_float_repr(double f, char out[32])
{
    char digits[32];
    int precision = 1, power;
    for (; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision - 1, f);
        if (strtod(digits, NULL) == f) break;
    }
    /* digits is "-d.ddde±xx"; Python writes an exponent below 1e-4 and from 1e16. */
    power = atoi(strchr(digits, 'e') + 1);
    if (power >= -4 && power < 16) {
        int decimals = precision - 1 - power;
        return (size_t)snprintf(out, 32, "%.*f", decimals > 1 ? decimals : 1, f);
    }
    return (size_t)snprintf(out, 32, "%s", digits);
}

static void add_data(jinja_out *o, const char *p, size_t n)
{
    jinja_out_bytes(o, p, n, false);
}

static void add_scalar(jinja_out *o, const jinja_value *v)
{
    char text[32];
    size_t n = 0;
    if (v->kind == JINJA_INT) n = (size_t)snprintf(text, sizeof text, "%lld", (long long)v->u.i);
    else if (v->kind == JINJA_FLOAT) n = jinja_float_repr(v->u.f, text);
    else if (v->kind == JINJA_BOOL) n = (size_t)snprintf(text, sizeof text, "%s", v->u.b ? "True" : "False");
    else if (v->kind == JINJA_NONE) n = (size_t)snprintf(text, sizeof text, "None");
    add_data(o, text, n);
}

/* str.isprintable() of one character. */
static bool is_printable(uint32_t cp)
{
    utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)cp);
    return cp == ' ' || !(cat == UTF8PROC_CATEGORY_CC || cat == UTF8PROC_CATEGORY_CF || cat == UTF8PROC_CATEGORY_CS ||
                          cat == UTF8PROC_CATEGORY_CO || cat == UTF8PROC_CATEGORY_CN || cat == UTF8PROC_CATEGORY_ZL ||
                          cat == UTF8PROC_CATEGORY_ZP || cat == UTF8PROC_CATEGORY_ZS);
}

/* repr() of a string: single quotes unless only those occur in it. */
static void repr_text(jinja_out *o, const jinja_str *s)
{
    char quote = s->n && memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? '"' : '\'';
    char text[16];
    add_data(o, &quote, 1);
    for (size_t at = 0; at < s->n;) {
        size_t len = lily_utf8_length((const unsigned char *)s->p + at, s->n - at), n = 0;
        uint32_t cp = lily_utf8_decode((const unsigned char *)s->p + at, len);
        if (cp == (uint32_t)quote || cp == '\\') n = (size_t)snprintf(text, sizeof text, "\\%c", (int)cp);
        else if (cp == '\n') n = (size_t)snprintf(text, sizeof text, "\\n");
        else if (cp == '\r') n = (size_t)snprintf(text, sizeof text, "\\r");
        else if (cp == '\t') n = (size_t)snprintf(text, sizeof text, "\\t");
        else if (is_printable(cp)) add_data(o, s->p + at, len);
        else if (cp < 0x100) n = (size_t)snprintf(text, sizeof text, "\\x%02x", (unsigned)cp);
        else if (cp < 0x10000) n = (size_t)snprintf(text, sizeof text, "\\u%04x", (unsigned)cp);
        else n = (size_t)snprintf(text, sizeof text, "\\U%08x", (unsigned)cp);
        add_data(o, text, n);
        at += len;
    }
    add_data(o, &quote, 1);
}

static int repr(jinja_ctx *c, jinja_out *o, const jinja_value *v);

static int repr_list(jinja_ctx *c, jinja_out *o, const jinja_list *l)
{
    if (l->view) return jinja_error(c, LILY_UNSUPPORTED, "a view of a dict has no text");
    add_data(o, l->tuple ? "(" : "[", 1);
    for (size_t i = 0; i < l->n; i++) {
        if (i) add_data(o, ", ", 2);
        TRY(repr(c, o, &l->items[i]));
    }
    if (l->tuple && l->n == 1) add_data(o, ",", 1);
    add_data(o, l->tuple ? ")" : "]", 1);
    return LILY_OK;
}

static int repr_dict(jinja_ctx *c, jinja_out *o, const jinja_dict *d)
{
    add_data(o, "{", 1);
    for (size_t i = 0; i < d->n; i++) {
        if (i) add_data(o, ", ", 2);
        TRY(repr(c, o, &d->keys[i]));
        add_data(o, ": ", 2);
        TRY(repr(c, o, &d->values[i]));
    }
    add_data(o, "}", 1);
    return LILY_OK;
}

static int repr(jinja_ctx *c, jinja_out *o, const jinja_value *v)
{
    int rc = LILY_OK;
    TRY(jinja_step(c, v->kind == JINJA_STR ? 4 * v->u.s->n : 0));
    TRY(jinja_out_ok(c, o));
    TRY(jinja_enter(c));
    switch (v->kind) {
    case JINJA_UNDEFINED: add_data(o, "Undefined", 9); break;
    case JINJA_STR: repr_text(o, v->u.s); break;
    case JINJA_NUMBER_TEXT: jinja_out_str(o, v->u.s); break;
    case JINJA_LIST: rc = repr_list(c, o, v->u.list); break;
    case JINJA_DICT: rc = repr_dict(c, o, v->u.dict); break;
    case JINJA_NAMESPACE:
    case JINJA_LOOP:
    case JINJA_MACRO:
    case JINJA_FUNCTION:
    case JINJA_METHOD: rc = jinja_error(c, LILY_UNSUPPORTED, "a %s has no text", jinja_type_name(v)); break;
    default: add_scalar(o, v);
    }
    c->depth--;
    return rc;
}

int jinja_str_of(jinja_ctx *c, const jinja_value *v, const jinja_str **out)
{
    jinja_value text;
    static const jinja_str empty = {.p = ""};
    if (v->kind == JINJA_STR || v->kind == JINJA_UNDEFINED) {
        *out = v->kind == JINJA_STR ? v->u.s : &empty;
        return LILY_OK;
    }
    jinja_out o = {.limit = c->arena_limit};
    int rc = repr(c, &o, v);
    if (rc == LILY_OK) rc = jinja_out_value(c, &o, &text);
    else jinja_out_free(&o);
    if (rc == LILY_OK) *out = text.u.s;
    return rc;
}

typedef struct dumper {
    jinja_ctx *c;
    jinja_out *o;
    lily_buf escaped;
    int indent;
} dumper;

static int dump(dumper *d, const jinja_value *v, int level);

static void dump_text(dumper *d, const jinja_str *s)
{
    lily_buf_clear(&d->escaped);
    lily_json_escape(&d->escaped, s->p, s->n);
    d->o->failed |= d->escaped.failed;
    add_data(d->o, "\"", 1);
    add_data(d->o, lily_buf_str(&d->escaped), d->escaped.len);
    add_data(d->o, "\"", 1);
}

/* What stands before item i, or before the closing bracket (last). */
static int dump_break(dumper *d, size_t i, bool last, int level)
{
    if (i && !last) add_data(d->o, d->indent < 0 ? ", " : ",", d->indent < 0 ? 2 : 1);
    if (d->indent < 0) return LILY_OK;
    add_data(d->o, "\n", 1);
    TRY(jinja_step(d->c, (size_t)level));
    for (int k = 0; k < level * d->indent; k++) add_data(d->o, " ", 1);
    return LILY_OK;
}

static int dump_list(dumper *d, const jinja_list *l, int level)
{
    if (l->view) return jinja_error(d->c, LILY_ARGUMENT, "a view of a dict cannot be written as JSON");
    add_data(d->o, "[", 1);
    for (size_t i = 0; i < l->n; i++) {
        TRY(dump_break(d, i, false, level + 1));
        TRY(dump(d, &l->items[i], level + 1));
    }
    if (l->n) TRY(dump_break(d, l->n, true, level));
    add_data(d->o, "]", 1);
    return LILY_OK;
}

/* Keys that are no strings become strings, as json.dumps has them. */
static int dump_key(dumper *d, const jinja_value *key)
{
    if (key->kind == JINJA_STR) {
        dump_text(d, key->u.s);
        return LILY_OK;
    }
    if (key->kind != JINJA_BOOL && key->kind != JINJA_INT && key->kind != JINJA_FLOAT && key->kind != JINJA_NONE)
        return jinja_error(d->c, LILY_ARGUMENT, "a %s is no key of a JSON object", jinja_type_name(key));
    add_data(d->o, "\"", 1);
    TRY(dump(d, key, 0));
    add_data(d->o, "\"", 1);
    return LILY_OK;
}

static int dump_dict(dumper *d, const jinja_dict *dict, int level)
{
    add_data(d->o, "{", 1);
    for (size_t i = 0; i < dict->n; i++) {
        TRY(dump_break(d, i, false, level + 1));
        TRY(dump_key(d, &dict->keys[i]));
        add_data(d->o, ": ", 2);
        TRY(dump(d, &dict->values[i], level + 1));
    }
    if (dict->n) TRY(dump_break(d, dict->n, true, level));
    add_data(d->o, "}", 1);
    return LILY_OK;
}

static int dump(dumper *d, const jinja_value *v, int level)
{
    int rc = LILY_OK;
    TRY(jinja_step(d->c, v->kind == JINJA_STR ? v->u.s->n : 0));
    TRY(jinja_out_ok(d->c, d->o));
    TRY(jinja_enter(d->c));
    switch (v->kind) {
    case JINJA_NONE: add_data(d->o, "null", 4); break;
    case JINJA_BOOL: add_data(d->o, v->u.b ? "true" : "false", v->u.b ? 4 : 5); break;
    case JINJA_INT:
    case JINJA_FLOAT: add_scalar(d->o, v); break;
    case JINJA_NUMBER_TEXT: jinja_out_str(d->o, v->u.s); break;
    case JINJA_STR: dump_text(d, v->u.s); break;
    case JINJA_LIST: rc = dump_list(d, v->u.list, level); break;
    case JINJA_DICT: rc = dump_dict(d, v->u.dict, level); break;
    default: rc = jinja_error(d->c, LILY_ARGUMENT, "a %s cannot be written as JSON", jinja_type_name(v));
    }
    d->c->depth--;
    return rc;
}

int jinja_json_of(jinja_ctx *c, const jinja_value *v, int indent, jinja_value *out)
{
    jinja_out o = {.limit = c->arena_limit};
    dumper d = {.c = c, .o = &o, .indent = indent};
    int rc = dump(&d, v, 0);
    lily_buf_free(&d.escaped);
    if (rc == LILY_OK) return jinja_out_value(c, &o, out);
    jinja_out_free(&o);
    return rc;
}
