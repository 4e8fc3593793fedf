/* json_schema_part.h - a schema inside a grammar that holds more than JSON.  Private to src/sample. */
#ifndef LILY_SAMPLE_JSON_SCHEMA_PART_H
#define LILY_SAMPLE_JSON_SCHEMA_PART_H

#include "sample/json_parts.h"

/* The JSON texts that fit `s`, in front of `next`; *node is where they begin.  References lead into `root`.
 * Errors as those of lily_json_schema; the grammar then holds nodes that nothing leads to, but can be gone on
 * with unless lily_grammar_failed. */
int json_schema_part(const json_parts *p, const json_t *root, const json_t *s, uint32_t next, uint32_t *node,
                     lily_err *e);

#endif
