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
    g->pattern_work = LILY_GRAMMAR_WORK;
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
    lily_free(g->repeats);
    lily_free(g->order);
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

static uint32_t find_set(lily_grammar *g, const lily_byte_set *set)
{
    enum { SLOTS = 2 * LILY_GRAMMAR_SETS };
    uint64_t hash = 0;
    for (size_t i = 0; i < 4; i++) hash = (hash ^ set->bits[i]) * UINT64_C(0x9E3779B97F4A7C15);
    uint32_t at = (uint32_t)(hash >> 40) % SLOTS;
    for (; g->set_slot[at]; at = (at + 1) % SLOTS)
        if (memcmp(&g->sets[g->set_slot[at] - 1], set, sizeof *set) == 0) return g->set_slot[at] - 1u;
    void *sets = g->sets;
    if (g->n_sets == LILY_GRAMMAR_SETS) g->too_large = true;
    if (!grow(g, &sets, g->n_sets, &g->room_sets, sizeof *g->sets)) return 0;
    g->sets = sets;
    g->sets[g->n_sets] = *set;
    g->set_slot[at] = (uint16_t)++g->n_sets;
    return g->n_sets - 1;
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
    g->rules[g->n_rules] = (lily_grammar_rule_info){.node = LILY_GRAMMAR_END};
    return g->n_rules++;
}

void lily_grammar_set_rule(lily_grammar *g, uint32_t rule, uint32_t node)
{
    if (!lily_grammar_failed(g)) g->rules[rule].node = node;
}

uint32_t lily_grammar_repeated(lily_grammar *g, uint32_t rule, uint32_t least, uint32_t most, uint32_t next)
{
    if (most == 0) return next;
    void *repeats = g->repeats;
    if (!grow(g, &repeats, g->n_repeats, &g->room_repeats, sizeof *g->repeats)) return LILY_GRAMMAR_END;
    g->repeats = repeats;
    g->repeats[g->n_repeats] = (lily_grammar_repeat){rule, least, most};
    return add(g, LILY_NODE_REPEAT, g->n_repeats++, next);
}

uint32_t lily_grammar_any(lily_grammar *g, const uint32_t *nodes, size_t n)
{
    if (n == 0) return lily_grammar_never(g);
    uint32_t any = nodes[n - 1];
    for (size_t i = n - 1; i-- > 0;) any = lily_grammar_split(g, nodes[i], any);
    return any;
}
