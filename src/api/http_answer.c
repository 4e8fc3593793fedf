/* The side of a request that handlers and the engine see: everything here may be called from any thread. */
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "api/http_internal.h"
#include "base/clock.h"
#include "base/mem.h"

void http_signal(lily_http *h)
{
    /* The pipe does not block; when it is full the thread will wake up anyway. */
    ssize_t n = write(h->wake_pipe[1], "", 1);
    (void)n;
}

void http_wake(lily_http_req *req)
{
    lily_http *h = req->server;
    if (!h || req->ready) return;
    req->ready = true;
    req->refs++;
    pthread_mutex_lock(&h->lock);
    req->next_ready = h->ready;
    h->ready = req;
    pthread_mutex_unlock(&h->lock);
    http_signal(h);
}

http_bodies *http_bodies_ref(http_bodies *b)
{
    atomic_fetch_add(&b->refs, 1);
    return b;
}

void http_bodies_unref(http_bodies *b)
{
    if (b && atomic_fetch_sub(&b->refs, 1) == 1) lily_free(b);
}

void http_drop_body(lily_http_req *req)
{
    atomic_fetch_sub(&req->bodies->bytes, req->body.len);
    lily_buf_free(&req->body);
}

static void destroy(lily_http_req *req)
{
    if (req->over) req->over(req, req->over_arg);
    http_drop_body(req);
    http_bodies_unref(req->bodies);
    lily_buf_free(&req->content_type);
    lily_buf_free(&req->extra);
    lily_buf_free(&req->out);
    lily_arena_free(&req->arena);
    pthread_cond_destroy(&req->room);
    pthread_mutex_destroy(&req->lock);
    lily_free(req);
}

/* Unlocks, and frees when nobody is left. */
static void unlock_or_free(lily_http_req *req)
{
    bool last = req->refs + req->users == 0;
    pthread_mutex_unlock(&req->lock);
    if (last) destroy(req);
}

void http_release(lily_http_req *req)
{
    pthread_mutex_lock(&req->lock);
    req->refs--;
    unlock_or_free(req);
}

lily_http_req *lily_http_ref(lily_http_req *req)
{
    pthread_mutex_lock(&req->lock);
    req->users++;
    pthread_mutex_unlock(&req->lock);
    return req;
}

void lily_http_unref(lily_http_req *req)
{
    pthread_mutex_lock(&req->lock);
    req->users--;
    /* Nobody is left who could finish the answer: the network thread does. */
    if (req->users == 0 && (req->state == HTTP_OPEN || req->state == HTTP_STREAM)) http_wake(req);
    unlock_or_free(req);
}

void http_mark_gone(lily_http_req *req)
{
    pthread_mutex_lock(&req->lock);
    bool first = !atomic_exchange(&req->gone, true);
    lily_buf_free(&req->out);
    req->sent = 0;
    void (*fn)(lily_http_req *, void *) = first ? req->on_gone : NULL;
    void *arg = req->on_gone_arg;
    pthread_cond_broadcast(&req->room);
    pthread_mutex_unlock(&req->lock);
    if (fn) fn(req, arg);
}

bool lily_http_gone(const lily_http_req *req) { return atomic_load(&req->gone); }

void lily_http_on_gone(lily_http_req *req, void (*fn)(lily_http_req *req, void *arg), void *arg)
{
    pthread_mutex_lock(&req->lock);
    req->on_gone = fn;
    req->on_gone_arg = arg;
    bool late = atomic_load(&req->gone);
    pthread_mutex_unlock(&req->lock);
    if (late) fn(req, arg);
}

void lily_http_set_note(lily_http_req *req, void *note) { req->note = note; }
void *lily_http_note(const lily_http_req *req) { return req->note; }

int lily_http_status(lily_http_req *req)
{
    pthread_mutex_lock(&req->lock);
    int status = req->status;
    pthread_mutex_unlock(&req->lock);
    return status;
}

const char *lily_http_method(const lily_http_req *req) { return req->method; }
const char *lily_http_path(const lily_http_req *req) { return req->path; }

const char *lily_http_query(const lily_http_req *req, const char *name)
{
    for (const http_pair *p = req->queries; p; p = p->next)
        if (strcmp(p->name, name) == 0) return p->value;
    return NULL;
}

const char *lily_http_header(const lily_http_req *req, const char *name)
{
    for (const http_pair *p = req->headers; p; p = p->next)
        if (strcasecmp(p->name, name) == 0) return p->value;
    return NULL;
}

void lily_http_each_header(const lily_http_req *req, void (*fn)(void *arg, const char *name, const char *value),
                           void *arg)
{
    for (const http_pair *p = req->headers; p; p = p->next) fn(arg, p->name, p->value);
}

const char *lily_http_body(const lily_http_req *req, size_t *n)
{
    if (n) *n = req->body.len;
    return lily_buf_str(&req->body);
}

/* Takes the lock and checks that the answer is in the state `want`; on failure the lock is released. */
static int enter(lily_http_req *req, enum http_state want, const char *what, lily_err *e)
{
    pthread_mutex_lock(&req->lock);
    int rc = LILY_OK;
    if (atomic_load(&req->gone) || !req->server) rc = lily_fail(e, LILY_CANCELLED, "the client is gone");
    else if (req->state != want) rc = lily_fail(e, LILY_ARGUMENT, "%s out of order in an answer", what);
    if (rc != LILY_OK) pthread_mutex_unlock(&req->lock);
    return rc;
}

