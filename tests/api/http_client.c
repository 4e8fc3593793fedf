#include "http_client.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static lily_http_req *held[256];
static int held_count;
static atomic_int gone_calls;

/* ---- the server */

static void format_error(const char *path, int status, const char *sentence, lily_buf *body)
{
    (void)path;
    lily_buf_printf(body, "{\"error\":{\"message\":\"%s\",\"code\":%d}}", sentence, status);
}

static void hello(lily_http_req *req, void *arg)
{
    (void)arg;
    lily_http_set_header(req, "X-Lily", "hi", NULL);
    lily_http_reply(req, 200, "text/plain", "hello\n", 6, NULL);
}

static void echo(lily_http_req *req, void *arg)
{
    (void)arg;
    size_t n;
    const char *body = lily_http_body(req, &n);
    lily_http_reply(req, 200, "application/octet-stream", body, n, NULL);
}

static void item(lily_http_req *req, void *arg)
{
    (void)arg;
    const char *path = lily_http_path(req);
    lily_http_reply(req, 200, "text/plain", path, strlen(path), NULL);
}

static void query(lily_http_req *req, void *arg)
{
    (void)arg;
    const char *q = lily_http_query(req, "q");
    if (!q) q = "none";
    lily_http_reply(req, 200, "text/plain", q, strlen(q), NULL);
}

static void count_gone(lily_http_req *req, void *arg)
{
    (void)req;
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void hold(lily_http_req *req, void *arg)
{
    (void)arg;
    lily_http_on_gone(req, count_gone, &gone_calls);
    if (strcmp(lily_http_path(req), "/stream") == 0) lily_http_stream_begin(req, "text/event-stream", NULL);
    pthread_mutex_lock(&lock);
    held[held_count++] = lily_http_ref(req);
    pthread_mutex_unlock(&lock);
}

static void drop(lily_http_req *req, void *arg)
{
    (void)arg;
    if (strcmp(lily_http_path(req), "/drop-stream") == 0) lily_http_stream_begin(req, "text/event-stream", NULL);
}

static const lily_http_route routes[] = {
    {"GET", "/hello", hello}, {"POST", "/echo", echo},   {"GET", "/items/*", item},     {"GET", "/query", query},
    {"GET", "/wait", hold},   {"GET", "/stream", hold},  {"GET", "/drop", drop},        {"GET", "/drop-stream", drop},
    {NULL, NULL, NULL},
};

lily_http *test_open(lily_http_options opt)
{
    opt.format_error = format_error;
    opt.routes = routes;
    lily_http *h;
    lily_err e;
    atomic_store(&gone_calls, 0);
    check_ok(lily_http_open(&h, &opt, &e), &e);
    return h;
}

lily_http_req *test_try_take(void)
{
    pthread_mutex_lock(&lock);
    lily_http_req *req = held_count ? held[--held_count] : NULL;
    pthread_mutex_unlock(&lock);
    return req;
}

lily_http_req *test_take(void)
{
    uint64_t start = lily_now_ns();
    lily_http_req *req;
    while (!(req = test_try_take())) {
        if (lily_seconds_since(start) > 5) fail_msg("no request came to its handler");
        usleep(1000);
    }
    return req;
}

int test_gone_calls(void) { return atomic_load(&gone_calls); }

bool test_wait_gone(lily_http_req *req, double seconds)
{
    uint64_t start = lily_now_ns();
    while (!lily_http_gone(req))
        if (lily_seconds_since(start) > seconds) return false;
    return true;
}

/* ---- the client */

static int open_with(lily_http *h, int receive_bytes)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)lily_http_port(h))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    if (receive_bytes) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

int client_open(lily_http *h) { return open_with(h, 0); }
int client_open_small(lily_http *h) { return open_with(h, 8192); }

bool client_send(int fd, const char *text)
{
    for (size_t n = strlen(text); n;) {
        ssize_t k = send(fd, text, n, MSG_NOSIGNAL);
        if (k <= 0) return false;
        text += k;
        n -= (size_t)k;
    }
    return true;
}

const char *client_read_until(int fd, const char *text, double seconds)
{
    static _Thread_local char buf[1 << 20];
    size_t n = 0, want = strlen(text);
    uint64_t start = lily_now_ns();
    buf[0] = 0;
    while (n < sizeof buf - 1) {
        double left = seconds - lily_seconds_since(start);
        if (left <= 0 || poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, (int)(left * 1e3) + 1) <= 0) break;
        /* Looks first and takes only what belongs to this call: what follows is for the next. */
        ssize_t k = recv(fd, buf + n, sizeof buf - 1 - n, MSG_PEEK);
        if (k <= 0) break;
        buf[n + (size_t)k] = 0;
        size_t from = n < want ? 0 : n - want;
        char *found = strstr(buf + from, text);
        size_t end = found ? (size_t)(found - buf) + want : n + (size_t)k;
        recv(fd, buf + n, end - n, 0);
        n = end;
        buf[n] = 0;
        if (found) break;
    }
    return buf;
}

const char *client_exchange(lily_http *h, const char *text)
{
    int fd = client_open(h);
    client_send(fd, text);
    const char *got = client_read_until(fd, "\001", 0.5);
    close(fd);
    return got;
}

double client_closed_after(int fd, double seconds)
{
    uint64_t start = lily_now_ns();
    char buf[4096];
    for (;;) {
        double left = seconds - lily_seconds_since(start);
        if (left <= 0 || poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, (int)(left * 1e3) + 1) <= 0) return -1;
        if (recv(fd, buf, sizeof buf, 0) <= 0) return lily_seconds_since(start);
    }
}

void client_reset(int fd)
{
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(fd);
}
