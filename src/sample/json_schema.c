#include "sample/json_schema.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sample/json_exclude.h"
#include "sample/json_parts.h"
#include "sample/json_schema_part.h"
#include "text/big_number.h"

/* What a schema may cost. */
enum { MAX_NESTING = 64, MAX_SCHEMAS = 20000, MAX_NAMES = 2048, MAX_REFS = 256, MAX_ALTERNATIVES = 1024 };
enum { MAX_COMPARED = 200000 }; /* pairs of schemas and values, for all oneOf together */

typedef struct reference {
    const json_t *target;
    const char *name; /* "#/$defs/x", in the schema */
    uint32_t rule;
} reference;

typedef struct compiler {
    json_parts p;
    lily_grammar *g;
    const json_t *root;
    reference *refs; /* those from n_done on are still to be compiled */
    size_t n_refs, n_done;
    lily_buf place; /* "#/properties/x" */
    int nesting;
    uint32_t n_schemas;
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

/* The schema `s` at `name` below the present place (and at `under` below that, NULL: nothing). */
static int below(compiler *c, const json_t *s, const char *name, const char *under, uint32_t next,
                 uint32_t *out)
{
    size_t len = c->place.len;
    lily_buf_printf(&c->place, under ? "/%s/%.100s" : "/%s", name, under);
    if (c->nesting == MAX_NESTING) return REFUSE(c, LILY_UNSUPPORTED, "nested deeper than %d", MAX_NESTING);
    c->nesting++;
    TRY(schema(c, s, next, out));
    c->nesting--;
    c->place.len = len;
    c->place.data[len] = '\0';
    return LILY_OK;
}

/* ---- keywords ---- */

enum {
    TYPE = 1,
    ENUM = 2,
    CONST = 4,
    ANY_OF = 8,
    ONE_OF = 16,
    REF = 32,
    OBJECT = 64,
    ARRAY = 128,
    STRING = 256,
    NUMBER = 512,
    IGNORED = 0,
};

static const struct {
    const char *name;
    unsigned group;
} keywords[] = {
    {"type", TYPE},
    {"enum", ENUM},
    {"const", CONST},
    {"anyOf", ANY_OF},
    {"oneOf", ONE_OF},
    {"$ref", REF},
    {"properties", OBJECT},
    {"required", OBJECT},
    {"additionalProperties", OBJECT},
    {"items", ARRAY},
    {"minItems", ARRAY},
    {"maxItems", ARRAY},
    {"minLength", STRING},
    {"maxLength", STRING},
    {"minimum", NUMBER},
    {"maximum", NUMBER},
    {"exclusiveMinimum", NUMBER},
    {"exclusiveMaximum", NUMBER},
    {"title", IGNORED},
    {"description", IGNORED},
    {"default", IGNORED},
    {"examples", IGNORED},
    {"$schema", IGNORED},
    {"$comment", IGNORED},
    {"deprecated", IGNORED},
    {"readOnly", IGNORED},
    {"writeOnly", IGNORED},
    {"strict", IGNORED},
    {"$defs", IGNORED},
    {"definitions", IGNORED},
};

/* The groups of the keywords of `s`. */
static int read_keywords(compiler *c, const json_t *s, unsigned *groups)
{
    const char *name;
    json_t *value;
    *groups = 0;
    json_object_foreach ((json_t *)s, name, value) {
        size_t i = 0, n = sizeof keywords / sizeof keywords[0];
        while (i < n && strcmp(keywords[i].name, name) != 0) i++;
        if (i == n) return REFUSE(c, LILY_UNSUPPORTED, "'%.60s' is not supported", name);
        *groups |= keywords[i].group;
    }
    return LILY_OK;
}

/* `group` decides alone, but for `beside`. */
static int alone(compiler *c, const json_t *s, unsigned groups, unsigned group, unsigned beside)
{
    const char *decides = "", *other = "", *name;
    json_t *value;
    if (!(groups & ~(group | beside))) return LILY_OK;
    json_object_foreach ((json_t *)s, name, value)
        for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
            if (strcmp(keywords[i].name, name) != 0) continue;
            if (keywords[i].group == group)
                decides = name;
            else if (keywords[i].group & ~beside)
                other = name;
        }
    return REFUSE(c, LILY_UNSUPPORTED, "'%.60s' beside '%.60s' is not supported", other, decides);
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
    if (x > LILY_GRAMMAR_NODES) return REFUSE(c, LILY_UNSUPPORTED, "'%s' is too large", name);
    *out = (int64_t)x;
    return LILY_OK;
}

/* ---- references ---- */

