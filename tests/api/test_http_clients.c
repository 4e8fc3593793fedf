/* The HTTP layer and its clients' habits: leaving, half-closing, reading slowly or not at all, sending in drips. */
#include "http_client.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

enum how { CLOSE, RESET, HALF_CLOSE, PIPELINED_CLOSE };

static void go(int fd, enum how how)
{
    if (how == PIPELINED_CLOSE) client_send(fd, GET("/hello"));
    if (how == RESET) client_reset(fd);
    else if (how == HALF_CLOSE) shutdown(fd, SHUT_WR);
    else close(fd);
}

/* The client goes while the answer is awaited, and while it is streamed: the engine, busy, knows within a second. */
static void check_leaving(const char *request, bool streamed, enum how how)
{
    lily_http *h = test_open((lily_http_options){0});
    lily_err e;
    int fd = client_open(h);
    client_send(fd, request);
    lily_http_req *req = test_take();
    if (streamed) {
        check_ok(lily_http_stream_write(req, "data: a\n\n", 9, &e), &e);
        client_read_until(fd, "data: a\n\n", 2);
    }
    assert_false(test_wait_gone(req, 0.1));
    go(fd, how);
    assert_true(test_wait_gone(req, 1));
    if (streamed) check_fails(lily_http_stream_write(req, "data: b\n\n", 9, &e), LILY_CANCELLED, &e);
    else check_fails(lily_http_reply(req, 200, "text/plain", "late", 4, &e), LILY_CANCELLED, &e);
    if (how == HALF_CLOSE) {
        assert_lacks(client_read_until(fd, "late", 0.5), "late");
        close(fd);
    }
    lily_http_unref(req);
    lily_http_close(h);
    assert_int_equal(test_gone_calls(), 1);
}

static void test_leave(void **state)
{
    (void)state;
    for (enum how how = CLOSE; how <= HALF_CLOSE; how++) {
        check_leaving(GET("/wait"), false, how);
        check_leaving(GET("/stream"), true, how);
    }
#ifdef __linux__    /* elsewhere a waiting request hides the end of the data behind it */
    check_leaving(GET("/wait"), false, PIPELINED_CLOSE);
    check_leaving(GET("/stream"), true, PIPELINED_CLOSE);
#endif
}

/* A function that is set after the client left is called all the same. */
static void note(lily_http_req *req, void *arg)
{
    (void)req;
    *(bool *)arg = true;
}

static void test_late_on_gone(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){0});
    int fd = client_open(h);
    client_send(fd, GET("/wait"));
    lily_http_req *req = test_take();
    close(fd);
    assert_true(test_wait_gone(req, 1));
    bool called = false;
    lily_http_on_gone(req, note, &called);
    assert_true(called);
    lily_http_unref(req);
    lily_http_close(h);
}

/* An answer given inside the handler reaches a client that has closed its sending side. */
static void test_half_closed_quick_answer(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){0});
    for (int i = 0; i < 50; i++) {
        int fd = client_open(h);
        client_send(fd, GET("/hello"));
        shutdown(fd, SHUT_WR);
        assert_has(client_read_until(fd, "hello\n", 2), "200 OK");
        close(fd);
    }
    lily_http_close(h);
}

/* The head of a stream comes before its first event, and comments come while nothing is written. */
static void test_keep_alive_by_clock(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){.keep_alive_seconds = 0.2});
    lily_err e;
    int fd = client_open(h);
    client_send(fd, GET("/stream"));
    lily_http_req *req = test_take();
    uint64_t start = lily_now_ns();
    const char *head = client_read_until(fd, "\r\n\r\n", 1);
    assert_has(head, "Content-Type: text/event-stream\r\n");
    assert_has(head, "Transfer-Encoding: chunked\r\n");
    assert_has(head, "Cache-Control: no-cache\r\n");
    assert_lacks(head, "Content-Length");
    assert_true(lily_seconds_since(start) < 0.2);
    for (int i = 1; i <= 3; i++) {
        assert_has(client_read_until(fd, ": keep-alive\n\n", 1), ": keep-alive\n\n");
        double t = lily_seconds_since(start);
        assert_true(t > 0.2 * i - 0.05 && t < 0.2 * i + 0.5);
    }
    /* What is written puts the next comment off. */
    for (int i = 0; i < 5; i++) {
        check_ok(lily_http_stream_write(req, "data: a\n\n", 9, &e), &e);
        assert_lacks(client_read_until(fd, "data: a\n\n", 1), "keep-alive");
        usleep(100000);
    }
    lily_http_set_keep_alive(req, "event: ping\n\n");    /* a protocol may have a sign of its own */
    assert_lacks(client_read_until(fd, "event: ping\n\n", 1), "keep-alive");
    check_ok(lily_http_stream_end(req, &e), &e);
    assert_has(client_read_until(fd, "0\r\n\r\n", 1), "0\r\n\r\n");
    lily_http_unref(req);
    close(fd);
    lily_http_close(h);
}

