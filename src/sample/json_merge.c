#include "sample/json_merge.h"

#include <string.h>

#include "base/mem.h"
#include "sample/json_keywords.h"
#include "sample/json_number.h"

void json_merges_free(json_merges *m)
{
    json_decref(m->made);
    lily_free(m->pairs);
    *m = (json_merges){0};
}

/* Keeps what was made; NULL stays NULL. */
static json_t *keep(json_merges *m, json_t *made)
{
    if (!m->made) m->made = json_array();
    return made && m->made && json_array_append_new(m->made, made) == 0 ? made : NULL;
}

static struct json_merge_pair *find_pair(const json_merges *m, const json_t *a, const json_t *b)
{
    uint64_t hash = ((uint64_t)(uintptr_t)a * 31 + (uint64_t)(uintptr_t)b) * UINT64_C(0x9E3779B97F4A7C15);
    size_t at = (size_t)(hash >> 32) & (m->room_pairs - 1);
    while (m->pairs[at].both && (m->pairs[at].a != a || m->pairs[at].b != b))
        at = (at + 1) & (m->room_pairs - 1);
    return &m->pairs[at];
}

/* Room for another pair; the room is a power of two, more than twice what it holds. */
static bool pair_room(json_merges *m)
{
    if (m->room_pairs > 2 * (m->n_pairs + 1)) return true;
    json_merges larger = *m;
    larger.room_pairs = m->room_pairs ? m->room_pairs * 2 : 32;
    larger.pairs = lily_calloc(larger.room_pairs, sizeof *larger.pairs);
    if (!larger.pairs) return false;
    for (size_t i = 0; i < m->room_pairs; i++)
        if (m->pairs[i].both) *find_pair(&larger, m->pairs[i].a, m->pairs[i].b) = m->pairs[i];
    lily_free(m->pairs);
    *m = larger;
    return true;
}

const json_t *json_all_of(json_merges *m, const json_t *a, const json_t *b)
{
    if (json_is_true(a) || a == b) return b;
    if (json_is_true(b)) return a;
    if (!pair_room(m)) return NULL;
    struct json_merge_pair *pair = find_pair(m, a, b);
    if (pair->both) return pair->both;
    json_t *both = keep(m, json_pack("{s:[OO]}", "allOf", a, b));
    if (!both) return NULL;
    *pair = (struct json_merge_pair){a, b, both};
    m->n_pairs++;
    return both;
}

/* ---- one keyword ---- */

static int too_large(lily_err *e)
{
    return lily_fail(e, LILY_UNSUPPORTED, "schemas that must hold together are too large");
}

typedef struct merging {
    json_merges *m;
    const json_t *a, *b;
    json_t *to;
    bool never; /* no value fits both */
    lily_err *e;
} merging;

static int no_memory(const merging *g)
{
    return lily_no_memory(g->e, 0, "a schema");
}

static int set(const merging *g, const char *name, const json_t *value)
{
    return value && json_object_set(g->to, name, (json_t *)value) == 0 ? LILY_OK : no_memory(g);
}

static bool has_item(const json_t *list, const json_t *value)
{
    if (!json_is_array(list)) return json_equal((json_t *)list, (json_t *)value);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), (json_t *)value)) return true;
    return false;
}

static bool names_type(const json_t *types, const char *name)
{
    json_t *text = json_string(name);
    bool has = text && has_item(types, text);
    json_decref(text);
    return has;
}

