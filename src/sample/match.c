#include "sample/match.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Beyond TIDY_* lily_matcher_tidy begins anew. Work under a limit leaves SPARE states: one for each byte that
 * could follow, tried twice, and for those of the longest token. */
enum { TIDY_STATES = 4096, TIDY_WAYS = 1 << 17, SPARE = 1024 };
enum { UNKNOWN = UINT32_MAX, NO_LIMIT = UINT32_MAX };
enum { STEPS = 6 }; /* that a state remembers by the ways they take */

typedef struct place { /* to return to: the node, how often it has repeated, its frame */
    uint32_t node, count, frame;
} place;

typedef struct frame {
    uint32_t places, n; /* into m->places, ascending */
    uint32_t depth;     /* open calls, the most that one of its places has, with this one */
    uint32_t near;      /* see lily_matcher_near; 0: not known yet */
} frame;

typedef struct way {
    uint32_t node, frame; /* node: a BYTES */
} way;

typedef struct state {
    uint32_t ways, n; /* into m->ways, ascending */
    bool complete;
    uint32_t near; /* 0: not known yet */
    uint32_t n_steps;
    struct {
        uint64_t taken; /* which of the ways (at most 64) took the byte */
        lily_match to;
    } steps[STEPS]; /* bytes of other classes often lead the same ways */
    uint32_t *step; /* by class of byte: states or UNKNOWN; NULL: no step was taken yet */
} state;

typedef struct number_index { /* open addressing: numbers + 1 of frames or states; 0: free */
    uint32_t *slot;
    uint32_t room; /* a power of two, more than twice what it holds */
} number_index;

typedef struct entry { /* what a set is made of, on the way to its BYTES */
    place at;
    bool fresh; /* its frame was opened at this byte: its END is known to whoever opened it */
} entry;

typedef struct caller {
    place back;
    uint32_t next; /* another of the same rule, + 1 */
} caller;

struct lily_matcher {
    lily_grammar *g;
    frame *frames; /* frames[0] is the bottom, which returns to nowhere */
    place *places;
    state *states;
    way *ways;
    uint32_t n_frames, n_places, n_states, n_ways, room_frames, room_places, room_states, room_ways;
    number_index frame_index, state_index;
    uint32_t begin;   /* a node */
    lily_match start; /* NONE: forgotten */
    /* one set that is being made */
    entry *todo;    /* what was added, in order */
    uint32_t *slot; /* where each of todo stands in seen */
    uint32_t *seen; /* [room_seen] open addressing over todo: index + 1 */
    caller *callers;
    uint32_t *first_caller; /* [rules] index + 1 */
    uint32_t *pending;      /* [rules] ranks of rules that were called, the lowest last */
    uint32_t n_todo, n_callers, n_pending, room_todo, room_slot, room_seen, room_callers;
    uint32_t left; /* work under a limit */
    bool spent, no_memory;
};

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint64_t x = ((uint64_t)a << 32 | b) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(x >> 32) ^ (uint32_t)(x >> 15);
}

/* ---- memory ---- */

/* Room for n items at *at, a pointer to any type of object. */
static bool grow(lily_matcher *m, void *at, uint32_t n, uint32_t *room, size_t size)
{
    if (n <= *room) return true;
    uint32_t more = *room ? *room : 32;
    void *p;
    while (more < n) more *= 2;
    memcpy(&p, at, sizeof p);
    p = lily_realloc(p, more, size);
    if (!p) {
        m->no_memory = true;
        return false;
    }
    memcpy(at, &p, sizeof p);
    *room = more;
    return true;
}
#define GROW(m, items, n, room) grow((m), &(m)->items, (n), &(m)->room, sizeof *(m)->items)

static uint32_t frame_hash(const lily_matcher *m, uint32_t i)
{
    uint32_t h = m->frames[i].n;
    for (uint32_t k = 0; k < m->frames[i].n; k++) {
        const place *p = &m->places[m->frames[i].places + k];
        h = mix(mix(h, p->node), mix(p->count, p->frame));
    }
    return h;
}

static uint32_t state_hash(const lily_matcher *m, uint32_t i)
{
    uint32_t h = m->states[i].complete;
    for (uint32_t k = 0; k < m->states[i].n; k++) {
        const way *w = &m->ways[m->states[i].ways + k];
        h = mix(h, mix(w->node, w->frame));
    }
    return h;
}

