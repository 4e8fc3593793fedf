#include "text/reply_value.h"

#include <string.h>
#include <strings.h>

#include "text/big_number.h"
#include "text/json_text.h"

enum { MAX_SCHEMA_DEPTH = 16 };

static unsigned type_named(const json_t *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"string", REPLY_STRING},   {"integer", REPLY_INTEGER}, {"number", REPLY_NUMBER},
                 {"boolean", REPLY_BOOLEAN}, {"array", REPLY_ARRAY},     {"object", REPLY_OBJECT},
                 {"null", REPLY_NULL}};
    const char *s = json_string_value(name);
    for (size_t i = 0; s && i < sizeof types / sizeof *types; i++)
        if (strcmp(s, types[i].name) == 0) return types[i].type;
    return 0;
}

static unsigned type_of_value(const json_t *v)
{
    static const unsigned types[] = {[JSON_OBJECT] = REPLY_OBJECT, [JSON_ARRAY] = REPLY_ARRAY,
                                     [JSON_STRING] = REPLY_STRING, [JSON_INTEGER] = REPLY_INTEGER,
                                     [JSON_REAL] = REPLY_NUMBER, [JSON_TRUE] = REPLY_BOOLEAN,
                                     [JSON_FALSE] = REPLY_BOOLEAN, [JSON_NULL] = REPLY_NULL};
    return types[json_typeof(v)];
}

/* "#/$defs/NAME" inside root; names with escapes are not followed. */
static const json_t *follow(const json_t *root, const char *ref)
{
    if (strncmp(ref, "#/", 2) != 0) return NULL;
    for (ref += 2; root && *ref;) {
        char step[128];
        size_t n = strcspn(ref, "/");
        if (n >= sizeof step) return NULL;
        memcpy(step, ref, n);
        step[n] = 0;
        root = json_object_get(root, step);
        ref += n + (ref[n] == '/');
    }
    return root;
}

static unsigned types_of_schema(const json_t *schema, const json_t *root, int depth)
{
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    const json_t *type = json_object_get(schema, "type"), *fixed = json_object_get(schema, "const");
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    unsigned types = type_named(type);
    size_t i;
    json_t *item;
    if (depth > MAX_SCHEMA_DEPTH) return 0;
    json_array_foreach (type, i, item) types |= type_named(item);
    if (types) return types;
    for (size_t u = 0; u < sizeof unions / sizeof *unions; u++)
        json_array_foreach (json_object_get(schema, unions[u]), i, item) types |= types_of_schema(item, root, depth + 1);
    json_array_foreach (json_object_get(schema, "enum"), i, item) types |= type_of_value(item);
    if (fixed) types |= type_of_value(fixed);
    if (ref) types |= types_of_schema(follow(root, ref), root, depth + 1);
    return types;
}

unsigned reply_types_of_schema(const json_t *schema, const json_t *root)
{
    unsigned types = types_of_schema(schema, root, 0);
    return types ? types : REPLY_ANY;
}

unsigned reply_types_of(const json_t *tools, const char *name, const char *key)
{
    size_t i;
    json_t *tool;
    json_array_foreach (tools, i, tool) {
        const json_t *function = json_object_get(tool, "function");
        if (!function) function = tool;
        const char *declared = json_string_value(json_object_get(function, "name"));
        if (!declared || strcmp(declared, name) != 0) continue;
        const json_t *parameters = json_object_get(function, "parameters");
        const json_t *schema = json_object_get(json_object_get(parameters, "properties"), key);
        if (!schema) schema = json_object_get(parameters, "additionalProperties");
        if (!json_is_object(schema)) return REPLY_STRING;
        return reply_types_of_schema(schema, parameters);
    }
    return REPLY_STRING;
}

void reply_value_begin(reply_value *v, unsigned types)
{
    v->types = types;
    v->streaming = false;
    lily_buf_clear(&v->text);
}

/* Whether the text so far can still become something other than a string. */
static bool may_be_other(const reply_value *v)
{
    if (!(v->types & REPLY_STRING)) return true;
    const char *text = lily_buf_str(&v->text);
    size_t blank = strspn(text, " \t\r\n");
    char first = text[blank];
    if (first == 0) return v->types != REPLY_STRING;
    if (v->types & REPLY_ARRAY && first == '[') return true;
    if (v->types & REPLY_OBJECT && first == '{') return true;
    return v->types & REPLY_NULL && v->text.len <= 4 && memcmp(text, "null", v->text.len) == 0;
}

void reply_value_add(reply_value *v, const char *text, size_t n, lily_buf *json)
{
    if (v->streaming) {
        lily_json_escape(json, text, n);
        return;
    }
    lily_buf_add(&v->text, text, n);
    if (may_be_other(v)) return;
    v->streaming = true;
    lily_buf_putc(json, '"');
    lily_json_escape(json, lily_buf_str(&v->text), v->text.len);
}

static bool is_json(const char *text, size_t n, unsigned types, lily_err *scratch)
{
    json_t *parsed;
    if (lily_json_parse_big(&parsed, text, n, "value", scratch) != LILY_OK) return false;
    bool fits = types & REPLY_ANY || types & type_of_value(parsed);
    json_decref(parsed);
    return fits;
}

/* The JSON text of the value trimmed to text[0 … n), in *out and *len; false if it does not fit its type. */
static bool fits(const reply_value *v, const char *text, size_t n, const char **out, size_t *len)
{
    lily_err scratch;
    *out = text;
    *len = n;
    if (n == 4 && memcmp(text, "null", 4) == 0) return true;
    if (v->types & REPLY_NULL && n == 4 && memcmp(text, "None", 4) == 0) {
        *out = "null";
        return true;
    }
    if (v->types & REPLY_BOOLEAN && n == 4 && strncasecmp(text, "true", 4) == 0) {
        *out = "true";
        return true;
    }
    if (v->types & REPLY_BOOLEAN && n == 5 && strncasecmp(text, "false", 5) == 0) {
        *out = "false";
        return true;
    }
    if (v->types & (REPLY_NUMBER | REPLY_INTEGER) && n && lily_json_number_length(text, n) == n) {
        bool whole = !memchr(text, '.', n) && !memchr(text, 'e', n) && !memchr(text, 'E', n);
        if (whole || v->types & REPLY_NUMBER) return true;
    }
    return v->types & (REPLY_ARRAY | REPLY_OBJECT | REPLY_ANY) && n && is_json(text, n, v->types & ~(unsigned)REPLY_STRING, &scratch);
}

int reply_value_end(reply_value *v, lily_buf *json, lily_err *e)
{
    if (v->streaming) {
        lily_buf_putc(json, '"');
        return LILY_OK;
    }
    TRY(lily_buf_ok(&v->text, "the value of a parameter", e));
    const char *text = lily_buf_str(&v->text), *out;
    size_t n = v->text.len, len;
    const char *from = text;
    while (n && strchr(" \t\r\n", *from) && *from) from++, n--;
    while (n && strchr(" \t\r\n", from[n - 1]) && from[n - 1]) n--;
    if (v->types != REPLY_STRING && fits(v, from, n, &out, &len)) {
        lily_buf_add(json, out, len);
    } else {
        lily_buf_putc(json, '"');
        lily_json_escape(json, text, v->text.len);
        lily_buf_putc(json, '"');
    }
    return LILY_OK;
}
