/* jinja_access.c - attributes, items, slices and arithmetic. */
#include <math.h>
#include <string.h>

#include "text/jinja_builtin.h"
#include "text/jinja_text.h"

static int is_undefined(jinja_ctx *c, const jinja_value *v)
{
    return jinja_error(c, LILY_ARGUMENT, "'%s' is undefined", v->u.missing ? v->u.missing : "a value");
}

/* Names that Python's own types have: "message.items" is the method even if there is such a key. */
static bool has_method(jinja_kind kind, const char *name)
{
    static const char *const of_str =
        " capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha "
        "isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower "
        "lstrip maketrans partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split "
        "splitlines startswith strip swapcase title translate upper zfill ";
    static const char *const of_dict = " clear copy fromkeys get items keys pop popitem setdefault update values ";
    static const char *const of_list = " append clear copy count extend index insert pop remove reverse sort ";
    const char *names = kind == JINJA_STR ? of_str : kind == JINJA_DICT ? of_dict : kind == JINJA_LIST ? of_list : "";
    size_t n = strlen(name);
    for (const char *at = names; *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (n && strcspn(at, " ") == n && memcmp(at, name, n) == 0) return true;
    }
    return false;
}

static const char *const LOOP_NAMES[] = {"index", "index0", "first", "last", "length", "previtem", "nextitem",
                                         "revindex", "revindex0", "depth", "depth0"};

bool jinja_loop_has(const char *name)
{
    for (size_t i = 0; i < sizeof LOOP_NAMES / sizeof *LOOP_NAMES; i++)
        if (strcmp(LOOP_NAMES[i], name) == 0) return true;
    return false;
}

static jinja_value loop_attribute(const jinja_loop *l, const char *name)
{
    size_t n = l->items->n, at = l->at;
    if (strcmp(name, "index") == 0) return jinja_int((int64_t)at + 1);
    if (strcmp(name, "index0") == 0) return jinja_int((int64_t)at);
    if (strcmp(name, "first") == 0) return jinja_bool(at == 0);
    if (strcmp(name, "last") == 0) return jinja_bool(at + 1 == n);
    if (strcmp(name, "length") == 0) return jinja_int((int64_t)n);
    if (strcmp(name, "revindex") == 0) return jinja_int((int64_t)(n - at));
    if (strcmp(name, "revindex0") == 0) return jinja_int((int64_t)(n - at) - 1);
    if (strcmp(name, "depth") == 0) return jinja_int(1);
    if (strcmp(name, "depth0") == 0) return jinja_int(0);
    if (strcmp(name, "previtem") == 0) return at ? l->items->items[at - 1] : jinja_undefined("there is no previous item");
    if (strcmp(name, "nextitem") == 0) return at + 1 < n ? l->items->items[at + 1] : jinja_undefined("there is no next item");
    return jinja_undefined(name);
}

int jinja_attribute(jinja_ctx *c, const jinja_value *v, const char *name, jinja_value *out)
{
    if (v->kind == JINJA_UNDEFINED) return is_undefined(c, v);
    bool view = v->kind == JINJA_LIST && v->u.list->view;
    if (!view && has_method(v->kind, name)) {
        jinja_value *self;
        TRY(jinja_alloc(c, &self, 1, sizeof *self));
        *self = *v;
        *out = (jinja_value){JINJA_METHOD, {.method = {self, jinja_builtin_find(JINJA_METHODS, name)}}};
        return LILY_OK;
    }
    *out = jinja_undefined(name);
    if (v->kind == JINJA_LOOP) *out = loop_attribute(v->u.loop, name);
    if (v->kind == JINJA_DICT || v->kind == JINJA_NAMESPACE) {
        TRY(jinja_step(c, 16 * v->u.dict->n));
        const jinja_value *found = jinja_dict_get(v->u.dict, name, strlen(name));
        if (found) *out = *found;
    }
    return LILY_OK;
}

/* A string key that is no item may still be an attribute. */
static int item_attribute(jinja_ctx *c, const jinja_value *v, const jinja_value *key, jinja_value *out)
{
    char *name;
    if (key->kind != JINJA_STR || memchr(key->u.s->p, 0, key->u.s->n)) {
        *out = jinja_undefined(NULL);
        return LILY_OK;
    }
    TRY(jinja_alloc(c, &name, key->u.s->n + 1, 1));
    memcpy(name, key->u.s->p, key->u.s->n);
    return jinja_attribute(c, v, name, out);
}

