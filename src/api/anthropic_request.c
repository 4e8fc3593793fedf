/* The fields follow Anthropic's reference of the Messages API; temperature, top_p, top_k and the fields that Lily adds to
 * chat requests are the same in both protocols.  Blocks of text go on as the parts that they are. */
#include "api/anthropic_request.h"

#include <stdio.h>
#include <string.h>

#include "api/fields.h"
#include "base/buf.h"
#include "base/mem.h"
#include "text/big_number.h"
#include "text/stop.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* Bytes of "messages[12].content", of "messages[12].content[3]", the same with ".content", with ".content[4]". */
enum { MESSAGE = 40, BLOCK = MESSAGE + 24, RESULT = BLOCK + 8, PART = RESULT + 24 };

typedef struct conversion {
    json_t *made;           /* the chat request */
    json_t *messages;       /* of it */
    bool thinking_given;
} conversion;

static int no_memory(lily_refusal *r) { return lily_no_memory(&r->err, 0, "a request"); }

/* Both steal v, also on failure. */
static int put(json_t *object, const char *key, json_t *v, lily_refusal *r)
{
    return json_object_set_new(object, key, v) == 0 ? LILY_OK : no_memory(r);
}

static int append(json_t *list, json_t *v, lily_refusal *r)
{
    return json_array_append_new(list, v) == 0 ? LILY_OK : no_memory(r);
}

static json_t *share(const json_t *v) { return json_incref((json_t *)v); }

