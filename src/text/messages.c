#include "text/messages.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "text/big_number.h"
#include "text/jinja_text.h"

enum { PLACE = 40 };    /* bytes of "messages[12]" */

static int no_memory(lily_err *e)
{
    return lily_fail(e, LILY_NO_MEMORY, "out of memory for the messages");
}

/* Steals v, also on failure. */
static int put(json_t *object, const char *key, json_t *v, lily_err *e)
{
    return json_object_set_new(object, key, v) == 0 ? LILY_OK : no_memory(e);
}

static const char *kind_of(const json_t *j)
{
    static const char *const names[] = {[JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list", [JSON_STRING] = "a string",
                                        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number", [JSON_TRUE] = "true",
                                        [JSON_FALSE] = "false", [JSON_NULL] = "null"};
    if (lily_big_number(j)) return "a number";
    return j ? names[json_typeof(j)] : "nothing";
}

/* What a part that is not text would need. */
static const char *medium_of(const json_t *part, const char *type)
{
    static const char *const media[] = {"image", "audio", "video", "file"};
    for (size_t i = 0; i < sizeof media / sizeof *media; i++)
        if (strstr(type, media[i])) return media[i];
    if (json_object_get(part, "image") || json_object_get(part, "image_url")) return "image";
    return NULL;
}

/* Appends the text of one content part. */
static int add_part(lily_buf *text, const json_t *part, const char *place, lily_err *e)
{
    if (!json_is_object(part))
        return lily_fail(e, LILY_ARGUMENT, "%s: expected an object with \"type\", found %s", place, kind_of(part));
    const json_t *type_field = json_object_get(part, "type");
    const char *type = json_is_string(type_field) ? json_string_value(type_field) : "text";
    const char *medium = medium_of(part, type);
    if (medium)
        return lily_fail(e, LILY_UNSUPPORTED, "%s: %s input is not supported, only text (part type '%s')", place, medium,
                         type);
    static const char *const texts[] = {"text", "input_text", "output_text", "refusal"};
    bool known = false;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) known |= strcmp(type, texts[i]) == 0;
    if (!known) return lily_fail(e, LILY_UNSUPPORTED, "%s: part type '%s' is not supported, only text", place, type);
    const json_t *words = json_object_get(part, strcmp(type, "refusal") == 0 ? "refusal" : "text");
    if (!json_is_string(words))
        return lily_fail(e, LILY_ARGUMENT, "%s: expected \"text\" to be a string, found %s", place, kind_of(words));
    lily_buf_add(text, json_string_value(words), json_string_length(words));
    return LILY_OK;
}

static int flatten(const json_t *content, const char *place, json_t **out, lily_err *e)
{
    lily_buf text = {0};
    int rc = LILY_OK;
    if (json_is_string(content)) {
        *out = json_stringn(json_string_value(content), json_string_length(content));
        return *out ? LILY_OK : no_memory(e);
    }
    if (content && !json_is_null(content) && !json_is_array(content))
        return lily_fail(e, LILY_ARGUMENT, "%s.content: expected a string or a list of parts, found %s", place,
                         kind_of(content));
    for (size_t i = 0; i < json_array_size(content) && rc == LILY_OK; i++) {
        char part_place[PLACE + 40];
        snprintf(part_place, sizeof part_place, "%s.content[%zu]", place, i);
        rc = add_part(&text, json_array_get(content, i), part_place, e);
    }
    if (rc == LILY_OK) rc = lily_buf_ok(&text, "the content of a message", e);
    if (rc == LILY_OK && !(*out = json_stringn(lily_buf_str(&text), text.len))) rc = no_memory(e);
    lily_buf_free(&text);
    return rc;
}

/* The arguments of a call as an object. */
static int take_arguments(const json_t *given, const char *place, json_t **out, lily_err *e)
{
    lily_err ignored;
    if (json_is_object(given) && !lily_big_number(given)) {
        *out = json_incref((json_t *)given);
        return LILY_OK;
    }
    if (!given || json_is_null(given) || (json_is_string(given) && json_string_length(given) == 0)) {
        *out = json_object();
        return *out ? LILY_OK : no_memory(e);
    }
    if (!json_is_string(given))
        return lily_fail(e, LILY_ARGUMENT, "%s.arguments: expected a string or an object, found %s", place, kind_of(given));
    int rc = lily_json_parse_big(out, json_string_value(given), json_string_length(given), "arguments", &ignored);
    if (rc == LILY_OK && json_is_object(*out) && !lily_big_number(*out)) return LILY_OK;
    if (rc == LILY_NO_MEMORY) return no_memory(e);
    if (rc == LILY_OK) json_decref(*out);
    *out = json_pack("{s:O}", "arguments", given);
    return *out ? LILY_OK : no_memory(e);
}

