/* pool.c - see pool.h. */
#include "run/pool.h"

#include "base/log.h"
#include "base/mem.h"

enum {
    MOST = 64,              /* sessions */
    NEW_MOST = 8,           /* kept sessions with which nobody has gone on yet */
    AHEAD = 512,            /* tokens of a reply that there is room for at a time */
    WORTH_STORING = 64,     /* tokens: less is sooner read again than fetched */
    WORTH_FETCHING = 32,    /* tokens that the disk must have more than memory */
};

typedef struct entry {
    lily_session *s;        /* NULL: free */
    bool runs, forget;      /* forget: given up when it is given back */
    bool proven;            /* a second request went on with it */
    uint64_t used;          /* when it was given back, in calls */
    uint64_t stored;        /* the value of `used` for which it was written, or found not to be worth it */
    uint64_t most;          /* while it runs: bytes that it may come to hold */
    uint32_t granted;       /* while it runs: position up to which there is room */
} entry;

struct lily_pool {
    const lily_loaded *m;
    lily_disk *disk;        /* or NULL */
    uint64_t budget, limit; /* of what is kept; of everything */
    uint64_t calls;
    uint64_t evicted_sessions, evicted_snapshots;
    entry at[MOST];
};

int lily_pool_new(lily_pool **out, const lily_loaded *m, lily_disk *disk, lily_err *e)
{
    lily_pool *p = lily_calloc(1, sizeof *p);
    if (!p) return lily_no_memory(e, sizeof *p, "conversations");
    p->m = m;
    p->disk = disk;
    p->budget = m->kept;
    p->limit = m->memory.cache + lily_session_cost(m, m->context, LILY_SNAPSHOTS);
    *out = p;
    return LILY_OK;
}

/* ---- giving up ---- */

static void give_up(entry *i)
{
    lily_session_free(i->s);
    *i = (entry){0};
}

void lily_pool_clear(lily_pool *p)
{
    for (entry *i = p->at; i < p->at + MOST; i++) {
        i->forget = i->runs;
        if (i->s && !i->runs) give_up(i);
    }
}

void lily_pool_free(lily_pool *p)
{
    if (!p) return;
    for (entry *i = p->at; i < p->at + MOST; i++)
        if (i->s) give_up(i);
    lily_free(p);
}

/* Each is tried once for each use: a disk that is full is not written to again and again.  False: it was stopped. */
static bool store(lily_pool *p, entry *i, bool sync, bool (*stop)(void *user), void *user)
{
    lily_err e;
    uint32_t n;
    if (!p->disk || i->stored == i->used) return true;
    if (stop && !lily_disk_is_due(p->disk, i->s)) return true;
    (void)lily_session_tokens(i->s, &n);
    bool done = n < WORTH_STORING || lily_disk_has(p->disk, i->s);
    int rc = done ? LILY_OK : lily_disk_save(p->disk, i->s, sync, stop, user, &e);
    if (rc == LILY_CANCELLED) return false;
    if (rc != LILY_OK) lily_log(LILY_LOG_WARN, "cache: %s", e.text);
    i->stored = i->used;
    return true;
}

bool lily_pool_store(lily_pool *p, bool (*stop)(void *user), void *user)
{
    for (entry *i = p->at; i < p->at + MOST; i++)
        if (i->s && !i->runs && !store(p, i, true, stop, user)) return false;
    return true;
}

/* Gives up for want of room, which a request may be waiting for: the disk is not. */
static void put_away(lily_pool *p, entry *i)
{
    (void)store(p, i, false, NULL, NULL);
    p->evicted_sessions++;
    give_up(i);
}

/* Of those that nobody runs, but for `spared`, the one that was used longest ago. */
static entry *oldest(lily_pool *p, const lily_session *spared)
{
    entry *found = NULL;
    for (entry *i = p->at; i < p->at + MOST; i++) {
        if (!i->s || i->runs || i->s == spared) continue;
        if (!found || i->used < found->used) found = i;
    }
    return found;
}

/* The oldest of those that nobody went on with, when there are too many; else NULL. */
static entry *surplus(lily_pool *p)
{
    entry *found = NULL;
    uint32_t n = 0;
    for (entry *i = p->at; i < p->at + MOST; i++) {
        if (!i->s || i->runs || i->proven) continue;
        if (!found || i->used < found->used) found = i;
        n++;
    }
    return n > NEW_MOST ? found : NULL;
}

/* Gives up a snapshot or a session; false: there is none. */
static bool give_up_some(lily_pool *p, const lily_session *spared)
{
    entry *i = oldest(p, spared);
    if (!i) return false;
    if (lily_session_thin(i->s)) {
        p->evicted_snapshots++;
    } else {
        put_away(p, i);
    }
    return true;
}