static int wrong(const char *place, const char *wanted, const json_t *value, lily_refusal *r)
{
    if (!value) return lily_refuse(r, LILY_ARGUMENT, place, "%s is missing, it must be %s", place, wanted);
    return lily_refuse(r, LILY_ARGUMENT, place, "%s must be %s, not %s", place, wanted, lily_json_kind(value));
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool is(const char *text, const char *wanted) { return text && strcmp(text, wanted) == 0; }

/* ---- blocks ---- */

static int block_type(const json_t *block, const char *place, const char **type, lily_refusal *r)
{
    if (!lily_is_object(block)) return wrong(place, "an object", block, r);
    *type = text_of(block, "type");
    return *type ? LILY_OK : lily_refuse(r, LILY_ARGUMENT, place, "%s.type must be a string", place);
}

static int refuse_block(const char *type, const char *place, lily_refusal *r)
{
    if (is(type, "image") || is(type, "document"))
        return lily_refuse(r, LILY_UNSUPPORTED, place, "%s: %s input is not supported, only text", place, type);
    return lily_refuse(r, LILY_UNSUPPORTED, place, "%s: a block of type '%.60s' is not supported here", place, type);
}

/* A block of text, which is a part of OpenAI's form too; what else it has (cache_control, citations) is passed over. */
static int add_text(json_t *parts, const json_t *block, const char *place, lily_refusal *r)
{
    if (!text_of(block, "text")) return lily_refuse(r, LILY_ARGUMENT, place, "%s.text must be a string", place);
    return append(parts, share(block), r);
}

/* A tool that was loaded late, in the form that Claude Code's search for tools promises to the model.  It is told here,
 * where it came up, and not where the others are declared, since that would change the whole prefix. */
static int describe_tool(const json_t *tools, const json_t *name, const char *place, lily_buf *text, lily_refusal *r)
{
    for (size_t i = 0; i < json_array_size(tools) && json_is_string(name); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (!json_equal(json_object_get(function, "name"), name)) continue;
        lily_buf_puts(text, "<functions>\n<function>");
        TRY(lily_json_print_big(function, text, &r->err));
        lily_buf_puts(text, "</function>\n</functions>\n");
        return LILY_OK;
    }
    return lily_refuse(r, LILY_ARGUMENT, place, "%s: there is no tool '%.60s'", place,
                       json_is_string(name) ? json_string_value(name) : "");
}

static int add_reference(json_t *parts, const json_t *tools, const json_t *block, const char *place, lily_refusal *r)
{
    lily_buf text = {0};
    int rc = describe_tool(tools, json_object_get(block, "tool_name"), place, &text, r);
    if (rc == LILY_OK) rc = lily_buf_ok(&text, "a request", &r->err);
    if (rc == LILY_OK) rc = append(parts, json_pack("{s:s, s:s}", "type", "text", "text", lily_buf_str(&text)), r);
    lily_buf_free(&text);
    return rc;
}

/* A string or blocks of text as content in OpenAI's form; nothing is an empty string.  A new reference.  `tools`: those
 * that blocks may refer to, or NULL. */
static int text_content(const json_t *given, const char *place, const json_t *tools, json_t **out, lily_refusal *r)
{
    if (!given || json_is_null(given)) *out = json_string("");
    else if (json_is_string(given)) *out = share(given);
    else if (json_is_array(given)) *out = json_array();
    else return wrong(place, "a string or a list of blocks", given, r);
    if (!*out) return no_memory(r);
    int rc = LILY_OK;
    for (size_t i = 0; i < json_array_size(given) && json_is_array(given) && rc == LILY_OK; i++) {
        const json_t *block = json_array_get(given, i);
        const char *type = NULL;
        char at[PART];
        snprintf(at, sizeof at, "%s[%zu]", place, i);
        rc = block_type(block, at, &type, r);
        if (rc != LILY_OK) break;
        if (is(type, "text")) rc = add_text(*out, block, at, r);
        else if (is(type, "tool_reference") && tools) rc = add_reference(*out, tools, block, at, r);
        else rc = refuse_block(type, at, r);
    }
    if (rc != LILY_OK) json_decref(*out);
    return rc;
}

/* Steals content. */
static int add_message(json_t *messages, const char *role, json_t *content, lily_refusal *r)
{
    return append(messages, json_pack("{s:s, s:o}", "role", role, "content", content), r);
}

/* ---- the system prompt ---- */

/* Claude Code's first line is a note for Anthropic's accounts that changes from request to request: it is nothing for
 * the model, and each change would cost the whole prefix. */
static int drop_billing_note(json_t **content, lily_refusal *r)
{
    static const char note[] = "x-anthropic-billing-header:";
    json_t *block = json_array_get(*content, 0), *text = block ? json_object_get(block, "text") : *content;
    const char *s = json_string_value(text);
    if (!s || strncmp(s, note, sizeof note - 1) != 0) return LILY_OK;
    size_t n = json_string_length(text);
    const char *end = memchr(s, '\n', n);
    size_t line = end ? (size_t)(end + 1 - s) : n;
    if (block && line == n) return json_array_remove(*content, 0) == 0 ? LILY_OK : no_memory(r);
    json_t *rest = json_stringn(s + line, n - line);
    if (block) {
        json_t *made = json_pack("{s:s, s:o}", "type", "text", "text", rest);
        return json_array_set_new(*content, 0, made) == 0 ? LILY_OK : no_memory(r);
    }
    json_decref(*content);
    *content = rest;
    return rest ? LILY_OK : no_memory(r);
}

static int read_system(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    conversion *c = out;
    json_t *content;
    TRY(text_content(value, f->name, NULL, &content, r));
    int rc = drop_billing_note(&content, r);
    bool any = json_is_array(content) ? json_array_size(content) > 0 : json_string_length(content) > 0;
    if (rc == LILY_OK && any) return add_message(c->messages, "system", content, r);
    json_decref(content);
    return rc;
}

/* ---- messages ---- */

static int add_tool_result(const conversion *c, const json_t *block, const char *place, lily_refusal *r)
{
    char at[RESULT];
    snprintf(at, sizeof at, "%s.content", place);
    json_t *content;
    TRY(text_content(json_object_get(block, "content"), at, json_object_get(c->made, "tools"), &content, r));
    if (json_is_true(json_object_get(block, "is_error"))) {
        /* The chat form has no flag for it, so the model is told in words. */
        json_t *parts = json_is_array(content) ? content : json_pack("[{s:s, s:o}]", "type", "text", "text", content);
        if (!parts) return no_memory(r);
        content = parts;
        if (json_array_insert_new(parts, 0, json_pack("{s:s, s:s}", "type", "text", "text", "Error: ")) != 0) {
            json_decref(content);
            return no_memory(r);
        }
    }
    json_t *made = json_pack("{s:s, s:o}", "role", "tool", "content", content);
    const json_t *id = json_object_get(block, "tool_use_id");
    if (made && json_is_string(id) && json_object_set(made, "tool_call_id", (json_t *)id) != 0) {
        json_decref(made);
        made = NULL;
    }
    return append(c->messages, made, r);
}

/* Results of tools belong right behind the calls, also where text came before them; text then is a message of the
 * user's own. */
static int add_user_blocks(const conversion *c, const json_t *blocks, const char *place, json_t *parts, lily_refusal *r)
{
    size_t n_results = 0;
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        const json_t *block = json_array_get(blocks, i);
        const char *type = NULL;
        char at[BLOCK];
        snprintf(at, sizeof at, "%s[%zu]", place, i);
        TRY(block_type(block, at, &type, r));
        if (is(type, "text")) {
            TRY(add_text(parts, block, at, r));
        } else if (is(type, "tool_result")) {
            TRY(add_tool_result(c, block, at, r));
            n_results++;
        } else {
            return refuse_block(type, at, r);
        }
    }
    if (n_results > 0 && json_array_size(parts) == 0) return LILY_OK;
    return add_message(c->messages, "user", share(parts), r);
}

