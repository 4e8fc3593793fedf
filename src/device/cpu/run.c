/* run.c - a plan walked in order; each stage takes all threads and ends before the next begins. */
#include <math.h>
#include <string.h>

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
    x->plan = plan;
    x->scratch = lily_calloc_aligned(plan->scratch_bytes, 64);
    x->rope = lily_calloc(rope, sizeof *x->rope);
    if (x->scratch && x->rope) {
        *out = x;
        return LILY_OK;
    }
    cpu_release(d, x);
    return lily_no_memory(e, plan->scratch_bytes + rope * sizeof *x->rope, "a plan's scratch memory");
}

void cpu_release(lily_dev *d, lily_exec *x)
{
    (void)d;
    if (!x) return;
    lily_free_aligned(x->scratch);
    lily_free(x->rope);
    lily_free(x);
}

/* Angles in double: at position 131071 those in float are off by 4e-3. */
static void fill_rope(const cpu_run *r)
{
    const uint32_t half = r->config->rotary / 2;
    float *to = r->exec->rope;
    for (uint32_t t = 0; t < r->tokens; t++, to += 2 * half)
        for (uint32_t i = 0; i < half; i++) {
            double angle = (r->first + t) * r->exec->weights->frequency[i];
            to[i] = (float)cos(angle);
            to[half + i] = (float)sin(angle);
        }
}

static bool cancelled(const lily_lane *lane)
{
    return lane->cancel && atomic_load_explicit(lane->cancel, memory_order_relaxed);
}

static int run_stages(cpu_run *r, uint32_t first, uint32_t end, lily_err *e)
{
    for (uint32_t i = first; i < end; i++) {
        const lily_stage *stage = &r->exec->plan->stages[i];
        if (cancelled(r->lane)) {
            r->done->cancelled = true;
            return LILY_OK;
        }
        r->row = stage->row;
        r->steps = stage->steps;
        TRY(cpu_run_row(r, stage->row, stage->layer, e));
        if (r->exec->watch) r->exec->watch(r->exec->watch_arg, r->exec, i);
    }
    return LILY_OK;
}

static int check_marks(const lily_lane *lane, lily_err *e)
{
    for (uint32_t i = 0; i < lane->n_marks; i++)
        if (lane->mark[i] < 1 || lane->mark[i] > lane->n_tokens || (i && lane->mark[i] <= lane->mark[i - 1]))
            return lily_fail(e, LILY_ARGUMENT, "mark %u (after %u of %u tokens) is out of order", i, lane->mark[i],
                             lane->n_tokens);
    return LILY_OK;
}

static int check_tokens(const lily_lane *lane, uint32_t vocab, lily_err *e)
{
    for (uint32_t t = 0; t < lane->n_tokens; t++) {
        int32_t token = lane->tokens ? lane->tokens[t] : lane->state->next;
        if (token < 0 || (uint32_t)token >= vocab)
            return lily_fail(e, LILY_ARGUMENT, "token %d is not one of the model's %u", token, vocab);
    }
    return LILY_OK;
}

static int check_lane(const lily_exec *x, enum lily_segment first, const lily_lane *lane, lily_err *e)
{
    const lily_plan *p = x->plan;
    const uint32_t vocab = x->weights->model->config->vocab;
    if (lane->n_tokens < 1 || lane->n_tokens > p->max_tokens || (!lane->tokens && lane->n_tokens != 1))
        return lily_fail(e, LILY_ARGUMENT, "%u tokens in a run of at most %u", lane->n_tokens, p->max_tokens);
    if (lane->pick && (lane->pick->n_vocab < 1 || (uint32_t)lane->pick->n_vocab > vocab))
        return lily_fail(e, LILY_ARGUMENT, "%d of %u tokens cannot be chosen from", lane->pick->n_vocab, vocab);
    if (first != LILY_FORWARD) return LILY_OK;
    uint64_t most = (uint64_t)lane->state->n_pages * CPU_PAGE;
    if (p->max_context < most) most = p->max_context;
    if ((uint64_t)lane->state->position + lane->n_tokens > most)
        return lily_fail(e, LILY_CONTEXT, "%u tokens after %u are more than the %u that there is room for",
                         lane->n_tokens, lane->state->position, (uint32_t)most);
    TRY(check_tokens(lane, vocab, e));
    return check_marks(lane, e);
}

