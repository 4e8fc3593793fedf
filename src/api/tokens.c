/* tokens.c - POST /tokenize, /detokenize and /apply-template: text, ids and prompts, for clients that count or look.
 *
 *     {"content": TEXT, "parse_special": true, "with_pieces": false}  ->  {"tokens": [id …]}
 *                                                   with pieces: [{"id", "piece"} …]
 *     {"messages": […], "tools": […], "chat_template_kwargs": {…}}    ->  the ids of the rendered prompt
 *     {"tokens": [id …]}                                              ->  {"content": TEXT}
 *     a chat request to /apply-template                               ->  {"prompt": TEXT}
 *
 * "prompt" is another name of "content".  There are no tokens that "add_special" could add. */
#include <stddef.h>
#include <string.h>

#include "api/api.h"
#include "api/fields.h"
#include "api/json_out.h"
#include "base/utf8.h"
#include "text/decode.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

typedef struct text_request {
    const char *text;
    size_t n;
    bool parse_special, with_pieces;
} text_request;

static int read_text(void *out, const lily_field *f, const json_t *value, lily_refusal *r)
{
    text_request *q = out;
    if (!json_is_string(value))
        return lily_refuse(r, LILY_ARGUMENT, f->name, "%s must be a string, not %s", f->name, lily_json_kind(value));
    q->text = json_string_value(value);
    q->n = json_string_length(value);
    return LILY_OK;
}

/* A piece that is no text by itself is given as its bytes. */
static void put_piece(lily_buf *out, const lily_tokenizer *k, int32_t id)
{
    size_t n = 0;
    const char *bytes = lily_token_bytes(k, id, &n);
    lily_buf_printf(out, "{\"id\":%d,\"piece\":", (int)id);
    if (lily_utf8_valid(bytes ? bytes : "", n)) lily_json_put_string(out, bytes ? bytes : "", n);
    else lily_json_put_bytes(out, bytes, n);
    lily_buf_putc(out, '}');
}

static void put_tokens(lily_buf *out, const lily_tokenizer *k, const lily_ids *ids, bool with_pieces)
{
    lily_buf_puts(out, "{\"tokens\":[");
    for (size_t i = 0; i < ids->n; i++) {
        if (i > 0) lily_buf_putc(out, ',');
        if (with_pieces) put_piece(out, k, ids->id[i]);
        else lily_buf_printf(out, "%d", (int)ids->id[i]);
    }
    lily_buf_puts(out, "]}");
}

static int tokenize_messages(const lily_job *job, lily_engine *g, json_t *body, bool with_pieces, lily_buf *out,
                             lily_refusal *r)
{
    lily_chat_prompt prompt = {0};
    lily_openai_defaults d = lily_api_defaults(job->api, g);
    TRY(lily_openai_prompt_make(&prompt, g, body, &d, r));
    put_tokens(out, lily_engine_tokenizer(g), &prompt.ids, with_pieces);
    lily_chat_prompt_free(&prompt);
    return LILY_OK;
}

static int apply_template(const lily_job *job, json_t *body, lily_buf *out, lily_refusal *r)
{
    lily_chat_prompt prompt = {0};
    lily_engine *g = atomic_load(&job->api->engine);
    lily_openai_defaults d = lily_api_defaults(job->api, g);
    TRY(lily_openai_prompt_make(&prompt, g, body, &d, r));
    lily_buf_puts(out, "{\"prompt\":");
    lily_json_put_string(out, lily_buf_str(&prompt.rendered.text), prompt.rendered.text.len);
    lily_buf_putc(out, '}');
    lily_chat_prompt_free(&prompt);
    return LILY_OK;
}

