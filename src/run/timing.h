/* timing.h - what a measurement is asked to time. */
#ifndef LILY_RUN_TIMING_H
#define LILY_RUN_TIMING_H

#include <stdint.h>

typedef struct lily_timing {
    const uint32_t *lengths;    /* context lengths */
    uint32_t n_lengths;
    uint32_t decode_tokens;     /* a sample, from that context on */
    uint32_t samples;           /* of each length; of an ablation pairs of them */
} lily_timing;

#endif
