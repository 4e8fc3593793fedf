/* prove.h - each row of a device once against ref, before plans are made of them.
 *
 * Two models of two layers, one of each kind, are cut out of the checkpoint's own bytes: one with the sizes of the model
 * but few experts and words, for one token; one with small sizes too, where ref can afford a prompt.  A row whose slots
 * differ from ref's by more than it declares (lily_row.tolerance; its states by more than 2 %) or that fails to run is
 * left out with one line in the log, and what is planned instead is proved next. */
#ifndef LILY_RUN_PROVE_H
#define LILY_RUN_PROVE_H

#include "device/dev.h"

typedef struct lily_prove_ask {
    uint32_t chunk, context;    /* as the plans to come have them */
    uint64_t ablated;
} lily_prove_ask;

/* Adds to `refused` (lily_plan_device).  LILY_UNSUPPORTED when a step is left without a row. */
int lily_prove(const lily_dev_ops *ops, lily_dev *dev, const lily_model *model, const lily_prove_ask *ask,
               uint64_t refused[LILY_MAX_ROWS / 64], lily_err *e);

#endif