/* Makes room in an index for one more than the n it holds. */
static bool index_room(lily_matcher *m, number_index *x, uint32_t n,
                       uint32_t (*hash)(const lily_matcher *, uint32_t))
{
    if (x->room > 2 * (n + 1)) return true;
    uint32_t room = x->room ? x->room * 2 : 64;
    uint32_t *slot = lily_calloc(room, sizeof *slot);
    if (!slot) {
        m->no_memory = true;
        return false;
    }
    for (uint32_t i = 1; i < n; i++) {
        uint32_t at = hash(m, i) & (room - 1);
        while (slot[at]) at = (at + 1) & (room - 1);
        slot[at] = i + 1;
    }
    lily_free(x->slot);
    *x = (number_index){slot, room};
    return true;
}

/* ---- frames ---- */

static int by_place(const void *va, const void *vb)
{
    const place *a = va, *b = vb;
    if (a->node != b->node) return a->node < b->node ? -1 : 1;
    if (a->count != b->count) return a->count < b->count ? -1 : 1;
    return (a->frame > b->frame) - (a->frame < b->frame);
}

/* Whoever returns to the END at the bottom is done. */
static bool is_bottom(place p)
{
    return p.node == LILY_GRAMMAR_END && p.frame == 0;
}

/* The frame of the places that stand behind m->n_places; UNKNOWN on failure. */
static uint32_t intern_frame(lily_matcher *m, uint32_t n)
{
    place *p = m->places + m->n_places;
    uint32_t kept = 0, depth = 0;
    if (n > 1) qsort(p, n, sizeof *p, by_place);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || by_place(&p[i], &p[kept - 1]) != 0) p[kept++] = p[i];
    if (kept == 1 && is_bottom(p[0])) return 0;
    for (uint32_t i = 0; i < kept; i++) {
        uint32_t d = is_bottom(p[i]) ? 0 : m->frames[p[i].frame].depth + 1;
        if (d > depth) depth = d;
    }
    if (!GROW(m, frames, m->n_frames + 1, room_frames) ||
        !index_room(m, &m->frame_index, m->n_frames, frame_hash))
        return UNKNOWN;
    m->frames[m->n_frames] = (frame){m->n_places, kept, depth, 0};
    uint32_t mask = m->frame_index.room - 1, at = frame_hash(m, m->n_frames) & mask;
    for (uint32_t i; (i = m->frame_index.slot[at]); at = (at + 1) & mask) {
        const frame *f = &m->frames[i - 1];
        if (f->n == kept && memcmp(&m->places[f->places], p, kept * sizeof *p) == 0) return i - 1;
    }
    m->n_places += kept;
    m->frame_index.slot[at] = m->n_frames + 1;
    return m->n_frames++;
}

/* ---- a set of ways, closed over calls, splits and ends ---- */

static void set_begin(lily_matcher *m)
{
    for (uint32_t i = 0; i < m->n_todo; i++) m->seen[m->slot[i]] = 0;
    m->n_todo = m->n_callers = m->n_pending = 0;
}

static uint32_t *find_seen(const lily_matcher *m, const entry *w)
{
    uint32_t at = mix(mix(w->at.node, w->at.frame), w->at.count * 2 + w->fresh), mask = m->room_seen - 1;
    for (uint32_t i; (i = m->seen[at & mask]); at++) {
        const entry *o = &m->todo[i - 1];
        if (o->at.node == w->at.node && o->at.frame == w->at.frame && o->at.count == w->at.count &&
            o->fresh == w->fresh)
            break;
    }
    return &m->seen[at & mask];
}

static bool seen_room(lily_matcher *m)
{
    if (!GROW(m, todo, m->n_todo + 1, room_todo) || !GROW(m, slot, m->n_todo + 1, room_slot)) return false;
    if (m->room_seen > 2 * (m->n_todo + 1)) return true;
    uint32_t room = m->room_seen ? m->room_seen * 2 : 256, *seen = lily_calloc(room, sizeof *seen);
    if (!seen) {
        m->no_memory = true;
        return false;
    }
    lily_free(m->seen);
    m->seen = seen;
    m->room_seen = room;
    for (uint32_t i = 0; i < m->n_todo; i++) {
        uint32_t *at = find_seen(m, &m->todo[i]);
        m->slot[i] = (uint32_t)(at - m->seen);
        *at = i + 1;
    }
    return true;
}

