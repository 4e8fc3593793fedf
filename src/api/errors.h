/* errors.h - what a client is told when its request cannot be served, in the form of the protocol that it speaks.
 *
 *     {"error": {"message": SENTENCE, "type": …, "param": FIELD or null, "code": NAME or null}}
 *     {"type": "error", "error": {"type": …, "message": SENTENCE}}        under /v1/messages
 *
 * Status and type follow from the code of the error (base/err.h) unless they are given. */
#ifndef LILY_API_ERRORS_H
#define LILY_API_ERRORS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct lily_refusal {
    lily_err err;
    int status;             /* HTTP; 0: by err.code */
    const char *code;       /* a name for programs, static storage; NULL: by status */
    char param[96];         /* the field that is at fault; "": none */
    uint32_t n_prompt;      /* for LILY_CONTEXT: tokens of the prompt */
    uint32_t n_ctx;         /* and of the context */
} lily_refusal;             /* {0}: nothing wrong yet */

/* Fills the refusal and returns `code`. `param` may be NULL. */
#define lily_refuse(r, code, param, ...) lily_refuse_at((r), (code), (param), __FILE__, __LINE__, __VA_ARGS__)
int lily_refuse_at(lily_refusal *r, enum lily_code code, const char *param, const char *file, int line,
                   const char *fmt, ...) __attribute__((format(printf, 6, 7)));

int lily_refusal_status(const lily_refusal *r);
/* The name of what is wrong, for programs; NULL: it has none. */
const char *lily_refusal_code(const lily_refusal *r);
/* Appends the JSON object, in the form of those who ask for that path. */
void lily_refusal_json(const lily_refusal *r, const char *path, lily_buf *out);
/* The same for what the HTTP layer refuses by itself (http.h: format_error). */
void lily_http_error_json(const char *path, int status, const char *sentence, lily_buf *out);

#endif
