#include "text/big_number.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "text/json_text.h"

#define KEY "\001number"
#define KEY_JSON "\\u0001number"

/* Whether jansson holds the number at text[0 … n): an int64, or a real that does not overflow.  One of 64
 * characters and more counts as not: it is carried as it stands. */
static bool is_held(const char *text, size_t n)
{
    char copy[64];
    bool real = false;
    if (n >= sizeof copy) return false;
    for (size_t i = 0; i < n; i++) real |= text[i] == '.' || text[i] == 'e' || text[i] == 'E';
    memcpy(copy, text, n);
    copy[n] = 0;
    errno = 0;
    if (real) return isfinite(strtod(copy, NULL));
    long long value = strtoll(copy, NULL, 10);
    return errno != ERANGE || (value != LLONG_MAX && value != LLONG_MIN);
}

/* Copies the text and puts the carrying object in place of each number that jansson does not hold. */
static void carry_numbers(const char *text, size_t n, lily_buf *out)
{
    bool in_string = false;
    for (size_t at = 0; at < n;) {
        char ch = text[at];
        size_t len = in_string || ch == '"' ? 0 : lily_json_number_length(text + at, n - at);
        if (len && !is_held(text + at, len)) {
            lily_buf_puts(out, "{\"" KEY_JSON "\":\"");
            lily_buf_add(out, text + at, len);
            lily_buf_puts(out, "\"}");
        } else {
            if (len == 0) {
                len = in_string && ch == '\\' && at + 1 < n ? 2 : 1;
                if (ch == '"') in_string = !in_string;
            }
            lily_buf_add(out, text + at, len);
        }
        at += len;
    }
}

int lily_json_parse_big(json_t **out, const char *text, size_t n, const char *what, lily_err *e)
{
    json_error_t je;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
    if (*out) return LILY_OK;
    if (json_error_code(&je) != json_error_numeric_overflow) return lily_json_parse(out, text, n, what, e);
    lily_buf carried = {0};
    carry_numbers(text, n, &carried);
    int rc = lily_buf_ok(&carried, what, e);
    if (rc == LILY_OK) rc = lily_json_parse(out, lily_buf_str(&carried), carried.len, what, e);
    lily_buf_free(&carried);
    return rc;
}

int lily_json_print_big(const json_t *j, lily_buf *out, lily_err *e)
{
    static const char open[] = "{\"" KEY_JSON "\": \"", close[] = "\"}";
    char *text = json_dumps(j, JSON_ENCODE_ANY);
    if (!text) return lily_fail(e, LILY_NO_MEMORY, "out of memory for JSON text");
    const char *at = text;
    /* Inside a string the quotation mark behind the brace would be escaped. */
    for (const char *found; (found = strstr(at, open)); at = found) {
        lily_buf_add(out, at, (size_t)(found - at));
        found += sizeof open - 1;
        size_t n = strcspn(found, "\"");
        lily_buf_add(out, found, n);
        found += n + sizeof close - 1;
    }
    lily_buf_puts(out, at);
    free(text);
    return lily_buf_ok(out, "JSON text", e);
}

const char *lily_big_number(const json_t *j)
{
    if (json_object_size(j) != 1) return NULL;
    const json_t *digits = json_object_get(j, KEY);
    const char *s = json_string_value(digits);
    if (!s || *s == 0 || lily_json_number_length(s, json_string_length(digits)) != json_string_length(digits)) return NULL;
    return s;
}
