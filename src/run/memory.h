/* memory.h - will it fit?  Planned bytes against what the system or the user allows. */
#ifndef LILY_RUN_MEMORY_H
#define LILY_RUN_MEMORY_H

#include "run/engine.h"

/* Bytes of memory of the machine (or of the control group it gives us, if that is less), and those that could be
 * had now without swapping; 0: unknown. */
void lily_system_memory(uint64_t *total, uint64_t *available);

/* LILY_NO_MEMORY with a sentence of figures when the plan does not fit.  A limit is compared with the whole plan.
 * Without one there are two rules: the whole plan must fit into the machine's memory, since weights that do
 * not stay there would be read from the disk for every token; and what must be allocated, all but the mapped
 * weights, which the page cache may drop, must fit into what is available now. */
int lily_memory_fits(const lily_memory *m, uint64_t limit, uint32_t context, lily_err *e);

/* The same for a device with memory of its own, where weights, states and scratch go: all that is planned must be free
 * there (0: unknown). */
int lily_device_memory_fits(const lily_memory *m, uint64_t available, uint64_t limit, uint32_t context, lily_err *e);

#endif
