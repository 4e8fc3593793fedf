#include "device/host/run.h"

#include <string.h>

#include "base/mem.h"

/* ---- scratch ---- */

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

int lily_scratch_open(lily_scratch *s, const lily_plan *plan, const lily_config *config, lily_err *e)
{
    *s = (lily_scratch){.plan = plan, .config = config};
    TRY(check_places(plan, e));
    s->memory = lily_calloc_aligned(plan->scratch_bytes, 64);
    return s->memory ? LILY_OK : lily_no_memory(e, plan->scratch_bytes, "a plan's scratch memory");
}

void lily_scratch_close(lily_scratch *s)
{
    lily_free_aligned(s->memory);
}

size_t lily_scratch_used(const lily_scratch *s, unsigned slot)
{
    return 4 * (size_t)lily_slot_elements(slot, s->config, s->tokens);
}

static int check_slot(const lily_scratch *s, unsigned slot, lily_err *e)
{
    if (slot < N_SLOTS && s->plan->slot_at[slot] != LILY_NO_PLACE) return LILY_OK;
    return lily_fail(e, LILY_ARGUMENT, "the plan does not keep slot %s", lily_slot_name(slot));
}

int lily_scratch_poke(const lily_scratch *s, unsigned slot, const void *src, size_t bytes, lily_err *e)
{
    TRY(check_slot(s, slot, e));
    if (bytes != lily_scratch_used(s, slot))
        return lily_fail(e, LILY_ARGUMENT, "slot %s has %zu bytes, not %zu", lily_slot_name(slot), lily_scratch_used(s, slot),
                         bytes);
    memcpy(s->memory + s->plan->slot_at[slot], src, bytes);
    return LILY_OK;
}

int lily_scratch_peek(const lily_scratch *s, unsigned slot, void *dst, size_t room, lily_err *e)
{
    TRY(check_slot(s, slot, e));
    size_t bytes = lily_scratch_used(s, slot);
    if (bytes > room)
        return lily_fail(e, LILY_ARGUMENT, "slot %s has %zu bytes, not %zu", lily_slot_name(slot), bytes,
                         room);
    memcpy(dst, s->memory + s->plan->slot_at[slot], bytes);
    return LILY_OK;
}

/* ---- what is asked of a lane ---- */

static int check_marks(const lily_lane *lane, lily_err *e)
{
    for (uint32_t i = 0; i < lane->n_marks; i++)
        if (lane->mark[i] < 1 || lane->mark[i] > lane->n_tokens || (i && lane->mark[i] <= lane->mark[i - 1]))
            return lily_fail(e, LILY_ARGUMENT, "mark %u (after %u of %u tokens) is out of order", i,
                             lane->mark[i], lane->n_tokens);
    return LILY_OK;
}

static int check_tokens(const lily_run *r, lily_err *e)
{
    for (uint32_t t = 0; t < r->tokens; t++)
        if (run_token(r, t) < 0 || (uint32_t)run_token(r, t) >= r->config->vocab)
            return lily_fail(e, LILY_ARGUMENT, "token %d is not one of the model's %u", run_token(r, t),
                             r->config->vocab);
    return LILY_OK;
}

/* Room for the tokens, in the plan and in the state. */
static int check_room(const lily_run *r, lily_err *e)
{
    uint64_t most = r->plan->max_context < r->state->capacity ? r->plan->max_context : r->state->capacity;
    if ((uint64_t)r->first + r->tokens > most)
        return lily_fail(e, LILY_CONTEXT, "%u tokens after %u are more than the %u that there is room for",
                         r->tokens, r->first, (uint32_t)most);
    return LILY_OK;
}

