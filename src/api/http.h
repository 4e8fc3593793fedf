/* http.h - the HTTP/1.1 server under the API: one network thread, answers from any thread.
 *
 * The library beneath (libmicrohttpd; why: bench/http/README.md) is not visible here.  The life of a request:
 *
 *     network thread   headers and body read, limits applied, route found -> route->handle(req, arg)
 *     any thread       lily_http_reply, or lily_http_stream_begin, _write ..., _end
 *     network thread   bytes sent; or the client left: lily_http_gone(req) becomes true, on_gone is called
 *
 * A handler may answer at once or keep the request (lily_http_ref) and answer later from another thread; it must
 * never block, since nobody else is served meanwhile.  A request that its last user drops unanswered is answered
 * with status 500.  After the client left every call is a harmless LILY_CANCELLED.
 *
 * When has a client left?  A reset, a failed write, a write that makes no progress for write_seconds, or the end
 * of its sending side (FIN) after the whole request was read.  TCP cannot tell a client that exited from one that
 * closed only its sending side and still reads; as Go's net/http, nginx and uvicorn do, both count as gone, for
 * otherwise a vanished client would keep the engine busy.  An answer given inside the handler is sent all the same. */
#ifndef LILY_API_HTTP_H
#define LILY_API_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct lily_http lily_http;            /* a server */
typedef struct lily_http_req lily_http_req;    /* one request and its answer; reference-counted */

/* One resource.  A path that ends in '*' matches every path that begins with the text before it (and is longer);
 * the first fitting route wins.  A GET route also serves HEAD.  OPTIONS, 404 and 405 (with Allow) are made here. */
typedef struct lily_http_route {
    const char *method, *path;
    void (*handle)(lily_http_req *req, void *arg);    /* on the network thread */
} lily_http_route;

typedef struct lily_http_options {
    const char *host;               /* address or name; NULL: 127.0.0.1 */
    int port;                       /* 0: the system chooses, see lily_http_port */
    const char *unix_path;          /* when set: a Unix socket (mode 0600) in place of host and port */
    int listen_fd;                  /* > 0: a socket that listens already, in place of all three; closed at the end */
    size_t max_body_bytes;          /* 0: 16 MiB; more is answered 413 */
    size_t max_held_bytes;          /* 0: four times that, at least 64 MiB; the bodies of all requests together, those
                                       still coming and those not yet let go.  More is answered 503 with Retry-After */
    size_t max_header_bytes;        /* 0: 64 KiB; more is answered 431 */
    size_t max_pending_bytes;       /* 0: 1 MiB; what a stream may hold for a client that reads too slowly */
    int max_headers;                /* 0: 100; more is answered 431 */
    int max_connections;            /* 0: 256; at most 512.  Further clients wait in the listen queue */
    double header_seconds;          /* 0: 10; for a whole request head from the moment of connecting */
    double body_seconds;            /* 0: 120; for a whole body */
    double idle_seconds;            /* 0: 60; between the end of an answer and the whole next head */
    double write_seconds;           /* 0: 60; without any byte taken by the client */
    double keep_alive_seconds;      /* 0: 10; in event streams a sign of life after so long a silence; < 0: never */
    /* The body of an answer that the server itself makes (400 404 405 413 431 500 503), a JSON text, since each
     * protocol has a shape of its own, for a path; on any thread.  Only text that is no HTTP at all, and heads beyond
     * four times the limit, are refused without it. */
    void (*format_error)(const char *path, int status, const char *sentence, lily_buf *body);
    /* Both may be NULL.  admit: the head of a request was read, its body not yet (network thread); it may set headers of
     * the answer.  What it returns false for goes no further: it has been answered, or is cut off.  over: the last word about a request, when its answer was sent or its
     * client is gone and nobody holds it any more (any thread). */
    bool (*admit)(lily_http_req *req, void *arg);
    void (*over)(lily_http_req *req, void *arg);
    const lily_http_route *routes;  /* ended by one without a path; must outlive the server */
    void *arg;                      /* given to every handler, to admit and to over */
} lily_http_options;

