/* responses_tools.c - the tools of a Responses request as functions of a chat request.
 *
 *     {"type": "function", "name", "description", "parameters", "strict"}     the function NAME
 *     {"type": "namespace", "name": SPACE, "tools": […]}                      each as SPACE__NAME
 *     {"type": "custom", "name", "description", "format"}                     NAME with the one string "input"
 *     web_search and others that OpenAI's servers run themselves              left out, with a line in the log
 *
 * Tools that are left out change nothing: the model is not told of them, so it answers without. */
#include <stdio.h>
#include <string.h>

#include "api/fields.h"
#include "api/responses_request.h"
#include "base/log.h"
#include "base/mem.h"

enum { PLACE = 80 };

static int no_memory(lily_refusal *r) { return lily_no_memory(&r->err, 0, "tools"); }

bool lily_responses_tool_name(lily_responses_name out, const char *namespace, const char *name)
{
    size_t n = namespace ? strlen(namespace) : 0;
    bool joined = n >= 2 && strcmp(namespace + n - 2, "__") == 0;
    int len = snprintf(out, sizeof(lily_responses_name), "%s%s%s", n ? namespace : "", n && !joined ? "__" : "", name);
    return len > 0 && (size_t)len < sizeof(lily_responses_name);
}

static const char *type_of(const json_t *tool) { return json_string_value(json_object_get(tool, "type")); }

static bool is_type(const json_t *tool, const char *type)
{
    const char *given = type_of(tool);
    return given && strcmp(given, type) == 0;
}

/* ---- one tool ---- */

/* What the model writes into a custom tool is free text; a grammar is told in words, since nothing enforces it. */
static json_t *custom_parameters(const json_t *tool)
{
    const json_t *definition = json_object_get(json_object_get(tool, "format"), "definition");
    json_t *input = json_pack("{s:s}", "type", "string");
    if (input && json_is_string(definition)) json_object_set(input, "description", (json_t *)definition);
    return json_pack("{s:s, s:{s:o}, s:[s]}", "type", "object", "properties", "input", input, "required", "input");
}

static json_t *function_of(const json_t *tool, const char *shown)
{
    static const char *const keys[] = {"description", "parameters", "strict"};
    json_t *function = json_pack("{s:s}", "name", shown);
    for (size_t i = 0; function && i < 3; i++) {
        json_t *value = json_object_get(tool, keys[i]);
        if (value && !json_is_null(value)) json_object_set(function, keys[i], value);
    }
    if (function && is_type(tool, "custom")) json_object_set_new(function, "parameters", custom_parameters(tool));
    return json_pack("{s:s, s:o}", "type", "function", "function", function);
}

static json_t *origin_of(const json_t *tool, const char *space)
{
    json_t *origin = json_pack("{s:O}", "name", json_object_get(tool, "name"));
    if (origin && space) json_object_set_new(origin, "namespace", json_string(space));
    if (origin && is_type(tool, "custom")) json_object_set_new(origin, "custom", json_true());
    return origin;
}

static int check_tool(const json_t *tool, const char *place, lily_refusal *r)
{
    const json_t *parameters = json_object_get(tool, "parameters");
    if (json_string_length(json_object_get(tool, "name")) == 0)
        return lily_refuse(r, LILY_ARGUMENT, "tools", "%s.name must be a non-empty string", place);
    if (parameters && !json_is_null(parameters) && !lily_is_object(parameters))
        return lily_refuse(r, LILY_ARGUMENT, "tools", "%s.parameters must be a JSON Schema, not %s", place,
                           lily_json_kind(parameters));
    return LILY_OK;
}

static int add_tool(lily_responses_request *q, const json_t *tool, const char *space, const char *place,
                    lily_refusal *r)
{
    lily_responses_name shown;
    TRY(check_tool(tool, place, r));
    if (!lily_responses_tool_name(shown, space, json_string_value(json_object_get(tool, "name"))))
        return lily_refuse(r, LILY_ARGUMENT, "tools", "%s: the name is too long", place);
    if (json_object_get(q->names, shown))
        return lily_refuse(r, LILY_ARGUMENT, "tools", "%s: there are two tools named '%.100s'", place, shown);
    if (json_object_set_new(q->names, shown, origin_of(tool, space)) != 0 ||
        json_array_append_new(q->tools, function_of(tool, shown)) != 0)
        return no_memory(r);
    return LILY_OK;
}

/* ---- the list ---- */

static bool is_ours(const json_t *tool) { return is_type(tool, "function") || is_type(tool, "custom"); }

static void tell_left_out(const json_t *tool, const char *place)
{
    lily_log(LILY_LOG_WARN, "%s: a tool of type '%.60s' is run by OpenAI's servers only; it is left out", place,
             type_of(tool));
}

