#include "api/responses_request.h"

#include <stdio.h>
#include <string.h>

#include "api/fields.h"
#include "base/mem.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* ---- fields of this protocol alone ---- */

/* Where the chat request gets its fields from. */
typedef struct form {
    lily_responses_request *q;
    json_t *chat;               /* the chat request's body */
    bool logprobs;
    int64_t top_logprobs;
} form;

static int wrong(const lily_field *f, const char *wanted, const json_t *value, lily_refusal *r)
{
    return lily_refuse(r, LILY_ARGUMENT, f->name, "%s must be %s, not %s", f->name, wanted, lily_json_kind(value));
}

/* Steals value, also on failure. */
static int put(form *t, const char *key, json_t *value, lily_refusal *r)
{
    return json_object_set_new(t->chat, key, value) == 0 ? LILY_OK : lily_no_memory(&r->err, 0, "a request");
}

static int copy(form *t, const char *key, const json_t *value, lily_refusal *r)
{
    return value && !json_is_null(value) ? put(t, key, json_incref((json_t *)value), r) : LILY_OK;
}

static int read_reasoning(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    static const char *const summaries[] = {"auto", "concise", "detailed", "none"};
    form *t = out;
    if (!lily_is_object(value)) return wrong(f, "an object", value, r);
    const json_t *summary = json_object_get(value, "summary");
    if (!summary) summary = json_object_get(value, "generate_summary");    /* its older name */
    bool known = !summary || json_is_null(summary);
    for (size_t i = 0; i < COUNT(summaries) && json_is_string(summary); i++)
        known |= strcmp(json_string_value(summary), summaries[i]) == 0;
    if (!known)
        return lily_refuse(r, LILY_ARGUMENT, "reasoning.summary",
                           "reasoning.summary must be 'auto', 'concise', 'detailed' or 'none'");
    t->q->summary = json_is_string(summary) && strcmp(json_string_value(summary), "none") != 0;
    return copy(t, "reasoning_effort", json_object_get(value, "effort"), r);
}

/* {"type": "json_schema", "name", "schema", "strict"} is nested one level deeper in a chat request. */
static int read_text(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    form *t = out;
    if (!lily_is_object(value)) return wrong(f, "an object", value, r);
    json_t *format = json_object_get(value, "format");
    if (!format || json_is_null(format)) return LILY_OK;
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!type || strcmp(type, "json_schema") != 0) return copy(t, "response_format", format, r);
    return put(t, "response_format", json_pack("{s:s, s:O}", "type", type, "json_schema", format), r);
}

static int read_include(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    form *t = out;
    if (!json_is_array(value)) return wrong(f, "a list", value, r);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *name = json_string_value(json_array_get(value, i));
        if (!name) return lily_refuse(r, LILY_ARGUMENT, f->name, "include must be a list of strings");
        t->logprobs |= strcmp(name, "message.output_text.logprobs") == 0;
    }
    return LILY_OK;
}

static int read_limit(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    (void)f;
    return copy(out, "max_completion_tokens", value, r);
}

static const lily_field fields[] = {
    {"previous_response_id", LILY_FIELD_UNSUPPORTED, 0, 0, 0, NULL},
    {"conversation", LILY_FIELD_UNSUPPORTED, 0, 0, 0, NULL},
    {"background", LILY_FIELD_UNSUPPORTED, 0, 0, 0, NULL},
    {"prompt", LILY_FIELD_UNSUPPORTED, 0, 0, 0, NULL},
    {"context_management", LILY_FIELD_UNSUPPORTED, 0, 0, 0, NULL},
    {"n", LILY_FIELD_UNSUPPORTED, 1, 0, 0, NULL},
    {"reasoning", LILY_FIELD_VALUE, 0, 0, 0, read_reasoning},
    {"text", LILY_FIELD_VALUE, 0, 0, 0, read_text},
    {"include", LILY_FIELD_VALUE, 0, 0, 0, read_include},
    {"max_output_tokens", LILY_FIELD_VALUE, 0, 0, 0, read_limit},
    {"top_logprobs", LILY_FIELD_INTEGER, 0, LILY_MAX_TOP, offsetof(form, top_logprobs), NULL},
};

/* ---- names in refusals ---- */

void lily_responses_rename(lily_refusal *r)
{
    static const char *const names[][2] = {
        {"response_format.json_schema.schema", "text.format.schema"},
        {"response_format.json_schema", "text.format"},
        {"response_format", "text.format"},
        {"max_completion_tokens", "max_output_tokens"},
        {"reasoning_effort", "reasoning.effort"},
        {"messages", "input"},
    };
    for (size_t i = 0; i < COUNT(names); i++) {
        size_t n = strlen(names[i][0]);
        char text[LILY_ERR_TEXT];
        if (strcmp(r->param, names[i][0]) == 0) snprintf(r->param, sizeof r->param, "%s", names[i][1]);
        if (strncmp(r->err.text, names[i][0], n) != 0) continue;
        snprintf(text, sizeof text, "%s%.900s", names[i][1], r->err.text + n);
        snprintf(r->err.text, sizeof r->err.text, "%s", text);
    }
}

/* ---- together ---- */

/* The rest of the body goes over as it is. */
static int begin_chat(form *t, lily_refusal *r)
{
    static const char *const differ[] = {"tools", "tool_choice", "reasoning"};
    t->chat = json_copy(t->q->body);
    if (!t->chat) return lily_no_memory(&r->err, 0, "a request");
    for (size_t i = 0; i < COUNT(differ); i++) json_object_del(t->chat, differ[i]);
    return LILY_OK;
}

static int fill_chat(form *t, lily_refusal *r)
{
    json_t *choice;
    TRY(begin_chat(t, r));
    TRY(lily_fields_read(fields, COUNT(fields), t->q->body, t, r));
    TRY(lily_responses_items(t->q, r));
    TRY(lily_responses_tools(t->q, &choice, r));
    if (choice) TRY(put(t, "tool_choice", choice, r));
    if (t->logprobs || t->top_logprobs > 0) TRY(put(t, "logprobs", json_true(), r));
    TRY(copy(t, "messages", t->q->messages, r));
    if (!json_object_get(t->chat, "continue_final_message")) TRY(put(t, "continue_final_message", json_false(), r));
    return copy(t, "tools", t->q->tools, r);
}

int lily_responses_request_read(lily_responses_request *q, json_t *body, const lily_openai_defaults *d,
                                lily_refusal *r)
{
    *q = (lily_responses_request){.body = body};
    form t = {.q = q};
    int rc = fill_chat(&t, r);
    if (rc != LILY_OK) {
        json_decref(t.chat);
        return rc;
    }
    rc = lily_openai_request_read(&q->chat, t.chat, d, r);
    if (rc != LILY_OK) lily_responses_rename(r);
    return rc;
}

void lily_responses_request_free(lily_responses_request *q)
{
    lily_openai_request_free(&q->chat);
    json_decref(q->messages);
    json_decref(q->tools);
    json_decref(q->names);
    json_decref(q->shown);
    json_decref(q->body);
    *q = (lily_responses_request){0};
}
