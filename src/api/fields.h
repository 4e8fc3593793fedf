/* fields.h - a request body read by a table.
 *
 * Every field that could change an answer stands in a table: read, checked against its range, or refused by name.
 * Fields that stand in none are ignored, since clients send those of other vendors.  null is as good as absent. */
#ifndef LILY_API_FIELDS_H
#define LILY_API_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/errors.h"

typedef enum lily_field_type {
    LILY_FIELD_BOOL,            /* bool at offset */
    LILY_FIELD_INTEGER,         /* int64_t at offset, low … high; 3.0 counts as 3 */
    LILY_FIELD_NUMBER,          /* float at offset, low … high */
    LILY_FIELD_VALUE,           /* `read` does the work */
    LILY_FIELD_UNSUPPORTED,     /* refused, unless its value asks for nothing: false, "", [], {}, 0 or `low` */
} lily_field_type;

typedef struct lily_field lily_field;

typedef int lily_field_read(void *out, const lily_field *f, const json_t *value, lily_refusal *r);

struct lily_field {
    const char *name;
    lily_field_type type;
    double low, high;           /* both included */
    size_t offset;              /* into the struct that is filled */
    lily_field_read *read;
};

/* Reads the fields of `body` (an object) that the table knows into `out`, which holds the defaults. */
int lily_fields_read(const lily_field *table, size_t n, const json_t *body, void *out, lily_refusal *r);

/* An object as the client wrote it: one that carries a number (text/big_number.h) is none. */
bool lily_is_object(const json_t *value);

/* "a string", "an object" … for sentences. */
const char *lily_json_kind(const json_t *value);

#endif
