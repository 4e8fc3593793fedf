#include "text/jinja_builtin.h"

#include <string.h>

#include "text/jinja_text.h"

typedef const jinja_value *const *args_t;

static jinja_value list_value(jinja_list *l)
{
    return (jinja_value){JINJA_LIST, {.list = l}};
}

static int text_arg(jinja_ctx *c, const jinja_value *v, const char *what, const jinja_str **out)
{
    *out = NULL;
    if (v->kind != JINJA_STR) return jinja_error(c, LILY_ARGUMENT, "%s takes a string, not a %s", what, jinja_type_name(v));
    *out = v->u.s;
    return LILY_OK;
}

/* A count that may be left out: -1. */
static int count_arg(jinja_ctx *c, const jinja_value *v, const char *what, int64_t *out)
{
    *out = -1;
    if (!v || v->kind == JINJA_NONE) return LILY_OK;
    if (v->kind != JINJA_INT && v->kind != JINJA_BOOL)
        return jinja_error(c, LILY_ARGUMENT, "%s takes an int, not a %s", what, jinja_type_name(v));
    *out = v->kind == JINJA_BOOL ? v->u.b : v->u.i;
    return LILY_OK;
}

static int strip_sides(jinja_ctx *c, const jinja_str *s, const jinja_value *chars, int sides, jinja_value *out)
{
    const jinja_str *set = NULL;
    size_t from, to;
    if (chars && chars->kind != JINJA_NONE) TRY(text_arg(c, chars, "strip", &set));
    TRY(jinja_step(c, s->n));
    jinja_strip(s, set, sides, &from, &to);
    return jinja_substr(c, s, from, to, out);
}

static int items_of(jinja_ctx *c, const jinja_dict *d, bool keys, bool values, jinja_value *out)
{
    jinja_list *l;
    TRY(jinja_list_new(c, &l));
    l->view = true;
    for (size_t i = 0; i < d->n; i++) {
        jinja_list *pair;
        TRY(jinja_step(c, 0));
        if (keys && values) {
            TRY(jinja_list_new(c, &pair));
            pair->tuple = true;
            TRY(jinja_list_add(c, pair, d->keys[i]));
            TRY(jinja_list_add(c, pair, d->values[i]));
            TRY(jinja_list_add(c, l, list_value(pair)));
        } else {
            TRY(jinja_list_add(c, l, keys ? d->keys[i] : d->values[i]));
        }
    }
    *out = list_value(l);
    return LILY_OK;
}

static int join(jinja_ctx *c, const jinja_value *list, const jinja_str *between, jinja_value *out)
{
    jinja_list *l;
    jinja_out o = {.limit = c->arena_limit};
    int rc = jinja_iterate(c, list, &l);
    for (size_t i = 0; rc == LILY_OK && i < l->n; i++) {
        const jinja_str *s;
        rc = jinja_step(c, between->n);
        if (rc == LILY_OK) rc = jinja_str_of(c, &l->items[i], &s);
        if (rc != LILY_OK) break;
        if (i) jinja_out_str(&o, between);
        jinja_out_str(&o, s);
        rc = jinja_out_ok(c, &o);
    }
    if (rc == LILY_OK) return jinja_out_value(c, &o, out);
    jinja_out_free(&o);
    return rc;
}

/* filters */

static int filter_trim(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    const jinja_str *s;
    TRY(jinja_str_of(c, self, &s));
    return strip_sides(c, s, args[0], JINJA_LEFT | JINJA_RIGHT, out);
}

static int filter_length(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    (void)args;
    size_t n;
    TRY(jinja_length(c, self, &n));
    *out = jinja_int((int64_t)n);
    return LILY_OK;
}

static int filter_tojson(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    int64_t indent;
    bool ascii = false;
    if (args[0]) TRY(jinja_truth(c, args[0], &ascii));
    if (ascii) return jinja_error(c, LILY_UNSUPPORTED, "tojson with ensure_ascii is not supported");
    TRY(count_arg(c, args[1], "tojson(indent)", &indent));
    if (indent > 64) return jinja_error(c, LILY_UNSUPPORTED, "tojson with such an indent is not supported");
    return jinja_json_of(c, self, indent < 0 && args[1] && args[1]->kind != JINJA_NONE ? 0 : (int)indent, out);
}

