/* script_play.h - a scripted reply while it is given: which token comes next.  Private to src/run.
 *
 * A token comes from the source; or by force of the guide (guide.h): one that closes the thinking at once, any other
 * where the source's own does not fit, so that a script may hold such text or leave it out.  Scores go through the
 * guide's mask and the sampler, as a model's do. */
#ifndef LILY_RUN_SCRIPT_PLAY_H
#define LILY_RUN_SCRIPT_PLAY_H

#include "run/guide.h"
#include "run/script.h"

typedef struct lily_play {
    const lily_loaded *m;
    const lily_ask *ask;
    const lily_script_reply *reply;
    const lily_script_source *source;
    uint64_t at;                    /* of the source */
    uint64_t n_taken;               /* of all sources */
    bool after_think;               /* the source has changed */
    /* For scores; owned. */
    float *logits;                  /* [vocab] */
    uint32_t *count;                /* [vocab] of the reply's tokens, for the penalties */
    void *room;
} lily_play;                        /* {0} is none */

enum lily_play_kind { LILY_PLAY_TOKEN, LILY_PLAY_STOP, LILY_PLAY_LENGTH };

typedef struct lily_play_step {
    enum lily_play_kind kind;
    lily_script_token token;
    bool scripted;                  /* taken from the source, not by force */
    float logprob;
    uint32_t n_top;
    lily_top top[LILY_MAX_TOP];
} lily_play_step;

int lily_play_begin(lily_play *p, const lily_loaded *m, const lily_ask *ask, const lily_script_reply *reply, lily_err *e);
void lily_play_end(lily_play *p);
/* The next token, which the guide has taken; `draw`: tokens of the reply so far.  LILY_DEVICE for a failure that the
 * script plants, and with *err_code "script_refused" for what the guide refuses. */
int lily_play_next(lily_play *p, lily_guide *g, uint32_t draw, lily_play_step *out, const char **err_code, lily_err *e);

#endif
