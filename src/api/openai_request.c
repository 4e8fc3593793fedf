/* The fields follow OpenAI's reference; top_k, min_p, repetition_penalty, cache_prompt, ignore_eos, enable_thinking
 * and chat_template_kwargs are what vLLM and llama.cpp call the same. */
#include "api/openai_request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/fields.h"
#include "api/openai_tools.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/random.h"
#include "sample/json_schema.h"
#include "text/big_number.h"

#define AT(member) offsetof(lily_openai_request, member)
#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static int wrong(const lily_field *f, const char *wanted, const json_t *value, lily_refusal *r)
{
    return lily_refuse(r, LILY_ARGUMENT, f->name, "%s must be %s, not %s", f->name, wanted, lily_json_kind(value));
}

/* ---- messages ---- */

/* Only an assistant's message may come without content, since its calls say enough. */
static int check_content(const json_t *message, size_t i, lily_refusal *r)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!lily_is_object(message) || !role || strcmp(role, "assistant") == 0) return LILY_OK;
    if (json_object_get(message, "content")) return LILY_OK;
    return lily_refuse(r, LILY_ARGUMENT, "messages", "messages[%zu]: a message of role '%s' needs content", i, role);
}

static int read_messages(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    lily_openai_request *q = out;
    if (!json_is_array(value)) return wrong(f, "a list", value, r);
    if (json_array_size(value) == 0) return lily_refuse(r, LILY_ARGUMENT, f->name, "messages is an empty list");
    for (size_t i = 0; i < json_array_size(value); i++) TRY(check_content(json_array_get(value, i), i, r));
    q->chat.messages = value;
    return LILY_OK;
}

/* ---- the format ---- */

static int read_json_schema(lily_openai_request *q, const lily_field *f, const json_t *value, lily_refusal *r)
{
    const json_t *schema = json_object_get(value, "schema");
    if (!schema)
        return lily_refuse(r, LILY_ARGUMENT, f->name, "response_format.json_schema must be an object with a schema");
    int rc = lily_json_schema(&q->grammar, schema, &r->err);
    q->chat.grammar = q->grammar;
    if (rc == LILY_OK || rc == LILY_NO_MEMORY) return rc;
    lily_err_prefix(&r->err, "response_format.json_schema.schema");
    snprintf(r->param, sizeof r->param, "%s", f->name);
    return rc;
}

static int read_response_format(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    lily_openai_request *q = out;
    if (!lily_is_object(value)) return wrong(f, "an object", value, r);
    const char *type = json_string_value(json_object_get(value, "type"));
    if (!type) return lily_refuse(r, LILY_ARGUMENT, f->name, "response_format.type must be a string");
    if (strcmp(type, "text") == 0) return LILY_OK;
    if (strcmp(type, "json_schema") == 0) return read_json_schema(q, f, json_object_get(value, "json_schema"), r);
    if (strcmp(type, "json_object") != 0)
        return lily_refuse(r, LILY_ARGUMENT, f->name,
                           "response_format.type must be 'text', 'json_object' or 'json_schema', not '%.60s'", type);
    TRY(lily_json_object(&q->grammar, &r->err));
    q->chat.grammar = q->grammar;
    return LILY_OK;
}

static int read_modalities(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    (void)out;
    if (!json_is_array(value)) return wrong(f, "a list", value, r);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const char *name = json_string_value(json_array_get(value, i));
        if (!name || strcmp(name, "text") != 0)
            return lily_refuse(r, LILY_UNSUPPORTED, f->name, "modalities: only 'text' is supported");
    }
    return LILY_OK;
}

/* ---- thinking, and other switches of the template ---- */

/* Where a budget may stand; the first that is given counts. */
enum { BUDGET_KWARGS, BUDGET_FIELD, BUDGET_THINKING };
enum { BUDGET_NOT_GIVEN = -2, BUDGET_NONE = -1 };

static int read_budget(const json_t *value, const char *name, const lily_field *f, int64_t *out, lily_refusal *r)
{
    if (!value || json_is_null(value)) return LILY_OK;
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= BUDGET_NONE && *out <= INT32_MAX) return LILY_OK;
    return lily_refuse(r, LILY_ARGUMENT, f->name, "%s must be a number of tokens from 0, or -1 for no limit", name);
}

static int read_thinking_budget(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    lily_openai_request *q = out;
    return read_budget(value, f->name, f, &q->budget[BUDGET_FIELD], r);
}

