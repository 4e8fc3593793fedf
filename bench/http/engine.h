/* engine.h - the stand-in for an inference engine that both trial servers share: one busy thread, a
 * bounded queue a request, and a library-specific wake-up.  Not part of Lily. */
#ifndef HTTP_TRIAL_ENGINE_H
#define HTTP_TRIAL_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { QUEUE_BOUND = 256 << 10, FLOOD_BYTES = 32 << 20, MAX_JOBS = 256, KEEP_ALIVE_MS = 500 };
enum job_kind { JOB_WAIT, JOB_STREAM, JOB_FLOOD };

typedef struct job {
    enum job_kind kind;
    atomic_bool gone;              /* set by the network side */
    pthread_mutex_t lock;          /* guards the queue below */
    char queue[QUEUE_BOUND];
    size_t queued, made;
    bool ended;                    /* the engine will write no more */
    double start, next;            /* ms */
    void *wire;                    /* the library's part */
} job;

void wire_wake(job *j);            /* the library's part: bytes or the end are in the queue */

static pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
static job *jobs[MAX_JOBS];

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static job *job_new(const char *path)
{
    job *j = calloc(1, sizeof *j);
    if (!j) abort();
    j->kind = !strcmp(path, "/wait") ? JOB_WAIT : !strcmp(path, "/stream") ? JOB_STREAM : JOB_FLOOD;
    pthread_mutex_init(&j->lock, NULL);
    j->start = j->next = now_ms();
    return j;
}

static void job_submit(job *j)
{
    pthread_mutex_lock(&jobs_lock);
    int i = 0;
    while (i < MAX_JOBS - 1 && jobs[i]) i++;
    jobs[i] = j;
    pthread_mutex_unlock(&jobs_lock);
}

static bool job_put(job *j, const char *s, size_t n)
{
    pthread_mutex_lock(&j->lock);
    bool fits = j->queued + n <= QUEUE_BOUND;
    if (fits) {
        memcpy(j->queue + j->queued, s, n);
        j->queued += n;
    }
    pthread_mutex_unlock(&j->lock);
    if (fits) wire_wake(j);
    return fits;
}

static void job_end(job *j)
{
    pthread_mutex_lock(&j->lock);
    j->ended = true;
    pthread_mutex_unlock(&j->lock);
    wire_wake(j);
}

/* One look at a job; true when the engine is through with it. */
static bool job_step(job *j)
{
    static const char page[1024];
    static const char *const names[] = {"wait", "stream", "flood"};
    double t = now_ms();
    if (atomic_load(&j->gone)) {
        printf("gone %s %.0f\n", names[j->kind], t - j->start);
        return true;
    }
    if (j->kind == JOB_FLOOD) {
        for (int i = 0; i < 16 && j->made < FLOOD_BYTES && job_put(j, page, sizeof page); i++) j->made += sizeof page;
        return j->made >= FLOOD_BYTES;
    }
    if (j->kind == JOB_WAIT) {
        if (t < j->start + 4000) return false;
        job_put(j, "done\n", 5);
        return true;
    }
    /* Five tokens, then a silence of three seconds (keep-alive must fill it), then tokens for ever. */
    bool silent = j->made >= 5 && t < j->start + 3500;
    if (t >= j->next && !silent && job_put(j, "data: a\n\n", 9)) {
        j->made++;
        j->next = t + 100;
    }
    return t > j->start + 60000;
}

static void *engine_main(void *unused)
{
    (void)unused;
    for (;;) {
        for (int i = 0; i < MAX_JOBS; i++) {
            pthread_mutex_lock(&jobs_lock);
            job *j = jobs[i];
            pthread_mutex_unlock(&jobs_lock);
            if (!j || !job_step(j)) continue;
            pthread_mutex_lock(&jobs_lock);
            jobs[i] = NULL;
            pthread_mutex_unlock(&jobs_lock);
            job_end(j);
        }
        /* Busy: 2 ms of work that never calls into the library. */
        double until = now_ms() + 2;
        while (now_ms() < until) {}
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return NULL;
}

#endif
