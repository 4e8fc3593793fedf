/* vocab.h - what each token id stands for, and which id stands for given bytes. */
#ifndef LILY_TEXT_VOCAB_H
#define LILY_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Ids of a file are below this: the family has 248,077 of them. */
enum { LILY_VOCAB_MAX = 1 << 20 };

enum lily_token_kind { LILY_TOKEN_NONE, LILY_TOKEN_PIECE, LILY_TOKEN_ADDED, LILY_TOKEN_SPECIAL };

typedef struct lily_token {
    uint32_t at, len;    /* its bytes in lily_vocab.bytes */
    uint8_t kind;        /* enum lily_token_kind; LILY_TOKEN_NONE: the id has no text */
} lily_token;

typedef struct lily_vocab {
    lily_token *token;   /* [n] by id */
    int32_t n, cap;      /* n: the highest id in use, plus 1 */
    lily_buf bytes;
    int32_t *slot;       /* [mask + 1] pieces by hash of their bytes, -1 empty; at most half full */
    uint64_t mask, seed; /* the seed keeps a hostile file from choosing colliding pieces */
} lily_vocab;

/* Room for n_pieces pieces. */
int lily_vocab_init(lily_vocab *v, size_t n_pieces, lily_err *e);
void lily_vocab_free(lily_vocab *v);

/* Gives an id its bytes.  An id outside [0, LILY_VOCAB_MAX), one that is taken, empty bytes, or a piece
 * whose bytes are there already is LILY_FORMAT.  Added tokens are not found by lily_vocab_find. */
int lily_vocab_add(lily_vocab *v, int64_t id, const char *bytes, size_t n, enum lily_token_kind kind,
                   lily_err *e);

/* The piece with these bytes, or -1. */
int32_t lily_vocab_find(const lily_vocab *v, const char *bytes, size_t n);

/* The index is needed only while the file is read. */
void lily_vocab_drop_index(lily_vocab *v);

#endif
