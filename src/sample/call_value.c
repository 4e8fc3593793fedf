#include "sample/call_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sample/json_exclude.h"
#include "sample/json_keywords.h"
#include "sample/json_schema_part.h"
#include "sample/text_pattern.h"
#include "text/big_number.h"
#include "text/reply_value.h"

enum { MAX_DEPTH = 16, MAX_COMPARED = 10000 };
/* Where a string may stand, these are read as such all the same; a number is a string then. */
enum { BESIDE_STRINGS = REPLY_ARRAY | REPLY_OBJECT | REPLY_NULL };

int call_unsupported(const call_maker *m, const char *what)
{
    if (!m->strict) return LILY_OK;
    return lily_fail(m->e, LILY_UNSUPPORTED, "#/properties/%.100s: %s is not supported", m->key, what);
}

/* ---- JSON values ---- */

/* Any JSON value of these types, strings left out. */
static uint32_t json_of_types(const call_maker *m, unsigned types, uint32_t next)
{
    const json_parts *p = &m->json;
    lily_grammar *g = m->g;
    uint32_t all = lily_grammar_never(g), end = text_closing(&m->text, next);
    if (types & REPLY_NUMBER) all = lily_grammar_split(g, all, part_any_number(p, end));
    else if (types & REPLY_INTEGER) all = lily_grammar_split(g, all, part_any_integer(p, end));
    if (types & REPLY_BOOLEAN) all = lily_grammar_split(g, all, part_word(p, "true", end));
    if (types & REPLY_BOOLEAN) all = lily_grammar_split(g, all, part_word(p, "false", end));
    if (types & REPLY_NULL) all = lily_grammar_split(g, all, part_word(p, "null", end));
    if (types & REPLY_ARRAY) all = lily_grammar_split(g, all, part_any_array(p, end));
    if (types & REPLY_OBJECT) all = lily_grammar_split(g, all, part_any_object(p, end));
    return all;
}

/* The values of a schema without strings.  Beside strings the reader knows only some types. */
static int json_value(const call_maker *m, const json_t *schema, unsigned types, uint32_t next, uint32_t *out)
{
    lily_err scratch;
    if (m->types & REPLY_STRING && !(types & BESIDE_STRINGS)) {
        *out = lily_grammar_never(m->g);
        return LILY_OK;
    }
    if (!m->loose || m->strict) {
        int rc = json_schema_part(&m->json, m->parameters, schema, text_closing(&m->text, next), out, &scratch);
        if (rc == LILY_OK) return LILY_OK;
        if (rc == LILY_NO_MEMORY) return lily_no_memory(m->e, 0, "a grammar of calls");
        if (m->strict) {    /* its place begins with that of the parameter */
            const char *place = scratch.text[0] == '#' ? scratch.text + 1 : scratch.text;
            return lily_fail(m->e, (enum lily_code)rc, "#/properties/%.100s%s", m->key, place);
        }
    }
    *out = json_of_types(m, types, next);
    return LILY_OK;
}

/* ---- strings ---- */

/* A string that is not read as an array or object, where one may come as well. */
static uint32_t text_beside(const call_maker *m, uint32_t next)
{
    bool array = m->types & REPLY_ARRAY, object = m->types & REPLY_OBJECT;
    if (m->types & REPLY_ANY || (!array && !object)) return text_any(&m->text, next);
    return text_not_from(&m->text, array && object ? "[{" : array ? "[" : "{", next);
}

/* A count of at most what a grammar can hold. */
static int64_t count_of(const json_t *schema, const char *name, int64_t missing)
{
    const json_t *v = json_object_get(schema, name);
    double x = json_number_value(v);
    return !json_is_number(v) || x < 0 || x > LILY_GRAMMAR_NODES ? missing : (int64_t)x;
}

/* A string that nothing but null stands beside: all its keywords count. */
static int string_alone(const call_maker *m, const json_t *schema, int64_t low, int64_t high, uint32_t next, uint32_t *out)
{
    bool patterned = json_object_get(schema, "pattern") || json_object_get(schema, "format");
    lily_err scratch;
    if (m->loose && !m->strict) {
        *out = text_any(&m->text, next);
        return LILY_OK;
    }
    if (patterned) {
        int rc = text_pattern(&m->text, &m->json, schema, low, high, next, out, &scratch);
        if (rc == LILY_OK) return LILY_OK;
        if (rc == LILY_NO_MEMORY) return lily_no_memory(m->e, 0, "a grammar of calls");
        if (m->strict) return lily_fail(m->e, (enum lily_code)rc, "#/properties/%.100s: %.300s", m->key, scratch.text);
    }
    *out = text_string(&m->text, low, high, next);
    return LILY_OK;
}

