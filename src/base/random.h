/* random.h - counter-based random numbers: draw n of seed s is the same on every device.
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). */
#ifndef LILY_BASE_RANDOM_H
#define LILY_BASE_RANDOM_H

#include <stdint.h>

/* Four words of block `draw` of stream `seed`. */
void lily_philox(uint64_t seed, uint64_t draw, uint32_t out[4]);
/* Uniform in [0, 1), 53 bits. */
double lily_uniform(uint64_t seed, uint64_t draw);
/* An unpredictable 64-bit seed from the system. */
uint64_t lily_random_seed(void);

#endif