static void set_add(lily_matcher *m, uint32_t node, uint32_t count, uint32_t top, bool fresh)
{
    entry w = {{node, count, top}, fresh};
    if (m->frames[top].depth + m->g->nodes[node].height > LILY_GRAMMAR_DEPTH || !seen_room(m)) return;
    uint32_t *at = find_seen(m, &w);
    if (*at) return;
    m->slot[m->n_todo] = (uint32_t)(at - m->seen);
    m->todo[m->n_todo++] = w;
    *at = m->n_todo;
}

/* The rule is opened when all that call it here are known: see take_pending. */
static void call(lily_matcher *m, uint32_t rule, place back)
{
    uint32_t depth = is_bottom(back) ? 0 : m->frames[back.frame].depth + 1;
    if (depth + m->g->nodes[m->g->rules[rule].node].height > LILY_GRAMMAR_DEPTH) return;
    if (!GROW(m, callers, m->n_callers + 1, room_callers)) return;
    if (m->first_caller[rule] == 0) {
        uint32_t i = m->n_pending++, rank = m->g->rules[rule].rank;
        for (; i > 0 && m->pending[i - 1] < rank; i--) m->pending[i] = m->pending[i - 1];
        m->pending[i] = rank;
    }
    m->callers[m->n_callers] = (caller){back, m->first_caller[rule]};
    m->first_caller[rule] = ++m->n_callers;
}

/* A call that ends its rule returns to where that returns to. */
static void call_last(lily_matcher *m, uint32_t rule, uint32_t top)
{
    if (top == 0) call(m, rule, (place){LILY_GRAMMAR_END, 0, 0});
    for (uint32_t i = 0; top && i < m->frames[top].n; i++)
        call(m, rule, m->places[m->frames[top].places + i]);
}

static void repeat(lily_matcher *m, const entry *w, const lily_grammar_node *n)
{
    const lily_grammar_repeat *r = &m->g->repeats[n->arg];
    uint32_t count = w->at.count;
    if (count >= r->least) set_add(m, n->next, 0, w->at.frame, w->fresh);
    if (count >= r->most) return;
    if (r->most != UINT32_MAX || count < r->least) count++;
    call(m, r->rule, (place){w->at.node, count, w->at.frame});
}

static void follow(lily_matcher *m, entry w, bool *complete)
{
    const lily_grammar_node *n = &m->g->nodes[w.at.node];
    uint32_t top = w.at.frame;
    switch (n->kind) {
    case LILY_NODE_SPLIT:
        set_add(m, n->next, 0, top, w.fresh);
        set_add(m, n->arg, 0, top, w.fresh);
        break;
    case LILY_NODE_CALL:
        if (n->next == LILY_GRAMMAR_END)
            call_last(m, n->arg, top);
        else
            call(m, n->arg, (place){n->next, 0, top});
        if (m->g->rules[n->arg].empty) set_add(m, n->next, 0, top, w.fresh);
        break;
    case LILY_NODE_REPEAT:
        repeat(m, &w, n);
        break;
    case LILY_NODE_END:
        if (w.fresh) break;
        if (top == 0) *complete = true;
        for (uint32_t i = 0; top && i < m->frames[top].n; i++) {
            place p = m->places[m->frames[top].places + i];
            set_add(m, p.node, p.count, p.frame, false);
        }
        break;
    default:
        break;
    }
}

/* Opens the rule that no other waiting rule can call: one frame for all its callers. */
static void take_pending(lily_matcher *m)
{
    uint32_t rule = m->g->order[m->pending[--m->n_pending]], n = 0;
    uint32_t i = m->first_caller[rule];
    m->first_caller[rule] = 0;
    for (; i; i = m->callers[i - 1].next) {
        if (!GROW(m, places, m->n_places + n + 1, room_places)) return;
        m->places[m->n_places + n++] = m->callers[i - 1].back;
    }
    uint32_t top = intern_frame(m, n);
    if (top != UNKNOWN) set_add(m, m->g->rules[rule].node, 0, top, true);
}

static void set_close(lily_matcher *m, bool *complete)
{
    for (uint32_t i = 0;;) {
        while (i < m->n_todo && !m->no_memory) follow(m, m->todo[i++], complete);
        if (m->n_pending == 0) break;
        take_pending(m);
    }
    if (m->left != NO_LIMIT) m->left = m->left > m->n_todo ? m->left - m->n_todo : 0;
}

