/* text_pattern.h - text up to a closing tag that fits `pattern` and `format`.  Private to src/sample. */
#ifndef LILY_SAMPLE_TEXT_PATTERN_H
#define LILY_SAMPLE_TEXT_PATTERN_H

#include <jansson.h>

#include "sample/json_parts.h"
#include "sample/text_parts.h"

/* The strings of low … high characters (high < 0: no limit) that fit both keywords of `schema`, and of which no line
 * begins with '<'; text and closing tag in front of `next`.  LILY_UNSUPPORTED and LILY_ARGUMENT with a sentence. */
int text_pattern(const text_parts *t, const json_parts *p, const json_t *schema, int64_t low, int64_t high, uint32_t next,
                 uint32_t *out, lily_err *e);

#endif
