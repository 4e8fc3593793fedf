/* server.h - Lily as an HTTP server: what `lily serve` runs. */
#ifndef LILY_API_SERVER_H
#define LILY_API_SERVER_H

#include <stddef.h>

#include "run/engine.h"

typedef struct lily_server_options {
    lily_engine_options engine;
    const char *host;               /* NULL: 127.0.0.1 */
    int port;                       /* 0: any free one */
    size_t max_body_bytes;          /* 0: LILY_DEFAULT_BODY */
    const char *template_kwargs;    /* JSON object: template variables for all requests, or NULL */
    bool think_limited;             /* thinking takes think_budget tokens at most where a request says nothing of it */
    uint32_t think_budget;
} lily_server_options;

enum { LILY_DEFAULT_BODY = 32 * 1024 * 1024 };

/* Takes the port, loads the model (GET /health is 503 meanwhile), serves until SIGTERM or SIGINT, and lets running
 * answers finish; a second signal cancels them.  LILY_BUSY before any loading when the port is taken.
 * Blocks; to be called on the only thread of the program, whose handling of SIGTERM, SIGINT and SIGUSR1 is as
 * before when it returns. */
int lily_server_run(const lily_server_options *o, lily_err *e);

#endif