static int add_namespace(lily_responses_request *q, const json_t *group, const char *place, lily_refusal *r)
{
    const char *space = json_string_value(json_object_get(group, "name"));
    const json_t *tools = json_object_get(group, "tools");
    if (!space || !*space) return lily_refuse(r, LILY_ARGUMENT, "tools", "%s.name must be a non-empty string", place);
    if (!json_is_array(tools)) return lily_refuse(r, LILY_ARGUMENT, "tools", "%s.tools must be a list", place);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        char inner[PLACE];
        const json_t *tool = json_array_get(tools, i);
        snprintf(inner, sizeof inner, "%s.tools[%zu]", place, i);
        if (!type_of(tool)) return lily_refuse(r, LILY_ARGUMENT, "tools", "%s must be an object with a type", inner);
        if (is_ours(tool)) TRY(add_tool(q, tool, space, inner, r));
        else tell_left_out(tool, inner);
    }
    return LILY_OK;
}

static int add_tools(lily_responses_request *q, const json_t *given, lily_refusal *r)
{
    for (size_t i = 0; i < json_array_size(given); i++) {
        char place[PLACE / 2];
        json_t *tool = json_array_get(given, i);
        snprintf(place, sizeof place, "tools[%zu]", i);
        if (!lily_is_object(tool) || !type_of(tool))
            return lily_refuse(r, LILY_ARGUMENT, "tools", "%s must be an object with a type", place);
        if (is_ours(tool)) {
            TRY(add_tool(q, tool, NULL, place, r));
        } else if (is_type(tool, "namespace")) {
            TRY(add_namespace(q, tool, place, r));
        } else {
            tell_left_out(tool, place);
            continue;
        }
        if (json_array_append(q->shown, tool) != 0) return no_memory(r);
    }
    return LILY_OK;
}

/* ---- tool_choice ---- */

/* The name that the model knows the chosen tool by, or NULL. */
static const char *chosen(const lily_responses_request *q, const json_t *choice, lily_responses_name shown)
{
    const char *name = json_string_value(json_object_get(choice, "name"));
    const char *space = json_string_value(json_object_get(choice, "namespace"));
    return name && lily_responses_tool_name(shown, space, name) && json_object_get(q->names, shown) ? shown : NULL;
}

static bool is_allowed(const lily_responses_request *q, const json_t *allowed, const json_t *tool)
{
    const char *name = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
    for (size_t i = 0; i < json_array_size(allowed); i++) {
        lily_responses_name shown;
        const char *one = chosen(q, json_array_get(allowed, i), shown);
        if (one && strcmp(one, name) == 0) return true;
    }
    return false;
}

/* {"type": "allowed_tools", "mode", "tools"}: the others are left out. */
static int choose_allowed(lily_responses_request *q, const json_t *choice, json_t **out, lily_refusal *r)
{
    const json_t *allowed = json_object_get(choice, "tools"), *mode = json_object_get(choice, "mode");
    if (!json_is_array(allowed) || !json_is_string(mode))
        return lily_refuse(r, LILY_ARGUMENT, "tool_choice", "tool_choice.tools must be a list and .mode a string");
    for (size_t i = json_array_size(q->tools); i-- > 0;)
        if (!is_allowed(q, allowed, json_array_get(q->tools, i))) json_array_remove(q->tools, i);
    *out = json_incref((json_t *)mode);
    return LILY_OK;
}

static int read_choice(lily_responses_request *q, const json_t *choice, json_t **out, lily_refusal *r)
{
    lily_responses_name shown;
    if (!lily_is_object(choice)) {
        *out = json_incref((json_t *)choice);
        return LILY_OK;
    }
    if (is_type(choice, "allowed_tools")) return choose_allowed(q, choice, out, r);
    if (!is_ours(choice))
        return lily_refuse(r, LILY_UNSUPPORTED, "tool_choice", "tool_choice: type '%.60s' is not supported",
                           type_of(choice) ? type_of(choice) : "");
    if (!chosen(q, choice, shown))
        return lily_refuse(r, LILY_ARGUMENT, "tool_choice", "tool_choice names no tool of this request");
    *out = json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", shown);
    return *out ? LILY_OK : no_memory(r);
}

int lily_responses_tools(lily_responses_request *q, json_t **choice, lily_refusal *r)
{
    const json_t *given = json_object_get(q->body, "tools"), *wanted = json_object_get(q->body, "tool_choice");
    *choice = NULL;
    q->tools = json_array();
    q->names = json_object();
    q->shown = json_array();
    if (!q->tools || !q->names || !q->shown) return no_memory(r);
    if (given && !json_is_null(given) && !json_is_array(given))
        return lily_refuse(r, LILY_ARGUMENT, "tools", "tools must be a list, not %s", lily_json_kind(given));
    TRY(add_tools(q, given, r));
    return wanted && !json_is_null(wanted) ? read_choice(q, wanted, choice, r) : LILY_OK;
}
