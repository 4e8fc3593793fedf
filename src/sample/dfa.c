#include "sample/dfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sample/regex.h"

/* States of one automaton; nodes of the network behind a pattern. */
enum { MAX_STATES = 4096, MAX_NFA = 8192, MAX_RANGES = 512, MAX_CELLS = 1 << 20 };

static int too_large(lily_err *e)
{
    return lily_fail(e, LILY_UNSUPPORTED, "the pattern takes too many states");
}

void dfa_free(dfa *d)
{
    lily_free(d->low);
    lily_free(d->to);
    lily_free(d->final);
    *d = (dfa){0};
}

static bool take_work(uint32_t *left, size_t n)
{
    bool enough = *left > n;
    *left = enough ? *left - (uint32_t)n : 0;
    return enough;
}

/* A further state, without transitions. */
static int add_state(dfa *d, bool final, uint32_t *room, lily_err *e)
{
    if (d->n_states == MAX_STATES || (uint64_t)(d->n_states + 1) * d->n_ranges > MAX_CELLS)
        return too_large(e);
    if (d->n_states == *room) {
        uint32_t more = *room ? *room * 2 : 16;
        uint32_t *to = lily_realloc(d->to, (size_t)more * d->n_ranges, sizeof *to);
        if (to) d->to = to;
        uint8_t *ends = lily_realloc(d->final, more, sizeof *ends);
        if (ends) d->final = ends;
        if (!to || !ends) return lily_no_memory(e, (size_t)more * d->n_ranges * sizeof *to, "a pattern");
        *room = more;
    }
    memset(d->to + (size_t)d->n_states * d->n_ranges, 0, d->n_ranges * sizeof *d->to);
    d->final[d->n_states++] = final;
    return LILY_OK;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* d->low from n beginnings in any order; 0 is one always. */
static int set_ranges(dfa *d, const uint32_t *begins, uint32_t n, lily_err *e)
{
    uint32_t *low = d->low = lily_calloc((size_t)n + 1, sizeof *low);
    if (!low) return lily_no_memory(e, n * sizeof *low, "a pattern");
    if (n) memcpy(low + 1, begins, n * sizeof *low);
    qsort(low, (size_t)n + 1, sizeof *low, by_number);
    for (uint32_t i = 0; i <= n; i++)
        if (low[i] <= REGEX_LAST && (i == 0 || low[i] != low[d->n_ranges - 1])) low[d->n_ranges++] = low[i];
    return d->n_ranges <= MAX_RANGES ? LILY_OK : too_large(e);
}

/* ---- states that are alike ---- */

static uint32_t *slot_of(const dfa *d, const uint32_t *class, uint32_t *slot, uint32_t mask, uint32_t s)
{
    const uint32_t *row = d->to + (size_t)s * d->n_ranges;
    uint64_t hash = class[s];
    for (uint32_t i = 0; i < d->n_ranges; i++) hash = (hash ^ class[row[i]]) * UINT64_C(0x9E3779B97F4A7C15);
    uint32_t at = (uint32_t)(hash >> 32) & mask;
    for (; slot[at]; at = (at + 1) & mask) {
        const uint32_t o = slot[at] - 1, *other = d->to + (size_t)o * d->n_ranges;
        bool same = class[o] == class[s];
        for (uint32_t i = 0; i < d->n_ranges && same; i++) same = class[other[i]] == class[row[i]];
        if (same) break;
    }
    return &slot[at];
}

/* Classes of states that no string tells apart (Moore): at first the final ones and the others, then those
 * whose characters lead to the same classes, until that splits no class any more.  `class` and `next` are
 * [n_states]. */
static int find_classes(const dfa *d, uint32_t *class, uint32_t *next, uint32_t *slot, uint32_t room,
                        uint32_t *left, uint32_t *n_classes, lily_err *e)
{
    for (uint32_t s = 0; s < d->n_states; s++) class[s] = d->final[s];
    for (uint32_t before = 0, n = 1; n != before;) {
        before = n;
        n = 0;
        if (!take_work(left, (size_t)d->n_states * d->n_ranges / 4 + room / 16)) return too_large(e);
        memset(slot, 0, room * sizeof *slot);
        for (uint32_t s = 0; s < d->n_states; s++) {
            uint32_t *at = slot_of(d, class, slot, room - 1, s);
            next[s] = *at ? next[*at - 1] : n++;
            if (!*at) *at = s + 1;
        }
        memcpy(class, next, d->n_states * sizeof *class);
        *n_classes = n;
    }
    return LILY_OK;
}

/* One state for each class. They are numbered by their first: the dead state stays 0 and the start 1. */
static void join_classes(dfa *d, const uint32_t *class, uint32_t n_classes)
{
    uint32_t known = 0;
    for (uint32_t s = 0; s < d->n_states && known < n_classes; s++) {
        if (class[s] != known) continue;
        for (uint32_t i = 0; i < d->n_ranges; i++)
            d->to[(size_t)known * d->n_ranges + i] = class[d->to[(size_t)s * d->n_ranges + i]];
        d->final[known++] = d->final[s];
    }
    if (n_classes == 1) { /* nothing fits: the start is a dead state of its own */
        memset(d->to + d->n_ranges, 0, d->n_ranges * sizeof *d->to);
        n_classes = 2;
    }
    d->n_states = n_classes;
}

static int shrink(dfa *d, uint32_t *left, lily_err *e)
{
    uint32_t room = 64, n_classes = 0;
    while (room < 2 * d->n_states) room *= 2;
    uint32_t *class = lily_calloc(2 * (size_t)d->n_states, sizeof *class),
             *slot = lily_calloc(room, sizeof *slot);
    int rc = class && slot ? find_classes(d, class, class + d->n_states, slot, room, left, &n_classes, e)
                           : lily_no_memory(e, room * sizeof *slot, "a pattern");
    if (rc == LILY_OK) join_classes(d, class, n_classes);
    lily_free(class);
    lily_free(slot);
    return rc;
}

/* ---- the network of a pattern ---- */

enum nfa_kind { NFA_SET, NFA_SPLIT, NFA_BEGIN, NFA_END, NFA_MATCH };

typedef struct nfa_node {
    enum nfa_kind kind;
    uint32_t a, next; /* SET: the set; SPLIT: the other node */
} nfa_node;

/* A set of places: twice a node, + 1 where nothing may follow. */
typedef struct maker {
    const regex *r;
    dfa *d;
    nfa_node *nodes; /* [MAX_NFA] */
    uint32_t n_nodes, room;
    uint8_t *in_set; /* [n_sets + 1][n_ranges]; the last set holds all */
    /* the places of each state lie from at[state] to at[state + 1] in places, ascending */
    uint32_t *places, *at;
    uint32_t n_places, room_places;
    uint32_t *seen, *stack; /* [2 * MAX_NFA] */
    uint32_t round, *left;
    lily_err *e;
} maker;

static int add_node(maker *m, enum nfa_kind kind, uint32_t a, uint32_t next, uint32_t *out)
{
    *out = 0;
    if (m->n_nodes == MAX_NFA) return too_large(m->e);
    m->nodes[ *out = m->n_nodes++] = (nfa_node){kind, a, next};
    return LILY_OK;
}

static int build(maker *m, uint32_t tree, uint32_t next, uint32_t *out);

static int build_repeat(maker *m, const regex_node *n, uint32_t next, uint32_t *out)
{
    uint32_t at = next, loop, body;
    if (n->most == REGEX_ENDLESS) {
        TRY(add_node(m, NFA_SPLIT, next, next, &loop));
        TRY(build(m, n->a, loop, &body));
        m->nodes[loop].a = body;
        at = loop;
    } else {
        for (int32_t i = n->least; i < n->most; i++) {
            TRY(build(m, n->a, at, &body));
            TRY(add_node(m, NFA_SPLIT, body, next, &at));
        }
    }
    for (int32_t i = 0; i < n->least; i++) TRY(build(m, n->a, at, &at));
    *out = at;
    return LILY_OK;
}

/* The nodes of a tree in front of `next`. */
static int build(maker *m, uint32_t tree, uint32_t next, uint32_t *out)
{
    const regex_node *n = &m->r->nodes[tree];
    uint32_t one, other;
    if (!take_work(m->left, 1)) return too_large(m->e);
    for (; n->kind == REGEX_CAT; n = &m->r->nodes[n->a]) TRY(build(m, n->b, next, &next));
    switch (n->kind) {
    case REGEX_SET:
        return add_node(m, NFA_SET, n->a, next, out);
    case REGEX_ALT:
        TRY(build(m, n->b, next, &other));
        for (n = &m->r->nodes[n->a]; n->kind == REGEX_ALT; n = &m->r->nodes[n->a]) {
            TRY(build(m, n->b, next, &one));
            TRY(add_node(m, NFA_SPLIT, other, one, &other));
        }
        TRY(build(m, (uint32_t)(n - m->r->nodes), next, &one));
        return add_node(m, NFA_SPLIT, other, one, out);
    case REGEX_REPEAT:
        return build_repeat(m, n, next, out);
    case REGEX_BEGIN:
        return add_node(m, NFA_BEGIN, 0, next, out);
    case REGEX_END:
        return add_node(m, NFA_END, 0, next, out);
    default:
        *out = next;
        return LILY_OK;
    }
}

/* ---- sets of places as states ---- */

static int find_ranges(maker *m)
{
    const regex *r = m->r;
    uint32_t n = 2 * r->n_ranges, *begins = lily_calloc(n, sizeof *begins);
    if (!begins) return lily_no_memory(m->e, n * sizeof *begins, "a pattern");
    for (uint32_t i = 0; i < r->n_ranges; i++) {
        begins[2 * i] = r->ranges[i].low;
        begins[2 * i + 1] = r->ranges[i].high + 1;
    }
    int rc = set_ranges(m->d, begins, n, m->e);
    lily_free(begins);
    TRY(rc);
    m->in_set = lily_calloc(((size_t)r->n_sets + 1) * m->d->n_ranges, 1);
    if (!m->in_set) return lily_no_memory(m->e, (size_t)r->n_sets * m->d->n_ranges, "a pattern");
    memset(m->in_set + (size_t)r->n_sets * m->d->n_ranges, 1, m->d->n_ranges);
    for (uint32_t s = 0; s < r->n_sets; s++) {
        uint32_t i = r->sets[s].from, end = i + r->sets[s].n;
        for (uint32_t k = 0; k < m->d->n_ranges && i < end; k++) {
            while (i < end && r->ranges[i].high < m->d->low[k]) i++;
            if (i < end && r->ranges[i].low <= m->d->low[k]) m->in_set[(size_t)s * m->d->n_ranges + k] = 1;
        }
    }
    return LILY_OK;
}

/* Adds a place and all that it leads to without a character, behind the places so far. */
static int add_place(maker *m, uint32_t place, bool at_begin)
{
    uint32_t n = 0;
    m->stack[n++] = place;
    while (n > 0) {
        uint32_t at = m->stack[--n], ends = at & 1;
        const nfa_node *node = &m->nodes[at / 2];
        if (m->seen[at] == m->round) continue;
        m->seen[at] = m->round;
        if (!take_work(m->left, 1)) return too_large(m->e);
        if (node->kind == NFA_SPLIT) {
            m->stack[n++] = node->a * 2 + ends;
            m->stack[n++] = node->next * 2 + ends;
        } else if (node->kind == NFA_END) {
            m->stack[n++] = node->next * 2 + 1;
        } else if (node->kind == NFA_BEGIN) {
            if (at_begin) m->stack[n++] = node->next * 2 + ends;
        } else if (node->kind == NFA_MATCH || !ends) {
            if (m->n_places == m->room_places) {
                uint32_t more = m->room_places ? m->room_places * 2 : 256;
                uint32_t *places = lily_realloc(m->places, more, sizeof *places);
                if (!places) return lily_no_memory(m->e, more * sizeof *places, "a pattern");
                m->places = places;
                m->room_places = more;
            }
            m->places[m->n_places++] = at;
        }
    }
    return LILY_OK;
}

/* The state of the places from `from` on, which are dropped if it is known. Once the pattern has matched, all
 * may follow: nothing else matters then. */
static int intern(maker *m, uint32_t from, uint32_t *out)
{
    dfa *d = m->d;
    uint32_t n = m->n_places - from;
    bool final = false, matched = false;
    *out = DFA_DEAD;
    if (n == 0) return LILY_OK;
    qsort(m->places + from, n, sizeof *m->places, by_number);
    for (uint32_t i = 0; i < n; i++) {
        bool match = m->nodes[m->places[from + i] / 2].kind == NFA_MATCH;
        final = final || match;
        if (match && !(m->places[from + i] & 1)) matched = true;
    }
    if (matched) {
        for (uint32_t i = 0; i < n; i++)
            if (m->nodes[m->places[from + i] / 2].kind == NFA_MATCH && !(m->places[from + i] & 1))
                m->places[from] = m->places[from + i];
        n = 1;
    }
    for (uint32_t s = DFA_START; s < d->n_states; s++) {
        if (!take_work(m->left, 1 + (m->at[s + 1] - m->at[s] == n ? n / 8 : 0))) return too_large(m->e);
        if (m->at[s + 1] - m->at[s] == n &&
            memcmp(m->places + m->at[s], m->places + from, n * sizeof *m->places) == 0) {
            m->n_places = from;
            *out = s;
            return LILY_OK;
        }
    }
    m->n_places = from + n;
    *out = d->n_states;
    TRY(add_state(d, final, &m->room, m->e));
    m->at[d->n_states] = m->n_places;
    return LILY_OK;
}

static int step(maker *m, uint32_t state, uint32_t range, uint32_t *to)
{
    uint32_t from = m->n_places;
    m->round++;
    for (uint32_t i = m->at[state]; i < m->at[state + 1]; i++) {
        const uint32_t place = m->places[i];
        const nfa_node *node = &m->nodes[place / 2];
        if (!take_work(m->left, 1)) return too_large(m->e);
        if (node->kind == NFA_MATCH && !(place & 1)) TRY(add_place(m, place, false));
        if (node->kind == NFA_SET && m->in_set[(size_t)node->a * m->d->n_ranges + range])
            TRY(add_place(m, node->next * 2, false));
    }
    return intern(m, from, to);
}

static int make(maker *m)
{
    dfa *d = m->d;
    uint32_t match, root, again, start, to;
    TRY(find_ranges(m));
    TRY(add_node(m, NFA_MATCH, 0, 0, &match));
    TRY(build(m, m->r->root, match, &root));
    /* any characters may come before it */
    TRY(add_node(m, NFA_SPLIT, 0, root, &start));
    TRY(add_node(m, NFA_SET, m->r->n_sets, start, &again));
    m->nodes[start].a = again;
    TRY(add_state(d, false, &m->room, m->e));
    m->at[0] = m->at[1] = 0;
    m->round++;
    TRY(add_place(m, start * 2, true));
    TRY(intern(m, 0, &to));
    for (uint32_t s = DFA_START; s < d->n_states; s++)
        for (uint32_t i = 0; i < d->n_ranges; i++) {
            TRY(step(m, s, i, &to));
            d->to[(size_t)s * d->n_ranges + i] = to;
        }
    return LILY_OK;
}

int dfa_of_pattern(dfa *d, const char *text, size_t n, uint32_t *left, lily_err *e)
{
    regex r;
    *d = (dfa){0};
    TRY(regex_parse(&r, text, n, e));
    maker m = {.r = &r, .d = d, .left = left, .e = e};
    m.nodes = lily_calloc(MAX_NFA, sizeof *m.nodes);
    m.seen = lily_calloc(2 * MAX_NFA, sizeof *m.seen);
    m.stack = lily_calloc(4 * MAX_NFA, sizeof *m.stack);
    m.at = lily_calloc(MAX_STATES + 2, sizeof *m.at);
    int rc = m.nodes && m.seen && m.stack && m.at ? make(&m)
                                                  : lily_no_memory(e, MAX_NFA * sizeof *m.nodes, "a pattern");
    void *const parts[] = {m.nodes, m.seen, m.stack, m.at, m.in_set, m.places};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) lily_free(parts[i]);
    regex_free(&r);
    if (rc == LILY_OK) rc = shrink(d, left, e);
    if (rc != LILY_OK) dfa_free(d);
    return rc;
}

