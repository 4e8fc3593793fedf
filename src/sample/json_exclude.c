#include "sample/json_exclude.h"

#include <string.h>

#include "base/mem.h"

/* ---- references ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
}

/* The byte that "%20" means, -1 where there is no such thing. */
static int percent(const char *name, size_t n)
{
    if (n < 3 || name[0] != '%' || hex_digit(name[1]) < 0 || hex_digit(name[2]) < 0) return -1;
    return hex_digit(name[1]) * 16 + hex_digit(name[2]);
}

/* One step of a JSON pointer in a URI: "%20" for a blank, "~1" for "/" and "~0" for "~". */
static const json_t *step(const json_t *at, const char *name, size_t n)
{
    char *key = lily_strndup(name, n);
    if (!key) return NULL;
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        int byte = percent(name + i, n - i);
        if (byte > 0) {
            key[len++] = (char)byte;
            i += 2;
            continue;
        }
        bool escaped = name[i] == '~' && i + 1 < n && (name[i + 1] == '0' || name[i + 1] == '1');
        key[len++] = !escaped ? name[i] : name[++i] == '0' ? '~' : '/';
    }
    key[len] = '\0';
    const json_t *to = json_object_get(at, key);
    if (json_is_array(at) && len > 0 && len < 7 && strspn(key, "0123456789") == len) {
        size_t i = 0;
        for (size_t k = 0; k < len; k++) i = i * 10 + (size_t)(key[k] - '0');
        to = json_array_get(at, i);
    }
    lily_free(key);
    return to;
}

const json_t *json_schema_at(const json_t *root, const char *ref)
{
    const json_t *at = root;
    if (*ref++ != '#') return NULL;
    while (at && *ref == '/') {
        size_t n = strcspn(++ref, "/");
        at = step(at, ref, n);
        ref += n;
    }
    return *ref ? NULL : at;
}

/* ---- exclusion ---- */

enum { OBJECT = 1, ARRAY = 2, STRING = 4, WHOLE = 8, BROKEN = 16, BOOLEAN = 32, NOTHING = 64, ALL = 127 };
enum { LOOK = 6 }; /* how deep members and references are followed */

static unsigned type_of(const char *name)
{
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {{"object", OBJECT},         {"array", ARRAY},     {"string", STRING}, {"integer", WHOLE},
                 {"number", WHOLE | BROKEN}, {"boolean", BOOLEAN}, {"null", NOTHING}};
    for (size_t i = 0; name && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].bits;
    return ALL;
}

static unsigned type_of_value(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return OBJECT | WHOLE | BROKEN; /* numbers beyond int64 are carried as objects: text/big_number.h */
    case JSON_ARRAY:
        return ARRAY;
    case JSON_STRING:
        return STRING;
    case JSON_INTEGER:
        return WHOLE;
    case JSON_REAL:
        return WHOLE | BROKEN;
    case JSON_NULL:
        return NOTHING;
    default:
        return BOOLEAN;
    }
}

static unsigned types_of(const json_t *s)
{
    const json_t *type = json_object_get(s, "type"), *values = json_object_get(s, "enum"),
                 *one = json_object_get(s, "const");
    unsigned bits = type ? 0 : ALL, listed = 0;
    if (json_is_string(type)) bits = type_of(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type); i++)
        bits |= type_of(json_string_value(json_array_get(type, i)));
    for (size_t i = 0; i < json_array_size(values); i++) listed |= type_of_value(json_array_get(values, i));
    if (one) listed |= type_of_value(one);
    return listed ? bits & listed : bits;
}

/* The i-th of the values that `s` lists; NULL behind the last, or when it lists none. */
static const json_t *listed(const json_t *s, size_t i)
{
    const json_t *one = json_object_get(s, "const");
    if (one) return i == 0 ? one : NULL;
    return json_array_get(json_object_get(s, "enum"), i);
}

static bool same_value(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal((json_t *)a, (json_t *)b);
}

static bool take_one(uint32_t *left)
{
    return *left > 0 && (*left)-- > 0;
}

static bool lists_exclude(const json_t *a, const json_t *b, uint32_t *left)
{
    const json_t *x, *y;
    if (!listed(a, 0) || !listed(b, 0)) return false;
    for (size_t i = 0; (x = listed(a, i)); i++)
        for (size_t k = 0; (y = listed(b, k)); k++)
            if (!take_one(left) || same_value(x, y) || json_is_array(x) || json_is_object(x)) return false;
    return true;
}

static bool requires(const json_t *s, const char *name)
{
    const json_t *list = json_object_get(s, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (one && strcmp(one, name) == 0) return true;
    }
    return false;
}

static bool exclude(const json_t *root, const json_t *a, const json_t *b, int look, uint32_t *left)
{
    const char *ra = json_string_value(json_object_get(a, "$ref")),
               *rb = json_string_value(json_object_get(b, "$ref"));
    if (!a || !b || look == 0 || !take_one(left)) return false;
    if (ra) return exclude(root, json_schema_at(root, ra), b, look - 1, left);
    if (rb) return exclude(root, a, json_schema_at(root, rb), look - 1, left);
    unsigned both = types_of(a) & types_of(b);
    if (both == 0 || lists_exclude(a, b, left)) return true;
    if (both != OBJECT) return false;
    const char *name;
    json_t *member;
    json_object_foreach (json_object_get((json_t *)a, "properties"), name, member) {
        const json_t *other = json_object_get(json_object_get(b, "properties"), name);
        if (requires(a, name) && requires(b, name) && exclude(root, member, other, look - 1, left))
            return true;
    }
    return false;
}

bool json_schemas_exclude(const json_t *root, const json_t *a, const json_t *b, uint32_t *left)
{
    return exclude(root, a, b, LOOK, left);
}