/* LILY_FORWARD: the tokens become part of the state, or the state goes back to where it can. */
static int run_forward(cpu_run *r, lily_err *e)
{
    const lily_lane *lane = r->lane;
    TRY(cpu_state_own(r->state, r->tokens, e));
    TRY(cpu_snapshots_new(r->state, lane->n_marks, &r->mark, e));
    for (uint32_t i = 0; i < lane->n_marks; i++) r->mark[i]->position = r->first + lane->mark[i];
    fill_rope(r);
    int rc = run_stages(r, 0, r->exec->plan->segment_end[LILY_FORWARD], e);
    if (rc != LILY_OK || r->done->cancelled) {
        cpu_snapshots_free(r->mark, lane->n_marks);
        cpu_state_recover(r->state);
        return rc;
    }
    cpu_snapshots_keep(r->state, r->mark, lane->n_marks);
    r->state->position = r->first + r->tokens;
    return LILY_OK;
}

/* The segments after LILY_FORWARD change nothing that a state could not be in. */
static int run_segments(cpu_run *r, enum lily_segment first, enum lily_segment last, lily_err *e)
{
    const lily_plan *p = r->exec->plan;
    if (first == LILY_FORWARD) TRY(run_forward(r, e));
    if (last == LILY_FORWARD || r->done->cancelled) return LILY_OK;
    uint32_t begin = p->segment_end[first > LILY_FORWARD ? first - 1 : LILY_FORWARD];
    TRY(run_stages(r, begin, p->segment_end[last], e));
    r->done->logits = cpu_slot(r, SLOT_LOGITS);
    return LILY_OK;
}

int cpu_submit(lily_dev *d, lily_exec *x, enum lily_segment first, enum lily_segment last, const lily_lane *lane,
               uint32_t n_lanes, uint64_t *ticket, lily_err *e)
{
    uint64_t start = lily_now_ns();
    if (n_lanes != 1) return lily_fail(e, LILY_UNSUPPORTED, "cpu runs one session at a time, not %u", n_lanes);
    TRY(check_lane(x, first, lane, e));
    d->done = (lily_done){.token = -1};
    cpu_run r = {.dev = d,
                 .k = d->k,
                 .exec = x,
                 .config = x->weights->model->config,
                 .model = x->weights->model,
                 .state = lane->state,
                 .lane = lane,
                 .tokens = lane->n_tokens,
                 .first = lane->state->position,
                 .done = &d->done};
    x->tokens = lane->n_tokens;
    uint64_t mode = lily_float_flush();
    int rc = run_segments(&r, first, last, e);
    lily_float_restore(mode);
    if (rc != LILY_OK) return rc;
    d->done.device_ns = lily_now_ns() - start;
    *ticket = ++d->ticket;
    return LILY_OK;
}

int cpu_wait(lily_dev *d, uint64_t ticket, lily_done *done, uint32_t n_lanes, lily_err *e)
{
    if (ticket != d->ticket || n_lanes != 1)
        return lily_fail(e, LILY_ARGUMENT, "run %llu is not the newest", (unsigned long long)ticket);
    *done = d->done;
    return LILY_OK;
}

int cpu_peek(lily_dev *d, lily_exec *x, unsigned slot, void *dst, size_t room, lily_err *e)
{
    (void)d;
    if (slot >= N_SLOTS || x->plan->slot_at[slot] == LILY_NO_PLACE)
        return lily_fail(e, LILY_ARGUMENT, "the plan does not keep slot %s", lily_slot_name(slot));
    size_t bytes = 4 * (size_t)lily_slot_elements(slot, x->weights->model->config, x->tokens);
    if (bytes > room) return lily_fail(e, LILY_ARGUMENT, "slot %s has %zu bytes, not %zu", lily_slot_name(slot), bytes, room);
    memcpy(dst, x->scratch + x->plan->slot_at[slot], bytes);
    return LILY_OK;
}
