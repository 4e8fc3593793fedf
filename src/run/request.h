/* request.h - a request's inside, and the queue that it waits in.  Private to src/run.
 *
 * Two threads meet here: the requester, who drains events and may cancel, and the engine's.  A request has two
 * owners, one of each side, and goes when both have let go.  The queue too is owned by the engine and by every
 * request, so that a cancel which comes after the engine's end still finds it. */
#ifndef LILY_RUN_REQUEST_H
#define LILY_RUN_REQUEST_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/dev.h"
#include "run/engine.h"

typedef struct lily_queue lily_queue;
typedef struct event_node event_node;

struct lily_request {
    /* Set by submit, then read-only; every pointer of `ask` is owned. */
    lily_ask ask;
    lily_queue *queue;
    lily_request *next;             /* in the queue or among those that run, under the queue's lock */

    atomic_bool cancel;             /* looked at by the device between stages */
    atomic_bool stopped;            /* cancelled because a stop string was found */
    atomic_int owners;

    pthread_mutex_t lock;           /* for what follows, and held around wake */
    pthread_cond_t more;
    event_node *first, *last;       /* events not yet taken */
    event_node *end;                /* made by submit, so that the END needs no memory */
    void (*wake)(void *user);
    bool end_taken;
    bool waits;                     /* the requester asked for an event and there was none */
    bool watched;                   /* the engine wants to be told when `waits` becomes true */
};

/* Copies the ask; owned by both sides. */
int lily_request_new(lily_request **out, const lily_ask *ask, lily_queue *q, lily_err *e);
void lily_request_let_go(lily_request *r);

/* The engine's side.  push copies the event, its bytes and its alternatives. */
int lily_request_push(lily_request *r, const lily_event *ev, lily_err *e);
/* Whether the requester has dealt with everything that was pushed, which shows when it asks for more, or has cancelled.
 * If not, the queue is poked when it has. */
bool lily_request_caught_up(lily_request *r);
/* Sends the END: `ev` carries counts and times; an error's sentence is copied.  Lets go of the request. */
void lily_request_finish(lily_request *r, const lily_event *ev);

/* ---- queue ---- */

typedef void lily_job(void *user);

int lily_queue_new(lily_queue **out, uint32_t room, lily_err *e);
void lily_queue_hold(lily_queue *q);
void lily_queue_let_go(lily_queue *q);
/* LILY_BUSY when it is full or closed. */
int lily_queue_push(lily_queue *q, lily_request *r, lily_err *e);
/* True when it was still waiting: the caller now has the engine's part in it. */
bool lily_queue_remove(lily_queue *q, lily_request *r);
/* The first that waits, which counts as running until lily_queue_done; NULL when there is none, or when a job waits,
 * which wants the engine for itself. */
lily_request *lily_queue_take(lily_queue *q);
void lily_queue_done(lily_queue *q, const lily_request *r, const lily_event *end);
/* Sleeps until there are news (a request, a job, a poke, the end), but not beyond `until` (lily_now_ns; UINT64_MAX: no bound).
 * False when the queue is closed and empty. */
bool lily_queue_wait(lily_queue *q, uint64_t until);
/* Any thread: there are news. */
void lily_queue_poke(lily_queue *q);
/* Whether the next wait would return at once. */
bool lily_queue_has_news(lily_queue *q);
/* Runs job(user) on the engine's thread when no request runs; returns when it is done. */
void lily_queue_call(lily_queue *q, lily_job *job, void *user);
/* The engine's side: runs the jobs that wait; false: there were none. */
bool lily_queue_work(lily_queue *q);
/* Nothing comes in any more; what waits and what runs is cancelled. */
void lily_queue_close(lily_queue *q);
void lily_queue_counts(lily_queue *q, uint32_t *running, uint32_t *waiting);
/* The counters of requests and tokens, running and queued; nothing else is set. */
void lily_queue_stats(lily_queue *q, lily_engine_stats *out);

#endif