static int string_value(const call_maker *m, const json_t *schema, uint32_t next, uint32_t *out)
{
    static const char *const limits[] = {"minLength", "maxLength", "pattern", "format"};
    if (!(m->types & ~(unsigned)(REPLY_STRING | REPLY_NULL)))
        return string_alone(m, schema, count_of(schema, "minLength", 0), count_of(schema, "maxLength", -1), next, out);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (json_object_get(schema, limits[i])) TRY(call_unsupported(m, "a limit of a string that may be something else"));
    *out = text_beside(m, next);
    return LILY_OK;
}

/* ---- listed values ---- */

/* Whether nothing but the keywords `but` says what fits. */
static bool only_describes(const json_t *schema, const char *const *but)
{
    const char *key;
    json_t *ignored;
    json_object_foreach ((json_t *)schema, key, ignored) {
        unsigned group;
        size_t i = 0;
        while (but[i] && strcmp(but[i], key) != 0) i++;
        if (!but[i] && (!json_keyword_group(key, &group) || group != KEYWORD_IGNORED)) return false;
    }
    return true;
}

/* Whether the reader of replies makes the same value of the text. */
static bool reads_back(const call_maker *m, const char *text, size_t n, const json_t *value)
{
    reply_value v = {0};
    lily_buf json = {0};
    lily_err scratch;
    json_t *read = NULL;
    reply_value_begin(&v, m->types);
    reply_value_add(&v, text, n, &json);
    bool same = reply_value_end(&v, &json, &scratch) == LILY_OK && !json.failed &&
                lily_json_parse_big(&read, lily_buf_str(&json), json.len, "value", &scratch) == LILY_OK &&
                json_equal(read, value);
    json_decref(read);
    lily_buf_free(&json);
    lily_buf_free(&v.text);
    return same;
}

static int listed_value(const call_maker *m, const json_t *value, uint32_t next, uint32_t *out)
{
    bool string = json_is_string(value);
    char *text = string ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *written = string ? json_string_value(value) : text;
    bool same = written && reads_back(m, written, string ? json_string_length(value) : strlen(written), value);
    free(text);     /* jansson's memory, not ours */
    if (!written) return lily_no_memory(m->e, 0, "a grammar of calls");
    if (!same) return call_unsupported(m, "a listed value that is read as another one");
    uint32_t one = string ? text_literal(&m->text, json_string_value(value), json_string_length(value), next)
                          : part_literal(&m->json, value, text_closing(&m->text, next));
    *out = lily_grammar_split(m->g, *out, one);
    return LILY_OK;
}

static unsigned type_named(const json_t *name)
{
    json_t *schema = json_pack("{s:O}", "type", name);
    unsigned type = schema ? reply_types_of_schema(schema, NULL) : 0;
    json_decref(schema);
    return type;
}

static bool has_types(const json_t *value, unsigned types)
{
    if (types & REPLY_ANY) return true;
    json_t *list = json_pack("{s:[O]}", "enum", value);
    unsigned type = list ? reply_types_of_schema(list, NULL) : 0;
    json_decref(list);
    if (type & REPLY_INTEGER && types & REPLY_NUMBER) return true;
    if (json_is_real(value) && types & REPLY_INTEGER && floor(json_real_value(value)) == json_real_value(value)) return true;
    return type & types;
}

static int listed(const call_maker *m, const json_t *schema, uint32_t next, uint32_t *out)
{
    const json_t *one = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    size_t n = one ? 1 : json_array_size(list);
    const json_t *type = json_object_get(schema, "type");
    unsigned types = type ? type_named(type) : REPLY_ANY;
    int rc = LILY_OK;
    if ((one && list) || !only_describes(schema, (const char *const[]){"enum", "const", "type", NULL}))
        TRY(call_unsupported(m, "'enum' or 'const' beside other keywords"));
    *out = lily_grammar_never(m->g);
    for (size_t i = 0; i < n && rc == LILY_OK; i++) {
        const json_t *value = one ? one : json_array_get(list, i);
        if (has_types(value, types)) rc = listed_value(m, value, next, out);
    }
    return rc;
}

/* ---- any value ---- */

/* Where a string may stand nothing else looks at all keywords; the compiler of JSON does so by itself. */
static int check_keywords(const call_maker *m, const json_t *schema)
{
    const char *key;
    json_t *ignored;
    json_object_foreach ((json_t *)schema, key, ignored) {
        unsigned group;
        char quoted[64];
        snprintf(quoted, sizeof quoted, "'%.60s'", key);
        if (!json_keyword_group(key, &group)) TRY(call_unsupported(m, quoted));
    }
    return LILY_OK;
}

static int value(const call_maker *m, const json_t *schema, int depth, uint32_t next, uint32_t *out);

