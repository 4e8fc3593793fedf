/* The HTTP layer: framing, limits, refusals and the ends of a server. */
#include "http_client.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"
#define GET_CLOSE(path) "GET " path " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

static void test_answers(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){0});
    const char *got = client_exchange(h, GET_CLOSE("/hello"));
    assert_has(got, "HTTP/1.1 200 OK\r\n");
    assert_has(got, "Content-Type: text/plain\r\n");
    assert_has(got, "X-Lily: hi\r\n");
    assert_has(got, "\r\n\r\nhello\n");
    assert_has(client_exchange(h, GET_CLOSE("/items/a%2Fb%20c?x=1")), "\r\n\r\n/items/a/b c");
    assert_has(client_exchange(h, GET_CLOSE("/query?p=1&q=a%26b")), "\r\n\r\na&b");
    assert_has(client_exchange(h, GET_CLOSE("/query")), "\r\n\r\nnone");
    assert_has(client_exchange(h, GET_CLOSE("HTTP://x:80/items/a?x=1")), "\r\n\r\n/items/a");
    assert_has(client_exchange(h, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde"), "\r\n\r\nabcde");
    assert_has(client_exchange(h, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                                  "2\r\nab\r\n3;x=y\r\ncde\r\n0\r\n\r\n"), "\r\n\r\nabcde");
    got = client_exchange(h, "HEAD /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_has(got, "Content-Length: 6\r\n");
    assert_lacks(got, "hello");
    assert_has(client_exchange(h, "GET /hello HTTP/1.0\r\n\r\n"), "\r\n\r\nhello\n");
    lily_http_close(h);
}

static void test_no_such_thing(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){0});
    const char *got = client_exchange(h, GET("/nothing"));
    assert_has(got, "HTTP/1.1 404 ");
    assert_has(got, "Content-Type: application/json\r\n");
    assert_has(got, "{\"error\":{\"message\":\"there is no path /nothing\"");
    assert_has(client_exchange(h, GET("/items/")), "HTTP/1.1 404 ");
    assert_has(client_exchange(h, GET("/hello%00")), "HTTP/1.1 404 ");
    assert_has(client_exchange(h, GET("http://x")), "HTTP/1.1 404 ");
    got = client_exchange(h, GET("/echo"));
    assert_has(got, "HTTP/1.1 405 ");
    assert_has(got, "Allow: POST, OPTIONS\r\n");
    got = client_exchange(h, "BREW /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_has(got, "HTTP/1.1 405 ");
    assert_has(got, "Allow: HEAD, GET, OPTIONS\r\n");
    got = client_exchange(h, "OPTIONS /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_has(got, "HTTP/1.1 204 ");
    assert_has(got, "Allow: POST, OPTIONS\r\n");
    assert_has(client_exchange(h, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 204 ");
    lily_http_close(h);
}

static void test_kept_connection(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){0});
    int fd = client_open(h);
    for (int i = 0; i < 3; i++) {
        client_send(fd, GET("/hello"));
        assert_has(client_read_until(fd, "hello\n", 2), "200 OK");
    }
    client_send(fd, GET("/query?q=one") GET("/nothing") GET("/query?q=two"));
    assert_has(client_read_until(fd, "\r\n\r\none", 2), "200 OK");
    assert_has(client_read_until(fd, "404}}", 2), "404 ");
    assert_has(client_read_until(fd, "\r\n\r\ntwo", 2), "200 OK");
    /* The next request waits behind one whose answer takes its time. */
    client_send(fd, GET("/wait") GET("/query?q=three"));
    lily_http_req *req = test_take();
    assert_string_equal(client_read_until(fd, "\001", 0.2), "");
    lily_err e;
    check_ok(lily_http_reply(req, 200, "text/plain", "waited", 6, &e), &e);
    lily_http_unref(req);
    assert_has(client_read_until(fd, "waited", 2), "200 OK");
    assert_has(client_read_until(fd, "\r\n\r\nthree", 2), "200 OK");
    close(fd);
    lily_http_close(h);
}

static void test_expect(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){.max_body_bytes = 100});
    int fd = client_open(h);
    client_send(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_has(client_read_until(fd, "\r\n\r\n", 2), "HTTP/1.1 100 ");
    client_send(fd, "ab");
    assert_has(client_read_until(fd, "\r\n\r\nab", 2), "200 OK");
    close(fd);
    const char *got = client_exchange(h, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n");
    assert_lacks(got, "HTTP/1.1 100 ");
    assert_has(got, "HTTP/1.1 413 ");
    lily_http_close(h);
}

/* The head of a request and a body of n bytes. */
static const char *with_body(lily_buf *b, const char *head, size_t n)
{
    lily_buf_clear(b);
    lily_buf_puts(b, head);
    for (size_t i = 0; i < n; i++) lily_buf_putc(b, 'a');
    return lily_buf_str(b);
}

static void test_body_limit(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){.max_body_bytes = 1000});
    lily_buf b = {0};
    const char *got = client_exchange(h, with_body(&b, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 1000));
    assert_has(got, "200 OK");
    /* A length is refused before the body comes, and also when the client sends it all the same. */
    got = client_exchange(h, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n");
    assert_has(got, "HTTP/1.1 413 ");
    assert_has(got, "{\"error\":{\"message\":\"the body of the request is too large\"");
    with_body(&b, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n", 20000000);
    int fd = client_open(h);
    assert_true(client_send(fd, lily_buf_str(&b)));    /* many clients read nothing before all is sent */
    assert_has(client_read_until(fd, "413}}", 2), "HTTP/1.1 413 ");
    assert_true(client_closed_after(fd, 2) >= 0);
    close(fd);
    lily_buf_clear(&b);
    lily_buf_puts(&b, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 1001; i++) lily_buf_puts(&b, "1\r\na\r\n");
    lily_buf_puts(&b, "0\r\n\r\n");
    got = client_exchange(h, lily_buf_str(&b));
    assert_has(got, "HTTP/1.1 413 ");
    assert_has(got, "{\"error\":");
    lily_buf_free(&b);
    lily_http_close(h);
}

/* Asks until the server answers with that status, since it hears of other connections in its own time. */
static const char *until_status(lily_http *h, const char *request, const char *status)
{
    const char *got = "";
    for (int i = 0; i < 100; i++) {
        got = client_exchange(h, request);
        if (strstr(got, status)) break;
        usleep(20000);
    }
    assert_has(got, status);
    return got;
}

static void test_bodies_together(void **state)
{
    (void)state;
    static const char asked[] = "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 200\r\n\r\n";
    lily_http *h = test_open((lily_http_options){.max_body_bytes = 1000, .max_held_bytes = 2000});
    lily_buf b = {0}, small = {0};
    with_body(&small, asked, 200);
    /* One that is being answered and one that has not come whole. */
    int held = client_open(h), coming = client_open(h);
    client_send(held, with_body(&b, "GET /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 1000));
    lily_http_req *req = test_take();
    client_send(coming, with_body(&b, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 901\r\n\r\n", 900));
    const char *got = until_status(h, lily_buf_str(&small), "HTTP/1.1 503 ");
    assert_has(got, "Retry-After: 1\r\n");
    assert_has(got, "the bodies of other requests");
    with_body(&b, "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\nc8\r\n", 200);
    lily_buf_puts(&b, "\r\n0\r\n\r\n");
    got = client_exchange(h, lily_buf_str(&b));
    assert_has(got, "HTTP/1.1 503 ");
    assert_has(got, "Retry-After: 1\r\n");
    /* What was begun is served, and room comes back with every end: an answer, a client that leaves. */
    client_send(coming, "a");
    assert_has(client_read_until(coming, "aaa", 2), "200 OK");
    until_status(h, lily_buf_str(&small), "200 OK");
    client_send(coming, with_body(&b, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 901\r\n\r\n", 900));
    until_status(h, lily_buf_str(&small), "HTTP/1.1 503 ");
    close(coming);
    until_status(h, lily_buf_str(&small), "200 OK");
    /* A body is held as long as its request, whatever became of the client and of the server. */
    close(held);
    assert_true(test_wait_gone(req, 2));
    lily_http_close(h);
    size_t n;
    (void)lily_http_body(req, &n);
    assert_int_equal(n, 1000);
    lily_http_unref(req);
    lily_buf_free(&b);
    lily_buf_free(&small);
}

static void test_header_limit(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){.max_header_bytes = 2000});
    lily_buf b = {0};
    with_body(&b, "GET /hello HTTP/1.1\r\nHost: x\r\nX-A: ", 1900);
    lily_buf_puts(&b, "\r\n\r\n");
    assert_has(client_exchange(h, lily_buf_str(&b)), "200 OK");
    with_body(&b, "GET /hello HTTP/1.1\r\nHost: x\r\nX-A: ", 2000);
    lily_buf_puts(&b, "\r\n\r\n");
    const char *got = client_exchange(h, lily_buf_str(&b));
    assert_has(got, "HTTP/1.1 431 ");
    assert_has(got, "{\"error\":{\"message\":\"the headers of the request are too large\"");
    lily_buf_clear(&b);
    lily_buf_puts(&b, "GET /hello HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 300; i++) lily_buf_printf(&b, "X-%d: b\r\n", i);
    lily_buf_puts(&b, "\r\n");
    assert_has(client_exchange(h, lily_buf_str(&b)), "HTTP/1.1 431 ");
    /* Far beyond, the library refuses by itself. */
    with_body(&b, "GET /hello HTTP/1.1\r\nHost: x\r\nX-A: ", 200000);
    assert_has(client_exchange(h, lily_buf_str(&b)), "HTTP/1.1 431 ");
    lily_buf_free(&b);
    lily_http_close(h);
}

static void test_ambiguous_or_broken(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 2\r\n\r\nabcd",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTransfer Encoding: chunked\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0x4\r\n\r\nabcd",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "\x16\x03\x01\x02 hello\r\n\r\n",
        "GET\r\n\r\n",
    };
    lily_http *h = test_open((lily_http_options){0});
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const char *got = client_exchange(h, refused[i]);
        if (*got && strncmp(got, "HTTP/1.1 400 ", 13) != 0) fail_msg("case %zu: %s", i, got);
        if (i < 6) assert_has(got, "{\"error\":");
        assert_lacks(got + (*got != 0), "HTTP/1.1 200");
    }
    assert_has(client_exchange(h, GET_CLOSE("/hello")), "hello\n");
    lily_http_close(h);
}

static void test_compressed(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){0});
    const char *got = client_exchange(h, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b");
    assert_has(got, "HTTP/1.1 415 ");
    assert_has(got, "must not be compressed");
    got = client_exchange(h, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\nok");
    assert_has(got, "\r\n\r\nok");
    lily_http_close(h);
}

static void test_dropped_by_handler(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){0});
    const char *got = client_exchange(h, GET_CLOSE("/drop"));
    assert_has(got, "HTTP/1.1 500 ");
    assert_has(got, "dropped without an answer");
    int fd = client_open(h);
    client_send(fd, GET("/drop-stream"));
    assert_true(client_closed_after(fd, 2) >= 0);
    close(fd);
    fd = client_open(h);
    client_send(fd, GET("/wait"));
    lily_http_unref(test_take());
    assert_has(client_read_until(fd, "500}}", 2), "HTTP/1.1 500 ");
    close(fd);
    lily_http_close(h);
}

static void test_order_of_calls(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){0});
    int fd = client_open(h);
    lily_err e;
    client_send(fd, GET("/wait"));
    lily_http_req *req = test_take();
    check_fails(lily_http_stream_write(req, "a", 1, &e), LILY_ARGUMENT, &e);
    check_fails(lily_http_stream_end(req, &e), LILY_ARGUMENT, &e);
    check_ok(lily_http_reply(req, 200, "text/plain", "ok\n", 3, &e), &e);
    assert_has(client_read_until(fd, "ok\n", 2), "200 OK");
    /* Depending on whether the answer is out already, a second one is out of order or too late. */
    int rc = lily_http_reply(req, 200, "text/plain", "no\n", 3, &e);
    assert_true(rc == LILY_ARGUMENT || rc == LILY_CANCELLED);
    assert_false(lily_http_gone(req));
    lily_http_unref(req);
    close(fd);
    lily_http_close(h);
}

static void test_taken(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){0}), *other;
    lily_http_options opt = {.port = lily_http_port(h)};
    lily_err e;
    assert_true(opt.port > 0);
    check_fails(lily_http_open(&other, &opt, &e), LILY_BUSY, &e);
    assert_has(e.text, "is taken by another program");
    lily_http_close(h);
    h = test_open(opt);    /* free again at once */
    assert_int_equal(lily_http_port(h), opt.port);
    lily_http_close(h);
    opt = (lily_http_options){.host = "no such host"};
    check_fails(lily_http_open(&other, &opt, &e), LILY_ARGUMENT, &e);
    opt = (lily_http_options){.port = 70000};
    check_fails(lily_http_open(&other, &opt, &e), LILY_ARGUMENT, &e);
}

