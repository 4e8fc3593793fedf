/* bpe.h - byte-level byte-pair encoding of one piece of text.
 *
 * The piece starts as one token a byte.  As long as two neighbours are in the merge list, the pair with
 * the lowest rank (its place in the list) is replaced by the token of their joined bytes, the leftmost
 * first among equals.  (Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units".) */
#ifndef LILY_TEXT_BPE_H
#define LILY_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/ids.h"

typedef struct lily_merge {
    uint64_t pair;       /* left id << 32 | right id; UINT64_MAX: empty slot */
    uint32_t rank;
    int32_t id;          /* of the joined bytes */
} lily_merge;

typedef struct lily_bpe {
    int32_t byte_id[256];
    lily_merge *slot;    /* [mask + 1] by hash of the pair, at most half full */
    uint64_t mask, seed;
    uint32_t n;          /* merges added */
} lily_bpe;

/* Room for n merges; byte_id is the caller's to fill. */
int lily_bpe_init(lily_bpe *b, size_t n, lily_err *e);
void lily_bpe_free(lily_bpe *b);
/* The next merge in order of rank; false when the pair is there already. */
bool lily_bpe_add(lily_bpe *b, int32_t left, int32_t right, int32_t id);

/* Memory for long pieces, kept from one to the next. */
typedef struct lily_bpe_work {
    void *memory;
    size_t cap;          /* longest piece it serves */
} lily_bpe_work;         /* {0} is an empty one */

void lily_bpe_work_free(lily_bpe_work *w);

/* Appends the tokens of piece[0 … n), n < 2^31.  Time is O(n log n). */
int lily_bpe_encode(const lily_bpe *b, lily_bpe_work *w, const char *piece, size_t n, lily_ids *out,
                    lily_err *e);

#endif
