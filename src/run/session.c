/* session.c - see session.h. */
#include "run/session.h"

#include <string.h>

#include "base/mem.h"

enum {
    /* Snapshots that are kept for marks; of the other two one stands at the newest chunk's end and one is its
     * predecessor, which goes only when its successor is there. */
    MARKS_KEPT = LILY_SNAPSHOTS - 2,
    NEWEST_KEPT = 4,        /* of these the newest ones, and the first: the others are spread between */
    HEADER = 64,            /* tokens at most between the last mark of a prompt and its reply */
};

/* A run of one token that was submitted before the choice in front of it was read.  What it reads is among the session's
 * tokens by the time a STEP returns; what it chose is for the next STEP. */
typedef struct flight {
    bool on;                                /* there is one that nobody has asked for yet, */
    bool again;                             /* its choice was made anew, */
    bool over;                              /* and its answer is here: */
    uint64_t ticket;
    int rc;
    lily_err err;
    lily_done done;
} flight;

struct lily_session {
    const lily_loaded *m;
    lily_state *state;
    flight flight;
    int32_t *tokens;                        /* [room] */
    uint32_t n, room;                       /* n: the state's position */
    uint32_t settled;                       /* the last prompt, of which nothing may be lost */
    uint32_t snapshot[LILY_SNAPSHOTS];      /* positions, ascending, at most n */
    uint32_t n_snapshots;
    uint32_t rolling;                       /* the snapshot of the newest chunk's end, if it is no mark; 0: none */
};

int lily_session_new(lily_session **out, const lily_loaded *m, lily_err *e)
{
    lily_session *s = lily_calloc(1, sizeof *s);
    if (!s) return lily_no_memory(e, sizeof *s, "a session");
    s->m = m;
    int rc = m->ops->state_new(m->dev, m->weights, &s->state, e);
    if (rc == LILY_OK)
        *out = s;
    else
        lily_session_free(s);
    return rc;
}

void lily_session_free(lily_session *s)
{
    if (!s) return;
    lily_session_forget_flight(s);
    if (s->state) s->m->ops->state_free(s->m->dev, s->state);
    lily_free(s->tokens);
    lily_free(s);
}

const int32_t *lily_session_tokens(const lily_session *s, uint32_t *n)
{
    *n = s->n;
    return s->tokens;
}

uint32_t lily_session_positions(const lily_session *s, uint32_t out[LILY_SNAPSHOTS + 1])
{
    uint32_t n = s->n_snapshots;
    memcpy(out, s->snapshot, n * sizeof *out);
    if (n == 0 || out[n - 1] != s->n) out[n++] = s->n;
    return n;
}

/* Room for n tokens in all. */
static int grow_tokens(lily_session *s, uint32_t n, lily_err *e)
{
    if (n <= s->room) return LILY_OK;
    uint64_t room = ((uint64_t)n + LILY_KV_PAGE - 1) / LILY_KV_PAGE * LILY_KV_PAGE;
    int32_t *grown = lily_realloc(s->tokens, room, sizeof *grown);
    if (!grown) return lily_no_memory(e, room * sizeof *grown, "a session's tokens");
    s->tokens = grown;
    s->room = (uint32_t)room;
    return LILY_OK;
}

uint64_t lily_session_bytes(const lily_session *s)
{
    return sizeof *s + s->room * sizeof *s->tokens + s->m->ops->state_bytes(s->state);
}

uint64_t lily_session_growth(const lily_loaded *m, uint32_t tokens, uint32_t snapshots)
{
    uint64_t fixed, snapshot, per_token;
    m->ops->state_cost(m->config, &fixed, &snapshot, &per_token);
    /* A page begun, and one that was shared until now. */
    uint64_t room = ((uint64_t)tokens + LILY_KV_PAGE - 1) / LILY_KV_PAGE * LILY_KV_PAGE + LILY_KV_PAGE;
    return snapshot * snapshots + room * (per_token + sizeof(int32_t));
}

uint64_t lily_session_cost(const lily_loaded *m, uint32_t tokens, uint32_t snapshots)
{
    enum { HEADERS = 8192 };    /* of blocks and pages, lists of them */
    uint64_t fixed, snapshot, per_token;
    m->ops->state_cost(m->config, &fixed, &snapshot, &per_token);
    return fixed + lily_session_growth(m, tokens, snapshots) + HEADERS;
}

uint32_t lily_session_snapshots(const lily_session *s) { return s->n_snapshots; }

uint32_t lily_session_settled(const lily_session *s) { return s->settled; }

/* ---- snapshots ---- */