static uint64_t bytes(const lily_pool *p, bool kept, bool running)
{
    uint64_t sum = 0;
    for (const entry *i = p->at; i < p->at + MOST; i++)
        if (i->s && (i->runs ? running : kept)) sum += lily_session_bytes(i->s);
    return sum;
}

/* What branches share moves to those that stay when one goes, so each time is counted anew. */
static void trim(lily_pool *p)
{
    for (entry *i; (i = surplus(p));) put_away(p, i);
    while (bytes(p, true, false) > p->budget && give_up_some(p, NULL)) {}
}

static bool make_room(lily_pool *p, uint64_t wanted, const lily_session *spared)
{
    while (bytes(p, true, true) + wanted > p->limit)
        if (!give_up_some(p, spared)) return false;
    return true;
}

/* ---- taking ---- */

/* The entry with the longest prefix, *prefix tokens; of equals one that would lose nothing. */
static entry *find(lily_pool *p, const int32_t *tokens, uint32_t n, uint32_t *prefix)
{
    entry *best = NULL;
    uint32_t best_rank = 0;
    *prefix = 0;
    for (entry *i = p->at; i < p->at + MOST; i++) {
        if (!i->s || i->forget) continue;
        uint32_t have = lily_session_prefix(i->s, tokens, n), length;
        (void)lily_session_tokens(i->s, &length);
        uint32_t rank = i->runs ? 0 : have == length ? 2 : 1;
        if (have == 0 || have < *prefix || (have == *prefix && best && rank <= best_rank)) continue;
        best = i;
        best_rank = rank;
        *prefix = have;
    }
    return best;
}

uint32_t lily_pool_prefix(const lily_pool *p, const int32_t *tokens, uint32_t n)
{
    uint32_t prefix, stored = p->disk ? lily_disk_prefix(p->disk, tokens, n) : 0;
    (void)find((lily_pool *)p, tokens, n, &prefix);
    return stored > prefix ? stored : prefix;
}

/* Whether going back so far loses no more than a reply. */
static bool may_go_on(const entry *i, uint32_t prefix)
{
    return !i->runs && prefix >= lily_session_settled(i->s);
}

static entry *free_entry(lily_pool *p, const lily_session *spared)
{
    for (int once = 0; once < 2; once++) {
        for (entry *i = p->at; i < p->at + MOST; i++)
            if (!i->s) return i;
        entry *old = oldest(p, spared);
        if (!old) break;
        put_away(p, old);
    }
    return NULL;
}

/* A session of its own, which begins as `from` at `prefix`, or empty. */
static int branch(lily_pool *p, entry *from, uint32_t prefix, entry **out, lily_err *e)
{
    const lily_session *spared = from ? from->s : NULL;
    *out = free_entry(p, spared);
    if (!*out || !make_room(p, lily_session_cost(p->m, 0, 0), spared)) {
        /* Nothing is left but to lose what `from` has. */
        *out = from;
        return from && !from->runs ? LILY_OK : lily_fail(e, LILY_BUSY, "there is no room for another conversation");
    }
    TRY(lily_session_new(&(*out)->s, p->m, e));
    int rc = from ? lily_session_branch((*out)->s, from->s, prefix, e) : LILY_OK;
    if (rc != LILY_OK) give_up(*out);
    return rc;
}

/* A session out of the cache on disk, if there is one that knows more of the prompt than `prefix` tokens; else NULL. */
static entry *fetch(lily_pool *p, const lily_reading *r, uint32_t prefix)
{
    lily_err ignored;
    entry *i;
    uint32_t stored = p->disk && !r->fresh ? lily_disk_prefix(p->disk, r->tokens, r->n) : 0;
    if (stored <= prefix || (prefix && stored - prefix < WORTH_FETCHING)) return NULL;
    (void)make_room(p, lily_session_cost(p->m, stored, LILY_SNAPSHOTS), NULL);
    if (branch(p, NULL, 0, &i, &ignored) != LILY_OK) return NULL;
    if (lily_disk_load(p->disk, i->s, r->tokens, r->n, &ignored) == LILY_OK) return i;
    give_up(i);
    return NULL;
}

/* The running session that was taken first; NULL: there is none. */
static entry *first_taken(lily_pool *p)
{
    entry *first = NULL;
    for (entry *i = p->at; i < p->at + MOST; i++)
        if (i->runs && (!first || i->used < first->used)) first = i;
    return first;
}

/* Whether the guests may hold so many bytes more. */
static bool guests_may(lily_pool *p, uint64_t more)
{
    const entry *first = first_taken(p);
    for (entry *i = p->at; i < p->at + MOST; i++)
        if (i->runs && i != first) more += i->most;
    return more <= p->m->memory.cache;
}

