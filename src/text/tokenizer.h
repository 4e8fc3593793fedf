/* tokenizer.h - text to token ids and back, as the checkpoint's tokenizer.json says.
 *
 * The family's tokenizer is byte-level BPE.  Encoding: added tokens (<|im_end|>, <think> …) are found in
 * the raw text, leftmost first, longest first; each stretch between them is normalised (NFC), cut into
 * pieces by a regular expression, and each piece merged by rank.  Nothing is put before or after.
 * A tokenizer.json that asks for anything else is refused with the construct's name.
 *
 * A tokenizer does not change after it was opened and may be used from several threads. */
#ifndef LILY_TEXT_TOKENIZER_H
#define LILY_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/ids.h"

typedef struct lily_tokenizer lily_tokenizer;

/* Reads model_dir/tokenizer.json.  LILY_FORMAT for a damaged file, LILY_UNSUPPORTED for one that is not the
 * family's; the sentence begins with the file's name. */
int lily_tokenizer_open(lily_tokenizer **out, const char *model_dir, lily_err *e);
void lily_tokenizer_free(lily_tokenizer *t);    /* NULL is allowed */

/* The highest id that has text, plus 1.  The model's vocabulary may be larger: it is padded. */
int32_t lily_tokenizer_n_vocab(const lily_tokenizer *t);
/* The bytes that an id stands for (not always whole characters), or NULL for an id without text. */
const char *lily_token_bytes(const lily_tokenizer *t, int32_t id, size_t *len);
/* Added tokens are single tokens whatever surrounds them; the special ones among them are left out of
 * text for people. */
bool lily_token_is_added(const lily_tokenizer *t, int32_t id);
bool lily_token_is_special(const lily_tokenizer *t, int32_t id);
/* The added token with exactly this text, or -1. */
int32_t lily_token_find(const lily_tokenizer *t, const char *text, size_t len);

/* Appends the ids of text[0 … n) to out.  With parse_special false the letters of an added token are
 * ordinary text.  Each maximal subpart of an ill-formed UTF-8 sequence counts as U+FFFD.  A failure leaves
 * out as it was. */
int lily_encode(const lily_tokenizer *t, const char *text, size_t n, bool parse_special, lily_ids *out,
                lily_err *e);

/* A stretch of text and where it comes from. */
typedef struct lily_span {
    const char *text;
    size_t n;           /* bytes */
    bool control;       /* from the template: added tokens count */
} lily_span;

/* Encodes the spans as one text, with the same pieces and merges across their borders, except that an
 * added token is recognised only where every byte of it comes from control spans.  A character that a border
 * cuts is ill-formed on both sides: two origins do not make one character. */
int lily_encode_spans(const lily_tokenizer *t, const lily_span *spans, size_t n, lily_ids *out, lily_err *e);

#endif
