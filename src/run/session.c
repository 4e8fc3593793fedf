/* session.c - see session.h. */
#include "run/session.h"

#include <string.h>

#include "base/mem.h"

/* Snapshots that are kept for marks; of the other two one stands at the newest chunk's end and one is its
 * predecessor, which goes only when its successor is there. */
enum { MARKS_KEPT = LILY_SNAPSHOTS - 2 };

struct lily_session {
    const lily_loaded *m;
    lily_state *state;
    int32_t *tokens;                        /* [context] */
    uint32_t n;                             /* the state's position */
    uint32_t snapshot[LILY_SNAPSHOTS];      /* positions, ascending, at most n */
    uint32_t n_snapshots;
    uint32_t rolling;                       /* the snapshot of the newest chunk's end, if it is no mark; 0: none */
};

int lily_session_new(lily_session **out, const lily_loaded *m, lily_err *e)
{
    lily_session *s = lily_calloc(1, sizeof *s);
    if (!s) return lily_no_memory(e, sizeof *s, "a session");
    s->m = m;
    s->tokens = lily_calloc(m->context, sizeof *s->tokens);
    int rc = s->tokens ? LILY_OK : lily_no_memory(e, m->context * sizeof *s->tokens, "a session's tokens");
    if (rc == LILY_OK) rc = m->ops->state_new(m->dev, m->weights, &s->state, e);
    if (rc == LILY_OK)
        *out = s;
    else
        lily_session_free(s);
    return rc;
}

