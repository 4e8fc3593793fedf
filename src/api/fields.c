#include "api/fields.h"

#include <math.h>

#include "text/big_number.h"

bool lily_is_object(const json_t *value) { return json_is_object(value) && !lily_big_number(value); }

const char *lily_json_kind(const json_t *value)
{
    if (lily_big_number(value)) return "a number beyond 64 bits";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    default: return "null";
    }
}

static int wrong_type(const lily_field *f, const char *wanted, const json_t *value, lily_refusal *r)
{
    return lily_refuse(r, LILY_ARGUMENT, f->name, "%s must be %s, not %s", f->name, wanted, lily_json_kind(value));
}

static int check_range(const lily_field *f, double x, lily_refusal *r)
{
    if (x >= f->low && x <= f->high) return LILY_OK;
    return lily_refuse(r, LILY_ARGUMENT, f->name, "%s must be from %.15g to %.15g, not %.15g", f->name, f->low,
                       f->high, x);
}

static int read_integer(const lily_field *f, const json_t *value, int64_t *out, lily_refusal *r)
{
    double x = json_number_value(value);
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
    } else if (json_is_real(value) && x == floor(x) && fabs(x) < 0x1p53) {
        *out = (int64_t)x;
    } else {
        return wrong_type(f, "an integer", value, r);
    }
    return check_range(f, x, r);
}

static int read_number(const lily_field *f, const json_t *value, float *out, lily_refusal *r)
{
    if (!json_is_number(value)) return wrong_type(f, "a number", value, r);
    *out = (float)json_number_value(value);
    return check_range(f, json_number_value(value), r);
}

static bool asks_for_nothing(const lily_field *f, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return json_object_size(value) == 0;
    case JSON_ARRAY: return json_array_size(value) == 0;
    case JSON_STRING: return json_string_length(value) == 0;
    case JSON_INTEGER:
    case JSON_REAL: return json_number_value(value) == 0 || json_number_value(value) == f->low;
    case JSON_TRUE: return false;
    default: return true;
    }
}

static int read_field(const lily_field *f, const json_t *value, void *out, lily_refusal *r)
{
    void *at = (char *)out + f->offset;
    switch (f->type) {
    case LILY_FIELD_BOOL:
        if (!json_is_boolean(value)) return wrong_type(f, "true or false", value, r);
        *(bool *)at = json_is_true(value);
        return LILY_OK;
    case LILY_FIELD_INTEGER: return read_integer(f, value, at, r);
    case LILY_FIELD_NUMBER: return read_number(f, value, at, r);
    case LILY_FIELD_VALUE: return f->read(out, f, value, r);
    case LILY_FIELD_UNSUPPORTED:
        if (asks_for_nothing(f, value)) return LILY_OK;
        return lily_refuse(r, LILY_UNSUPPORTED, f->name, "%s is not supported", f->name);
    }
    return lily_refuse(r, LILY_INTERNAL, f->name, "field %s has no type", f->name);
}

int lily_fields_read(const lily_field *table, size_t n, const json_t *body, void *out, lily_refusal *r)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_object_get(body, table[i].name);
        if (value && !json_is_null(value)) TRY(read_field(&table[i], value, out, r));
    }
    return LILY_OK;
}