static int add_user(const conversion *c, const json_t *content, const char *place, lily_refusal *r)
{
    if (json_is_string(content)) return add_message(c->messages, "user", share(content), r);
    if (!json_is_array(content)) return wrong(place, "a string or a list of blocks", content, r);
    json_t *parts = json_array();
    int rc = parts ? add_user_blocks(c, content, place, parts, r) : no_memory(r);
    json_decref(parts);
    return rc;
}

static int add_tool_use(json_t *calls, const json_t *block, const char *place, lily_refusal *r)
{
    const json_t *name = json_object_get(block, "name"), *input = json_object_get(block, "input");
    const json_t *id = json_object_get(block, "id");
    if (!json_is_string(name) || json_string_length(name) == 0)
        return lily_refuse(r, LILY_ARGUMENT, place, "%s.name must be the name of a tool", place);
    if (input && !lily_is_object(input) && !json_is_null(input))
        return lily_refuse(r, LILY_ARGUMENT, place, "%s.input must be an object, not %s", place, lily_json_kind(input));
    json_t *arguments = lily_is_object(input) ? share(input) : json_object();
    json_t *made = json_pack("{s:s, s:{s:O, s:o}}", "type", "function", "function", "name", name, "arguments", arguments);
    if (made && json_is_string(id) && json_object_set(made, "id", (json_t *)id) != 0) {
        json_decref(made);
        made = NULL;
    }
    return append(calls, made, r);
}

typedef struct assistant {
    json_t *parts, *calls;
    lily_buf thought;
    bool thinks;
} assistant;

/* A signature is taken as it is; what is redacted nobody but its maker can read. */
static int add_assistant_block(assistant *a, const json_t *block, const char *place, lily_refusal *r)
{
    const char *type = NULL;
    TRY(block_type(block, place, &type, r));
    if (is(type, "text")) return add_text(a->parts, block, place, r);
    if (is(type, "tool_use")) return add_tool_use(a->calls, block, place, r);
    if (is(type, "redacted_thinking")) return LILY_OK;
    if (!is(type, "thinking")) return refuse_block(type, place, r);
    const json_t *thought = json_object_get(block, "thinking");
    if (!json_is_string(thought))
        return lily_refuse(r, LILY_ARGUMENT, place, "%s.thinking must be a string", place);
    lily_buf_add(&a->thought, json_string_value(thought), json_string_length(thought));
    a->thinks = true;
    return LILY_OK;
}

static int put_assistant(json_t *messages, const assistant *a, lily_refusal *r)
{
    TRY(lily_buf_ok(&a->thought, "a request", &r->err));
    TRY(add_message(messages, "assistant", share(a->parts), r));
    json_t *made = json_array_get(messages, json_array_size(messages) - 1);
    if (a->thinks)
        TRY(put(made, "reasoning_content", json_stringn(lily_buf_str(&a->thought), a->thought.len), r));
    return json_array_size(a->calls) > 0 ? put(made, "tool_calls", share(a->calls), r) : LILY_OK;
}

static int add_assistant(json_t *messages, const json_t *content, const char *place, lily_refusal *r)
{
    if (json_is_string(content)) return add_message(messages, "assistant", share(content), r);
    if (!json_is_array(content)) return wrong(place, "a string or a list of blocks", content, r);
    assistant a = {.parts = json_array(), .calls = json_array()};
    int rc = a.parts && a.calls ? LILY_OK : no_memory(r);
    for (size_t i = 0; i < json_array_size(content) && rc == LILY_OK; i++) {
        char at[BLOCK];
        snprintf(at, sizeof at, "%s[%zu]", place, i);
        rc = add_assistant_block(&a, json_array_get(content, i), at, r);
    }
    if (rc == LILY_OK) rc = put_assistant(messages, &a, r);
    json_decref(a.parts);
    json_decref(a.calls);
    lily_buf_free(&a.thought);
    return rc;
}

