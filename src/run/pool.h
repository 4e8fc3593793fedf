/* pool.h - the conversations in memory: with which one a prompt goes on, and which are given up for room.  Private to
 * src/run; the engine's thread alone calls it.
 *
 * A session is taken for a request and given back at its end.  TAKE looks for the longest prefix among all sessions,
 * also those that run.  The session itself goes on when it loses nothing but its last reply by that; else a branch of
 * it is made, which shares the device's memory, so that a system prompt is read once for all conversations.
 *
 * Memory.  Sessions that nobody runs never hold more than a budget together.  All of them never hold more than was planned:
 * `memory.cache` and one session at the full context.  For that, TAKE lets a further request begin only when the most
 * that those which run may come to hold fits; the first one always does.  Room is made when it is needed, from the
 * session that was used longest ago: first its snapshots between the first and the newest, then all of it.
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

/* The session to read a prompt with; the caller begins the reading.  `most`: positions that prompt and reply may come
 * to fill.  LILY_OK with *out NULL: there is no room while others run. */
int lily_pool_take(lily_pool *p, const lily_reading *r, uint32_t most, lily_session **out, lily_err *e);
/* Before so many tokens are fed and snapshots taken: gives up what stands in the way.  Quick when there is room since
 * the last call. */
void lily_pool_grow(lily_pool *p, const lily_session *s, uint32_t tokens, uint32_t snapshots);
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
