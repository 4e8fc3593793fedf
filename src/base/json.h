/* json.h - jansson with Lily's limits and sentences. */
#ifndef LILY_BASE_JSON_H
#define LILY_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Parses one whole JSON text.  Duplicate keys, broken UTF-8, trailing text and nesting beyond jansson's
 * 2,048 levels are LILY_FORMAT; `what` begins the sentence.  NUL escapes are allowed in strings. */
int lily_json_parse(json_t **out, const char *text, size_t n, const char *what, lily_err *e);
/* Lists and objects in a text, counted without parsing it.  Parsed, an empty object takes a hundred times its two
 * letters, so text from strangers may have LILY_JSON_MAX_PARTS of them.  Text that is no JSON may be counted wrong. */
enum { LILY_JSON_MAX_PARTS = 1 << 18 };
size_t lily_json_parts(const char *text, size_t n);
/* The same from a file of at most `limit` bytes. */
int lily_json_read(json_t **out, const char *path, size_t limit, lily_err *e);

/* obj.key as a non-negative integer in [low, high].  A missing key is an error unless `missing` >= 0,
 * which then is the value. */
int lily_json_uint(const json_t *obj, const char *key, int64_t low, int64_t high, int64_t missing, int64_t *out,
                   const char *what, lily_err *e);

#endif
