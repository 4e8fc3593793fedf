#include "sample/grammar.h"

#include <string.h>

#include "base/mem.h"

/* ---- life ---- */

int lily_grammar_new(lily_grammar **out, lily_err *e)
{
    lily_grammar *g = lily_calloc(1, sizeof *g);
    *out = g;
    if (!g) return lily_no_memory(e, sizeof *g, "a grammar");
    atomic_init(&g->holders, 1);
    g->room_nodes = 64;
    g->nodes = lily_calloc(g->room_nodes, sizeof *g->nodes);
    if (g->nodes) {
        g->n_nodes = 1;
        return LILY_OK;
    }
    lily_grammar_let_go(g);
    *out = NULL;
    return lily_no_memory(e, 64 * sizeof *g->nodes, "a grammar");
}

lily_grammar *lily_grammar_hold(lily_grammar *g)
{
    if (g) atomic_fetch_add(&g->holders, 1);
    return g;
}

void lily_grammar_let_go(lily_grammar *g)
{
    if (!g || atomic_fetch_sub(&g->holders, 1) != 1) return;
    lily_free(g->nodes);
    lily_free(g->sets);
    lily_free(g->rules);
    lily_free(g);
}

bool lily_grammar_failed(const lily_grammar *g)
{
    return g->no_memory || g->too_large;
}

/* ---- growing ---- */

/* Room for one more; false, with the failure noted, when there is none. */
static bool grow(lily_grammar *g, void **items, uint32_t n, uint32_t *room, size_t size)
{
    if (lily_grammar_failed(g)) return false;
    if (n < *room) return true;
    if (n >= LILY_GRAMMAR_NODES) {
        g->too_large = true;
        return false;
    }
    uint32_t more = *room ? *room * 2 : 16;
    void *p = lily_realloc(*items, more, size);
    if (!p) {
        g->no_memory = true;
        return false;
    }
    *items = p;
    *room = more;
    return true;
}

static uint32_t add(lily_grammar *g, enum lily_grammar_kind kind, uint32_t arg, uint32_t next)
{
    void *nodes = g->nodes;
    if (!grow(g, &nodes, g->n_nodes, &g->room_nodes, sizeof *g->nodes)) return LILY_GRAMMAR_END;
    g->nodes = nodes;
    g->nodes[g->n_nodes] = (lily_grammar_node){.kind = (uint8_t)kind, .arg = arg, .next = next};
    return g->n_nodes++;
}

/* Most sets repeat one of the last few. */
static uint32_t find_set(lily_grammar *g, const lily_byte_set *set)
{
    enum { LOOK_BACK = 64 };
    uint32_t from = g->n_sets > LOOK_BACK ? g->n_sets - LOOK_BACK : 0;
    for (uint32_t i = from; i < g->n_sets; i++)
        if (memcmp(&g->sets[i], set, sizeof *set) == 0) return i;
    void *sets = g->sets;
    if (!grow(g, &sets, g->n_sets, &g->room_sets, sizeof *g->sets)) return 0;
    g->sets = sets;
    g->sets[g->n_sets] = *set;
    return g->n_sets++;
}

uint32_t lily_grammar_set(lily_grammar *g, const lily_byte_set *set, uint32_t next)
{
    return add(g, LILY_NODE_BYTES, find_set(g, set), next);
}

uint32_t lily_grammar_range(lily_grammar *g, unsigned low, unsigned high, uint32_t next)
{
    lily_byte_set set = {{0}};
    lily_set_add(&set, low, high);
    return lily_grammar_set(g, &set, next);
}

uint32_t lily_grammar_text(lily_grammar *g, const char *text, size_t n, uint32_t next)
{
    for (size_t i = n; i-- > 0 && !lily_grammar_failed(g);)
        next = lily_grammar_range(g, (unsigned char)text[i], (unsigned char)text[i], next);
    return next;
}

uint32_t lily_grammar_split(lily_grammar *g, uint32_t a, uint32_t b)
{
    return add(g, LILY_NODE_SPLIT, b, a);
}
uint32_t lily_grammar_call(lily_grammar *g, uint32_t rule, uint32_t next)
{
    return add(g, LILY_NODE_CALL, rule, next);
}

uint32_t lily_grammar_never(lily_grammar *g)
{
    lily_byte_set none = {{0}};
    return lily_grammar_set(g, &none, LILY_GRAMMAR_END);
}

void lily_grammar_set_split(lily_grammar *g, uint32_t split, uint32_t a, uint32_t b)
{
    if (lily_grammar_failed(g)) return;
    g->nodes[split].next = a;
    g->nodes[split].arg = b;
}

uint32_t lily_grammar_rule(lily_grammar *g)
{
    void *rules = g->rules;
    if (!grow(g, &rules, g->n_rules, &g->room_rules, sizeof *g->rules)) return 0;
    g->rules = rules;
    g->rules[g->n_rules] = LILY_GRAMMAR_END;
    return g->n_rules++;
}

void lily_grammar_set_rule(lily_grammar *g, uint32_t rule, uint32_t node)
{
    if (!lily_grammar_failed(g)) g->rules[rule] = node;
}

/* ---- heights ---- */

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t height_of(const lily_grammar *g, const lily_grammar_node *n)
{
    static const lily_byte_set none;
    uint32_t next = g->nodes[n->next].height, callee;
    switch (n->kind) {
    case LILY_NODE_END:
        return 0;
    case LILY_NODE_BYTES:
        return memcmp(&g->sets[n->arg], &none, sizeof none) == 0 ? LILY_GRAMMAR_ENDLESS : next;
    case LILY_NODE_SPLIT:
        return next < g->nodes[n->arg].height ? next : g->nodes[n->arg].height;
    default:
        callee = g->nodes[g->rules[n->arg]].height;
        /* A call before END opens nothing: match.c */
        return n->next == LILY_GRAMMAR_END
                   ? callee
                   : larger(callee == LILY_GRAMMAR_ENDLESS ? callee : callee + 1, next);
    }
}

/* Lowers heights until nothing changes. What follows a node was mostly made before it, so few passes are
 * needed; each pass settles at least the next height, and heights beyond the depth are of no use. */
static void find_heights(lily_grammar *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++) g->nodes[i].height = LILY_GRAMMAR_ENDLESS;
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < g->n_nodes; i++) {
            uint32_t h = height_of(g, &g->nodes[i]);
            if (h > LILY_GRAMMAR_DEPTH) h = LILY_GRAMMAR_ENDLESS;
            if (h >= g->nodes[i].height) continue;
            g->nodes[i].height = (uint16_t)h;
            changed = true;
        }
    }
}

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

int lily_grammar_finish(lily_grammar *g, uint32_t start, uint32_t late, lily_err *e)
{
    if (g->no_memory) return lily_no_memory(e, g->n_nodes * sizeof *g->nodes, "a grammar");
    if (g->too_large) return lily_fail(e, LILY_UNSUPPORTED, "it is too large");
    g->start = start;
    g->late = late;
    find_heights(g);
    find_classes(g);
    if (g->nodes[start].height == LILY_GRAMMAR_ENDLESS)
        return lily_fail(e, LILY_ARGUMENT, "no finite text fits it");
    return LILY_OK;
}
