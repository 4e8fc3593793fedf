#include "sample/match.h"

#include <string.h>

#include "base/mem.h"

/* TIDY_*: beyond these lily_matcher_tidy begins anew; MAX_*: beyond these a step fails. */
enum { MAX_WAYS = 4096, TIDY_STATES = 4096, MAX_FRAMES = 1 << 18, TIDY_WAYS = 1 << 18 };
enum { UNKNOWN = UINT32_MAX };

typedef struct frame {     /* an open call; frames[0] is the bottom of every stack */
    uint32_t parent, back; /* back: the node to go on with */
    uint32_t depth;
} frame;

typedef struct way {
    uint32_t node, frame; /* node: a BYTES */
} way;

typedef struct state {
    uint32_t ways, n; /* into m->ways */
    bool complete;
    uint32_t *step; /* by class of byte: states or UNKNOWN; NULL: no step was taken yet */
} state;

typedef struct number_index { /* open addressing: numbers + 1 of frames or states; 0: free */
    uint32_t *slot;
    uint32_t room; /* a power of two, more than twice what it holds */
} number_index;

struct lily_matcher {
    lily_grammar *g;
    frame *frames;
    state *states;
    way *ways;
    uint32_t n_frames, n_states, n_ways, room_frames, room_states, room_ways;
    number_index frame_index, state_index;
    uint32_t begin; /* a node */
    lily_match start;
    /* one closure */
    way *todo; /* [MAX_WAYS]; what was added, in order */
    uint32_t n_todo;
    uint16_t *seen; /* [SEEN_ROOM] open addressing over todo: index + 1 */
    uint16_t *slot; /* [MAX_WAYS] where each of todo stands in seen */
    bool no_memory, too_many;
};

enum { SEEN_ROOM = MAX_WAYS * 2 };

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint64_t x = ((uint64_t)a << 32 | b) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(x >> 32) ^ (uint32_t)(x >> 15);
}

/* ---- memory ---- */

static bool grow(lily_matcher *m, void **items, uint32_t n, uint32_t *room, size_t size)
{
    if (n <= *room) return true;
    uint32_t more = *room ? *room : 32;
    while (more < n) more *= 2;
    void *p = lily_realloc(*items, more, size);
    if (!p) {
        m->no_memory = true;
        return false;
    }
    *items = p;
    *room = more;
    return true;
}

static uint32_t frame_hash(const lily_matcher *m, uint32_t i)
{
    return mix(m->frames[i].parent, m->frames[i].back);
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
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = hash(m, i) & (room - 1);
        while (slot[at]) at = (at + 1) & (room - 1);
        slot[at] = i + 1;
    }
    lily_free(x->slot);
    *x = (number_index){slot, room};
    return true;
}

/* ---- frames ---- */

/* The frame `back` on top of `parent`; UNKNOWN on failure. */
static uint32_t push(lily_matcher *m, uint32_t parent, uint32_t back)
{
    if (!index_room(m, &m->frame_index, m->n_frames, frame_hash)) return UNKNOWN;
    uint32_t mask = m->frame_index.room - 1, at = mix(parent, back) & mask;
    for (uint32_t i; (i = m->frame_index.slot[at]); at = (at + 1) & mask)
        if (m->frames[i - 1].parent == parent && m->frames[i - 1].back == back) return i - 1;
    if (m->n_frames == MAX_FRAMES) {
        m->too_many = true;
        return UNKNOWN;
    }
    void *frames = m->frames;
    if (!grow(m, &frames, m->n_frames + 1, &m->room_frames, sizeof *m->frames)) return UNKNOWN;
    m->frames = frames;
    m->frames[m->n_frames] = (frame){parent, back, m->frames[parent].depth + 1};
    m->frame_index.slot[at] = m->n_frames + 1;
    return m->n_frames++;
}

/* ---- a set of ways, closed over calls, splits and ends ---- */

static void closure_begin(lily_matcher *m)
{
    for (uint32_t i = 0; i < m->n_todo; i++) m->seen[m->slot[i]] = 0;
    m->n_todo = 0;
}

static void closure_add(lily_matcher *m, uint32_t node, uint32_t top)
{
    if (m->frames[top].depth + m->g->nodes[node].height > LILY_GRAMMAR_DEPTH) return;
    uint32_t at = mix(node, top) & (SEEN_ROOM - 1);
    for (uint32_t i; (i = m->seen[at]); at = (at + 1) & (SEEN_ROOM - 1))
        if (m->todo[i - 1].node == node && m->todo[i - 1].frame == top) return;
    if (m->n_todo == MAX_WAYS) {
        m->too_many = true;
        return;
    }
    m->slot[m->n_todo] = (uint16_t)at;
    m->todo[m->n_todo++] = (way){node, top};
    m->seen[at] = (uint16_t)m->n_todo;
}