static int filter_items(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    (void)args;
    static const jinja_dict none;
    if (self->kind != JINJA_DICT && self->kind != JINJA_UNDEFINED)
        return jinja_error(c, LILY_ARGUMENT, "items takes a dict, not a %s", jinja_type_name(self));
    TRY(items_of(c, self->kind == JINJA_DICT ? self->u.dict : &none, true, true, out));
    out->u.list->generator = true;
    return LILY_OK;
}

static int filter_string(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    (void)args;
    const jinja_str *s;
    TRY(jinja_str_of(c, self, &s));
    *out = (jinja_value){JINJA_STR, {.s = s}};
    return LILY_OK;
}

static int filter_safe(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    jinja_str *s;
    TRY(filter_string(c, self, args, out));
    TRY(jinja_alloc(c, &s, 1, sizeof *s));
    *s = *out->u.s;
    s->markup = true;
    out->u.s = s;
    return LILY_OK;
}

static int filter_default(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    bool falsy = false, truth = true;
    if (args[1]) TRY(jinja_truth(c, args[1], &falsy));
    if (falsy) TRY(jinja_truth(c, self, &truth));
    if (self->kind != JINJA_UNDEFINED && truth) *out = *self;
    else if (args[0]) *out = *args[0];
    else return jinja_text(c, "", 0, true, false, out);
    return LILY_OK;
}

static int pick(jinja_ctx *c, const jinja_value *self, bool last, jinja_value *out)
{
    jinja_list *l;
    TRY(jinja_iterate(c, self, &l));
    *out = l->n ? l->items[last ? l->n - 1 : 0] : jinja_undefined("an item of an empty sequence");
    return LILY_OK;
}

static int filter_first(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    (void)args;
    return pick(c, self, false, out);
}

static int filter_last(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    (void)args;
    return pick(c, self, true, out);
}

static int filter_join(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    static const jinja_str empty = {.p = ""};
    const jinja_str *between = &empty;
    if (args[0]) TRY(jinja_str_of(c, args[0], &between));
    return join(c, self, between, out);
}

static int filter_list(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    (void)args;
    jinja_list *from, *copy;
    TRY(jinja_iterate(c, self, &from));
    TRY(jinja_list_new(c, &copy));
    for (size_t i = 0; i < from->n; i++) {
        TRY(jinja_step(c, 0));
        TRY(jinja_list_add(c, copy, from->items[i]));
    }
    *out = list_value(copy);
    return LILY_OK;
}

static int filter_lower(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    TRY(filter_string(c, self, args, out));
    return jinja_case(c, out->u.s, false, out);
}

static int filter_upper(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    TRY(filter_string(c, self, args, out));
    return jinja_case(c, out->u.s, true, out);
}

static int filter_replace(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    const jinja_str *s, *old, *with;
    int64_t max;
    TRY(jinja_str_of(c, self, &s));
    TRY(jinja_str_of(c, args[0], &old));
    TRY(jinja_str_of(c, args[1], &with));
    TRY(count_arg(c, args[2], "replace", &max));
    return jinja_replace(c, s, old, with, max, out);
}

const jinja_builtin JINJA_FILTERS[] = {
    {"trim", 0, 1, {"chars"}, filter_trim},
    {"length", 0, 0, {0}, filter_length},
    {"count", 0, 0, {0}, filter_length},
    {"tojson", 0, 2, {"ensure_ascii", "indent"}, filter_tojson},
    {"items", 0, 0, {0}, filter_items},
    {"string", 0, 0, {0}, filter_string},
    {"safe", 0, 0, {0}, filter_safe},
    {"default", 0, 2, {"default_value", "boolean"}, filter_default},
    {"d", 0, 2, {"default_value", "boolean"}, filter_default},
    {"first", 0, 0, {0}, filter_first},
    {"last", 0, 0, {0}, filter_last},
    {"join", 0, 1, {"d"}, filter_join},
    {"list", 0, 0, {0}, filter_list},
    {"lower", 0, 0, {0}, filter_lower},
    {"upper", 0, 0, {0}, filter_upper},
    {"replace", 2, 3, {"old", "new", "count"}, filter_replace},
    {0},
};

/* tests */

