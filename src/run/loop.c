/* loop.c - see loop.h.
 *
 * A round gives each turn that replies one token, and one of those that read, in rotation, one slice.  So the pause
 * between two tokens of a reply is a token of each other and one slice.  A slice is a whole chunk when there is nobody
 * else.
 *
 * A turn begins when there is room for it, in the order of the queue.  It also waits for one that is reading the same
 * beginning just now: what both share is then read once. */
#include "run/loop.h"

#include "base/clock.h"
#include "run/engine_inside.h"
#include "run/pace.h"

#define STORE_AFTER UINT64_C(1000000000)    /* ns without work, before conversations are written to disk */

typedef struct loop {
    lily_engine *g;
    lily_turn *turn;            /* [g->parallel], in the order in which they came */
    uint32_t n;
    uint32_t next_read;         /* the rotation */
    lily_pace pace;
    uint64_t store_at;          /* lily_now_ns: conversations are written then, unless there is work; UINT64_MAX: never */
} loop;

/* ---- coming and going ---- */

static void publish(lily_engine *g)
{
    lily_engine_stats now = {0};
    if (!g->pool) return;
    lily_pool_stats(g->pool, &now);
    pthread_mutex_lock(&g->lock);
    g->kept = now;
    pthread_mutex_unlock(&g->lock);
}

static void clear_if_asked(lily_engine *g)
{
    if (!atomic_load(&g->clear)) return;
    if (g->pool) lily_pool_clear(g->pool);
    if (g->disk) lily_disk_clear(g->disk);
    publish(g);
    atomic_store(&g->clear, false);     /* last: until now the figures are not believed */
}

static void admit(loop *l)
{
    while (l->n < l->g->parallel) {
        lily_request *r = lily_queue_take(l->g->queue);
        if (!r) break;
        lily_turn *t = &l->turn[l->n++];
        lily_turn_begin(t, r, &l->g->m);
        t->pool = l->g->pool;
        t->script = l->g->script;
    }
    clear_if_asked(l->g);
}

/* Who has the END finds the figures true, and the engine idle if it was the last. */
static void end_turn(loop *l, uint32_t i, int rc)
{
    lily_turn over = l->turn[i];
    for (l->n--; i < l->n; i++) l->turn[i] = l->turn[i + 1];
    clear_if_asked(l->g);
    lily_turn_close(&over, rc);
    if (l->g->disk) l->store_at = lily_now_ns() + STORE_AFTER;
    publish(l->g);
    lily_turn_end(&over);
}

/* ---- steps ---- */

/* The next place at which `o`, which reads, will leave a snapshot that `t` could begin from; 0: none. */
static uint32_t shared_snapshot(const lily_turn *o, const lily_turn *t)
{
    const lily_ask *a = &t->r->ask, *b = &o->r->ask;
    uint32_t same = 0, most = a->n_tokens < b->n_tokens ? a->n_tokens : b->n_tokens, place = 0;
    while (same < most - 1 && a->tokens[same] == b->tokens[same]) same++;
    for (uint32_t i = 0; i < o->reading.n_wanted; i++)
        if (o->reading.wanted[i] <= same) place = o->reading.wanted[i];
    return place > o->reading.n_read ? place : 0;
}

static bool waits_for_reader(const loop *l, const lily_turn *t)
{
    const lily_ask *a = &t->r->ask;
    uint32_t place = 0;
    if (a->no_reuse) return false;
    for (const lily_turn *o = l->turn; o < l->turn + l->n; o++) {
        if (o->phase != LILY_PHASE_READ || !o->session) continue;
        uint32_t p = shared_snapshot(o, t);
        if (p > place) place = p;
    }
    return place && place > lily_pool_prefix(t->pool, a->tokens, a->n_tokens - 1);
}

static uint32_t slice(const loop *l, const lily_turn *t)
{
    uint32_t ms = 0;
    for (const lily_turn *o = l->turn; o < l->turn + l->n; o++) {
        uint32_t least = o->phase == LILY_PHASE_REPLY ? LILY_SLICE_MS : LILY_SLICE_READING_MS;
        if (o != t && (!ms || least < ms)) ms = least;
    }
    return ms ? lily_pace_slice(&l->pace, ms) : UINT32_MAX;
}

static int read_slice(loop *l, lily_turn *t)
{
    uint64_t start = lily_now_ns();
    uint32_t most = slice(l, t), before = t->reading.n_read;
    TRY(lily_model_read(t, most, &t->err));
    if (most < UINT32_MAX) lily_pace_sliced(&l->pace, t->reading.n_read - before, lily_now_ns() - start);
    return LILY_OK;
}