/* Binds, listens and starts the network thread.  LILY_BUSY when the port or socket is taken by a living server:
 * call it before anything slow is loaded. */
int lily_http_open(lily_http **out, const lily_http_options *opt, lily_err *e);
/* Who can reach what would be listened on: a Unix socket, a loopback address, another one.
 * LILY_ARGUMENT when the host is unknown. */
enum lily_reach { LILY_REACH_USER, LILY_REACH_MACHINE, LILY_REACH_NETWORK };
int lily_http_reach(const lily_http_options *opt, enum lily_reach *reach, lily_err *e);
const lily_http_options *lily_http_in_force(const lily_http *h);    /* with the defaults filled in */
int lily_http_port(const lily_http *h);    /* the port in force, 0 for a Unix socket */
/* Turns of the network thread's loop so far; asking makes it turn once more, if it still lives.  For watchdogs. */
uint64_t lily_http_turns(lily_http *h);

/* Graceful end, from any thread but the network's: no new connections, idle ones are closed, further requests on
 * kept ones get 503; then wait until all requests are answered and sent (LILY_BUSY when that took too long);
 * then close what is left and free.  close alone is an abrupt end; NULL is allowed. */
void lily_http_stop_accepting(lily_http *h);
int lily_http_drain(lily_http *h, double seconds, lily_err *e);
void lily_http_close(lily_http *h);

/* ---- the request: constant while a reference is held, from any thread */

const char *lily_http_method(const lily_http_req *req);
const char *lily_http_path(const lily_http_req *req);                         /* decoded, without the query */
const char *lily_http_query(const lily_http_req *req, const char *name);      /* decoded; NULL: not given */
const char *lily_http_header(const lily_http_req *req, const char *name);     /* any case; NULL: not given */
void lily_http_each_header(const lily_http_req *req, void (*fn)(void *arg, const char *name, const char *value),
                           void *arg);
const char *lily_http_body(const lily_http_req *req, size_t *n);              /* a NUL follows; n may be NULL */

/* Something of the caller's that goes with the request: set in admit, freed in over.  NULL: none. */
void lily_http_set_note(lily_http_req *req, void *note);
void *lily_http_note(const lily_http_req *req);

lily_http_req *lily_http_ref(lily_http_req *req);
void lily_http_unref(lily_http_req *req);

bool lily_http_gone(const lily_http_req *req);
/* fn(req, arg) is called once when the client leaves before the answer was sent: on the network thread, or inside
 * this call if it has left already.  It must not block.  One function a request. */
void lily_http_on_gone(lily_http_req *req, void (*fn)(lily_http_req *req, void *arg), void *arg);

/* ---- the answer: from any thread.  LILY_CANCELLED: the client is gone.  LILY_ARGUMENT: out of order. */

/* The status that was chosen; 0: none yet. */
int lily_http_status(lily_http_req *req);
/* A further header of the answer, before reply or stream_begin. */
int lily_http_set_header(lily_http_req *req, const char *name, const char *value, lily_err *e);
/* The whole answer; the body is copied. */
int lily_http_reply(lily_http_req *req, int status, const char *content_type, const void *body, size_t n, lily_err *e);
/* An answer made by options.format_error. */
int lily_http_reply_error(lily_http_req *req, int status, const char *sentence, lily_err *e);

/* What fills the silences of an event stream in place of a comment: a whole event that says nothing; constant. */
void lily_http_set_keep_alive(lily_http_req *req, const char *event);
/* Status 200 and headers go out at once.  With "text/event-stream" signs of life are put between writes, so
 * each write must be whole events.  write never blocks: all n bytes are queued, or none and LILY_BUSY when more
 * than max_pending_bytes would wait.  wait_room blocks until n bytes fit (LILY_BUSY: not within the time). */
int lily_http_stream_begin(lily_http_req *req, const char *content_type, lily_err *e);
int lily_http_stream_write(lily_http_req *req, const void *data, size_t n, lily_err *e);
int lily_http_stream_end(lily_http_req *req, lily_err *e);
size_t lily_http_pending(lily_http_req *req);
int lily_http_wait_room(lily_http_req *req, size_t n, double seconds, lily_err *e);

#endif
