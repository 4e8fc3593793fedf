/* http_client.h - a server with test handlers, and a raw client that sends exactly the bytes it is told to. */
#ifndef LILY_TESTS_HTTP_CLIENT_H
#define LILY_TESTS_HTTP_CLIENT_H

#include "../check.h"

#include <stdbool.h>

#include "api/http.h"

/* Routes: GET /hello; POST /echo (the body); GET /items/NAME (the path); GET /query (the value of q);
 * GET /wait, GET /stream (held for test_take); GET /drop and GET /drop-stream (forgotten by the handler). */
lily_http *test_open(lily_http_options opt);

/* The next held request, with a reference for the caller; fails after five seconds. */
lily_http_req *test_take(void);
lily_http_req *test_try_take(void);    /* NULL when there is none now */
/* How often on_gone was called for held requests since the last test_open. */
int test_gone_calls(void);
/* True when the client was seen to leave within `seconds`, while this thread is busy. */
bool test_wait_gone(lily_http_req *req, double seconds);

int client_open(lily_http *h);
int client_open_small(lily_http *h);    /* with a receive buffer that is soon full */
bool client_send(int fd, const char *text);    /* false: the server has closed */
/* Reads until the text occurs (returned buffer: one a thread, NUL-terminated), the connection ends or the time is over. */
const char *client_read_until(int fd, const char *text, double seconds);
/* Opens, sends, half-reads: everything until the server closes or a second has passed. */
const char *client_exchange(lily_http *h, const char *text);
/* Seconds until the server closes, or -1 when it did not within `seconds`. */
double client_closed_after(int fd, double seconds);
void client_reset(int fd);    /* closes with RST */

#define assert_has(text, want)                                                                               \
    do {                                                                                                     \
        if (!strstr((text), (want))) fail_msg("\"%s\" is not in:\n%s", (want), (text));                      \
    } while (0)
#define assert_lacks(text, want)                                                                             \
    do {                                                                                                     \
        if (strstr((text), (want))) fail_msg("\"%s\" is in:\n%s", (want), (text));                           \
    } while (0)

#endif