void lily_session_free(lily_session *s)
{
    if (!s) return;
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

/* ---- snapshots ---- */

/* The state stands at `position` now: what came later is gone. */
static void forget_after(lily_session *s, uint32_t position)
{
    while (s->n_snapshots && s->snapshot[s->n_snapshots - 1] > position) s->n_snapshots--;
    if (s->rolling > position) s->rolling = 0;
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

static int submit(lily_session *s, const lily_feed *f, lily_done *done, lily_err *e)
{
    const lily_dev_ops *ops = s->m->ops;
    lily_exec *exec = f->exec ? f->exec : f->n == 1 ? s->m->run_decode : s->m->run_prefill;
    enum lily_segment last = f->pick ? LILY_PICK : f->scored ? LILY_HEAD : LILY_FORWARD;
    lily_lane lane = {.state = s->state,
                      .tokens = f->tokens,
                      .n_tokens = f->n,
                      .pick = f->pick,
                      .count = f->count,
                      .scored = f->scored,
                      .mark = f->marks,
                      .n_marks = f->n_marks,
                      .cancel = f->cancel};
    uint64_t ticket;
    TRY(ops->state_grow(s->m->dev, s->state, s->n + f->n, e));
    TRY(ops->submit(s->m->dev, exec, LILY_FORWARD, last, &lane, 1, &ticket, e));
    return ops->wait(s->m->dev, ticket, done, 1, e);
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

int lily_session_feed(lily_session *s, const lily_feed *f, lily_done *done, lily_err *e)
{
    uint32_t before = s->n, after = before + f->n;
    if (f->n == 0 || f->n > s->m->context - before)
        return lily_fail(e, LILY_CONTEXT, "%u more tokens after %u do not fit into a context of %u", f->n, before,
                         s->m->context);
    if (s->n_snapshots + f->n_marks > LILY_SNAPSHOTS)
        return lily_fail(e, LILY_INTERNAL, "%u snapshots are too many", s->n_snapshots + f->n_marks);
    *done = (lily_done){.token = -1};
    int rc = submit(s, f, done, e);
    uint32_t position = s->m->ops->state_position(s->state);
    if (position == after) {
        /* Also when it was cancelled, or failed, behind the forward pass: the state has read the tokens. */
        memcpy(s->tokens + before, f->tokens, f->n * sizeof *s->tokens);
        for (uint32_t i = 0; i < f->n_marks; i++) s->snapshot[s->n_snapshots++] = before + f->marks[i];
        s->n = after;
    } else {
        set_back(s, position);
    }
    if (rc != LILY_OK) return rc;
    if (done->cancelled) return lily_fail(e, LILY_CANCELLED, "cancelled");
    if (position != after) return lily_fail(e, LILY_INTERNAL, "a run left the state at another position than %u", after);
    return LILY_OK;
}

/* ---- prompts ---- */

static uint32_t longest_prefix(const lily_session *s, const lily_reading *p)
{
    uint32_t same = 0, most = s->n < p->n ? s->n : p->n;
    while (same < most && s->tokens[same] == p->tokens[same]) same++;
    if (same == s->n) return same;
    for (uint32_t i = s->n_snapshots; i-- > 0;)
        if (s->snapshot[i] <= same) return s->snapshot[i];
    return 0;
}

/* The oldest snapshot that can be spared; n_snapshots: none. */
static uint32_t spare(const lily_session *s, uint32_t fork)
{
    uint32_t i = 1;
    while (i < s->n_snapshots && (s->snapshot[i] == fork || s->snapshot[i] == s->rolling)) i++;
    return i;
}

/* Which snapshots to have when the prompt is read: its end always, the first of all because conversations share
 * their beginning, the one where the next turn may fork off, and then the newest.  What finds no room is dropped, or
 * not taken.  A snapshot at the end of a chunk, where an unfinished prompt was left, is not counted: READ drops it when
 * it has a newer one. */
static void choose_marks(lily_session *s, lily_reading *p)
{
    uint32_t end_mark = p->n > s->n, rolling = s->rolling != 0, n_new = 0;
    for (uint32_t i = 0; i < p->n_marks; i++) n_new += p->marks[i] > s->n && p->marks[i] < p->n;
    uint32_t total = s->n_snapshots - rolling + n_new + end_mark;
    uint32_t surplus = total > MARKS_KEPT ? total - MARKS_KEPT : 0;
    bool have_first = s->n_snapshots > rolling;
    for (uint32_t i; surplus && (i = spare(s, p->fork)) < s->n_snapshots; surplus--) drop(s, s->snapshot[i]);
    for (uint32_t i = 0; i < p->n_marks; i++) {
        if (p->marks[i] <= s->n || p->marks[i] >= p->n) continue;
        if (have_first && surplus && p->marks[i] != p->fork) {
            surplus--;
            continue;
        }
        p->wanted[p->n_wanted++] = p->marks[i];
        have_first = true;
    }
    if (end_mark)
        p->wanted[p->n_wanted++] = p->n;
    else
        s->rolling = 0;     /* the state stands at the end already, and a snapshot there is worth keeping */
}

int lily_session_begin(lily_session *s, lily_reading *p, lily_err *e)
{
    p->n_read = p->n_wanted = 0;
    if (p->n >= s->m->context)
        return lily_fail(e, LILY_CONTEXT, "a prompt of %u tokens leaves no room in a context of %u", p->n + 1,
                         s->m->context);
    TRY(go_back(s, p->fresh ? 0 : longest_prefix(s, p), e));
    s->m->ops->state_count_reset(s->state);
    p->n_read = s->n;
    if (!p->fresh) choose_marks(s, p);
    return LILY_OK;
}

int lily_session_read(lily_session *s, lily_reading *p, const atomic_bool *cancel, lily_err *e)
{
    uint32_t start = s->n, left = p->n - start, n = left < s->m->chunk ? left : s->m->chunk;
    uint32_t offset[LILY_SNAPSHOTS + 1], n_offsets = 0;
    if (left == 0) return LILY_OK;
    for (uint32_t i = 0; i < p->n_wanted; i++)
        if (p->wanted[i] > start && p->wanted[i] <= start + n) offset[n_offsets++] = p->wanted[i] - start;
    bool rolls = !p->fresh && (n_offsets == 0 || offset[n_offsets - 1] != n);
    if (rolls) offset[n_offsets++] = n;
    lily_feed f = {.tokens = p->tokens + start, .n = n, .marks = offset, .n_marks = n_offsets, .cancel = cancel};
    lily_done done;
    int rc = lily_session_feed(s, &f, &done, e);
    if (rc == LILY_OK) {
        if (s->rolling) drop(s, s->rolling);
        s->rolling = rolls ? s->n : 0;
    }
    p->n_read = s->n;
    return rc;
}
