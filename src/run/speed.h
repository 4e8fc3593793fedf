/* speed.h - one timed sample: a random prompt is read, then tokens come.  Private to src/run. */
#ifndef LILY_RUN_SPEED_H
#define LILY_RUN_SPEED_H

#include "run/session.h"

/* What bench and ablate are asked to time, checked: LILY_ARGUMENT, or LILY_CONTEXT when a length does not fit. */
int lily_speed_check(const lily_loaded *m, const uint32_t *lengths, uint32_t n_lengths, uint32_t samples,
                     uint32_t decode_tokens, uint32_t *longest, lily_err *e);
/* So many random ids, the same each time; freed by the caller. NULL: no memory. */
int32_t *lily_speed_tokens(const lily_loaded *m, size_t n);

/* Reads the first `length` of the tokens into the session, from nothing; done when the first token of the reply is
 * there, which goes to *token.  *tok_s: tokens a second. */
int lily_speed_prefill(lily_session *s, const lily_loaded *m, const int32_t *tokens, uint32_t length, int32_t *token,
                       double *tok_s, lily_err *e);
/* Then n more, each chosen greedily and read in its turn, as in a reply; *token: the one to read, and what comes next. */
int lily_speed_decode(lily_session *s, const lily_loaded *m, int32_t *token, uint32_t n, double *tok_s, lily_err *e);

/* Sorts the values. */
double lily_median(double *values, uint32_t n);

#endif
