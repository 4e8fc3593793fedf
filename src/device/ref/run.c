/* run.c - a plan walked in order, one stage after the other. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/ref/ref.h"

static uint32_t widest_matrix(const lily_config *c)
{
    const uint32_t inputs[] = {c->hidden, lily_value_width(c), lily_q_width(c), c->expert_inter,
                               c->shared_inter};
    uint32_t most = 0;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i] > most) most = inputs[i];
    return most;
}

int ref_prepare(lily_dev *d, const lily_weights *w, const lily_plan *plan, lily_exec **out, lily_err *e)
{
    *out = NULL;
    lily_exec *x = lily_calloc(1, sizeof *x);
    if (!x) return lily_no_memory(e, sizeof *x, "a plan's scratch memory");
    const lily_config *c = w->model->config;
    const size_t vectors = (size_t)plan->max_tokens * c->top_k;
    x->weights = w;
    x->row = lily_calloc(widest_matrix(c), sizeof *x->row);
    x->in = lily_calloc(vectors, sizeof *x->in);
    x->out = lily_calloc(vectors, sizeof *x->out);
    int rc = lily_scratch_open(&x->scratch, plan, c, e);
    if (rc == LILY_OK && !(x->row && x->in && x->out))
        rc = lily_no_memory(e, vectors * sizeof *x->in, "a plan's scratch memory");
    if (rc == LILY_OK)
        *out = x;
    else
        ref_release(d, x);
    return rc;
}

void ref_release(lily_dev *d, lily_exec *x)
{
    (void)d;
    if (!x) return;
    lily_scratch_close(&x->scratch);
    lily_free(x->row);
    lily_free(x->in);
    lily_free(x->out);
    lily_free(x);
}

/* Not-a-numbers that are no index either: what reads a dead slot is caught by the answer. */
static void poison(const lily_run *r, uint64_t slots)
{
    const uint32_t pattern = 0xffc0dead;
    for (unsigned s = 0; s < N_SLOTS; s++) {
        size_t n = slots & lily_bit(s) ? lily_scratch_used(&r->exec->scratch, s) : 0;
        for (size_t i = 0; i < n; i += 4) memcpy(r->memory + r->plan->slot_at[s] + i, &pattern, 4);
    }
}

static int perform(lily_run *r, uint32_t index, lily_err *e)
{
    TRY(ref_run_row(r, r->stage->row, r->stage->layer, e));
    if (r->exec->watch) r->exec->watch(r->exec->watch_arg, r->exec, index);
    poison(r, r->stage->dies);
    return LILY_OK;
}

int ref_submit(lily_dev *d, lily_exec *x, enum lily_segment first, enum lily_segment last,
               const lily_lane *lane, uint32_t n_lanes, uint64_t *ticket, lily_err *e)
{
    const uint64_t start = lily_now_ns();
    lily_run r = {.dev = d, .exec = x};
    TRY(lily_run_open(&r, x->weights, &x->scratch, first, lane, n_lanes, &d->newest, e));
    TRY(lily_run_walk(&r, first, last, perform, e));
    d->newest.done.device_ns = lily_now_ns() - start;
    *ticket = ++d->newest.ticket;
    return LILY_OK;
}

int ref_wait(lily_dev *d, uint64_t ticket, lily_done *done, uint32_t n_lanes, lily_err *e)
{
    return lily_run_wait(&d->newest, ticket, done, n_lanes, e);
}

int ref_peek(lily_dev *d, lily_exec *x, unsigned slot, void *dst, size_t room, lily_err *e)
{
    (void)d;
    return lily_scratch_peek(&x->scratch, slot, dst, room, e);
}

void ref_watch(lily_exec *x, lily_watch_fn *watch, void *arg)
{
    x->watch = watch;
    x->watch_arg = arg;
}

int ref_poke(lily_dev *d, lily_exec *x, unsigned slot, const void *src, size_t bytes, lily_err *e)
{
    (void)d;
    return lily_scratch_poke(&x->scratch, slot, src, bytes, e);
}
