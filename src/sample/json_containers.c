/* json_containers.c - lists and objects of a schema. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "sample/json_compiler.h"

/* ---- lists ---- */

/* A rule for the items at `name`. */
static int item_rule(compiler *c, const json_t *s, const char *name, const char *under, uint32_t *rule)
{
    uint32_t item;
    TRY(json_below(c, s, name, under, LILY_GRAMMAR_END, &item));
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

int json_lists(compiler *c, const json_t *s, uint32_t next, uint32_t *out)
{
    int64_t low, high;
    const json_t *items = json_object_get(s, "items"), *prefix = json_object_get(s, "prefixItems"),
                 *unique = json_object_get(s, "uniqueItems");
    bool old = json_is_array(items);
    const json_t *rest = old ? json_object_get(s, "additionalItems") : items;
    uint32_t rule = c->p.value;
    if (old) prefix = items;
    if (unique && !json_is_false(unique))
        return REFUSE(c, LILY_UNSUPPORTED, "'uniqueItems' is not supported");
    if (prefix && !json_is_array(prefix))
        return REFUSE(c, LILY_ARGUMENT, "'prefixItems' must be a list of schemas");
    if (json_array_size(prefix) > MAX_NAMES)
        return REFUSE(c, LILY_UNSUPPORTED, "more than %d items", MAX_NAMES);
    TRY(json_read_count(c, s, "minItems", 0, &low));
    TRY(json_read_count(c, s, "maxItems", -1, &high));
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

/* ---- objects ---- */

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
            TRY(json_below(c, m[n].schema, "properties", m[n].name, at->after, &value));
        else
            TRY(json_below(c, m[n].schema, "additionalProperties", NULL, at->after, &value));
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
        TRY(json_below(c, other, "additionalProperties", NULL, at.after, &value));
        at.one = part_other_key(&c->p, names, lily_grammar_text(g, ":", 1, part_space(&c->p, value)));
        lily_grammar_set_split(g, at.after, end, lily_grammar_text(g, ",", 1, part_space(&c->p, at.one)));
    }
    TRY(members(c, m, json_object_size(names), &at));
    uint32_t first = at.needs ? at.one : lily_grammar_split(g, close, at.one);
    *out = lily_grammar_text(g, "{", 1, part_space(&c->p, first));
    return LILY_OK;
}

int json_objects(compiler *c, const json_t *s, uint32_t next, uint32_t *out)
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
