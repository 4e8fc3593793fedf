#include "sample/json_schema.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sample/json_compiler.h"
#include "sample/json_exclude.h"
#include "sample/json_schema_part.h"
#include "text/big_number.h"

static int schema(compiler *c, const json_t *s, uint32_t next, uint32_t *out);

int json_refuse_at(compiler *c, enum lily_code code, const char *file, int line, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return lily_fail_at(c->e, code, file, line, "%.400s: %s", lily_buf_str(&c->place), text);
}

/* As a JSON pointer. */
static void go_below(compiler *c, const char *name, const char *under)
{
    lily_buf_printf(&c->place, under ? "/%s/" : "/%s", name);
    for (size_t i = 0; under && under[i] && i < 100; i++)
        lily_buf_printf(&c->place, under[i] == '~' ? "~0" : under[i] == '/' ? "~1" : "%c", under[i]);
}

static void go_back(compiler *c, size_t len)
{
    c->place.len = len;
    if (c->place.data) c->place.data[len] = '\0';
}

/* The schema `s` at `name` below the present place (and at `under` below that, NULL: nothing). */
int json_below(compiler *c, const json_t *s, const char *name, const char *under, uint32_t next,
               uint32_t *out)
{
    size_t len = c->place.len;
    go_below(c, name, under);
    if (c->nesting == MAX_NESTING) return REFUSE(c, LILY_UNSUPPORTED, "nested deeper than %d", MAX_NESTING);
    c->nesting++;
    TRY(schema(c, s, next, out));
    c->nesting--;
    go_back(c, len);
    return LILY_OK;
}

/* ---- keywords ---- */

/* The groups of the keywords of `s`. */
static int read_keywords(compiler *c, const json_t *s, unsigned *groups)
{
    const char *name;
    json_t *value;
    bool merged = json_object_get(s, JSON_MERGED) != NULL;
    *groups = 0;
    if (!json_is_object(s) || lily_big_number(s))
        return REFUSE(c, LILY_ARGUMENT, "a schema must be an object, true or false");
    json_object_foreach ((json_t *)s, name, value) {
        unsigned group = KEYWORD_IGNORED;
        if (strcmp(name, JSON_MERGED) != 0 && !json_keyword_group(name, &group))
            return REFUSE(c, LILY_UNSUPPORTED, "'%.60s' is not supported", name);
        if ((strcmp(name, "pattern") == 0 || strcmp(name, "format") == 0) && !json_is_string(value) &&
            !merged)
            return REFUSE(c, LILY_ARGUMENT, "'%s' must be a string", name);
        *groups |= group;
    }
    return LILY_OK;
}

/* The values of a schema are listed: nothing but its type may be beside them. */
static int listed_alone(compiler *c, const json_t *s)
{
    const char *name;
    json_t *ignored;
    unsigned group;
    json_object_foreach ((json_t *)s, name, ignored)
        if (json_keyword_group(name, &group) && group & ~(unsigned)(KEYWORD_TYPE | KEYWORD_VALUES))
            return REFUSE(c, LILY_UNSUPPORTED, "'%.60s' beside '%s' is not supported", name,
                          json_object_get(s, "const") ? "const" : "enum");
    return LILY_OK;
}

/* A count, `missing` when it is absent. */
int json_read_count(compiler *c, const json_t *s, const char *name, int64_t missing, int64_t *out)
{
    const json_t *v = json_object_get(s, name);
    *out = missing;
    if (!v) return LILY_OK;
    double x = json_number_value(v);
    if (!json_is_number(v) || x < 0 || x != floor(x))
        return REFUSE(c, LILY_ARGUMENT, "'%s' must be a count", name);
    bool least = strncmp(name, "min", 3) == 0;
    if (least && x > MAX_COUNT) return REFUSE(c, LILY_UNSUPPORTED, "'%s' is more than %d", name, MAX_COUNT);
    *out = x < UINT32_MAX ? (int64_t)x : -1;
    return LILY_OK;
}

/* ---- references ---- */

/* A call of the rule that `target` becomes; compiled later. */
static int refer(compiler *c, const json_t *target, const char *place, bool merges, uint32_t next,
                 uint32_t *out)
{
    size_t i = 0;
    while (i < c->n_refs && (c->refs[i].target != target || c->refs[i].merges != merges)) i++;
    if (i == MAX_REFS) return REFUSE(c, LILY_UNSUPPORTED, "more than %d references", MAX_REFS);
    if (i == c->n_refs) {
        char *copy = lily_strdup(place);
        if (!copy) return lily_no_memory(c->e, strlen(place), "a schema");
        c->refs[c->n_refs++] = (reference){target, copy, lily_grammar_rule(c->g), merges};
    }
    *out = lily_grammar_call(c->g, c->refs[i].rule, next);
    return LILY_OK;
}

