/* The network thread's side of a request: read it within the limits, hand it to its handler, feed the answer out.
 *
 * libmicrohttpd asks for an answer at once or wants the connection suspended; a suspended socket is not looked at
 * by the library, and the loop in http.c watches it instead.  libmicrohttpd's own refusals (text that is no HTTP,
 * a head beyond its memory) have no body of ours. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "api/http_internal.h"
#include "base/clock.h"
#include "base/mem.h"

enum { BLOCK_BYTES = 16 << 10 };    /* of a stream, given to the library at a time */

static uint64_t after(double seconds) { return lily_now_ns() + (uint64_t)(seconds * 1e9); }

void http_on_connection(void *server, struct MHD_Connection *mhd, void **context,
                        enum MHD_ConnectionNotificationCode code)
{
    lily_http *h = server;
    http_conn *c = *context;
    h->n_connections += code == MHD_CONNECTION_NOTIFY_STARTED ? 1 : -1;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        c = lily_calloc(1, sizeof *c);
        *context = c;
        if (!c) return;    /* its first request is refused */
        c->server = h;
        c->mhd = mhd;
        c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        c->deadline = after(h->opt.header_seconds);
        c->next = h->conns;
        if (h->conns) h->conns->prev = c;
        h->conns = c;
    } else if (c) {
        if (c->prev) c->prev->next = c->next;
        else h->conns = c->next;
        if (c->next) c->next->prev = c->prev;
        lily_free(c);
    }
}

void http_resume(http_conn *c)
{
    if (!c->suspended) return;
    c->suspended = false;
    c->server->resumed = true;
    MHD_resume_connection(c->mhd);
}

void http_cut(http_conn *c)
{
    c->deadline = HTTP_NEVER;
    c->watched = false;
    if (c->req) http_mark_gone(c->req);
    /* libmicrohttpd then finds the end of the connection by itself, whatever it was doing. */
    shutdown(c->fd, SHUT_RDWR);
    http_resume(c);
}

/* ---- reading */

typedef struct copy {
    lily_http_req *req;
    http_pair **tail;
    size_t bytes;
    int headers;
    int lengths, codings, hosts;   /* Content-Length, Transfer-Encoding and Host headers */
    bool failed, chunked, odd_name;
} copy;

/* Whether s is a token, as RFC 9110, 5.6.2 has it.  "Transfer-Encoding " with a blank is another name to the library
 * than to a proxy that trims it. */
