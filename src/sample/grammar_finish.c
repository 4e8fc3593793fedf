/* grammar_finish.c - what the matcher needs to know of a network before it runs: classes of bytes, the order
 * of rules, heights. */
#include <string.h>

#include "base/mem.h"
#include "sample/grammar.h"

enum { NONE = UINT32_MAX };

/* ---- classes ---- */

/* Each set splits the classes that it cuts. */
static void find_classes(lily_grammar *g)
{
    g->n_classes = 1;
    for (uint32_t i = 0; i < g->n_sets && g->n_classes < 256; i++) {
        int16_t inside[256]; /* the new class of those of an old one that are in the set; -1: none yet */
        bool outside[256] = {false}; /* whether some of it are not */
        for (size_t k = 0; k < 256; k++) inside[k] = -1;
        for (unsigned b = 0; b < 256; b++)
            if (!lily_set_has(&g->sets[i], b)) outside[g->class_of[b]] = true;
        for (unsigned b = 0; b < 256; b++) {
            uint8_t old = g->class_of[b];
            if (!lily_set_has(&g->sets[i], b) || !outside[old]) continue;
            if (inside[old] < 0) inside[old] = (int16_t)g->n_classes++;
            g->class_of[b] = (uint8_t)inside[old];
        }
    }
}

/* ---- rules that fit nothing at all ---- */

/* Nodes reached without reading a byte. */
typedef struct walk {
    uint32_t *todo, *seen; /* [n_nodes]; seen: the round in which a node was met last */
    uint32_t n, round;
} walk;

static void meet(walk *w, uint32_t node)
{
    if (w->seen[node] == w->round) return;
    w->seen[node] = w->round;
    w->todo[w->n++] = node;
}

static void walk_begin(walk *w, uint32_t node)
{
    w->n = 0;
    w->round++;
    meet(w, node);
}

/* Goes on from a node that was met, and gives the rule that it calls, NONE if it does not. */
static uint32_t walk_on(walk *w, const lily_grammar *g, uint32_t node)
{
    const lily_grammar_node *n = &g->nodes[node];
    uint32_t rule = NONE;
    if (n->kind == LILY_NODE_SPLIT) {
        meet(w, n->next);
        meet(w, n->arg);
    } else if (n->kind == LILY_NODE_CALL) {
        rule = n->arg;
        if (g->rules[rule].empty) meet(w, n->next);
    } else if (n->kind == LILY_NODE_REPEAT) {
        rule = g->repeats[n->arg].rule;
        if (g->rules[rule].empty || g->repeats[n->arg].least == 0) meet(w, n->next);
    }
    return rule;
}

static void find_empty(lily_grammar *g, walk *w)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t r = 0; r < g->n_rules; r++) {
            if (g->rules[r].empty) continue;
            walk_begin(w, g->rules[r].node);
            for (uint32_t i = 0; i < w->n && !g->rules[r].empty; i++) {
                if (w->todo[i] == LILY_GRAMMAR_END) changed = g->rules[r].empty = true;
                walk_on(w, g, w->todo[i]);
            }
        }
    }
}

/* ---- the order of rules ---- */

typedef struct links { /* of item i: to[from[i]] … to[from[i + 1] - 1] */
    uint32_t *from, *to;
} links;

static void links_free(links *l)
{
    lily_free(l->from);
    lily_free(l->to);
}

/* Which rules each calls before it has read a byte. */
static int find_calls(const lily_grammar *g, walk *w, links *l, lily_err *e)
{
    l->from = lily_calloc((size_t)g->n_rules + 1, sizeof *l->from);
    for (int counting = 1; l->from && counting >= 0; counting--) {
        uint32_t n = 0;
        for (uint32_t r = 0; r < g->n_rules; r++) {
            l->from[r] = n;
            walk_begin(w, g->rules[r].node);
            for (uint32_t i = 0; i < w->n; i++) {
                uint32_t called = walk_on(w, g, w->todo[i]);
                if (called == NONE) continue;
                if (!counting) l->to[n] = called;
                n++;
            }
        }
        l->from[g->n_rules] = n;
        if (counting) l->to = lily_calloc(n, sizeof *l->to);
        if (!l->to) return lily_no_memory(e, n * sizeof *l->to, "the rules of a grammar");
    }
    return l->from ? LILY_OK : lily_no_memory(e, g->n_rules * sizeof *l->from, "the rules of a grammar");
}