static int find_target(compiler *c, const json_t *s, const json_t **target)
{
    const char *name = json_string_value(json_object_get(s, "$ref"));
    if (!name) return REFUSE(c, LILY_ARGUMENT, "'$ref' must be a string");
    if (name[0] != '#')
        return REFUSE(c, LILY_UNSUPPORTED, "'$ref' to '%.80s': only '#/…' is supported", name);
    *target = json_schema_at(c->root, name);
    if (!*target) return REFUSE(c, LILY_ARGUMENT, "'$ref' to '%.80s', which does not exist", name);
    return LILY_OK;
}

/* ---- schemas that hold together ---- */

/* What merging has told, with the present place. */
static int told_at(compiler *c)
{
    if (c->e->code == LILY_NO_MEMORY) return LILY_NO_MEMORY;
    return lily_err_prefix(c->e, "%.400s", lily_buf_str(&c->place));
}

/* One schema of s and all that its allOf and $ref say; *out has neither. */
static int flatten(compiler *c, const json_t *s, const json_t **out)
{
    static const char *const combining[] = {"allOf", "$ref"};
    unsigned groups;
    size_t len = c->place.len;
    const json_t *list = json_object_get(s, "allOf"), *target, *one;
    *out = s;
    if (json_is_boolean(s)) return LILY_OK;
    if (c->nesting == MAX_NESTING) return REFUSE(c, LILY_UNSUPPORTED, "nested deeper than %d", MAX_NESTING);
    TRY(read_keywords(c, s, &groups));
    if (!(groups & (KEYWORD_ALL_OF | KEYWORD_REF))) return LILY_OK;
    if (list && json_array_size(list) == 0)
        return REFUSE(c, LILY_ARGUMENT, "'allOf' must be a list of schemas");
    c->nesting++;
    if (!(*out = json_without(&c->merges, s, combining, 2, c->e))) return told_at(c);
    if (groups & KEYWORD_REF) {
        TRY(find_target(c, s, &target));
        TRY(flatten(c, target, &one));
        if (!(*out = json_merge(&c->merges, one, *out, c->e))) return told_at(c);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        go_below(c, "allOf", number);
        TRY(flatten(c, json_array_get(list, i), &one));
        if (!(*out = json_merge(&c->merges, *out, one, c->e))) return told_at(c);
        go_back(c, len);
    }
    c->nesting--;
    return LILY_OK;
}

/* ---- alternatives ---- */

/* oneOf: no value fits the i-th alternative and an earlier one. */
static int check_excluded(compiler *c, const json_t *const *list, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (json_schemas_exclude(c->root, list[k], list[i], &c->compared)) continue;
        if (c->compared == 0)
            return REFUSE(c, LILY_UNSUPPORTED, "'oneOf' takes more than %d comparisons", MAX_COMPARED);
        return REFUSE(c, LILY_UNSUPPORTED, "'oneOf': alternatives %zu and %zu may fit the same value", k, i);
    }
    return LILY_OK;
}

/* The i-th alternative, with what stands beside. */
static int alternative(compiler *c, const json_t *beside, const json_t *s, const json_t **out)
{
    *out = s;
    if (!beside) return LILY_OK;
    TRY(flatten(c, s, out));
    *out = json_merge(&c->merges, beside, *out, c->e);
    return *out ? LILY_OK : told_at(c);
}

static int alternatives_of(compiler *c, const json_t *list, const char *name, const json_t *beside,
                           const json_t **made, uint32_t *nodes, uint32_t next)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        char number[24];
        size_t len = c->place.len;
        snprintf(number, sizeof number, "%zu", i);
        go_below(c, name, number);
        TRY(alternative(c, beside, json_array_get(list, i), &made[i]));
        go_back(c, len);
        if (strcmp(name, "oneOf") == 0) TRY(check_excluded(c, made, i));
        TRY(json_below(c, made[i], name, number, next, &nodes[i]));
    }
    return LILY_OK;
}

