/* kernels_check.h - what the kernel tests share: random data, and every table that runs here. */
#ifndef LILY_TESTS_KERNELS_CHECK_H
#define LILY_TESTS_KERNELS_CHECK_H

#include "../check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "device/cpu/kernels/kernels.h"

/* Uniform in [-1, 1). */
static inline float random_float(uint64_t seed, uint64_t i) { return (float)(2 * lily_uniform(seed, i) - 1); }

static inline float *random_floats(size_t n, uint64_t seed)
{
    float *x = lily_calloc_aligned(n * sizeof *x + 32, 64);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = random_float(seed, i);
    return x;
}

/* BODY once for each table k of this machine. */
#define FOR_TABLES(k)                                                                                        \
    size_t n_tables_;                                                                                        \
    const lily_cpu_kernels *const *tables_ = lily_cpu_tables(&n_tables_), *k;                                \
    for (size_t i_ = 0; i_ < n_tables_ && (k = tables_[i_], 1); i_++)                                        \
        if (k->runs_here())

static inline void check_near(double got, double want, double tolerance, const char *what)
{
    if (!(fabs(got - want) <= tolerance)) fail_msg("%s: %.9g, wanted %.9g within %.1g", what, got, want, tolerance);
}

#endif
