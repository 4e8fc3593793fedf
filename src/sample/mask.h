/* mask.h - which tokens a grammar allows next.
 *
 * The vocabulary as a trie over bytes, in depth-first order: one walk with the automaton finds all allowed
 * tokens, and what the automaton refuses is skipped with all that begins like it.  Most tokens are plain
 * text, which a string of JSON takes whole; those are not walked: see lily_mask_allowed. */
#ifndef LILY_SAMPLE_MASK_H
#define LILY_SAMPLE_MASK_H

#include "sample/match.h"
#include "text/tokenizer.h"

/* ---- the vocabulary, made once ---- */

typedef struct lily_token_trie lily_token_trie;

/* Added tokens are control and never allowed.  The ids that end a turn are copied. */
int lily_token_trie_new(lily_token_trie **out, const lily_tokenizer *t, const int32_t *ends, size_t n_ends,
                        lily_err *e);
void lily_token_trie_free(lily_token_trie *v); /* NULL is allowed */
/* Bytes that making one takes at most, with the masks of one reply; for the estimate before loading. */
uint64_t lily_token_trie_cost(const lily_tokenizer *t);
/* 32-bit words of a mask: bit i % 32 of word i / 32 is token i. */
size_t lily_token_trie_words(const lily_token_trie *v);

/* ---- one reply ---- */

typedef struct lily_mask lily_mask;

/* The vocabulary must outlive it; it holds the grammar. `late`: white space may come first. */
int lily_mask_new(lily_mask **out, const lily_token_trie *v, lily_grammar *g, bool late, lily_err *e);
void lily_mask_free(lily_mask *k); /* NULL is allowed */
/* The tokens that may follow, valid until the next call; those that end the turn if the text is complete.
 * Where a grammar is so wide that this would take long, some are left out, but never all; and where a count
 * is under way, as in a string of limited length, those of more than 32 bytes: masks are then the same for
 * most counts. */
int lily_mask_allowed(lily_mask *k, const uint32_t **mask, lily_err *e);
/* Goes on over the bytes of a token; *fits: the grammar takes them (else nothing has changed). */
int lily_mask_take(lily_mask *k, const char *bytes, size_t n, bool *fits, lily_err *e);
/* The bytes that must follow, since nothing else may: *n of them in `out`, at most `room`. */
int lily_mask_forced(lily_mask *k, char *out, size_t room, size_t *n, lily_err *e);
/* Begins the text anew. */
void lily_mask_restart(lily_mask *k);
/* The text is whole; and nothing but the end of the turn may follow. */
bool lily_mask_complete(const lily_mask *k);
int lily_mask_finished(lily_mask *k, bool *finished, lily_err *e);

#endif