static int refer(compiler *c, const json_t *s, uint32_t next, uint32_t *out)
{
    const char *name = json_string_value(json_object_get(s, "$ref"));
    if (!name) return REFUSE(c, LILY_ARGUMENT, "'$ref' must be a string");
    if (name[0] != '#')
        return REFUSE(c, LILY_UNSUPPORTED, "'$ref' to '%.80s': only '#/…' is supported", name);
    const json_t *target = json_schema_at(c->root, name);
    if (!target) return REFUSE(c, LILY_ARGUMENT, "'$ref' to '%.80s', which does not exist", name);
    size_t i = 0;
    while (i < c->n_refs && c->refs[i].target != target) i++;
    if (i == MAX_REFS) return REFUSE(c, LILY_UNSUPPORTED, "more than %d references", MAX_REFS);
    if (i == c->n_refs) c->refs[c->n_refs++] = (reference){target, name, lily_grammar_rule(c->g)};
    *out = lily_grammar_call(c->g, c->refs[i].rule, next);
    return LILY_OK;
}

/* ---- alternatives ---- */

/* oneOf: no value fits the i-th alternative and an earlier one. */
static int check_excluded(compiler *c, const json_t *list, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (json_schemas_exclude(c->root, json_array_get(list, k), json_array_get(list, i), &c->compared))
            continue;
        if (c->compared == 0)
            return REFUSE(c, LILY_UNSUPPORTED, "'oneOf' takes more than %d comparisons", MAX_COMPARED);
        return REFUSE(c, LILY_UNSUPPORTED, "'oneOf': alternatives %zu and %zu may fit the same value", k, i);
    }
    return LILY_OK;
}

static int alternatives(compiler *c, const json_t *s, const char *name, uint32_t next, uint32_t *out)
{
    const json_t *list = json_object_get(s, name);
    size_t n = json_array_size(list);
    if (n == 0) return REFUSE(c, LILY_ARGUMENT, "'%s' must be a list of schemas", name);
    if (n > MAX_ALTERNATIVES)
        return REFUSE(c, LILY_UNSUPPORTED, "'%s' has more than %d schemas", name, MAX_ALTERNATIVES);
    *out = lily_grammar_never(c->g);
    for (size_t i = 0; i < n; i++) {
        char number[24];
        uint32_t one;
        if (strcmp(name, "oneOf") == 0) TRY(check_excluded(c, list, i));
        snprintf(number, sizeof number, "%zu", i);
        TRY(below(c, json_array_get(list, i), name, number, next, &one));
        *out = lily_grammar_split(c->g, *out, one);
    }
    return LILY_OK;
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
        if (groups & OBJECT) *types |= 1u << T_OBJECT;
        if (groups & ARRAY) *types |= 1u << T_ARRAY;
        if (groups & STRING) *types |= 1u << T_STRING;
        if (groups & NUMBER) *types |= 1u << T_INTEGER;
    }
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
    size_t n = one ? 1 : json_array_size(list);
    if (n == 0) return REFUSE(c, LILY_ARGUMENT, "'enum' must be a list of values");
    if (n > MAX_ALTERNATIVES)
        return REFUSE(c, LILY_UNSUPPORTED, "'enum' has more than %d values", MAX_ALTERNATIVES);
    *out = lily_grammar_never(c->g);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = one ? one : json_array_get(list, i);
        if (types && !has_type(v, types)) continue;
        *out = lily_grammar_split(c->g, *out, part_literal(&c->p, v, next));
    }
    return LILY_OK;
}

/* ---- integers ---- */

#define MOST INT64_C(999999999999999999) /* of JSON_DIGITS digits */

/* A bound as the last integer that is inside: `side` 1 for a lower, -1 for an upper one. */
static int read_bound(compiler *c, const json_t *s, const char *name, int side, bool open, int64_t *bound)
{
    const json_t *v = json_object_get(s, name);
    if (!v) return LILY_OK;
    if (!json_is_number(v))
        return REFUSE(c, LILY_ARGUMENT, "'%s' must be a number of at most 18 digits", name);
    double x = json_number_value(v), whole = side > 0 ? ceil(x) : floor(x);
    int64_t inside = whole > (double)MOST ? MOST + 1 : whole < -(double)MOST ? -MOST - 1 : (int64_t)whole;
    if (json_is_integer(v) && json_integer_value(v) >= -MOST && json_integer_value(v) <= MOST)
        inside = json_integer_value(v);
    if (open && whole == x) inside += side;
    if (side > 0 ? inside > *bound : inside < *bound) *bound = inside;
    return LILY_OK;
}

static int integers(compiler *c, const json_t *s, uint32_t next, uint32_t *out)
{
    int64_t low = -MOST, high = MOST;
    TRY(read_bound(c, s, "minimum", 1, false, &low));
    TRY(read_bound(c, s, "exclusiveMinimum", 1, true, &low));
    TRY(read_bound(c, s, "maximum", -1, false, &high));
    TRY(read_bound(c, s, "exclusiveMaximum", -1, true, &high));
    *out = part_integer(&c->p, low, high, next);
    return LILY_OK;
}

/* ---- lists and objects ---- */

