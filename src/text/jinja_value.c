#include "text/jinja_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/big_number.h"
#include "text/jinja_text.h"

int jinja_error(jinja_ctx *c, int code, const char *fmt, ...)
{
    char text[LILY_ERR_TEXT / 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return lily_fail(c->err, code, "%s: line %d: %s", c->name, c->line, text);
}

int jinja_step(jinja_ctx *c, size_t bytes)
{
    c->steps_left -= 1 + (int64_t)(bytes / 256);
    if (c->steps_left >= 0) return LILY_OK;
    return jinja_error(c, LILY_UNSUPPORTED, "the template takes more steps than any honest one needs");
}

int jinja_enter(jinja_ctx *c)
{
    if (c->depth >= JINJA_MAX_DEPTH) return jinja_error(c, LILY_UNSUPPORTED, "nested too deeply");
    c->depth++;
    return LILY_OK;
}

int jinja_alloc(jinja_ctx *c, void *out, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || c->arena.total > c->arena_limit ||
        bytes > c->arena_limit - c->arena.total)
        return jinja_error(c, LILY_UNSUPPORTED, "the template takes more memory than any honest one needs");
    void *p = lily_arena_calloc(&c->arena, n, size);
    if (!p) return lily_no_memory(c->err, bytes, "the chat template");
    memcpy(out, &p, sizeof p);
    return LILY_OK;
}

int jinja_list_new(jinja_ctx *c, jinja_list **out)
{
    return jinja_alloc(c, out, 1, sizeof **out);
}

int jinja_list_add(jinja_ctx *c, jinja_list *l, jinja_value v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 4;
        jinja_value *items;
        TRY(jinja_alloc(c, &items, cap, sizeof *items));
        if (l->n) memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = v;
    return LILY_OK;
}

int jinja_dict_new(jinja_ctx *c, jinja_dict **out)
{
    return jinja_alloc(c, out, 1, sizeof **out);
}

int jinja_dict_add(jinja_ctx *c, jinja_dict *d, jinja_value key, jinja_value v)
{
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 4;
        jinja_value *items;
        TRY(jinja_alloc(c, &items, cap, 2 * sizeof *items));
        if (d->n) {
            memcpy(items, d->keys, d->n * sizeof *items);
            memcpy(items + cap, d->values, d->n * sizeof *items);
        }
        d->keys = items;
        d->values = items + cap;
        d->cap = cap;
    }
    d->keys[d->n] = key;
    d->values[d->n++] = v;
    return LILY_OK;
}

int jinja_dict_set(jinja_ctx *c, jinja_dict *d, jinja_value key, jinja_value v)
{
    const jinja_value *old;
    TRY(jinja_dict_find(c, d, &key, &old));
    if (!old) return jinja_dict_add(c, d, key, v);
    d->values[old - d->values] = v;
    return LILY_OK;
}

const jinja_value *jinja_dict_get(const jinja_dict *d, const char *key, size_t n)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->keys[i].kind == JINJA_STR && d->keys[i].u.s->n == n && memcmp(d->keys[i].u.s->p, key, n) == 0)
            return &d->values[i];
    return NULL;
}

int jinja_dict_find(jinja_ctx *c, const jinja_dict *d, const jinja_value *key, const jinja_value **out)
{
    *out = NULL;
    if (key->kind == JINJA_LIST || key->kind == JINJA_DICT)
        return jinja_error(c, LILY_ARGUMENT, "a %s cannot be a key", jinja_type_name(key));
    TRY(jinja_step(c, d->n * 16));
    for (size_t i = 0; i < d->n && !*out; i++) {
        bool same;
        TRY(jinja_equal(c, &d->keys[i], key, &same));
        if (same) *out = &d->values[i];
    }
    return LILY_OK;
}

