/* http_internal.h - what the three sources of the HTTP layer share.
 *
 * Ownership: a conn lives as long as its socket and belongs to the network thread alone.  A request is shared; its
 * mutable part is guarded by req->lock.  The server is reached from a request only through req->server, under that
 * lock, and the pointer is cleared before the server goes.  Lock order: req->lock, then server->lock. */
#ifndef LILY_API_HTTP_INTERNAL_H
#define LILY_API_HTTP_INTERNAL_H

#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "api/http.h"
#include "base/arena.h"

#define HTTP_NEVER UINT64_MAX

typedef struct http_pair {
    const char *name, *value;
    struct http_pair *next;
} http_pair;

typedef struct http_conn {
    struct lily_http *server;
    struct MHD_Connection *mhd;
    int fd;
    lily_http_req *req;            /* being read or answered; NULL between requests */
    uint64_t deadline;             /* for the head, the body or idleness (ns); HTTP_NEVER while answering */
    bool suspended;                /* libmicrohttpd does not look at the socket: we do */
    bool watched;                  /* the client's leaving is to be noticed */
    bool peeked;                   /* a next request is waiting in the socket (only where POLLRDHUP is missing) */
    struct http_conn *prev, *next;
} http_conn;

/* What the bodies of all requests take.  A request may outlive its server, hence the count is shared. */
typedef struct http_bodies {
    atomic_size_t bytes;
    atomic_int refs;               /* the server and each request.  0: freed */
} http_bodies;

enum http_state { HTTP_OPEN, HTTP_REPLY, HTTP_STREAM, HTTP_ENDED };    /* ENDED: a stream with its last write made */

struct lily_http_req {
    /* constant once the handler was called */
    lily_arena arena;
    const char *method, *path;
    http_pair *headers, *queries;
    void *note;
    void (*over)(lily_http_req *req, void *arg);
    void *over_arg;
    lily_buf body;
    http_bodies *bodies;           /* where body.len is counted */
    /* network thread only */
    http_conn *conn;               /* NULL once the request is over */
    uint64_t body_seen;            /* bytes, also those that were too many */
    bool crowded;                  /* its body found no room beside the others' and was dropped */
    bool handled;                  /* its body was read whole, and it counts as in flight */
    /* any thread */
    atomic_bool gone;
    pthread_mutex_t lock;          /* guards all below */
    pthread_cond_t room;
    struct lily_http *server;      /* NULL once the request is over */
    int refs, users;               /* refs: the network side and the ready list; users: callers.  0 + 0: freed */
    enum http_state state;
    int status;
    lily_buf content_type, extra;  /* extra: "name\0value\0" ... */
    lily_buf out;                  /* not yet given to the library, from out.data[sent] on */
    size_t sent;
    uint64_t last_out;             /* when something was last written (ns) */
    bool events;                   /* text/event-stream */
    const char *keep_alive;        /* NULL: a comment */
    void (*on_gone)(lily_http_req *req, void *arg);
    void *on_gone_arg;
    bool ready;                    /* in the ready list */
    lily_http_req *next_ready;     /* guarded by server->lock */
};

/* A connection whose request was refused while its body was still coming.  Closing it at once would reset it, and
 * the client might never read why: what it sends is read and thrown away for a while. */
typedef struct http_linger {
    int fd;                        /* a duplicate of the socket */
    uint64_t deadline;             /* ns */
} http_linger;

enum { HTTP_MAX_LINGER = 16 };

struct lily_http {
    lily_http_options opt;         /* with the defaults filled in */
    struct MHD_Daemon *mhd;
    int listen_fd;                 /* -1 once closed; network thread only */
    int port;
    char *unix_path;               /* to be removed at the end; NULL: none */
    pthread_t thread;
    int wake_pipe[2];
    http_bodies *bodies;
    http_conn *conns;              /* network thread only */
    int n_connections;             /* that the library holds; network thread only */
    http_linger lingers[HTTP_MAX_LINGER];    /* the first linger_count; network thread only */
    int linger_count;
    bool resumed;                  /* the library has to run before the next wait; network thread only */
    pthread_mutex_t lock;          /* guards all below */
    pthread_cond_t idle;
    lily_http_req *ready;          /* requests with news for the network thread */
    int in_flight;                 /* handler called, answer not yet sent */
    bool stopping, closing;
    atomic_uint_fast64_t turns;
};

/* http_listen.c */
int http_listen(const lily_http_options *opt, int *fd, int *port, lily_err *e);

/* http_serve.c: callbacks of libmicrohttpd and what the loop does with a connection (network thread) */
enum MHD_Result http_on_request(void *server, struct MHD_Connection *c, const char *url, const char *method,
                                const char *version, const char *data, size_t *size, void **state);
void http_on_done(void *server, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode why);
void http_on_connection(void *server, struct MHD_Connection *c, void **context,
                        enum MHD_ConnectionNotificationCode code);
void http_cut(http_conn *c);       /* the client is gone or too slow */
void http_resume(http_conn *c);

/* http_linger.c */
void http_linger_add(lily_http *h, int fd);
uint64_t http_linger_clock(lily_http *h, uint64_t now);    /* closes the overdue; the next deadline */
nfds_t http_linger_poll(const lily_http *h, struct pollfd *p, nfds_t n);
void http_linger_read(lily_http *h, const struct pollfd *p);
void http_linger_close(lily_http *h);

/* http_answer.c */
void http_mark_gone(lily_http_req *req);
http_bodies *http_bodies_ref(http_bodies *b);
void http_bodies_unref(http_bodies *b);                    /* NULL is allowed */
void http_drop_body(lily_http_req *req);
void http_release(lily_http_req *req);                     /* drops one of refs */
void http_wake(lily_http_req *req);                        /* with req->lock held */
void http_signal(lily_http *h);                            /* ends the poll of the network thread */
struct timespec http_deadline(double seconds);             /* for pthread_cond_timedwait, which macOS has by the
                                                              wall clock only */

#endif
