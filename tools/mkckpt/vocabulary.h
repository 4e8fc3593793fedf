/* vocabulary.h - the byte-level BPE vocabulary of a synthetic checkpoint: trained on a small text, and for the
 * full size filled up with made-up words. */
#ifndef LILY_TOOLS_VOCABULARY_H
#define LILY_TOOLS_VOCABULARY_H

#include "base/arena.h"
#include "base/buf.h"
#include "preset.h"

/* The pattern that cuts text into pieces, the same as the real model's. */
extern const char split_regex[];

/* Added tokens, in the order of the real vocabulary (ids 248044 on there). */
enum { N_SPECIALS = 33 };
extern const char *const specials[N_SPECIALS];
/* Tells which of them decoding drops when special tokens are skipped. */
bool special_is_control(size_t i);

typedef struct vocabulary {
    lily_arena arena;
    const char **token;         /* [n] spelled in the byte alphabet, UTF-8 */
    uint32_t n, room;
    struct { uint32_t a, b; } *merge;       /* [n_merges] by rank */
    uint32_t n_merges, merge_room;
    uint32_t *slot, n_slots;    /* hash table from token to id + 1 */
} vocabulary;

int vocabulary_build(vocabulary *v, const preset *p, const char *corpus, size_t len, lily_err *e);
void vocabulary_free(vocabulary *v);
/* Id of the added token with this text; that of token `s` in the vocabulary is vocabulary_id. */
uint32_t vocabulary_special(const vocabulary *v, const char *s);
/* UINT32_MAX when there is none. */
uint32_t vocabulary_id(const vocabulary *v, const char *s);

#endif