/* An integer is a number too. */
static int merge_types(merging *g, const json_t *a, const json_t *b)
{
    static const char *const names[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
    json_t *both = keep(g->m, json_array());
    for (size_t i = 0; both && i < sizeof names / sizeof *names; i++) {
        bool in_a = names_type(a, names[i]), in_b = names_type(b, names[i]);
        if (i == 4 && names_type(both, "number")) continue;
        if (i == 4) {
            in_a = in_a || names_type(a, "number");
            in_b = in_b || names_type(b, "number");
        }
        if (in_a && in_b && json_array_append_new(both, json_string(names[i])) != 0) return no_memory(g);
    }
    g->never = g->never || (both && json_array_size(both) == 0);
    return set(g, "type", both);
}

/* The values that both list. */
static int merge_listed(merging *g, const json_t *a, const json_t *b)
{
    size_t pairs = json_array_size(a) * json_array_size(b);
    json_t *both = keep(g->m, json_array());
    if (pairs >= g->m->left) return too_large(g->e);
    g->m->left -= (uint32_t)pairs;
    for (size_t i = 0; both && i < json_array_size(a); i++) {
        json_t *v = json_array_get(a, i);
        if (has_item(b, v) && json_array_append(both, v) != 0) return no_memory(g);
    }
    g->never = g->never || (both && json_array_size(both) == 0);
    return set(g, "enum", both);
}

/* enum and const as one list, NULL: neither is there. */
static const json_t *listed(const merging *g, const json_t *s)
{
    const json_t *one = json_object_get(s, "const");
    return one ? keep(g->m, json_pack("[O]", one)) : json_object_get(s, "enum");
}

static int merge_values(merging *g)
{
    const json_t *a = listed(g, g->a), *b = listed(g, g->b);
    (void)json_object_del(g->to, "const");
    if (a && b) return merge_listed(g, a, b);
    return a || b ? set(g, "enum", a ? a : b) : LILY_OK;
}

/* The larger (side 1) or the smaller (-1) of two numbers. What is no number is told when it is read. */
static int merge_bound(const merging *g, const char *name, int side, const json_t *a, const json_t *b)
{
    decimal x, y;
    if (!decimal_of(&x, a)) return set(g, name, a);
    if (!decimal_of(&y, b)) return set(g, name, b);
    return set(g, name, decimal_compare(&x, &y) * side > 0 ? a : b);
}

static int append_all(const merging *g, json_t *list, const json_t *value)
{
    size_t pairs = json_array_size(list) * json_array_size(value) / 8;
    int failed = 0;
    if (pairs >= g->m->left) return too_large(g->e);
    g->m->left -= (uint32_t)pairs;
    if (!json_is_array(value)) failed = json_array_append(list, (json_t *)value);
    for (size_t i = 0; i < json_array_size(value) && !failed; i++)
        if (!has_item(list, json_array_get(value, i)))
            failed = json_array_append(list, json_array_get(value, i));
    return failed ? no_memory(g) : LILY_OK;
}

/* All of two lists. */
static int merge_lists(const merging *g, const char *name, const json_t *a, const json_t *b)
{
    json_t *both = keep(g->m, json_array());
    if (!both) return no_memory(g);
    TRY(append_all(g, both, a));
    TRY(append_all(g, both, b));
    return set(g, name, both);
}

/* Alternatives of b, each with all of those of a. */
static int merge_any_of(const merging *g, const json_t *a, const json_t *b)
{
    json_t *both = keep(g->m, json_array());
    const json_t *any = keep(g->m, json_pack("{s:O}", "anyOf", a));
    int failed = !both || !any;
    for (size_t i = 0; i < json_array_size(b) && !failed; i++) {
        const json_t *one = json_all_of(g->m, any, json_array_get(b, i));
        failed = !one || json_array_append(both, (json_t *)one) != 0;
    }
    return failed ? no_memory(g) : set(g, "anyOf", both);
}

static int merge_keyword(merging *g, const char *name, const json_t *a, const json_t *b)
{
    static const char *const largest[] = {"minimum", "exclusiveMinimum", "minLength", "minItems"},
                             *const smallest[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"},
                             *const lists[] = {"required", "pattern", "format"};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(name, largest[i]) == 0) return merge_bound(g, name, 1, a, b);
        if (strcmp(name, smallest[i]) == 0) return merge_bound(g, name, -1, a, b);
    }
    for (size_t i = 0; i < 3; i++)
        if (strcmp(name, lists[i]) == 0) return merge_lists(g, name, a, b);
    if (strcmp(name, "type") == 0) return merge_types(g, a, b);
    if (strcmp(name, "anyOf") == 0) return merge_any_of(g, a, b);
    if (strcmp(name, "nullable") == 0) return set(g, name, json_is_true(a) ? b : a);
    if (json_equal((json_t *)a, (json_t *)b)) return LILY_OK;
    return lily_fail(g->e, LILY_UNSUPPORTED, "'%.60s' in two schemas that must both hold is not supported",
                     name);
}

/* ---- members and items ---- */

/* What a schema says of a member; NULL: nothing, which is not the same as true where others are left out. */
static const json_t *member_of(const json_t *s, const char *name)
{
    const json_t *declared = json_object_get(json_object_get(s, "properties"), name);
    return declared ? declared : json_object_get(s, "additionalProperties");
}

static int merge_member(const merging *g, json_t *properties, const char *name)
{
    const json_t *a = member_of(g->a, name), *b = member_of(g->b, name);
    const json_t *both = a && b ? json_all_of(g->m, a, b) : a ? a : b;
    if (g->m->left) g->m->left--;
    return both && json_object_set(properties, name, (json_t *)both) == 0 ? LILY_OK : no_memory(g);
}