/* ---- pairs of states ---- */

typedef struct pairs { /* of (a, b), by state: what a state of the result stands for */
    uint32_t (*of)[2]; /* [MAX_STATES] */
    uint32_t *slot;    /* [2 * MAX_STATES] state, by hash; 0: free */
} pairs;

static int pairs_new(pairs *p, lily_err *e)
{
    p->of = lily_calloc(MAX_STATES, sizeof *p->of);
    p->slot = lily_calloc(2 * MAX_STATES, sizeof *p->slot);
    return p->of && p->slot ? LILY_OK : lily_no_memory(e, MAX_STATES * sizeof *p->of, "a pattern");
}

static void pairs_free(pairs *p)
{
    lily_free(p->of);
    lily_free(p->slot);
}

static int pair_state(dfa *d, pairs *p, uint32_t a, uint32_t b, bool final, uint32_t *room, uint32_t *out,
                      lily_err *e)
{
    uint32_t at = (uint32_t)(((uint64_t)a << 32 | b) * UINT64_C(0x9E3779B97F4A7C15) >> 40) % (2 * MAX_STATES);
    for (; p->slot[at]; at = (at + 1) % (2 * MAX_STATES)) {
        *out = p->slot[at];
        if (p->of[*out][0] == a && p->of[*out][1] == b) return LILY_OK;
    }
    *out = d->n_states;
    TRY(add_state(d, final, room, e));
    p->slot[at] = *out;
    p->of[*out][0] = a;
    p->of[*out][1] = b;
    return LILY_OK;
}