/* Snapshots that reading on from `prefix` adds at most. */
static uint32_t snapshots_of(const lily_reading *r, uint32_t prefix)
{
    uint32_t n = 3 + (r->n - prefix) / LILY_SNAPSHOT_DISTANCE;
    if (r->fresh) return 0;
    for (uint32_t i = 0; i < r->n_marks; i++) n += r->marks[i] > prefix;
    return n < LILY_SNAPSHOTS ? n : LILY_SNAPSHOTS;
}

/* What a session that begins as `from` (or NULL) at `prefix` may hold when the prompt is read.  One that goes on itself
 * keeps the pages of what it forgets. */
static uint64_t most_of(const lily_pool *p, const lily_reading *r, const entry *from, uint32_t prefix, bool goes_on)
{
    uint32_t n = snapshots_of(r, prefix) + (from ? lily_session_snapshots(from->s) : 0);
    if (n > LILY_SNAPSHOTS) n = LILY_SNAPSHOTS;
    uint64_t anew = lily_session_cost(p->m, r->n + AHEAD, n), held = 0;
    if (goes_on) held = lily_session_bytes(from->s) + lily_session_growth(p->m, 0, snapshots_of(r, prefix));
    return held > anew ? held : anew;
}

/* The best session in memory for a prompt, *prefix tokens of it, and whether it goes on itself; or NULL. */
static entry *look(lily_pool *p, const lily_reading *r, uint32_t *prefix, bool *goes_on)
{
    *prefix = 0;
    entry *i = r->fresh ? NULL : find(p, r->tokens, r->n, prefix);
    *goes_on = i && may_go_on(i, *prefix);
    return i;
}

int lily_pool_take(lily_pool *p, const lily_reading *r, lily_session **out, lily_err *e)
{
    uint32_t prefix;
    bool goes_on, guest = first_taken(p) != NULL;
    *out = NULL;
    if (guest && !guests_may(p, lily_session_cost(p->m, r->n + AHEAD, 0))) return LILY_OK;     /* for sure, and quick */
    entry *i = look(p, r, &prefix, &goes_on);
    if (guest && !guests_may(p, most_of(p, r, i, prefix, goes_on))) return LILY_OK;
    entry *fetched = fetch(p, r, prefix);
    i = fetched ? fetched : look(p, r, &prefix, &goes_on);     /* anew: FETCH may have given up what there was */
    uint64_t most = most_of(p, r, i, prefix, goes_on || fetched);
    if (!fetched && !goes_on) TRY(branch(p, i, prefix, &i, e));
    else i->proven = true;
    i->runs = true;
    i->used = ++p->calls;
    i->most = most;
    i->granted = r->n + AHEAD;
    (void)make_room(p, lily_session_growth(p->m, i->granted - prefix, snapshots_of(r, prefix)), NULL);
    trim(p);
    *out = i->s;
    return LILY_OK;
}

/* ---- while it runs, and its end ---- */

static entry *entry_of(lily_pool *p, const lily_session *s)
{
    entry *i = p->at;
    while (i->s != s) i++;
    return i;
}

bool lily_pool_grow(lily_pool *p, const lily_session *s)
{
    entry *i = entry_of(p, s);
    uint32_t n;
    (void)lily_session_tokens(s, &n);
    if (n < i->granted) return true;
    uint32_t left = p->m->context - n, ahead = left < AHEAD ? left : AHEAD;
    uint64_t more = lily_session_growth(p->m, ahead, 0);
    if (i != first_taken(p) && !guests_may(p, more)) return false;
    i->most += more;
    i->granted = n + ahead;
    (void)make_room(p, more, NULL);
    trim(p);
    return true;
}

void lily_pool_give(lily_pool *p, lily_session *s, bool keep)
{
    entry *i = entry_of(p, s);
    uint32_t n;
    (void)lily_session_tokens(s, &n);
    i->runs = false;
    i->used = ++p->calls;
    if (!keep || i->forget || n == 0) give_up(i);
    trim(p);
}

void lily_pool_stats(const lily_pool *p, lily_engine_stats *out)
{
    out->sessions = out->snapshots = 0;
    for (const entry *i = p->at; i < p->at + MOST; i++) {
        if (!i->s) continue;
        out->sessions++;
        out->snapshots += lily_session_snapshots(i->s);
    }
    out->kept_bytes = bytes(p, true, false);
    out->running_bytes = bytes(p, false, true);
    out->cache_bytes = p->budget;
    out->evicted_sessions = p->evicted_sessions;
    out->evicted_snapshots = p->evicted_snapshots;
}
