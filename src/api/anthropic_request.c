/* The fields follow Anthropic's reference of the Messages API; temperature, top_p, top_k and the fields that Lily adds
 * to chat requests are the same in both protocols. */
#include "api/anthropic_request.h"

#include <stdio.h>
#include <string.h>

#include "api/anthropic_inside.h"
#include "text/stop.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

enum { PLACE = 40 };    /* bytes of "tools[12]" */

/* ---- tools ---- */

static int add_tool(json_t *tools, const json_t *tool, const char *place, lily_refusal *r)
{
    if (!lily_is_object(tool)) return anthropic_wrong(place, "an object", tool, r);
    const char *type = anthropic_text(tool, "type"), *name = anthropic_text(tool, "name");
    if (!name || !*name) return lily_refuse(r, LILY_ARGUMENT, place, "%s.name must be a non-empty string", place);
    if (type && !anthropic_is(type, "custom"))
        return lily_refuse(r, LILY_UNSUPPORTED, place,
                           "%s: the tool '%.60s' of type '%.60s' is Anthropic's own and is not supported, only tools "
                           "with an input_schema are", place, name, type);
    const json_t *schema = json_object_get(tool, "input_schema");
    if (!lily_is_object(schema))
        return lily_refuse(r, LILY_ARGUMENT, place, "%s.input_schema must be a JSON Schema", place);
    json_t *function = json_pack("{s:O}", "name", json_object_get(tool, "name"));
    int rc = function ? LILY_OK : anthropic_no_memory(r);
    const json_t *description = json_object_get(tool, "description"), *strict = json_object_get(tool, "strict");
    if (rc == LILY_OK && json_is_string(description))
        rc = anthropic_put(function, "description", anthropic_share(description), r);
    if (rc == LILY_OK) rc = anthropic_put(function, "parameters", anthropic_share(schema), r);
    if (rc == LILY_OK && json_is_true(strict)) rc = anthropic_put(function, "strict", anthropic_share(strict), r);
    if (rc != LILY_OK) {
        json_decref(function);
        return rc;
    }
    json_t *made = json_pack("{s:s, s:o}", "type", "function", "function", function);
    const json_t *late = json_object_get(tool, "defer_loading");
    if (made && json_is_true(late) && json_object_set(made, "defer_loading", (json_t *)late) != 0) {
        json_decref(made);
        made = NULL;
    }
    return anthropic_append(tools, made, r);
}

static int read_tools(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    if (!json_is_array(value)) return anthropic_wrong(f->name, "a list", value, r);
    json_t *tools = json_array();
    int rc = tools ? LILY_OK : anthropic_no_memory(r);
    for (size_t i = 0; i < json_array_size(value) && rc == LILY_OK; i++) {
        char at[PLACE];
        snprintf(at, sizeof at, "tools[%zu]", i);
        rc = add_tool(tools, json_array_get(value, i), at, r);
    }
    if (rc == LILY_OK) return anthropic_put(((anthropic_conversion *)out)->made, "tools", tools, r);
    json_decref(tools);
    return rc;
}

static int read_tool_choice(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    static const char *const names[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    json_t *made = ((anthropic_conversion *)out)->made, *choice = NULL;
    const char *type = anthropic_text(value, "type");
    json_t *name = json_object_get(value, "name");
    for (size_t i = 0; i < COUNT(names); i++)
        if (anthropic_is(type, names[i][0])) choice = json_string(names[i][1]);
    if (anthropic_is(type, "tool") && json_is_string(name))
        choice = json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name);
    if (!choice)
        return lily_refuse(r, LILY_ARGUMENT, f->name,
                           "tool_choice must have the type 'auto', 'any' or 'none', or 'tool' and a name");
    TRY(anthropic_put(made, f->name, choice, r));
    bool single = json_is_true(json_object_get(value, "disable_parallel_tool_use"));
    return anthropic_put(made, "parallel_tool_calls", json_boolean(!single), r);
}

/* ---- the rest ---- */

static int read_stop(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    if (!json_is_array(value)) return anthropic_wrong(f->name, "a list of strings", value, r);
    if (json_array_size(value) > LILY_STOP_MAX)
        return lily_refuse(r, LILY_ARGUMENT, f->name, "stop_sequences: at most %d strings are taken", LILY_STOP_MAX);
    for (size_t i = 0; i < json_array_size(value); i++) {
        size_t n = json_string_length(json_array_get(value, i));
        if (n == 0 || n > LILY_STOP_BYTES)
            return lily_refuse(r, LILY_ARGUMENT, f->name, "stop_sequences[%zu] must be a string of 1 to %d bytes", i,
                               LILY_STOP_BYTES);
    }
    return anthropic_put(((anthropic_conversion *)out)->made, "stop", anthropic_share(value), r);
}

static int read_thinking(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    anthropic_conversion *c = out;
    const char *type = anthropic_text(value, "type");
    bool on = anthropic_is(type, "enabled") || anthropic_is(type, "adaptive");
    if (!on && !anthropic_is(type, "disabled"))
        return lily_refuse(r, LILY_ARGUMENT, f->name, "thinking.type must be 'enabled', 'adaptive' or 'disabled'");
    json_t *made = json_pack("{s:s}", "type", on ? "enabled" : "disabled");
    const json_t *budget = json_object_get(value, "budget_tokens");
    if (made && on && budget && json_object_set(made, "budget_tokens", (json_t *)budget) != 0) {
        json_decref(made);
        made = NULL;
    }
    c->thinking_given = true;
    return anthropic_put(c->made, f->name, made, r);
}

