/* run.h - a run as devices on the host share it: a lane that was looked at walks through a plan's stages in order,
 * and its state moves on at the end or goes back.  What a stage does is each device's own. */
#ifndef LILY_DEVICE_HOST_RUN_H
#define LILY_DEVICE_HOST_RUN_H

#include "device/host/state.h"

/* A plan's scratch memory. */
typedef struct lily_scratch {
    const lily_plan *plan;
    const lily_config *config;
    uint8_t *memory;            /* plan->scratch_bytes, aligned to 64 */
    uint32_t tokens;            /* of the last run */
} lily_scratch;

/* LILY_INTERNAL when a slot that a stage touches has no place: kernels do not ask again. */
int lily_scratch_open(lily_scratch *s, const lily_plan *plan, const lily_config *config, lily_err *e);
void lily_scratch_close(lily_scratch *s);
/* Bytes of a slot that the last run used; four an element. */
size_t lily_scratch_used(const lily_scratch *s, unsigned slot);
/* As lily_dev_ops.peek. */
int lily_scratch_peek(const lily_scratch *s, unsigned slot, void *dst, size_t room, lily_err *e);
/* As lily_dev_ops.poke. */
int lily_scratch_poke(const lily_scratch *s, unsigned slot, const void *src, size_t bytes, lily_err *e);

/* The newest run's result, handed out by wait. */
typedef struct lily_newest {
    lily_done done;
    uint64_t ticket;
} lily_newest;

/* One lane on its way through a plan. */
typedef struct lily_run {
    lily_dev *dev;
    lily_exec *exec;
    const lily_weights *weights;
    const lily_model *model;
    const lily_config *config;
    const lily_plan *plan;
    uint8_t *memory;            /* of the plan's scratch */
    lily_state *state;
    const lily_lane *lane;
    lily_snapshot **mark;       /* [lane->n_marks] to be filled */
    uint32_t tokens;            /* T */
    uint32_t first;             /* position of the first token */
    const lily_stage *stage;    /* at hand */
    lily_done *done;
} lily_run;

/* Performs r->stage, number `index` of the plan. */
typedef int lily_stage_fn(lily_run *r, uint32_t index, lily_err *e);

/* Refuses lanes that lily_dev_ops.submit refuses, the state untouched; else *r is ready to walk, all but dev and
 * exec, and newest->done is empty. */
int lily_run_open(lily_run *r, const lily_weights *w, lily_scratch *scratch, enum lily_segment first,
                  const lily_lane *lane, uint32_t n_lanes, lily_newest *newest, lily_err *e);
/* Performs segments first … last and leaves the state as lily_dev_ops.submit says. */
int lily_run_walk(lily_run *r, enum lily_segment first, enum lily_segment last, lily_stage_fn *perform, lily_err *e);
/* As lily_dev_ops.wait. */
int lily_run_wait(const lily_newest *newest, uint64_t ticket, lily_done *done, uint32_t n_lanes, lily_err *e);

/* ---- what stages use ---- */

static inline float *run_slot(const lily_run *r, unsigned slot)
{
    return (float *)(void *)(r->memory + r->plan->slot_at[slot]);
}

static inline int32_t *run_ints(const lily_run *r, unsigned slot)
{
    return (int32_t *)(void *)(r->memory + r->plan->slot_at[slot]);
}

/* The row's own scratch. */
static inline void *run_workspace(const lily_run *r)
{
    return r->memory + r->plan->workspace_at[r->stage->row];
}

/* Token t of the run; in range, since lily_run_open looked. */
static inline int32_t run_token(const lily_run *r, uint32_t t)
{
    return r->lane->tokens ? r->lane->tokens[t] : r->state->next;
}

#endif
