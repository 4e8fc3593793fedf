/* serve.h - one request from its turn to its END, on the engine's thread. */
#ifndef LILY_RUN_SERVE_H
#define LILY_RUN_SERVE_H

#include "run/guide.h"
#include "run/request.h"
#include "run/script.h"
#include "run/session.h"

/* What a request has done so far, and how it reports. */
typedef struct lily_turn {
    lily_request *r;
    const lily_loaded *m;
    uint32_t n_reused, n_done, n_generated, limit;      /* n_done: of the prompt, as told; limit: of the reply at most */
    uint64_t started, first_token, last_token;  /* ns; 0: not yet */
    const char *err_code;
    lily_guide guide;                           /* from the first token on */
} lily_turn;

void lily_turn_begin(lily_turn *t, lily_request *r, const lily_loaded *m);
int lily_turn_started(lily_turn *t, uint32_t n_reused, lily_err *e);
int lily_turn_progress(lily_turn *t, uint32_t n_done, lily_err *e);
/* A token of the reply; the guide has taken it. */
int lily_turn_token(lily_turn *t, lily_event *ev, lily_err *e);
/* How it ends: `end` when rc is LILY_OK, else by error, cancel or stop string. */
enum lily_end lily_turn_how(const lily_turn *t, enum lily_end end, int rc);
/* Sends the END.  The request may be gone after it. */
void lily_turn_end(lily_turn *t, enum lily_end end, const lily_err *e);
bool lily_is_eos(const lily_loaded *m, int32_t id);

/* By the model; by a script. */
void lily_serve_model(lily_request *r, lily_session *s, const lily_loaded *m);
void lily_serve_script(lily_request *r, lily_script *script, const lily_loaded *m);

#endif
