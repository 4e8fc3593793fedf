/* responses_items.c - instructions and input items as chat messages.
 *
 * What the model said in one turn comes back as several items: reasoning, a message, calls.  They become one
 * assistant message again.  A new one begins with reasoning behind anything else, and with a message behind a message. */
#include <stdio.h>
#include <string.h>

#include "api/fields.h"
#include "api/responses_request.h"
#include "base/log.h"
#include "base/mem.h"

enum { PLACE = 80 };    /* bytes of "input[12].content[3]" */

typedef struct reader {
    lily_responses_request *q;
    json_t *turn;               /* the assistant's message that goes on, or NULL; borrowed from q->messages */
    char place[PLACE];          /* "input[12]" */
    lily_refusal *r;
} reader;

typedef int item_reader(reader *in, const json_t *item);

static int no_memory(reader *in) { return lily_no_memory(&in->r->err, 0, "the input"); }

static int wrong(reader *in, const char *key, const char *wanted, const json_t *value)
{
    return lily_refuse(in->r, LILY_ARGUMENT, in->place, "%s.%s must be %s, not %s", in->place, key, wanted,
                       value ? lily_json_kind(value) : "absent");
}

/* ---- text ---- */

static int add_part(reader *in, const char *key, size_t i, const json_t *part, lily_buf *text)
{
    static const char *const kinds[] = {"input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal"};
    char place[PLACE + 40];
    snprintf(place, sizeof place, "%s.%s[%zu]", in->place, key, i);
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!lily_is_object(part) || !type)
        return lily_refuse(in->r, LILY_ARGUMENT, place, "%s must be an object with a type", place);
    bool known = false;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) known |= strcmp(type, kinds[k]) == 0;
    if (!known)
        return lily_refuse(in->r, LILY_UNSUPPORTED, place, "%s: '%.60s' is not supported, only text", place, type);
    const char *where = strcmp(type, "refusal") == 0 ? "refusal" : "text";
    const json_t *words = json_object_get(part, where);
    if (!json_is_string(words))
        return lily_refuse(in->r, LILY_ARGUMENT, place, "%s.%s must be a string", place, where);
    lily_buf_add(text, json_string_value(words), json_string_length(words));
    return LILY_OK;
}

/* item.key: a string or a list of parts; absent is no text. */
static int add_text(reader *in, const json_t *item, const char *key, lily_buf *text)
{
    const json_t *value = json_object_get(item, key);
    if (!value || json_is_null(value)) return LILY_OK;
    if (json_is_string(value)) {
        lily_buf_add(text, json_string_value(value), json_string_length(value));
        return LILY_OK;
    }
    if (!json_is_array(value)) return wrong(in, key, "a string or a list of parts", value);
    for (size_t i = 0; i < json_array_size(value); i++) TRY(add_part(in, key, i, json_array_get(value, i), text));
    return LILY_OK;
}

/* ---- messages ---- */

static int add_message(reader *in, const char *role, json_t **out)
{
    json_t *message = json_pack("{s:s}", "role", role);
    if (!message || json_array_append_new(in->q->messages, message) != 0) return no_memory(in);
    *out = message;
    return LILY_OK;
}

/* message.key = text; an earlier text stays before it. */
static int set_text(reader *in, json_t *message, const char *key, const lily_buf *text)
{
    const json_t *before = json_object_get(message, key);
    lily_buf all = {0};
    lily_buf_add(&all, json_string_value(before), json_string_length(before));
    lily_buf_add(&all, lily_buf_str(text), text->len);
    json_t *value = all.failed || text->failed ? NULL : json_stringn(lily_buf_str(&all), all.len);
    lily_buf_free(&all);
    return value && json_object_set_new(message, key, value) == 0 ? LILY_OK : no_memory(in);
}

static int open_turn(reader *in)
{
    return in->turn ? LILY_OK : add_message(in, "assistant", &in->turn);
}

static bool turn_has(const reader *in, const char *key) { return json_object_get(in->turn, key) != NULL; }