static bool is_token(const char *s)
{
    static const char allowed[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return *s && s[strspn(s, allowed)] == '\0';
}

static void look_at_header(copy *k, const char *name, const char *value)
{
    k->headers++;
    k->odd_name = k->odd_name || !is_token(name);
    if (strcasecmp(name, "host") == 0) k->hosts++;
    if (strcasecmp(name, "content-length") == 0) k->lengths++;
    if (strcasecmp(name, "transfer-encoding") == 0) {
        k->codings++;
        k->chunked = strcasecmp(value, "chunked") == 0;
    }
}

static enum MHD_Result copy_pair(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
    copy *k = arg;
    if (!value) value = "";
    size_t name_len = strlen(name), value_len = strlen(value);
    k->bytes += name_len + value_len + 4;
    if (kind == MHD_HEADER_KIND) look_at_header(k, name, value);
    http_pair *p = lily_arena_calloc(&k->req->arena, 1, sizeof *p);
    if (p) {
        p->name = lily_arena_strndup(&k->req->arena, name, name_len);
        p->value = lily_arena_strndup(&k->req->arena, value, value_len);
    }
    k->failed = k->failed || !p || !p->name || !p->value;
    if (k->failed) return MHD_NO;
    *k->tail = p;
    k->tail = &p->next;
    return MHD_YES;
}

static lily_http_req *new_request(lily_http *h, const char *method, const char *path)
{
    lily_http_req *req = lily_calloc(1, sizeof *req);
    if (!req) return NULL;
    pthread_mutex_init(&req->lock, NULL);
    pthread_cond_init(&req->room, NULL);
    req->refs = 1;
    req->server = h;
    req->bodies = http_bodies_ref(h->bodies);
    req->method = lily_arena_strndup(&req->arena, method, strlen(method));
    req->path = lily_arena_strndup(&req->arena, path, strlen(path));
    if (!req->method || !req->path) {
        http_release(req);
        return NULL;
    }
    req->over = h->opt.over;
    req->over_arg = h->opt.arg;
    return req;
}

static enum MHD_Result send_answer(http_conn *c);

/* Refuses before the body was read: libmicrohttpd closes the connection after the answer. */
static enum MHD_Result refuse(http_conn *c, int status, const char *sentence)
{
    if (lily_http_reply_error(c->req, status, sentence, NULL) != LILY_OK) return MHD_NO;
    return send_answer(c);
}

static bool has_room(const lily_http *h, size_t more)
{
    size_t held = atomic_load(&h->bodies->bytes);
    return more <= h->opt.max_held_bytes && held <= h->opt.max_held_bytes - more;
}

static const char crowded[] = "the bodies of other requests take all the memory there is for them: try again soon";

/* What is wrong with a head by itself, or NULL. */
static const char *bad_head(const lily_http *h, const copy *k, int *status)
{
    *status = 431;
    if (k->bytes > h->opt.max_header_bytes) return "the headers of the request are too large";
    if (k->headers > h->opt.max_headers) return "the request has too many headers";
    *status = 400;
    /* Two answers to the question where a request ends are how one request is smuggled inside another. */
    if (k->lengths + k->codings > 1 || (k->codings && !k->chunked))
        return "the length of the body must be given once, by Content-Length or as chunked";
    if (k->odd_name) return "the name of a header has a character that no name may have";
    if (k->hosts > 1) return "the request has more than one Host header";
    const char *packed = lily_http_header(k->req, "content-encoding");
    *status = 415;
    if (packed && strcasecmp(packed, "identity") != 0) return "the body of a request must not be compressed";
    return NULL;
}

static bool answered(lily_http_req *req)
{
    pthread_mutex_lock(&req->lock);
    bool yes = req->state != HTTP_OPEN;
    pthread_mutex_unlock(&req->lock);
    return yes;
}

/* A whole URI is as good as a path, and the host that it names counts in place of the header's (RFC 9112, 3.2.2). */
static bool take_absolute(copy *k, const char *url)
{
    static const char scheme[] = "http://";
    if (strncasecmp(url, scheme, sizeof scheme - 1) != 0) return true;
    lily_http_req *req = k->req;
    const char *host = url + sizeof scheme - 1;
    size_t n = strcspn(host, "/");
    http_pair *p = lily_arena_calloc(&req->arena, 1, sizeof *p);
    if (!p) return false;
    *p = (http_pair){.name = "host", .value = lily_arena_strndup(&req->arena, host, n), .next = req->headers};
    req->headers = p;
    req->path = host[n] ? lily_arena_strndup(&req->arena, host + n, strlen(host + n)) : "/";
    return p->value && req->path;
}

static enum MHD_Result begin_request(lily_http *h, http_conn *c, const char *url, const char *method)
{
    lily_http_req *req = new_request(h, method, url);
    if (!req) return MHD_NO;
    c->req = req;
    req->conn = c;
    c->deadline = after(h->opt.body_seconds);
    copy k = {.req = req, .tail = &req->headers, .bytes = strlen(url)};
    MHD_get_connection_values(c->mhd, MHD_HEADER_KIND, copy_pair, &k);
    k.tail = &req->queries;
    MHD_get_connection_values(c->mhd, MHD_GET_ARGUMENT_KIND, copy_pair, &k);
    if (k.failed || !take_absolute(&k, url)) return MHD_NO;
    bool admitted = !h->opt.admit || h->opt.admit(req, h->opt.arg);
    if (!admitted && !answered(req)) return MHD_NO;    /* memory was out: still it must not pass */
    const char *length = lily_http_header(req, "content-length");
    unsigned long long size = length ? strtoull(length, NULL, 10) : 0;
    int status;
    const char *wrong = bad_head(h, &k, &status);
    /* One without a body is answered when it was read whole, so that its connection can be kept. */
    if (!admitted) return size || k.codings || wrong ? send_answer(c) : MHD_YES;
    if (wrong) return refuse(c, status, wrong);
    if (size > h->opt.max_body_bytes) return refuse(c, 413, "the body of the request is too large");
    if (has_room(h, (size_t)size)) return MHD_YES;
    lily_http_set_header(req, "Retry-After", "1", NULL);
    return refuse(c, 503, crowded);
}

/* A body that turns out too large, or finds no room any more, is read to its end without being kept, since only then
 * can it be answered. */
static void add_body(lily_http *h, lily_http_req *req, const char *data, size_t n)
{
    req->body_seen += n;
    req->crowded = req->crowded || !has_room(h, n);
    if (req->crowded || req->body_seen > h->opt.max_body_bytes) {
        http_drop_body(req);
        return;
    }
    size_t before = req->body.len;
    lily_buf_add(&req->body, data, n);
    atomic_fetch_add(&h->bodies->bytes, req->body.len - before);
}

/* ---- finding the handler */

static bool fits(const char *pattern, const char *path)
{
    size_t n = strlen(pattern);
    if (n && pattern[n - 1] == '*') return strncmp(pattern, path, n - 1) == 0 && path[n - 1];
    return strcmp(pattern, path) == 0;
}

/* The route, or NULL with the methods that the path allows ("" when there is no such path). */
static const lily_http_route *find_route(const lily_http *h, const lily_http_req *req, lily_buf *allow)
{
    const char *method = strcmp(req->method, "HEAD") == 0 ? "GET" : req->method;
    for (const lily_http_route *r = h->opt.routes; r->path; r++) {
        if (!fits(r->path, req->path)) continue;
        if (strcmp(r->method, method) == 0) return r;
        lily_buf_printf(allow, "%s%s, ", strcmp(r->method, "GET") == 0 ? "HEAD, " : "", r->method);
    }
    if (allow->len) lily_buf_puts(allow, "OPTIONS");
    return NULL;
}

static void without_route(lily_http_req *req, const char *allow)
{
    lily_err text;
    if (!*allow && strcmp(req->path, "*") != 0) {
        lily_fail(&text, LILY_ARGUMENT, "there is no path %s", req->path);
        lily_http_reply_error(req, 404, text.text, NULL);
        return;
    }
    if (*allow) lily_http_set_header(req, "Allow", allow, NULL);
    if (strcmp(req->method, "OPTIONS") == 0) {
        lily_http_reply(req, 204, NULL, NULL, 0, NULL);
        return;
    }
    lily_fail(&text, LILY_ARGUMENT, "%s is not allowed for %s, only %s", req->method, req->path, allow);
    lily_http_reply_error(req, 405, text.text, NULL);
}

static void handle(lily_http *h, lily_http_req *req)
{
    req->handled = true;
    pthread_mutex_lock(&h->lock);
    h->in_flight++;
    bool stopping = h->stopping;
    pthread_mutex_unlock(&h->lock);
    if (answered(req)) return;    /* admit refused it */
    lily_buf allow = {0};
    const lily_http_route *route = find_route(h, req, &allow);
    lily_http_ref(req);
    if (stopping) lily_http_reply_error(req, 503, "the server is shutting down", NULL);
    else if (req->body_seen > h->opt.max_body_bytes)
        lily_http_reply_error(req, 413, "the body of the request is too large", NULL);
    else if (req->crowded) {
        lily_http_set_header(req, "Retry-After", "1", NULL);
        lily_http_reply_error(req, 503, crowded, NULL);
    } else if (req->body.failed) lily_http_reply_error(req, 503, "out of memory for the body of the request", NULL);
    else if (route) route->handle(req, h->opt.arg);
    else without_route(req, lily_buf_str(&allow));
    lily_http_unref(req);
    lily_buf_free(&allow);
}

enum MHD_Result http_on_request(void *server, struct MHD_Connection *mhd, const char *url, const char *method,
                                const char *version, const char *data, size_t *size, void **state)
{
    (void)version;
    lily_http *h = server;
    http_conn *c = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    if (!c) return MHD_NO;
    if (!c->req) {
        *state = c;
        return begin_request(h, c, url, method);
    }
    if (*size) {
        add_body(h, c->req, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (!c->req->handled) {
        c->deadline = HTTP_NEVER;
        handle(h, c->req);
    }
    return send_answer(c);
}

/* ---- answering */

/* The library wants the next bytes of a stream.  It holds a lock of its own meanwhile, hence it is never called with
 * req->lock held.  News that come between the look and the suspension are served later by this same thread. */
static ssize_t read_stream(void *arg, uint64_t pos, char *buf, size_t max)
{
    (void)pos;
    http_conn *c = arg;
    lily_http_req *req = c->req;
    ssize_t n = 0;
    pthread_mutex_lock(&req->lock);
    size_t pending = req->out.len - req->sent;
    if (atomic_load(&req->gone)) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (pending) {
        n = (ssize_t)(pending < max ? pending : max);
        memcpy(buf, req->out.data + req->sent, (size_t)n);
        req->sent += (size_t)n;
        if (req->sent * 2 >= req->out.len) {
            lily_buf_drop(&req->out, req->sent);
            req->sent = 0;
        }
        pthread_cond_broadcast(&req->room);
    } else if (req->state == HTTP_ENDED) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
        c->watched = false;
    } else {
        c->suspended = true;
    }
    pthread_mutex_unlock(&req->lock);
    if (c->suspended) MHD_suspend_connection(c->mhd);
    return n;
}

/* Once an answer is begun, its status and headers, and the body of a whole one, change no more: no lock is needed. */
static struct MHD_Response *make_response(http_conn *c, bool whole, bool stopping)
{
    lily_http_req *req = c->req;
    struct MHD_Response *r;
    if (!whole) r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_stream, c, NULL);
    else r = MHD_create_response_from_buffer(req->out.len, req->out.data, MHD_RESPMEM_MUST_COPY);
    if (!r) return NULL;
    bool ok = true;
    if (req->content_type.len) ok = MHD_add_response_header(r, "Content-Type", req->content_type.data) == MHD_YES;
    if (req->events) {
        /* Proxies must neither keep nor hold back events. */
        ok = ok && MHD_add_response_header(r, "Cache-Control", "no-cache") == MHD_YES;
        ok = ok && MHD_add_response_header(r, "X-Accel-Buffering", "no") == MHD_YES;
    }
    if (stopping) ok = ok && MHD_add_response_header(r, "Connection", "close") == MHD_YES;
    for (const char *s = lily_buf_str(&req->extra), *end = s + req->extra.len; s < end;) {
        const char *value = s + strlen(s) + 1;
        ok = ok && MHD_add_response_header(r, s, value) == MHD_YES;
        s = value + strlen(value) + 1;
    }
    if (ok) return r;
    MHD_destroy_response(r);
    return NULL;
}

/* Gives the library what there is of an answer, or suspends the connection until there is something. */
static enum MHD_Result send_answer(http_conn *c)
{
    lily_http_req *req = c->req;
    lily_http *h = c->server;
    pthread_mutex_lock(&h->lock);
    bool stopping = h->stopping;
    pthread_mutex_unlock(&h->lock);
    pthread_mutex_lock(&req->lock);
    enum http_state answer = req->state;
    pthread_mutex_unlock(&req->lock);
    if (atomic_load(&req->gone)) return MHD_NO;
    /* A client that half-closes is not watched for once the answer is complete: it shall have it. */
    c->watched = answer == HTTP_OPEN || answer == HTTP_STREAM;
    if (answer == HTTP_OPEN) {
        c->suspended = true;
        MHD_suspend_connection(c->mhd);
        return MHD_YES;
    }
    struct MHD_Response *r = make_response(c, answer == HTTP_REPLY, stopping);
    if (!r) return MHD_NO;
    enum MHD_Result rc = MHD_queue_response(c->mhd, (unsigned)req->status, r);
    MHD_destroy_response(r);
    MHD_set_connection_option(c->mhd, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)(h->opt.write_seconds + 0.999));
    return rc;
}

void http_on_done(void *server, struct MHD_Connection *mhd, void **state, enum MHD_RequestTerminationCode why)
{
    lily_http *h = server;
    http_conn *c = *state;
    lily_http_req *req = c ? c->req : NULL;
    if (!req) return;
    if (why != MHD_REQUEST_TERMINATED_COMPLETED_OK) http_mark_gone(req);
    else if (!req->handled) http_linger_add(h, c->fd);
    *state = NULL;
    c->req = NULL;
    c->watched = c->peeked = false;
    pthread_mutex_lock(&h->lock);
    if (req->handled) h->in_flight--;
    if (h->in_flight == 0) pthread_cond_broadcast(&h->idle);
    c->deadline = h->stopping ? 0 : after(h->opt.idle_seconds);
    pthread_mutex_unlock(&h->lock);
    MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    pthread_mutex_lock(&req->lock);
    req->conn = NULL;
    req->server = NULL;
    pthread_cond_broadcast(&req->room);
    pthread_mutex_unlock(&req->lock);
    http_release(req);
}
