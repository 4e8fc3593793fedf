#include "sample/call_grammar.h"

#include <string.h>

#include "base/mem.h"
#include "sample/call_value.h"
#include "sample/json_keywords.h"
#include "text/reply_value.h"

enum { MAX_NAME = 256, MAX_TOOLS = 1024, MAX_PARAMETERS = 1024 };

/* ---- parameters ---- */

/* What the reader of replies takes for a name as it stands. */
static bool is_name(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n <= MAX_NAME && !strpbrk(name, "<>\n") && !strchr(" \t\"'", name[0]) && !strchr(" \t\"'", name[n - 1]);
}

static bool is_required(const json_t *parameters, const char *key)
{
    size_t i;
    json_t *name;
    json_array_foreach (json_object_get(parameters, "required"), i, name)
        if (json_is_string(name) && strcmp(json_string_value(name), key) == 0) return true;
    return false;
}

static int parameter(call_maker *m, const char *key, const json_t *schema, uint32_t next, uint32_t *out)
{
    uint32_t node;
    m->key = key;
    m->types = json_is_object(schema) ? reply_types_of_schema(schema, m->parameters) : REPLY_STRING;
    TRY(call_value(m, schema, lily_grammar_text(m->g, "\n", 1, next), &node));
    node = lily_grammar_text(m->g, ">\n", 2, node);
    node = lily_grammar_text(m->g, key, strlen(key), node);
    *out = lily_grammar_text(m->g, "<parameter=", strlen("<parameter="), node);
    return LILY_OK;
}

/* Any number of parameters of other names, then `next`.  The reader takes the first of a name that comes again. */
static int other_parameters(call_maker *m, const json_t *schema, uint32_t next, uint32_t *out)
{
    lily_grammar *g = m->g;
    lily_byte_set set = {{0}};
    uint32_t node, loop = lily_grammar_split(g, LILY_GRAMMAR_END, LILY_GRAMMAR_END),
                   name = lily_grammar_split(g, LILY_GRAMMAR_END, LILY_GRAMMAR_END);
    for (const char *c = "_-."; *c; c++) lily_set_add(&set, (unsigned char)*c, (unsigned char)*c);
    lily_set_add(&set, '0', '9');
    lily_set_add(&set, 'A', 'Z');
    lily_set_add(&set, 'a', 'z');
    m->key = "*";
    m->types = json_is_object(schema) ? reply_types_of_schema(schema, m->parameters) : REPLY_STRING;
    TRY(call_value(m, schema, lily_grammar_text(g, "\n", 1, loop), &node));
    lily_grammar_set_split(g, name, lily_grammar_text(g, ">\n", 2, node), lily_grammar_set(g, &set, name));
    node = lily_grammar_text(g, "<parameter=", strlen("<parameter="), lily_grammar_set(g, &set, name));
    lily_grammar_set_split(g, loop, next, node);
    *out = loop;
    return LILY_OK;
}

/* The names of the properties, then those that are required besides; NULL without memory. */
static const char **names_of(const json_t *parameters, size_t *n)
{
    const json_t *properties = json_object_get(parameters, "properties"), *required = json_object_get(parameters, "required");
    const char **list = lily_calloc(json_object_size(properties) + json_array_size(required), sizeof *list), *key;
    json_t *ignored, *name;
    size_t i;
    *n = 0;
    if (!list) return NULL;
    json_object_foreach ((json_t *)properties, key, ignored) list[(*n)++] = key;
    json_array_foreach (required, i, name)
        if (json_is_string(name) && !json_object_get(properties, json_string_value(name)))
            list[(*n)++] = json_string_value(name);
    return list;
}

/* The parameters of the function under way, in front of `next`. */
static int all_parameters(call_maker *m, const char *const *names, size_t n, uint32_t next, uint32_t *out)
{
    const json_t *properties = json_object_get(m->parameters, "properties"),
                 *other = json_object_get(m->parameters, "additionalProperties");
    json_t *any = json_true();
    *out = next;
    if (!other && m->parameters && !properties) other = any;
    if (m->strict && other && !json_is_false(other))
        return lily_fail(m->e, LILY_UNSUPPORTED, "#: 'additionalProperties' must be false");
    if (other && !json_is_false(other)) TRY(other_parameters(m, other, next, out));
    for (size_t i = n; i-- > 0;) {
        const json_t *schema = json_object_get(properties, names[i]);
        bool required = is_required(m->parameters, names[i]);
        uint32_t one;
        if (!is_name(names[i]) && !required && !m->strict) continue;
        if (!is_name(names[i]))
            return lily_fail(m->e, LILY_ARGUMENT, "#/properties/%.100s: a name that no call can be written with", names[i]);
        TRY(parameter(m, names[i], schema ? schema : any, *out, &one));
        *out = required ? one : lily_grammar_split(m->g, one, *out);
    }
    return LILY_OK;
}

