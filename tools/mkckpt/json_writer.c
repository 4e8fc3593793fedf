#include "json_writer.h"

#include <stdio.h>

static void new_line(jw *w)
{
    if (w->indent <= 0) return;
    lily_buf_putc(&w->out, '\n');
    for (int i = 0; i < w->indent * w->depth; i++) lily_buf_putc(&w->out, ' ');
}

static void quoted(jw *w, const char *s)
{
    lily_buf_putc(&w->out, '"');
    for (; *s; s++) {
        if (*s == '\n') {
            lily_buf_puts(&w->out, "\\n");
            continue;
        }
        if (*s == '"' || *s == '\\') lily_buf_putc(&w->out, '\\');
        lily_buf_putc(&w->out, *s);
    }
    lily_buf_putc(&w->out, '"');
}

/* What stands before a value. */
static void begin(jw *w, const char *key)
{
    if (w->depth && !w->empty) lily_buf_puts(&w->out, w->indent == JW_ONE_LINE ? ", " : ",");
    if (w->depth) new_line(w);
    w->empty = false;
    if (!key) return;
    quoted(w, key);
    lily_buf_puts(&w->out, w->indent == JW_COMPACT ? ":" : ": ");
}

void jw_open(jw *w, const char *key, char bracket)
{
    begin(w, key);
    lily_buf_putc(&w->out, bracket);
    w->depth++;
    w->empty = true;
}

void jw_close(jw *w, char bracket)
{
    w->depth--;
    if (!w->empty) new_line(w);
    lily_buf_putc(&w->out, bracket);
    w->empty = false;
}

void jw_string(jw *w, const char *key, const char *value)
{
    begin(w, key);
    quoted(w, value);
}

void jw_raw(jw *w, const char *key, const char *text)
{
    begin(w, key);
    lily_buf_puts(&w->out, text);
}

void jw_int(jw *w, const char *key, long long value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", value);
    jw_raw(w, key, text);
}

void jw_bool(jw *w, const char *key, bool value)
{
    jw_raw(w, key, value ? "true" : "false");
}
