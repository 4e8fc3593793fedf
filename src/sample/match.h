/* match.h - a grammar run over bytes, one after another.
 *
 * The matcher holds every way in which the bytes so far can be read: a set of (node, frame).  A frame is an
 * open call with all the places that it may return to: whoever calls a rule at the same byte shares one
 * frame, so that ambiguity widens frames and does not multiply ways (a graph-structured stack).  Sets, frames
 * and the steps between sets are remembered under small numbers, so that walking over a known stretch costs
 * one look-up a byte: an automaton that is made while it is used.  One thread. */
#ifndef LILY_SAMPLE_MATCH_H
#define LILY_SAMPLE_MATCH_H

#include "sample/grammar.h"

typedef struct lily_matcher lily_matcher;

/* A state of the automaton, below LILY_MATCH_STATES; NONE accepts nothing. Numbers hold until
 * lily_matcher_tidy. */
typedef uint32_t lily_match;
enum { LILY_MATCH_NONE = 0, LILY_MATCH_STATES = 16384 };

/* Holds the grammar. `late`: white space may come first. */
int lily_matcher_new(lily_matcher **out, lily_grammar *g, bool late, lily_err *e);
void lily_matcher_free(lily_matcher *m); /* NULL is allowed */

lily_match lily_matcher_start(lily_matcher *m);
/* The state after one more byte, LILY_MATCH_NONE if none fits. Once memory is lost every step gives NONE and
 * lily_matcher_ok tells. */
lily_match lily_matcher_step(lily_matcher *m, lily_match from, uint8_t byte);
int lily_matcher_ok(const lily_matcher *m, lily_err *e);
/* Whether the bytes so far are a whole text. */
bool lily_matcher_complete(const lily_matcher *m, lily_match at);
/* Whether so much is remembered that it is time to begin anew; then forgets all but `at`, whose new number it
 * gives. *forgotten tells whether it did. */
lily_match lily_matcher_tidy(lily_matcher *m, lily_match at, bool *forgotten);

/* The state that stands for `at` and all that differ from it only in counts which play no part within `reach`
 * bytes, always the same `reach`: in a long string or list the same from one character or item to the next.
 */
lily_match lily_matcher_near(lily_matcher *m, lily_match at, uint32_t reach);

/* From now on steps that are not known yet may cost so much in all (ways looked at), and leave some of the
 * states for later; afterwards they give NONE. The limit is taken off by lily_matcher_no_limit, which tells
 * whether it was reached. */
void lily_matcher_limit(lily_matcher *m, uint32_t work);
bool lily_matcher_no_limit(lily_matcher *m);

#endif