static int by_node(const void *va, const void *vb)
{
    const way *a = va, *b = vb;
    if (a->node != b->node) return a->node < b->node ? -1 : 1;
    return (a->frame > b->frame) - (a->frame < b->frame);
}

/* The n ways that stand behind m->ways, in order and each once; how many. */
static uint32_t order_ways(lily_matcher *m, uint32_t n)
{
    if (n == 0) return 0;
    way *w = m->ways + m->n_ways;
    uint32_t kept = 0;
    if (n > 1) qsort(w, n, sizeof *w, by_node);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || by_node(&w[i], &w[kept - 1]) != 0) w[kept++] = w[i];
    return kept;
}

/* Writes the ways of the set behind m->ways; how many. */
static uint32_t list_ways(lily_matcher *m)
{
    uint32_t n = 0;
    if (m->n_todo == 0 || !GROW(m, ways, m->n_ways + m->n_todo, room_ways)) return 0;
    way *w = m->ways + m->n_ways;
    for (uint32_t i = 0; i < m->n_todo; i++)
        if (m->g->nodes[m->todo[i].at.node].kind == LILY_NODE_BYTES)
            w[n++] = (way){m->todo[i].at.node, m->todo[i].at.frame};
    return order_ways(m, n);
}

/* The state of the n ways that stand behind m->ways; NONE on failure. */
static lily_match intern_state(lily_matcher *m, uint32_t n, bool complete)
{
    uint32_t from = m->n_ways;
    if (m->no_memory || (n == 0 && !complete)) return LILY_MATCH_NONE;
    if (!GROW(m, states, m->n_states + 1, room_states) ||
        !index_room(m, &m->state_index, m->n_states, state_hash))
        return LILY_MATCH_NONE;
    m->states[m->n_states] = (state){.ways = from, .n = n, .complete = complete};
    uint32_t mask = m->state_index.room - 1, at = state_hash(m, m->n_states) & mask;
    for (uint32_t i; (i = m->state_index.slot[at]); at = (at + 1) & mask) {
        const state *s = &m->states[i - 1];
        if (s->n == n && s->complete == complete &&
            memcmp(&m->ways[s->ways], &m->ways[from], n * sizeof(way)) == 0)
            return i - 1;
    }
    m->n_ways += n;
    m->state_index.slot[at] = m->n_states + 1;
    return m->n_states++;
}

/* The state of what set_add was told; NONE on failure. */
static lily_match set_end(lily_matcher *m)
{
    bool complete = false;
    set_close(m, &complete);
    return intern_state(m, list_ways(m), complete);
}

/* ---- the automaton ---- */

static lily_match step_anew(lily_matcher *m, lily_match from, uint8_t byte)
{
    const state s = m->states[from];
    uint64_t taken = 0;
    for (uint32_t i = 0; i < s.n && s.n <= 64; i++)
        if (lily_set_has(&m->g->sets[m->g->nodes[m->ways[s.ways + i].node].arg], byte))
            taken |= UINT64_C(1) << i;
    if (s.n <= 64 && !taken) return LILY_MATCH_NONE;
    for (uint32_t i = 0; i < s.n_steps; i++)
        if (s.steps[i].taken == taken) return s.steps[i].to;
    set_begin(m);
    for (uint32_t i = 0; i < s.n; i++) {
        way w = m->ways[s.ways + i];
        const lily_grammar_node *n = &m->g->nodes[w.node];
        if (lily_set_has(&m->g->sets[n->arg], byte)) set_add(m, n->next, 0, w.frame, false);
    }
    lily_match to = m->n_todo ? set_end(m) : LILY_MATCH_NONE;
    if (s.n <= 64 && s.n_steps < STEPS && !m->no_memory) {
        state *at = &m->states[from];
        at->steps[at->n_steps].taken = taken;
        at->steps[at->n_steps++].to = to;
    }
    return to;
}

/* Whether another state may be made. */
static bool may_work(lily_matcher *m)
{
    if (m->no_memory || m->n_states == LILY_MATCH_STATES) return false;
    if (m->left == NO_LIMIT || (m->left > 0 && m->n_states < LILY_MATCH_STATES - SPARE)) return true;
    m->spent = true;
    return false;
}

