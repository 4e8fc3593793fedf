/* rig.h - a checkpoint opened on a device with one plan for prompts and one for decoding, and the reference's
 * numbers to compare with.  Failures are cmocka failures. */
#ifndef LILY_TESTS_DEVICE_RIG_H
#define LILY_TESTS_DEVICE_RIG_H

#include "../check.h"

#include "base/json.h"
#include "device/dev.h"

/* ---- the model ---- */

typedef struct rig_model {
    lily_ckpt *ckpt;
    lily_model_config *config;
    lily_model *model;
} rig_model;

void rig_model_open(rig_model *m, const char *dir);
void rig_model_close(rig_model *m);
/* "tiny", "odd" (made while building) or "demo". */
const char *rig_dir(const char *name);

/* ---- the device ---- */

typedef struct rig {
    const lily_model *model;
    const lily_config *c;
    const lily_dev_ops *ops;
    lily_dev *dev;
    lily_weights *weights;
    lily_plan *prefill_plan, *decode_plan;
    lily_exec *prefill, *decode;
} rig;

enum { RIG_CONTEXT = 4096 };

/* device: as lily_device_open has it.  keep: slots for peek.  max_tokens: of a prompt's run. */
void rig_open(rig *r, const lily_model *m, const char *device, uint32_t max_tokens, uint64_t keep);
void rig_close(rig *r);
/* An empty state with room for RIG_CONTEXT tokens; freed by r->ops->state_free. */
lily_state *rig_state(const rig *r);

extern const lily_pick rig_greedy_pick;        /* n_vocab is to be set */
/* Feeds tokens in runs of `chunk` (0: one by one with the plan for decoding), the last one up to a greedy
 * choice.  Logits are in the result. */
lily_done rig_feed(const rig *r, lily_state *s, const int32_t *tokens, uint32_t n, uint32_t chunk);
/* One run of any form. */
lily_done rig_run(const rig *r, lily_exec *x, enum lily_segment last, const lily_lane *lane);

/* All that a state holds, as floats: tails, recurrent states, keys and values; *n of them, freed by free. */
float *rig_memory(const rig *r, const lily_state *s, size_t *n);

/* ---- the reference's numbers ---- */

typedef struct rig_numbers {
    json_t *doc;                /* tests/fixtures/NAME/model.json */
    float *data;
    size_t n;
} rig_numbers;

void rig_numbers_open(rig_numbers *f, const char *name);
void rig_numbers_close(rig_numbers *f);
const float *rig_array(const rig_numbers *f, const char *name, size_t *n);
/* A JSON list of integers: {n, list in out} */
size_t rig_ints(const json_t *list, int32_t *out, size_t room);

/* Largest |a - b|; infinite when one is not a number. */
double rig_difference(const float *a, const float *b, size_t n);

#endif
