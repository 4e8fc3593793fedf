/* elementwise.h - norms, activations and what else runs along one vector of any length. */
#ifndef LILY_DEVICE_CPU_ELEMENTWISE_H
#define LILY_DEVICE_CPU_ELEMENTWISE_H

#include <math.h>

#include "device/cpu/kernels/vec.h"

/* Runs BODY with v8 loads of the named inputs at i; the rest past the last eight goes through the same code
 * with the missing lanes 0. */
#define FOR_LANES(n, whole, part)                                                                            \
    do {                                                                                                     \
        uint32_t i = 0;                                                                                      \
        for (; i + 8 <= (n); i += 8) whole;                                                                  \
        uint32_t left = (n)-i;                                                                               \
        if (left) part;                                                                                      \
    } while (0)

static float dot(const float *a, const float *b, uint32_t n)
{
    v8 s0 = {0}, s1 = {0};
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        s0 = v8_fma(v8_load(a + i), v8_load(b + i), s0);
        s1 = v8_fma(v8_load(a + i + 8), v8_load(b + i + 8), s1);
    }
    for (; i + 8 <= n; i += 8) s0 = v8_fma(v8_load(a + i), v8_load(b + i), s0);
    if (i < n) s1 = v8_fma(v8_load_part(a + i, n - i), v8_load_part(b + i, n - i), s1);
    return v8_hsum(s0 + s1);
}

static void rmsnorm(const float *x, const float *weight, uint32_t n, float eps, float *out)
{
    v8 scale = v8_set1(1.0f / sqrtf(dot(x, x, n) / (float)n + eps));
    FOR_LANES(n, v8_store(out + i, v8_load(x + i) * scale * v8_load(weight + i)),
              v8_store_part(out + i, v8_load_part(x + i, left) * scale * v8_load_part(weight + i, left),
                            left));
}

static void gated_rmsnorm(const float *x, const float *weight, const float *z, uint32_t n, float eps, float *out)
{
    v8 scale = v8_set1(1.0f / sqrtf(dot(x, x, n) / (float)n + eps));
    FOR_LANES(n,
              v8_store(out + i, v8_load(x + i) * scale * v8_load(weight + i) * v8_silu(v8_load(z + i))),
              v8_store_part(out + i,
                            v8_load_part(x + i, left) * scale * v8_load_part(weight + i, left) *
                                v8_silu(v8_load_part(z + i, left)),
                            left));
}

static void l2norm(const float *x, uint32_t n, float eps, float scale, float *out)
{
    v8 s = v8_set1(scale / sqrtf(dot(x, x, n) + eps));
    FOR_LANES(n, v8_store(out + i, v8_load(x + i) * s), v8_store_part(out + i, v8_load_part(x + i, left) * s, left));
}

static void add(const float *a, const float *b, uint32_t n, float *out)
{
    FOR_LANES(n, v8_store(out + i, v8_load(a + i) + v8_load(b + i)),
              v8_store_part(out + i, v8_load_part(a + i, left) + v8_load_part(b + i, left), left));
}

static void axpy(float a, const float *x, uint32_t n, float *y)
{
    v8 s = v8_set1(a);
    FOR_LANES(n, v8_store(y + i, v8_fma(s, v8_load(x + i), v8_load(y + i))),
              v8_store_part(y + i, v8_fma(s, v8_load_part(x + i, left), v8_load_part(y + i, left)), left));
}

static void silu_mul(const float *gate, const float *up, uint32_t n, float *out)
{
    FOR_LANES(n, v8_store(out + i, v8_silu(v8_load(gate + i)) * v8_load(up + i)),
              v8_store_part(out + i, v8_silu(v8_load_part(gate + i, left)) * v8_load_part(up + i, left), left));
}

static void sigmoid_mul(const float *x, const float *gate, uint32_t n, float *out)
{
    FOR_LANES(n, v8_store(out + i, v8_load(x + i) * v8_sigmoid(v8_load(gate + i))),
              v8_store_part(out + i, v8_load_part(x + i, left) * v8_sigmoid(v8_load_part(gate + i, left)), left));
}

static void to_bf16(const float *x, uint32_t n, uint16_t *out)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        v8h h = v8_to_bf16(v8_load(x + i));
        memcpy(out + i, &h, sizeof h);
    }
    if (i < n) {
        v8h h = v8_to_bf16(v8_load_part(x + i, n - i));
        memcpy(out + i, &h, (n - i) * sizeof(uint16_t));
    }
}

static void rope(float *x, const float *cosine, const float *sine, uint32_t half)
{
    for (uint32_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = a * cosine[i] - b * sine[i];
        x[i + half] = b * cosine[i] + a * sine[i];
    }
}

#endif