/* ---- slow readers */

enum { PIECE = 1000, BOUND = 100000 };

/* Writes numbered pieces until the socket's buffers and the queue stay full; returns how many fitted. */
static int fill(lily_http_req *req, int from, double patience)
{
    char piece[PIECE + 1];
    lily_err e;
    for (int i = from; i - from < 100000; i++) {
        snprintf(piece, sizeof piece, "%0*d", PIECE, i);
        int rc = lily_http_stream_write(req, piece, PIECE, &e);
        if (rc == LILY_BUSY) {
            if (lily_http_wait_room(req, PIECE, patience, &e) == LILY_BUSY) return i - from;
            i--;
            continue;
        }
        check_ok(rc, &e);
        assert_true(lily_http_pending(req) <= BOUND);
    }
    fail_msg("a client that reads nothing takes 100 MB");
    return 0;
}

/* Reads chunks and checks that the next `count` pieces are numbered from `from`. */
static void read_pieces(int fd, int from, int count)
{
    char want[16];
    for (int i = from; i < from + count; i++) {
        snprintf(want, sizeof want, "%010d", i);
        assert_has(client_read_until(fd, want, 5), want);
    }
}

static void test_back_pressure(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){.max_pending_bytes = BOUND});
    lily_err e;
    int fd = client_open_small(h);
    client_send(fd, GET("/stream"));
    lily_http_req *req = test_take();
    int n = fill(req, 0, 0.5);
    check_fails(lily_http_wait_room(req, PIECE, 0.1, &e), LILY_BUSY, &e);
    assert_false(lily_http_gone(req));
    read_pieces(fd, 0, n - 10);
    check_ok(lily_http_wait_room(req, PIECE, 5, &e), &e);
    int more = fill(req, n, 0.5);
    assert_true(more > 0);
    read_pieces(fd, n - 10, more + 10);
    check_ok(lily_http_stream_end(req, &e), &e);
    client_read_until(fd, "\r\n0\r\n\r\n", 2);
    /* The connection is good for the next request. */
    client_send(fd, GET("/hello"));
    assert_has(client_read_until(fd, "hello\n", 2), "200 OK");
    lily_http_unref(req);
    close(fd);
    lily_http_close(h);
}

/* One event beyond the bound can be sent when nothing else waits. */
static void test_large_event(void **state)
{
    (void)state;
    enum { SIZE = 8 << 20 };    /* more than the system buffers */
    static char event[SIZE];
    memset(event, 'x', SIZE);
    event[SIZE - 1] = '!';
    lily_http *h = test_open((lily_http_options){.max_pending_bytes = BOUND});
    lily_err e;
    int fd = client_open_small(h);
    client_send(fd, GET("/stream"));
    lily_http_req *req = test_take();
    check_ok(lily_http_stream_write(req, event, SIZE, &e), &e);
    check_fails(lily_http_stream_write(req, "x", 1, &e), LILY_BUSY, &e);
    bool whole = false;
    for (int i = 0; i < 20 && !whole; i++) whole = strchr(client_read_until(fd, "!", 5), '!');
    assert_true(whole);
    lily_http_unref(req);
    close(fd);
    lily_http_close(h);
}

static void test_stalled_reader_is_dropped(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){.max_pending_bytes = BOUND, .write_seconds = 2});
    int fd = client_open_small(h);
    client_send(fd, GET("/stream"));
    lily_http_req *req = test_take();
    fill(req, 0, 0.5);
    uint64_t start = lily_now_ns();
    assert_true(test_wait_gone(req, 6));
    assert_true(lily_seconds_since(start) > 0.5);
    lily_http_unref(req);
    close(fd);
    lily_http_close(h);
}