/* Depth first; a rule gets its rank when all that it calls have theirs, from the last rank down. */
static int find_order(lily_grammar *g, const links *calls, uint32_t *stack, uint32_t *at, lily_err *e)
{
    enum { FRESH, OPEN, DONE };
    uint32_t rank = g->n_rules;
    uint8_t *mark = lily_calloc(g->n_rules, 1);
    if (!mark) return lily_no_memory(e, g->n_rules, "the rules of a grammar");
    for (uint32_t root = 0; root < g->n_rules; root++) {
        uint32_t depth = 0;
        if (mark[root] == FRESH) {
            stack[depth++] = root;
            mark[root] = OPEN;
            at[root] = calls->from[root];
        }
        while (depth > 0) {
            uint32_t r = stack[depth - 1];
            if (at[r] == calls->from[r + 1]) {
                mark[r] = DONE;
                g->rules[r].rank = --rank;
                g->order[rank] = r;
                depth--;
                continue;
            }
            uint32_t to = calls->to[at[r]++];
            if (mark[to] == OPEN) {
                g->loops = to;
                lily_free(mark);
                return lily_fail(e, LILY_ARGUMENT, "it leads back to itself without a value in between");
            }
            if (mark[to] == DONE) continue;
            stack[depth++] = to;
            mark[to] = OPEN;
            at[to] = calls->from[to];
        }
    }
    lily_free(mark);
    return LILY_OK;
}

static int find_ranks(lily_grammar *g, lily_err *e)
{
    size_t room = (g->n_nodes > g->n_rules ? g->n_nodes : g->n_rules) + 1;
    walk w = {.todo = lily_calloc(room, sizeof *w.todo), .seen = lily_calloc(room, sizeof *w.seen)};
    links calls = {0};
    g->order = lily_calloc(g->n_rules, sizeof *g->order);
    int rc = w.todo && w.seen && g->order
                 ? LILY_OK
                 : lily_no_memory(e, room * sizeof *w.todo, "the rules of a grammar");
    if (rc == LILY_OK) {
        find_empty(g, &w);
        rc = find_calls(g, &w, &calls, e);
    }
    if (rc == LILY_OK) rc = find_order(g, &calls, w.todo, w.seen, e);
    links_free(&calls);
    lily_free(w.todo);
    lily_free(w.seen);
    return rc;
}

/* ---- heights ---- */

/* The node of the rule that a CALL or REPEAT calls; NONE for others. */
static uint32_t callee(const lily_grammar *g, const lily_grammar_node *n)
{
    if (n->kind == LILY_NODE_CALL) return g->rules[n->arg].node;
    return n->kind == LILY_NODE_REPEAT ? g->rules[g->repeats[n->arg].rule].node : NONE;
}

/* From what is known of the nodes that it leads to; ENDLESS while that is not enough. */
static uint32_t height_of(const lily_grammar *g, const lily_grammar_node *n)
{
    static const lily_byte_set none;
    uint32_t next = g->nodes[n->next].height, other;
    switch (n->kind) {
    case LILY_NODE_END:
        return 0;
    case LILY_NODE_BYTES:
        return memcmp(&g->sets[n->arg], &none, sizeof none) == 0 ? LILY_GRAMMAR_ENDLESS : next;
    case LILY_NODE_SPLIT:
        other = g->nodes[n->arg].height;
        return next < other ? next : other;
    case LILY_NODE_REPEAT:
        if (g->repeats[n->arg].least == 0) return next;
        break;
    default:
        /* A call before END opens nothing: match.c */
        if (n->next == LILY_GRAMMAR_END) return g->nodes[callee(g, n)].height;
    }
    other = g->nodes[callee(g, n)].height;
    if (next == LILY_GRAMMAR_ENDLESS || other == LILY_GRAMMAR_ENDLESS) return LILY_GRAMMAR_ENDLESS;
    return next > other + 1 ? next : other + 1;
}