static void follow(lily_matcher *m, way w, bool *complete)
{
    const lily_grammar_node *n = &m->g->nodes[w.node];
    uint32_t top = w.frame;
    switch (n->kind) {
    case LILY_NODE_SPLIT:
        closure_add(m, n->next, top);
        closure_add(m, n->arg, top);
        break;
    case LILY_NODE_CALL:
        /* Nothing comes back to a call that ends its rule. */
        if (n->next != LILY_GRAMMAR_END) top = push(m, top, n->next);
        if (top != UNKNOWN) closure_add(m, m->g->rules[n->arg], top);
        break;
    case LILY_NODE_END:
        if (top == 0)
            *complete = true;
        else
            closure_add(m, m->frames[top].back, m->frames[top].parent);
        break;
    default:
        break;
    }
}

static bool same(const lily_matcher *m, const state *s, uint32_t from, uint32_t n, bool complete)
{
    return s->n == n && s->complete == complete &&
           memcmp(&m->ways[s->ways], &m->ways[from], n * sizeof(way)) == 0;
}

/* The state of what closure_add was told; NONE on failure. */
static lily_match closure_end(lily_matcher *m)
{
    bool complete = false;
    uint32_t from = m->n_ways, n = 0;
    for (uint32_t i = 0; i < m->n_todo; i++) follow(m, m->todo[i], &complete);
    void *ways = m->ways;
    if (!grow(m, &ways, from + m->n_todo, &m->room_ways, sizeof(way))) return LILY_MATCH_NONE;
    m->ways = ways;
    for (uint32_t i = 0; i < m->n_todo; i++)
        if (m->g->nodes[m->todo[i].node].kind == LILY_NODE_BYTES) m->ways[from + n++] = m->todo[i];
    if (m->no_memory || m->too_many || (n == 0 && !complete)) return LILY_MATCH_NONE;
    void *states = m->states;
    if (!grow(m, &states, m->n_states + 1, &m->room_states, sizeof(state))) return LILY_MATCH_NONE;
    m->states = states;
    if (!index_room(m, &m->state_index, m->n_states, state_hash)) return LILY_MATCH_NONE;
    m->states[m->n_states] = (state){.ways = from, .n = n, .complete = complete};
    uint32_t mask = m->state_index.room - 1, at = state_hash(m, m->n_states) & mask;
    for (uint32_t i; (i = m->state_index.slot[at]); at = (at + 1) & mask)
        if (same(m, &m->states[i - 1], from, n, complete)) return i - 1;
    if (m->n_states == LILY_MATCH_STATES) {
        m->too_many = true;
        return LILY_MATCH_NONE;
    }
    m->n_ways += n;
    m->state_index.slot[at] = m->n_states + 1;
    return m->n_states++;
}

/* ---- the automaton ---- */

static lily_match step_anew(lily_matcher *m, const state *s, uint8_t byte)
{
    closure_begin(m);
    for (uint32_t i = 0; i < s->n; i++) {
        way w = m->ways[s->ways + i];
        const lily_grammar_node *n = &m->g->nodes[w.node];
        if (lily_set_has(&m->g->sets[n->arg], byte)) closure_add(m, n->next, w.frame);
    }
    return m->n_todo ? closure_end(m) : LILY_MATCH_NONE;
}

lily_match lily_matcher_step(lily_matcher *m, lily_match from, uint8_t byte)
{
    uint32_t *step = m->states[from].step, class = m->g->class_of[byte];
    if (step && step[class] != UNKNOWN) return step[class];
    if (m->no_memory || m->too_many) return LILY_MATCH_NONE;
    if (!step) {
        step = lily_calloc(m->g->n_classes, sizeof *step);
        if (!step) {
            m->no_memory = true;
            return LILY_MATCH_NONE;
        }
        memset(step, 0xff, m->g->n_classes * sizeof *step);
        m->states[from].step = step;
    }
    const state s = m->states[from];
    lily_match to = step_anew(m, &s, byte);
    if (!m->no_memory && !m->too_many) step[class] = to;
    return to;
}

lily_match lily_matcher_start(const lily_matcher *m)
{
    return m->start;
}
bool lily_matcher_complete(const lily_matcher *m, lily_match at)
{
    return m->states[at].complete;
}

int lily_matcher_ok(const lily_matcher *m, lily_err *e)
{
    if (m->no_memory) return lily_no_memory(e, m->n_ways * sizeof(way), "the states of a grammar");
    if (m->too_many) return lily_fail(e, LILY_UNSUPPORTED, "the format can be read in too many ways at once");
    return LILY_OK;
}

