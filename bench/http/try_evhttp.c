/* try_evhttp.c - the trial server on libevent's evhttp.  Usage: try_evhttp PORT [reenable] */
#include "engine.h"

#include <signal.h>

#include <event2/bufferevent.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/thread.h>

typedef struct wire {
    job *j;
    struct evhttp_request *req;    /* NULL once finished */
    struct event *wake, *tick;
    bool begun;
} wire;

static struct event_base *base;
static bool reenable;              /* read on while the engine works: evhttp itself stops reading */

void wire_wake(job *j)
{
    event_active(((wire *)j->wire)->wake, 0, 0);
}

static void on_close(struct evhttp_connection *c, void *arg)
{
    (void)c;
    wire *w = arg;
    atomic_store(&w->j->gone, true);
}

static void begin(wire *w)
{
    if (w->begun) return;
    w->begun = true;
    evhttp_add_header(evhttp_request_get_output_headers(w->req), "Content-Type", "text/event-stream");
    evhttp_send_reply_start(w->req, 200, "OK");
}

static size_t pending(const wire *w)
{
    struct evhttp_connection *c = evhttp_request_get_connection(w->req);
    return c ? evbuffer_get_length(bufferevent_get_output(evhttp_connection_get_bufferevent(c))) : 0;
}

/* On the network thread: moves the queue into the connection, as long as little is pending there. */
static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    wire *w = arg;
    job *j = w->j;
    pthread_mutex_lock(&j->lock);
    bool room = pending(w) < QUEUE_BOUND;
    struct evbuffer *b = evbuffer_new();
    if (room && j->queued) {
        evbuffer_add(b, j->queue, j->queued);
        j->queued = 0;
    }
    bool end = j->ended && j->queued == 0;
    pthread_mutex_unlock(&j->lock);
    if (evbuffer_get_length(b)) {
        begin(w);
        evhttp_send_reply_chunk(w->req, b);
    }
    evbuffer_free(b);
    if (!end) return;
    struct evhttp_connection *c = evhttp_request_get_connection(w->req);
    if (c) evhttp_connection_set_closecb(c, NULL, NULL);
    begin(w);
    evhttp_send_reply_end(w->req);
    event_free(w->wake);
    event_free(w->tick);
    free(w);    /* the job is leaked: this is a trial */
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    wire *w = arg;
    if (w->j->kind == JOB_STREAM && !atomic_load(&w->j->gone)) job_put(w->j, ": keep-alive\n\n", 14);
    on_wake(fd, what, w);
}

static void on_request(struct evhttp_request *req, void *unused)
{
    (void)unused;
    const char *path = evhttp_request_get_uri(req);
    if (!strcmp(path, "/")) {
        struct evbuffer *b = evbuffer_new();
        evbuffer_add_printf(b, "ok\n");
        evhttp_send_reply(req, 200, "OK", b);
        evbuffer_free(b);
        return;
    }
    wire *w = calloc(1, sizeof *w);
    job *j = job_new(path);
    w->j = j;
    w->req = req;
    j->wire = w;
    w->wake = event_new(base, -1, EV_READ, on_wake, w);
    w->tick = event_new(base, -1, EV_PERSIST, on_tick, w);
    int ms = j->kind == JOB_FLOOD ? 5 : KEEP_ALIVE_MS;
    event_add(w->tick, &(struct timeval){.tv_usec = ms * 1000});
    struct evhttp_connection *c = evhttp_request_get_connection(req);
    evhttp_connection_set_closecb(c, on_close, w);
    if (reenable) bufferevent_enable(evhttp_connection_get_bufferevent(c), EV_READ);
    job_submit(j);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    reenable = argc > 2;
    evthread_use_pthreads();
    base = event_base_new();
    struct evhttp *http = evhttp_new(base);
    evhttp_set_gencb(http, on_request, NULL);
    evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD | EVHTTP_REQ_OPTIONS);
    evhttp_set_max_headers_size(http, 32 << 10);
    evhttp_set_max_body_size(http, 1 << 20);
    evhttp_set_timeout(http, 3);
    if (argc < 2 || evhttp_bind_socket(http, "127.0.0.1", (unsigned short)atoi(argv[1])) != 0) return 2;
    pthread_t engine;
    pthread_create(&engine, NULL, engine_main, NULL);
    return event_base_dispatch(base);
}
