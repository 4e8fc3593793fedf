/* reply_value.h - one parameter's value on its way from the model's text to JSON.
 *
 * The declared type decides.  A string is passed on byte for byte while it comes; anything else is
 * collected, and what does not fit its type becomes a string, so that a slip does not lose the call. */
#ifndef LILY_TEXT_REPLY_VALUE_H
#define LILY_TEXT_REPLY_VALUE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

enum reply_type {
    REPLY_STRING = 1,
    REPLY_INTEGER = 2,
    REPLY_NUMBER = 4,
    REPLY_BOOLEAN = 8,
    REPLY_ARRAY = 16,
    REPLY_OBJECT = 32,
    REPLY_NULL = 64,
    REPLY_ANY = 128,      /* declared without a type */
};

typedef struct reply_value {
    unsigned types;       /* set of enum reply_type */
    bool streaming;       /* a string whose opening quotation mark was written */
    lily_buf text;        /* collected */
} reply_value;

/* The types of parameter key of the function `name` in OpenAI's list of tools; REPLY_STRING for one that
 * is not declared. */
unsigned reply_types_of(const json_t *tools, const char *name, const char *key);
/* Of a parameter's schema, whose references lead into `root`; REPLY_ANY when it names none. */
unsigned reply_types_of_schema(const json_t *schema, const json_t *root);

void reply_value_begin(reply_value *v, unsigned types);
/* Takes more of the value; appends what is decided to `json`. */
void reply_value_add(reply_value *v, const char *text, size_t n, lily_buf *json);
/* The value is complete; appends the rest of it. */
int reply_value_end(reply_value *v, lily_buf *json, lily_err *e);

#endif
