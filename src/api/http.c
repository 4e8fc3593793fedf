/* The server: opening, the loop of the network thread, and the graceful end.
 *
 * One loop serves everything: the sockets that libmicrohttpd wants watched, the sockets of requests that wait for
 * their answer (which it does not watch), the pipe by which other threads bring news, and the clock. */
#include "api/http.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http_internal.h"
#include "base/clock.h"
#include "base/mem.h"

enum { MAX_CONNECTIONS = 512, MAX_POLLED = FD_SETSIZE + MAX_CONNECTIONS + HTTP_MAX_LINGER + 1 };

#ifdef POLLRDHUP
enum { WATCH_EVENTS = POLLRDHUP };
#else
enum { WATCH_EVENTS = POLLIN };
#endif

/* ---- news from other threads */

/* Something changed in an answer. */
static void serve_ready(lily_http_req *req)
{
    pthread_mutex_lock(&req->lock);
    req->ready = false;
    bool dropped = req->users == 0 && req->server;
    enum http_state state = req->state;
    pthread_mutex_unlock(&req->lock);
    if (dropped && state == HTTP_OPEN)
        lily_http_reply_error(req, 500, "the request was dropped without an answer", NULL);
    if (req->conn && dropped && state == HTTP_STREAM) http_cut(req->conn);
    else if (req->conn) http_resume(req->conn);
    http_release(req);
}

static void serve_all_ready(lily_http *h)
{
    pthread_mutex_lock(&h->lock);
    lily_http_req *req = h->ready;
    h->ready = NULL;
    pthread_mutex_unlock(&h->lock);
    while (req) {
        lily_http_req *next = req->next_ready;
        serve_ready(req);
        req = next;
    }
}

static void stop_listening(lily_http *h)
{
    if (h->listen_fd < 0) return;
    MHD_quiesce_daemon(h->mhd);
    close(h->listen_fd);
    h->listen_fd = -1;
    if (h->unix_path) unlink(h->unix_path);
    for (http_conn *c = h->conns; c; c = c->next)
        if (!c->req) http_cut(c);
}

/* Returns false when the thread has to end. */
static bool take_news(lily_http *h)
{
    char waste[256];
    while (read(h->wake_pipe[0], waste, sizeof waste) > 0) {}
    pthread_mutex_lock(&h->lock);
    bool stopping = h->stopping, closing = h->closing;
    pthread_mutex_unlock(&h->lock);
    serve_all_ready(h);
    if (stopping) stop_listening(h);
    return !closing;
}

/* ---- the clock */

/* Fills the silence of a stream; returns when to look again. */
static uint64_t keep_alive(lily_http *h, http_conn *c, uint64_t now)
{
    lily_http_req *req = c->req;
    if (!req || h->opt.keep_alive_seconds < 0) return HTTP_NEVER;
    uint64_t due = HTTP_NEVER, step = (uint64_t)(h->opt.keep_alive_seconds * 1e9);
    bool silent = false;
    pthread_mutex_lock(&req->lock);
    /* A client that has unread bytes queued needs no sign of life. */
    if (req->state == HTTP_STREAM && req->events && req->out.len == req->sent) {
        silent = now >= req->last_out + step;
        if (silent) {
            lily_buf_puts(&req->out, req->keep_alive ? req->keep_alive : ": keep-alive\n\n");
            req->out.failed = false;
            req->last_out = now;
        }
        due = req->last_out + step;
    }
    pthread_mutex_unlock(&req->lock);
    if (silent) http_resume(c);
    return due;
}

static uint64_t run_clock(lily_http *h)
{
    uint64_t now = lily_now_ns(), next = http_linger_clock(h, now);
    for (http_conn *c = h->conns; c; c = c->next) {
        if (now >= c->deadline) http_cut(c);
        if (c->deadline < next) next = c->deadline;
        uint64_t due = keep_alive(h, c, now);
        if (due < next) next = due;
    }
    return next;
}

/* ---- the loop */

static int poll_timeout(lily_http *h, uint64_t next)
{
    if (h->resumed) return 0;
    uint64_t ms = 60000, now = lily_now_ns();
    if (next != HTTP_NEVER) ms = next > now ? (next - now) / 1000000 + 1 : 0;
    unsigned long long theirs;
    if (MHD_get_timeout(h->mhd, &theirs) == MHD_YES && theirs < ms) ms = theirs;
    return ms < 60000 ? (int)ms : 60000;
}

/* Has the client of this watched socket left?  Where there is no POLLRDHUP the end of its data shows only as
 * readable with nothing to read; a pipelined request hides it, and then only a failed write tells. */
static bool has_left(http_conn *c, short revents)
{
#ifdef POLLRDHUP
    (void)c;
    return revents & (POLLRDHUP | POLLHUP | POLLERR);
#else
    if (revents & (POLLHUP | POLLERR)) return true;
    if (!(revents & POLLIN)) return false;
    char byte;
    ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    c->peeked = n > 0;
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
#endif
}

/* The sockets that the library wants, as one list for poll: select itself could not watch for a hang-up.  At the limit
 * of connections the library would accept further ones and close them at once; unwatched they wait in the queue. */
