/* stop.h - stop strings over a stream of text.
 *
 * Text goes in piece by piece, cut anywhere; what comes out is the text up to the first stop string,
 * which itself is left out.  Text that may be the beginning of a stop string is held back until it is
 * known not to be one.
 *
 * Which stop string counts: the one whose last byte comes first; of several that end at the same byte the
 * longest, because it began first.  So nothing that belongs to it was given out before. */
#ifndef LILY_TEXT_STOP_H
#define LILY_TEXT_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum { LILY_STOP_MAX = 16, LILY_STOP_BYTES = 256 };

typedef struct lily_stop_string {
    uint16_t len;                       /* 1 … LILY_STOP_BYTES */
    uint16_t matched;                   /* length of the longest prefix that the text read so far ends in */
    char text[LILY_STOP_BYTES];
    uint16_t border[LILY_STOP_BYTES];   /* [i]: longest proper prefix of text[0 … i] that is also its suffix */
} lily_stop_string;

typedef struct lily_stop {
    lily_stop_string string[LILY_STOP_MAX];
    size_t n;                           /* strings in use */
    char held[LILY_STOP_BYTES];         /* text read and not given out */
    size_t n_held;
    int found;                          /* index of the stop string that ended the text, or -1 */
} lily_stop;                            /* no memory of its own; about 12 KiB */

/* Takes copies of the n strings. More than LILY_STOP_MAX of them, an empty one or one that is too long is
 * LILY_ARGUMENT. */
int lily_stop_init(lily_stop *s, const char *const *text, const size_t *len, size_t n, lily_err *e);

/* Reads n bytes and appends to out those that can no longer belong to a stop string; true once one was
 * found (s->found tells which), after which everything is dropped.  When text and stop strings are UTF-8 and
 * the text is fed in whole characters, out grows by whole characters.  out->failed tells of lost memory. */
bool lily_stop_feed(lily_stop *s, const char *text, size_t n, lily_buf *out);

/* The end of the text: gives out what is held. */
void lily_stop_flush(lily_stop *s, lily_buf *out);

#endif
