/* attention.h - softmax(q . k) v over one span of a K/V head, for all queries that share it ("gqa-pack").
 *
 * A tile of 32 positions is widened to f32 once and used by every query.  Tiles lie at fixed positions and
 * a masked position counts as weight 0, so a query's sums run in one order whatever else is computed. */
#ifndef LILY_DEVICE_CPU_ATTENTION_H
#define LILY_DEVICE_CPU_ATTENTION_H

#include <math.h>

#include "device/cpu/kernels/kernels.h"
#include "device/cpu/kernels/vec.h"

#define TILE LILY_CPU_KV_TILE

static size_t attn_scratch(uint32_t head_dim, uint32_t nq)
{
    return (TILE * LILY_CPU_PAD8(head_dim) + TILE * LILY_CPU_PAD8(nq)) * sizeof(float);
}

/* n rows of bf16 as f32 [TILE][wide], zero beyond dim and beyond n. */
static void attn_widen(const uint16_t *rows, size_t stride, uint32_t n, uint32_t dim, uint32_t wide, float *out)
{
    for (uint32_t p = 0; p < n; p++, rows += stride, out += wide) {
        const uint16_t *next_tile = rows + TILE * stride;
        uint32_t d = 0;
        for (; d + 8 <= dim; d += 8) {
            if (d % 32 == 0) PREFETCH(next_tile + d);
            v8_store(out + d, v8_load_bf16(rows + d));
        }
        if (d < dim) v8_store(out + d, v8_load_bf16_part(rows + d, dim - d));
    }
    memset(out, 0, (size_t)(TILE - n) * wide * sizeof(float));
}

/* nq queries (constant) times two positions. */
UNROLLED void attn_scores_tile(const float *q, int nq, const float *k, uint32_t wide, float *scores)
{
    v8 acc[4][2];
    for (int i = 0; i < nq; i++) acc[i][0] = acc[i][1] = v8_set1(0.0f);
    for (uint32_t d = 0; d < wide; d += 8) {
        v8 k0 = v8_load(k + d), k1 = v8_load(k + wide + d);
        for (int i = 0; i < nq; i++) {
            v8 x = v8_load(q + (size_t)i * wide + d);
            acc[i][0] = v8_fma(x, k0, acc[i][0]);
            acc[i][1] = v8_fma(x, k1, acc[i][1]);
        }
    }
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < 2; j++) scores[i * TILE + j] = v8_hsum(acc[i][j]);
}

static void attn_scores(const float *q, uint32_t nq, const float *k, uint32_t n, uint32_t wide, float *scores)
{
    for (uint32_t i = 0; i < nq;) {
        int here = nq - i >= 4 ? 4 : 1;
        for (uint32_t p = 0; p < n; p += 2)
            if (here == 4)
                attn_scores_tile(q + (size_t)i * wide, 4, k + (size_t)p * wide, wide, scores + i * TILE + p);
            else
                attn_scores_tile(q + (size_t)i * wide, 1, k + (size_t)p * wide, wide, scores + i * TILE + p);
        i += (uint32_t)here;
    }
}

/* Scores of one query become weights; the running maximum and sum advance.  Returns what the older output
 * is to be multiplied by. */
static float attn_weigh(float *scores, uint32_t limit, float *max, float *sum)
{
    for (uint32_t p = limit; p < TILE; p++) scores[p] = -INFINITY;
    v8 m = v8_load(scores);
    for (uint32_t p = 8; p < TILE; p += 8) m = v8_max(v8_load(scores + p), m);
    float top = v8_hmax(m);
    top = top > *max ? top : *max;
    v8 total = {0}, shift = v8_set1(top);
    for (uint32_t p = 0; p < TILE; p += 8) {
        v8 w = v8_exp(v8_load(scores + p) - shift);
        v8_store(scores + p, w);
        total = total + w;
    }
    float keep = *max == top ? 1.0f : expf(*max - top);
    *sum = *sum * keep + v8_hsum(total);
    *max = top;
    return keep;
}

/* out[i] = keep[i] out[i] + weights[i] . V for nq queries (constant), two vectors of columns at a time. */
UNROLLED void attn_values_tile(const float *weights, int nq, const float *keep, const float *v, uint32_t n,
                               uint32_t wide, uint32_t d, int nd, float *out)
{
    v8 acc[4][2];
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nd; j++)
            acc[i][j] = v8_load(out + (size_t)i * wide + d + 8 * (uint32_t)j) * v8_set1(keep[i]);
    for (uint32_t p = 0; p < n; p++)
        for (int j = 0; j < nd; j++) {
            v8 x = v8_load(v + (size_t)p * wide + d + 8 * (uint32_t)j);
            for (int i = 0; i < nq; i++) acc[i][j] = v8_fma(v8_set1(weights[i * TILE + p]), x, acc[i][j]);
        }
    for (int i = 0; i < nq; i++)
        for (int j = 0; j < nd; j++) v8_store(out + (size_t)i * wide + d + 8 * (uint32_t)j, acc[i][j]);
}

static void attn_values(const float *weights, int nq, const float *keep, const float *v, uint32_t n, uint32_t wide,
                        float *out)
{
    uint32_t d = 0;
    for (; d + 16 <= wide; d += 16)
        if (nq == 4)
            attn_values_tile(weights, 4, keep, v, n, wide, d, 2, out);
        else
            attn_values_tile(weights, 1, keep, v, n, wide, d, 2, out);
    if (d < wide) {
        if (nq == 4)
            attn_values_tile(weights, 4, keep, v, n, wide, d, 1, out);
        else
            attn_values_tile(weights, 1, keep, v, n, wide, d, 1, out);
    }
}

static void attn_span(const lily_cpu_span *s, const float *q, const uint32_t *limit, uint32_t nq, uint32_t head_dim,
                      lily_cpu_softmax *state, void *scratch)
{
    uint32_t wide = (uint32_t)LILY_CPU_PAD8(head_dim);
    float *tile = scratch, *scores = tile + (size_t)TILE * wide;
    for (uint32_t p = 0; p < s->n; p += TILE) {
        uint32_t n = s->n - p < TILE ? s->n - p : TILE, first = 0;
        /* Queries come in order of position: those that see nothing of this tile are at the front. */
        while (first < nq && limit[first] <= p) first++;
        if (first == nq) return;
        uint32_t count = nq - first;
        attn_widen(s->k + p * s->row_stride, s->row_stride, n, head_dim, wide, tile);
        attn_scores(q + (size_t)first * wide, count, tile, n, wide, scores);
        attn_widen(s->v + p * s->row_stride, s->row_stride, n, head_dim, wide, tile);
        for (uint32_t i = 0; i < count;) {
            uint32_t here = count - i >= 4 ? 4 : 1;
            float keep[4];
            for (uint32_t j = 0; j < here; j++) {
                uint32_t at = first + i + j, sees = limit[at] - p;
                keep[j] = attn_weigh(scores + (i + j) * TILE, sees < n ? sees : n, state->max + at, state->sum + at);
            }
            attn_values(scores + i * TILE, (int)here, keep, tile, n, wide, state->out + (size_t)(first + i) * wide);
            i += here;
        }
    }
}

#undef TILE
#endif