static int read_kwargs(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    lily_openai_request *q = out;
    if (!lily_is_object(value)) return wrong(f, "an object", value, r);
    /* Templates compare with true or false: anything else would be taken for the default in silence. */
    const json_t *thinking = json_object_get(value, "enable_thinking");
    if (thinking && !json_is_null(thinking) && !json_is_boolean(thinking))
        return lily_refuse(r, LILY_ARGUMENT, f->name, "%s.enable_thinking must be true or false, not %s", f->name,
                           lily_json_kind(thinking));
    q->template_kwargs = value;
    return read_budget(json_object_get(value, "thinking_budget"), "chat_template_kwargs.thinking_budget", f,
                       &q->budget[BUDGET_KWARGS], r);
}

static int read_enable_thinking(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    lily_openai_request *q = out;
    if (!json_is_boolean(value)) return wrong(f, "true or false", value, r);
    q->enable_thinking = json_is_true(value);
    return LILY_OK;
}

static int read_thinking(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    lily_openai_request *q = out;
    const char *type = json_string_value(json_object_get(value, "type"));
    if (type && strcmp(type, "enabled") == 0) q->thinking = 1;
    else if (type && strcmp(type, "disabled") == 0) q->thinking = 0;
    else return lily_refuse(r, LILY_ARGUMENT, f->name, "thinking must be {\"type\": \"enabled\" or \"disabled\"}");
    return read_budget(json_object_get(value, "budget_tokens"), "thinking.budget_tokens", f, &q->budget[BUDGET_THINKING], r);
}

static int read_effort(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    lily_openai_request *q = out;
    const char *name = json_string_value(value);
    if (!name) return wrong(f, "a string", value, r);
    for (size_t i = 0; i < COUNT(efforts); i++) {
        if (strcmp(name, efforts[i]) != 0) continue;
        q->effort = i > 0;
        return LILY_OK;
    }
    return lily_refuse(r, LILY_ARGUMENT, f->name,
                       "reasoning_effort must be 'none', 'minimal', 'low', 'medium', 'high' or 'xhigh'");
}

/* ---- a message that goes on ---- */

static int read_switch(int *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    if (!json_is_boolean(value)) return wrong(f, "true or false", value, r);
    *out = json_is_true(value);
    return LILY_OK;
}

static int read_go_on(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    return read_switch(&((lily_openai_request *)out)->go_on, f, value, r);
}

static int read_add_prompt(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    return read_switch(&((lily_openai_request *)out)->add_prompt, f, value, r);
}

/* Whether the last message is an answer that has begun: text of the assistant's, without calls. */
static bool has_begun(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_object_get(last, "content"), *call = json_object_get(last, "function_call");
    const char *role = json_string_value(json_object_get(last, "role"));
    return role && strcmp(role, "assistant") == 0 && (json_string_length(content) > 0 || json_array_size(content) > 0) &&
           json_array_size(json_object_get(last, "tool_calls")) == 0 && !json_is_object(call);
}

/* The names are vLLM's; it asks for both of them. */
static int settle_go_on(lily_openai_request *q, lily_refusal *r)
{
    bool begun = has_begun(q->chat.messages);
    if (q->go_on > 0 && !begun)
        return lily_refuse(r, LILY_ARGUMENT, "continue_final_message",
                           "continue_final_message needs a last message of the assistant with text and without calls");
    if (q->go_on > 0 && q->add_prompt > 0)
        return lily_refuse(r, LILY_ARGUMENT, "add_generation_prompt",
                           "add_generation_prompt and continue_final_message cannot both be true");
    q->chat.go_on = q->go_on >= 0 ? q->go_on : begun && q->add_prompt <= 0;
    if (q->add_prompt == 0 && !q->chat.go_on)
        return lily_refuse(r, LILY_UNSUPPORTED, "add_generation_prompt",
                           "add_generation_prompt: false is supported only where the last message is continued");
    return LILY_OK;
}

/* ---- sampling ---- */

static int add_stop(lily_openai_request *q, const json_t *value, lily_refusal *r)
{
    if (q->chat.n_stop == LILY_STOP_MAX)
        return lily_refuse(r, LILY_ARGUMENT, "stop", "stop: at most %d strings are taken", LILY_STOP_MAX);
    size_t len = json_string_length(value);
    if (!json_is_string(value) || len == 0 || len > LILY_STOP_BYTES)
        return lily_refuse(r, LILY_ARGUMENT, "stop", "stop must be a string or a list of strings of 1 to %d bytes",
                           LILY_STOP_BYTES);
    q->stop[q->chat.n_stop] = json_string_value(value);
    q->stop_len[q->chat.n_stop++] = len;
    return LILY_OK;
}