static int dict_from_json(jinja_ctx *c, const json_t *j, jinja_value *out)
{
    const char *key;
    json_t *item;
    jinja_dict *d;
    TRY(jinja_dict_new(c, &d));
    json_object_foreach ((json_t *)j, key, item) {
        jinja_value k, v;
        TRY(jinja_text(c, key, strlen(key), false, false, &k));
        TRY(jinja_from_json(c, item, &v));
        TRY(jinja_dict_add(c, d, k, v));
    }
    *out = (jinja_value){JINJA_DICT, {.dict = d}};
    return LILY_OK;
}

static int list_from_json(jinja_ctx *c, const json_t *j, jinja_value *out)
{
    jinja_list *l;
    TRY(jinja_list_new(c, &l));
    for (size_t i = 0; i < json_array_size(j); i++) {
        jinja_value v;
        TRY(jinja_from_json(c, json_array_get(j, i), &v));
        TRY(jinja_list_add(c, l, v));
    }
    *out = (jinja_value){JINJA_LIST, {.list = l}};
    return LILY_OK;
}

int jinja_from_json(jinja_ctx *c, const json_t *j, jinja_value *out)
{
    int rc;
    const char *number;
    switch (json_typeof(j)) {
    case JSON_NULL: *out = jinja_none(); return LILY_OK;
    case JSON_TRUE: *out = jinja_bool(true); return LILY_OK;
    case JSON_FALSE: *out = jinja_bool(false); return LILY_OK;
    case JSON_INTEGER: *out = jinja_int(json_integer_value(j)); return LILY_OK;
    case JSON_REAL: *out = (jinja_value){JINJA_FLOAT, {.f = json_real_value(j)}}; return LILY_OK;
    case JSON_STRING: return jinja_text(c, json_string_value(j), json_string_length(j), false, false, out);
    case JSON_OBJECT:
        if ((number = lily_big_number(j))) {
            rc = jinja_text(c, number, strlen(number), false, false, out);
            out->kind = JINJA_NUMBER_TEXT;
            return rc;
        }
        TRY(jinja_enter(c));
        rc = dict_from_json(c, j, out);
        c->depth--;
        return rc;
    default:
        TRY(jinja_enter(c));
        rc = list_from_json(c, j, out);
        c->depth--;
        return rc;
    }
}

const char *jinja_type_name(const jinja_value *v)
{
    switch (v->kind) {
    case JINJA_UNDEFINED: return "undefined value";
    case JINJA_NONE: return "None";
    case JINJA_BOOL: return "bool";
    case JINJA_INT:
    case JINJA_NUMBER_TEXT: return "int";
    case JINJA_FLOAT: return "float";
    case JINJA_STR: return "string";
    case JINJA_LIST: return v->u.list->tuple ? "tuple" : v->u.list->view ? "view of a dict" : "list";
    case JINJA_DICT: return "dict";
    case JINJA_NAMESPACE: return "namespace";
    case JINJA_LOOP: return "loop";
    case JINJA_MACRO: return "macro";
    case JINJA_FUNCTION: return "function";
    default: return "method";
    }
}

int jinja_truth(jinja_ctx *c, const jinja_value *v, bool *out)
{
    (void)c;
    switch (v->kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: *out = false; break;
    case JINJA_BOOL: *out = v->u.b; break;
    case JINJA_INT: *out = v->u.i != 0; break;
    case JINJA_FLOAT: *out = v->u.f != 0; break;
    case JINJA_STR: *out = v->u.s->n > 0; break;
    case JINJA_LIST: *out = v->u.list->n > 0 || v->u.list->generator; break;
    case JINJA_DICT: *out = v->u.dict->n > 0; break;
    case JINJA_LOOP: *out = v->u.loop->items->n > 0; break;
    default: *out = true;
    }
    return LILY_OK;
}

static bool is_number(const jinja_value *v)
{
    return v->kind == JINJA_BOOL || v->kind == JINJA_INT || v->kind == JINJA_FLOAT;
}

