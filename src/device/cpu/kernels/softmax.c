/* softmax.c - starting a running softmax, and joining two of them. */
#include <math.h>
#include <string.h>

#include "device/cpu/kernels/kernels.h"

void lily_cpu_softmax_begin(lily_cpu_softmax *s, uint32_t nq, uint32_t head_dim)
{
    for (uint32_t i = 0; i < nq; i++) {
        s->max[i] = -INFINITY;
        s->sum[i] = 0;
    }
    memset(s->out, 0, nq * LILY_CPU_PAD8(head_dim) * sizeof(float));
}

void lily_cpu_softmax_merge(lily_cpu_softmax *a, const lily_cpu_softmax *b, uint32_t nq, uint32_t head_dim)
{
    size_t wide = LILY_CPU_PAD8(head_dim);
    for (uint32_t i = 0; i < nq; i++) {
        if (!(b->sum[i] > 0)) continue;    /* this query saw nothing of b's span */
        float top = a->max[i] > b->max[i] ? a->max[i] : b->max[i];
        float keep_a = expf(a->max[i] - top), keep_b = expf(b->max[i] - top);
        a->sum[i] = a->sum[i] * keep_a + b->sum[i] * keep_b;
        a->max[i] = top;
        float *out = a->out + i * wide;
        const float *more = b->out + i * wide;
        for (size_t d = 0; d < wide; d++) out[d] = out[d] * keep_a + more[d] * keep_b;
    }
}