static int read_stop(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    (void)f;
    if (!json_is_array(value)) return add_stop(out, value, r);
    for (size_t i = 0; i < json_array_size(value); i++) TRY(add_stop(out, json_array_get(value, i), r));
    return LILY_OK;
}

static int add_bias(lily_openai_request *q, const char *key, const json_t *value, lily_refusal *r)
{
    char *end;
    errno = 0;
    long id = strtol(key, &end, 10);
    if (key[0] < '0' || key[0] > '9' || *end || errno || id >= q->n_vocab)
        return lily_refuse(r, LILY_ARGUMENT, "logit_bias", "logit_bias: '%.40s' is no token id from 0 to %d", key,
                           (int)q->n_vocab - 1);
    double add = json_number_value(value);
    if (!json_is_number(value) || add < -100 || add > 100)
        return lily_refuse(r, LILY_ARGUMENT, "logit_bias", "logit_bias of token %ld must be a number from -100 to 100",
                           id);
    q->bias[q->chat.sampling.n_bias++] = (lily_bias){.token = (int32_t)id, .add = (float)add};
    return LILY_OK;
}

static int read_logit_bias(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    lily_openai_request *q = out;
    if (!lily_is_object(value)) return wrong(f, "an object", value, r);
    q->bias = lily_calloc(json_object_size(value), sizeof *q->bias);
    if (!q->bias) return lily_no_memory(&r->err, json_object_size(value) * sizeof *q->bias, "logit_bias");
    q->chat.sampling.bias = q->bias;
    const char *key;
    json_t *add;
    json_object_foreach((json_t *)value, key, add) TRY(add_bias(q, key, add, r));
    return LILY_OK;
}

static int read_stream_options(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    static const lily_field options[] = {
        {"include_usage", LILY_FIELD_BOOL, 0, 0, AT(include_usage), NULL},
    };
    if (!lily_is_object(value)) return wrong(f, "an object", value, r);
    return lily_fields_read(options, COUNT(options), value, out, r);
}

/* ---- the tables ---- */

#define VALUE(name, read) {name, LILY_FIELD_VALUE, 0, 0, 0, read}
#define BOOL(name, member) {name, LILY_FIELD_BOOL, 0, 0, AT(member), NULL}
#define INTEGER(name, low, high, member) {name, LILY_FIELD_INTEGER, low, high, AT(member), NULL}
#define NUMBER(name, low, high, member) {name, LILY_FIELD_NUMBER, low, high, AT(member), NULL}
/* `neutral`: a number that asks for nothing, beside 0. */
#define UNSUPPORTED(name, neutral) {name, LILY_FIELD_UNSUPPORTED, neutral, 0, 0, NULL}

static const lily_field prompt_fields[] = {
    VALUE("messages", read_messages),
    VALUE("tools", lily_openai_read_tools),
    VALUE("tool_choice", lily_openai_read_tool_choice),
    VALUE("continue_final_message", read_go_on),
    VALUE("add_generation_prompt", read_add_prompt),
    VALUE("chat_template_kwargs", read_kwargs),
    VALUE("enable_thinking", read_enable_thinking),
    VALUE("thinking", read_thinking),
    VALUE("reasoning_effort", read_effort),
    VALUE("thinking_budget", read_thinking_budget),
};