int jinja_item(jinja_ctx *c, const jinja_value *v, const jinja_value *key, jinja_value *out)
{
    const jinja_value *found = NULL;
    size_t n;
    if (v->kind == JINJA_UNDEFINED) return is_undefined(c, v);
    if (v->kind == JINJA_DICT && key->kind != JINJA_LIST && key->kind != JINJA_DICT) {
        TRY(jinja_dict_find(c, v->u.dict, key, &found));
        if (found) {
            *out = *found;
            return LILY_OK;
        }
    }
    bool indexed = ((v->kind == JINJA_LIST && !v->u.list->view) || v->kind == JINJA_STR) && (key->kind == JINJA_INT || key->kind == JINJA_BOOL);
    if (!indexed) return item_attribute(c, v, key, out);
    TRY(jinja_length(c, v, &n));
    int64_t at = key->kind == JINJA_BOOL ? key->u.b : key->u.i;
    if (at < 0) at += (int64_t)n;
    if (at < 0 || at >= (int64_t)n) {
        *out = jinja_undefined("an item out of range");
        return LILY_OK;
    }
    if (v->kind == JINJA_LIST) {
        *out = v->u.list->items[at];
        return LILY_OK;
    }
    size_t from = jinja_char_at(v->u.s, (size_t)at);
    jinja_str rest = {.p = v->u.s->p + from, .n = v->u.s->n - from};
    return jinja_substr(c, v->u.s, from, from + jinja_char_at(&rest, 1), out);
}

/* slice.indices() of Python */
static void slice_bounds(const jinja_value bounds[3], int64_t n, int64_t *from, int64_t *to, int64_t *step)
{
    int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? n - 1 : n;
    *from = *step < 0 ? high : low;
    *to = *step < 0 ? low : high;
    for (int i = 0; i < 2; i++) {
        if (bounds[i].kind != JINJA_INT) continue;
        int64_t v = bounds[i].u.i;
        if (v < 0) v = v < -n ? low : v + n;
        *(i ? to : from) = v < low ? low : v > high ? high : v;
    }
}

int jinja_slice(jinja_ctx *c, const jinja_value *v, const jinja_value bounds[3], jinja_value *out)
{
    size_t n;
    int64_t from, to, step = bounds[2].kind == JINJA_INT ? bounds[2].u.i : 1;
    jinja_list *l;
    if (v->kind == JINJA_UNDEFINED) return is_undefined(c, v);
    if ((v->kind != JINJA_LIST || v->u.list->view) && v->kind != JINJA_STR)
        return jinja_error(c, LILY_ARGUMENT, "a %s cannot be sliced", jinja_type_name(v));
    for (int i = 0; i < 3; i++)
        if (bounds[i].kind != JINJA_INT && bounds[i].kind != JINJA_NONE)
            return jinja_error(c, LILY_ARGUMENT, "a slice by a %s", jinja_type_name(&bounds[i]));
    if (step == 0) return jinja_error(c, LILY_ARGUMENT, "a slice with a step of 0");
    TRY(jinja_length(c, v, &n));
    slice_bounds(bounds, (int64_t)n, &from, &to, &step);
    if (v->kind == JINJA_STR && step == 1) {
        if (to < from) to = from;
        return jinja_substr(c, v->u.s, jinja_char_at(v->u.s, (size_t)from), jinja_char_at(v->u.s, (size_t)to), out);
    }
    jinja_list *all;
    TRY(jinja_iterate(c, v, &all));
    TRY(jinja_list_new(c, &l));
    l->tuple = v->kind == JINJA_LIST && v->u.list->tuple;
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        TRY(jinja_step(c, 0));
        TRY(jinja_list_add(c, l, all->items[i]));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    *out = (jinja_value){JINJA_LIST, {.list = l}};
    if (v->kind == JINJA_LIST) return LILY_OK;
    const jinja_str **parts;
    TRY(jinja_alloc(c, &parts, l->n, sizeof *parts));
    for (size_t i = 0; i < l->n; i++) parts[i] = l->items[i].u.s;
    return jinja_concat(c, parts, l->n, out);
}

static bool whole(const jinja_value *v, int64_t *out)
{
    if (v->kind == JINJA_BOOL) *out = v->u.b;
    else *out = v->u.i;
    return v->kind == JINJA_INT || v->kind == JINJA_BOOL;
}

static bool real(const jinja_value *v, double *out)
{
    int64_t i;
    if (v->kind == JINJA_FLOAT) *out = v->u.f;
    else if (whole(v, &i)) *out = (double)i;
    else return false;
    return true;
}

