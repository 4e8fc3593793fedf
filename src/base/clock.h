/* clock.h - monotonic time. */
#ifndef LILY_BASE_CLOCK_H
#define LILY_BASE_CLOCK_H

#include <stdint.h>

uint64_t lily_now_ns(void);    /* nanoseconds since some fixed moment */
static inline double lily_seconds_since(uint64_t start_ns) { return (double)(lily_now_ns() - start_ns) * 1e-9; }

#endif
