/* anthropic_blocks.c - the system prompt and messages of blocks as messages in OpenAI's form.
 *
 * Blocks of text go on as the parts that they are. */
#include <stdio.h>
#include <string.h>

#include "api/anthropic_inside.h"
#include "base/buf.h"
#include "text/big_number.h"

/* Bytes of "messages[12].content", of "messages[12].content[3]", the same with ".content", with ".content[4]". */
enum { MESSAGE = 40, BLOCK = MESSAGE + 24, RESULT = BLOCK + 8, PART = RESULT + 24 };

/* ---- blocks ---- */

static int block_type(const json_t *block, const char *place, const char **type, lily_refusal *r)
{
    if (!lily_is_object(block)) return anthropic_wrong(place, "an object", block, r);
    *type = anthropic_text(block, "type");
    return *type ? LILY_OK : lily_refuse(r, LILY_ARGUMENT, place, "%s.type must be a string", place);
}

static int refuse_block(const char *type, const char *place, lily_refusal *r)
{
    if (anthropic_is(type, "image") || anthropic_is(type, "document"))
        return lily_refuse(r, LILY_UNSUPPORTED, place, "%s: %s input is not supported, only text", place, type);
    return lily_refuse(r, LILY_UNSUPPORTED, place, "%s: a block of type '%.60s' is not supported here", place, type);
}

/* A block of text, which is a part of OpenAI's form too; what else it has (cache_control, citations) is passed over. */
static int add_text(json_t *parts, const json_t *block, const char *place, lily_refusal *r)
{
    if (!anthropic_text(block, "text")) return lily_refuse(r, LILY_ARGUMENT, place, "%s.text must be a string", place);
    return anthropic_append(parts, anthropic_share(block), r);
}

/* Steals the text, which may be NULL. */
static json_t *text_part(json_t *text) { return json_pack("{s:s, s:o}", "type", "text", "text", text); }

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
    if (rc == LILY_OK) rc = anthropic_append(parts, text_part(json_stringn(lily_buf_str(&text), text.len)), r);
    lily_buf_free(&text);
    return rc;
}

/* A string or blocks of text as content in OpenAI's form; nothing is an empty string.  A new reference.  `tools`: those
 * that blocks may refer to, or NULL. */
static int text_content(const json_t *given, const char *place, const json_t *tools, json_t **out, lily_refusal *r)
{
    if (!given || json_is_null(given)) *out = json_string("");
    else if (json_is_string(given)) *out = anthropic_share(given);
    else if (json_is_array(given)) *out = json_array();
    else return anthropic_wrong(place, "a string or a list of blocks", given, r);
    if (!*out) return anthropic_no_memory(r);
    int rc = LILY_OK;
    for (size_t i = 0; i < json_array_size(given) && json_is_array(given) && rc == LILY_OK; i++) {
        const json_t *block = json_array_get(given, i);
        const char *type = NULL;
        char at[PART];
        snprintf(at, sizeof at, "%s[%zu]", place, i);
        rc = block_type(block, at, &type, r);
        if (rc != LILY_OK) break;
        if (anthropic_is(type, "text")) rc = add_text(*out, block, at, r);
        else if (anthropic_is(type, "tool_reference") && tools) rc = add_reference(*out, tools, block, at, r);
        else rc = refuse_block(type, at, r);
    }
    if (rc != LILY_OK) json_decref(*out);
    return rc;
}

/* Steals content. */
static int add_message(json_t *messages, const char *role, json_t *content, lily_refusal *r)
{
    return anthropic_append(messages, json_pack("{s:s, s:o}", "role", role, "content", content), r);
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
    if (block && line == n) return json_array_remove(*content, 0) == 0 ? LILY_OK : anthropic_no_memory(r);
    json_t *rest = json_stringn(s + line, n - line);
    if (block) return json_array_set_new(*content, 0, text_part(rest)) == 0 ? LILY_OK : anthropic_no_memory(r);
    json_decref(*content);
    *content = rest;
    return rest ? LILY_OK : anthropic_no_memory(r);
}

int anthropic_read_system(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    anthropic_conversion *c = out;
    json_t *content;
    TRY(text_content(value, f->name, NULL, &content, r));
    int rc = drop_billing_note(&content, r);
    bool any = json_is_array(content) ? json_array_size(content) > 0 : json_string_length(content) > 0;
    if (rc == LILY_OK && any) return add_message(c->messages, "system", content, r);
    json_decref(content);
    return rc;
}

/* ---- messages ---- */

/* The chat form has no flag for a failed call, so the model is told in words. */
static int tell_error(json_t **content, lily_refusal *r)
{
    if (!json_is_array(*content)) *content = json_pack("[o]", text_part(*content));
    if (json_array_insert_new(*content, 0, text_part(json_string("Error: "))) == 0) return LILY_OK;
    json_decref(*content);
    return anthropic_no_memory(r);
}