static int find_both(dfa *d, pairs *p, const dfa *a, const dfa *b, uint32_t *left, lily_err *e)
{
    uint32_t room = 0, to;
    TRY(add_state(d, false, &room, e));
    TRY(pair_state(d, p, DFA_START, DFA_START, a->final[DFA_START] && b->final[DFA_START], &room, &to, e));
    for (uint32_t s = DFA_START; s < d->n_states; s++) {
        if (!take_work(left, d->n_ranges)) return too_large(e);
        for (uint32_t i = 0, x = 0, y = 0; i < d->n_ranges; i++) {
            while (x + 1 < a->n_ranges && a->low[x + 1] <= d->low[i]) x++;
            while (y + 1 < b->n_ranges && b->low[y + 1] <= d->low[i]) y++;
            uint32_t ta = a->to[(size_t)p->of[s][0] * a->n_ranges + x],
                     tb = b->to[(size_t)p->of[s][1] * b->n_ranges + y];
            if (ta == DFA_DEAD || tb == DFA_DEAD) continue;
            TRY(pair_state(d, p, ta, tb, a->final[ta] && b->final[tb], &room, &to, e));
            d->to[(size_t)s * d->n_ranges + i] = to;
        }
    }
    return LILY_OK;
}

int dfa_both(dfa *d, const dfa *a, const dfa *b, uint32_t *left, lily_err *e)
{
    pairs p = {0};
    *d = (dfa){0};
    uint32_t *begins = lily_calloc(a->n_ranges + b->n_ranges, sizeof *begins);
    int rc = begins ? pairs_new(&p, e) : lily_no_memory(e, a->n_ranges * sizeof *begins, "a pattern");
    if (rc == LILY_OK) {
        memcpy(begins, a->low, a->n_ranges * sizeof *begins);
        memcpy(begins + a->n_ranges, b->low, b->n_ranges * sizeof *begins);
        rc = set_ranges(d, begins, a->n_ranges + b->n_ranges, e);
    }
    if (rc == LILY_OK) rc = find_both(d, &p, a, b, left, e);
    if (rc == LILY_OK) rc = shrink(d, left, e);
    lily_free(begins);
    pairs_free(&p);
    if (rc != LILY_OK) dfa_free(d);
    return rc;
}