#define TEST(name, condition)                                                                                \
    static int test_##name(jinja_ctx *c, const jinja_value *v, args_t args, jinja_value *out)                \
    {                                                                                                        \
        (void)c, (void)args;                                                                                 \
        *out = jinja_bool(condition);                                                                        \
        return LILY_OK;                                                                                      \
    }

TEST(defined, v->kind != JINJA_UNDEFINED)
TEST(undefined, v->kind == JINJA_UNDEFINED)
TEST(none, v->kind == JINJA_NONE)
TEST(boolean, v->kind == JINJA_BOOL)
TEST(true, v->kind == JINJA_BOOL && v->u.b)
TEST(false, v->kind == JINJA_BOOL && !v->u.b)
TEST(integer, v->kind == JINJA_INT || v->kind == JINJA_NUMBER_TEXT)
TEST(float, v->kind == JINJA_FLOAT)
TEST(number, v->kind == JINJA_INT || v->kind == JINJA_FLOAT || v->kind == JINJA_BOOL || v->kind == JINJA_NUMBER_TEXT)
TEST(string, v->kind == JINJA_STR)
TEST(mapping, v->kind == JINJA_DICT)
/* Python's undefined value has a length and an iterator. */
TEST(sequence, (v->kind == JINJA_LIST && !v->u.list->view) || v->kind == JINJA_DICT || v->kind == JINJA_STR || v->kind == JINJA_UNDEFINED)
TEST(iterable, v->kind == JINJA_LIST || v->kind == JINJA_DICT || v->kind == JINJA_STR || v->kind == JINJA_UNDEFINED ||
                   v->kind == JINJA_LOOP)

static int test_equal(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    bool same;
    TRY(jinja_equal(c, self, args[0], &same));
    *out = jinja_bool(same);
    return LILY_OK;
}

static int test_not_equal(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    TRY(test_equal(c, self, args, out));
    out->u.b = !out->u.b;
    return LILY_OK;
}

static int test_in(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    bool is;
    TRY(jinja_contains(c, args[0], self, &is));
    *out = jinja_bool(is);
    return LILY_OK;
}

const jinja_builtin JINJA_TESTS[] = {
    {"defined", 0, 0, {0}, test_defined},
    {"undefined", 0, 0, {0}, test_undefined},
    {"none", 0, 0, {0}, test_none},
    {"boolean", 0, 0, {0}, test_boolean},
    {"true", 0, 0, {0}, test_true},
    {"false", 0, 0, {0}, test_false},
    {"integer", 0, 0, {0}, test_integer},
    {"float", 0, 0, {0}, test_float},
    {"number", 0, 0, {0}, test_number},
    {"string", 0, 0, {0}, test_string},
    {"mapping", 0, 0, {0}, test_mapping},
    {"sequence", 0, 0, {0}, test_sequence},
    {"iterable", 0, 0, {0}, test_iterable},
    {"eq", 1, 1, {0}, test_equal},
    {"equalto", 1, 1, {0}, test_equal},
    {"ne", 1, 1, {0}, test_not_equal},
    {"in", 1, 1, {0}, test_in},
    {0},
};

/* methods: of strings, then of dicts */

static int method_startswith(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    const jinja_str *s = self->u.s, *part;
    TRY(text_arg(c, args[0], "startswith", &part));
    *out = jinja_bool(part->n <= s->n && (part->n == 0 || memcmp(s->p, part->p, part->n) == 0));
    return LILY_OK;
}

static int method_endswith(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    const jinja_str *s = self->u.s, *part;
    TRY(text_arg(c, args[0], "endswith", &part));
    *out = jinja_bool(part->n <= s->n && (part->n == 0 || memcmp(s->p + s->n - part->n, part->p, part->n) == 0));
    return LILY_OK;
}

static int method_split(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    const jinja_str *sep = NULL;
    int64_t max;
    jinja_list *l;
    if (args[0] && args[0]->kind != JINJA_NONE) TRY(text_arg(c, args[0], "split", &sep));
    TRY(count_arg(c, args[1], "split", &max));
    TRY(jinja_split(c, self->u.s, sep, max, &l));
    *out = list_value(l);
    return LILY_OK;
}

static int method_strip(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    return strip_sides(c, self->u.s, args[0], JINJA_LEFT | JINJA_RIGHT, out);
}

static int method_lstrip(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    return strip_sides(c, self->u.s, args[0], JINJA_LEFT, out);
}