static int tokenize_text(lily_engine *g, const text_request *q, lily_buf *out, lily_refusal *r)
{
    const lily_tokenizer *k = lily_engine_tokenizer(g);
    lily_ids ids = {0};
    int rc = LILY_OK;
    if (!q->text) rc = lily_refuse(r, LILY_ARGUMENT, "content", "content or messages is missing");
    if (rc == LILY_OK) rc = lily_encode(k, q->text, q->n, q->parse_special, &ids, &r->err);
    if (rc == LILY_OK) put_tokens(out, k, &ids, q->with_pieces);
    lily_ids_free(&ids);
    return rc;
}

static int tokenize(const lily_job *job, json_t *body, lily_buf *out, lily_refusal *r)
{
    static const lily_field fields[] = {
        {"prompt", LILY_FIELD_VALUE, 0, 0, 0, read_text},
        {"content", LILY_FIELD_VALUE, 0, 0, 0, read_text},
        {"parse_special", LILY_FIELD_BOOL, 0, 0, offsetof(text_request, parse_special), NULL},
        {"with_pieces", LILY_FIELD_BOOL, 0, 0, offsetof(text_request, with_pieces), NULL},
    };
    lily_engine *g = atomic_load(&job->api->engine);
    text_request q = {.parse_special = true};
    int rc = lily_fields_read(fields, COUNT(fields), body, &q, r);
    if (rc == LILY_OK && json_object_get(body, "messages"))
        return tokenize_messages(job, g, body, q.with_pieces, out, r);
    if (rc == LILY_OK) rc = tokenize_text(g, &q, out, r);
    json_decref(body);
    return rc;
}

static int put_decoded(lily_engine *g, const json_t *tokens, lily_buf *text, lily_refusal *r)
{
    lily_decoder decoder = {0};
    for (size_t i = 0; i < json_array_size(tokens); i++) {
        const json_t *id = json_array_get(tokens, i);
        if (!json_is_integer(id))
            return lily_refuse(r, LILY_ARGUMENT, "tokens", "tokens[%zu] must be an integer, not %s", i,
                               lily_json_kind(id));
        json_int_t value = json_integer_value(id);
        if (value < 0 || value >= (json_int_t)lily_engine_config(g)->vocab)
            return lily_refuse(r, LILY_ARGUMENT, "tokens", "tokens[%zu] is %lld, ids go from 0 to %u", i,
                               (long long)value, lily_engine_config(g)->vocab - 1);
        lily_decoder_id(&decoder, lily_engine_tokenizer(g), (int32_t)value, false, text);
    }
    lily_decoder_flush(&decoder, text);
    return lily_buf_ok(text, "text", &r->err);
}

static int detokenize(const lily_job *job, json_t *body, lily_buf *out, lily_refusal *r)
{
    lily_engine *g = atomic_load(&job->api->engine);
    const json_t *tokens = json_object_get(body, "tokens");
    lily_buf text = {0};
    int rc = LILY_OK;
    if (!json_is_array(tokens)) rc = lily_refuse(r, LILY_ARGUMENT, "tokens", "tokens must be a list of token ids");
    if (rc == LILY_OK) rc = put_decoded(g, tokens, &text, r);
    if (rc == LILY_OK) {
        lily_buf_puts(out, "{\"content\":");
        lily_json_put_string(out, lily_buf_str(&text), text.len);
        lily_buf_putc(out, '}');
    }
    lily_buf_free(&text);
    json_decref(body);
    return rc;
}

static void tokenize_job(lily_job *job) { lily_job_json(job, tokenize); }
static void detokenize_job(lily_job *job) { lily_job_json(job, detokenize); }
static void template_job(lily_job *job) { lily_job_json(job, apply_template); }

void lily_handle_tokenize(lily_http_req *req, void *api)
{
    if (lily_api_engine(api, req)) lily_job_start(api, req, tokenize_job);
}

void lily_handle_detokenize(lily_http_req *req, void *api)
{
    if (lily_api_engine(api, req)) lily_job_start(api, req, detokenize_job);
}

void lily_handle_apply_template(lily_http_req *req, void *api)
{
    if (lily_api_engine(api, req)) lily_job_start(api, req, template_job);
}
