/* queue.c - the engine's work in order: requests, and jobs when there are none. */
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "run/request.h"

typedef struct job {
    lily_job *run;
    void *user;
    bool done;
    struct job *next;
} job;

struct lily_queue {
    atomic_int owners;
    pthread_mutex_t lock;
    pthread_cond_t work;            /* there are news */
    pthread_cond_t job_done;
    bool news;                      /* something came in, or changed */
    lily_request *first, *last;     /* waiting */
    lily_request *running;          /* taken by the engine */
    uint32_t n, n_running, room;
    job *jobs;                      /* they live on their callers' stacks */
    bool closed;
    lily_engine_stats stats;        /* its counters of requests and tokens */
};

int lily_queue_new(lily_queue **out, uint32_t room, lily_err *e)
{
    lily_queue *q = lily_calloc(1, sizeof *q);
    if (!q) return lily_no_memory(e, sizeof *q, "the queue");
    atomic_init(&q->owners, 1);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_cond_init(&q->job_done, NULL);
    q->room = room;
    *out = q;
    return LILY_OK;
}

void lily_queue_hold(lily_queue *q) { atomic_fetch_add(&q->owners, 1); }

void lily_queue_let_go(lily_queue *q)
{
    if (!q || atomic_fetch_sub(&q->owners, 1) != 1) return;
    pthread_cond_destroy(&q->job_done);
    pthread_cond_destroy(&q->work);
    pthread_mutex_destroy(&q->lock);
    lily_free(q);
}

static void tell(lily_queue *q)
{
    q->news = true;
    pthread_cond_signal(&q->work);
}

void lily_queue_poke(lily_queue *q)
{
    pthread_mutex_lock(&q->lock);
    tell(q);
    pthread_mutex_unlock(&q->lock);
}

bool lily_queue_has_news(lily_queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool news = q->news;
    pthread_mutex_unlock(&q->lock);
    return news;
}

int lily_queue_push(lily_queue *q, lily_request *r, lily_err *e)
{
    int rc = LILY_OK;
    pthread_mutex_lock(&q->lock);
    if (q->closed) {
        rc = lily_fail(e, LILY_BUSY, "the engine is shutting down");
    } else if (q->n >= q->room) {
        q->stats.refused++;
        rc = lily_fail(e, LILY_BUSY, "%u requests are waiting already", q->n);
    } else {
        if (q->last)
            q->last->next = r;
        else
            q->first = r;
        q->last = r;
        q->n++;
        tell(q);
    }
    pthread_mutex_unlock(&q->lock);
    return rc;
}

static lily_request *pop(lily_queue *q)
{
    lily_request *r = q->first;
    if (!r) return NULL;
    q->first = r->next;
    if (!q->first) q->last = NULL;
    q->n--;
    return r;
}

bool lily_queue_remove(lily_queue *q, lily_request *r)
{
    bool found = false;
    pthread_mutex_lock(&q->lock);
    for (lily_request *before = NULL, *i = q->first; i; before = i, i = i->next) {
        if (i != r) continue;
        if (before)
            before->next = r->next;
        else
            q->first = r->next;
        if (q->last == r) q->last = before;
        q->n--;
        found = true;
        break;
    }
    pthread_mutex_unlock(&q->lock);
    return found;
}

static void count(lily_engine_stats *s, const lily_event *end)
{
    s->requests[end->end]++;
    s->reused_tokens += end->n_reused;
    s->prompt_tokens += end->n_done - end->n_reused;
    s->generated_tokens += end->n_generated;
    s->prompt_seconds += end->prompt_seconds;
    s->reply_seconds += end->reply_seconds;
}

void lily_queue_done(lily_queue *q, const lily_request *r, const lily_event *end)
{
    pthread_mutex_lock(&q->lock);
    for (lily_request **at = &q->running; *at; at = &(*at)->next) {
        if (*at != r) continue;
        *at = r->next;
        q->n_running--;
        break;
    }
    count(&q->stats, end);
    pthread_mutex_unlock(&q->lock);
}

lily_request *lily_queue_take(lily_queue *q)
{
    pthread_mutex_lock(&q->lock);
    lily_request *r = q->jobs ? NULL : pop(q);
    if (r) {
        r->next = q->running;
        q->running = r;
        q->n_running++;
        /* One that waits when the queue is closed is still handed out, cancelled, to get its END. */
        if (q->closed) atomic_store(&r->cancel, true);
    }
    pthread_mutex_unlock(&q->lock);
    return r;
}

bool lily_queue_work(lily_queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool any = q->jobs;
    for (job *j; (j = q->jobs);) {
        q->jobs = j->next;
        pthread_mutex_unlock(&q->lock);
        j->run(j->user);
        pthread_mutex_lock(&q->lock);
        j->done = true;
        pthread_cond_broadcast(&q->job_done);
    }
    pthread_mutex_unlock(&q->lock);
    return any;
}

/* The moment `ns` of lily_now_ns on the only clock that every system waits by; a jump makes the wait longer or shorter. */
static struct timespec on_the_clock(uint64_t ns)
{
    struct timespec at;
    uint64_t now = lily_now_ns(), ahead = ns > now ? ns - now : 0;
    clock_gettime(CLOCK_REALTIME, &at);
    ahead += (uint64_t)at.tv_nsec;
    at.tv_sec += (time_t)(ahead / 1000000000);
    at.tv_nsec = (long)(ahead % 1000000000);
    return at;
}

bool lily_queue_wait(lily_queue *q, uint64_t until)
{
    bool bounded = until < UINT64_MAX;
    struct timespec at = on_the_clock(bounded ? until : 0);
    pthread_mutex_lock(&q->lock);
    for (int rc = 0; rc == 0 && !q->news && (!q->closed || q->first);)
        rc = bounded ? pthread_cond_timedwait(&q->work, &q->lock, &at) : pthread_cond_wait(&q->work, &q->lock);
    q->news = false;
    bool open = !q->closed || q->first;
    pthread_mutex_unlock(&q->lock);
    return open;
}

void lily_queue_call(lily_queue *q, lily_job *run, void *user)
{
    job j = {.run = run, .user = user};
    pthread_mutex_lock(&q->lock);
    job **at = &q->jobs;
    while (*at) at = &(*at)->next;
    *at = &j;
    tell(q);
    while (!j.done) pthread_cond_wait(&q->job_done, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

void lily_queue_close(lily_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    for (lily_request *r = q->running; r; r = r->next) atomic_store(&r->cancel, true);
    tell(q);
    pthread_mutex_unlock(&q->lock);
}

void lily_queue_counts(lily_queue *q, uint32_t *running, uint32_t *waiting)
{
    pthread_mutex_lock(&q->lock);
    *running = q->n_running;
    *waiting = q->n;
    pthread_mutex_unlock(&q->lock);
}

void lily_queue_stats(lily_queue *q, lily_engine_stats *out)
{
    pthread_mutex_lock(&q->lock);
    *out = q->stats;
    out->running = q->n_running;
    out->queued = q->n;
    pthread_mutex_unlock(&q->lock);
}