/* The state stands at `position` now: what came later is gone. */
static void forget_after(lily_session *s, uint32_t position)
{
    while (s->n_snapshots && s->snapshot[s->n_snapshots - 1] > position) s->n_snapshots--;
    if (s->rolling > position) s->rolling = 0;
    if (s->settled > position) s->settled = position;
    s->n = position;
}

static void drop(lily_session *s, uint32_t position)
{
    for (uint32_t i = 0; i < s->n_snapshots; i++) {
        if (s->snapshot[i] != position) continue;
        s->m->ops->state_drop(s->m->dev, s->state, position);
        memmove(s->snapshot + i, s->snapshot + i + 1, (s->n_snapshots - i - 1) * sizeof *s->snapshot);
        s->n_snapshots--;
        return;
    }
}

/* Of n ascending positions the one without which the largest gap is smallest, the first, the newest and `spared` left
 * out; 0: there is none. */
static uint32_t least_missed(const uint32_t *at, uint32_t n, uint32_t newest, uint32_t spared)
{
    uint32_t least = 0, gap = UINT32_MAX;
    for (uint32_t i = 1; i + newest < n; i++) {
        if (at[i] == spared || at[i + 1] - at[i - 1] >= gap) continue;
        least = i;
        gap = at[i + 1] - at[i - 1];
    }
    return least;
}

bool lily_session_thin(lily_session *s)
{
    enum { NEWEST = 2 };
    uint32_t i = least_missed(s->snapshot, s->n_snapshots, NEWEST, s->settled);
    if (i == 0) return false;
    if (s->snapshot[i] == s->rolling) s->rolling = 0;
    drop(s, s->snapshot[i]);
    return true;
}

/* The state goes back to a snapshot, or to the start. */
static int go_back(lily_session *s, uint32_t position, lily_err *e)
{
    if (position == s->n) return LILY_OK;
    int rc = s->m->ops->state_copy(s->m->dev, s->state, s->state, position, e);
    forget_after(s, s->m->ops->state_position(s->state));
    return rc;
}

int lily_session_reset(lily_session *s, lily_err *e) { return go_back(s, 0, e); }

/* ---- runs ---- */

/* The choice is submitted alone: what it may be is found out while the device works on the rest. */
static int submit_guided(lily_session *s, lily_exec *exec, lily_lane lane, const lily_feed *f, lily_done *done,
                         lily_err *e)
{
    const lily_dev_ops *ops = s->m->ops;
    lily_pick pick = *f->pick;
    uint64_t ticket;
    TRY(ops->submit(s->m->dev, exec, LILY_FORWARD, LILY_HEAD, &lane, 1, &ticket, e));
    int rc = f->allow(f->user, &pick.allow, e);
    int ran = ops->wait(s->m->dev, ticket, done, 1, rc == LILY_OK ? e : NULL);
    if (rc != LILY_OK) return rc;
    if (ran != LILY_OK || done->cancelled) return ran;
    uint64_t before = done->device_ns;
    lane.pick = &pick;
    TRY(ops->submit(s->m->dev, exec, LILY_PICK, LILY_PICK, &lane, 1, &ticket, e));
    TRY(ops->wait(s->m->dev, ticket, done, 1, e));
    done->device_ns += before;
    return LILY_OK;
}

static lily_exec *exec_of(const lily_session *s, const lily_feed *f)
{
    return f->exec ? f->exec : f->n == 1 ? s->m->run_decode : s->m->run_prefill;
}

static lily_lane lane_of(const lily_session *s, const lily_feed *f)
{
    return (lily_lane){.state = s->state,
                       .tokens = f->tokens,
                       .n_tokens = f->n,
                       .pick = f->pick,
                       .count = f->count,
                       .scored = f->scored,
                       .mark = f->marks,
                       .n_marks = f->n_marks,
                       .cancel = f->cancel};
}

static int submit(lily_session *s, const lily_feed *f, uint64_t *ticket, lily_err *e)
{
    const lily_lane lane = lane_of(s, f);
    enum lily_segment last = f->pick ? LILY_PICK : f->scored ? LILY_HEAD : LILY_FORWARD;
    return s->m->ops->submit(s->m->dev, exec_of(s, f), LILY_FORWARD, last, &lane, 1, ticket, e);
}

static int run(lily_session *s, const lily_feed *f, lily_done *done, lily_err *e)
{
    uint64_t ticket;
    if (f->allow) return submit_guided(s, exec_of(s, f), lane_of(s, f), f, done, e);
    TRY(submit(s, f, &ticket, e));
    return s->m->ops->wait(s->m->dev, ticket, done, 1, e);
}

