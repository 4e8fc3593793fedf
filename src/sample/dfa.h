/* dfa.h - sets of strings as deterministic automata over characters: patterns, their intersections, lengths.
 * Private to src/sample. */
#ifndef LILY_SAMPLE_DFA_H
#define LILY_SAMPLE_DFA_H

#include "sample/json_parts.h"

enum { DFA_DEAD = 0, DFA_START = 1 }; /* states */

typedef struct dfa {
    uint32_t n_states, n_ranges;
    uint32_t *low;  /* [n_ranges] where each range of characters begins; it ends before the next, the last at
                       the end */
    uint32_t *to;   /* [n_states][n_ranges] */
    uint8_t *final; /* [n_states] whether a string may end there */
} dfa;

/* Making one takes steps from *left, which all of a grammar share (its pattern_work). */

/* The strings in which the pattern (ECMA 262, regex.h) finds something.  LILY_UNSUPPORTED when it takes too
 * many states, and as regex_parse. */
int dfa_of_pattern(dfa *d, const char *text, size_t n, uint32_t *left, lily_err *e);
/* What is in both. */
int dfa_both(dfa *d, const dfa *a, const dfa *b, uint32_t *left, lily_err *e);
/* Those of low … high characters (high < 0: no limit).  When the states do not suffice `high` is made
 * smaller, but not below `low`. */
int dfa_of_length(dfa *d, const dfa *a, int64_t low, int64_t high, uint32_t *left, lily_err *e);
void dfa_free(dfa *d);

/* The JSON string that holds one of them, in front of `next`.  Characters stand for themselves; only those
 * that must be escaped are, in their shortest form. */
uint32_t part_dfa(const json_parts *p, const dfa *d, uint32_t next);
/* The same as it is, without quotation marks and escapes. */
uint32_t part_dfa_text(const json_parts *p, const dfa *d, uint32_t next);

#endif
