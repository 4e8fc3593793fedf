/* decode.h - token ids to text, as they come.
 *
 * Tokens are byte strings and may end in the middle of a character.  The decoder keeps such an end back
 * until the character is complete; bytes that cannot become one turn into U+FFFD, one for each maximal
 * subpart (Unicode 15, D93b), so that all text that comes out is UTF-8. */
#ifndef LILY_TEXT_DECODE_H
#define LILY_TEXT_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "text/tokenizer.h"

typedef struct lily_decoder {
    char tail[4];       /* the beginning of a character */
    size_t n;           /* 0 … 3 */
} lily_decoder;         /* {0} is the start of a text; no memory of its own */

/* Appends to out the whole characters that n more bytes complete. out->failed tells of lost memory. */
void lily_decoder_bytes(lily_decoder *d, const char *bytes, size_t n, lily_buf *out);
/* The same for a token. An id without text adds nothing, a special one only unless skip_special. */
void lily_decoder_id(lily_decoder *d, const lily_tokenizer *t, int32_t id, bool skip_special, lily_buf *out);
/* The end of the text: an unfinished character becomes U+FFFD. The decoder is at its start again. */
void lily_decoder_flush(lily_decoder *d, lily_buf *out);

/* Appends the text of n ids to out. */
int lily_decode(const lily_tokenizer *t, const int32_t *id, size_t n, bool skip_special, lily_buf *out,
                lily_err *e);

#endif