static int list(compiler *c, const json_t *s, uint32_t next, uint32_t *out)
{
    int64_t low, high;
    const json_t *items = json_object_get(s, "items");
    uint32_t rule = c->p.value;
    TRY(read_count(c, s, "minItems", 0, &low));
    TRY(read_count(c, s, "maxItems", -1, &high));
    if (json_is_array(items)) return REFUSE(c, LILY_UNSUPPORTED, "'items' as a list is not supported");
    if (items) {
        uint32_t item;
        TRY(below(c, items, "items", NULL, LILY_GRAMMAR_END, &item));
        rule = lily_grammar_rule(c->g);
        lily_grammar_set_rule(c->g, rule, item);
    }
    *out = high >= 0 && low > high ? lily_grammar_never(c->g) : part_list(&c->p, rule, low, high, next);
    return LILY_OK;
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

/* ---- a schema ---- */

static int string(compiler *c, const json_t *s, uint32_t next, uint32_t *out)
{
    int64_t low, high;
    TRY(read_count(c, s, "minLength", 0, &low));
    TRY(read_count(c, s, "maxLength", -1, &high));
    bool any = low == 0 && high < 0, none = high >= 0 && low > high;
    *out = any    ? part_any_string(&c->p, next)
           : none ? lily_grammar_never(c->g)
                  : part_string(&c->p, low, high, next);
    return LILY_OK;
}

static int one_type(compiler *c, const json_t *s, unsigned groups, int type, uint32_t next, uint32_t *out)
{
    lily_grammar *g = c->g;
    switch (type) {
    case T_OBJECT:
        if (groups & OBJECT) return object(c, s, next, out);
        *out = part_any_object(&c->p, next);
        return LILY_OK;
    case T_ARRAY:
        return list(c, s, next, out);
    case T_STRING:
        return string(c, s, next, out);
    case T_INTEGER:
        if (groups & NUMBER) return integers(c, s, next, out);
        *out = part_any_integer(&c->p, next);
        return LILY_OK;
    case T_NUMBER:
        if (groups & NUMBER)
            return REFUSE(c, LILY_UNSUPPORTED,
                          "bounds ('minimum', 'maximum' …) are supported for integers only");
        *out = part_any_number(&c->p, next);
        return LILY_OK;
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

static int schema(compiler *c, const json_t *s, uint32_t next, uint32_t *out)
{
    unsigned groups, types;
    if (json_is_boolean(s)) {
        *out = json_is_true(s) ? part_any(&c->p, next) : lily_grammar_never(c->g);
        return LILY_OK;
    }
    if (!json_is_object(s) || lily_big_number(s))
        return REFUSE(c, LILY_ARGUMENT, "a schema must be an object, true or false");
    if (++c->n_schemas > MAX_SCHEMAS || c->g->too_large)
        return REFUSE(c, LILY_UNSUPPORTED, "the schema is too large");
    if (c->g->no_memory) return lily_no_memory(c->e, c->g->n_nodes * sizeof *c->g->nodes, "a grammar");
    TRY(read_keywords(c, s, &groups));
    if (groups & REF) {
        TRY(alone(c, s, groups, REF, 0));
        return refer(c, s, next, out);
    }
    if (groups & (ANY_OF | ONE_OF)) {
        bool any = groups & ANY_OF;
        TRY(alone(c, s, groups, any ? ANY_OF : ONE_OF, 0));
        return alternatives(c, s, any ? "anyOf" : "oneOf", next, out);
    }
    TRY(read_types(c, s, groups, &types));
    if (groups & (ENUM | CONST)) {
        TRY(alone(c, s, groups, groups & CONST ? CONST : ENUM, TYPE));
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

static int compile(compiler *c, const json_t *s, uint32_t next, uint32_t *start)
{
    uint32_t node;
    c->refs = lily_calloc(MAX_REFS, sizeof *c->refs);
    if (!c->refs) return lily_no_memory(c->e, MAX_REFS * sizeof *c->refs, "a schema");
    TRY(set_place(c, "#"));
    TRY(schema(c, s, next, start));
    for (; c->n_done < c->n_refs; c->n_done++) {
        const reference r = c->refs[c->n_done];
        TRY(set_place(c, r.name));
        TRY(schema(c, r.target, LILY_GRAMMAR_END, &node));
        lily_grammar_set_rule(c->g, r.rule, node);
    }
    return LILY_OK;
}

int json_schema_part(const json_parts *p, const json_t *root, const json_t *s, uint32_t next, uint32_t *node,
                     lily_err *e)
{
    compiler c = {.p = *p, .g = p->g, .root = root, .compared = MAX_COMPARED, .e = e};
    int rc = compile(&c, s, next, node);
    lily_buf_free(&c.place);
    lily_free(c.refs);
    return rc;
}

int lily_json_schema(lily_grammar **out, const json_t *schema_, lily_err *e)
{
    json_parts p;
    lily_grammar *g;
    uint32_t start;
    TRY(lily_grammar_new(&g, e));
    parts_init(&p, g);
    int rc = json_schema_part(&p, schema_, schema_, LILY_GRAMMAR_END, &start, e);
    if (rc == LILY_OK) {
        rc = finish(&p, start, e);
        if (rc != LILY_OK) rc = lily_err_prefix(e, "#");
    }
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
