/* delta.h - Gated DeltaNet: the convolution and the recurrence.
 *
 * The recurrence goes over value rows outside and tokens inside, so that a few rows of the state stay in
 * the first cache for a whole chunk and the state is read and written once ("register-scan").  With
 * r = S k and o = S q before the update, the new output is g (S q) + d (k . q): one pass over the row gives both. */
#ifndef LILY_DEVICE_CPU_DELTA_H
#define LILY_DEVICE_CPU_DELTA_H

#include "device/cpu/kernels/kernels.h"
#include "device/cpu/kernels/vec.h"

#define DELTA_ROWS 4

/* nr rows (constant) of dk values through all tokens. */
UNROLLED void delta_rows(const lily_cpu_delta *d, uint32_t row, int nr, uint32_t dk)
{
    float *s = d->state + (size_t)row * dk;
    uint32_t whole = dk & ~7u, left = dk - whole;
    for (uint32_t t = 0; t < d->tokens; t++) {
        const float *q = d->q + t * d->q_stride, *k = d->k + t * d->k_stride, *v = d->v + t * d->v_stride + row;
        float g = d->decay[t * d->gate_stride], beta = d->beta[t * d->gate_stride];
        v8 sk[DELTA_ROWS], sq[DELTA_ROWS], change[DELTA_ROWS], decay = v8_set1(g);
        for (int r = 0; r < nr; r++) sk[r] = sq[r] = v8_set1(0.0f);
        for (uint32_t c = 0; c < whole; c += 8) {
            v8 kc = v8_load(k + c), qc = v8_load(q + c);
            for (int r = 0; r < nr; r++) {
                if (t == 0 && c % 16 == 0) PREFETCH(s + (size_t)(nr + r) * dk + c);
                v8 sc = v8_load(s + (size_t)r * dk + c);
                sk[r] = v8_fma(sc, kc, sk[r]);
                sq[r] = v8_fma(sc, qc, sq[r]);
            }
        }
        if (left)
            for (int r = 0; r < nr; r++) {
                v8 sc = v8_load_part(s + (size_t)r * dk + whole, left);
                sk[r] = v8_fma(sc, v8_load_part(k + whole, left), sk[r]);
                sq[r] = v8_fma(sc, v8_load_part(q + whole, left), sq[r]);
            }
        for (int r = 0; r < nr; r++) {
            float delta = beta * (v[r] - g * v8_hsum(sk[r]));
            change[r] = v8_set1(delta);
            d->out[t * d->out_stride + row + (size_t)r] = g * v8_hsum(sq[r]) + delta * d->kq[t];
        }
        for (uint32_t c = 0; c < whole; c += 8) {
            v8 kc = v8_load(k + c);
            for (int r = 0; r < nr; r++) {
                float *sc = s + (size_t)r * dk + c;
                v8_store(sc, v8_fma(change[r], kc, v8_load(sc) * decay));
            }
        }
        if (left)
            for (int r = 0; r < nr; r++) {
                float *sc = s + (size_t)r * dk + whole;
                v8_store_part(sc, v8_fma(change[r], v8_load_part(k + whole, left), v8_load_part(sc, left) * decay),
                              left);
            }
    }
}

static void delta_rule(const lily_cpu_delta *d, uint32_t v0, uint32_t v1)
{
    uint32_t row = v0;
    if (d->dk == 128)
        for (; row + DELTA_ROWS <= v1; row += DELTA_ROWS) delta_rows(d, row, DELTA_ROWS, 128);
    for (; row + DELTA_ROWS <= v1; row += DELTA_ROWS) delta_rows(d, row, DELTA_ROWS, d->dk);
    for (; row < v1; row++) delta_rows(d, row, 1, d->dk);
}

#define CONV_CHANNELS 64u

/* n <= 64 channels from c; taps [taps][64] f32, zero beyond n. */
static void conv_channels(const float *u, const float *tail, const float *taps, uint32_t n_taps, uint32_t channels,
                          uint32_t c, uint32_t n, uint32_t tokens, float *y, size_t y_stride)
{
    uint32_t before = n_taps - 1;
    for (uint32_t t = 0; t < tokens; t++)
        for (uint32_t i = 0; i < n; i += 8) {
            v8 sum = {0};
            uint32_t here = n - i < 8 ? n - i : 8;
            for (uint32_t j = 0; j < n_taps; j++) {
                const float *in = t + j < before ? tail + (size_t)(t + j) * channels
                                                 : u + (size_t)(t + j - before) * channels;
                in += c + i;
                v8 x = here == 8 ? v8_load(in) : v8_load_part(in, here);
                sum = v8_fma(v8_load(taps + j * CONV_CHANNELS + i), x, sum);
            }
            v8_store_part(y + t * y_stride + i, v8_silu(sum), here);
        }
}

#define CONV_MAX_TAPS 8u       /* the configuration allows no more */

static void conv_silu(const float *u, const float *tail, const float *weight, uint32_t n_taps, uint32_t channels,
                      uint32_t c0, uint32_t c1, uint32_t tokens, float *y, size_t y_stride)
{
    float taps[CONV_MAX_TAPS * CONV_CHANNELS];
    for (uint32_t c = c0; c < c1; c += CONV_CHANNELS) {
        uint32_t n = c1 - c < CONV_CHANNELS ? c1 - c : CONV_CHANNELS;
        memset(taps, 0, sizeof taps);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; j < n_taps; j++)
                taps[j * CONV_CHANNELS + i] = weight[(size_t)(c + i) * n_taps + j];
        conv_channels(u, tail, taps, n_taps, channels, c, n, tokens, y + (c - c0), y_stride);
    }
}

#endif
