#include "api/json_out.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"

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
    lily_buf_printf(out, "%.9g", x == 0 ? 0.0 : x);    /* no "-0" */
}

void lily_json_put_bytes(lily_buf *out, const char *s, size_t n)
{
    lily_buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) lily_buf_printf(out, i ? ",%u" : "%u", (unsigned char)s[i]);
    lily_buf_putc(out, ']');
}
