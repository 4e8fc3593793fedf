/* pretokenize.h - cuts text into pieces by the regular expression of tokenizer.json.
 *
 * The expression is written for Oniguruma.  What both engines read alike is compiled by PCRE2 in UTF mode:
 * literals, classes, \p{…}, groups, look-ahead, quantifiers.  White space (\s) is spelled out, because
 * PCRE2 counts U+180E to it and Unicode does not.  Anything else is refused with its name.
 *
 * Letters, marks and numbers are those of the Unicode version that the linked PCRE2 knows. */
#ifndef LILY_TEXT_PRETOKENIZE_H
#define LILY_TEXT_PRETOKENIZE_H

#include <stddef.h>

#include "base/err.h"

typedef struct lily_pretokenizer lily_pretokenizer;

int lily_pretokenizer_new(lily_pretokenizer **out, const char *pattern, size_t n, lily_err *e);
void lily_pretokenizer_free(lily_pretokenizer *p);

/* Called with each piece in order. */
typedef int lily_piece_fn(void *ctx, const char *piece, size_t n, lily_err *e);

/* The matches in text[0 … n), well-formed UTF-8, and the stretches between them; together they are the
 * whole text.  The family's expression is linear in n; one that backtracks beyond measure fails with
 * LILY_FORMAT. */
int lily_pretokenize(const lily_pretokenizer *p, const char *text, size_t n, lily_piece_fn *piece, void *ctx,
                     lily_err *e);

#endif