/* All values that one of the alternatives lists without more: they are read as one list. */
static const json_t *listed_values(compiler *c, const json_t *list)
{
    json_t *all = json_array();
    bool only = all != NULL;
    for (size_t i = 0; i < json_array_size(list) && only; i++) {
        const json_t *s = json_array_get(list, i), *one = json_object_get(s, "const"),
                     *some = json_object_get(s, "enum");
        const char *name;
        json_t *ignored;
        unsigned group = KEYWORD_IGNORED;
        json_object_foreach ((json_t *)s, name, ignored)
            only = only && json_keyword_group(name, &group) &&
                   (group == KEYWORD_VALUES || group == KEYWORD_IGNORED);
        only = only && (!one != !some) &&
               (one ? json_array_append(all, (json_t *)one) : json_array_extend(all, (json_t *)some)) == 0;
    }
    if (!only) {
        json_decref(all);
        return NULL;
    }
    json_t *s = json_pack("{s:o}", "enum", all);
    if (!c->merges.made) c->merges.made = json_array();
    return s && json_array_append_new(c->merges.made, s) == 0 ? s : NULL;
}

static int alternatives(compiler *c, const json_t *s, unsigned groups, uint32_t next, uint32_t *out)
{
    const char *name = groups & KEYWORD_ANY_OF ? "anyOf" : "oneOf";
    unsigned own = groups & KEYWORD_ANY_OF ? KEYWORD_ANY_OF : KEYWORD_ONE_OF;
    const json_t *list = json_object_get(s, name), *beside = NULL, *values;
    size_t n = json_array_size(list);
    if (n == 0) return REFUSE(c, LILY_ARGUMENT, "'%s' must be a list of schemas", name);
    if (n > MAX_ALTERNATIVES)
        return REFUSE(c, LILY_UNSUPPORTED, "'%s' has more than %d schemas", name, MAX_ALTERNATIVES);
    if (groups & ~own && !(beside = json_without(&c->merges, s, &name, 1, c->e))) return told_at(c);
    if (!beside && own == KEYWORD_ANY_OF && (values = listed_values(c, list)))
        return schema(c, values, next, out);
    const json_t **made = lily_calloc(n, sizeof *made);
    uint32_t *nodes = lily_calloc(n, sizeof *nodes);
    int rc = made && nodes ? alternatives_of(c, list, name, beside, made, nodes, next)
                           : lily_no_memory(c->e, n * sizeof *made, "a schema");
    if (rc == LILY_OK) *out = lily_grammar_any(c->g, nodes, n);
    lily_free(made);
    lily_free(nodes);
    return rc;
}

/* ---- types ---- */

static const char *const type_names[] = {"object", "array", "string", "integer", "number", "boolean", "null"};
enum { T_OBJECT, T_ARRAY, T_STRING, T_INTEGER, T_NUMBER, T_BOOLEAN, T_NULL, N_TYPES };

static int add_type(compiler *c, const json_t *name, unsigned *types)
{
    const char *text = json_string_value(name);
    for (int i = 0; text && i < N_TYPES; i++) {
        if (strcmp(type_names[i], text) != 0) continue;
        *types |= 1u << i;
        return LILY_OK;
    }
    return REFUSE(c, LILY_ARGUMENT, "'type' must be one of the seven types of JSON Schema or a list of them");
}

/* 0: any. */
static int read_types(compiler *c, const json_t *s, unsigned groups, unsigned *types)
{
    const json_t *type = json_object_get(s, "type");
    *types = 0;
    if (json_is_array(type) && json_array_size(type) > 0) {
        for (size_t i = 0; i < json_array_size(type); i++) TRY(add_type(c, json_array_get(type, i), types));
    } else if (type) {
        TRY(add_type(c, type, types));
    } else {
        if (groups & KEYWORD_OBJECT) *types |= 1u << T_OBJECT;
        if (groups & KEYWORD_ARRAY) *types |= 1u << T_ARRAY;
        if (groups & KEYWORD_STRING) *types |= 1u << T_STRING;
        if (groups & KEYWORD_NUMBER) *types |= 1u << T_NUMBER;
    }
    if (*types && json_is_true(json_object_get(s, "nullable"))) *types |= 1u << T_NULL;
    return LILY_OK;
}

