/* Binds the listening socket.  It is done before anything else is loaded, so that a taken port costs no time. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/http_internal.h"

static int new_socket(int family, lily_err *e)
{
    int fd = socket(family, SOCK_STREAM, 0);
    if (fd < 0) return lily_fail(e, LILY_IO, "no socket: %s", strerror(errno)), -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return fd;
}

static int refuse(int fd, const char *where, lily_err *e)
{
    int why = errno;
    close(fd);
    if (why == EADDRINUSE) return lily_fail(e, LILY_BUSY, "%s is taken by another program", where);
    return lily_fail(e, LILY_IO, "cannot listen on %s: %s", where, strerror(why));
}

static int bound_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0) return 0;
    if (a.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
    if (a.ss_family == AF_INET) return ntohs(((struct sockaddr_in *)&a)->sin_port);
    return 0;
}

static int look_up(const char *host, const char *service, struct addrinfo **out, lily_err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    int rc = getaddrinfo(host, service, &hints, out);
    return rc == 0 ? LILY_OK : lily_fail(e, LILY_ARGUMENT, "the address %s is unknown: %s", host, gai_strerror(rc));
}

static int listen_tcp(const char *host, int port, int *out, int *out_port, lily_err *e)
{
    char service[8], where[300];
    snprintf(service, sizeof service, "%d", port);
    snprintf(where, sizeof where, "%.255s port %d", host, port);
    struct addrinfo *list;
    TRY(look_up(host, service, &list, e));
    int rc = LILY_IO;
    for (struct addrinfo *a = list; a; a = a->ai_next) {
        int fd = new_socket(a->ai_family, e);
        if (fd < 0) continue;
        /* A restart must not wait for connections of the last run; a living listener is still refused. */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
        if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0) {
            rc = refuse(fd, where, e);
            if (rc == LILY_BUSY) break;
            continue;
        }
        *out = fd;
        *out_port = bound_port(fd);
        rc = LILY_OK;
        break;
    }
    freeaddrinfo(list);
    return rc;
}

/* A socket file that a dead server left behind is in the way of bind: it is removed if nobody answers there. */
static bool stale(const struct sockaddr_un *a)
{
    struct stat st;
    if (lstat(a->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode)) return false;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return false;
    bool dead = connect(fd, (const struct sockaddr *)a, sizeof *a) != 0 && errno == ECONNREFUSED;
    close(fd);
    return dead;
}

static int listen_unix(const char *path, int *out, lily_err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return lily_fail(e, LILY_ARGUMENT, "the socket path %s is longer than %zu bytes", path, sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    struct stat st;
    if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return lily_fail(e, LILY_ARGUMENT, "%s exists and is no socket", path);
    int fd = new_socket(AF_UNIX, e);
    if (fd < 0) return LILY_IO;
    if (stale(&a)) unlink(path);
    /* Nobody can connect before listen: there is no moment at which the socket is open to others. */
    if (bind(fd, (struct sockaddr *)&a, sizeof a) != 0) return refuse(fd, path, e);
    if (chmod(path, 0600) != 0 || listen(fd, SOMAXCONN) != 0) {
        int rc = refuse(fd, path, e);
        unlink(path);
        return rc;
    }
    *out = fd;
    return LILY_OK;
}

/* ---- who can reach it ---- */

static enum lily_reach reach_of(const struct sockaddr *a)
{
    static const unsigned char mapped[13] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127};
    bool loopback = false;
    if (a->sa_family == AF_UNIX) return LILY_REACH_USER;
    if (a->sa_family == AF_INET) {
        loopback = ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == 127;
    } else if (a->sa_family == AF_INET6) {
        const struct in6_addr *ip = &((const struct sockaddr_in6 *)a)->sin6_addr;
        loopback = IN6_IS_ADDR_LOOPBACK(ip) || memcmp(ip, mapped, sizeof mapped) == 0;
    }
    return loopback ? LILY_REACH_MACHINE : LILY_REACH_NETWORK;
}

int lily_http_reach(const lily_http_options *opt, enum lily_reach *reach, lily_err *e)
{
    struct sockaddr_storage given;
    socklen_t n = sizeof given;
    *reach = LILY_REACH_NETWORK;
    if (opt->listen_fd > 0) {
        if (getsockname(opt->listen_fd, (struct sockaddr *)&given, &n) == 0) *reach = reach_of((struct sockaddr *)&given);
        return LILY_OK;
    }
    if (opt->unix_path) {
        *reach = LILY_REACH_USER;
        return LILY_OK;
    }
    struct addrinfo *list;
    TRY(look_up(opt->host ? opt->host : "127.0.0.1", NULL, &list, e));
    *reach = LILY_REACH_MACHINE;
    for (struct addrinfo *a = list; a; a = a->ai_next)
        if (reach_of(a->ai_addr) > *reach) *reach = reach_of(a->ai_addr);
    freeaddrinfo(list);
    return LILY_OK;
}

/* ---- listening ---- */

/* A socket that was opened for us, by systemd for instance. */
static int take_over(int given, int *out, int *port, lily_err *e)
{
    int listens = 0;
    socklen_t n = sizeof listens;
    if (getsockopt(given, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) != 0 || !listens)
        return lily_fail(e, LILY_ARGUMENT, "descriptor %d, which was passed to Lily, is no listening socket", given);
    fcntl(given, F_SETFD, FD_CLOEXEC);
    fcntl(given, F_SETFL, fcntl(given, F_GETFL) | O_NONBLOCK);
    *port = bound_port(given);
    *out = given;
    return LILY_OK;
}

int http_listen(const lily_http_options *opt, int *fd, int *port, lily_err *e)
{
    *port = 0;
    if (opt->listen_fd > 0) return take_over(opt->listen_fd, fd, port, e);
    if (opt->unix_path) return listen_unix(opt->unix_path, fd, e);
    if (opt->port < 0 || opt->port > 65535) return lily_fail(e, LILY_ARGUMENT, "%d is no port", opt->port);
    return listen_tcp(opt->host, opt->port, fd, port, e);
}
