/* grammar.h - a language over bytes: a network of nodes that call one another.
 *
 * A node is one of
 *     BYTES   one byte out of a set, then `next`
 *     CALL    what a rule says, then `next`
 *     REPEAT  what a rule says, between so and so many times, then `next`
 *     SPLIT   either of two nodes
 *     END     the rule is done
 * A rule is the node that it begins with.  Networks are built from the back: a node needs to know what
 * follows it; a loop first makes its SPLIT and sets it when the body is there.  match.h runs a network.
 *
 * A rule must not come back to itself before it has read a byte: finish puts the rules in order, so that a
 * rule comes behind all those that can call it at the same place, which the matcher relies on.
 *
 * Each node has a height: how many open calls the shortest way from it to its END needs at most at a time. A
 * node without a finite way has none, and the matcher never goes there; so what the matcher accepts as a
 * beginning can always be completed. */
#ifndef LILY_SAMPLE_GRAMMAR_H
#define LILY_SAMPLE_GRAMMAR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Calls that may be open at a time: it bounds how deep a document can nest. */
enum {
    LILY_GRAMMAR_DEPTH = 256,
    LILY_GRAMMAR_NODES = 1 << 17,
    LILY_GRAMMAR_SETS = 4096,
    LILY_GRAMMAR_WORK = 6000000
};
enum { LILY_GRAMMAR_ENDLESS = UINT16_MAX }; /* a height */

typedef struct lily_byte_set {
    uint64_t bits[4];
} lily_byte_set;

static inline void lily_set_add(lily_byte_set *s, unsigned low, unsigned high)
{
    for (unsigned i = low; i <= high; i++) s->bits[i / 64] |= UINT64_C(1) << (i % 64);
}
static inline void lily_set_remove(lily_byte_set *s, unsigned byte)
{
    s->bits[byte / 64] &= ~(UINT64_C(1) << (byte % 64));
}
static inline bool lily_set_has(const lily_byte_set *s, unsigned byte)
{
    return s->bits[byte / 64] >> (byte % 64) & 1;
}

enum lily_grammar_kind { LILY_NODE_END, LILY_NODE_BYTES, LILY_NODE_CALL, LILY_NODE_REPEAT, LILY_NODE_SPLIT };

typedef struct lily_grammar_node {
    uint8_t kind;
    uint16_t height;
    uint32_t arg; /* BYTES: the set; CALL: the rule; REPEAT: in repeats; SPLIT: the other node */
    uint32_t next;
} lily_grammar_node;

typedef struct lily_grammar_repeat {
    uint32_t rule, least, most; /* most UINT32_MAX: without a limit */
} lily_grammar_repeat;

typedef struct lily_grammar_rule_info {
    uint32_t node;
    uint32_t rank; /* its place in the order */
    bool empty;    /* nothing at all fits it */
} lily_grammar_rule_info;

/* Immutable once finished, and shared: it goes when the last holder lets go. */
typedef struct lily_grammar {
    lily_grammar_node *nodes; /* nodes[0] is the one END */
    lily_byte_set *sets;
    lily_grammar_rule_info *rules;
    lily_grammar_repeat *repeats;
    uint32_t *order;                          /* rules by rank; set by finish */
    uint16_t set_slot[2 * LILY_GRAMMAR_SETS]; /* index + 1, by hash */
    uint32_t n_nodes, n_sets, n_rules, n_repeats, room_nodes, room_sets, room_rules, room_repeats;
    uint32_t loops;       /* a rule that comes back to itself, or UINT32_MAX */
    uint32_t start, late; /* late: the same after white space, as behind a thought */
    /* Bytes that no set tells apart are one class; set by finish. */
    uint8_t class_of[256];
    uint32_t n_classes;
    bool no_memory, too_large; /* while it is built */
    uint32_t pattern_work;     /* steps that all its patterns may still take: dfa.h */
    atomic_uint holders;
} lily_grammar;

/* ---- building; a failure is remembered and told by lily_grammar_finish ---- */

enum { LILY_GRAMMAR_END = 0 };

int lily_grammar_new(lily_grammar **out, lily_err *e);
uint32_t lily_grammar_set(lily_grammar *g, const lily_byte_set *set, uint32_t next);
uint32_t lily_grammar_range(lily_grammar *g, unsigned low, unsigned high, uint32_t next);
uint32_t lily_grammar_text(lily_grammar *g, const char *text, size_t n, uint32_t next);
uint32_t lily_grammar_split(lily_grammar *g, uint32_t a, uint32_t b);
uint32_t lily_grammar_call(lily_grammar *g, uint32_t rule, uint32_t next);
/* `rule` between least and most times; most UINT32_MAX: without a limit. The rule must not fit nothing. */
uint32_t lily_grammar_repeated(lily_grammar *g, uint32_t rule, uint32_t least, uint32_t most, uint32_t next);
/* Any of the n nodes; earlier ones are tried first. */
uint32_t lily_grammar_any(lily_grammar *g, const uint32_t *nodes, size_t n);
/* Where nothing can follow. */
uint32_t lily_grammar_never(lily_grammar *g);
/* A split or rule that is set later. */
void lily_grammar_set_split(lily_grammar *g, uint32_t split, uint32_t a, uint32_t b);
uint32_t lily_grammar_rule(lily_grammar *g);
void lily_grammar_set_rule(lily_grammar *g, uint32_t rule, uint32_t node);
/* Whether it can no longer be finished: time to stop building. */
bool lily_grammar_failed(const lily_grammar *g);

/* Makes it ready to match from `start` or `late`.  LILY_UNSUPPORTED when it has become too large,
 * LILY_ARGUMENT when it says nothing finite, or when a rule comes back to itself: g->loops is then that rule.
 */
int lily_grammar_finish(lily_grammar *g, uint32_t start, uint32_t late, lily_err *e);

lily_grammar *lily_grammar_hold(lily_grammar *g); /* NULL is allowed */
void lily_grammar_let_go(lily_grammar *g);        /* NULL is allowed */

#endif
