/* pool.c - workers that wait for a job number to change: first spinning, then asleep on a condition. */
#include "device/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/cpu/float_mode.h"

#define SPIN_NS    200000 /* stages of a token follow each other well within this */
#define SPIN_TURNS 1000   /* then the core is offered to others between turns */

struct lily_pool {
    unsigned threads;   /* the caller included */
    pthread_t *workers; /* [threads - 1] */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* A line of its own for each number that many threads write. */
    _Alignas(64) atomic_uint_fast64_t job;  /* counts jobs; a change is the start signal */
    _Alignas(64) atomic_uint_fast64_t next; /* first item not taken yet */
    _Alignas(64) atomic_uint busy;          /* workers that have not finished the job */
    _Alignas(64) atomic_uint asleep;
    atomic_bool quit;
    /* The job; written before `job` changes, read after. */
    lily_pool_fn *fn;
    void *context;
    uint32_t n, grain;
};

typedef struct worker_start {
    lily_pool *pool;
    unsigned thread;
} worker_start;

/* One turn of a wait; `turn` counts them. */
static void relax(unsigned turn)
{
    /* Another process may have the core of the thread waited for, or want this one. */
    if (turn > SPIN_TURNS && turn % 16 == 0) {
        sched_yield();
        return;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static void take_pieces(lily_pool *p, unsigned thread)
{
    for (;;) {
        uint64_t begin = atomic_fetch_add_explicit(&p->next, p->grain, memory_order_relaxed);
        if (begin >= p->n) return;
        uint64_t end = begin + p->grain;
        p->fn(p->context, (uint32_t)begin, end < p->n ? (uint32_t)end : p->n, thread);
    }
}

/* Returns the number of a job later than `seen`. */
static uint_fast64_t wait_for_job(lily_pool *p, uint_fast64_t seen)
{
    uint64_t start = lily_now_ns();
    for (unsigned i = 1;; i++) {
        uint_fast64_t job = atomic_load_explicit(&p->job, memory_order_acquire);
        if (job != seen) return job;
        relax(i);
        if (i % 64 == 0 && lily_now_ns() - start > SPIN_NS) break;
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->asleep, 1);
    while (atomic_load(&p->job) == seen) pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->asleep, 1);
    pthread_mutex_unlock(&p->lock);
    return atomic_load(&p->job);
}

static void *work(void *argument)
{
    worker_start *start = argument;
    lily_pool *p = start->pool;
    unsigned thread = start->thread;
    lily_free(start);
    lily_float_flush();
    uint_fast64_t seen = 0;
    for (;;) {
        seen = wait_for_job(p, seen);
        if (atomic_load(&p->quit)) return NULL;
        take_pieces(p, thread);
        atomic_fetch_sub_explicit(&p->busy, 1, memory_order_release);
    }
}

/* Sequential consistency between `job` and `asleep`: either the caller sees the sleeper and wakes it, or the
 * sleeper sees the new job before it waits. */
static void start_job(lily_pool *p)
{
    atomic_fetch_add(&p->job, 1);
    if (atomic_load(&p->asleep) == 0) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void lily_pool_for(lily_pool *p, uint32_t n, uint32_t grain, lily_pool_fn *fn, void *context)
{
    if (n == 0) return;
    if (p->threads == 1 || n <= grain) {
        for (uint32_t i = 0; i < n;) {
            uint32_t end = n - i > grain ? i + grain : n;
            fn(context, i, end, 0);
            i = end;
        }
        return;
    }
    p->fn = fn;
    p->context = context;
    p->n = n;
    p->grain = grain;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->busy, p->threads - 1, memory_order_relaxed);
    start_job(p);
    take_pieces(p, 0);
    for (unsigned i = 1; atomic_load_explicit(&p->busy, memory_order_acquire) != 0; i++) relax(i);
}

unsigned lily_pool_threads(const lily_pool *p)
{
    return p->threads;
}

static int start_workers(lily_pool *p, lily_err *e)
{
    for (unsigned i = 1; i < p->threads; i++) {
        worker_start *start = lily_calloc(1, sizeof *start);
        int failed = start == NULL;
        if (!failed) {
            *start = (worker_start){p, i};
            failed = pthread_create(&p->workers[i - 1], NULL, work, start);
        }
        if (failed) {
            lily_free(start);
            p->threads = i; /* those that run; lily_pool_close joins them */
            return lily_fail(e, LILY_DEVICE, "cannot start thread %u of the CPU device", i);
        }
    }
    return LILY_OK;
}

int lily_pool_open(lily_pool **out, unsigned threads, lily_err *e)
{
    if (threads == 0) threads = lily_physical_cores();
    lily_pool *p = lily_calloc_aligned(sizeof *p, 64);
    pthread_t *workers = lily_calloc(threads, sizeof *workers);
    if (p == NULL || workers == NULL) {
        lily_free_aligned(p);
        lily_free(workers);
        return lily_no_memory(e, threads * sizeof *workers, "the thread pool");
    }
    p->threads = threads;
    p->workers = workers;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    int rc = start_workers(p, e);
    if (rc != LILY_OK) {
        lily_pool_close(p);
        return rc;
    }
    *out = p;
    return LILY_OK;
}

void lily_pool_close(lily_pool *p)
{
    if (p == NULL) return;
    atomic_store(&p->quit, true);
    start_job(p);
    for (unsigned i = 1; i < p->threads; i++) pthread_join(p->workers[i - 1], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    lily_free(p->workers);
    lily_free_aligned(p);
}
