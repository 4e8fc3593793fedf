#include "api/openai_tools.h"

#include <string.h>

#include "base/mem.h"

/* ---- tools ---- */

/* The name in {"function": {"name"}}, or NULL. */
static const char *function_name(const json_t *choice)
{
    return json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
}

static int check_tool(const json_t *tool, size_t i, lily_refusal *r)
{
    if (!lily_is_object(tool))
        return lily_refuse(r, LILY_ARGUMENT, "tools", "tools[%zu] must be an object, not %s", i, lily_json_kind(tool));
    const char *type = json_string_value(json_object_get(tool, "type"));
    if (!type || strcmp(type, "function") != 0)
        return lily_refuse(r, LILY_UNSUPPORTED, "tools", "tools[%zu].type: only 'function' is supported", i);
    const json_t *function = json_object_get(tool, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    if (!name || !name[0])
        return lily_refuse(r, LILY_ARGUMENT, "tools", "tools[%zu].function.name must be a non-empty string", i);
    const json_t *parameters = json_object_get(function, "parameters");
    if (parameters && !json_is_null(parameters) && !lily_is_object(parameters))
        return lily_refuse(r, LILY_ARGUMENT, "tools", "tools[%zu].function.parameters must be a JSON Schema, not %s", i,
                           lily_json_kind(parameters));
    const json_t *strict = json_object_get(function, "strict");
    if (strict && !json_is_null(strict) && !json_is_boolean(strict))
        return lily_refuse(r, LILY_ARGUMENT, "tools", "tools[%zu].function.strict must be true or false, not %s", i,
                           lily_json_kind(strict));
    return LILY_OK;
}

/* A call names its tool: of two with one name the client could not tell which is meant. */
static int check_names(const json_t *tools, lily_refusal *r)
{
    json_t *seen = json_object();
    int rc = seen ? LILY_OK : lily_no_memory(&r->err, 0, "tools");
    for (size_t i = 0; i < json_array_size(tools) && rc == LILY_OK; i++) {
        const char *name = function_name(json_array_get(tools, i));
        if (json_object_get(seen, name))
            rc = lily_refuse(r, LILY_ARGUMENT, "tools", "tools[%zu]: there are two tools named '%.100s'", i, name);
        else if (json_object_set_new(seen, name, json_true()) != 0)
            rc = lily_no_memory(&r->err, 0, "tools");
    }
    json_decref(seen);
    return rc;
}

int lily_openai_read_tools(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    lily_openai_request *q = out;
    if (!json_is_array(value))
        return lily_refuse(r, LILY_ARGUMENT, f->name, "%s must be a list, not %s", f->name, lily_json_kind(value));
    for (size_t i = 0; i < json_array_size(value); i++) TRY(check_tool(json_array_get(value, i), i, r));
    TRY(check_names(value, r));
    if (json_array_size(value) > 0) q->chat.tools = value;
    return LILY_OK;
}

/* ---- tool_choice ---- */

static int read_mode(lily_openai_request *q, const char *mode, lily_refusal *r)
{
    static const char *const modes[] = {"auto", "none", "required"};
    static const enum lily_tool_choice choices[] = {LILY_TOOLS_AUTO, LILY_TOOLS_NONE, LILY_TOOLS_REQUIRED};
    for (size_t i = 0; mode && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(mode, modes[i]) != 0) continue;
        q->chat.tool_choice = choices[i];
        return LILY_OK;
    }
    return lily_refuse(r, LILY_ARGUMENT, "tool_choice",
                       "tool_choice must be 'auto', 'none', 'required', or an object that names a function");
}

int lily_openai_read_tool_choice(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    lily_openai_request *q = out;
    if (!lily_is_object(value)) return read_mode(q, json_string_value(value), r);
    const char *type = json_string_value(json_object_get(value, "type"));
    if (type && strcmp(type, "allowed_tools") == 0) {
        q->tool_choice = json_object_get(value, "allowed_tools");
        if (!json_is_array(json_object_get(q->tool_choice, "tools")))
            return lily_refuse(r, LILY_ARGUMENT, f->name, "tool_choice.allowed_tools.tools must be a list");
        return read_mode(q, json_string_value(json_object_get(q->tool_choice, "mode")), r);
    }
    q->chat.tool_name = function_name(value);
    q->chat.tool_choice = LILY_TOOLS_NAMED;
    if (type && strcmp(type, "function") == 0 && q->chat.tool_name) return LILY_OK;
    return lily_refuse(r, LILY_ARGUMENT, f->name,
                       "tool_choice must be {\"type\": \"function\", \"function\": {\"name\": …}} or allowed_tools");
}

/* ---- together ---- */

static const json_t *tool_called(const json_t *tools, const char *name)
{
    for (size_t i = 0; name && i < json_array_size(tools); i++) {
        const char *one = function_name(json_array_get(tools, i));
        if (one && strcmp(one, name) == 0) return json_array_get(tools, i);
    }
    return NULL;
}

/* The others are left out of the prompt too. */
static int keep_allowed(lily_openai_request *q, lily_refusal *r)
{
    const json_t *allowed = json_object_get(q->tool_choice, "tools");
    q->allowed_tools = json_array();
    if (!q->allowed_tools) return lily_no_memory(&r->err, 0, "tools");
    for (size_t i = 0; i < json_array_size(allowed); i++) {
        const char *name = function_name(json_array_get(allowed, i));
        if (!tool_called(q->chat.tools, name))
            return lily_refuse(r, LILY_ARGUMENT, "tool_choice", "tool_choice.allowed_tools.tools[%zu] is no tool of this "
                               "request", i);
    }
    for (size_t i = 0; i < json_array_size(q->chat.tools); i++) {
        json_t *tool = json_array_get(q->chat.tools, i);
        if (tool_called(allowed, function_name(tool)) && json_array_append(q->allowed_tools, tool) != 0)
            return lily_no_memory(&r->err, 0, "tools");
    }
    q->chat.tools = json_array_size(q->allowed_tools) > 0 ? q->allowed_tools : NULL;
    return LILY_OK;
}

int lily_openai_choose_tools(lily_openai_request *q, lily_refusal *r)
{
    lily_chat *c = &q->chat;
    if (q->tool_choice) TRY(keep_allowed(q, r));
    if (c->tool_choice == LILY_TOOLS_NAMED && !tool_called(c->tools, c->tool_name))
        return lily_refuse(r, LILY_ARGUMENT, "tool_choice", "tool_choice: no tool is called '%.100s'", c->tool_name);
    if (c->tool_choice == LILY_TOOLS_REQUIRED && !c->tools)
        return lily_refuse(r, LILY_ARGUMENT, "tool_choice", "tool_choice: a call is required, and there are no tools");
    if (c->tool_choice == LILY_TOOLS_NONE) c->tools = NULL;
    return LILY_OK;
}