static void test_unix_socket(void **state)
{
    (void)state;
    char dir[] = "/tmp/lily-http-XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/s", dir);
    /* A socket file of a server that died is replaced; one in use is not. */
    int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(dead, (struct sockaddr *)&a, sizeof a), 0);
    close(dead);
    lily_http_options opt = {.unix_path = a.sun_path};
    lily_http *h = test_open(opt), *other;
    lily_err e;
    check_fails(lily_http_open(&other, &opt, &e), LILY_BUSY, &e);
    struct stat st;
    assert_int_equal(stat(a.sun_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    client_send(fd, GET("/hello"));
    assert_has(client_read_until(fd, "hello\n", 2), "200 OK");
    close(fd);
    lily_http_close(h);
    assert_int_not_equal(stat(a.sun_path, &st), 0);
    /* Nor is anything else that has the name. */
    assert_int_equal(mkdir(a.sun_path, 0700), 0);
    check_fails(lily_http_open(&other, &opt, &e), LILY_ARGUMENT, &e);
    assert_has(e.text, "exists and is no socket");
    rmdir(a.sun_path);
    rmdir(dir);
}

static void test_graceful_stop(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){0});
    lily_err e;
    int idle = client_open(h), busy = client_open(h);
    client_send(idle, GET("/hello"));
    client_read_until(idle, "hello\n", 2);
    client_send(busy, GET("/stream"));
    lily_http_req *req = test_take();
    check_ok(lily_http_stream_write(req, "data: a\n\n", 9, &e), &e);
    client_read_until(busy, "data: a\n\n", 2);
    lily_http_stop_accepting(h);
    assert_true(client_closed_after(idle, 2) >= 0);
    check_fails(lily_http_drain(h, 0.2, &e), LILY_BUSY, &e);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)lily_http_port(h))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int late = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_not_equal(connect(late, (struct sockaddr *)&a, sizeof a), 0);
    close(late);
    check_ok(lily_http_stream_write(req, "data: b\n\n", 9, &e), &e);
    check_ok(lily_http_stream_end(req, &e), &e);
    lily_http_unref(req);
    check_ok(lily_http_drain(h, 5, &e), &e);
    assert_has(client_read_until(busy, "0\r\n\r\n", 2), "data: b\n\n");
    assert_true(client_closed_after(busy, 2) >= 0);
    close(idle);
    close(busy);
    lily_http_close(h);
}

