/* numpy_random.h - numpy.random.Generator(SFC64([key…])), bit for bit, so that a checkpoint written here has
 * the bytes of one written with NumPy.
 *   SFC64: C. Doty-Humphrey, PractRand.  Seeding: M. E. O'Neill, "Developing a seed_seq alternative" (2015),
 *   as numpy.random.SeedSequence does it.  Normal variates: Marsaglia and Tsang, "The ziggurat method for
 *   generating random variables" (2000), 256 layers, 23 bits. */
#ifndef LILY_TOOLS_NUMPY_RANDOM_H
#define LILY_TOOLS_NUMPY_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct np_random {
    uint64_t a, b, c, counter;
    uint32_t spare;             /* the upper half of a 64-bit draw, kept for the next 32-bit one */
    int has_spare;
} np_random;

enum { NP_MAX_KEYS = 4 };

void np_seed(np_random *r, const uint32_t *keys, size_t n);     /* n at most NP_MAX_KEYS */

uint64_t np_u64(np_random *r);
uint32_t np_u32(np_random *r);
double np_double(np_random *r);                                 /* [0, 1), 53 bits */
/* low + (high - low) * np_double, as Generator.uniform */
double np_uniform(np_random *r, double low, double high);

/* Layers of the float32 ziggurat. */
typedef struct np_ziggurat {
    uint32_t k[256];
    float w[256], f[256];
} np_ziggurat;

void np_ziggurat_init(np_ziggurat *z);
/* One value of standard_normal(dtype=float32). */
float np_normal(np_random *r, const np_ziggurat *z);

#endif