static int reply(loop *l, lily_turn *t)
{
    uint64_t start = lily_now_ns();
    t->alone = l->n == 1;
    TRY(lily_model_reply(t, &t->err));
    lily_pace_decoded(&l->pace, lily_now_ns() - start);
    return LILY_OK;
}

static int step(loop *l, lily_turn *t)
{
    if (atomic_load(&t->r->cancel)) return lily_fail(&t->err, LILY_CANCELLED, "cancelled");
    if (t->phase == LILY_PHASE_READ && t->session) return read_slice(l, t);
    if (t->script && (!t->asked || t->reply)) return lily_script_step(t, &t->err);
    return t->phase == LILY_PHASE_BEGIN ? lily_model_begin(t, &t->err) : reply(l, t);
}

/* The turn whose slice it is; l->n: nobody reads. */
static uint32_t whose_slice(loop *l)
{
    for (uint32_t k = 0; k < l->n; k++) {
        uint32_t i = (l->next_read + k) % l->n;
        if (l->turn[i].phase == LILY_PHASE_READ && l->turn[i].session) return i;
    }
    return l->n;
}

/* `reading`: the request whose slice it is.  `full`: one that came earlier waits for room already. */
static bool may_step(const loop *l, const lily_turn *t, uint64_t now, const lily_request *reading, bool full)
{
    if (atomic_load(&t->r->cancel)) return true;
    if (!lily_turn_is_due(t, now)) return false;
    if (!t->pool) return true;
    if (t->phase == LILY_PHASE_READ) return t->r == reading;
    if (t->phase == LILY_PHASE_REPLY) return lily_pool_grow(t->pool, t->session);
    return !full && !waits_for_reader(l, t);
}

/* A turn that was alone may have submitted a run too many for others to come between. */
static void land(loop *l)
{
    for (uint32_t i = 0; i < l->n && l->n > 1;) {
        int rc = lily_model_land(&l->turn[i], &l->turn[i].err);
        if (rc != LILY_OK)
            end_turn(l, i, rc);
        else
            i++;
    }
}

/* One step of each turn that may take one; false: nobody had anything to do. */
static bool round_of(loop *l)
{
    bool worked = false, full = false, moved = false;
    land(l);
    uint64_t now = lily_now_ns();
    uint32_t reader = whose_slice(l);
    const lily_request *reading = reader < l->n ? l->turn[reader].r : NULL;
    l->next_read = reader + 1;
    for (uint32_t i = 0; i < l->n;) {
        lily_turn *t = &l->turn[i];
        if (!may_step(l, t, now, reading, full)) {
            i++;
            continue;
        }
        moved |= t->phase != LILY_PHASE_REPLY;
        int rc = step(l, t);
        bool waits = rc == LILY_OK && t->phase == LILY_PHASE_BEGIN;
        full |= waits;
        worked |= !waits;
        if (rc != LILY_OK || t->phase == LILY_PHASE_OVER)
            end_turn(l, i, rc);
        else
            i++;
    }
    if (moved) publish(l->g);
    return worked;
}

static bool has_news(void *queue) { return lily_queue_has_news(queue); }

/* Writes what has changed since the last time, until there is work. */
static void store(loop *l)
{
    if (l->n > 0 || lily_now_ns() < l->store_at) return;
    if (lily_pool_store(l->g->pool, has_news, l->g->queue)) {
        lily_disk_save_replies(l->g->disk, l->g->replies);
        l->store_at = UINT64_MAX;
    } else {
        l->store_at = lily_now_ns() + STORE_AFTER;
    }
}

static void store_at_end(loop *l)
{
    if (!l->g->disk) return;
    clear_if_asked(l->g);
    (void)lily_pool_store(l->g->pool, NULL, NULL);
    lily_disk_save_replies(l->g->disk, l->g->replies);
}

/* When the first of the turns has something to do, or there is something to store. */
static uint64_t soonest(const loop *l)
{
    uint64_t soon = l->n == 0 ? l->store_at : UINT64_MAX;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->turn[i].due < soon) soon = l->turn[i].due;
    return soon;
}

void *lily_loop(void *engine)
{
    loop l = {.g = engine, .turn = ((lily_engine *)engine)->turn, .store_at = UINT64_MAX};
    for (;;) {
        admit(&l);
        if (l.n == 0 && lily_queue_work(l.g->queue)) continue;
        if (round_of(&l)) continue;
        store(&l);
        bool open = lily_queue_wait(l.g->queue, soonest(&l));
        if (open || l.n > 0) continue;
        store_at_end(&l);
        return NULL;
    }
}
