/* call_value.h - the value of one parameter of a tool call, as the model writes it.  Private to src/sample.
 *
 * The reader of replies decides by the declared types what a text means (text/reply_value.h); the grammar accepts
 * only texts that it makes fitting values of.  A string stands as it is, anything else is JSON; where both are
 * declared a string that would be read as JSON is left out. */
#ifndef LILY_SAMPLE_CALL_VALUE_H
#define LILY_SAMPLE_CALL_VALUE_H

#include <jansson.h>

#include "sample/json_parts.h"
#include "sample/text_parts.h"

typedef struct call_maker {
    lily_grammar *g;
    json_parts json;
    text_parts text;
    bool loose;                 /* hold values to their types only: the schemas were too large */
    /* The function and the parameter under way. */
    const json_t *parameters;   /* where references lead */
    bool strict;                /* refuse what cannot be held to, instead of overlooking it */
    const char *key;
    unsigned types;             /* of the parameter, as the reader of replies sees them */
    lily_err *e;
} call_maker;

/* The value and "\n</parameter>", in front of `next`. */
int call_value(const call_maker *m, const json_t *schema, uint32_t next, uint32_t *out);
/* A keyword that cannot be held to: LILY_UNSUPPORTED for strict functions. */
int call_unsupported(const call_maker *m, const char *what);

#endif
