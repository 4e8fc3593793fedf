#include "sample/text_pattern.h"

#include <string.h>

#include "sample/dfa.h"
#include "sample/json_keywords.h"

/* Lines that are empty or do not begin with '<', without control characters but tab. */
#define CONTROLS "\\x00-\\x08\\x0a-\\x1f"
#define LINE "(?:[^<" CONTROLS "][^" CONTROLS "]*)?"
static const char TEXT[] = "^" LINE "(?:\\n" LINE ")*$";

/* Takes `one` over: *with becomes what is in both. */
static int both(dfa *with, dfa *one, uint32_t *left, lily_err *e)
{
    dfa made;
    int rc = dfa_both(&made, with, one, left, e);
    dfa_free(one);
    if (rc != LILY_OK) return rc;
    dfa_free(with);
    *with = made;
    return LILY_OK;
}

static int add(dfa *with, const char *pattern, size_t n, uint32_t *left, lily_err *e)
{
    dfa one;
    TRY(dfa_of_pattern(&one, pattern, n, left, e));
    return both(with, &one, left, e);
}

static int add_keywords(dfa *with, const json_t *schema, uint32_t *left, lily_err *e)
{
    const json_t *pattern = json_object_get(schema, "pattern"), *format = json_object_get(schema, "format");
    if (pattern && !json_is_string(pattern)) return lily_fail(e, LILY_ARGUMENT, "'pattern' must be a string");
    if (format && !json_is_string(format)) return lily_fail(e, LILY_ARGUMENT, "'format' must be a string");
    const char *known = format ? json_format_pattern(json_string_value(format)) : NULL;
    if (format && !known)
        return lily_fail(e, LILY_UNSUPPORTED, "'format' %.60s is not supported", json_string_value(format));
    if (pattern && add(with, json_string_value(pattern), json_string_length(pattern), left, e) != LILY_OK)
        return lily_err_prefix(e, "'pattern'");
    if (known && add(with, known, strlen(known), left, e) != LILY_OK) return lily_err_prefix(e, "'format'");
    return LILY_OK;
}

static int add_length(dfa *d, int64_t low, int64_t high, uint32_t *left, lily_err *e)
{
    dfa limited;
    if (low == 0 && high < 0) return LILY_OK;
    TRY(dfa_of_length(&limited, d, low, high, left, e));
    dfa_free(d);
    *d = limited;
    return LILY_OK;
}

int text_pattern(const text_parts *t, const json_parts *p, const json_t *schema, int64_t low, int64_t high, uint32_t next,
                 uint32_t *out, lily_err *e)
{
    dfa d = {0};
    if (high >= 0 && low > high) {
        *out = lily_grammar_never(t->g);
        return LILY_OK;
    }
    uint32_t *left = &t->g->pattern_work;
    TRY(dfa_of_pattern(&d, TEXT, sizeof TEXT - 1, left, e));
    int rc = add_keywords(&d, schema, left, e);
    if (rc == LILY_OK) rc = add_length(&d, low, high, left, e);
    if (rc == LILY_OK) *out = part_dfa_text(p, &d, text_closing(t, next));
    dfa_free(&d);
    return rc;
}