static int alternatives(const call_maker *m, const json_t *list, bool exclusive, int depth, uint32_t next, uint32_t *out)
{
    uint32_t left = MAX_COMPARED, one;
    *out = lily_grammar_never(m->g);
    for (size_t i = 0; i < json_array_size(list); i++) {
        for (size_t k = 0; exclusive && k < i; k++)
            if (!json_schemas_exclude(m->parameters, json_array_get(list, k), json_array_get(list, i), &left))
                TRY(call_unsupported(m, "'oneOf' of alternatives that may fit the same value"));
        TRY(value(m, json_array_get(list, i), depth + 1, next, &one));
        *out = lily_grammar_split(m->g, *out, one);
    }
    return LILY_OK;
}

/* The values of `schema` that are no strings and can be told from them. */
static int other_types(const call_maker *m, const json_t *schema, unsigned types, uint32_t next, uint32_t *out)
{
    static const char *const of_strings[] = {"minLength", "maxLength", "pattern", "format"};
    json_t *rest = json_copy((json_t *)schema), *list = json_array(), *name;
    size_t i;
    int failed = !rest || !list;
    types &= BESIDE_STRINGS;
    json_array_foreach (json_object_get(schema, "type"), i, name)
        if (!failed && type_named(name) & types) failed = json_array_append(list, name);
    if (!failed) failed = json_object_set(rest, "type", list);
    for (i = 0; !failed && i < sizeof of_strings / sizeof *of_strings; i++)
        (void)json_object_del(rest, of_strings[i]);
    int rc = failed ? lily_no_memory(m->e, 0, "a grammar of calls")
                    : json_value(m, rest, types, next, out);
    json_decref(list);
    json_decref(rest);
    return rc;
}

static int combined(const call_maker *m, const json_t *schema, const char *name, int depth, uint32_t next, uint32_t *out)
{
    const json_t *list = json_object_get(schema, name);
    if (!only_describes(schema, (const char *const[]){name, NULL})) TRY(call_unsupported(m, "'anyOf', 'oneOf', 'allOf' or '$ref' beside other keywords"));
    if (strcmp(name, "$ref") == 0) {
        const char *ref = json_string_value(list);
        const json_t *target = ref ? json_schema_at(m->parameters, ref) : NULL;
        if (target) return value(m, target, depth + 1, next, out);
        TRY(call_unsupported(m, "'$ref' to what does not exist"));
        *out = text_beside(m, next);
        return LILY_OK;
    }
    if (strcmp(name, "allOf") != 0) return alternatives(m, list, strcmp(name, "oneOf") == 0, depth, next, out);
    if (json_array_size(list) == 1) return value(m, json_array_get(list, 0), depth + 1, next, out);
    TRY(call_unsupported(m, "'allOf'"));
    *out = text_beside(m, next);
    return LILY_OK;
}

static int value(const call_maker *m, const json_t *schema, int depth, uint32_t next, uint32_t *out)
{
    static const char *const combine[] = {"$ref", "anyOf", "oneOf", "allOf"};
    unsigned types = reply_types_of_schema(schema, m->parameters);
    if (depth > MAX_DEPTH) {
        *out = text_beside(m, next);
        return call_unsupported(m, "a schema nested deeper than this");
    }
    if (json_is_false(schema)) {
        *out = lily_grammar_never(m->g);
        return LILY_OK;
    }
    if (!(types & (REPLY_STRING | REPLY_ANY))) return json_value(m, schema, types, next, out);
    TRY(check_keywords(m, schema));
    if (json_object_get(schema, "enum") || json_object_get(schema, "const")) return listed(m, schema, next, out);
    for (size_t i = 0; i < sizeof combine / sizeof *combine; i++)
        if (json_object_get(schema, combine[i]) && !json_object_get(schema, "type"))
            return combined(m, schema, combine[i], depth, next, out);
    if (types & REPLY_ANY) {
        if (!json_is_true(schema) && !only_describes(schema, (const char *const[]){NULL})) TRY(call_unsupported(m, "a schema without 'type'"));
        *out = text_beside(m, next);
        return LILY_OK;
    }
    uint32_t other;
    for (size_t i = 0; i < sizeof combine / sizeof *combine; i++)
        if (json_object_get(schema, combine[i])) TRY(call_unsupported(m, combine[i]));
    TRY(string_value(m, schema, next, out));
    if (types == REPLY_STRING) return LILY_OK;
    TRY(other_types(m, schema, types, next, &other));
    *out = lily_grammar_split(m->g, *out, other);
    return LILY_OK;
}

int call_value(const call_maker *m, const json_t *schema, uint32_t next, uint32_t *out)
{
    return value(m, schema, 0, next, out);
}
