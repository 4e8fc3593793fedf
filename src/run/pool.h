/* pool.h - the conversations in memory: with which one a prompt goes on, and which are given up for room.  Private to
 * src/run; the engine's thread alone calls it.
 *
 * A session is taken for a request and given back at its end.  TAKE looks for the longest prefix among all sessions,
 * also those that run.  The session itself goes on when it loses nothing but its last reply by that; else a branch of
 * it is made, which shares the device's memory, so that a system prompt is read once for all conversations.
 *
 * Memory.  Sessions that nobody runs never hold more than a budget together.  Of those that run the one that was taken
 * first may fill the context; the others are its guests, and together they never hold more than `memory.cache`: who
 * would exceed that waits until an older one is given back.  So all of them never hold more than was planned, and there
 * is always one that can go on.  Room is made when it is needed, from the session that was used longest ago: first its
 * snapshots between the first and the newest, then all of it.
 *
 * Of sessions with which nobody has gone on yet, NEW_MOST are kept: single questions, which a program may ask by the
 * thousand, neither push out conversations nor fill the budget.
 *
 * With a cache on disk a session that is given up for room is written there first, if it is not there already, and
 * TAKE looks there too. */
#ifndef LILY_RUN_POOL_H
#define LILY_RUN_POOL_H

#include "run/disk.h"

typedef struct lily_pool lily_pool;

/* `m` and `disk` (NULL: none) must outlive the pool; m->kept is the budget. */
int lily_pool_new(lily_pool **out, const lily_loaded *m, lily_disk *disk, lily_err *e);
void lily_pool_free(lily_pool *p);

/* The session to read a prompt with, for which there is room then; the caller begins the reading.  LILY_OK with *out
 * NULL: there is no room while others run. */
int lily_pool_take(lily_pool *p, const lily_reading *r, lily_session **out, lily_err *e);
/* Before a token of the reply is fed: makes room for it.  False: it has to wait for others.  Quick when there is room
 * since the last call. */
bool lily_pool_grow(lily_pool *p, const lily_session *s);
/* At the request's end; `keep` false: it is not to be found again. */
void lily_pool_give(lily_pool *p, lily_session *s, bool keep);
/* Writes what nobody runs and is not on disk yet; with `stop` what is due, asking it between pieces.  False: it was
 * stopped. */
bool lily_pool_store(lily_pool *p, bool (*stop)(void *user), void *user);
/* Gives up all that nobody runs; what runs is given up when it is given back. */
void lily_pool_clear(lily_pool *p);
/* Reused tokens that TAKE would find now. */
uint32_t lily_pool_prefix(const lily_pool *p, const int32_t *tokens, uint32_t n);

/* Sets sessions, snapshots, bytes, budget and evictions. */
void lily_pool_stats(const lily_pool *p, lily_engine_stats *out);

#endif