/* For strict functions: a schema of an object, and nothing that is not looked at. */
static int check_strict(const call_maker *m)
{
    static const char *const known[] = {"type", "properties", "required", "additionalProperties"};
    const char *key, *type = json_string_value(json_object_get(m->parameters, "type"));
    json_t *ignored;
    if (!m->strict || !m->parameters) return LILY_OK;
    if (!type || strcmp(type, "object") != 0) return lily_fail(m->e, LILY_UNSUPPORTED, "#: 'type' must be 'object'");
    json_object_foreach ((json_t *)m->parameters, key, ignored) {
        size_t i = 0, n = sizeof known / sizeof *known;
        unsigned group;
        while (i < n && strcmp(known[i], key) != 0) i++;
        if (i == n && (!json_keyword_group(key, &group) || group != KEYWORD_IGNORED))
            return lily_fail(m->e, LILY_UNSUPPORTED, "#: '%.60s' is not supported", key);
    }
    return LILY_OK;
}

/* ---- functions ---- */

static const json_t *function_of(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return function ? function : tool;
}

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(function_of(tool), "name"));
}

static bool is_strict(const json_t *tool)
{
    return json_is_true(json_object_get(function_of(tool), "strict")) || json_is_true(json_object_get(tool, "strict"));
}

static int function(call_maker *m, const json_t *tool, uint32_t next, uint32_t *out)
{
    const char *name = name_of(tool);
    const json_t *parameters = json_object_get(function_of(tool), "parameters");
    size_t n;
    m->parameters = json_is_object(parameters) ? parameters : NULL;
    m->strict = is_strict(tool);
    TRY(check_strict(m));
    const char **names = names_of(m->parameters, &n);
    if (!names) return lily_no_memory(m->e, 0, "a grammar of calls");
    int rc = n > MAX_PARAMETERS ? lily_fail(m->e, LILY_UNSUPPORTED, "#: more than %d names", MAX_PARAMETERS)
                                : all_parameters(m, names, n, next, out);
    lily_free(names);
    if (rc != LILY_OK) return rc;
    *out = lily_grammar_text(m->g, name, strlen(name), lily_grammar_text(m->g, ">\n", 2, *out));
    return LILY_OK;
}

static int functions(call_maker *m, const json_t *tools, const char *only, uint32_t *start)
{
    lily_grammar *g = m->g;
    uint32_t end = lily_grammar_text(g, "</function>\n", strlen("</function>\n"), LILY_GRAMMAR_END), one = end,
             all = lily_grammar_never(g);
    bool found = false;
    if (json_array_size(tools) > MAX_TOOLS) return lily_fail(m->e, LILY_UNSUPPORTED, "tools: more than %d", MAX_TOOLS);
    for (size_t i = 0; i < json_array_size(tools) && !(only && found); i++) {
        const json_t *tool = json_array_get(tools, i);
        if (only && (!name_of(tool) || strcmp(name_of(tool), only) != 0)) continue;
        if (!name_of(tool) || !is_name(name_of(tool)))
            return lily_fail(m->e, LILY_ARGUMENT, "tools[%zu].function.name: no call can be written with it", i);
        int rc = function(m, tool, end, &one);
        if (rc == LILY_NO_MEMORY) return rc;
        if (rc != LILY_OK) return lily_err_prefix(m->e, "tools[%zu].function.parameters", i);
        all = found ? lily_grammar_split(g, all, one) : one;
        found = true;
    }
    if (!found && only) return lily_fail(m->e, LILY_ARGUMENT, "tool_choice: no tool is called '%.100s'", only);
    if (!found) return lily_fail(m->e, LILY_ARGUMENT, "tool_choice: a call is required, and there are no tools");
    *start = lily_grammar_text(g, "\n<function=", strlen("\n<function="), all);
    return LILY_OK;
}

static int make(lily_grammar *g, const json_t *tools, const char *only, bool loose, lily_err *e)
{
    call_maker m = {.g = g, .loose = loose, .e = e};
    uint32_t start = LILY_GRAMMAR_END;
    parts_init(&m.json, g);
    text_parts_init(&m.text, g, "</parameter>");
    TRY(functions(&m, tools, only, &start));
    int rc = lily_grammar_finish(g, start, start, e);
    return rc == LILY_OK || rc == LILY_NO_MEMORY ? rc : lily_err_prefix(e, "tools");
}

int lily_call_grammar(lily_grammar **out, const json_t *tools, const char *only, lily_err *e)
{
    lily_grammar *g = NULL;
    int rc = LILY_OK;
    bool too_large = true;
    *out = NULL;
    for (int loose = 0; loose <= 1 && too_large; loose++) {
        lily_grammar_let_go(g);
        TRY(lily_grammar_new(&g, e));
        rc = make(g, tools, only, loose, e);
        too_large = g->too_large;
    }
    if (rc == LILY_OK)
        *out = g;
    else
        lily_grammar_let_go(g);
    return rc;
}

bool lily_calls_strict(const json_t *tools)
{
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (is_strict(json_array_get(tools, i))) return true;
    return false;
}
