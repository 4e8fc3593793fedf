/* time.h - how long a piece of work takes, against how fast this machine reads memory just then. */
#ifndef LILY_BENCH_TIME_H
#define LILY_BENCH_TIME_H

#include <stddef.h>

#include "device/cpu/pool.h"

/* Nanoseconds: of the wall, or with a pool of one thread of that thread's own CPU time, which another
 * process on the same core does not stretch. */
uint64_t bench_now(const lily_pool *pool);

/* Reads `bytes` with all threads of the pool and returns bytes a second. */
double read_rate(lily_pool *pool, const void *data, size_t bytes);

/* The median of n values, which are sorted. */
double median(double *values, unsigned n);

#endif