lily_match lily_matcher_step(lily_matcher *m, lily_match from, uint8_t byte)
{
    uint32_t *step = m->states[from].step, class = m->g->class_of[byte];
    if (step && step[class] != UNKNOWN) return step[class];
    if (!may_work(m)) return LILY_MATCH_NONE;
    if (!step) {
        step = lily_calloc(m->g->n_classes, sizeof *step);
        if (!step) {
            m->no_memory = true;
            return LILY_MATCH_NONE;
        }
        memset(step, 0xff, m->g->n_classes * sizeof *step);
        m->states[from].step = step;
    }
    lily_match to = step_anew(m, from, byte);
    if (!m->no_memory) step[class] = to;
    return to;
}

lily_match lily_matcher_start(lily_matcher *m)
{
    if (m->start != LILY_MATCH_NONE || m->no_memory) return m->start;
    set_begin(m);
    set_add(m, m->begin, 0, 0, false);
    return m->start = set_end(m);
}

bool lily_matcher_complete(const lily_matcher *m, lily_match at)
{
    return m->states[at].complete;
}

int lily_matcher_ok(const lily_matcher *m, lily_err *e)
{
    if (m->no_memory) return lily_no_memory(e, m->n_ways * sizeof(way), "the states of a grammar");
    return LILY_OK;
}

void lily_matcher_limit(lily_matcher *m, uint32_t work)
{
    m->left = work;
    m->spent = false;
}

bool lily_matcher_no_limit(lily_matcher *m)
{
    m->left = NO_LIMIT;
    return m->spent;
}

/* ---- counts that do not matter yet ---- */

/* As low as a count may be without a difference to the next `reach` repetitions. */
static uint32_t near_count(const lily_matcher *m, place p, uint32_t reach)
{
    const lily_grammar_node *n = &m->g->nodes[p.node];
    if (n->kind != LILY_NODE_REPEAT) return p.count;
    const lily_grammar_repeat *r = &m->g->repeats[n->arg];
    if (p.count < r->least) return (uint64_t)p.count + reach < r->least ? 0 : p.count;
    return (uint64_t)p.count + reach <= r->most ? r->least : p.count;
}

/* Goes as deep as calls are open. */
static uint32_t near_frame(lily_matcher *m, uint32_t f, uint32_t reach)
{
    const frame old = m->frames[f];
    if (f == 0 || old.near) return old.near;
    for (uint32_t i = 0; i < old.n; i++)
        if (near_frame(m, m->places[old.places + i].frame, reach) == UNKNOWN) return UNKNOWN;
    if (!GROW(m, places, m->n_places + old.n, room_places)) return UNKNOWN;
    for (uint32_t i = 0; i < old.n; i++) {
        place p = m->places[old.places + i];
        m->places[m->n_places + i] = (place){p.node, near_count(m, p, reach), m->frames[p.frame].near};
    }
    uint32_t to = intern_frame(m, old.n);
    if (to != UNKNOWN) m->frames[f].near = m->frames[to].near = to;
    return to;
}

lily_match lily_matcher_near(lily_matcher *m, lily_match at, uint32_t reach)
{
    const state s = m->states[at];
    if (at == LILY_MATCH_NONE || s.near) return s.near;
    if (m->n_states >= LILY_MATCH_STATES - SPARE || !GROW(m, ways, m->n_ways + s.n, room_ways)) return at;
    for (uint32_t i = 0; i < s.n; i++) {
        uint32_t f = near_frame(m, m->ways[s.ways + i].frame, reach);
        if (f == UNKNOWN) return at;
        m->ways[m->n_ways + i] = (way){m->ways[s.ways + i].node, f};
    }
    lily_match to = intern_state(m, order_ways(m, s.n), s.complete);
    if (to == LILY_MATCH_NONE) return at;
    return m->states[at].near = m->states[to].near = to;
}

/* ---- life ---- */

/* The bottom frame and the state NONE, which are never looked up; and the start. */
static int begin(lily_matcher *m, lily_err *e)
{
    if (!GROW(m, frames, 1, room_frames) || !GROW(m, states, 1, room_states)) return lily_matcher_ok(m, e);
    m->frames[0] = (frame){0};
    m->states[0] = (state){0};
    m->n_frames = m->n_states = 1;
    (void)lily_matcher_start(m);
    return lily_matcher_ok(m, e);
}

