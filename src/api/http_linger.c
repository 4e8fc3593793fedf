/* Lets clients finish sending a body that was refused, so that they read the refusal. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http_internal.h"
#include "base/clock.h"

static const uint64_t LINGER_NS = 10u * 1000000000u;

/* The answer was sent; the library closes fd afterwards. */
void http_linger_add(lily_http *h, int fd)
{
    if (h->linger_count == HTTP_MAX_LINGER) return;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return;
    shutdown(copy, SHUT_WR);
    h->lingers[h->linger_count++] = (http_linger){.fd = copy, .deadline = lily_now_ns() + LINGER_NS};
}

static void remove_at(lily_http *h, int i)
{
    close(h->lingers[i].fd);
    h->lingers[i] = h->lingers[--h->linger_count];
}

uint64_t http_linger_clock(lily_http *h, uint64_t now)
{
    uint64_t next = HTTP_NEVER;
    for (int i = h->linger_count; i-- > 0;) {
        uint64_t deadline = h->lingers[i].deadline;
        if (now >= deadline) remove_at(h, i);
        else if (deadline < next) next = deadline;
    }
    return next;
}

nfds_t http_linger_poll(const lily_http *h, struct pollfd *p, nfds_t n)
{
    for (int i = 0; i < h->linger_count; i++) p[n++] = (struct pollfd){.fd = h->lingers[i].fd, .events = POLLIN};
    return n;
}

/* p: what http_linger_poll filled in. */
void http_linger_read(lily_http *h, const struct pollfd *p)
{
    char waste[64 << 10];
    for (int i = h->linger_count; i-- > 0;) {
        if (!p[i].revents) continue;
        ssize_t n = recv(h->lingers[i].fd, waste, sizeof waste, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) remove_at(h, i);
    }
}

void http_linger_close(lily_http *h)
{
    while (h->linger_count) remove_at(h, h->linger_count - 1);
}