static nfds_t add_library(lily_http *h, struct pollfd *p, nfds_t n)
{
    fd_set r, w, x;
    int max = -1;
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_ZERO(&x);
    if (MHD_get_fdset2(h->mhd, &r, &w, &x, &max, FD_SETSIZE) != MHD_YES) return n;
    for (int fd = 0; fd <= max; fd++) {
        short events = (short)((FD_ISSET(fd, &r) ? POLLIN : 0) | (FD_ISSET(fd, &w) ? POLLOUT : 0) |
                               (FD_ISSET(fd, &x) ? POLLPRI : 0));
        if (fd == h->listen_fd && h->n_connections >= h->opt.max_connections) continue;
        if (events) p[n++] = (struct pollfd){.fd = fd, .events = events};
    }
    return n;
}

static void run_library(lily_http *h, const struct pollfd *p, nfds_t n)
{
    fd_set r, w, x;
    FD_ZERO(&r);
    FD_ZERO(&w);
    FD_ZERO(&x);
    for (nfds_t i = 0; i < n; i++) {
        if (!p[i].revents) continue;
        /* An error or hang-up is found by the read or write that select would have announced. */
        if (p[i].events & POLLIN) FD_SET(p[i].fd, &r);
        if (p[i].events & POLLOUT) FD_SET(p[i].fd, &w);
        if (p[i].revents & (POLLPRI | POLLERR) || p[i].events == POLLPRI) FD_SET(p[i].fd, &x);
    }
    MHD_run_from_select(h->mhd, &r, &w, &x);
}

static bool loop_once(lily_http *h)
{
    atomic_fetch_add(&h->turns, 1);
    struct pollfd p[MAX_POLLED];
    http_conn *of[MAX_CONNECTIONS];
    int timeout = poll_timeout(h, run_clock(h));
    p[0] = (struct pollfd){.fd = h->wake_pipe[0], .events = POLLIN};
    nfds_t n = 1;
    for (http_conn *c = h->conns; c && n <= MAX_CONNECTIONS; c = c->next) {
        if (!c->watched) continue;
        of[n - 1] = c;
        p[n++] = (struct pollfd){.fd = c->fd, .events = c->peeked ? 0 : WATCH_EVENTS};
    }
    nfds_t linger = n;
    n = http_linger_poll(h, p, n);
    nfds_t library = n;
    n = add_library(h, p, n);
    if (poll(p, n, timeout) < 0) return true;
    http_linger_read(h, p + linger);
    for (nfds_t i = 1; i < linger; i++)
        if (has_left(of[i - 1], p[i].revents)) http_cut(of[i - 1]);
    bool more = !p[0].revents || take_news(h);
    h->resumed = false;
    run_library(h, p + library, n - library);
    return more;
}

static void *network_main(void *arg)
{
    lily_http *h = arg;
    while (loop_once(h)) {}
    /* The library must not be stopped with suspended connections. */
    for (http_conn *c = h->conns; c; c = c->next) http_cut(c);
    MHD_run(h->mhd);
    MHD_stop_daemon(h->mhd);
    http_linger_close(h);
    serve_all_ready(h);    /* releases what is still listed; nothing can be added any more */
    return NULL;
}

/* ---- opening and the end */

static double positive(double value, double fallback) { return value > 0 ? value : fallback; }

/* Where descriptors run out before connections do, a connection could be neither accepted nor refused, and the loop
 * would find it waiting again and again. */
static int connections_that_fit(int wanted)
{
    enum { OTHER_FILES = 48 };    /* standard streams, pipe, listener, lingering sockets, files being read */
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= (rlim_t)wanted + OTHER_FILES) return wanted;
    return files.rlim_cur > OTHER_FILES ? (int)(files.rlim_cur - OTHER_FILES) : 1;
}

static void fill_defaults(lily_http_options *o)
{
    enum { LEAST_HELD = 64 << 20 };
    if (!o->host) o->host = "127.0.0.1";
    if (!o->max_body_bytes) o->max_body_bytes = (size_t)16 << 20;
    size_t held = o->max_body_bytes < SIZE_MAX / 4 ? o->max_body_bytes * 4 : SIZE_MAX;
    if (!o->max_held_bytes) o->max_held_bytes = held > LEAST_HELD ? held : LEAST_HELD;
    if (!o->max_header_bytes) o->max_header_bytes = (size_t)64 << 10;
    if (!o->max_pending_bytes) o->max_pending_bytes = (size_t)1 << 20;
    if (o->max_headers <= 0) o->max_headers = 100;
    if (o->max_connections <= 0) o->max_connections = 256;
    if (o->max_connections > MAX_CONNECTIONS) o->max_connections = MAX_CONNECTIONS;
    o->max_connections = connections_that_fit(o->max_connections);
    o->header_seconds = positive(o->header_seconds, 10);
    o->body_seconds = positive(o->body_seconds, 120);
    o->idle_seconds = positive(o->idle_seconds, 60);
    o->write_seconds = positive(o->write_seconds, 60);
    if (o->keep_alive_seconds == 0) o->keep_alive_seconds = 10;
}

