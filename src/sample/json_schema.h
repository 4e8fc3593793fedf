/* json_schema.h - a JSON Schema as a grammar of the JSON texts that fit it.
 *
 * What the grammar accepts always fits the schema. It does not accept all that fits: members come in the
 * order of `properties`, and where additionalProperties is absent beside properties there are no others;
 * white space, digits and escapes in names are limited (json_parts.h); a schema without `type` is read as one
 * for the type that its keywords speak of.
 *
 * keywords.def and formats.def list what is supported. Anything else is refused by name. */
#ifndef LILY_SAMPLE_JSON_SCHEMA_H
#define LILY_SAMPLE_JSON_SCHEMA_H

#include <jansson.h>

#include "sample/grammar.h"

/* LILY_UNSUPPORTED with the keyword and its place ("#/properties/name: 'not' is not supported"), also for
 * schemas that are too large; LILY_ARGUMENT for what is no schema or fits nothing. The caller lets go of the
 * grammar. */
int lily_json_schema(lily_grammar **out, const json_t *schema, lily_err *e);
/* Any JSON object. */
int lily_json_object(lily_grammar **out, lily_err *e);

#endif
