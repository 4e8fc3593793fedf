/* try_mhd.c - the trial server on libmicrohttpd.  Usage: try_mhd PORT [watch] */
#include "engine.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <arpa/inet.h>

/* A request is one of: handler not done, suspended, or being written.  All flags under j->lock. */
typedef struct wire {
    job *j;
    struct MHD_Connection *c;
    int fd;
    bool suspended, finished, answered;
} wire;

static bool watch;                 /* poll the sockets of suspended requests ourselves */
static pthread_mutex_t wires_lock = PTHREAD_MUTEX_INITIALIZER;
static wire *wires[MAX_JOBS];

static void resume(wire *w)        /* with j->lock held */
{
    if (!w->suspended || w->finished) return;
    w->suspended = false;
    MHD_resume_connection(w->c);
}

void wire_wake(job *j)
{
    pthread_mutex_lock(&j->lock);
    resume(j->wire);
    pthread_mutex_unlock(&j->lock);
}

/* MHD cannot wait for data by itself: returning 0 makes its loop spin, so the connection is suspended. */
static ssize_t on_read(void *arg, uint64_t pos, char *buf, size_t max)
{
    (void)pos;
    wire *w = arg;
    job *j = w->j;
    ssize_t n = 0;
    pthread_mutex_lock(&j->lock);
    if (atomic_load(&j->gone)) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (j->queued) {
        n = (ssize_t)(j->queued < max ? j->queued : max);
        memcpy(buf, j->queue, (size_t)n);
        j->queued -= (size_t)n;
        memmove(j->queue, j->queue + n, j->queued);
    } else if (j->ended) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        w->suspended = true;
        MHD_suspend_connection(w->c);
    }
    pthread_mutex_unlock(&j->lock);
    return n;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **state)
{
    (void)cls;
    (void)method;
    (void)version;
    (void)data;
    if (!*state) {
        static int first;
        *state = &first;
        return MHD_YES;
    }
    if (*size) {
        *size = 0;
        return MHD_YES;
    }
    if (!strcmp(url, "/")) {
        struct MHD_Response *r = MHD_create_response_from_buffer(3, (void *)(uintptr_t)"ok\n", MHD_RESPMEM_PERSISTENT);
        enum MHD_Result rc = MHD_queue_response(c, 200, r);
        MHD_destroy_response(r);
        return rc;
    }
    wire *w = calloc(1, sizeof *w);
    w->j = job_new(url);
    w->c = c;
    w->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    w->j->wire = w;
    *state = w;
    pthread_mutex_lock(&wires_lock);
    for (int i = 0; i < MAX_JOBS; i++)
        if (!wires[i]) {
            wires[i] = w;
            break;
        }
    pthread_mutex_unlock(&wires_lock);
    job_submit(w->j);
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, on_read, w, NULL);
    MHD_add_response_header(r, "Content-Type", "text/event-stream");
    enum MHD_Result rc = MHD_queue_response(c, 200, r);
    MHD_destroy_response(r);
    return rc;
}

static void on_done(void *cls, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode why)
{
    (void)cls;
    (void)c;
    wire *w = NULL;
    pthread_mutex_lock(&wires_lock);
    for (int i = 0; i < MAX_JOBS; i++)
        if (wires[i] && wires[i] == *state) {
            w = wires[i];
            wires[i] = NULL;
        }
    pthread_mutex_unlock(&wires_lock);
    if (!w) return;
    pthread_mutex_lock(&w->j->lock);
    w->finished = true;
    if (why != MHD_REQUEST_TERMINATED_COMPLETED_OK) atomic_store(&w->j->gone, true);
    pthread_mutex_unlock(&w->j->lock);
}

/* MHD has no timers and does not look at suspended sockets: a second thread does both. */
static void *watch_main(void *unused)
{
    (void)unused;
    for (double next = now_ms();; ) {
        struct pollfd p[MAX_JOBS];
        wire *of[MAX_JOBS];
        nfds_t n = 0;
        bool tick = now_ms() >= next;
        pthread_mutex_lock(&wires_lock);
        for (int i = 0; i < MAX_JOBS; i++) {
            wire *w = wires[i];
            if (!w || atomic_load(&w->j->gone)) continue;
            if (tick && w->j->kind == JOB_STREAM) job_put(w->j, ": keep-alive\n\n", 14);
            of[n] = w;
            p[n++] = (struct pollfd){.fd = w->fd, .events = POLLRDHUP};
        }
        pthread_mutex_unlock(&wires_lock);
        if (tick) next = now_ms() + KEEP_ALIVE_MS;
        if (poll(p, watch ? n : 0, 20) <= 0) continue;
        for (nfds_t i = 0; i < n; i++)
            if (p[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) {
                atomic_store(&of[i]->j->gone, true);
                wire_wake(of[i]->j);
            }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    watch = argc > 2;
    if (argc < 2) return 2;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct MHD_Daemon *d = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, NULL,
        MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&a, MHD_OPTION_NOTIFY_COMPLETED, on_done, NULL,
        MHD_OPTION_CONNECTION_TIMEOUT, 3u, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)64 << 10, MHD_OPTION_END);
    if (!d) return 2;
    pthread_t engine, watcher;
    pthread_create(&engine, NULL, engine_main, NULL);
    pthread_create(&watcher, NULL, watch_main, NULL);
    pthread_join(engine, NULL);
}