static int method_rstrip(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    return strip_sides(c, self->u.s, args[0], JINJA_RIGHT, out);
}

static int method_replace(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    const jinja_str *old, *with;
    int64_t max;
    TRY(text_arg(c, args[0], "replace", &old));
    TRY(text_arg(c, args[1], "replace", &with));
    TRY(count_arg(c, args[2], "replace", &max));
    return jinja_replace(c, self->u.s, old, with, max, out);
}

static int method_join(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    jinja_list *l;
    const jinja_str *s;
    TRY(jinja_iterate(c, args[0], &l));
    for (size_t i = 0; i < l->n; i++) TRY(text_arg(c, &l->items[i], "join", &s));
    return join(c, args[0], self->u.s, out);
}

static int method_keys(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    (void)args;
    return items_of(c, self->u.dict, true, false, out);
}

static int method_values(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    (void)args;
    return items_of(c, self->u.dict, false, true, out);
}

static int method_items(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    (void)args;
    return items_of(c, self->u.dict, true, true, out);
}

static int method_get(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    const jinja_value *found;
    TRY(jinja_dict_find(c, self->u.dict, args[0], &found));
    *out = found ? *found : args[1] ? *args[1] : jinja_none();
    return LILY_OK;
}

/* Those from "keys" on belong to dicts. */
const jinja_builtin JINJA_METHODS[] = {
    {"startswith", 1, 1, {0}, method_startswith},
    {"endswith", 1, 1, {0}, method_endswith},
    {"split", 0, 2, {"sep", "maxsplit"}, method_split},
    {"strip", 0, 1, {0}, method_strip},
    {"lstrip", 0, 1, {0}, method_lstrip},
    {"rstrip", 0, 1, {0}, method_rstrip},
    {"replace", 2, 3, {0}, method_replace},
    {"join", 1, 1, {0}, method_join},
    {"upper", 0, 0, {0}, filter_upper},
    {"lower", 0, 0, {0}, filter_lower},
    {"keys", 0, 0, {0}, method_keys},
    {"values", 0, 0, {0}, method_values},
    {"items", 0, 0, {0}, method_items},
    {"get", 1, 2, {0}, method_get},
    {0},
};

/* functions */

static int function_range(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    (void)self;
    enum { MOST = 100000 };    /* as jinja2's sandbox */
    int64_t bound[3] = {0, 0, 1};
    jinja_list *l;
    for (int i = 0; i < 3 && args[i]; i++) {
        if (args[i]->kind != JINJA_INT) return jinja_error(c, LILY_ARGUMENT, "range takes ints");
        bound[i] = args[i]->u.i;
    }
    if (!args[1]) bound[1] = bound[0], bound[0] = 0;
    if (bound[2] == 0) return jinja_error(c, LILY_ARGUMENT, "range with a step of 0");
    TRY(jinja_list_new(c, &l));
    for (int64_t i = bound[0]; bound[2] > 0 ? i < bound[1] : i > bound[1];) {
        if (l->n == MOST) return jinja_error(c, LILY_ARGUMENT, "range of more than %d", MOST);
        TRY(jinja_step(c, 0));
        TRY(jinja_list_add(c, l, jinja_int(i)));
        if (__builtin_add_overflow(i, bound[2], &i)) break;
    }
    *out = list_value(l);
    return LILY_OK;
}

static int function_raise(jinja_ctx *c, const jinja_value *self, args_t args, jinja_value *out)
{
    (void)self, (void)out;
    const jinja_str *words;
    TRY(jinja_str_of(c, args[0], &words));
    return lily_fail(c->err, LILY_ARGUMENT, "%.*s", (int)(words->n < LILY_ERR_TEXT ? words->n : LILY_ERR_TEXT), words->p);
}

/* namespace() has keywords of its own; the evaluator makes it. */
const jinja_builtin JINJA_FUNCTIONS[] = {
    {"range", 1, 3, {0}, function_range},
    {"raise_exception", 1, 1, {"message"}, function_raise},
    {"namespace", 0, 0, {0}, NULL},
    {0},
};

int jinja_builtin_find(const jinja_builtin *table, const char *name)
{
    for (int i = 0; table[i].name; i++)
        if (strcmp(table[i].name, name) == 0) return i;
    return -1;
}