static int put_message(reader *in, const char *role, const lily_buf *text)
{
    json_t *message;
    if (strcmp(role, "assistant") == 0) {
        if (in->turn && turn_has(in, "content") && !turn_has(in, "tool_calls")) in->turn = NULL;
        TRY(open_turn(in));
        return set_text(in, in->turn, "content", text);
    }
    in->turn = NULL;
    TRY(add_message(in, role, &message));
    return set_text(in, message, "content", text);
}

static int read_message(reader *in, const json_t *item)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const json_t *given = json_object_get(item, "role");
    const char *role = json_string_value(given);
    bool known = false;
    for (size_t i = 0; role && i < sizeof roles / sizeof roles[0]; i++) known |= strcmp(role, roles[i]) == 0;
    if (!known) return wrong(in, "role", "'user', 'assistant', 'system' or 'developer'", given);
    const json_t *content = json_object_get(item, "content");
    if (!content || json_is_null(content)) return wrong(in, "content", "a string or a list of parts", content);
    lily_buf text = {0};
    int rc = add_text(in, item, "content", &text);
    if (rc == LILY_OK) rc = put_message(in, role, &text);
    lily_buf_free(&text);
    return rc;
}

/* ---- reasoning ---- */

static int add_reasoning(reader *in, const json_t *item, lily_buf *text)
{
    static const char seal[] = LILY_RESPONSES_SEAL;
    TRY(add_text(in, item, "content", text));
    if (text->len == 0) TRY(add_text(in, item, "summary", text));
    const json_t *sealed = json_object_get(item, "encrypted_content");
    const char *s = json_string_value(sealed);
    if (text->len == 0 && s && strncmp(s, seal, sizeof seal - 1) == 0)
        lily_buf_add(text, s + sizeof seal - 1, json_string_length(sealed) - (sizeof seal - 1));
    return LILY_OK;
}

static int read_reasoning(reader *in, const json_t *item)
{
    lily_buf text = {0};
    int rc = add_reasoning(in, item, &text);
    if (rc == LILY_OK && in->turn && (turn_has(in, "content") || turn_has(in, "tool_calls"))) in->turn = NULL;
    if (rc == LILY_OK && text.len > 0) rc = open_turn(in);
    if (rc == LILY_OK && text.len > 0) rc = set_text(in, in->turn, "reasoning_content", &text);
    lily_buf_free(&text);
    return rc;
}

/* ---- calls ---- */

/* Steals `arguments`, also on failure. */
static int put_call(reader *in, const json_t *item, json_t *arguments)
{
    const char *name = json_string_value(json_object_get(item, "name"));
    lily_responses_name shown;
    if (!lily_responses_tool_name(shown, json_string_value(json_object_get(item, "namespace")), name)) {
        json_decref(arguments);
        return lily_refuse(in->r, LILY_ARGUMENT, in->place, "%s: the name is too long", in->place);
    }
    json_t *call = json_pack("{s:s, s:O, s:{s:s, s:o}}", "type", "function", "id",
                             json_object_get(item, "call_id"), "function", "name", shown,
                             "arguments", arguments);
    if (!call) return no_memory(in);
    json_t *calls = json_object_get(in->turn, "tool_calls");
    if (!calls) {
        calls = json_array();
        if (!calls || json_object_set_new(in->turn, "tool_calls", calls) != 0) {
            json_decref(call);
            return no_memory(in);
        }
    }
    return json_array_append_new(calls, call) == 0 ? LILY_OK : no_memory(in);
}

static int check_call(reader *in, const json_t *item, const char *what)
{
    static const char *const keys[] = {"name", "call_id"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *value = json_object_get(item, keys[i]);
        if (json_string_length(value) == 0) return wrong(in, keys[i], "a string", value);
    }
    const json_t *value = json_object_get(item, what);
    return json_is_string(value) ? LILY_OK : wrong(in, what, "a string", value);
}

static int read_call(reader *in, const json_t *item)
{
    TRY(check_call(in, item, "arguments"));
    TRY(open_turn(in));
    return put_call(in, item, json_incref(json_object_get(item, "arguments")));
}

/* The model knows a custom tool as a function of one string. */
static int read_custom_call(reader *in, const json_t *item)
{
    TRY(check_call(in, item, "input"));
    TRY(open_turn(in));
    json_t *arguments = json_pack("{s:O}", "input", json_object_get(item, "input"));
    return arguments ? put_call(in, item, arguments) : no_memory(in);
}