static int add_system(json_t *messages, const json_t *given, const char *place, lily_refusal *r)
{
    json_t *content;
    TRY(text_content(given, place, NULL, &content, r));
    return add_message(messages, "system", content, r);
}

static int read_messages(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    const conversion *c = out;
    json_t *messages = c->messages;
    if (!json_is_array(value)) return wrong(f->name, "a list", value, r);
    if (json_array_size(value) == 0) return lily_refuse(r, LILY_ARGUMENT, f->name, "messages is an empty list");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *message = json_array_get(value, i);
        char at[MESSAGE];
        snprintf(at, sizeof at, "messages[%zu]", i);
        if (!lily_is_object(message)) return wrong(at, "an object", message, r);
        const char *role = text_of(message, "role");
        const json_t *content = json_object_get(message, "content");
        snprintf(at, sizeof at, "messages[%zu].content", i);
        if (is(role, "user")) TRY(add_user(c, content, at, r));
        else if (is(role, "assistant")) TRY(add_assistant(messages, content, at, r));
        else if (is(role, "system")) TRY(add_system(messages, content, at, r));
        else return lily_refuse(r, LILY_ARGUMENT, f->name, "messages[%zu].role must be 'user' or 'assistant'", i);
    }
    return LILY_OK;
}

/* ---- tools ---- */

static int add_tool(json_t *tools, const json_t *tool, const char *place, lily_refusal *r)
{
    if (!lily_is_object(tool)) return wrong(place, "an object", tool, r);
    const char *type = text_of(tool, "type"), *name = text_of(tool, "name");
    if (!name || !*name) return lily_refuse(r, LILY_ARGUMENT, place, "%s.name must be a string", place);
    if (type && !is(type, "custom"))
        return lily_refuse(r, LILY_UNSUPPORTED, place,
                           "%s: the tool '%.60s' of type '%.60s' is Anthropic's own and is not supported, only tools with "
                           "an input_schema are", place, name, type);
    const json_t *schema = json_object_get(tool, "input_schema");
    if (!lily_is_object(schema))
        return lily_refuse(r, LILY_ARGUMENT, place, "%s.input_schema must be a JSON Schema", place);
    json_t *function = json_pack("{s:O}", "name", json_object_get(tool, "name"));
    int rc = function ? LILY_OK : no_memory(r);
    const json_t *description = json_object_get(tool, "description"), *strict = json_object_get(tool, "strict");
    if (rc == LILY_OK && json_is_string(description)) rc = put(function, "description", share(description), r);
    if (rc == LILY_OK) rc = put(function, "parameters", share(schema), r);
    if (rc == LILY_OK && json_is_true(strict)) rc = put(function, "strict", share(strict), r);
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
    return append(tools, made, r);
}

static int read_tools(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    if (!json_is_array(value)) return wrong(f->name, "a list", value, r);
    json_t *tools = json_array();
    int rc = tools ? LILY_OK : no_memory(r);
    for (size_t i = 0; i < json_array_size(value) && rc == LILY_OK; i++) {
        char at[MESSAGE];
        snprintf(at, sizeof at, "tools[%zu]", i);
        rc = add_tool(tools, json_array_get(value, i), at, r);
    }
    if (rc == LILY_OK) return put(((conversion *)out)->made, "tools", tools, r);
    json_decref(tools);
    return rc;
}

static int read_tool_choice(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    static const char *const names[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    json_t *made = ((conversion *)out)->made, *choice = NULL;
    const char *type = text_of(value, "type");
    json_t *name = json_object_get(value, "name");
    for (size_t i = 0; i < COUNT(names); i++)
        if (is(type, names[i][0])) choice = json_string(names[i][1]);
    if (is(type, "tool") && json_is_string(name))
        choice = json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name);
    if (!choice)
        return lily_refuse(r, LILY_ARGUMENT, f->name,
                           "tool_choice must have the type 'auto', 'any' or 'none', or 'tool' and a name");
    TRY(put(made, f->name, choice, r));
    bool single = json_is_true(json_object_get(value, "disable_parallel_tool_use"));
    return put(made, "parallel_tool_calls", json_boolean(!single), r);
}

/* ---- the rest ---- */

static int read_stop(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    if (!json_is_array(value)) return wrong(f->name, "a list of strings", value, r);
    if (json_array_size(value) > LILY_STOP_MAX)
        return lily_refuse(r, LILY_ARGUMENT, f->name, "stop_sequences: at most %d strings are taken", LILY_STOP_MAX);
    for (size_t i = 0; i < json_array_size(value); i++) {
        size_t n = json_string_length(json_array_get(value, i));
        if (n == 0 || n > LILY_STOP_BYTES)
            return lily_refuse(r, LILY_ARGUMENT, f->name, "stop_sequences[%zu] must be a string of 1 to %d bytes", i,
                               LILY_STOP_BYTES);
    }
    return put(((conversion *)out)->made, "stop", share(value), r);
}