static const lily_field answer_fields[] = {
    INTEGER("max_tokens", 1, INT32_MAX, max_tokens),
    INTEGER("max_completion_tokens", 1, INT32_MAX, max_completion_tokens),
    NUMBER("temperature", 0, 2, chat.sampling.temperature),
    NUMBER("top_p", 0, 1, chat.sampling.top_p),
    INTEGER("top_k", -1, INT32_MAX, top_k),
    NUMBER("min_p", 0, 1, chat.sampling.min_p),
    NUMBER("presence_penalty", -2, 2, chat.sampling.presence),
    NUMBER("frequency_penalty", -2, 2, chat.sampling.frequency),
    NUMBER("repetition_penalty", 0.01, 10, chat.sampling.repetition),
    INTEGER("seed", -0x1p63, 0x1p63, seed),
    VALUE("logit_bias", read_logit_bias),
    BOOL("logprobs", chat.sampling.logprobs),
    INTEGER("top_logprobs", 0, LILY_MAX_TOP, top_logprobs),
    VALUE("stop", read_stop),
    INTEGER("n", 1, 128, n),
    BOOL("stream", stream),
    VALUE("stream_options", read_stream_options),
    BOOL("return_progress", return_progress),
    BOOL("cache_prompt", cache_prompt),
    BOOL("parallel_tool_calls", parallel_calls),
    BOOL("ignore_eos", chat.ignore_eos),
    VALUE("response_format", read_response_format),
    VALUE("modalities", read_modalities),
    UNSUPPORTED("functions", 0),
    UNSUPPORTED("audio", 0),
    UNSUPPORTED("web_search_options", 0),
    UNSUPPORTED("grammar", 0),
    UNSUPPORTED("json_schema", 0),
    UNSUPPORTED("guided_json", 0),
    UNSUPPORTED("guided_regex", 0),
    UNSUPPORTED("guided_choice", 0),
    UNSUPPORTED("guided_grammar", 0),
    UNSUPPORTED("structured_outputs", 0),
    UNSUPPORTED("allowed_token_ids", 0),
    UNSUPPORTED("chat_template", 0),
    UNSUPPORTED("documents", 0),
    UNSUPPORTED("echo", 0),
    UNSUPPORTED("prompt_logprobs", 0),
    UNSUPPORTED("include_stop_str_in_output", 0),
    UNSUPPORTED("truncate_prompt_tokens", 0),
    UNSUPPORTED("n_predict", -1),
    UNSUPPORTED("repeat_penalty", 1),
    UNSUPPORTED("length_penalty", 1),
    UNSUPPORTED("top_n_sigma", -1),
    UNSUPPORTED("top_a", 0),
    UNSUPPORTED("tfs_z", 1),
    UNSUPPORTED("samplers", 0),
    UNSUPPORTED("min_tokens", 0),
    UNSUPPORTED("stop_token_ids", 0),
    UNSUPPORTED("bad_words", 0),
    UNSUPPORTED("best_of", 1),
    UNSUPPORTED("use_beam_search", 0),
    UNSUPPORTED("typical_p", 1),
    UNSUPPORTED("mirostat", 0),
    UNSUPPORTED("dry_multiplier", 0),
    UNSUPPORTED("xtc_probability", 0),
    UNSUPPORTED("dynatemp_range", 0),
};

/* ---- together ---- */

/* Who decides on thinking: chat_template_kwargs, else enable_thinking, else thinking, else reasoning_effort, else the
 * server's variables. */
static int merge_kwargs(lily_openai_request *q, const lily_openai_defaults *d, lily_refusal *r)
{
    int think = q->enable_thinking >= 0 ? q->enable_thinking : q->thinking >= 0 ? q->thinking : q->effort;
    q->kwargs = d->kwargs ? json_deep_copy(d->kwargs) : json_object();
    int failed = !q->kwargs;
    if (!failed && think >= 0) failed = json_object_set_new(q->kwargs, "enable_thinking", json_boolean(think));
    if (!failed && q->template_kwargs) failed = json_object_update(q->kwargs, (json_t *)q->template_kwargs);
    if (failed) return lily_no_memory(&r->err, 0, "template variables");
    q->chat.kwargs = q->kwargs;
    return LILY_OK;
}

static void choose_budget(lily_openai_request *q, const lily_openai_defaults *d)
{
    int64_t budget = BUDGET_NOT_GIVEN;
    for (size_t i = 0; i < COUNT(q->budget) && budget == BUDGET_NOT_GIVEN; i++) budget = q->budget[i];
    if (budget == BUDGET_NOT_GIVEN && d->think_limited) budget = d->think_budget;
    q->chat.think_limited = budget >= 0;
    q->chat.think_budget = budget >= 0 ? (uint32_t)budget : 0;
}

static int64_t smaller_limit(int64_t a, int64_t b) { return a == 0 ? b : b == 0 || a < b ? a : b; }

static int settle(lily_openai_request *q, lily_refusal *r)
{
    lily_sampling *s = &q->chat.sampling;
    q->chat.max_tokens = (uint32_t)smaller_limit(q->max_tokens, q->max_completion_tokens);
    q->chat.stop = q->stop;
    q->chat.stop_len = q->stop_len;
    q->chat.single_call = !q->parallel_calls;
    q->chat.no_reuse = !q->cache_prompt;
    s->seed = (uint64_t)q->seed;
    s->top_k = q->top_k < 0 ? 0 : (int32_t)q->top_k;
    if (q->top_logprobs > 0 && !s->logprobs)
        return lily_refuse(r, LILY_ARGUMENT, "top_logprobs", "top_logprobs needs logprobs: true");
    s->n_logprobs = (int32_t)q->top_logprobs;
    if (q->grammar && q->chat.go_on)
        return lily_refuse(r, LILY_UNSUPPORTED, "response_format",
                           "response_format: a format holds for a whole answer, so the last message cannot be one to go "
                           "on with");
    return LILY_OK;
}

