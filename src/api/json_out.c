#include "api/json_out.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/big_number.h"

static void put_escaped(lily_buf *out, unsigned char c)
{
    switch (c) {
    case '"': lily_buf_puts(out, "\\\""); break;
    case '\\': lily_buf_puts(out, "\\\\"); break;
    case '\n': lily_buf_puts(out, "\\n"); break;
    case '\r': lily_buf_puts(out, "\\r"); break;
    case '\t': lily_buf_puts(out, "\\t"); break;
    default: lily_buf_printf(out, "\\u%04x", c);
    }
}

void lily_json_put_string(lily_buf *out, const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t plain = 0;    /* where the stretch begins that is copied as it is */
    lily_buf_putc(out, '"');
    for (size_t at = 0; at < n;) {
        size_t len = p[at] < 0x20 || p[at] == '"' || p[at] == '\\' ? 0 : lily_utf8_length(p + at, n - at);
        if (len) {
            at += len;
            continue;
        }
        lily_buf_add(out, s + plain, at - plain);
        if (p[at] < 0x80) {
            put_escaped(out, p[at++]);
        } else {
            bool open;
            at += lily_utf8_subpart(p + at, n - at, &open);
            lily_buf_puts(out, "\xef\xbf\xbd");
        }
        plain = at;
    }
    lily_buf_add(out, s + plain, n - plain);
    lily_buf_putc(out, '"');
}

void lily_json_put_text(lily_buf *out, const char *s)
{
    if (s) lily_json_put_string(out, s, strlen(s));
    else lily_buf_puts(out, "null");
}

void lily_json_put_number(lily_buf *out, double x)
{
    if (!isfinite(x)) x = x > 0 ? 9999 : -9999;
    char text[32];
    /* The fewest digits that give the same float, of which 9 are always enough: 0.6, not 0.600000024. */
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x == 0 ? 0.0 : x);    /* no "-0" */
        if (strtof(text, NULL) == (float)x) break;
    }
    lily_buf_puts(out, text);
}

void lily_json_put_bytes(lily_buf *out, const char *s, size_t n)
{
    lily_buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) lily_buf_printf(out, i ? ",%u" : "%u", (unsigned char)s[i]);
    lily_buf_putc(out, ']');
}

static void put_object(lily_buf *out, const json_t *object)
{
    const char *key;
    size_t n;
    json_t *member;
    lily_buf_putc(out, '{');
    bool first = true;
    json_object_keylen_foreach((json_t *)object, key, n, member) {
        if (!first) lily_buf_putc(out, ',');
        first = false;
        lily_json_put_string(out, key, n);
        lily_buf_putc(out, ':');
        lily_json_put_value(out, member);
    }
    lily_buf_putc(out, '}');
}

static void put_list(lily_buf *out, const json_t *list)
{
    lily_buf_putc(out, '[');
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (i > 0) lily_buf_putc(out, ',');
        lily_json_put_value(out, json_array_get(list, i));
    }
    lily_buf_putc(out, ']');
}

void lily_json_put_value(lily_buf *out, const json_t *value)
{
    char number[64];
    const char *big = value ? lily_big_number(value) : NULL;
    if (big) {
        lily_buf_puts(out, big);
        return;
    }
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_OBJECT: put_object(out, value); break;
    case JSON_ARRAY: put_list(out, value); break;
    case JSON_STRING: lily_json_put_string(out, json_string_value(value), json_string_length(value)); break;
    case JSON_INTEGER:
    case JSON_REAL: lily_buf_add(out, number, json_dumpb(value, number, sizeof number, JSON_ENCODE_ANY)); break;
    case JSON_TRUE: lily_buf_puts(out, "true"); break;
    case JSON_FALSE: lily_buf_puts(out, "false"); break;
    case JSON_NULL: lily_buf_puts(out, "null"); break;
    }
}
