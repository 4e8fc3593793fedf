/* trace.h - a file a request that lets a stranger replay it (docs/operations.md): what ran, the request as it came but
 * for keys, the ids of the prompt, how tokens were chosen, and what the engine did.
 *
 * JSON lines in DIR/TIME-ID.jsonl, readable by their owner alone, each written at once, so that a crash loses nothing.
 * A trace that cannot be written is told in the log and given up; the request goes on.  NULL is allowed everywhere. */
#ifndef LILY_API_TRACE_H
#define LILY_API_TRACE_H

#include <stdbool.h>

#include "api/http.h"
#include "base/err.h"
#include "run/engine.h"

typedef struct lily_trace lily_trace;

/* Makes the folder (mode 0700) unless it is there. */
int lily_trace_folder(const char *dir, lily_err *e);

lily_trace *lily_trace_open(const char *dir, const char *id, lily_engine *g, const lily_http_req *req);
void lily_trace_asked(lily_trace *t, const lily_ask *ask);
void lily_trace_heard(lily_trace *t, const lily_event *ev);
void lily_trace_close(lily_trace *t, int status, bool client_gone);

#endif