/* After a run that did not get through.  A position that is no snapshot would stand for unknown tokens: the device
 * broke its word, and nothing is believed. */
static void set_back(lily_session *s, uint32_t position)
{
    bool known = position == 0 || position == s->n;
    for (uint32_t i = 0; i < s->n_snapshots; i++) known |= s->snapshot[i] == position;
    if (!known) {
        lily_err ignored;
        (void)s->m->ops->state_copy(s->m->dev, s->state, s->state, 0, &ignored);
        position = 0;
    }
    forget_after(s, position);
}

/* Room for what is fed, here and in the state. */
static int make_room(lily_session *s, const lily_feed *f, lily_err *e)
{
    if (f->n == 0 || f->n > s->m->context - s->n)
        return lily_fail(e, LILY_CONTEXT, "%u more tokens after %u do not fit into a context of %u", f->n, s->n,
                         s->m->context);
    if (s->n_snapshots + f->n_marks > LILY_SNAPSHOTS)
        return lily_fail(e, LILY_INTERNAL, "%u snapshots are too many", s->n_snapshots + f->n_marks);
    TRY(grow_tokens(s, s->n + f->n, e));
    return s->m->ops->state_grow(s->m->dev, s->state, s->n + f->n, e);
}

/* What was fed, once the device has run it or has not; false: it has not. */
static bool note_fed(lily_session *s, const lily_feed *f)
{
    uint32_t before = s->n, position = s->m->ops->state_position(s->state);
    if (position != before + f->n) {
        set_back(s, position);
        return false;
    }
    /* Also when it was cancelled, or failed, behind the forward pass: the state has read the tokens. */
    memcpy(s->tokens + before, f->tokens, f->n * sizeof *s->tokens);
    for (uint32_t i = 0; i < f->n_marks; i++) s->snapshot[s->n_snapshots++] = before + f->marks[i];
    s->n = before + f->n;
    return true;
}

int lily_session_feed(lily_session *s, const lily_feed *f, lily_done *done, lily_err *e)
{
    lily_session_forget_flight(s);
    *done = (lily_done){.token = -1};
    TRY(make_room(s, f, e));
    uint32_t after = s->n + f->n;
    int rc = run(s, f, done, e);
    bool fed = note_fed(s, f);
    if (rc != LILY_OK) return rc;
    if (done->cancelled) return lily_fail(e, LILY_CANCELLED, "cancelled");
    if (!fed) return lily_fail(e, LILY_INTERNAL, "a run left the state at another position than %u", after);
    return LILY_OK;
}

/* ---- a run before the choice in front of it is read ---- */

static void end(const lily_session *s, flight *f)
{
    if (!f->on || f->over) return;
    f->rc = s->m->ops->wait(s->m->dev, f->ticket, &f->done, 1, &f->err);
    f->over = true;
}

void lily_session_end_flight(lily_session *s) { end(s, &s->flight); }

void lily_session_forget_flight(lily_session *s)
{
    end(s, &s->flight);
    s->flight.on = false;
}

bool lily_session_flies(const lily_session *s) { return s->flight.on; }

int lily_session_choose_again(lily_session *s, const lily_pick *pick, lily_err *e)
{
    const lily_lane lane = {.state = s->state, .tokens = s->tokens + s->n - 1, .n_tokens = 1, .pick = pick, .count = true};
    flight *f = &s->flight;
    if (f->again) return LILY_OK;
    end(s, f);
    if (f->rc != LILY_OK) return LILY_OK; /* the next STEP tells */
    TRY(s->m->ops->submit(s->m->dev, s->m->run_decode, LILY_PICK, LILY_PICK, &lane, 1, &f->ticket, e));
    f->again = true;
    f->over = false;
    return LILY_OK;
}

/* The run of what is fed.  It is off again when it was cancelled before it began. */
static int begin_step(lily_session *s, const lily_feed *f, flight *front, lily_err *e)
{
    *front = (flight){.over = false};
    TRY(make_room(s, f, e));
    int rc = submit(s, f, &front->ticket, e);
    front->on = note_fed(s, f);
    return rc;
}

/* The run that reads what the one in front of it will choose. */
static int take_off(lily_session *s, const lily_pick *pick, lily_err *e)
{
    const lily_lane lane = {.state = s->state, .n_tokens = 1, .pick = pick, .count = true};
    TRY(grow_tokens(s, s->n + 1, e));
    TRY(s->m->ops->state_grow(s->m->dev, s->state, s->n + 1, e));
    int rc = s->m->ops->submit(s->m->dev, s->m->run_decode, LILY_FORWARD, LILY_PICK, &lane, 1, &s->flight.ticket, e);
    if (rc != LILY_OK) set_back(s, s->m->ops->state_position(s->state));
    s->flight.on = rc == LILY_OK;
    s->flight.again = s->flight.over = false;
    s->flight.rc = LILY_OK;
    return rc;
}

