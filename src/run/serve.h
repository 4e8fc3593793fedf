/* serve.h - one request from its turn to its END, in steps, on the engine's thread.
 *
 * The loop (loop.c) holds several turns and gives each a step in turn: BEGIN finds a session or waits for room, READ
 * brings in a slice of the prompt, REPLY gives a token.  A step that fails, and one after a cancel, ends the turn. */
#ifndef LILY_RUN_SERVE_H
#define LILY_RUN_SERVE_H

#include "run/guide.h"
#include "run/pool.h"
#include "run/request.h"
#include "run/script.h"
#include "run/script_play.h"

enum lily_phase { LILY_PHASE_BEGIN, LILY_PHASE_READ, LILY_PHASE_REPLY, LILY_PHASE_OVER };

/* What a request has done so far. */
typedef struct lily_turn {
    lily_request *r;
    const lily_loaded *m;
    enum lily_phase phase;
    uint64_t due;                               /* lily_now_ns: no step before that, unless it is cancelled */
    uint32_t n_reused, n_done, n_generated;     /* n_done: of the prompt, as told */
    uint32_t limit;                             /* tokens of the reply at most */
    uint64_t started, first_token, last_token;  /* ns; 0: not yet */
    enum lily_end end;
    const char *err_code;
    lily_err err;
    lily_guide guide;                           /* from the end of BEGIN on */

    /* By the model. */
    lily_pool *pool;
    lily_session *session;                      /* taken from the pool, or NULL */
    lily_reading reading;
    lily_pick pick;
    int32_t token;                              /* fed next */
    bool alone;                                 /* nobody else wants the device: set by the loop before a step */

    /* By a script; with a session too when the model runs along. */
    lily_script *script;
    bool asked;                                 /* the script has named its reply */
    const lily_script_reply *reply;             /* NULL: none was taken, and the model answers if there is one */
    lily_play play;
    uint64_t ticket, i;                         /* i: steps of reading */
    bool behind, paused;                        /* behind: its reader was too slow once */
} lily_turn;

void lily_turn_begin(lily_turn *t, lily_request *r, const lily_loaded *m);
int lily_turn_started(lily_turn *t, uint32_t n_reused, lily_err *e);
int lily_turn_progress(lily_turn *t, uint32_t n_done, lily_err *e);
/* A token of the reply; the guide has taken it. */
int lily_turn_token(lily_turn *t, lily_event *ev, lily_err *e);
/* The reply is complete. */
int lily_turn_over(lily_turn *t, enum lily_end end);
/* Whether there is something to do for it now. */
bool lily_turn_is_due(const lily_turn *t, uint64_t now);
/* After its last step, rc: gives everything back and settles how it ended.  The END is not sent yet. */
void lily_turn_close(lily_turn *t, int rc);
/* Sends the END.  The request may be gone after it. */
void lily_turn_end(lily_turn *t);
bool lily_is_eos(const lily_loaded *m, int32_t id);
lily_pick lily_pick_of(const lily_sampling *s, const lily_loaded *m);

/* By the model.  BEGIN may leave the phase as it is: there is no room while others run. */
int lily_model_begin(lily_turn *t, lily_err *e);
int lily_model_read(lily_turn *t, uint32_t most, lily_err *e);
int lily_model_reply(lily_turn *t, lily_err *e);
/* Waits for a run that was submitted before the last token was read: others are going to use the device. */
int lily_model_land(lily_turn *t, lily_err *e);
/* Feeds t->token alone; what follows it is not asked for. */
int lily_model_feed(lily_turn *t, lily_err *e);

/* By a script: the next step of a phase in which the model has no part, or not the whole one. */
int lily_script_step(lily_turn *t, lily_err *e);
void lily_script_close_turn(lily_turn *t);

#endif
