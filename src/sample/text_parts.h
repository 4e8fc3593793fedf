/* text_parts.h - text that stands as it is up to a closing tag on a line of its own.  Private to src/sample.
 *
 * The text begins on a line of its own, behind the opening tag and one line end; "\n</parameter>" closes it, or
 * "</parameter>" alone when it is empty.  It is valid UTF-8 without control characters but tab and line end, and
 * never holds what would close it.  Each function builds text and closing tag in front of `next`. */
#ifndef LILY_SAMPLE_TEXT_PARTS_H
#define LILY_SAMPLE_TEXT_PARTS_H

#include "sample/grammar.h"

typedef struct text_parts {
    lily_grammar *g;
    const char *close;      /* the tag: "</parameter>" */
    /* Rules: a character outside ASCII; text from its beginning; from within a line. */
    uint32_t beyond, text, within;
} text_parts;

/* `close` must outlive the parts. */
void text_parts_init(text_parts *t, lily_grammar *g, const char *close);

/* "\n" and the tag alone. */
uint32_t text_closing(const text_parts *t, uint32_t next);
uint32_t text_any(const text_parts *t, uint32_t next);
/* low … high characters (high < 0: no limit), of which none at the beginning of a line is a '<'. */
uint32_t text_string(const text_parts *t, int64_t low, int64_t high, uint32_t next);
/* Exactly this text; never when it holds what closes it. */
uint32_t text_literal(const text_parts *t, const char *text, size_t n, uint32_t next);

/* Text that does not begin with white space, '<' or a character of `first`; also none. */
uint32_t text_not_from(const text_parts *t, const char *first, uint32_t next);

#endif
