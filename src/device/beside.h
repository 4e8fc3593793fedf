/* beside.h - a run of a device beside the same run of ref, stage by stage.
 *
 * ref runs first, each step a row of its own, and all that it writes is kept.  What a stage of the device writes is then
 * compared with what ref's steps of that stage left, and replaced by it: so a stage's difference is its own. */
#ifndef LILY_DEVICE_BESIDE_H
#define LILY_DEVICE_BESIDE_H

#include "device/dev.h"

typedef struct lily_beside {
    const lily_dev_ops *ops;
    lily_dev *dev, *ref;
    const lily_config *config;
    const lily_plan *plan, *ref_plan;   /* of exec and ref_exec */
    lily_exec *exec, *ref_exec;
    lily_state *state, *ref_state;
    uint64_t slots;             /* those to look at */
    /* Told of each of them: `off` as lily_beside_off has it, 0 or infinite for whole numbers. */
    void (*judge)(void *user, uint32_t stage, unsigned slot, double off);
    void *user;
    /* inside a run */
    struct lily_beside_value *value;    /* what ref wrote, in its order */
    size_t n_values, room_values;
    uint32_t tokens, next;      /* the stage to come; after a failure the one that failed */
    int rc;
    lily_err *e;
} lily_beside;

/* All that a plan may write and ref can show. */
uint64_t lily_beside_slots(void);
/* One run of `lane` on both, up to the choice of a token if it has a pick; its state is taken from *b. */
int lily_beside_run(lily_beside *b, const lily_lane *lane, lily_err *e);
/* Then what the runs left in the states, judged at the stage that writes it: off is ||a - b|| / ||b||. */
int lily_beside_states(lily_beside *b, lily_err *e);

/* Largest |a - b| over the rms of b, beyond what rounding to bf16 makes of a value. */
double lily_beside_off(const float *a, const float *b, size_t n);

#endif
