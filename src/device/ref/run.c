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

/* Every slot that a stage touches has a place: kernels do not ask again. */
static int check_places(const lily_plan *p, lily_err *e)
{
    for (uint32_t i = 0; i < p->n_stages; i++)
        for (unsigned s = 0; s < N_SLOTS; s++) {
            enum lily_slot_kind kind = lily_slot_kind(s);
            bool placed = kind == SLOT_SCRATCH || kind == SLOT_OUTPUT;
            if (placed && ((p->stages[i].reads | p->stages[i].writes) & lily_bit(s)) &&
                p->slot_at[s] == LILY_NO_PLACE)
                return lily_fail(e, LILY_INTERNAL, "the plan has no place for slot %s of stage %u",
                                 lily_slot_name(s), i);
        }
    return LILY_OK;
}

int ref_prepare(lily_dev *d, const lily_weights *w, const lily_plan *plan, lily_exec **out, lily_err *e)
{
    *out = NULL;
    TRY(check_places(plan, e));
    lily_exec *x = lily_calloc(1, sizeof *x);
    if (!x) return lily_no_memory(e, sizeof *x, "a plan's scratch memory");
    const lily_config *c = w->model->config;
    size_t vectors = (size_t)plan->max_tokens * c->top_k;
    x->weights = w;
    x->plan = plan;
    x->scratch = lily_calloc_aligned(plan->scratch_bytes, 64);
    x->row = lily_calloc(widest_matrix(c), sizeof *x->row);
    x->in = lily_calloc(vectors, sizeof *x->in);
    x->out = lily_calloc(vectors, sizeof *x->out);
    if (x->scratch && x->row && x->in && x->out) {
        *out = x;
        return LILY_OK;
    }
    ref_release(d, x);
    return lily_no_memory(e, plan->scratch_bytes, "a plan's scratch memory");
}

void ref_release(lily_dev *d, lily_exec *x)
{
    (void)d;
    if (!x) return;
    lily_free_aligned(x->scratch);
    lily_free(x->row);
    lily_free(x->in);
    lily_free(x->out);
    lily_free(x);
}

/* Bytes of a slot that a run of this many tokens uses. */
static size_t used_bytes(const lily_exec *x, unsigned slot)
{
    return 4 * (size_t)lily_slot_elements(slot, x->weights->model->config, x->tokens);
}

/* Not-a-numbers that are no index either: what reads a dead slot is caught by the answer. */
static void poison(lily_exec *x, uint64_t slots)
{
    const uint32_t pattern = 0xffc0dead;
    for (unsigned s = 0; s < N_SLOTS; s++) {
        size_t n = slots & lily_bit(s) ? used_bytes(x, s) : 0;
        for (size_t i = 0; i < n; i += 4) memcpy(x->scratch + x->plan->slot_at[s] + i, &pattern, 4);
    }
}

static bool cancelled(const lily_lane *lane)
{
    return lane->cancel && atomic_load_explicit(lane->cancel, memory_order_relaxed);
}

static int run_stages(ref_run *r, uint32_t first, uint32_t end, lily_err *e)
{
    for (uint32_t i = first; i < end; i++) {
        const lily_stage *stage = &r->exec->plan->stages[i];
        if (cancelled(r->lane)) {
            r->done->cancelled = true;
            return LILY_OK;
        }
        r->row = stage->row;
        TRY(ref_run_row(r, stage->row, stage->layer, e));
        if (r->exec->watch) r->exec->watch(r->exec->watch_arg, r->exec, i);
        poison(r->exec, stage->dies);
    }
    return LILY_OK;
}

