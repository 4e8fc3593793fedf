/* The HTTP layer's door: who is let in by the head alone, what is said when a request is over, sockets from outside. */
#include "http_client.h"

#include <netinet/in.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mem.h"

/* What over has seen. */
static struct {
    atomic_int admitted, over, notes, gone, last_status;
} seen;

static bool admit(lily_http_req *req, void *arg)
{
    (void)arg;
    lily_err e;
    atomic_fetch_add(&seen.admitted, 1);
    atomic_fetch_add(&seen.notes, 1);
    lily_http_set_note(req, lily_strdup(lily_http_path(req)));
    lily_http_set_header(req, "X-Seen", "yes", &e);
    if (lily_http_header(req, "x-silent")) return false;    /* as when there was no memory for an answer */
    if (!lily_http_header(req, "x-refuse")) return true;
    lily_http_reply_error(req, 401, "not you", &e);
    return false;
}

static void over(lily_http_req *req, void *arg)
{
    (void)arg;
    char *note = lily_http_note(req);
    assert_string_equal(note, lily_http_path(req));
    lily_free(note);
    atomic_fetch_sub(&seen.notes, 1);
    if (lily_http_gone(req)) atomic_fetch_add(&seen.gone, 1);
    atomic_store(&seen.last_status, lily_http_status(req));
    atomic_fetch_add(&seen.over, 1);
}

static lily_http *open_guarded(lily_http_options o)
{
    memset(&seen, 0, sizeof seen);
    o.admit = admit;
    o.over = over;
    return test_open(o);
}

static void wait_over(int n)
{
    for (int i = 0; i < 5000 && atomic_load(&seen.over) < n; i++) usleep(1000);
    assert_int_equal(atomic_load(&seen.over), n);
}

static void refused_by_the_head(void **state)
{
    (void)state;
    lily_http *h = open_guarded((lily_http_options){0});
    /* The body never comes: only the head can have been judged. */
    const char *got = client_exchange(h, "POST /echo HTTP/1.1\r\nHost: x\r\nX-Refuse: 1\r\nContent-Length: 100000\r\n\r\n");
    assert_has(got, "HTTP/1.1 401 ");
    assert_has(got, "X-Seen: yes\r\n");
    assert_has(got, "not you");
    got = client_exchange(h, "POST /echo HTTP/1.1\r\nHost: x\r\nX-Refuse: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n");
    assert_has(got, "HTTP/1.1 401 ");
    got = client_exchange(h, "POST /echo HTTP/1.1\r\nHost: x\r\nX-Refuse: 1\r\nExpect: 100-continue\r\n"
                             "Content-Length: 5\r\n\r\n");
    assert_has(got, "HTTP/1.1 401 ");
    assert_lacks(got, "100 Continue");
    wait_over(3);
    assert_int_equal(atomic_load(&seen.last_status), 401);
    lily_http_close(h);
    assert_int_equal(atomic_load(&seen.notes), 0);
}

static void who_is_not_admitted_never_passes(void **state)
{
    (void)state;
    lily_http *h = open_guarded((lily_http_options){0});
    assert_string_equal(client_exchange(h, "GET /hello HTTP/1.1\r\nHost: x\r\nX-Silent: 1\r\n\r\n"), "");
    assert_string_equal(client_exchange(h, "POST /echo HTTP/1.1\r\nHost: x\r\nX-Silent: 1\r\nContent-Length: 2\r\n\r\nab"),
                        "");
    wait_over(2);
    lily_http_close(h);
    assert_int_equal(atomic_load(&seen.notes), 0);
}