/* A request on a connection that was busy when the stop came is told so. */
static void test_request_after_stop(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){0});
    lily_err e;
    int fd = client_open(h);
    client_send(fd, GET("/wait") GET("/hello"));
    lily_http_req *req = test_take();
    lily_http_stop_accepting(h);
    check_fails(lily_http_drain(h, 0.05, &e), LILY_BUSY, &e);
    check_ok(lily_http_reply(req, 200, "text/plain", "last", 4, &e), &e);
    lily_http_unref(req);
    const char *got = client_read_until(fd, "\001", 1);
    assert_has(got, "Connection: close");
    assert_has(got, "last");
    assert_lacks(got, "hello");
    close(fd);
    lily_http_close(h);
}

/* References outlive the server; everything is then a harmless refusal. */
static void test_abrupt_close(void **state)
{
    (void)state;
    lily_http *h = test_open((lily_http_options){0});
    lily_err e;
    int a = client_open(h), b = client_open(h), c = client_open(h);
    client_send(a, GET("/wait"));
    lily_http_req *wait = test_take();
    client_send(b, GET("/stream"));
    lily_http_req *stream = test_take();
    client_send(c, "GET /hel");
    lily_http_close(h);
    assert_true(lily_http_gone(wait) && lily_http_gone(stream));
    assert_int_equal(test_gone_calls(), 2);
    check_fails(lily_http_reply(wait, 200, "text/plain", "x", 1, &e), LILY_CANCELLED, &e);
    check_fails(lily_http_reply_error(wait, 500, "x", &e), LILY_CANCELLED, &e);
    check_fails(lily_http_stream_write(stream, "x", 1, &e), LILY_CANCELLED, &e);
    check_fails(lily_http_wait_room(stream, 1, 1, &e), LILY_CANCELLED, &e);
    assert_string_equal(lily_http_path(wait), "/wait");
    lily_http_unref(wait);
    lily_http_unref(stream);
    assert_true(client_closed_after(a, 1) >= 0 && client_closed_after(b, 1) >= 0 && client_closed_after(c, 1) >= 0);
    close(a);
    close(b);
    close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),          cmocka_unit_test(test_no_such_thing),
        cmocka_unit_test(test_kept_connection),  cmocka_unit_test(test_expect),
        cmocka_unit_test(test_body_limit),       cmocka_unit_test(test_bodies_together),
        cmocka_unit_test(test_header_limit),     cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_ambiguous_or_broken), cmocka_unit_test(test_dropped_by_handler),
        cmocka_unit_test(test_order_of_calls),   cmocka_unit_test(test_taken),
        cmocka_unit_test(test_unix_socket),      cmocka_unit_test(test_graceful_stop),
        cmocka_unit_test(test_request_after_stop), cmocka_unit_test(test_abrupt_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
