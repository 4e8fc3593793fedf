#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void lily_buf_free(lily_buf *b)
{
    lily_free(b->data);
    *b = (lily_buf){0};
}

void lily_buf_clear(lily_buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data) b->data[0] = 0;
}

bool lily_buf_reserve(lily_buf *b, size_t more)
{
    if (b->failed) return false;
    if (b->data && more < b->cap - b->len) return true;
    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap - b->len <= more) {
        if (cap > SIZE_MAX / 2) {
            b->failed = true;
            return false;
        }
        cap *= 2;
    }
    char *data = lily_realloc(b->data, cap, 1);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void lily_buf_add(lily_buf *b, const void *data, size_t n)
{
    if (!lily_buf_reserve(b, n)) return;
    if (n) memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = 0;
}

void lily_buf_puts(lily_buf *b, const char *s)
{
    lily_buf_add(b, s, strlen(s));
}

void lily_buf_putc(lily_buf *b, char c)
{
    lily_buf_add(b, &c, 1);
}

void lily_buf_printf(lily_buf *b, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n >= 0 && lily_buf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void lily_buf_cut(lily_buf *b, size_t n)
{
    b->len = n;
    if (b->data) b->data[n] = 0;
}

void lily_buf_drop(lily_buf *b, size_t n)
{
    if (n == 0) return;
    if (n > b->len) n = b->len;
    b->len -= n;
    memmove(b->data, b->data + n, b->len + 1);
}

int lily_buf_ok(const lily_buf *b, const char *what, lily_err *e)
{
    return b->failed ? lily_no_memory(e, b->len, what) : LILY_OK;
}
