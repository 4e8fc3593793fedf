/* replies.h - what the model said, token by token, so that a conversation that comes back as JSON can be read as the
 * tokens that were sampled.
 *
 * A client sends a reply back as text and parsed calls.  Rendered anew and tokenised it is the same reply with other
 * tokens, so that the prefix cache would miss in it.  This store remembers for each reply the sampled tokens, what the
 * client was given, and which prompt it followed; api/replay.h decides when one stands for a message of the history.
 *
 * Bounded in bytes; the replies that were used longest ago go first.  All functions may be called by several threads. */
#ifndef LILY_RUN_REPLIES_H
#define LILY_RUN_REPLIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum { LILY_REPLIES_BYTES = 16 * 1024 * 1024 };    /* of the engine's store: some 1.5 million tokens */

/* The tokens before a turn, as FNV-1a with 128 bits over 32-bit units.  Not made to resist forgery: who forges one
 * must also send what the client of the other conversation was given, and then gains nothing that it did not know. */
typedef struct lily_replies_key {
    uint64_t hi, lo;
} lily_replies_key;

lily_replies_key lily_replies_key_start(void);
lily_replies_key lily_replies_key_add(lily_replies_key key, const int32_t *ids, size_t n);

typedef struct lily_replied {
    const int32_t *turn;        /* the assistant's turn: what the prompt had of it (the opening of a thought), then the
                                   sampled tokens, without the end of turn */
    size_t n_turn;
    bool ended;                 /* by the model; else by a limit, a stop string or the first call */
    /* As the client was given it; UTF-8.  calls: JSON, a list of {"name", "arguments"}, or "" for none. */
    const char *content, *reasoning, *calls;
    size_t n_content, n_reasoning, n_calls;
} lily_replied;

typedef struct lily_replies lily_replies;

/* `limit`: bytes held at most. */
int lily_replies_new(lily_replies **out, size_t limit, lily_err *e);
void lily_replies_free(lily_replies *s);    /* NULL is allowed */

/* Copies.  One that is too large for the store is left out; one that is there already is not added again. */
int lily_replies_add(lily_replies *s, lily_replies_key before, const lily_replied *r, lily_err *e);
/* Shows the replies that followed these tokens to `take`, the newest first, until it takes one; false: none.  The
 * store is locked meanwhile, and what is shown is valid during the call only. */
bool lily_replies_find(lily_replies *s, lily_replies_key before, bool (*take)(void *user, const lily_replied *r),
                       void *user);
void lily_replies_clear(lily_replies *s);

/* All replies as bytes, those that were used longest ago first (docs/cache-format.md), appended; and such bytes, which
 * may be anything, added.  LILY_FORMAT: what came before the damage was added. */
void lily_replies_write(lily_replies *s, lily_buf *out);
int lily_replies_read(lily_replies *s, const void *bytes, size_t n, lily_err *e);

#endif
