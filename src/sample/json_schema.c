#include "sample/json_schema.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sample/dfa.h"
#include "sample/json_exclude.h"
#include "sample/json_keywords.h"
#include "sample/json_merge.h"
#include "sample/json_number.h"
#include "sample/json_parts.h"
#include "sample/json_schema_part.h"
#include "text/big_number.h"

/* What a schema may cost. */
enum { MAX_NESTING = 64, MAX_SCHEMAS = 10000, MAX_NAMES = 2048, MAX_REFS = 1024, MAX_ALTERNATIVES = 1024 };
enum { MAX_VALUES = 4096, MAX_COUNT = 10000 };
enum { MAX_COMPARED = 100000 }; /* pairs of schemas and values, for all oneOf together */
enum { MAX_MERGED = 100000 };   /* keywords that making one schema out of several may copy */
enum { MAX_PATTERNS = 256 };    /* `pattern` and `format` in all */

/* A schema that is compiled as a rule of its own: what a $ref leads to, or one that is put together. */
typedef struct reference {
    const json_t *target;
    char *place; /* "#/$defs/x" */
    uint32_t rule;
    bool merges;
} reference;

/* The rule of strings that fit a pattern and a format (either may be NULL) and are of some length. */
typedef struct patterned {
    const json_t *pattern, *format;
    int64_t low, high;
    uint32_t rule;
} patterned;

typedef struct compiler {
    json_parts p;
    lily_grammar *g;
    const json_t *root;
    reference *refs; /* those from n_done on are still to be compiled */
    size_t n_refs, n_done;
    json_merges merges;
    lily_buf place; /* "#/properties/x" */
    int nesting;
    patterned *patterns;
    uint32_t n_schemas, n_patterns;
    uint32_t compared; /* what is left of MAX_COMPARED */
    lily_err *e;
} compiler;

static int schema(compiler *c, const json_t *s, uint32_t next, uint32_t *out);

#define REFUSE(c, code, ...) refuse_at((c), (code), __FILE__, __LINE__, __VA_ARGS__)
static int refuse_at(compiler *c, enum lily_code code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

static int refuse_at(compiler *c, enum lily_code code, const char *file, int line, const char *fmt, ...)
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
static int below(compiler *c, const json_t *s, const char *name, const char *under, uint32_t next,
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
        if ((strcmp(name, "pattern") == 0 || strcmp(name, "format") == 0) && !json_is_string(value) && !merged)
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
static int read_count(compiler *c, const json_t *s, const char *name, int64_t missing, int64_t *out)
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
static int refer(compiler *c, const json_t *target, const char *place, bool merges, uint32_t next, uint32_t *out)
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
    if (name[0] != '#') return REFUSE(c, LILY_UNSUPPORTED, "'$ref' to '%.80s': only '#/…' is supported", name);
    *target = json_schema_at(c->root, name);
    if (!*target) return REFUSE(c, LILY_ARGUMENT, "'$ref' to '%.80s', which does not exist", name);
    return LILY_OK;
}

/* ---- schemas that hold together ---- */

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
    if (list && json_array_size(list) == 0) return REFUSE(c, LILY_ARGUMENT, "'allOf' must be a list of schemas");
    c->nesting++;
    if (!(*out = json_without(&c->merges, s, combining, 2, c->e))) return (int)c->e->code;
    if (groups & KEYWORD_REF) {
        TRY(find_target(c, s, &target));
        TRY(flatten(c, target, &one));
        if (!(*out = json_merge(&c->merges, one, *out, c->e))) return (int)c->e->code;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        go_below(c, "allOf", number);
        TRY(flatten(c, json_array_get(list, i), &one));
        if (!(*out = json_merge(&c->merges, *out, one, c->e))) return (int)c->e->code;
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
    return *out ? LILY_OK : (int)c->e->code;
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
        TRY(below(c, made[i], name, number, next, &nodes[i]));
    }
    return LILY_OK;
}

