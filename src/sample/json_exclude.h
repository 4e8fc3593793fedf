/* json_exclude.h - whether two schemas have no value in common, which oneOf asks for.  Private to src/sample.
 */
#ifndef LILY_SAMPLE_JSON_EXCLUDE_H
#define LILY_SAMPLE_JSON_EXCLUDE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* The schema that a reference "#/…" leads to, NULL if there is none. */
const json_t *json_schema_at(const json_t *root, const char *ref);
/* True only if no value fits both: by types, by enumerated values, or by a member that both require.  Each
 * comparison takes one off *left; false when none is left. */
bool json_schemas_exclude(const json_t *root, const json_t *a, const json_t *b, uint32_t *left);

#endif
