#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static const struct {
    const char *name;
    int exit_status, http_status;
} codes[] = {
#define X(name, exit_status, http_status, what) {#name, exit_status, http_status},
    LILY_CODES(X)
#undef X
};

enum { N_CODES = sizeof codes / sizeof codes[0] };

/* The sentence may quote names out of a hostile file: it must stay one line that a terminal survives. */
static void make_printable(char *text)
{
    size_t n = strlen(text), at = 0;
    while (at < n) {
        size_t len = lily_utf8_length((const unsigned char *)text + at, n - at);
        if (len == 0 || (unsigned char)text[at] < 0x20 || text[at] == 0x7f) {
            text[at] = '?';
            len = 1;
        }
        at += len;
    }
}

int lily_fail_at(lily_err *e, enum lily_code code, const char *file, int line, const char *fmt, ...)
{
    if (!e) return code;
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
    make_printable(e->text);
    e->code = code;
    e->file = file;
    e->line = line;
    return code;
}

int lily_err_prefix(lily_err *e, const char *fmt, ...)
{
    char old[LILY_ERR_TEXT];
    memcpy(old, e->text, sizeof old);
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof e->text)
        snprintf(e->text + n, sizeof e->text - (size_t)n, ": %.*s", (int)(sizeof e->text - 3), old);
    make_printable(e->text);
    return e->code;
}

const char *lily_err_name(int code)
{
    return code >= 0 && code < N_CODES ? codes[code].name : "?";
}

int lily_err_exit_status(int code)
{
    return code >= 0 && code < N_CODES ? codes[code].exit_status : 70;
}

int lily_err_http_status(int code)
{
    return code >= 0 && code < N_CODES ? codes[code].http_status : 500;
}
