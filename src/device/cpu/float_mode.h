/* float_mode.h - subnormal numbers count as zero while kernels run.  A state that decays and softmax weights
 * far from the maximum end there, and x86 takes a hundred cycles for each one. */
#ifndef LILY_DEVICE_CPU_FLOAT_MODE_H
#define LILY_DEVICE_CPU_FLOAT_MODE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* For the calling thread; returns what lily_float_restore wants. */
static inline uint64_t lily_float_flush(void)
{
#if defined(__x86_64__)
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u);    /* flush to zero, denormals are zero */
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | 1ull << 24));
    return before;
#else
    return 0;
#endif
}

static inline void lily_float_restore(uint64_t before)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
    (void)before;
#endif
}

#endif
