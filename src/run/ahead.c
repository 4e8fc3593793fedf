#include "run/ahead.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/mem.h"

struct lily_ahead {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int (*work)(void *arg, lily_err *e); /* NULL: nothing is to be done */
    void *arg;
    int rc;
    lily_err err; /* of the last work */
    bool ends;
};

static void *run(void *user)
{
    lily_ahead *a = user;
    pthread_mutex_lock(&a->lock);
    while (!a->ends) {
        if (!a->work) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        int rc = a->work(a->arg, &a->err);
        pthread_mutex_lock(&a->lock);
        a->rc = rc;
        a->work = NULL;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

int lily_ahead_new(lily_ahead **out, lily_err *e)
{
    lily_ahead *a = lily_calloc(1, sizeof *a);
    *out = NULL;
    if (!a) return lily_no_memory(e, sizeof *a, "a thread");
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    if (pthread_create(&a->thread, NULL, run, a) != 0) {
        pthread_cond_destroy(&a->changed);
        pthread_mutex_destroy(&a->lock);
        lily_free(a);
        return lily_fail(e, LILY_IO, "the system refused a thread for masks");
    }
    *out = a;
    return LILY_OK;
}

void lily_ahead_free(lily_ahead *a)
{
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->ends = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    lily_free(a);
}

void lily_ahead_begin(lily_ahead *a, int (*work)(void *arg, lily_err *e), void *arg)
{
    pthread_mutex_lock(&a->lock);
    a->work = work;
    a->arg = arg;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

int lily_ahead_join(lily_ahead *a, lily_err *e)
{
    pthread_mutex_lock(&a->lock);
    while (a->work) pthread_cond_wait(&a->changed, &a->lock);
    int rc = a->rc;
    if (rc != LILY_OK && e) *e = a->err;
    pthread_mutex_unlock(&a->lock);
    return rc;
}