static int check_lane(const lily_run *r, enum lily_segment first, lily_err *e)
{
    const lily_lane *lane = r->lane;
    const uint32_t most = r->plan->max_tokens, vocab = r->config->vocab;
    if (lane->n_tokens < 1 || lane->n_tokens > most || (!lane->tokens && lane->n_tokens != 1))
        return lily_fail(e, LILY_ARGUMENT, "%u tokens in a run of at most %u", lane->n_tokens, most);
    if (lane->pick && (lane->pick->n_vocab < 1 || (uint32_t)lane->pick->n_vocab > vocab))
        return lily_fail(e, LILY_ARGUMENT, "%d of %u tokens cannot be chosen from", lane->pick->n_vocab,
                         vocab);
    if (first != LILY_FORWARD) return LILY_OK;
    TRY(check_room(r, e));
    TRY(check_tokens(r, e));
    return check_marks(lane, e);
}

int lily_run_open(lily_run *r, const lily_weights *w, lily_scratch *scratch, enum lily_segment first,
                  const lily_lane *lane, uint32_t n_lanes, lily_newest *newest, lily_err *e)
{
    if (n_lanes != 1)
        return lily_fail(e, LILY_UNSUPPORTED, "the device runs one session at a time, not %u", n_lanes);
    r->weights = w;
    r->model = w->model;
    r->config = w->model->config;
    r->plan = scratch->plan;
    r->memory = scratch->memory;
    r->state = lane->state;
    r->lane = lane;
    r->tokens = lane->n_tokens;
    r->first = lane->state->position;
    r->done = &newest->done;
    TRY(check_lane(r, first, e));
    scratch->tokens = lane->n_tokens;
    newest->done = (lily_done){.token = -1};
    return LILY_OK;
}

/* ---- the walk ---- */

static bool cancelled(const lily_lane *lane)
{
    return lane->cancel && atomic_load_explicit(lane->cancel, memory_order_relaxed);
}

static int run_stages(lily_run *r, uint32_t begin, uint32_t end, lily_stage_fn *perform, lily_err *e)
{
    for (uint32_t i = begin; i < end; i++) {
        if (cancelled(r->lane)) {
            r->done->cancelled = true;
            return LILY_OK;
        }
        r->stage = &r->plan->stages[i];
        TRY(perform(r, i, e));
    }
    return LILY_OK;
}

/* LILY_FORWARD: the tokens become part of the state, or the state goes back to where it can. */
static int run_forward(lily_run *r, lily_stage_fn *perform, lily_err *e)
{
    const uint32_t n_marks = r->lane->n_marks;
    TRY(lily_state_marks_new(r->state, r->lane, &r->mark, e));
    int rc = run_stages(r, 0, r->plan->segment_end[LILY_FORWARD], perform, e);
    if (rc != LILY_OK || r->done->cancelled) {
        lily_state_marks_free(r->mark, n_marks);
        lily_state_recover(r->state);
        return rc;
    }
    lily_state_marks_keep(r->state, r->mark, n_marks);
    r->state->position = r->first + r->tokens;
    return LILY_OK;
}

/* The segments after LILY_FORWARD change nothing that a state could not be in. */
int lily_run_walk(lily_run *r, enum lily_segment first, enum lily_segment last, lily_stage_fn *perform,
                  lily_err *e)
{
    const lily_plan *p = r->plan;
    if (first == LILY_FORWARD) TRY(run_forward(r, perform, e));
    if (last == LILY_FORWARD || r->done->cancelled) return LILY_OK;
    uint32_t begin = p->segment_end[first > LILY_FORWARD ? first - 1 : LILY_FORWARD];
    TRY(run_stages(r, begin, p->segment_end[last], perform, e));
    r->done->logits = run_slot(r, SLOT_LOGITS);
    return LILY_OK;
}

int lily_run_wait(const lily_newest *newest, uint64_t ticket, lily_done *done, uint32_t n_lanes, lily_err *e)
{
    if (ticket != newest->ticket || n_lanes != 1)
        return lily_fail(e, LILY_ARGUMENT, "run %llu is not the newest", (unsigned long long)ticket);
    *done = newest->done;
    return LILY_OK;
}