/* ---- lengths ---- */

/* Whether all that fits is of low … high characters anyway.  Every state but the dead one is on a way from
 * the start to an end (shrink), so they can be taken in order unless there is a loop, which has no longest
 * string. */
static int fits_length(const dfa *a, int64_t low, int64_t high, bool *fits, lily_err *e)
{
    const uint32_t n = a->n_states;
    uint32_t *ways = lily_calloc(4 * (size_t)n, sizeof *ways), n_queue = 1, longest = 0,
             shortest = UINT32_MAX;
    *fits = false;
    if (!ways) return lily_no_memory(e, 4 * n * sizeof *ways, "a pattern");
    uint32_t *least = ways + n, *most = least + n, *queue = most + n;
    for (size_t i = a->n_ranges; i < (size_t)n * a->n_ranges; i++) ways[a->to[i]]++; /* into each state */
    for (uint32_t s = 0; s < n; s++) least[s] = UINT32_MAX;
    least[DFA_START] = 0;
    queue[0] = DFA_START;
    if (ways[DFA_START] > 0) n_queue = 0;
    for (uint32_t i = 0; i < n_queue; i++) {
        const uint32_t s = queue[i];
        if (a->final[s] && most[s] > longest) longest = most[s];
        if (a->final[s] && least[s] < shortest) shortest = least[s];
        for (uint32_t k = 0; k < a->n_ranges; k++) {
            const uint32_t t = a->to[(size_t)s * a->n_ranges + k];
            if (t == DFA_DEAD) continue;
            if (most[s] + 1 > most[t]) most[t] = most[s] + 1;
            if (least[s] + 1 < least[t]) least[t] = least[s] + 1;
            if (--ways[t] == 0) queue[n_queue++] = t;
        }
    }
    *fits = n_queue == n - 1 && shortest >= low && (high < 0 || longest <= high);
    lily_free(ways);
    return LILY_OK;
}

