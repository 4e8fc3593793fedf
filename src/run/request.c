/* request.c - a request and its list of events. */
#include "run/request.h"

#include <string.h>

#include "base/mem.h"

/* What an event points to lies behind its node in the same block: alternatives, then bytes; the error of an END. */
struct event_node {
    lily_event ev;                  /* first: a lily_event * is an event_node * */
    event_node *next;
};

static event_node *node_new(size_t behind) { return lily_calloc(1, sizeof(event_node) + behind); }

/* ---- the copy of an ask ---- */

static void *copy(const void *data, size_t n, size_t size)
{
    void *p = lily_calloc(n, size);
    if (p && n) memcpy(p, data, n * size);
    return p;
}

static void free_ask(lily_ask *a)
{
    lily_free((void *)a->tokens);
    lily_free((void *)a->marks);
    lily_free((void *)a->sampling.bias);
    lily_free((void *)a->prompt_text);
    lily_free((void *)a->endpoint);
    lily_grammar_let_go(a->grammar);
    lily_grammar_let_go(a->calls);
}

/* Every pointer of the ask becomes one to a copy; those that could not be made are NULL. */
static int own_ask(lily_ask *a, lily_err *e)
{
    const lily_ask from = *a;
    a->grammar = lily_grammar_hold(from.grammar);
    a->calls = lily_grammar_hold(from.calls);
    a->tokens = copy(from.tokens, from.n_tokens, sizeof *from.tokens);
    a->marks = copy(from.marks, from.n_marks, sizeof *from.marks);
    a->sampling.bias = copy(from.sampling.bias, from.sampling.n_bias, sizeof *from.sampling.bias);
    a->n_prompt_text = from.prompt_text ? from.n_prompt_text : 0;
    a->prompt_text = copy(from.prompt_text, a->n_prompt_text, 1);
    a->endpoint = lily_strdup(from.endpoint ? from.endpoint : "");
    if (a->tokens && a->marks && a->sampling.bias && a->prompt_text && a->endpoint) return LILY_OK;
    return lily_no_memory(e, from.n_tokens * sizeof *from.tokens, "a request");
}

/* ---- life ---- */

static void request_free(lily_request *r)
{
    for (lily_event *ev; r->first;) {
        ev = &r->first->ev;
        r->first = r->first->next;
        lily_event_free(ev);
    }
    lily_free(r->end);
    free_ask(&r->ask);
    pthread_cond_destroy(&r->more);
    pthread_mutex_destroy(&r->lock);
    lily_queue_let_go(r->queue);
    lily_free(r);
}

int lily_request_new(lily_request **out, const lily_ask *ask, lily_queue *q, lily_err *e)
{
    lily_request *r = lily_calloc(1, sizeof *r);
    if (!r) return lily_no_memory(e, sizeof *r, "a request");
    r->ask = *ask;
    r->queue = q;
    lily_queue_hold(q);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->more, NULL);
    atomic_init(&r->cancel, false);
    atomic_init(&r->stopped, false);
    atomic_init(&r->owners, 2);
    r->wake = ask->wake;
    int rc = own_ask(&r->ask, e);
    r->end = node_new(sizeof(lily_err));
    if (rc == LILY_OK && !r->end) rc = lily_no_memory(e, sizeof(event_node), "a request");
    if (rc == LILY_OK)
        *out = r;
    else
        request_free(r);
    return rc;
}

void lily_request_let_go(lily_request *r)
{
    if (atomic_fetch_sub(&r->owners, 1) == 1) request_free(r);
}

/* ---- the engine's side ---- */

/* Under the lock, so that a requester which has freed its part is never woken. */
static void append(lily_request *r, event_node *node, bool always_wake)
{
    pthread_mutex_lock(&r->lock);
    bool was_empty = !r->first;
    if (was_empty)
        r->first = node;
    else
        r->last->next = node;
    r->last = node;
    r->waits = false;
    pthread_cond_broadcast(&r->more);
    if (r->wake && (was_empty || always_wake)) r->wake(r->ask.user);
    pthread_mutex_unlock(&r->lock);
}

int lily_request_push(lily_request *r, const lily_event *ev, lily_err *e)
{
    size_t tops = ev->n_top * sizeof *ev->top;
    event_node *node = node_new(tops + ev->n_bytes);
    if (!node) return lily_no_memory(e, sizeof *node + tops + ev->n_bytes, "an event");
    lily_top *top = (lily_top *)(node + 1);
    char *bytes = (char *)top + tops;
    if (ev->n_top) memcpy(top, ev->top, tops);
    if (ev->n_bytes) memcpy(bytes, ev->bytes, ev->n_bytes);
    node->ev = *ev;
    node->ev.top = top;
    node->ev.bytes = bytes;
    append(r, node, false);
    return LILY_OK;
}

bool lily_request_caught_up(lily_request *r)
{
    pthread_mutex_lock(&r->lock);
    bool yes = r->waits || atomic_load(&r->cancel);
    r->watched = !yes;
    pthread_mutex_unlock(&r->lock);
    return yes;
}

void lily_request_finish(lily_request *r, const lily_event *ev)
{
    event_node *node = r->end;
    lily_err *err = (lily_err *)(node + 1);
    r->end = NULL;
    node->ev = *ev;
    node->ev.kind = LILY_EVENT_END;
    if (ev->err) {
        *err = *ev->err;
        node->ev.err = err;
    }
    /* Before the END is seen: who has it finds the engine idle, and a close no longer looks at this request. */
    lily_queue_done(r->queue, r, ev);
    append(r, node, true);
    lily_request_let_go(r);
}

/* ---- the requester's side ---- */

static void want_more(lily_request *r)
{
    if (r->first || r->waits) return;
    r->waits = true;
    if (r->watched) lily_queue_poke(r->queue);
    r->watched = false;
}

static lily_event *take(lily_request *r)
{
    event_node *node = r->first;
    if (!node) return NULL;
    r->first = node->next;
    if (node->ev.kind == LILY_EVENT_END) r->end_taken = true;
    return &node->ev;
}

lily_event *lily_request_next(lily_request *r)
{
    pthread_mutex_lock(&r->lock);
    want_more(r);
    lily_event *ev = take(r);
    pthread_mutex_unlock(&r->lock);
    return ev;
}

lily_event *lily_request_wait(lily_request *r)
{
    pthread_mutex_lock(&r->lock);
    want_more(r);
    while (!r->first && !r->end_taken) pthread_cond_wait(&r->more, &r->lock);
    lily_event *ev = take(r);
    pthread_mutex_unlock(&r->lock);
    return ev;
}

void lily_event_free(lily_event *ev) { lily_free(ev); }

/* The engine may take seconds to come back to its queue, so a request that still waits ends here. */
static void leave(lily_request *r)
{
    atomic_store(&r->cancel, true);
    if (!lily_queue_remove(r->queue, r)) {
        lily_queue_poke(r->queue);      /* it may sleep, while a script pauses */
        return;
    }
    lily_event end = {.kind = LILY_EVENT_END, .n_prompt = r->ask.n_tokens, .end = LILY_END_CANCELLED};
    lily_request_finish(r, &end);
}

void lily_request_cancel(lily_request *r) { leave(r); }

void lily_request_stop(lily_request *r)
{
    atomic_store(&r->stopped, true);
    leave(r);
}

void lily_request_free(lily_request *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->wake = NULL;
    pthread_mutex_unlock(&r->lock);
    leave(r);
    lily_request_let_go(r);
}
