/* score.h - teacher-forced log-likelihood of given tokens, for perplexity and parity. */
#ifndef LILY_RUN_SCORE_H
#define LILY_RUN_SCORE_H

#include "run/engine.h"

typedef struct lily_scored {
    uint32_t n;             /* tokens */
    float *nll;             /* [n-1] natural-log loss of token i+1; owned */
    int32_t *best;          /* [n-1] top id there */
    uint32_t n_top;         /* 20, or the vocabulary if that is smaller */
    int32_t top_id[20];     /* the best rows after the last token, best first */
    float top_logit[20];
    double ppl;             /* exp of the mean of nll */
} lily_scored;

/* Runs the tokens through the model in passes of the given lengths (their sum is n; NULL: chunks of the engine).
 * A pass of one token uses the decode path.  Blocks; call it instead of submit, with no request running. */
int lily_engine_score(lily_engine *g, const int32_t *tokens, uint32_t n, const uint32_t *windows, uint32_t n_windows,
                      lily_scored *out, lily_err *e);
void lily_scored_free(lily_scored *s);

#endif