static int whole_binary(jinja_ctx *c, int op, int64_t a, int64_t b, jinja_value *out)
{
    bool over = false;
    *out = jinja_int(0);
    if (op == '+') over = __builtin_add_overflow(a, b, &out->u.i);
    if (op == '-') over = __builtin_sub_overflow(a, b, &out->u.i);
    if (op == '*') over = __builtin_mul_overflow(a, b, &out->u.i);
    if (op == '%' || op == JINJA_OP_FLOOR) {
        /* Rounded down, the remainder has the sign of b. */
        over = a == INT64_MIN && b == -1;
        if (!over) {
            int64_t rest = a % b, down = a / b;
            if (rest != 0 && (rest < 0) != (b < 0)) rest += b, down--;
            out->u.i = op == '%' ? rest : down;
        }
    }
    return over ? jinja_error(c, LILY_UNSUPPORTED, "an int beyond 64 bits") : LILY_OK;
}

static int real_binary(jinja_ctx *c, int op, double a, double b, jinja_value *out)
{
    double f = 0;
    if (op == '+') f = a + b;
    if (op == '-') f = a - b;
    if (op == '*') f = a * b;
    if (op == '/') f = a / b;
    if (op == '%' || op == JINJA_OP_FLOOR) {
        double rest = fmod(a, b);
        if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
        f = op == '%' ? rest : floor((a - rest) / b + 0.5);
    }
    if (!isfinite(f)) return jinja_error(c, LILY_UNSUPPORTED, "a float that is not finite");
    *out = (jinja_value){JINJA_FLOAT, {.f = f}};
    return LILY_OK;
}

static int add_lists(jinja_ctx *c, const jinja_list *a, const jinja_list *b, jinja_value *out)
{
    jinja_list *l;
    TRY(jinja_list_new(c, &l));
    l->tuple = a->tuple;
    for (size_t i = 0; i < a->n + b->n; i++) {
        TRY(jinja_step(c, 0));
        TRY(jinja_list_add(c, l, i < a->n ? a->items[i] : b->items[i - a->n]));
    }
    *out = (jinja_value){JINJA_LIST, {.list = l}};
    return LILY_OK;
}

static int repeat_text(jinja_ctx *c, const jinja_str *s, int64_t times, jinja_value *out)
{
    jinja_out o = {.limit = c->arena_limit};
    int rc = LILY_OK;
    for (int64_t i = 0; i < times && rc == LILY_OK && s->n; i++) {
        jinja_out_str(&o, s);
        rc = jinja_step(c, s->n);
        if (rc == LILY_OK) rc = jinja_out_ok(c, &o);
    }
    if (rc == LILY_OK) return jinja_out_value(c, &o, out);
    jinja_out_free(&o);
    return rc;
}

int jinja_binary(jinja_ctx *c, int op, const jinja_value *a, const jinja_value *b, jinja_value *out)
{
    int64_t i, k;
    double x, y;
    if (op == '%' && a->kind == JINJA_STR) return jinja_error(c, LILY_UNSUPPORTED, "formatting by %% is not supported");
    if (a->kind == JINJA_UNDEFINED) return is_undefined(c, a);
    if (b->kind == JINJA_UNDEFINED) return is_undefined(c, b);
    if (real(a, &x) && real(b, &y)) {
        bool divides = op == '/' || op == '%' || op == JINJA_OP_FLOOR;
        if (divides && y == 0) return jinja_error(c, LILY_ARGUMENT, "a division by zero");
        if (op != '/' && whole(a, &i) && whole(b, &k)) return whole_binary(c, op, i, k, out);
        return real_binary(c, op, x, y, out);
    }
    if (op == '+' && a->kind == JINJA_STR && b->kind == JINJA_STR) return jinja_add_text(c, a->u.s, b->u.s, out);
    if (op == '+' && a->kind == JINJA_LIST && b->kind == JINJA_LIST && a->u.list->tuple == b->u.list->tuple &&
        !a->u.list->view && !b->u.list->view)
        return add_lists(c, a->u.list, b->u.list, out);
    if (op == '*' && a->kind == JINJA_STR && whole(b, &k)) return repeat_text(c, a->u.s, k, out);
    if (op == '*' && b->kind == JINJA_STR && whole(a, &i)) return repeat_text(c, b->u.s, i, out);
    if (a->kind == JINJA_NUMBER_TEXT || b->kind == JINJA_NUMBER_TEXT ||
        (op == '*' && (a->kind == JINJA_LIST || b->kind == JINJA_LIST)))
        return jinja_error(c, LILY_UNSUPPORTED, "this operation on a %s and a %s is not supported", jinja_type_name(a),
                           jinja_type_name(b));
    return jinja_error(c, LILY_ARGUMENT, "a %s and a %s do not combine", jinja_type_name(a), jinja_type_name(b));
}