static int leave(lily_http_req *req, int rc)
{
    if (rc == LILY_OK) http_wake(req);
    pthread_mutex_unlock(&req->lock);
    return rc;
}

int lily_http_set_header(lily_http_req *req, const char *name, const char *value, lily_err *e)
{
    TRY(enter(req, HTTP_OPEN, "a header", e));
    lily_buf_add(&req->extra, name, strlen(name) + 1);
    lily_buf_add(&req->extra, value, strlen(value) + 1);
    int rc = lily_buf_ok(&req->extra, "a header", e);
    pthread_mutex_unlock(&req->lock);
    return rc;
}

int lily_http_reply(lily_http_req *req, int status, const char *content_type, const void *body, size_t n, lily_err *e)
{
    TRY(enter(req, HTTP_OPEN, "a reply", e));
    lily_buf_puts(&req->content_type, content_type ? content_type : "");
    if (n) lily_buf_add(&req->out, body, n);
    int rc = lily_buf_ok(&req->out, "an answer", e);
    if (rc == LILY_OK) rc = lily_buf_ok(&req->content_type, "an answer", e);
    if (rc == LILY_OK) {
        req->status = status;
        req->state = HTTP_REPLY;
    } else {
        lily_buf_free(&req->out);
    }
    return leave(req, rc);
}

int lily_http_reply_error(lily_http_req *req, int status, const char *sentence, lily_err *e)
{
    pthread_mutex_lock(&req->lock);
    lily_http *h = req->server;
    void (*format)(const char *, int, const char *, lily_buf *) = h ? h->opt.format_error : NULL;
    pthread_mutex_unlock(&req->lock);
    if (!format) return lily_fail(e, LILY_CANCELLED, "the client is gone");
    lily_buf body = {0};
    format(req->path, status, sentence, &body);
    int rc = lily_buf_ok(&body, "an error answer", e);
    if (rc == LILY_OK) rc = lily_http_reply(req, status, "application/json", body.data, body.len, e);
    lily_buf_free(&body);
    return rc;
}

void lily_http_set_keep_alive(lily_http_req *req, const char *event)
{
    pthread_mutex_lock(&req->lock);
    req->keep_alive = event;
    pthread_mutex_unlock(&req->lock);
}

int lily_http_stream_begin(lily_http_req *req, const char *content_type, lily_err *e)
{
    TRY(enter(req, HTTP_OPEN, "the begin of a stream", e));
    lily_buf_puts(&req->content_type, content_type);
    int rc = lily_buf_ok(&req->content_type, "an answer", e);
    if (rc == LILY_OK) {
        req->status = 200;
        req->state = HTTP_STREAM;
        req->events = strncasecmp(content_type, "text/event-stream", 17) == 0;
        req->last_out = lily_now_ns();
    }
    return leave(req, rc);
}

/* More than the bound fits into an empty queue only: a single large event must be sendable. */
static bool has_room(const lily_http_req *req, size_t n)
{
    size_t pending = req->out.len - req->sent;
    return pending == 0 || pending + n <= req->server->opt.max_pending_bytes;
}

int lily_http_stream_write(lily_http_req *req, const void *data, size_t n, lily_err *e)
{
    TRY(enter(req, HTTP_STREAM, "a write", e));
    int rc = LILY_OK;
    if (!has_room(req, n)) {
        rc = lily_fail(e, LILY_BUSY, "the client reads too slowly");
    } else if (n && !lily_buf_reserve(&req->out, n)) {
        req->out.failed = false;    /* what is queued already stays good */
        rc = lily_no_memory(e, n, "a stream");
    } else if (n) {
        lily_buf_add(&req->out, data, n);
        req->last_out = lily_now_ns();
    }
    return leave(req, rc);
}

int lily_http_stream_end(lily_http_req *req, lily_err *e)
{
    TRY(enter(req, HTTP_STREAM, "the end of a stream", e));
    req->state = HTTP_ENDED;
    return leave(req, LILY_OK);
}

size_t lily_http_pending(lily_http_req *req)
{
    pthread_mutex_lock(&req->lock);
    size_t n = req->out.len - req->sent;
    pthread_mutex_unlock(&req->lock);
    return n;
}

struct timespec http_deadline(double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t ns = (uint64_t)t.tv_nsec + (uint64_t)(seconds * 1e9);
    t.tv_sec += (time_t)(ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    return t;
}

int lily_http_wait_room(lily_http_req *req, size_t n, double seconds, lily_err *e)
{
    struct timespec until = http_deadline(seconds);
    TRY(enter(req, HTTP_STREAM, "a wait", e));
    int rc = LILY_OK, waited = 0;
    for (;;) {
        if (atomic_load(&req->gone) || !req->server) rc = lily_fail(e, LILY_CANCELLED, "the client is gone");
        else if (!has_room(req, n) && waited == ETIMEDOUT) rc = lily_fail(e, LILY_BUSY, "the client reads too slowly");
        else if (!has_room(req, n)) {
            waited = pthread_cond_timedwait(&req->room, &req->lock, &until);
            continue;
        }
        break;
    }
    pthread_mutex_unlock(&req->lock);
    return rc;
}