/* ---- life ---- */

static void forget(lily_matcher *m)
{
    for (uint32_t i = 0; i < m->n_states; i++) lily_free(m->states[i].step);
    m->n_frames = m->n_states = m->n_ways = 0;
    if (m->frame_index.slot) memset(m->frame_index.slot, 0, m->frame_index.room * sizeof(uint32_t));
    if (m->state_index.slot) memset(m->state_index.slot, 0, m->state_index.room * sizeof(uint32_t));
}

/* The bottom frame, the state NONE, and the start. */
static int begin(lily_matcher *m, lily_err *e)
{
    void *frames = m->frames, *states = m->states;
    bool room = grow(m, &frames, 1, &m->room_frames, sizeof *m->frames);
    m->frames = frames;
    room = grow(m, &states, 1, &m->room_states, sizeof *m->states) && room;
    m->states = states;
    if (!room) return lily_matcher_ok(m, e);
    /* Neither has an entry in its index, where no push and no closure looks for them; growing one may put it
     * there, which is harmless: a frame on top of itself and a set without ways are never asked for. */
    m->frames[0] = (frame){UNKNOWN, UNKNOWN, 0};
    m->states[0] = (state){0};
    m->n_frames = m->n_states = 1;
    closure_begin(m);
    closure_add(m, m->begin, 0);
    m->start = closure_end(m);
    return lily_matcher_ok(m, e);
}

int lily_matcher_new(lily_matcher **out, lily_grammar *g, bool late, lily_err *e)
{
    lily_matcher *m = lily_calloc(1, sizeof *m);
    *out = m;
    if (!m) return lily_no_memory(e, sizeof *m, "a matcher");
    m->g = lily_grammar_hold(g);
    m->begin = late ? g->late : g->start;
    m->todo = lily_calloc(MAX_WAYS, sizeof *m->todo);
    m->seen = lily_calloc(SEEN_ROOM, sizeof *m->seen);
    m->slot = lily_calloc(MAX_WAYS, sizeof *m->slot);
    if (!m->todo || !m->seen || !m->slot) m->no_memory = true;
    int rc = m->no_memory ? lily_matcher_ok(m, e) : begin(m, e);
    if (rc == LILY_OK) return rc;
    lily_matcher_free(m);
    *out = NULL;
    return rc;
}

void lily_matcher_free(lily_matcher *m)
{
    if (!m) return;
    forget(m);
    lily_free(m->frames);
    lily_free(m->states);
    lily_free(m->ways);
    lily_free(m->frame_index.slot);
    lily_free(m->state_index.slot);
    lily_free(m->todo);
    lily_free(m->seen);
    lily_free(m->slot);
    lily_grammar_let_go(m->g);
    lily_free(m);
}

/* The stacks of `at` are written down as lists of nodes, bottom last, and made again. */
static bool write_down(const lily_matcher *m, const state *s, uint32_t **out)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) n += m->frames[m->ways[s->ways + i].frame].depth + 2;
    uint32_t *list = *out = lily_calloc(n, sizeof *list);
    if (!list) return false;
    for (uint32_t i = 0; i < s->n; i++) {
        way w = m->ways[s->ways + i];
        *list++ = w.node;
        *list++ = m->frames[w.frame].depth;
        for (uint32_t f = w.frame; f; f = m->frames[f].parent) *list++ = m->frames[f].back;
    }
    return true;
}

lily_match lily_matcher_tidy(lily_matcher *m, lily_match at, bool *forgotten)
{
    lily_err ignored;
    uint32_t *list;
    *forgotten = false;
    if (at == LILY_MATCH_NONE ||
        (m->n_states < TIDY_STATES && m->n_ways < TIDY_WAYS && m->n_frames < MAX_FRAMES / 2))
        return at;
    const state s = m->states[at];
    if (!write_down(m, &s, &list)) return at;
    *forgotten = true;
    forget(m);
    const uint32_t *p = list;
    if (begin(m, &ignored) != LILY_OK) {
        lily_free(list);
        return LILY_MATCH_NONE;
    }
    lily_match to = LILY_MATCH_NONE;
    closure_begin(m);
    for (uint32_t i = 0; i < s.n; i++) {
        uint32_t node = *p++, depth = *p++, top = 0;
        for (uint32_t d = depth; d-- > 0 && top != UNKNOWN;) top = push(m, top, p[d]);
        p += depth;
        if (top != UNKNOWN) closure_add(m, node, top);
    }
    if (s.complete) closure_add(m, LILY_GRAMMAR_END, 0);
    to = closure_end(m);
    lily_free(list);
    return to;
}