static int read_thinking(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    conversion *c = out;
    const char *type = text_of(value, "type");
    bool on = is(type, "enabled") || is(type, "adaptive");
    if (!on && !is(type, "disabled"))
        return lily_refuse(r, LILY_ARGUMENT, f->name, "thinking.type must be 'enabled', 'adaptive' or 'disabled'");
    json_t *made = json_pack("{s:s}", "type", on ? "enabled" : "disabled");
    const json_t *budget = json_object_get(value, "budget_tokens");
    if (made && on && budget && json_object_set(made, "budget_tokens", (json_t *)budget) != 0) {
        json_decref(made);
        made = NULL;
    }
    c->thinking_given = true;
    return put(c->made, f->name, made, r);
}

/* output_config.format, and output_format as it was called before. `effort` is a hint that this model has no use for. */
static int read_format(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    const json_t *format = is(f->name, "output_config") ? json_object_get(value, "format") : value;
    if (!lily_is_object(value)) return wrong(f->name, "an object", value, r);
    if (!format || json_is_null(format)) return LILY_OK;
    const json_t *schema = json_object_get(format, "schema");
    if (!is(text_of(format, "type"), "json_schema") || !schema)
        return lily_refuse(r, LILY_ARGUMENT, f->name, "%s: a format must have the type 'json_schema' and a schema", f->name);
    json_t *made = json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name", "answer", "schema", schema);
    return put(((conversion *)out)->made, "response_format", made, r);
}

/* The one edit of the context that is the template's business is to keep the thinking of all turns. */
static int read_context(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    json_t *made = ((conversion *)out)->made;
    const json_t *edits = json_object_get(value, "edits");
    for (size_t i = 0; i < json_array_size(edits); i++) {
        const json_t *edit = json_array_get(edits, i);
        const char *type = text_of(edit, "type");
        if (!is(type, "clear_thinking_20251015"))
            return lily_refuse(r, LILY_UNSUPPORTED, f->name, "context_management.edits[%zu]: '%.60s' is not supported", i,
                               type ? type : "");
        if (!is(text_of(edit, "keep"), "all")) continue;
        TRY(put(made, "chat_template_kwargs", json_pack("{s:b}", "preserve_thinking", 1), r));
    }
    return LILY_OK;
}

/* Template variables of the request itself come last, so that they win. */
static int read_kwargs(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    json_t *made = ((conversion *)out)->made;
    json_t *kwargs = json_object_get(made, f->name);
    if (!kwargs || !lily_is_object(value)) return put(made, f->name, share(value), r);
    return json_object_update(kwargs, (json_t *)value) == 0 ? LILY_OK : no_memory(r);
}

/* What is called the same, and means the same, in chat requests. */
static int read_same(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    return put(((conversion *)out)->made, f->name, share(value), r);
}

#define VALUE(name, read) {name, LILY_FIELD_VALUE, 0, 0, 0, read}
#define SAME(name) VALUE(name, read_same)
#define UNSUPPORTED(name) {name, LILY_FIELD_UNSUPPORTED, 0, 0, 0, NULL}

static const lily_field fields[] = {
    VALUE("tools", read_tools),
    VALUE("tool_choice", read_tool_choice),
    VALUE("system", read_system),
    VALUE("messages", read_messages),
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

static int convert(conversion *c, const json_t *body, const json_t *kwargs, lily_refusal *r)
{
    if (!c->made || !c->messages) return no_memory(r);
    TRY(put(c->made, "messages", share(c->messages), r));
    TRY(lily_fields_read(fields, COUNT(fields), body, c, r));
    const json_t *messages = json_object_get(body, "messages");
    if (!messages || json_is_null(messages)) return lily_refuse(r, LILY_ARGUMENT, "messages", "messages is missing");
    if (c->thinking_given || json_object_get(kwargs, "enable_thinking")) return LILY_OK;
    return put(c->made, "thinking", json_pack("{s:s}", "type", "disabled"), r);
}

int lily_anthropic_chat_body(const json_t *body, const json_t *kwargs, json_t **out, lily_refusal *r)
{
    conversion c = {.made = json_object(), .messages = json_array()};
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
