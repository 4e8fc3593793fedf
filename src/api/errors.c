#include "api/errors.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "api/json_out.h"

int lily_refuse_at(lily_refusal *r, enum lily_code code, const char *param, const char *file, int line,
                   const char *fmt, ...)
{
    char text[LILY_ERR_TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (param) snprintf(r->param, sizeof r->param, "%s", param);
    return lily_fail_at(&r->err, code, file, line, "%s", text);
}

int lily_refusal_status(const lily_refusal *r) { return r->status ? r->status : lily_err_http_status(r->err.code); }

/* ---- OpenAI's form ---- */

/* The types that the official client libraries know. */
static const char *type_of(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static const char *code_of(int status)
{
    switch (status) {
    case 401: return "invalid_api_key";
    case 403: return "forbidden";
    case 404: return "not_found";
    case 405: return "method_not_allowed";
    case 413: return "request_too_large";
    case 429: return "queue_full";
    default: return NULL;
    }
}

/* A name that the status alone does not tell, or NULL. */
static const char *own_code(const lily_refusal *r)
{
    return r->code ? r->code : r->err.code == LILY_CONTEXT ? "context_length_exceeded" : NULL;
}

const char *lily_refusal_code(const lily_refusal *r)
{
    const char *code = own_code(r);
    return code ? code : code_of(lily_refusal_status(r));
}

static void put_openai(lily_buf *out, int status, const lily_refusal *r)
{
    lily_buf_puts(out, "{\"error\":{\"message\":");
    lily_json_put_text(out, r->err.text);
    lily_buf_puts(out, ",\"type\":");
    lily_json_put_text(out, type_of(status));
    lily_buf_puts(out, ",\"param\":");
    lily_json_put_text(out, r->param[0] ? r->param : NULL);
    lily_buf_puts(out, ",\"code\":");
    lily_json_put_text(out, lily_refusal_code(r));
}

/* ---- Anthropic's form ---- */

static bool speaks_anthropic(const char *path)
{
    static const char root[] = "/v1/messages";
    size_t n = sizeof root - 1;
    return path && strncmp(path, root, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static const char *anthropic_type_of(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

/* Agents look for "prompt is too long" in the sentence to know that they must shorten the conversation. */
static void put_anthropic(lily_buf *out, int status, const lily_refusal *r)
{
    const char *code = own_code(r);
    lily_buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", anthropic_type_of(status));
    char sentence[LILY_ERR_TEXT];
    snprintf(sentence, sizeof sentence, "prompt is too long: %u tokens > %u maximum", r->n_prompt, r->n_ctx);
    lily_json_put_text(out, r->n_ctx ? sentence : r->err.text);
    if (!code) return;
    lily_buf_puts(out, ",\"code\":");
    lily_json_put_text(out, code);
}

/* ---- either ---- */

void lily_refusal_json(const lily_refusal *r, const char *path, lily_buf *out)
{
    (speaks_anthropic(path) ? put_anthropic : put_openai)(out, lily_refusal_status(r), r);
    if (r->n_ctx) lily_buf_printf(out, ",\"n_prompt_tokens\":%u,\"n_ctx\":%u", r->n_prompt, r->n_ctx);
    lily_buf_puts(out, "}}");
}

void lily_http_error_json(const char *path, int status, const char *sentence, lily_buf *out)
{
    lily_refusal r = {.status = status};
    snprintf(r.err.text, sizeof r.err.text, "%s", sentence);
    lily_refusal_json(&r, path, out);
}