/* One call as {"type": "function", "function": {"name", "arguments"}}, appended to calls. */
static int add_call(json_t *calls, const json_t *call, const char *place, lily_err *e)
{
    if (!json_is_object(call)) return lily_fail(e, LILY_ARGUMENT, "%s: expected an object, found %s", place, kind_of(call));
    const json_t *type = json_object_get(call, "type"), *id = json_object_get(call, "id");
    if (json_is_string(type) && strcmp(json_string_value(type), "function") != 0)
        return lily_fail(e, LILY_UNSUPPORTED, "%s: call type '%s' is not supported", place, json_string_value(type));
    const json_t *function = json_object_get(call, "function");
    if (!function) function = call;
    const json_t *name = json_object_get(function, "name");
    if (!json_is_string(name) || json_string_length(name) == 0)
        return lily_fail(e, LILY_ARGUMENT, "%s: the call has no function name", place);
    json_t *arguments;
    TRY(take_arguments(json_object_get(function, "arguments"), place, &arguments, e));
    json_t *made = json_pack("{s:s, s:{s:O, s:o}}", "type", "function", "function", "name", name, "arguments", arguments);
    if (!made) return no_memory(e);
    if (json_is_string(id) && json_object_set(made, "id", (json_t *)id) != 0) {
        json_decref(made);
        return no_memory(e);
    }
    return json_array_append_new(calls, made) == 0 ? LILY_OK : no_memory(e);
}

/* The calls of an assistant message, out = NULL when there are none. */
static int take_calls(const json_t *message, const char *place, json_t **out, lily_err *e)
{
    const json_t *calls = json_object_get(message, "tool_calls"), *old = json_object_get(message, "function_call");
    char call_place[PLACE + 40];
    *out = NULL;
    if (calls && !json_is_null(calls) && !json_is_array(calls))
        return lily_fail(e, LILY_ARGUMENT, "%s.tool_calls: expected a list, found %s", place, kind_of(calls));
    if (json_array_size(calls) == 0 && !json_is_object(old)) return LILY_OK;
    json_t *list = json_array();
    int rc = list ? LILY_OK : no_memory(e);
    for (size_t i = 0; i < json_array_size(calls) && rc == LILY_OK; i++) {
        snprintf(call_place, sizeof call_place, "%s.tool_calls[%zu]", place, i);
        rc = add_call(list, json_array_get(calls, i), call_place, e);
    }
    if (rc == LILY_OK && json_array_size(list) == 0) {
        snprintf(call_place, sizeof call_place, "%s.function_call", place);
        rc = add_call(list, old, call_place, e);
    }
    if (rc == LILY_OK) *out = list;
    else json_decref(list);
    return rc;
}

/* reasoning_content and tool_calls. */
static int take_assistant(const json_t *message, const char *place, json_t *made, lily_err *e)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    json_t *calls;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *thought = json_object_get(message, names[i]);
        if (!json_is_string(thought)) continue;
        TRY(put(made, "reasoning_content", json_incref(thought), e));
        break;
    }
    TRY(take_calls(message, place, &calls, e));
    return calls ? put(made, "tool_calls", calls, e) : LILY_OK;
}

static const char *canonical_role(const char *role)
{
    static const char *const names[][2] = {{"system", "system"}, {"developer", "system"}, {"user", "user"},
                                           {"assistant", "assistant"}, {"tool", "tool"}, {"function", "tool"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(role, names[i][0]) == 0) return names[i][1];
    return NULL;
}

static int fill_message(const json_t *message, const char *role, const char *place, json_t *made, lily_err *e)
{
    static const char *const kept[] = {"name", "tool_call_id"};
    json_t *content;
    TRY(put(made, "role", json_string(role), e));
    TRY(flatten(json_object_get(message, "content"), place, &content, e));
    TRY(put(made, "content", content, e));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        json_t *v = json_object_get(message, kept[i]);
        if (json_is_string(v)) TRY(put(made, kept[i], json_incref(v), e));
    }
    return strcmp(role, "assistant") == 0 ? take_assistant(message, place, made, e) : LILY_OK;
}

static bool is_role(const json_t *message, const char *role)
{
    const char *r = json_string_value(json_object_get(message, "role"));
    return r && strcmp(r, role) == 0;
}

/* The content becomes BEFORE content AFTER. */
static int wrap_content(json_t *message, const char *before, size_t n, const char *after, lily_err *e)
{
    const json_t *content = json_object_get(message, "content");
    lily_buf text = {0};
    lily_buf_add(&text, before, n);
    lily_buf_add(&text, json_string_value(content), json_string_length(content));
    lily_buf_puts(&text, after);
    int rc = lily_buf_ok(&text, "a system message", e);
    if (rc == LILY_OK) rc = put(message, "content", json_stringn(lily_buf_str(&text), text.len), e);
    lily_buf_free(&text);
    return rc;
}

/* A system message behind others.  Steals made. */
static int add_late_system(json_t *list, json_t *made, lily_err *e)
{
    const json_t *previous = json_array_get(list, json_array_size(list) - 1);
    bool in_loop = is_role(previous, "tool") || json_object_get(previous, "tool_calls");
    int rc = wrap_content(made, "<system>\n", strlen("<system>\n"), "\n</system>", e);
    if (rc == LILY_OK) rc = put(made, "role", json_string(in_loop ? "tool" : "user"), e);
    if (rc == LILY_OK && json_array_append(list, made) != 0) rc = no_memory(e);
    json_decref(made);
    return rc;
}

