/* speed.h - one timed sample: a random prompt is read, then tokens come.  Private to src/run. */
#ifndef LILY_RUN_SPEED_H
#define LILY_RUN_SPEED_H

#include "run/session.h"
#include "run/timing.h"

/* What is asked, checked: LILY_ARGUMENT, or LILY_CONTEXT when a length and so many tokens more do not fit. */
int lily_speed_check(const lily_loaded *m, const lily_timing *t, uint64_t more, uint32_t *longest, lily_err *e);
/* So many random ids, the same each time; freed by the caller. NULL: no memory. */
int32_t *lily_speed_tokens(const lily_loaded *m, size_t n);

/* Reads the first `length` of the tokens into the session, from nothing; done when the first token of the reply is
 * there, which goes to *token.  *tok_s: tokens a second. */
int lily_speed_prefill(lily_session *s, const lily_loaded *m, const int32_t *tokens, uint32_t length, int32_t *token,
                       double *tok_s, lily_err *e);
/* Then n more, each chosen greedily and read in its turn, as in a reply; *token: the one to read, and what comes next. */
int lily_speed_decode(lily_session *s, const lily_loaded *m, int32_t *token, uint32_t n, double *tok_s, lily_err *e);

/* `runs` runs of so many of the tokens by the plan of prompts, each choice of which is wanted, after two unmeasured ones;
 * the first of the tokens are read next.  *tok_s: tokens a second. */
int lily_speed_verify(lily_session *s, const lily_loaded *m, const int32_t *tokens, uint32_t rows, uint32_t runs,
                      double *tok_s, lily_err *e);

/* Sorts the values. */
double lily_median(double *values, uint32_t n);

#endif