/* -1, 0, 1; an int and a float are compared exactly, as Python does.  No NaN comes out of JSON. */
static int compare_numbers(const jinja_value *a, const jinja_value *b)
{
    if (a->kind == JINJA_FLOAT && b->kind == JINJA_FLOAT) return (a->u.f > b->u.f) - (a->u.f < b->u.f);
    if (a->kind == JINJA_FLOAT) return -compare_numbers(b, a);
    int64_t i = a->kind == JINJA_BOOL ? a->u.b : a->u.i;
    if (b->kind != JINJA_FLOAT) {
        int64_t k = b->kind == JINJA_BOOL ? b->u.b : b->u.i;
        return (i > k) - (i < k);
    }
    double f = b->u.f;
    if (f >= 9223372036854775808.0) return -1;
    if (f < -9223372036854775808.0) return 1;
    int64_t whole = (int64_t)f;
    if (i != whole) return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return (rest < 0) - (rest > 0);
}

static int equal_lists(jinja_ctx *c, const jinja_list *a, const jinja_list *b, bool *out)
{
    *out = a->n == b->n && a->tuple == b->tuple;
    for (size_t i = 0; i < a->n && *out; i++) TRY(jinja_equal(c, &a->items[i], &b->items[i], out));
    return LILY_OK;
}

static int equal_dicts(jinja_ctx *c, const jinja_dict *a, const jinja_dict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) {
        const jinja_value *other;
        TRY(jinja_dict_find(c, b, &a->keys[i], &other));
        if (!other) *out = false;
        else TRY(jinja_equal(c, &a->values[i], other, out));
    }
    return LILY_OK;
}

static bool equal_text(const jinja_str *a, const jinja_str *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}

int jinja_equal(jinja_ctx *c, const jinja_value *a, const jinja_value *b, bool *out)
{
    int rc = LILY_OK;
    TRY(jinja_step(c, a->kind == JINJA_STR ? a->u.s->n : 0));
    *out = false;
    if (is_number(a) && is_number(b)) {
        *out = compare_numbers(a, b) == 0;
        return LILY_OK;
    }
    if (a->kind != b->kind) return LILY_OK;
    TRY(jinja_enter(c));
    switch (a->kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: *out = true; break;
    case JINJA_STR:
    case JINJA_NUMBER_TEXT: *out = equal_text(a->u.s, b->u.s); break;
    case JINJA_LIST:
        if (!a->u.list->view && !b->u.list->view) rc = equal_lists(c, a->u.list, b->u.list, out);
        else rc = jinja_error(c, LILY_UNSUPPORTED, "a view of a dict cannot be compared");
        break;
    case JINJA_DICT: rc = equal_dicts(c, a->u.dict, b->u.dict, out); break;
    case JINJA_NAMESPACE: *out = a->u.dict == b->u.dict; break;
    case JINJA_LOOP: *out = a->u.loop == b->u.loop; break;
    default: rc = jinja_error(c, LILY_UNSUPPORTED, "a %s cannot be compared", jinja_type_name(a));
    }
    c->depth--;
    return rc;
}

/* The first items that differ decide. */
static int compare_lists(jinja_ctx *c, const jinja_list *a, const jinja_list *b, int *out)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        TRY(jinja_equal(c, &a->items[i], &b->items[i], &same));
        if (same) continue;
        TRY(jinja_enter(c));
        int rc = jinja_compare(c, &a->items[i], &b->items[i], out);
        c->depth--;
        return rc;
    }
    *out = (a->n > b->n) - (a->n < b->n);
    return LILY_OK;
}