int lily_matcher_new(lily_matcher **out, lily_grammar *g, bool late, lily_err *e)
{
    lily_matcher *m = lily_calloc(1, sizeof *m);
    *out = m;
    if (!m) return lily_no_memory(e, sizeof *m, "a matcher");
    m->g = lily_grammar_hold(g);
    m->begin = late ? g->late : g->start;
    m->left = NO_LIMIT;
    m->first_caller = lily_calloc(g->n_rules, sizeof *m->first_caller);
    m->pending = lily_calloc(g->n_rules, sizeof *m->pending);
    int rc = m->first_caller && m->pending ? begin(m, e)
                                           : lily_no_memory(e, g->n_rules * sizeof *m->pending, "a matcher");
    if (rc != LILY_OK) {
        lily_matcher_free(m);
        *out = NULL;
    }
    return rc;
}

static void forget_states(lily_matcher *m)
{
    for (uint32_t i = 0; i < m->n_states; i++) lily_free(m->states[i].step);
    m->n_states = 0;
}

void lily_matcher_free(lily_matcher *m)
{
    if (!m) return;
    forget_states(m);
    void *const parts[] = {m->frames,           m->places, m->states, m->ways, m->frame_index.slot,
                           m->state_index.slot, m->todo,   m->slot,   m->seen, m->callers,
                           m->first_caller,     m->pending};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) lily_free(parts[i]);
    lily_grammar_let_go(m->g);
    lily_free(m);
}

/* ---- tidying ---- */

/* The frames that `kept` names move down to their new numbers, which keep their order; places go along. */
static void move_frames(lily_matcher *m, const uint32_t *kept)
{
    uint32_t n = 1, n_places = 0;
    for (uint32_t f = 1; f < m->n_frames; f++) {
        if (!kept[f]) continue;
        frame moved = m->frames[f];
        for (uint32_t i = 0; i < moved.n; i++) {
            place p = m->places[moved.places + i];
            p.frame = kept[p.frame];
            m->places[n_places + i] = p;
        }
        moved.places = n_places;
        moved.near = 0;
        n_places += moved.n;
        m->frames[n++] = moved;
    }
    m->n_frames = n;
    m->n_places = n_places;
}

/* The new number of each frame that the ways can return through, 0 for the others. A frame's places lie in
 * frames that are older than it. */
static uint32_t *number_frames(lily_matcher *m, const way *w, uint32_t n)
{
    uint32_t next = 1, *kept = lily_calloc(m->n_frames, sizeof *kept);
    if (!kept) return NULL;
    for (uint32_t i = 0; i < n; i++) kept[w[i].frame] = 1;
    for (uint32_t f = m->n_frames; f-- > 1;)
        for (uint32_t i = 0; kept[f] && i < m->frames[f].n; i++)
            kept[m->places[m->frames[f].places + i].frame] = 1;
    kept[0] = 0;
    for (uint32_t f = 1; f < m->n_frames; f++)
        if (kept[f]) kept[f] = next++;
    return kept;
}

/* Makes an index of all that there is but number 0. */
static void index_anew(lily_matcher *m, number_index *x, uint32_t n,
                       uint32_t (*hash)(const lily_matcher *, uint32_t))
{
    memset(x->slot, 0, x->room * sizeof *x->slot);
    for (uint32_t i = 1; i < n; i++) {
        uint32_t at = hash(m, i) & (x->room - 1);
        while (x->slot[at]) at = (at + 1) & (x->room - 1);
        x->slot[at] = i + 1;
    }
}

lily_match lily_matcher_tidy(lily_matcher *m, lily_match at, bool *forgotten)
{
    *forgotten = false;
    if (at == LILY_MATCH_NONE || m->no_memory ||
        (m->n_states < TIDY_STATES && m->n_ways < TIDY_WAYS && m->n_places < TIDY_WAYS))
        return at;
    state s = m->states[at];
    uint32_t *kept = number_frames(m, m->ways + s.ways, s.n);
    if (!kept) return at;
    *forgotten = true;
    forget_states(m);
    move_frames(m, kept);
    memmove(m->ways, m->ways + s.ways, s.n * sizeof *m->ways);
    for (uint32_t i = 0; i < s.n; i++) m->ways[i].frame = kept[m->ways[i].frame];
    m->n_ways = s.n;
    m->states[0] = (state){0};
    m->states[1] = (state){.n = s.n, .complete = s.complete};
    m->n_states = 2;
    m->start = LILY_MATCH_NONE;
    if (m->frame_index.slot) index_anew(m, &m->frame_index, m->n_frames, frame_hash);
    index_anew(m, &m->state_index, m->n_states, state_hash);
    lily_free(kept);
    return 1;
}
