#include "api/completions_request.h"

#include <stdio.h>

#include "api/fields.h"
#include "base/mem.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define AT(member) offsetof(lily_completions_request, member)

/* ---- prompts ---- */

/* "prompt", or "prompt[3]" when there are several. */
typedef struct reader {
    lily_completions_request *q;
    const lily_completions_limits *limits;
    char place[32];
    lily_refusal *r;
} reader;

static int read_ids(reader *in, const json_t *list, lily_ids *ids)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= (json_int_t)in->limits->vocab)
            return lily_refuse(in->r, LILY_ARGUMENT, "prompt", "%s[%zu] is no token id from 0 to %u", in->place, i,
                               in->limits->vocab - 1);
    }
    TRY(lily_ids_reserve(ids, json_array_size(list), &in->r->err));
    for (size_t i = 0; i < json_array_size(list); i++)
        ids->id[ids->n++] = (int32_t)json_integer_value(json_array_get(list, i));
    return LILY_OK;
}

static int check_length(reader *in, const lily_ids *ids)
{
    if (ids->n == 0) return lily_refuse(in->r, LILY_ARGUMENT, "prompt", "%s is empty", in->place);
    if (ids->n < in->limits->context) return LILY_OK;
    in->r->n_prompt = (uint32_t)ids->n;
    in->r->n_ctx = in->limits->context;
    return lily_refuse(in->r, LILY_CONTEXT, "prompt",
                       "%s has %zu tokens, which leaves no room for an answer in a context of %u", in->place, ids->n,
                       in->limits->context);
}

static int read_prompt(reader *in, const json_t *value)
{
    lily_completion_prompt *p = &in->q->prompts[in->q->n_prompts++];
    if (json_is_array(value)) {
        TRY(read_ids(in, value, &p->ids));
    } else if (json_is_string(value)) {
        p->text = json_string_value(value);
        p->n_text = json_string_length(value);
        TRY(lily_encode(in->limits->tokenizer, p->text, p->n_text, true, &p->ids, &in->r->err));
    } else {
        return lily_refuse(in->r, LILY_ARGUMENT, "prompt", "%s must be a string or a list of token ids, not %s",
                           in->place, lily_json_kind(value));
    }
    return check_length(in, &p->ids);
}

static int read_prompts(reader *in)
{
    lily_completions_request *q = in->q;
    const json_t *value = json_object_get(q->body, "prompt");
    if (!value || json_is_null(value)) return lily_refuse(in->r, LILY_ARGUMENT, "prompt", "prompt is missing");
    bool several = json_is_array(value) && !json_is_integer(json_array_get(value, 0));
    size_t n = several ? json_array_size(value) : 1;
    if (n == 0) return lily_refuse(in->r, LILY_ARGUMENT, "prompt", "prompt is an empty list");
    if (n > (size_t)(LILY_COMPLETIONS_MOST / q->q.n))
        return lily_refuse(in->r, LILY_ARGUMENT, "prompt", "%zu prompts, %d answers each, are more than %d answers", n,
                           (int)q->q.n, LILY_COMPLETIONS_MOST);
    q->prompts = lily_calloc(n, sizeof *q->prompts);
    if (!q->prompts) return lily_no_memory(&in->r->err, n * sizeof *q->prompts, "prompts");
    snprintf(in->place, sizeof in->place, "prompt");
    if (!several) return read_prompt(in, value);
    for (size_t i = 0; i < n; i++) {
        snprintf(in->place, sizeof in->place, "prompt[%zu]", i);
        TRY(read_prompt(in, json_array_get(value, i)));
    }
    return LILY_OK;
}

/* Examples before each question, as evaluation harnesses have them, are then read once. */
static uint32_t count_shared(const lily_completions_request *q)
{
    enum { WORTH_KEEPING = 32 };
    const lily_ids *first = &q->prompts[0].ids;
    size_t shared = q->n_prompts > 1 ? first->n : 0;
    for (size_t i = 1; i < q->n_prompts; i++) {
        const lily_ids *ids = &q->prompts[i].ids;
        size_t same = 0;
        while (same < shared && same < ids->n && ids->id[same] == first->id[same]) same++;
        shared = same;
    }
    return shared < WORTH_KEEPING ? 0 : (uint32_t)shared;
}

/* ---- fields ---- */

static int read_logprobs(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    static const lily_field number = {"logprobs", LILY_FIELD_INTEGER, 0, LILY_MAX_TOP, AT(logprobs), NULL};
    lily_completions_request *q = out;
    (void)f;
    (void)value;
    TRY(lily_fields_read(&number, 1, q->body, q, r));
    q->with_logprobs = true;
    return LILY_OK;
}

static const lily_field fields[] = {
    {"echo", LILY_FIELD_BOOL, 0, 0, AT(echo), NULL},
    {"logprobs", LILY_FIELD_VALUE, 0, 0, 0, read_logprobs},
    {"suffix", LILY_FIELD_UNSUPPORTED, 0, 0, 0, NULL},
    {"prompt_embeds", LILY_FIELD_UNSUPPORTED, 0, 0, 0, NULL},
    {"return_progress", LILY_FIELD_UNSUPPORTED, 0, 0, 0, NULL},
};

/* Here logprobs is a number, and in a chat request two fields, which knows no echo. */
static json_t *chat_body(const lily_completions_request *q)
{
    json_t *body = json_copy(q->body);
    if (!body) return NULL;
    json_object_del(body, "logprobs");
    json_object_del(body, "top_logprobs");
    json_object_del(body, "echo");
    if (!q->with_logprobs) return body;
    if (json_object_set_new(body, "logprobs", json_true()) == 0 &&
        json_object_set_new(body, "top_logprobs", json_integer(q->logprobs)) == 0)
        return body;
    json_decref(body);
    return NULL;
}

int lily_completions_request_read(lily_completions_request *q, json_t *body, const lily_openai_defaults *d,
                                  const lily_completions_limits *limits, lily_refusal *r)
{
    *q = (lily_completions_request){.body = body};
    reader in = {.q = q, .limits = limits, .r = r};
    TRY(lily_fields_read(fields, COUNT(fields), body, q, r));
    json_t *chat = chat_body(q);
    if (!chat) return lily_no_memory(&r->err, 0, "a request");
    TRY(lily_openai_answer_read(&q->q, chat, d, r));
    if (q->echo && q->with_logprobs)
        return lily_refuse(r, LILY_UNSUPPORTED, "echo",
                           "echo with logprobs is not supported: the tokens of a prompt get none here");
    if (q->q.chat.max_tokens == 0) q->q.chat.max_tokens = LILY_COMPLETIONS_TOKENS;
    TRY(read_prompts(&in));
    q->shared = count_shared(q);
    q->q.chat.prompt_ids = &q->prompts[0].ids;
    q->q.chat.prompt_mark = q->shared;
    return LILY_OK;
}

void lily_completions_request_free(lily_completions_request *q)
{
    for (size_t i = 0; i < q->n_prompts; i++) lily_ids_free(&q->prompts[i].ids);
    lily_free(q->prompts);
    lily_openai_request_free(&q->q);
    json_decref(q->body);
    *q = (lily_completions_request){0};
}
