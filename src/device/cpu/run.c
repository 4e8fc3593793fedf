/* run.c - a plan walked in order; each stage takes all threads and ends before the next begins. */
#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"
#include "device/cpu/float_mode.h"

int cpu_prepare(lily_dev *d, const lily_weights *w, const lily_plan *plan, lily_exec **out, lily_err *e)
{
    const size_t rope = (size_t)plan->max_tokens * w->model->config->rotary;
    *out = NULL;
    lily_exec *x = lily_calloc(1, sizeof *x);
    if (!x) return lily_no_memory(e, sizeof *x, "a plan's scratch memory");
    x->weights = w;
    x->rope = lily_calloc(rope, sizeof *x->rope);
    int rc = lily_scratch_open(&x->scratch, plan, w->model->config, e);
    if (rc == LILY_OK && !x->rope) rc = lily_no_memory(e, rope * sizeof *x->rope, "a plan's scratch memory");
    if (rc == LILY_OK)
        *out = x;
    else
        cpu_release(d, x);
    return rc;
}

void cpu_release(lily_dev *d, lily_exec *x)
{
    (void)d;
    if (!x) return;
    lily_scratch_close(&x->scratch);
    lily_free(x->rope);
    lily_free(x);
}

/* Angles in double: at position 131071 those in float are off by 4e-3. */
static void fill_rope(const lily_run *r)
{
    const uint32_t half = r->config->rotary / 2;
    float *to = r->exec->rope;
    for (uint32_t t = 0; t < r->tokens; t++, to += 2 * half)
        for (uint32_t i = 0; i < half; i++) {
            double angle = (r->first + t) * r->weights->frequency[i];
            to[i] = (float)cos(angle);
            to[half + i] = (float)sin(angle);
        }
}

static int perform(lily_run *r, uint32_t index, lily_err *e)
{
    TRY(cpu_run_row(r, r->stage->row, r->stage->layer, e));
    if (r->exec->watch) r->exec->watch(r->exec->watch_arg, r->exec, index);
    return LILY_OK;
}

int cpu_submit(lily_dev *d, lily_exec *x, enum lily_segment first, enum lily_segment last,
               const lily_lane *lane, uint32_t n_lanes, uint64_t *ticket, lily_err *e)
{
    const uint64_t start = lily_now_ns();
    lily_run r = {.dev = d, .exec = x};
    TRY(lily_run_open(&r, x->weights, &x->scratch, first, lane, n_lanes, &d->newest, e));
    if (first == LILY_FORWARD) {
        TRY(cpu_state_own(r.state, r.tokens, e));
        fill_rope(&r);
    }
    const uint64_t mode = lily_float_flush();
    int rc = lily_run_walk(&r, first, last, perform, e);
    lily_float_restore(mode);
    if (rc != LILY_OK) return rc;
    d->newest.done.device_ns = lily_now_ns() - start;
    *ticket = ++d->newest.ticket;
    return LILY_OK;
}

int cpu_wait(lily_dev *d, uint64_t ticket, lily_done *done, uint32_t n_lanes, lily_err *e)
{
    return lily_run_wait(&d->newest, ticket, done, n_lanes, e);
}

int cpu_peek(lily_dev *d, lily_exec *x, unsigned slot, void *dst, size_t room, lily_err *e)
{
    (void)d;
    return lily_scratch_peek(&x->scratch, slot, dst, room, e);
}

void cpu_watch(lily_exec *x, lily_watch_fn *watch, void *arg)
{
    x->watch = watch;
    x->watch_arg = arg;
}

int cpu_poke(lily_dev *d, lily_exec *x, unsigned slot, const void *src, size_t bytes, lily_err *e)
{
    (void)d;
    return lily_scratch_poke(&x->scratch, slot, src, bytes, e);
}