/* All values that one of the alternatives lists without more: they are read as one list. */
static const json_t *listed_values(compiler *c, const json_t *list)
{
    json_t *all = json_array();
    bool only = all != NULL;
    for (size_t i = 0; i < json_array_size(list) && only; i++) {
        const json_t *s = json_array_get(list, i), *one = json_object_get(s, "const"), *some = json_object_get(s, "enum");
        const char *name;
        json_t *ignored;
        unsigned group = KEYWORD_IGNORED;
        json_object_foreach ((json_t *)s, name, ignored)
            only = only && json_keyword_group(name, &group) && (group == KEYWORD_VALUES || group == KEYWORD_IGNORED);
        only = only && (!one != !some) && (one ? json_array_append(all, (json_t *)one) : json_array_extend(all, (json_t *)some)) == 0;
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
    if (groups & ~own && !(beside = json_without(&c->merges, s, &name, 1, c->e))) return (int)c->e->code;
    if (!beside && own == KEYWORD_ANY_OF && (values = listed_values(c, list))) return schema(c, values, next, out);
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

/* ---- numbers ---- */

/* A bound that is narrower than *bound takes its place. */
static int read_bound(compiler *c, const json_t *s, const char *name, int side, bool is_open, decimal *room,
                      const decimal **bound, bool *open)
{
    const json_t *v = json_object_get(s, name);
    decimal d;
    if (!v) return LILY_OK;
    if (!decimal_of(&d, v)) return REFUSE(c, LILY_ARGUMENT, "'%s' must be a number", name);
    int compared = *bound ? decimal_compare(&d, *bound) * side : 1;
    if (compared < 0 || (compared == 0 && !is_open)) return LILY_OK;
    *room = d;
    *bound = room;
    *open = is_open;
    return LILY_OK;
}

/* int32 bounds; the others hold more than the digits that are written. */
static int read_number_format(compiler *c, const json_t *s, bool *int32)
{
    const json_t *format = json_object_get(s, "format");
    const char *name = json_string_value(format);
    static const char *const known[] = {"int32", "int64", "float", "double"};
    *int32 = name && strcmp(name, "int32") == 0;
    for (size_t i = 0; i < 4; i++)
        if (name && strcmp(known[i], name) == 0) return LILY_OK;
    if (name && json_format_pattern(name)) return LILY_OK; /* of strings, which may be declared beside */
    return format ? REFUSE(c, LILY_UNSUPPORTED, "'format' %.60s of numbers is not supported", name ? name : "") : LILY_OK;
}

static int numbers(compiler *c, const json_t *s, unsigned groups, bool whole, uint32_t next, uint32_t *out)
{
    static const decimal least32 = {.negative = true, .whole = "2147483648"}, most32 = {.whole = "2147483647"};
    decimal low, high;
    number_bounds b = {0};
    bool int32 = false;
    if (groups & KEYWORD_STRING) TRY(read_number_format(c, s, &int32));
    TRY(read_bound(c, s, "minimum", 1, false, &low, &b.low, &b.open_low));
    TRY(read_bound(c, s, "exclusiveMinimum", 1, true, &low, &b.low, &b.open_low));
    TRY(read_bound(c, s, "maximum", -1, false, &high, &b.high, &b.open_high));
    TRY(read_bound(c, s, "exclusiveMaximum", -1, true, &high, &b.high, &b.open_high));
    if (int32 && (!b.low || decimal_compare(b.low, &least32) < 0)) {
        b.low = &least32;
        b.open_low = false;
    }
    if (int32 && (!b.high || decimal_compare(b.high, &most32) > 0)) {
        b.high = &most32;
        b.open_high = false;
    }
    if (b.low || b.high)
        *out = part_number_between(&c->p, &b, whole, next);
    else
        *out = whole ? part_any_integer(&c->p, next) : part_any_number(&c->p, next);
    return LILY_OK;
}

/* ---- lists and objects ---- */

/* A rule for the items at `name`. */
static int item_rule(compiler *c, const json_t *s, const char *name, const char *under, uint32_t *rule)
{
    uint32_t item;
    TRY(below(c, s, name, under, LILY_GRAMMAR_END, &item));
    *rule = lily_grammar_rule(c->g);
    lily_grammar_set_rule(c->g, *rule, item);
    return LILY_OK;
}

static int prefix_rules(compiler *c, const json_t *prefix, const char *name, uint32_t *rules)
{
    for (size_t i = 0; i < json_array_size(prefix); i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        TRY(item_rule(c, json_array_get(prefix, i), name, number, &rules[i]));
    }
    return LILY_OK;
}

static int list(compiler *c, const json_t *s, uint32_t next, uint32_t *out)
{
    int64_t low, high;
    const json_t *items = json_object_get(s, "items"), *prefix = json_object_get(s, "prefixItems"),
                 *unique = json_object_get(s, "uniqueItems");
    bool old = json_is_array(items);
    const json_t *rest = old ? json_object_get(s, "additionalItems") : items;
    uint32_t rule = c->p.value;
    if (old) prefix = items;
    if (unique && !json_is_false(unique)) return REFUSE(c, LILY_UNSUPPORTED, "'uniqueItems' is not supported");
    if (prefix && !json_is_array(prefix)) return REFUSE(c, LILY_ARGUMENT, "'prefixItems' must be a list of schemas");
    if (json_array_size(prefix) > MAX_NAMES) return REFUSE(c, LILY_UNSUPPORTED, "more than %d items", MAX_NAMES);
    TRY(read_count(c, s, "minItems", 0, &low));
    TRY(read_count(c, s, "maxItems", -1, &high));
    if (json_is_false(rest))
        rule = PART_NONE;
    else if (rest && !json_is_true(rest))
        TRY(item_rule(c, rest, old ? "additionalItems" : "items", NULL, &rule));
    size_t n = json_array_size(prefix);
    uint32_t *rules = lily_calloc(n, sizeof *rules);
    int rc = rules ? prefix_rules(c, prefix, old ? "items" : "prefixItems", rules)
                   : lily_no_memory(c->e, n * sizeof *rules, "a schema");
    if (rc == LILY_OK) *out = part_list(&c->p, rules, n, rule, low, high, next);
    lily_free(rules);
    return rc;
}

typedef struct member {
    const char *name;
    const json_t *schema;
    bool required, declared;
} member;

/* The names that `s` requires, as an object's; those that are no property are added to `names`. */
static int read_required(compiler *c, const json_t *s, json_t *names, json_t *needed)
{
    const json_t *required = json_object_get(s, "required"),
                 *other = json_object_get(s, "additionalProperties");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (!name) return REFUSE(c, LILY_ARGUMENT, "'required' must be a list of names");
        bool failed = json_object_set_new(needed, name, json_true()) != 0;
        if (!json_object_get(names, name))
            failed =
                json_object_set_new(names, name, other ? json_incref((json_t *)other) : json_true()) != 0 ||
                failed;
        if (failed) return lily_no_memory(c->e, 0, "a schema");
    }
    return LILY_OK;
}

/* The members that have names, in order: those of `properties`, then others that are required. */
static int read_members(compiler *c, const json_t *s, json_t *names, json_t *needed, member **out)
{
    const json_t *properties = json_object_get(s, "properties");
    const char *name;
    json_t *value;
    size_t n = 0;
    TRY(read_required(c, s, names, needed));
    *out = lily_calloc(json_object_size(names), sizeof **out);
    if (!*out) return lily_no_memory(c->e, json_object_size(names) * sizeof **out, "a schema");
    json_object_foreach (names, name, value)
        (*out)[n++] = (member){name, value, json_object_get(needed, name) != NULL,
                               json_object_get(properties, name) != NULL};
    return LILY_OK;
}

/* Where an object can go on. */
typedef struct places {
    uint32_t end;   /* white space and the brace */
    uint32_t one;   /* a member that must come */
    uint32_t after; /* behind a member */
    bool needs;     /* a required member is still to come */
} places;

/* Puts the n members before the places that follow them, from the last to the first. */
static int members(compiler *c, const member *m, size_t n, places *at)
{
    lily_grammar *g = c->g;
    while (n-- > 0) {
        uint32_t value;
        if (m[n].declared)
            TRY(below(c, m[n].schema, "properties", m[n].name, at->after, &value));
        else
            TRY(below(c, m[n].schema, "additionalProperties", NULL, at->after, &value));
        uint32_t one = part_key(&c->p, m[n].name, lily_grammar_text(g, ":", 1, part_space(&c->p, value)));
        at->one = m[n].required ? one : lily_grammar_split(g, one, at->one);
        at->needs = at->needs || m[n].required;
        uint32_t comma = lily_grammar_text(g, ",", 1, part_space(&c->p, at->one));
        at->after = at->needs ? comma : lily_grammar_split(g, at->end, comma);
    }
    return LILY_OK;
}

static int object_of(compiler *c, const json_t *s, const json_t *names, const member *m, uint32_t next,
                     uint32_t *out)
{
    lily_grammar *g = c->g;
    const json_t *other = json_object_get(s, "additionalProperties");
    uint32_t close = lily_grammar_text(g, "}", 1, next), end = part_space(&c->p, close);
    places at = {.end = end, .one = lily_grammar_never(g), .after = end};
    if (!other && !json_object_get(s, "properties")) other = json_true();
    if (other && !json_is_false(other)) {
        uint32_t value;
        at.after = lily_grammar_split(g, LILY_GRAMMAR_END, LILY_GRAMMAR_END);
        TRY(below(c, other, "additionalProperties", NULL, at.after, &value));
        at.one = part_other_key(&c->p, names, lily_grammar_text(g, ":", 1, part_space(&c->p, value)));
        lily_grammar_set_split(g, at.after, end, lily_grammar_text(g, ",", 1, part_space(&c->p, at.one)));
    }
    TRY(members(c, m, json_object_size(names), &at));
    uint32_t first = at.needs ? at.one : lily_grammar_split(g, close, at.one);
    *out = lily_grammar_text(g, "{", 1, part_space(&c->p, first));
    return LILY_OK;
}

static int object(compiler *c, const json_t *s, uint32_t next, uint32_t *out)
{
    const json_t *properties = json_object_get(s, "properties"), *required = json_object_get(s, "required");
    member *m = NULL;
    if ((properties && !json_is_object(properties)) || (required && !json_is_array(required)))
        return REFUSE(c, LILY_ARGUMENT, "'properties' must be an object and 'required' a list");
    if (json_object_size(properties) + json_array_size(required) > MAX_NAMES)
        return REFUSE(c, LILY_UNSUPPORTED, "more than %d names", MAX_NAMES);
    json_t *names = properties ? json_copy((json_t *)properties) : json_object(), *needed = json_object();
    int rc = names && needed ? read_members(c, s, names, needed, &m) : lily_no_memory(c->e, 0, "a schema");
    if (rc == LILY_OK) rc = object_of(c, s, names, m, next, out);
    lily_free(m);
    json_decref(names);
    json_decref(needed);
    return rc;
}

/* ---- strings ---- */

/* The strings that fit one pattern (or format); *with: those that fit all so far, empty at first. */
static int add_pattern(compiler *c, const json_t *value, bool format, dfa *with)
{
    const char *text = json_string_value(value), *pattern = format && text ? json_format_pattern(text) : text;
    dfa one, both;
    lily_err why;
    if (!text) return REFUSE(c, LILY_ARGUMENT, "'%s' must be a string", format ? "format" : "pattern");
    if (!pattern) return REFUSE(c, LILY_UNSUPPORTED, "'format' %.60s is not supported", text);
    int rc = dfa_of_pattern(&one, pattern, format ? strlen(pattern) : json_string_length(value), &c->g->pattern_work, &why);
    if (rc == LILY_OK && with->n_states) {
        rc = dfa_both(&both, &one, with, &c->g->pattern_work, &why);
        dfa_free(&one);
        one = rc == LILY_OK ? both : (dfa){0};
    }
    if (rc == LILY_NO_MEMORY) return lily_no_memory(c->e, 0, "a pattern");
    if (rc != LILY_OK) return REFUSE(c, (enum lily_code)rc, "'%s': %.200s", format ? "format" : "pattern", why.text);
    dfa_free(with);
    *with = one;
    return LILY_OK;
}

static int add_patterns(compiler *c, const json_t *s, const char *name, dfa *with)
{
    const json_t *value = json_object_get(s, name);
    bool format = strcmp(name, "format") == 0;
    if (!value) return LILY_OK;
    if (!json_is_array(value)) return add_pattern(c, value, format, with);
    for (size_t i = 0; i < json_array_size(value); i++) TRY(add_pattern(c, json_array_get(value, i), format, with));
    return LILY_OK;
}

/* The JSON strings of an automaton that are of some length, as a rule. */
static int pattern_rule(compiler *c, dfa *d, int64_t low, int64_t high, uint32_t *rule)
{
    if (low > 0 || high >= 0) {
        dfa limited;
        lily_err why;
        int rc = dfa_of_length(&limited, d, low, high, &c->g->pattern_work, &why);
        if (rc == LILY_NO_MEMORY) return lily_no_memory(c->e, 0, "a pattern");
        if (rc != LILY_OK) return REFUSE(c, (enum lily_code)rc, "'minLength' beside 'pattern' or 'format': %.200s", why.text);
        dfa_free(d);
        *d = limited;
    }
    *rule = lily_grammar_rule(c->g);
    lily_grammar_set_rule(c->g, *rule, part_dfa(&c->p, d, LILY_GRAMMAR_END));
    return LILY_OK;
}

static bool same_json(const json_t *a, const json_t *b)
{
    return a == b || (a && b && json_equal((json_t *)a, (json_t *)b));
}

/* Schemas repeat the same few patterns: each is made once. */
static int pattern_string(compiler *c, const json_t *s, int64_t low, int64_t high, uint32_t next, uint32_t *out)
{
    patterned one = {json_object_get(s, "pattern"), json_object_get(s, "format"), low, high, 0};
    dfa d = {0};
    uint32_t i = 0;
    for (; i < c->n_patterns; i++) {
        const patterned *p = &c->patterns[i];
        if (p->low == low && p->high == high && same_json(p->pattern, one.pattern) && same_json(p->format, one.format)) break;
    }
    if (i == MAX_PATTERNS) return REFUSE(c, LILY_UNSUPPORTED, "more than %d patterns", MAX_PATTERNS);
    if (i == c->n_patterns) {
        int rc = add_patterns(c, s, "pattern", &d);
        if (rc == LILY_OK) rc = add_patterns(c, s, "format", &d);
        if (rc == LILY_OK) rc = pattern_rule(c, &d, low, high, &one.rule);
        dfa_free(&d);
        if (rc != LILY_OK) return rc;
        c->patterns[c->n_patterns++] = one;
    }
    *out = lily_grammar_call(c->g, c->patterns[i].rule, next);
    return LILY_OK;
}

static int string(compiler *c, const json_t *s, uint32_t next, uint32_t *out)
{
    int64_t low, high;
    TRY(read_count(c, s, "minLength", 0, &low));
    TRY(read_count(c, s, "maxLength", -1, &high));
    if (high >= 0 && low > high)
        *out = lily_grammar_never(c->g);
    else if (json_object_get(s, "pattern") || json_object_get(s, "format"))
        return pattern_string(c, s, low, high, next, out);
    else
        *out = low == 0 && high < 0 ? part_any_string(&c->p, next) : part_string(&c->p, low, high, next);
    return LILY_OK;
}

/* ---- a schema ---- */

static int one_type(compiler *c, const json_t *s, unsigned groups, int type, uint32_t next, uint32_t *out)
{
    lily_grammar *g = c->g;
    switch (type) {
    case T_OBJECT:
        if (groups & KEYWORD_OBJECT) return object(c, s, next, out);
        *out = part_any_object(&c->p, next);
        return LILY_OK;
    case T_ARRAY:
        return list(c, s, next, out);
    case T_STRING:
        return string(c, s, next, out);
    case T_INTEGER:
    case T_NUMBER:
        return numbers(c, s, groups, type == T_INTEGER, next, out);
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