/* What the run behind has read is what the one in front chose; if that chose nothing, nobody knows. */
static void note_handed(lily_session *s, int32_t token)
{
    lily_err ignored;
    if (token >= 0) {
        s->tokens[s->n++] = token;
        return;
    }
    lily_session_forget_flight(s);
    (void)s->m->ops->state_copy(s->m->dev, s->state, s->state, s->n_snapshots ? s->snapshot[s->n_snapshots - 1] : 0,
                                &ignored);
    set_back(s, s->m->ops->state_position(s->state));
}

int lily_session_step(lily_session *s, const lily_feed *f, const lily_pick *next, lily_done *done, lily_err *e)
{
    flight front = s->flight;
    lily_err late;
    int flies = LILY_OK;
    if (!front.on && !next) return lily_session_feed(s, f, done, e);
    if (front.on && s->tokens[s->n - 1] != f->tokens[0])
        return lily_fail(e, LILY_INTERNAL, "the token that was read is %d, not %d", (int)s->tokens[s->n - 1], (int)f->tokens[0]);
    if (!front.on) TRY(begin_step(s, f, &front, e));
    s->flight.on = false;
    if (next && front.on && front.rc == LILY_OK && s->n < s->m->context) flies = take_off(s, next, &late);
    front.on = true;
    end(s, &front);
    *done = front.done;
    if (front.rc != LILY_OK || done->cancelled) done->token = -1;
    if (s->flight.on) note_handed(s, done->token);
    if (front.rc != LILY_OK) {
        *e = front.err;
        return front.rc;
    }
    if (flies != LILY_OK) {
        *e = late;
        return flies;
    }
    return done->cancelled ? lily_fail(e, LILY_CANCELLED, "cancelled") : LILY_OK;
}

/* ---- prompts ---- */

uint32_t lily_session_prefix(const lily_session *s, const int32_t *tokens, uint32_t n)
{
    uint32_t same = 0, most = s->n < n ? s->n : n;
    while (same < most && s->tokens[same] == tokens[same]) same++;
    if (same == s->n) return same;
    for (uint32_t i = s->n_snapshots; i-- > 0;)
        if (s->snapshot[i] <= same) return s->snapshot[i];
    return 0;
}

int lily_session_branch(lily_session *s, const lily_session *from, uint32_t position, lily_err *e)
{
    TRY(grow_tokens(s, position, e));
    TRY(s->m->ops->state_copy(s->m->dev, s->state, from->state, position, e));
    if (position) memcpy(s->tokens, from->tokens, position * sizeof *s->tokens);
    s->n = s->settled = position;
    for (uint32_t i = 0; i < from->n_snapshots && from->snapshot[i] <= position; i++)
        s->snapshot[s->n_snapshots++] = from->snapshot[i];
    return LILY_OK;
}

lily_state *lily_session_state(const lily_session *s) { return s->state; }

int lily_session_fill(lily_session *s, const int32_t *tokens, uint32_t n, lily_err *e)
{
    TRY(grow_tokens(s, n, e));
    memcpy(s->tokens, tokens, n * sizeof *tokens);
    return s->m->ops->state_grow(s->m->dev, s->state, n, e);
}

void lily_session_filled(lily_session *s)
{
    s->n = s->settled = s->m->ops->state_position(s->state);
    s->n_snapshots = (uint32_t)s->m->ops->state_positions(s->state, s->snapshot, LILY_SNAPSHOTS);
    if (s->n == 0 || s->n_snapshots > LILY_SNAPSHOTS) s->n_snapshots = 0;
}

/* Positions in ascending order, of which MARKS_KEPT stay, `fork` among them. */
typedef struct chosen {
    uint32_t at[MARKS_KEPT + 1], n, fork;
} chosen;

static void choose(chosen *c, uint32_t position)
{
    if (c->n && c->at[c->n - 1] == position) return;
    c->at[c->n++] = position;
    if (c->n <= MARKS_KEPT) return;
    uint32_t i = least_missed(c->at, c->n, NEWEST_KEPT, c->fork);
    memmove(c->at + i, c->at + i + 1, (c->n - i - 1) * sizeof *c->at);
    c->n--;
}

