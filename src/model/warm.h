/* warm.h - weights brought from the disk into the page cache before the first prompt needs them. */
#ifndef LILY_MODEL_WARM_H
#define LILY_MODEL_WARM_H

#include <stdatomic.h>

#include "checkpoint/checkpoint.h"

/* Reads what is not in memory yet of the language model's tensors, in the order of the files, so that the disk is
 * read at its full rate; faults of a decode step come in the order of experts, which is a hundred times slower.
 * Vision and draft tensors are left alone.  `progress` (may be NULL) gets 0 … 1, at most a hundred times, and not
 * at all when everything was in memory.  LILY_CANCELLED soon after *cancel (may be NULL) was set. */
int lily_model_warm(const lily_ckpt *c, const atomic_bool *cancel, void (*progress)(void *user, double fraction),
                    void *user, lily_err *e);

#endif