/* A writer that waits for room is woken when the client leaves. */
static void *leave_later(void *fd)
{
    usleep(200000);
    close(*(int *)fd);
    return NULL;
}

static void test_wait_ends_with_client(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){.max_pending_bytes = BOUND});
    lily_err e;
    int fd = client_open_small(h);
    client_send(fd, GET("/stream"));
    lily_http_req *req = test_take();
    fill(req, 0, 0.5);
    pthread_t other;
    pthread_create(&other, NULL, leave_later, &fd);
    check_fails(lily_http_wait_room(req, BOUND, 10, &e), LILY_CANCELLED, &e);
    pthread_join(other, NULL);
    lily_http_unref(req);
    lily_http_close(h);
}

/* 64 clients that read nothing and 32 that never finish their head do not disturb one that reads. */
static void test_64_slow_readers(void **state)
{
    (void)state;
    enum { SLOW = 64, HALF = 32 };
    lily_http *h = test_open((lily_http_options){.max_pending_bytes = BOUND});
    lily_err e;
    int fd[SLOW + HALF];
    lily_http_req *slow[SLOW];
    for (int i = 0; i < SLOW + HALF; i++) {
        fd[i] = client_open_small(h);
        if (i < SLOW) {
            client_send(fd[i], GET("/stream"));
            slow[i] = test_take();
            fill(slow[i], 0, 0.02);
        } else {
            client_send(fd[i], "GET /hello HTTP/1.1\r\nHos");
        }
    }
    double worst = 0;
    for (int i = 0; i < 100; i++) {
        uint64_t start = lily_now_ns();
        int quick = client_open(h);
        client_send(quick, GET("/hello"));
        assert_has(client_read_until(quick, "hello\n", 5), "200 OK");
        close(quick);
        double t = lily_seconds_since(start);
        if (t > worst) worst = t;
    }
    assert_true(worst < 0.5);
    int fast = client_open(h);
    client_send(fast, GET("/stream"));
    lily_http_req *req = test_take();
    for (int i = 0; i < 50; i++) {
        check_ok(lily_http_stream_write(req, "data: fast\n\n", 12, &e), &e);
        for (int k = 0; k < SLOW; k++) {
            lily_http_stream_write(slow[k], "data: slow\n\n", 12, &e);
            assert_true(lily_http_pending(slow[k]) <= BOUND);
        }
        assert_has(client_read_until(fast, "data: fast\n\n", 2), "data: fast");
    }
    close(fast);
    lily_http_unref(req);
    for (int i = 0; i < SLOW; i++) {
        assert_false(lily_http_gone(slow[i]));
        lily_http_unref(slow[i]);
    }
    for (int i = 0; i < SLOW + HALF; i++) close(fd[i]);
    lily_http_close(h);
}

/* ---- slow senders */

/* Sends a byte every 50 ms; returns the seconds after which the server had enough. */
static double drip(int fd, double limit)
{
    uint64_t start = lily_now_ns();
    while (lily_seconds_since(start) < limit) {
        client_send(fd, "a");
        if (client_closed_after(fd, 0.05) >= 0) return lily_seconds_since(start);
    }
    return -1;
}

static void check_dropped(const char *begin, lily_http_options opt, bool dripping)
{
    lily_http *h = test_open(opt);
    int fd = client_open(h);
    client_send(fd, begin);
    double t = dripping ? drip(fd, 3) : client_closed_after(fd, 3);
    if (t < 0.2 || t > 1.5) fail_msg("dropped after %.2f s, wanted 0.3 s", t);
    close(fd);
    lily_http_close(h);
}

static void test_slow_senders(void **state)
{
    (void)state;
    static const char head[] = "GET /hello HTTP/1.1\r\nX-A: ";
    static const char body[] = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc";
    for (int dripping = 0; dripping < 2; dripping++) {
        check_dropped(head, (lily_http_options){.header_seconds = 0.3}, dripping);
        check_dropped(body, (lily_http_options){.body_seconds = 0.3}, dripping);
    }
    check_dropped("", (lily_http_options){.header_seconds = 0.3}, false);
    /* Idle, or dripping the next head. */
    check_dropped(GET("/hello"), (lily_http_options){.idle_seconds = 0.3}, false);
    check_dropped(GET("/hello") "GET /", (lily_http_options){.idle_seconds = 0.3}, true);
}