static int merge_objects(const merging *g)
{
    const json_t *a = json_object_get(g->a, "properties"), *b = json_object_get(g->b, "properties"),
                 *other_a = json_object_get(g->a, "additionalProperties"),
                 *other_b = json_object_get(g->b, "additionalProperties");
    const char *name;
    json_t *ignored, *properties = NULL;
    if (a || b) {
        properties = keep(g->m, json_object());
        if (!properties) return no_memory(g);
        json_object_foreach ((json_t *)a, name, ignored) TRY(merge_member(g, properties, name));
        json_object_foreach ((json_t *)b, name, ignored)
            if (!json_object_get(properties, name)) TRY(merge_member(g, properties, name));
        TRY(set(g, "properties", properties));
    }
    if (other_a && other_b) return set(g, "additionalProperties", json_all_of(g->m, other_a, other_b));
    return other_b ? set(g, "additionalProperties", other_b) : LILY_OK;
}

/* The i-th item's schema, true if there is none. */
static const json_t *item_of(const json_t *s, size_t i)
{
    const json_t *items = json_object_get(s, "items"), *prefix = json_object_get(s, "prefixItems"),
                 *rest = json_is_array(items) ? json_object_get(s, "additionalItems") : items;
    if (json_is_array(items)) prefix = items;
    const json_t *item = i < json_array_size(prefix) ? json_array_get(prefix, i) : rest;
    return item ? item : json_true();
}

static size_t n_prefix(const json_t *s)
{
    const json_t *items = json_object_get(s, "items");
    return json_array_size(json_is_array(items) ? items : json_object_get(s, "prefixItems"));
}

static int merge_items(const merging *g)
{
    size_t a = n_prefix(g->a), b = n_prefix(g->b), n = a > b ? a : b;
    json_t *prefix = keep(g->m, json_array());
    int failed = !prefix;
    for (size_t i = 0; i < n && !failed; i++) {
        const json_t *both = json_all_of(g->m, item_of(g->a, i), item_of(g->b, i));
        failed = !both || json_array_append(prefix, (json_t *)both) != 0;
    }
    if (failed) return no_memory(g);
    (void)json_object_del(g->to, "additionalItems");
    if (n) TRY(set(g, "prefixItems", prefix));
    return set(g, "items", json_all_of(g->m, item_of(g->a, n), item_of(g->b, n)));
}

/* ---- schemas ---- */

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

const json_t *json_without(json_merges *m, const json_t *s, const char *const *names, size_t n, lily_err *e)
{
    const char *name;
    json_t *value, *to = keep(m, json_object());
    if (!to) {
        (void)lily_no_memory(e, 0, "a schema");
        return NULL;
    }
    json_object_foreach ((json_t *)s, name, value) {
        if (m->left == 0) {
            (void)too_large(e);
            return NULL;
        }
        m->left--;
        if (is_one_of(name, names, n)) continue;
        if (json_object_set(to, name, value) != 0) {
            (void)lily_no_memory(e, 0, "a schema");
            return NULL;
        }
    }
    return to;
}

static int merge(merging *g)
{
    static const char *const together[] = {"properties",  "additionalProperties", "items",
                                           "prefixItems", "additionalItems",      "enum",
                                           "const",       "uniqueItems"};
    const char *name;
    json_t *value;
    unsigned a = 0, b = 0, group;
    TRY(set(g, JSON_MERGED, json_true()));
    json_object_foreach ((json_t *)g->a, name, value)
        if (json_keyword_group(name, &group)) a |= group;
    json_object_foreach ((json_t *)g->b, name, value) {
        if (json_keyword_group(name, &group)) b |= group;
        if (is_one_of(name, together, 7)) continue;
        const json_t *other = json_object_get(g->a, name);
        TRY(other && group != KEYWORD_IGNORED ? merge_keyword(g, name, other, value) : set(g, name, value));
    }
    if (a & b & KEYWORD_OBJECT) {
        TRY(merge_objects(g));
    } else if (b & KEYWORD_OBJECT) {
        for (size_t i = 0; i < 2; i++)
            if (json_object_get(g->b, together[i]))
                TRY(set(g, together[i], json_object_get(g->b, together[i])));
    }
    if (b & KEYWORD_ARRAY) TRY(merge_items(g));
    if (a & b & KEYWORD_VALUES) return merge_values(g);
    for (size_t i = 5; i < 7 && b & KEYWORD_VALUES; i++)
        if (json_object_get(g->b, together[i])) TRY(set(g, together[i], json_object_get(g->b, together[i])));
    return LILY_OK;
}

const json_t *json_merge(json_merges *m, const json_t *a, const json_t *b, lily_err *e)
{
    if (json_is_true(b) || json_is_false(a)) return a;
    if (json_is_true(a) || json_is_false(b)) return b;
    merging g = {.m = m, .a = a, .b = b, .e = e};
    g.to = (json_t *)json_without(m, a, NULL, 0, e);
    if (!g.to || merge(&g) != LILY_OK) return NULL;
    return g.never ? json_false() : g.to;
}