/* output_config.format, and output_format as it was called before. `effort` is a hint that the model cannot use. */
static int read_format(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    const json_t *format = anthropic_is(f->name, "output_config") ? json_object_get(value, "format") : value;
    if (!lily_is_object(value)) return anthropic_wrong(f->name, "an object", value, r);
    if (!format || json_is_null(format)) return LILY_OK;
    const json_t *schema = json_object_get(format, "schema");
    if (!anthropic_is(anthropic_text(format, "type"), "json_schema") || !schema)
        return lily_refuse(r, LILY_ARGUMENT, f->name, "%s: a format must have the type 'json_schema' and a schema",
                           f->name);
    json_t *made = json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name", "answer", "schema",
                             schema);
    return anthropic_put(((anthropic_conversion *)out)->made, "response_format", made, r);
}

/* The one edit of the context that is the template's business is to keep the thinking of all turns. */
static int read_context(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    json_t *made = ((anthropic_conversion *)out)->made;
    const json_t *edits = json_object_get(value, "edits");
    for (size_t i = 0; i < json_array_size(edits); i++) {
        const json_t *edit = json_array_get(edits, i);
        const char *type = anthropic_text(edit, "type");
        if (!anthropic_is(type, "clear_thinking_20251015"))
            return lily_refuse(r, LILY_UNSUPPORTED, f->name, "context_management.edits[%zu]: '%.60s' is not supported",
                               i, type ? type : "");
        if (!anthropic_is(anthropic_text(edit, "keep"), "all")) continue;
        TRY(anthropic_put(made, "chat_template_kwargs", json_pack("{s:b}", "preserve_thinking", 1), r));
    }
    return LILY_OK;
}

/* Template variables of the request itself come last, so that they win. */
static int read_kwargs(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    json_t *made = ((anthropic_conversion *)out)->made;
    json_t *kwargs = json_object_get(made, f->name);
    if (!kwargs || !lily_is_object(value)) return anthropic_put(made, f->name, anthropic_share(value), r);
    return json_object_update(kwargs, (json_t *)value) == 0 ? LILY_OK : anthropic_no_memory(r);
}

/* What is called the same, and means the same, in chat requests. */
static int read_same(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    return anthropic_put(((anthropic_conversion *)out)->made, f->name, anthropic_share(value), r);
}

#define VALUE(name, read) {name, LILY_FIELD_VALUE, 0, 0, 0, read}
#define SAME(name) VALUE(name, read_same)
#define UNSUPPORTED(name) {name, LILY_FIELD_UNSUPPORTED, 0, 0, 0, NULL}

static const lily_field fields[] = {
    VALUE("tools", read_tools),
    VALUE("tool_choice", read_tool_choice),
    VALUE("system", anthropic_read_system),
    VALUE("messages", anthropic_read_messages),
    VALUE("stop_sequences", read_stop),
    VALUE("thinking", read_thinking),
    VALUE("output_config", read_format),
    VALUE("output_format", read_format),
    VALUE("context_management", read_context),
    VALUE("chat_template_kwargs", read_kwargs),
    SAME("max_tokens"),
    SAME("temperature"),
    SAME("top_p"),
    SAME("top_k"),
    SAME("stream"),
    SAME("min_p"),
    SAME("presence_penalty"),
    SAME("frequency_penalty"),
    SAME("repetition_penalty"),
    SAME("seed"),
    SAME("logit_bias"),
    SAME("cache_prompt"),
    SAME("ignore_eos"),
    UNSUPPORTED("mcp_servers"),
    UNSUPPORTED("container"),
};

static int convert(anthropic_conversion *c, const json_t *body, const json_t *kwargs, lily_refusal *r)
{
    if (!c->made || !c->messages) return anthropic_no_memory(r);
    TRY(anthropic_put(c->made, "messages", anthropic_share(c->messages), r));
    TRY(lily_fields_read(fields, COUNT(fields), body, c, r));
    const json_t *messages = json_object_get(body, "messages");
    if (!messages || json_is_null(messages)) return lily_refuse(r, LILY_ARGUMENT, "messages", "messages is missing");
    if (c->thinking_given || json_object_get(kwargs, "enable_thinking")) return LILY_OK;
    return anthropic_put(c->made, "thinking", json_pack("{s:s}", "type", "disabled"), r);
}

int lily_anthropic_chat_body(const json_t *body, const json_t *kwargs, json_t **out, lily_refusal *r)
{
    anthropic_conversion c = {.made = json_object(), .messages = json_array()};
    int rc = convert(&c, body, kwargs, r);
    json_decref(c.messages);
    *out = rc == LILY_OK ? c.made : NULL;
    if (rc != LILY_OK) json_decref(c.made);
    return rc;
}

void lily_anthropic_names(lily_refusal *r)
{
    static const char *const names[][2] = {{"response_format.json_schema", "output_config.format"},
                                           {".function.parameters", ".input_schema"}};
    for (size_t i = 0; i < COUNT(names); i++) {
        char rest[LILY_ERR_TEXT];
        char *at = strstr(r->err.text, names[i][0]);
        if (!at) continue;
        snprintf(rest, sizeof rest, "%s", at + strlen(names[i][0]));
        snprintf(at, sizeof r->err.text - (size_t)(at - r->err.text), "%s%s", names[i][1], rest);
    }
}