/* A client beyond the limit is neither answered nor turned away until another one leaves. */
static void test_more_than_the_limit(void **state)
{
    (void)state;
    enum { LIMIT = 2, CLIENTS = 5 };
    int fd[CLIENTS];
    lily_http *h = test_open((lily_http_options){.max_connections = LIMIT});
    for (int i = 0; i < CLIENTS; i++) {
        fd[i] = client_open(h);
        client_send(fd[i], GET("/hello"));
    }
    for (int i = 0; i < LIMIT; i++) assert_has(client_read_until(fd[i], "hello\n", 2), "200 OK");
    for (int i = LIMIT; i < CLIENTS; i++) assert_true(client_closed_after(fd[i], 0.1) < 0);
    for (int i = 0; i < CLIENTS; i++) {
        if (i >= LIMIT) assert_has(client_read_until(fd[i], "hello\n", 2), "200 OK");
        close(fd[i]);
    }
    lily_http_close(h);
}

/* The limits on reading do not apply while an answer is awaited. */
static void test_long_wait_is_no_idleness(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){.header_seconds = 0.2, .body_seconds = 0.2, .idle_seconds = 0.2,
                                                 .write_seconds = 1});
    lily_err e;
    int fd = client_open(h);
    client_send(fd, GET("/wait"));
    lily_http_req *req = test_take();
    assert_false(test_wait_gone(req, 1.5));
    check_ok(lily_http_reply(req, 200, "text/plain", "patience", 8, &e), &e);
    assert_has(client_read_until(fd, "patience", 2), "200 OK");
    lily_http_unref(req);
    close(fd);
    lily_http_close(h);
}

/* ---- many threads */

/* Clients come, read a little or nothing, and go at any moment. */
static void *client_main(void *arg)
{
    for (unsigned i = 0; i < 150; i++) {
        int fd = client_open(arg);
        client_send(fd, i % 3 ? GET("/stream") : GET("/wait"));
        if (i % 5 == 0) usleep(500);
        if (i % 4 == 1) client_read_until(fd, i % 3 ? "data" : "done", 0.5);
        if (i % 2) client_reset(fd);
        else close(fd);
    }
    return NULL;
}

static void answer(lily_http_req *req)
{
    if (strcmp(lily_http_path(req), "/wait") == 0) {
        lily_http_reply(req, 200, "text/plain", "done", 4, NULL);
    } else {
        for (int i = 0; i < 5; i++) lily_http_stream_write(req, "data: a\n\n", 9, NULL);
        lily_http_stream_end(req, NULL);
    }
    lily_http_unref(req);
}

static void test_crowd(void **state)
{
    (void)state;
    enum { CLIENTS = 4 };
    lily_http *h = test_open((lily_http_options){.keep_alive_seconds = 0.01});
    pthread_t clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) pthread_create(&clients[i], NULL, client_main, h);
    int answered = 0;
    for (uint64_t last = lily_now_ns(); lily_seconds_since(last) < 1.5;) {
        lily_http_req *req = test_try_take();
        if (!req) {
            usleep(100);
            continue;
        }
        answer(req);
        answered++;
        last = lily_now_ns();
    }
    for (int i = 0; i < CLIENTS; i++) pthread_join(clients[i], NULL);
    assert_true(answered > CLIENTS * 30);
    lily_err e;
    check_ok(lily_http_drain(h, 5, &e), &e);
    lily_http_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leave),
        cmocka_unit_test(test_late_on_gone),
        cmocka_unit_test(test_half_closed_quick_answer),
        cmocka_unit_test(test_keep_alive_by_clock),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_large_event),
        cmocka_unit_test(test_stalled_reader_is_dropped),
        cmocka_unit_test(test_wait_ends_with_client),
        cmocka_unit_test(test_64_slow_readers),
        cmocka_unit_test(test_slow_senders),
        cmocka_unit_test(test_more_than_the_limit),
        cmocka_unit_test(test_long_wait_is_no_idleness),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