static void a_refusal_without_a_body_keeps_the_connection(void **state)
{
    (void)state;
    lily_http *h = open_guarded((lily_http_options){0});
    int fd = client_open(h);
    for (int i = 0; i < 3; i++) {
        client_send(fd, "GET /hello HTTP/1.1\r\nHost: x\r\nX-Refuse: 1\r\n\r\n");
        assert_has(client_read_until(fd, "401}}", 2), "HTTP/1.1 401 ");
        client_send(fd, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_has(client_read_until(fd, "hello\n", 2), "X-Seen: yes\r\n");
    }
    close(fd);
    wait_over(6);
    lily_http_close(h);
    assert_int_equal(atomic_load(&seen.notes), 0);
}

/* Also what the layer refuses by itself was admitted, and is told when it is over. */
static void every_request_ends_once(void **state)
{
    (void)state;
    lily_http *h = open_guarded((lily_http_options){.max_body_bytes = 10, .max_headers = 4, .max_header_bytes = 500});
    assert_has(client_exchange(h, "GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), " 404 ");
    assert_has(client_exchange(h, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n"), " 413 ");
    assert_has(client_exchange(h, "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: 1\r\nA: 2\r\n\r\n"), " 200 ");
    assert_has(client_exchange(h, "GET /hello HTTP/1.1\r\nHost: x\r\nA: 1\r\nA: 2\r\nA: 3\r\nA: 4\r\n\r\n"), " 431 ");
    wait_over(4);
    assert_int_equal(atomic_load(&seen.last_status), 431);
    assert_int_equal(atomic_load(&seen.gone), 0);

    int fd = client_open(h);
    client_send(fd, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
    lily_http_req *req = test_take();
    client_reset(fd);
    assert_true(test_wait_gone(req, 5));
    usleep(50000);
    assert_int_equal(atomic_load(&seen.over), 4);    /* somebody still holds it */
    assert_int_equal(lily_http_status(req), 0);
    lily_http_unref(req);
    wait_over(5);
    assert_int_equal(atomic_load(&seen.gone), 1);
    lily_http_close(h);
    assert_int_equal(atomic_load(&seen.notes), 0);
    assert_int_equal(atomic_load(&seen.admitted), 5);
}

static void a_passed_socket_is_served(void **state)
{
    (void)state;
    lily_err e;
    lily_http *h;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    lily_http_options o = {.listen_fd = fd};
    enum lily_reach reach;
    check_ok(lily_http_reach(&o, &reach, &e), &e);
    assert_int_equal(reach, LILY_REACH_MACHINE);
    check_fails(lily_http_open(&h, &o, &e), LILY_ARGUMENT, &e);    /* it does not listen */
    assert_int_equal(listen(fd, 5), 0);
    h = open_guarded(o);
    assert_true(lily_http_port(h) > 0);
    assert_has(client_exchange(h, "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), "hello\n");
    lily_http_close(h);
}

static void who_can_reach_it(void **state)
{
    (void)state;
    lily_err e;
    static const struct {
        const char *host, *unix_path;
        enum lily_reach reach;
    } cases[] = {
        {NULL, NULL, LILY_REACH_MACHINE},        {"127.0.0.1", NULL, LILY_REACH_MACHINE},
        {"127.1.2.3", NULL, LILY_REACH_MACHINE}, {"::1", NULL, LILY_REACH_MACHINE},
        {"::ffff:127.0.0.1", NULL, LILY_REACH_MACHINE}, {"localhost", NULL, LILY_REACH_MACHINE},
        {"0.0.0.0", NULL, LILY_REACH_NETWORK},   {"::", NULL, LILY_REACH_NETWORK},
        {"10.0.0.1", NULL, LILY_REACH_NETWORK},  {"::ffff:10.0.0.1", NULL, LILY_REACH_NETWORK},
        {NULL, "x.sock", LILY_REACH_USER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lily_http_options o = {.host = cases[i].host, .unix_path = cases[i].unix_path};
        enum lily_reach reach;
        check_ok(lily_http_reach(&o, &reach, &e), &e);
        assert_int_equal(reach, cases[i].reach);
    }
    lily_http_options unknown = {.host = "no such host"};
    enum lily_reach reach;
    check_fails(lily_http_reach(&unknown, &reach, &e), LILY_ARGUMENT, &e);
    assert_has(e.text, "the address no such host is unknown");
}

static void the_loop_turns_when_asked(void **state)
{
    (void)state;
    lily_http *h = open_guarded((lily_http_options){0});
    for (int i = 0; i < 3; i++) {
        uint64_t before = lily_http_turns(h), now = before;
        for (int ms = 0; ms < 5000 && now == before; ms++) {
            usleep(1000);
            now = lily_http_turns(h);
        }
        assert_true(now > before);
    }
    lily_http_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_by_the_head),
        cmocka_unit_test(who_is_not_admitted_never_passes),
        cmocka_unit_test(a_refusal_without_a_body_keeps_the_connection),
        cmocka_unit_test(every_request_ends_once),
        cmocka_unit_test(a_passed_socket_is_served),
        cmocka_unit_test(who_can_reach_it),
        cmocka_unit_test(the_loop_turns_when_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