static int copy(dfa *d, const dfa *a, lily_err *e)
{
    const size_t cells = (size_t)a->n_states * a->n_ranges;
    *d = (dfa){.n_states = a->n_states, .n_ranges = a->n_ranges};
    d->low = lily_calloc(a->n_ranges, sizeof *d->low);
    d->to = lily_calloc(cells, sizeof *d->to);
    d->final = lily_calloc(a->n_states, 1);
    if (!d->low || !d->to || !d->final) return lily_no_memory(e, cells * sizeof *d->to, "a pattern");
    memcpy(d->low, a->low, a->n_ranges * sizeof *d->low);
    memcpy(d->to, a->to, cells * sizeof *d->to);
    memcpy(d->final, a->final, a->n_states);
    return LILY_OK;
}

/* States are (state of a, characters so far), one length after the other; without a limit, lengths from `low`
 * on are one. */
static int find_length(dfa *d, pairs *p, const dfa *a, int64_t low, int64_t high, uint32_t *left, lily_err *e)
{
    uint32_t room = 0, to, from = DFA_START, end = DFA_START + 1;
    TRY(add_state(d, false, &room, e));
    TRY(pair_state(d, p, DFA_START, 0, low == 0 && a->final[DFA_START], &room, &to, e));
    for (int64_t n = 0; from < end && (high < 0 || n < high); n++) {
        for (uint32_t s = from; s < end; s++) {
            if (!take_work(left, d->n_ranges)) return too_large(e);
            for (uint32_t i = 0; i < d->n_ranges; i++) {
                uint32_t ta = a->to[(size_t)p->of[s][0] * a->n_ranges + i], count = (uint32_t)n + 1;
                if (ta == DFA_DEAD) continue;
                if (high < 0 && n >= low) count = (uint32_t)low;
                lily_err full;
                int rc = pair_state(d, p, ta, count, count >= low && a->final[ta], &room, &to, &full);
                if (rc == LILY_UNSUPPORTED && high >= 0 && n >= low)
                    return LILY_OK; /* no longer strings than these */
                if (rc != LILY_OK) {
                    *e = full;
                    return rc;
                }
                d->to[(size_t)s * d->n_ranges + i] = to;
            }
        }
        from = end;
        end = d->n_states;
    }
    return LILY_OK;
}

int dfa_of_length(dfa *d, const dfa *a, int64_t low, int64_t high, uint32_t *left, lily_err *e)
{
    pairs p = {0};
    bool fits = false;
    *d = (dfa){0};
    int rc = fits_length(a, low, high, &fits, e);
    if (rc == LILY_OK && fits) {
        rc = copy(d, a, e);
    } else if (rc == LILY_OK) {
        rc = pairs_new(&p, e);
        if (rc == LILY_OK) rc = set_ranges(d, a->low, a->n_ranges, e);
        if (rc == LILY_OK) rc = find_length(d, &p, a, low, high, left, e);
    }
    pairs_free(&p);
    if (rc != LILY_OK) dfa_free(d);
    return rc;
}
