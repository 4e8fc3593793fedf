/* call.h - one request from its head to its end, for those who run the server: its id, its line in the log, its part
 * in the metrics, its trace.  Never the text of a prompt or an answer, but for the trace, and never a key. */
#ifndef LILY_API_CALL_H
#define LILY_API_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "api/errors.h"
#include "api/http.h"
#include "run/engine.h"

typedef struct lily_call lily_call;
struct lily_api;

/* http.h: admit and over; `api` is a lily_api. */
bool lily_call_admit(lily_http_req *req, void *api);
void lily_call_over(lily_http_req *req, void *api);

/* The request's; NULL when memory was out. All that follows allows NULL and comes from the thread of its job. */
lily_call *lily_call_of(const lily_http_req *req);
/* It will ask the engine: begins a trace if there is to be one. */
void lily_call_talks(lily_call *c, struct lily_api *api, lily_engine *g, const lily_http_req *req);
/* What is asked of the engine, and what it says.  A call may ask several times. */
void lily_call_asked(lily_call *c, const lily_ask *ask);
void lily_call_heard(lily_call *c, const lily_event *ev);
/* Why it is refused, or fails in the middle of its answer; before the client is told. */
void lily_call_refused(lily_call *c, const lily_refusal *r);

#endif