/* Joins a further system message at the start to the first one.  Steals made. */
static int add_early_system(json_t *first, json_t *made, lily_err *e)
{
    const json_t *content = json_object_get(first, "content");
    lily_buf text = {0};
    lily_buf_add(&text, json_string_value(content), json_string_length(content));
    if (text.len && json_string_length(json_object_get(made, "content"))) lily_buf_puts(&text, "\n\n");
    int rc = lily_buf_ok(&text, "a system message", e);
    if (rc == LILY_OK) rc = wrap_content(made, lily_buf_str(&text), text.len, "", e);
    if (rc == LILY_OK) rc = put(first, "content", json_incref(json_object_get(made, "content")), e);
    lily_buf_free(&text);
    json_decref(made);
    return rc;
}

static int add_message(json_t *list, const json_t *message, size_t index, lily_err *e)
{
    char place[PLACE];
    snprintf(place, sizeof place, "messages[%zu]", index);
    if (!json_is_object(message))
        return lily_fail(e, LILY_ARGUMENT, "%s: expected an object, found %s", place, kind_of(message));
    const json_t *role_field = json_object_get(message, "role");
    if (!json_is_string(role_field))
        return lily_fail(e, LILY_ARGUMENT, "%s.role: expected a string, found %s", place, kind_of(role_field));
    const char *role = canonical_role(json_string_value(role_field));
    if (!role)
        return lily_fail(e, LILY_ARGUMENT, "%s.role: '%s' is not one of system, developer, user, assistant, tool, function",
                         place, json_string_value(role_field));
    json_t *made = json_object();
    if (!made) return no_memory(e);
    int rc = fill_message(message, role, place, made, e);
    if (rc != LILY_OK) {
        json_decref(made);
        return rc;
    }
    size_t n = json_array_size(list);
    if (strcmp(role, "system") == 0 && n == 1 && is_role(json_array_get(list, 0), "system"))
        return add_early_system(json_array_get(list, 0), made, e);
    if (strcmp(role, "system") == 0 && n > 0) return add_late_system(list, made, e);
    return json_array_append_new(list, made) == 0 ? LILY_OK : no_memory(e);
}

/* Templates of the family take a user message that is a wrapped tool result for no question. */
static bool is_question(const json_t *message)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    const json_t *content = json_object_get(message, "content");
    const jinja_str s = {.p = json_string_value(content), .n = json_string_length(content)};
    size_t from, to, a = sizeof open - 1, b = sizeof close - 1;
    jinja_strip(&s, NULL, JINJA_LEFT | JINJA_RIGHT, &from, &to);
    bool wrapped = to - from >= a && to - from >= b && memcmp(s.p + from, open, a) == 0 && memcmp(s.p + to - b, close, b) == 0;
    return is_role(message, "user") && !wrapped;
}

/* Puts an empty question behind the system message if there is none. */
static int need_question(json_t *list, lily_err *e)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (is_question(json_array_get(list, i))) return LILY_OK;
    size_t at = is_role(json_array_get(list, 0), "system") ? 1 : 0;
    json_t *empty = json_pack("{s:s, s:s}", "role", "user", "content", "");
    return empty && json_array_insert_new(list, at, empty) == 0 ? LILY_OK : no_memory(e);
}

static size_t parts_of_call(const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *given = json_object_get(function ? function : call, "arguments");
    return json_is_string(given) ? lily_json_parts(json_string_value(given), json_string_length(given)) : 0;
}

/* The bound of a body does not see what is JSON in a string: all of it together has the same bound once more. */
static int check_parts(const json_t *messages, lily_err *e)
{
    size_t parts = 0, i, k;
    const json_t *message, *call;
    json_array_foreach(messages, i, message) {
        const json_t *calls = json_object_get(message, "tool_calls");
        json_array_foreach(calls, k, call) parts += parts_of_call(call);
        if (json_array_size(calls) == 0) parts += parts_of_call(json_object_get(message, "function_call"));
    }
    if (parts <= LILY_JSON_MAX_PARTS) return LILY_OK;
    return lily_fail(e, LILY_ARGUMENT, "messages: the arguments of all calls have more than 262,144 lists and objects");
}

int lily_messages_normalize(const json_t *messages, json_t **out, lily_err *e)
{
    *out = NULL;
    if (!json_is_array(messages)) return lily_fail(e, LILY_ARGUMENT, "messages: expected a list, found %s", kind_of(messages));
    if (json_array_size(messages) == 0) return lily_fail(e, LILY_ARGUMENT, "messages: the list is empty");
    TRY(check_parts(messages, e));
    json_t *list = json_array();
    int rc = list ? LILY_OK : no_memory(e);
    for (size_t i = 0; i < json_array_size(messages) && rc == LILY_OK; i++)
        rc = add_message(list, json_array_get(messages, i), i, e);
    if (rc == LILY_OK) rc = need_question(list, e);
    if (rc == LILY_OK) *out = list;
    else json_decref(list);
    return rc;
}
