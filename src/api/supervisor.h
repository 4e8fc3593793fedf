/* supervisor.h - what systemd and its like are told and give: sd_notify(3) and sd_listen_fds(3), by their protocols.
 * Outside of such a supervisor every function does nothing. */
#ifndef LILY_API_SUPERVISOR_H
#define LILY_API_SUPERVISOR_H

#include <stdint.h>

#include "base/err.h"

/* Reads what the supervisor left in the environment (LISTEN_FDS, NOTIFY_SOCKET, WATCHDOG_USEC) and removes it, so that
 * no child inherits it.  *listen_fd: the socket to serve on, 0: none.  LILY_ARGUMENT when there are several. */
typedef struct lily_supervisor {
    int notify_fd;              /* connected; -1: nobody listens */
    uint64_t watchdog_ns;       /* it wants a sign of life as often as this; 0: never */
} lily_supervisor;

int lily_supervisor_meet(lily_supervisor *s, int *listen_fd, lily_err *e);
/* "READY=1", "STOPPING=1", "STATUS=…", "WATCHDOG=1"; several with line ends between. */
void lily_supervisor_tell(const lily_supervisor *s, const char *state);
void lily_supervisor_part(lily_supervisor *s);

#endif