static void set_defaults(lily_openai_request *q, json_t *body, const lily_openai_defaults *d)
{
    const lily_sampling_defaults *s = d->sampling;
    *q = (lily_openai_request){.body = body,
                               .n_vocab = d->n_vocab,
                               .n = 1,
                               .cache_prompt = true,
                               .parallel_calls = true,
                               .enable_thinking = -1,
                               .thinking = -1,
                               .effort = -1,
                               .budget = {BUDGET_NOT_GIVEN, BUDGET_NOT_GIVEN, BUDGET_NOT_GIVEN},
                               .go_on = -1,
                               .add_prompt = -1,
                               .seed = (int64_t)lily_random_seed(),
                               .top_k = s->top_k};
    q->chat.script_reply = -1;
    q->chat.sampling = (lily_sampling){.temperature = s->temperature,
                                       .top_p = s->top_p,
                                       .min_p = s->min_p,
                                       .presence = s->presence,
                                       .frequency = s->frequency,
                                       .repetition = s->repetition};
}

static int read_prompt(lily_openai_request *q, const lily_openai_defaults *d, lily_refusal *r)
{
    TRY(lily_fields_read(prompt_fields, COUNT(prompt_fields), q->body, q, r));
    if (!q->chat.messages) return lily_refuse(r, LILY_ARGUMENT, "messages", "messages is missing");
    TRY(lily_openai_choose_tools(q, r));
    TRY(settle_go_on(q, r));
    choose_budget(q, d);
    return merge_kwargs(q, d, r);
}

int lily_openai_prompt_make(lily_chat_prompt *out, lily_engine *g, json_t *body, const lily_openai_defaults *d,
                            lily_refusal *r)
{
    lily_openai_request q;
    set_defaults(&q, body, d);
    int rc = read_prompt(&q, d, r);
    if (rc == LILY_OK) {
        rc = lily_chat_prompt_make(out, lily_engine_template(g), lily_engine_tokenizer(g), q.chat.messages, q.chat.tools,
                                   q.chat.kwargs, q.chat.go_on, &r->err);
        if (rc != LILY_OK) lily_name_messages(r);
    }
    lily_openai_request_free(&q);
    return rc;
}

int lily_openai_request_read(lily_openai_request *q, json_t *body, const lily_openai_defaults *d, lily_refusal *r)
{
    set_defaults(q, body, d);
    TRY(read_prompt(q, d, r));
    TRY(lily_fields_read(answer_fields, COUNT(answer_fields), body, q, r));
    return settle(q, r);
}

int lily_openai_answer_read(lily_openai_request *q, json_t *body, const lily_openai_defaults *d, lily_refusal *r)
{
    set_defaults(q, body, d);
    TRY(lily_fields_read(answer_fields, COUNT(answer_fields), body, q, r));
    return settle(q, r);
}

void lily_openai_request_free(lily_openai_request *q)
{
    json_decref(q->body);
    json_decref(q->kwargs);
    json_decref(q->allowed_tools);
    lily_free(q->bias);
    lily_grammar_let_go(q->grammar);
    *q = (lily_openai_request){0};
}

/* ---- bodies and places ---- */

int lily_body_object(const char *text, size_t n, json_t **out, lily_refusal *r)
{
    *out = NULL;
    if (n == 0) return lily_refuse(r, LILY_ARGUMENT, NULL, "the body is empty");
    if (lily_json_parts(text, n) > LILY_JSON_MAX_PARTS)
        return lily_refuse(r, LILY_ARGUMENT, NULL, "the body has more than 262,144 lists and objects");
    if (lily_json_parse_big(out, text, n, "the body", &r->err) != LILY_OK) {
        if (r->err.code == LILY_FORMAT) r->err.code = LILY_ARGUMENT;    /* the client's mistake, not that of a file */
        return r->err.code;
    }
    if (lily_is_object(*out)) return LILY_OK;
    const char *kind = lily_json_kind(*out);
    json_decref(*out);
    *out = NULL;
    return lily_refuse(r, LILY_ARGUMENT, NULL, "the body must be a JSON object, not %s", kind);
}

void lily_name_messages(lily_refusal *r)
{
    static const char *const fields[] = {"messages", "tools", "tool_choice"};
    for (size_t i = 0; i < COUNT(fields); i++) {
        size_t field = strlen(fields[i]), n = i == 0 ? strcspn(r->err.text, ": ") : field;
        if (strncmp(r->err.text, fields[i], field) != 0 || !strchr("[:. ", r->err.text[field])) continue;
        if (n >= sizeof r->param) n = field;
        memcpy(r->param, r->err.text, n);
        r->param[n] = '\0';
    }
}