/* The snapshots there are, the marks behind them and the places between, the end. */
static void choose_all(chosen *c, const lily_session *s, const lily_reading *p)
{
    for (uint32_t i = 0; i < s->n_snapshots; i++)
        if (s->snapshot[i] != s->rolling) choose(c, s->snapshot[i]);
    uint32_t between = (s->n / LILY_SNAPSHOT_DISTANCE + 1) * LILY_SNAPSHOT_DISTANCE;
    for (uint32_t i = 0; i <= p->n_marks; i++) {
        uint32_t mark = i < p->n_marks && p->marks[i] < p->n ? p->marks[i] : p->n;
        if (mark <= s->n) continue;
        for (; between < mark; between += LILY_SNAPSHOT_DISTANCE) choose(c, between);
        choose(c, mark);
    }
}

static bool holds(const chosen *c, uint32_t position)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->at[i] == position) return true;
    return false;
}

/* Which snapshots to have when the prompt is read: its end and the newest, the first of all because conversations
 * share their beginning, the one where the next turn may fork off, and some between.  What finds no room is dropped, or not taken.  A snapshot at the end of
 * a chunk, where an unfinished prompt was left, is not counted: READ drops it when it has a newer one. */
static void choose_marks(lily_session *s, lily_reading *p)
{
    chosen c = {.fork = p->fork};
    /* The state stands at the end already, and a snapshot there is worth keeping. */
    if (p->n == s->n) s->rolling = 0;
    choose_all(&c, s, p);
    for (uint32_t i = s->n_snapshots; i-- > 0;)
        if (s->snapshot[i] != s->rolling && !holds(&c, s->snapshot[i])) drop(s, s->snapshot[i]);
    for (uint32_t i = 0; i < c.n; i++)
        if (c.at[i] > s->n) p->wanted[p->n_wanted++] = c.at[i];
}

/* A later prompt often parts from this one where it forks, or at its last mark, a few tokens before its end. */
static uint32_t settled_at(const lily_reading *p)
{
    uint32_t at = p->n;
    if (p->fork && p->fork <= p->n) return p->fork;
    for (uint32_t i = p->n_marks; i-- > 0 && at == p->n;)
        if (p->marks[i] <= p->n && p->n - p->marks[i] <= HEADER) at = p->marks[i];
    return at;
}

int lily_session_begin(lily_session *s, lily_reading *p, lily_err *e)
{
    lily_session_forget_flight(s);
    p->n_read = p->n_wanted = 0;
    if (p->n >= s->m->context)
        return lily_fail(e, LILY_CONTEXT, "a prompt of %u tokens leaves no room in a context of %u", p->n + 1,
                         s->m->context);
    TRY(go_back(s, p->fresh ? 0 : lily_session_prefix(s, p->tokens, p->n), e));
    s->m->ops->state_count_reset(s->state);
    p->n_read = s->n;
    s->settled = settled_at(p);
    if (!p->fresh) choose_marks(s, p);
    return LILY_OK;
}

/* Whether a run of n tokens that takes these snapshots should leave one at its end, too: not for a short slice. */
static bool worth_rolling(const lily_session *s, const lily_reading *p, uint32_t n, const uint32_t *offset,
                          uint32_t n_offsets)
{
    uint32_t newest = s->n_snapshots ? s->snapshot[s->n_snapshots - 1] : 0;
    if (n_offsets) newest = s->n + offset[n_offsets - 1];
    return !p->fresh && s->n + n - newest >= s->m->chunk;
}

int lily_session_read(lily_session *s, lily_reading *p, uint32_t most, const atomic_bool *cancel, lily_err *e)
{
    uint32_t start = s->n, left = p->n - start, n = left < s->m->chunk ? left : s->m->chunk;
    uint32_t offset[LILY_SNAPSHOTS + 1], n_offsets = 0;
    if (left == 0) return LILY_OK;
    if (n > most) n = most;
    for (uint32_t i = 0; i < p->n_wanted; i++)
        if (p->wanted[i] > start && p->wanted[i] <= start + n) offset[n_offsets++] = p->wanted[i] - start;
    bool rolls = worth_rolling(s, p, n, offset, n_offsets);
    if (rolls) offset[n_offsets++] = n;
    lily_feed f = {.tokens = p->tokens + start, .n = n, .marks = offset, .n_marks = n_offsets, .cancel = cancel};
    lily_done done;
    int rc = lily_session_feed(s, &f, &done, e);
    if (rc == LILY_OK && n_offsets) {
        if (s->rolling) drop(s, s->rolling);
        s->rolling = rolls ? s->n : 0;
    }
    p->n_read = s->n;
    return rc;
}
