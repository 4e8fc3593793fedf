/* buf.h - a growing byte buffer.  A failed allocation is remembered, later appends do nothing, and
 * lily_buf_ok tells once at the end: code that builds text needs no check at every append. */
#ifndef LILY_BASE_BUF_H
#define LILY_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef struct lily_buf {
    char *data;         /* owned; a NUL follows the last byte once anything was appended, else NULL */
    size_t len, cap;    /* bytes */
    bool failed;
} lily_buf;             /* {0} is an empty one */

void lily_buf_free(lily_buf *b);
void lily_buf_clear(lily_buf *b);                       /* keeps the memory, forgets the failure */
void lily_buf_add(lily_buf *b, const void *data, size_t n);
void lily_buf_puts(lily_buf *b, const char *s);
void lily_buf_putc(lily_buf *b, char c);
void lily_buf_printf(lily_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void lily_buf_drop(lily_buf *b, size_t n);              /* removes the first n bytes */
void lily_buf_cut(lily_buf *b, size_t n);               /* keeps the first n bytes, n <= len */
bool lily_buf_reserve(lily_buf *b, size_t more);        /* room for `more` bytes beyond len */
/* LILY_OK, or LILY_NO_MEMORY with a sentence naming `what`. */
int lily_buf_ok(const lily_buf *b, const char *what, lily_err *e);
/* The text, "" when nothing was appended. */
static inline const char *lily_buf_str(const lily_buf *b) { return b->data ? b->data : ""; }

#endif