static int make_pipe(int fds[2], lily_err *e)
{
    if (pipe(fds) != 0) return lily_fail(e, LILY_IO, "no pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        fcntl(fds[i], F_SETFD, FD_CLOEXEC);
        fcntl(fds[i], F_SETFL, O_NONBLOCK);
    }
    return LILY_OK;
}

/* A NUL would end the text early: what holds one stays as it was sent, and is no path of ours. */
static size_t unescape(void *arg, struct MHD_Connection *mhd, char *text)
{
    (void)arg, (void)mhd;
    return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

static int start_library(lily_http *h, lily_err *e)
{
    /* Room for the head as it came, the library's tables of it, and the head of the answer: our own limit, whose
     * refusal is a proper error, is reached first. */
    size_t memory = h->opt.max_header_bytes * 4 + ((size_t)32 << 10);
    h->mhd = MHD_start_daemon(MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, http_on_request, h,
                              MHD_OPTION_LISTEN_SOCKET, h->listen_fd,
                              MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->opt.max_connections,
                              MHD_OPTION_CONNECTION_MEMORY_LIMIT, memory,
                              MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
                              MHD_OPTION_NOTIFY_COMPLETED, http_on_done, h,
                              MHD_OPTION_NOTIFY_CONNECTION, http_on_connection, h, MHD_OPTION_END);
    return h->mhd ? LILY_OK : lily_fail(e, LILY_IO, "libmicrohttpd did not start: %s", strerror(errno));
}

/* Signals are for the main thread: the network thread takes none. */
static int start_thread(lily_http *h, lily_err *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&h->thread, NULL, network_main, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? LILY_OK : lily_fail(e, LILY_IO, "no thread: %s", strerror(rc));
}

static void destroy(lily_http *h)
{
    if (h->listen_fd >= 0) {
        close(h->listen_fd);
        if (h->unix_path) unlink(h->unix_path);
    }
    for (int i = 0; i < 2; i++)
        if (h->wake_pipe[i] >= 0) close(h->wake_pipe[i]);
    pthread_cond_destroy(&h->idle);
    pthread_mutex_destroy(&h->lock);
    http_bodies_unref(h->bodies);
    lily_free(h->unix_path);
    lily_free(h);
}

int lily_http_open(lily_http **out, const lily_http_options *opt, lily_err *e)
{
    *out = NULL;
    lily_http *h = lily_calloc(1, sizeof *h);
    if (!h) return lily_no_memory(e, sizeof *h, "the HTTP server");
    h->opt = *opt;
    fill_defaults(&h->opt);
    h->listen_fd = h->wake_pipe[0] = h->wake_pipe[1] = -1;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->idle, NULL);
    int rc = LILY_OK;
    h->bodies = lily_calloc(1, sizeof *h->bodies);
    if (h->bodies) http_bodies_ref(h->bodies);
    else rc = lily_no_memory(e, sizeof *h->bodies, "the HTTP server");
    if (rc == LILY_OK) rc = http_listen(&h->opt, &h->listen_fd, &h->port, e);
    if (rc == LILY_OK && opt->unix_path && opt->listen_fd <= 0 && !(h->unix_path = lily_strdup(opt->unix_path)))
        rc = lily_no_memory(e, strlen(opt->unix_path) + 1, "the socket path");
    if (rc == LILY_OK) rc = make_pipe(h->wake_pipe, e);
    if (rc == LILY_OK) rc = start_library(h, e);
    if (rc == LILY_OK) {
        rc = start_thread(h, e);
        if (rc != LILY_OK) MHD_stop_daemon(h->mhd), h->listen_fd = -1;
    }
    if (rc != LILY_OK) destroy(h);
    else *out = h;
    return rc;
}

const lily_http_options *lily_http_in_force(const lily_http *h) { return &h->opt; }
int lily_http_port(const lily_http *h) { return h->port; }

uint64_t lily_http_turns(lily_http *h)
{
    http_signal(h);
    return atomic_load(&h->turns);
}

void lily_http_stop_accepting(lily_http *h)
{
    pthread_mutex_lock(&h->lock);
    h->stopping = true;
    pthread_mutex_unlock(&h->lock);
    http_signal(h);
}

int lily_http_drain(lily_http *h, double seconds, lily_err *e)
{
    struct timespec until = http_deadline(seconds);
    pthread_mutex_lock(&h->lock);
    int waited = 0;
    while (h->in_flight && waited != ETIMEDOUT) waited = pthread_cond_timedwait(&h->idle, &h->lock, &until);
    int left = h->in_flight;
    pthread_mutex_unlock(&h->lock);
    return left ? lily_fail(e, LILY_BUSY, "%d requests are still being answered", left) : LILY_OK;
}

void lily_http_close(lily_http *h)
{
    if (!h) return;
    pthread_mutex_lock(&h->lock);
    h->stopping = h->closing = true;
    pthread_mutex_unlock(&h->lock);
    http_signal(h);
    pthread_join(h->thread, NULL);
    destroy(h);
}