static int put_output(reader *in, const json_t *item, const lily_buf *text)
{
    json_t *message;
    in->turn = NULL;
    TRY(add_message(in, "tool", &message));
    if (json_object_set(message, "tool_call_id", json_object_get(item, "call_id")) != 0) return no_memory(in);
    return set_text(in, message, "content", text);
}

static int read_output(reader *in, const json_t *item)
{
    const json_t *id = json_object_get(item, "call_id"), *output = json_object_get(item, "output");
    if (json_string_length(id) == 0) return wrong(in, "call_id", "a string", id);
    if (!output || json_is_null(output)) return wrong(in, "output", "a string or a list of parts", output);
    lily_buf text = {0};
    int rc = add_text(in, item, "output", &text);
    if (rc == LILY_OK) rc = put_output(in, item, &text);
    lily_buf_free(&text);
    return rc;
}

/* ---- other items ---- */

static int skip_search(reader *in, const json_t *item)
{
    (void)item;
    lily_log(LILY_LOG_WARN, "%s: a web search that another server made is left out of the prompt", in->place);
    return LILY_OK;
}

static int refuse_reference(reader *in, const json_t *item)
{
    (void)item;
    return lily_refuse(in->r, LILY_UNSUPPORTED, in->place, "%s: answers are not stored here, send the item itself",
                       in->place);
}

static int read_item(reader *in, const json_t *item)
{
    static const struct {
        const char *type;
        item_reader *read;
    } kinds[] = {{"message", read_message},
                 {"reasoning", read_reasoning},
                 {"function_call", read_call},
                 {"function_call_output", read_output},
                 {"custom_tool_call", read_custom_call},
                 {"custom_tool_call_output", read_output},
                 {"web_search_call", skip_search},
                 {"item_reference", refuse_reference}};
    if (!lily_is_object(item))
        return lily_refuse(in->r, LILY_ARGUMENT, in->place, "%s must be an object, not %s", in->place,
                           lily_json_kind(item));
    const json_t *given = json_object_get(item, "type");
    if (!given || json_is_null(given)) return read_message(in, item);
    const char *type = json_string_value(given);
    if (!type) return wrong(in, "type", "a string", given);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(type, kinds[i].type) == 0) return kinds[i].read(in, item);
    return lily_refuse(in->r, LILY_UNSUPPORTED, in->place, "%s: items of type '%.60s' are not supported", in->place,
                       type);
}

/* ---- the whole ---- */

static int read_instructions(reader *in)
{
    const json_t *given = json_object_get(in->q->body, "instructions");
    if (!given || json_is_null(given)) return LILY_OK;
    if (!json_is_string(given))
        return lily_refuse(in->r, LILY_ARGUMENT, "instructions", "instructions must be a string, not %s",
                           lily_json_kind(given));
    json_t *message;
    TRY(add_message(in, "system", &message));
    return json_object_set(message, "content", (json_t *)given) == 0 ? LILY_OK : no_memory(in);
}

static int read_input(reader *in, const json_t *input)
{
    json_t *message;
    if (json_is_string(input)) {
        TRY(add_message(in, "user", &message));
        return json_object_set(message, "content", (json_t *)input) == 0 ? LILY_OK : no_memory(in);
    }
    if (!json_is_array(input))
        return lily_refuse(in->r, LILY_ARGUMENT, "input", "input must be a string or a list of items, not %s",
                           lily_json_kind(input));
    if (json_array_size(input) == 0) return lily_refuse(in->r, LILY_ARGUMENT, "input", "input is an empty list");
    for (size_t i = 0; i < json_array_size(input); i++) {
        snprintf(in->place, sizeof in->place, "input[%zu]", i);
        TRY(read_item(in, json_array_get(input, i)));
    }
    return LILY_OK;
}

int lily_responses_items(lily_responses_request *q, lily_refusal *r)
{
    reader in = {.q = q, .r = r};
    const json_t *input = json_object_get(q->body, "input");
    if (!input || json_is_null(input)) return lily_refuse(r, LILY_ARGUMENT, "input", "input is missing");
    q->messages = json_array();
    if (!q->messages) return no_memory(&in);
    TRY(read_instructions(&in));
    return read_input(&in, input);
}
