/* pool.h - a fixed set of threads for work of microseconds.
 *
 * A decoded token is some hundreds of short stages, so workers spin for a while after each and only then
 * sleep.  One thread at a time may call lily_pool_for; it works along as thread 0. */
#ifndef LILY_DEVICE_CPU_POOL_H
#define LILY_DEVICE_CPU_POOL_H

#include <stdint.h>

#include "base/err.h"

typedef struct lily_pool lily_pool;

/* Items begin … end of a parallel loop; `thread` is below lily_pool_threads and tells scratch apart. */
typedef void lily_pool_fn(void *context, uint32_t begin, uint32_t end, unsigned thread);

/* threads 0: one for each physical core that this process may run on. */
int lily_pool_open(lily_pool **out, unsigned threads, lily_err *e);
void lily_pool_close(lily_pool *p);    /* NULL is allowed */
unsigned lily_pool_threads(const lily_pool *p);

/* Runs fn over items 0 … n in pieces of `grain` items (the last may be shorter), taken by whichever thread
 * is free; returns when all are done.  What one call wrote, the next sees. */
void lily_pool_for(lily_pool *p, uint32_t n, uint32_t grain, lily_pool_fn *fn, void *context);

/* Bytes of memory in all and not in use (the cache of files counts as free); 0: unknown. */
void lily_cpu_memory(uint64_t *total, uint64_t *available);

/* Physical cores in this process's affinity mask and CPU quota; at least 1. */
unsigned lily_physical_cores(void);

#endif