static int add_tool_result(const anthropic_conversion *c, const json_t *block, const char *place, lily_refusal *r)
{
    char at[RESULT];
    snprintf(at, sizeof at, "%s.content", place);
    json_t *content;
    TRY(text_content(json_object_get(block, "content"), at, json_object_get(c->made, "tools"), &content, r));
    if (json_is_true(json_object_get(block, "is_error"))) TRY(tell_error(&content, r));
    json_t *made = json_pack("{s:s, s:o}", "role", "tool", "content", content);
    const json_t *id = json_object_get(block, "tool_use_id");
    if (made && json_is_string(id) && json_object_set(made, "tool_call_id", (json_t *)id) != 0) {
        json_decref(made);
        made = NULL;
    }
    return anthropic_append(c->messages, made, r);
}

/* Results of tools belong right behind the calls, also where text came before them; text then is a message of the
 * user's own. */
static int add_user_blocks(const anthropic_conversion *c, const json_t *blocks, const char *place, json_t *parts,
                           lily_refusal *r)
{
    size_t n_results = 0;
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        const json_t *block = json_array_get(blocks, i);
        const char *type = NULL;
        char at[BLOCK];
        snprintf(at, sizeof at, "%s[%zu]", place, i);
        TRY(block_type(block, at, &type, r));
        if (anthropic_is(type, "text")) {
            TRY(add_text(parts, block, at, r));
        } else if (anthropic_is(type, "tool_result")) {
            TRY(add_tool_result(c, block, at, r));
            n_results++;
        } else {
            return refuse_block(type, at, r);
        }
    }
    if (n_results > 0 && json_array_size(parts) == 0) return LILY_OK;
    return add_message(c->messages, "user", anthropic_share(parts), r);
}

static int add_user(const anthropic_conversion *c, const json_t *content, const char *place, lily_refusal *r)
{
    if (json_is_string(content)) return add_message(c->messages, "user", anthropic_share(content), r);
    if (!json_is_array(content)) return anthropic_wrong(place, "a string or a list of blocks", content, r);
    json_t *parts = json_array();
    int rc = parts ? add_user_blocks(c, content, place, parts, r) : anthropic_no_memory(r);
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
    json_t *arguments = lily_is_object(input) ? anthropic_share(input) : json_object();
    json_t *made =
        json_pack("{s:s, s:{s:O, s:o}}", "type", "function", "function", "name", name, "arguments", arguments);
    if (made && json_is_string(id) && json_object_set(made, "id", (json_t *)id) != 0) {
        json_decref(made);
        made = NULL;
    }
    return anthropic_append(calls, made, r);
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
    if (anthropic_is(type, "text")) return add_text(a->parts, block, place, r);
    if (anthropic_is(type, "tool_use")) return add_tool_use(a->calls, block, place, r);
    if (anthropic_is(type, "redacted_thinking")) return LILY_OK;
    if (!anthropic_is(type, "thinking")) return refuse_block(type, place, r);
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
    TRY(add_message(messages, "assistant", anthropic_share(a->parts), r));
    json_t *made = json_array_get(messages, json_array_size(messages) - 1);
    if (a->thinks)
        TRY(anthropic_put(made, "reasoning_content", json_stringn(lily_buf_str(&a->thought), a->thought.len), r));
    return json_array_size(a->calls) > 0 ? anthropic_put(made, "tool_calls", anthropic_share(a->calls), r) : LILY_OK;
}

static int add_assistant(json_t *messages, const json_t *content, const char *place, lily_refusal *r)
{
    if (json_is_string(content)) return add_message(messages, "assistant", anthropic_share(content), r);
    if (!json_is_array(content)) return anthropic_wrong(place, "a string or a list of blocks", content, r);
    assistant a = {.parts = json_array(), .calls = json_array()};
    int rc = a.parts && a.calls ? LILY_OK : anthropic_no_memory(r);
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

int anthropic_read_messages(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    const anthropic_conversion *c = out;
    json_t *messages = c->messages;
    if (!json_is_array(value)) return anthropic_wrong(f->name, "a list", value, r);
    if (json_array_size(value) == 0) return lily_refuse(r, LILY_ARGUMENT, f->name, "messages is an empty list");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *message = json_array_get(value, i);
        char at[MESSAGE];
        snprintf(at, sizeof at, "messages[%zu]", i);
        if (!lily_is_object(message)) return anthropic_wrong(at, "an object", message, r);
        const char *role = anthropic_text(message, "role");
        const json_t *content = json_object_get(message, "content");
        snprintf(at, sizeof at, "messages[%zu].content", i);
        if (anthropic_is(role, "user")) TRY(add_user(c, content, at, r));
        else if (anthropic_is(role, "assistant")) TRY(add_assistant(messages, content, at, r));
        else if (anthropic_is(role, "system")) TRY(add_system(messages, content, at, r));
        else return lily_refuse(r, LILY_ARGUMENT, f->name, "messages[%zu].role must be 'user' or 'assistant'", i);
    }
    return LILY_OK;
}