static bool has_type(const json_t *v, unsigned types)
{
    bool number = json_is_number(v) || lily_big_number(v);
    if (number && types & 1u << T_NUMBER) return true;
    if (json_is_integer(v) || (json_is_real(v) && json_real_value(v) == floor(json_real_value(v))))
        return types & 1u << T_INTEGER;
    if (number) return false;
    return types & 1u << (json_is_object(v)    ? T_OBJECT
                          : json_is_array(v)   ? T_ARRAY
                          : json_is_string(v)  ? T_STRING
                          : json_is_boolean(v) ? T_BOOLEAN
                                               : T_NULL);
}

static int values(compiler *c, const json_t *s, unsigned types, uint32_t next, uint32_t *out)
{
    const json_t *one = json_object_get(s, "const"), *list = json_object_get(s, "enum");
    size_t n = one ? 1 : json_array_size(list), kept = 0;
    if (n == 0) return REFUSE(c, LILY_ARGUMENT, "'enum' must be a list of values");
    if (n > MAX_VALUES) return REFUSE(c, LILY_UNSUPPORTED, "'enum' has more than %d values", MAX_VALUES);
    const json_t **fit = lily_calloc(n, sizeof *fit);
    if (!fit) return lily_no_memory(c->e, n * sizeof *fit, "a schema");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = one ? one : json_array_get(list, i);
        if (one && list) {
            size_t k = 0;
            while (k < json_array_size(list) && !json_equal(json_array_get(list, k), (json_t *)one)) k++;
            if (k == json_array_size(list)) continue;
        }
        if (!types || has_type(v, types)) fit[kept++] = v;
    }
    *out = part_literals(&c->p, fit, kept, next);
    lily_free(fit);
    return LILY_OK;
}

/* ---- a schema ---- */

static int one_type(compiler *c, const json_t *s, unsigned groups, int type, uint32_t next, uint32_t *out)
{
    lily_grammar *g = c->g;
    switch (type) {
    case T_OBJECT:
        if (groups & KEYWORD_OBJECT) return json_objects(c, s, next, out);
        *out = part_any_object(&c->p, next);
        return LILY_OK;
    case T_ARRAY:
        return json_lists(c, s, next, out);
    case T_STRING:
        return json_strings(c, s, next, out);
    case T_INTEGER:
    case T_NUMBER:
        return json_numbers(c, s, groups, type == T_INTEGER, next, out);
    case T_BOOLEAN:
        *out = lily_grammar_split(g, part_word(&c->p, "true", next), part_word(&c->p, "false", next));
        return LILY_OK;
    default:
        *out = part_word(&c->p, "null", next);
        return LILY_OK;
    }
}

static int typed(compiler *c, const json_t *s, unsigned groups, unsigned types, uint32_t next, uint32_t *out)
{
    *out = lily_grammar_never(c->g);
    for (int i = 0; i < N_TYPES; i++) {
        uint32_t one = LILY_GRAMMAR_END;
        if (!(types & 1u << i)) continue;
        TRY(one_type(c, s, groups, i, next, &one));
        *out = lily_grammar_split(c->g, *out, one);
    }
    return LILY_OK;
}

/* A format says something of strings only, unless it is one of numbers. */
static int check_format(compiler *c, const json_t *s, unsigned types)
{
    const unsigned numbers_too = 1u << T_STRING | 1u << T_INTEGER | 1u << T_NUMBER;
    const json_t *format = json_object_get(s, "format");
    if (!format || !types || types & numbers_too) return LILY_OK;
    return REFUSE(c, LILY_UNSUPPORTED, "'format' without 'type' string is not supported");
}

static int schema(compiler *c, const json_t *s, uint32_t next, uint32_t *out)
{
    unsigned groups, types;
    if (json_is_boolean(s)) {
        *out = json_is_true(s) ? part_any(&c->p, next) : lily_grammar_never(c->g);
        return LILY_OK;
    }
    if (++c->n_schemas > MAX_SCHEMAS || c->g->too_large)
        return REFUSE(c, LILY_UNSUPPORTED, "the schema is too large");
    if (c->g->no_memory) return lily_no_memory(c->e, c->g->n_nodes * sizeof *c->g->nodes, "a grammar");
    TRY(read_keywords(c, s, &groups));
    if (groups == KEYWORD_REF) {
        const json_t *target;
        TRY(find_target(c, s, &target));
        return refer(c, target, json_string_value(json_object_get(s, "$ref")), false, next, out);
    }
    if (groups & (KEYWORD_ALL_OF | KEYWORD_REF)) return refer(c, s, lily_buf_str(&c->place), true, next, out);
    if (groups & (KEYWORD_ANY_OF | KEYWORD_ONE_OF)) return alternatives(c, s, groups, next, out);
    TRY(read_types(c, s, groups, &types));
    TRY(check_format(c, s, types));
    if (groups & KEYWORD_VALUES) {
        TRY(listed_alone(c, s));
        return values(c, s, types, next, out);
    }
    if (types) return typed(c, s, groups, types, next, out);
    *out = part_any(&c->p, next);
    return LILY_OK;
}