/* Whose heights depend on each node's. */
static int find_users(const lily_grammar *g, links *l, lily_err *e)
{
    uint32_t *fill;
    l->from = lily_calloc((size_t)g->n_nodes + 2, sizeof *l->from);
    l->to = lily_calloc(2 * (size_t)g->n_nodes, sizeof *l->to);
    if (!l->from || !l->to) return lily_no_memory(e, 3 * g->n_nodes * sizeof *l->to, "a grammar");
    fill = l->from + 1; /* after counting, where the next user of a node goes */
    for (int counting = 1; counting >= 0; counting--) {
        for (uint32_t i = 1; i < g->n_nodes; i++) {
            const lily_grammar_node *n = &g->nodes[i];
            uint32_t other = n->kind == LILY_NODE_SPLIT ? n->arg : callee(g, n);
            if (counting) {
                fill[n->next + 1]++;
                if (other != NONE) fill[other + 1]++;
            } else {
                l->to[fill[n->next]++] = i;
                if (other != NONE) l->to[fill[other]++] = i;
            }
        }
        for (uint32_t i = 0; counting && i < g->n_nodes; i++) fill[i + 1] += fill[i];
    }
    return LILY_OK;
}

/* Heights are settled from the lowest up: a node's is settled as soon as those that it needs are. */
static int find_heights(lily_grammar *g, lily_err *e)
{
    links users = {0};
    uint32_t first[LILY_GRAMMAR_DEPTH + 1], *link = lily_calloc(g->n_nodes, sizeof *link);
    int rc = find_users(g, &users, e);
    if (rc == LILY_OK && !link) rc = lily_no_memory(e, g->n_nodes * sizeof *link, "a grammar");
    for (uint32_t i = 0; i < g->n_nodes; i++) g->nodes[i].height = LILY_GRAMMAR_ENDLESS;
    for (uint32_t h = 0; h <= LILY_GRAMMAR_DEPTH; h++) first[h] = NONE;
    g->nodes[LILY_GRAMMAR_END].height = 0;
    if (rc == LILY_OK) {
        first[0] = LILY_GRAMMAR_END;
        link[LILY_GRAMMAR_END] = NONE;
    }
    for (uint32_t h = 0; h <= LILY_GRAMMAR_DEPTH; h++)
        while (first[h] != NONE) {
            uint32_t i = first[h];
            first[h] = link[i];
            for (uint32_t k = users.from[i]; k < users.from[i + 1]; k++) {
                uint32_t u = users.to[k], height = height_of(g, &g->nodes[u]);
                if (g->nodes[u].height != LILY_GRAMMAR_ENDLESS || height > LILY_GRAMMAR_DEPTH) continue;
                g->nodes[u].height = (uint16_t)height;
                link[u] = first[height];
                first[height] = u;
            }
        }
    links_free(&users);
    lily_free(link);
    return rc;
}

int lily_grammar_finish(lily_grammar *g, uint32_t start, uint32_t late, lily_err *e)
{
    g->loops = NONE;
    if (g->no_memory) return lily_no_memory(e, g->n_nodes * sizeof *g->nodes, "a grammar");
    if (g->too_large) return lily_fail(e, LILY_UNSUPPORTED, "it is too large");
    g->start = start;
    g->late = late;
    TRY(find_ranks(g, e));
    TRY(find_heights(g, e));
    find_classes(g);
    if (g->nodes[start].height == LILY_GRAMMAR_ENDLESS)
        return lily_fail(e, LILY_ARGUMENT, "no finite text fits it");
    return LILY_OK;
}
