/* choose.h - the router's experts, the head's best token. */
#ifndef LILY_DEVICE_CPU_CHOOSE_H
#define LILY_DEVICE_CPU_CHOOSE_H

#include <math.h>

#include "device/cpu/kernels/vec.h"

static float largest(const float *x, uint32_t n)
{
    v8 m = v8_set1(-INFINITY);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) m = v8_max(v8_load(x + i), m);
    float top = v8_hmax(m);
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

static uint32_t argmax(const float *x, uint32_t n)
{
    float top = largest(x, n);
    for (uint32_t i = 0; i < n; i++)
        if (x[i] == top) return i;
    return 0;
}

static float exp_sum(const float *x, uint32_t n, float top)
{
    v8 shift = v8_set1(top), sum = {0};
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) sum = sum + v8_exp(v8_load(x + i) - shift);
    float rest = 0;
    for (; i < n; i++) rest += expf(x[i] - top);
    return v8_hsum(sum) + rest;
}

/* One pass that keeps the k best in order: a candidate enters only if it beats the last of them, so the
 * first of equals stays. */
static void topk_softmax(const float *logits, uint32_t n, uint32_t k, uint32_t *ids, float *weights)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (held == k && !(logits[i] > weights[k - 1])) continue;
        uint32_t at = held < k ? held++ : k - 1;
        for (; at > 0 && logits[i] > weights[at - 1]; at--) {
            weights[at] = weights[at - 1];
            ids[at] = ids[at - 1];
        }
        weights[at] = logits[i];
        ids[at] = i;
    }
    float top = weights[0], sum = 0;
    for (uint32_t i = 0; i < held; i++) {
        weights[i] = expf(weights[i] - top);
        sum += weights[i];
    }
    for (uint32_t i = 0; i < held; i++) weights[i] /= sum;
}

#endif
