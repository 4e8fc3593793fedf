/* weights.h - the model as a device on the host wants it: the tensors stay where the checkpoint is mapped, and a
 * few numbers stand beside them. */
#ifndef LILY_DEVICE_HOST_WEIGHTS_H
#define LILY_DEVICE_HOST_WEIGHTS_H

#include "device/dev.h"

struct lily_weights {
    const lily_model *model;
    uint16_t *nth;              /* [L] a layer's number among those of its kind */
    uint32_t n_delta, n_attention;
    double *frequency;          /* [R/2] rope_theta^(-2i/R) */
};

/* As in lily_dev_ops; the device is not looked at. */
int lily_weights_load(lily_dev *, const lily_model *, lily_weights **, lily_err *);
void lily_weights_unload(lily_dev *, lily_weights *);
uint64_t lily_weights_load_bytes(const lily_model *);

#endif