/* ---- all of it ---- */

static int set_place(compiler *c, const char *text)
{
    lily_buf_clear(&c->place);
    lily_buf_printf(&c->place, "%.200s", text);
    return lily_buf_ok(&c->place, "a schema", c->e);
}

static int finish(json_parts *p, uint32_t node, lily_err *e)
{
    uint32_t late = node;
    lily_byte_set blank = {{0}};
    lily_set_add(&blank, ' ', ' ');
    lily_set_add(&blank, '\n', '\n');
    for (int i = 0; i < 4; i++) late = lily_grammar_split(p->g, node, lily_grammar_set(p->g, &blank, late));
    return lily_grammar_finish(p->g, node, late, e);
}

static int compile_reference(compiler *c, const reference *r)
{
    const json_t *s = r->target;
    uint32_t node;
    TRY(set_place(c, r->place));
    if (r->merges) TRY(flatten(c, s, &s));
    TRY(schema(c, s, LILY_GRAMMAR_END, &node));
    lily_grammar_set_rule(c->g, r->rule, node);
    return LILY_OK;
}

static int compile(compiler *c, const json_t *s, uint32_t next, uint32_t *start)
{
    c->refs = lily_calloc(MAX_REFS, sizeof *c->refs);
    c->patterns = lily_calloc(MAX_PATTERNS, sizeof *c->patterns);
    if (!c->refs || !c->patterns) return lily_no_memory(c->e, MAX_REFS * sizeof *c->refs, "a schema");
    TRY(set_place(c, "#"));
    TRY(schema(c, s, next, start));
    for (; c->n_done < c->n_refs; c->n_done++) {
        const reference r = c->refs[c->n_done];
        TRY(compile_reference(c, &r));
    }
    return LILY_OK;
}

static void compiler_free(compiler *c)
{
    lily_buf_free(&c->place);
    for (size_t i = 0; i < c->n_refs; i++) lily_free(c->refs[i].place);
    lily_free(c->refs);
    lily_free(c->patterns);
    json_merges_free(&c->merges);
}

static compiler compiler_of(const json_parts *p, const json_t *root, lily_err *e)
{
    return (compiler){
        .p = *p, .g = p->g, .root = root, .merges = {.left = MAX_MERGED}, .compared = MAX_COMPARED, .e = e};
}

int json_schema_part(const json_parts *p, const json_t *root, const json_t *s, uint32_t next, uint32_t *node,
                     lily_err *e)
{
    compiler c = compiler_of(p, root, e);
    int rc = compile(&c, s, next, node);
    compiler_free(&c);
    return rc;
}

/* Where the rule that comes back to itself was written. */
static const char *place_of_loop(const compiler *c)
{
    for (size_t i = 0; i < c->n_refs; i++)
        if (c->refs[i].rule == c->g->loops) return c->refs[i].place;
    return "#";
}

int lily_json_schema(lily_grammar **out, const json_t *schema_, lily_err *e)
{
    json_parts p;
    lily_grammar *g;
    uint32_t start;
    TRY(lily_grammar_new(&g, e));
    parts_init(&p, g);
    compiler c = compiler_of(&p, schema_, e);
    int rc = compile(&c, schema_, LILY_GRAMMAR_END, &start);
    if (rc == LILY_OK) {
        rc = finish(&p, start, e);
        if (rc != LILY_OK && rc != LILY_NO_MEMORY) rc = lily_err_prefix(e, "%s", place_of_loop(&c));
    }
    compiler_free(&c);
    if (rc != LILY_OK) lily_grammar_let_go(g);
    *out = rc == LILY_OK ? g : NULL;
    return rc;
}

int lily_json_object(lily_grammar **out, lily_err *e)
{
    json_parts p;
    lily_grammar *g;
    TRY(lily_grammar_new(&g, e));
    parts_init(&p, g);
    int rc = finish(&p, part_any_object(&p, LILY_GRAMMAR_END), e);
    if (rc != LILY_OK) lily_grammar_let_go(g);
    *out = rc == LILY_OK ? g : NULL;
    return rc;
}
