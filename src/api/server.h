/* server.h - Lily as an HTTP server: what `lily serve` runs. */
#ifndef LILY_API_SERVER_H
#define LILY_API_SERVER_H

#include <stdbool.h>

#include "api/guard.h"
#include "api/http.h"
#include "run/engine.h"

typedef struct lily_server_options {
    lily_engine_options engine;
    lily_http_options http;         /* where to listen, and limits; the rest is set here */
    lily_guard_options guard;       /* keys, origins, names; reach is set here */
    bool no_key;                    /* other machines may ask without a key */
    const char *trace_dir;          /* a trace of each request goes there; NULL: none */
    double stop_seconds;            /* 0: they are cancelled at once */
    const char *template_kwargs;    /* JSON object: template variables for all requests, or NULL */
    bool think_limited;             /* thinking takes think_budget tokens at most where a request says nothing of it */
    uint32_t think_budget;
} lily_server_options;

enum { LILY_DEFAULT_BODY = 32 * 1024 * 1024, LILY_STOP_SECONDS = 30 };

/* Takes the port, loads the model (GET /health is 503 meanwhile), serves until SIGTERM or SIGINT, and lets running
 * answers finish for stop_seconds; then, or at a second signal, they are cancelled.  A supervisor (supervisor.h) may
 * give the socket, and is told when the server is ready and when it stops.  LILY_BUSY before any loading when the port
 * is taken; LILY_ARGUMENT when other machines could ask and nobody said that they may without a key.
 * Blocks; to be called on the only thread of the program, whose handling of SIGTERM, SIGINT and SIGUSR1 is as
 * before when it returns. */
int lily_server_run(const lily_server_options *o, lily_err *e);

#endif