static int check_marks(const lily_lane *lane, lily_err *e)
{
    for (uint32_t i = 0; i < lane->n_marks; i++)
        if (lane->mark[i] < 1 || lane->mark[i] > lane->n_tokens || (i && lane->mark[i] <= lane->mark[i - 1]))
            return lily_fail(e, LILY_ARGUMENT, "mark %u (after %u of %u tokens) is out of order", i,
                             lane->mark[i], lane->n_tokens);
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
        return lily_fail(e, LILY_ARGUMENT, "%d of %u tokens cannot be chosen from", lane->pick->n_vocab,
                         vocab);
    if (first != LILY_FORWARD) return LILY_OK;
    uint32_t most = p->max_context < lane->state->capacity ? p->max_context : lane->state->capacity;
    if (lane->n_tokens > most || lane->state->position > most - lane->n_tokens)
        return lily_fail(e, LILY_CONTEXT, "%u tokens after %u are more than the %u that there is room for",
                         lane->n_tokens, lane->state->position, most);
    TRY(check_tokens(lane, vocab, e));
    return check_marks(lane, e);
}

/* LILY_FORWARD: the tokens become part of the state, or the state goes back to where it can. */
static int run_forward(ref_run *r, lily_err *e)
{
    const lily_lane *lane = r->lane;
    TRY(ref_snapshots_new(r->state, lane->n_marks, &r->mark, e));
    for (uint32_t i = 0; i < lane->n_marks; i++) r->mark[i]->position = r->first + lane->mark[i];
    int rc = run_stages(r, 0, r->exec->plan->segment_end[LILY_FORWARD], e);
    if (rc != LILY_OK || r->done->cancelled) {
        ref_snapshots_free(r->mark, lane->n_marks);
        ref_state_recover(r->state);
        return rc;
    }
    ref_snapshots_keep(r->state, r->mark, lane->n_marks);
    r->state->position = r->first + r->tokens;
    return LILY_OK;
}

/* The segments after LILY_FORWARD change nothing that a state could not be in. */
static int run_segments(ref_run *r, enum lily_segment first, enum lily_segment last, lily_err *e)
{
    const lily_plan *p = r->exec->plan;
    if (first == LILY_FORWARD) TRY(run_forward(r, e));
    if (last == LILY_FORWARD || r->done->cancelled) return LILY_OK;
    uint32_t begin = p->segment_end[first > LILY_FORWARD ? first - 1 : LILY_FORWARD];
    TRY(run_stages(r, begin, p->segment_end[last], e));
    r->done->logits = ref_slot(r, SLOT_LOGITS);
    return LILY_OK;
}

int ref_submit(lily_dev *d, lily_exec *x, enum lily_segment first, enum lily_segment last,
               const lily_lane *lane, uint32_t n_lanes, uint64_t *ticket, lily_err *e)
{
    uint64_t start = lily_now_ns();
    if (n_lanes != 1)
        return lily_fail(e, LILY_UNSUPPORTED, "ref runs one session at a time, not %u", n_lanes);
    TRY(check_lane(x, first, lane, e));
    d->done = (lily_done){.token = -1};
    ref_run r = {.exec = x,
                 .config = x->weights->model->config,
                 .model = x->weights->model,
                 .state = lane->state,
                 .lane = lane,
                 .tokens = lane->n_tokens,
                 .first = lane->state->position,
                 .done = &d->done};
    x->tokens = lane->n_tokens;
    TRY(run_segments(&r, first, last, e));
    d->done.device_ns = lily_now_ns() - start;
    *ticket = ++d->ticket;
    return LILY_OK;
}

int ref_wait(lily_dev *d, uint64_t ticket, lily_done *done, uint32_t n_lanes, lily_err *e)
{
    if (ticket != d->ticket || n_lanes != 1)
        return lily_fail(e, LILY_ARGUMENT, "run %llu is not the newest", (unsigned long long)ticket);
    *done = d->done;
    return LILY_OK;
}

int ref_peek(lily_dev *d, lily_exec *x, unsigned slot, void *dst, size_t room, lily_err *e)
{
    (void)d;
    if (slot >= N_SLOTS || x->plan->slot_at[slot] == LILY_NO_PLACE)
        return lily_fail(e, LILY_ARGUMENT, "the plan does not keep slot %s", lily_slot_name(slot));
    size_t bytes = used_bytes(x, slot);
    if (bytes > room)
        return lily_fail(e, LILY_ARGUMENT, "slot %s has %zu bytes, not %zu", lily_slot_name(slot), bytes,
                         room);
    memcpy(dst, x->scratch + x->plan->slot_at[slot], bytes);
    return LILY_OK;
}
