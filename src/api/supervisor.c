#include "api/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_FD = 3 };          /* SD_LISTEN_FDS_START */

/* The number in a variable, 0 if there is none. */
static unsigned long long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

/* Variables that name a process are for that one only: a shell in between may have passed them on. */
static bool for_me(const char *name) { return number(name) == (unsigned long long)getpid(); }

static int take_socket(int *listen_fd, lily_err *e)
{
    unsigned long long n = for_me("LISTEN_PID") ? number("LISTEN_FDS") : 0;
    *listen_fd = n ? FIRST_FD : 0;
    for (unsigned long long i = 0; i < n && i < 64; i++) fcntl(FIRST_FD + (int)i, F_SETFD, FD_CLOEXEC);
    if (n > 1) return lily_fail(e, LILY_ARGUMENT, "%llu sockets were passed to Lily, which serves on one", n);
    return LILY_OK;
}

/* The path of a socket; '@' stands for the NUL that begins an abstract one. */
static int connect_notify(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || n >= sizeof to.sun_path) return -1;
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') to.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0) return -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) == 0) return fd;
    close(fd);
    return -1;
}

int lily_supervisor_meet(lily_supervisor *s, int *listen_fd, lily_err *e)
{
    static const char *const names[] = {"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC",
                                        "WATCHDOG_PID"};
    const char *path = getenv("NOTIFY_SOCKET");
    *s = (lily_supervisor){.notify_fd = path ? connect_notify(path) : -1};
    if (!getenv("WATCHDOG_PID") || for_me("WATCHDOG_PID")) s->watchdog_ns = number("WATCHDOG_USEC") * 1000;
    int rc = take_socket(listen_fd, e);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    if (rc != LILY_OK) lily_supervisor_part(s);
    return rc;
}

void lily_supervisor_tell(const lily_supervisor *s, const char *state)
{
    if (s->notify_fd >= 0) (void)!send(s->notify_fd, state, strlen(state), 0);
}

void lily_supervisor_part(lily_supervisor *s)
{
    if (s->notify_fd >= 0) close(s->notify_fd);
    s->notify_fd = -1;
}