int jinja_compare(jinja_ctx *c, const jinja_value *a, const jinja_value *b, int *out)
{
    if (a->kind == JINJA_LIST && b->kind == JINJA_LIST && a->u.list->tuple == b->u.list->tuple && !a->u.list->view &&
        !b->u.list->view)
        return compare_lists(c, a->u.list, b->u.list, out);
    if (is_number(a) && is_number(b)) {
        *out = compare_numbers(a, b);
        return LILY_OK;
    }
    if (a->kind != JINJA_STR || b->kind != JINJA_STR)
        return jinja_error(c, LILY_ARGUMENT, "a %s and a %s have no order", jinja_type_name(a), jinja_type_name(b));
    /* The order of UTF-8 bytes is the order of code points. */
    const jinja_str *x = a->u.s, *y = b->u.s;
    size_t n = x->n < y->n ? x->n : y->n;
    TRY(jinja_step(c, n));
    int order = n ? memcmp(x->p, y->p, n) : 0;
    *out = order ? (order > 0) - (order < 0) : (x->n > y->n) - (x->n < y->n);
    return LILY_OK;
}

int jinja_contains(jinja_ctx *c, const jinja_value *box, const jinja_value *v, bool *out)
{
    const jinja_value *found;
    *out = false;
    switch (box->kind) {
    case JINJA_UNDEFINED: return LILY_OK;
    case JINJA_STR:
        if (v->kind != JINJA_STR)
            return jinja_error(c, LILY_ARGUMENT, "'in' a string needs a string on the left, not a %s", jinja_type_name(v));
        TRY(jinja_step(c, box->u.s->n));
        *out = jinja_find(box->u.s, v->u.s, 0) != SIZE_MAX;
        return LILY_OK;
    case JINJA_DICT:
        TRY(jinja_dict_find(c, box->u.dict, v, &found));
        *out = found != NULL;
        return LILY_OK;
    case JINJA_LIST:
        for (size_t i = 0; i < box->u.list->n && !*out; i++) TRY(jinja_equal(c, &box->u.list->items[i], v, out));
        return LILY_OK;
    default: return jinja_error(c, LILY_ARGUMENT, "nothing can be 'in' a %s", jinja_type_name(box));
    }
}

int jinja_length(jinja_ctx *c, const jinja_value *v, size_t *out)
{
    switch (v->kind) {
    case JINJA_UNDEFINED: *out = 0; return LILY_OK;
    case JINJA_STR:
        TRY(jinja_step(c, v->u.s->n));
        *out = jinja_char_count(v->u.s);
        return LILY_OK;
    case JINJA_LIST:
        if (v->u.list->generator) return jinja_error(c, LILY_ARGUMENT, "a generator has no length");
        *out = v->u.list->n;
        return LILY_OK;
    case JINJA_DICT: *out = v->u.dict->n; return LILY_OK;
    case JINJA_LOOP: *out = v->u.loop->items->n; return LILY_OK;
    default: return jinja_error(c, LILY_ARGUMENT, "a %s has no length", jinja_type_name(v));
    }
}

int jinja_iterate(jinja_ctx *c, const jinja_value *v, jinja_list **out)
{
    if (v->kind == JINJA_LIST) {
        *out = v->u.list;
        return LILY_OK;
    }
    if (v->kind != JINJA_UNDEFINED && v->kind != JINJA_DICT && v->kind != JINJA_STR)
        return jinja_error(c, LILY_ARGUMENT, "a %s cannot be walked", jinja_type_name(v));
    TRY(jinja_list_new(c, out));
    if (v->kind == JINJA_DICT)
        for (size_t i = 0; i < v->u.dict->n; i++) TRY(jinja_list_add(c, *out, v->u.dict->keys[i]));
    if (v->kind != JINJA_STR) return LILY_OK;
    const jinja_str *s = v->u.s;
    for (size_t at = 0; at < s->n;) {
        size_t len = lily_utf8_length((const unsigned char *)s->p + at, s->n - at);
        jinja_value one;
        TRY(jinja_step(c, 0));
        TRY(jinja_substr(c, s, at, at + len, &one));
        TRY(jinja_list_add(c, *out, one));
        at += len;
    }
    return LILY_OK;
}
