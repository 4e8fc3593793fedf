/* json_out.h - JSON written straight into a buffer: answers are built token by token, where a tree of values
 * would be made only to be printed. */
#ifndef LILY_API_JSON_OUT_H
#define LILY_API_JSON_OUT_H

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"

/* A string with its quotation marks. Bytes that are no UTF-8 become U+FFFD. */
void lily_json_put_string(lily_buf *out, const char *s, size_t n);
/* The same up to the NUL; NULL gives null. */
void lily_json_put_text(lily_buf *out, const char *s);
/* A float, in the fewest digits that are no other. What is not finite, which JSON cannot hold, becomes ±9999 (as OpenAI
 * writes a probability of 0). */
void lily_json_put_number(lily_buf *out, double x);
/* [1, 2, 3]: the bytes as numbers. */
void lily_json_put_bytes(lily_buf *out, const char *s, size_t n);
/* Any value; numbers as the client wrote them (text/big_number.h); NULL gives null. */
void lily_json_put_value(lily_buf *out, const json_t *value);

#endif
