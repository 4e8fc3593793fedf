/* matmul.h - products in f32: a tile of rows is dequantised once and used for every token.
 *
 * 4-bit rows are unpacked in the order that their 16-bit words give up codes: of 32 columns first
 * 0, 4, 8 … 28, then 1, 5, …, so that no lane ever moves; the packed activations have that order too.
 * Value (scale * code + bias) is one rounding: a bf16 scale times a code of 8 bits is exact in f32. */
#ifndef LILY_DEVICE_CPU_MATMUL_H
#define LILY_DEVICE_CPU_MATMUL_H

#include "base/bytes.h"
#include "device/cpu/kernels/kernels.h"
#include "device/cpu/kernels/vec.h"

static const uint8_t *mat_codes(const lily_matrix *w, uint32_t row) { return w->codes + row * lily_row_bytes(w); }

/* Byte offset of a row's scales, and of its biases. */
static size_t mat_scale_at(const lily_matrix *w, uint32_t row) { return (size_t)row * lily_row_groups(w) * 2; }

static float load_bf16(const uint8_t *p) { return lily_bf16_to_float(lily_load_u16(p)); }

/* 32 columns of 4 bits in word order. */
static inline void dequant4_unit(const uint8_t *codes, v8 scale, v8 bias, float *out)
{
    v8h w;
    memcpy(&w, codes, sizeof w);
    for (int i = 0; i < 4; i++) v8_store(out + 8 * i, v8_fma(v8_from_u16(w >> 4 * i & 15), scale, bias));
}

static inline void dequant8_unit(const uint8_t *codes, v8 scale, v8 bias, float *out)
{
    for (int i = 0; i < 32; i += 8) v8_store(out + i, v8_fma(v8_load_u8(codes + i), scale, bias));
}

/* Columns c0 … c0 + n of one row, both multiples of the group or the row's end; 4-bit rows in word order. */
static void dequant_words(const lily_matrix *w, uint32_t row, uint32_t c0, uint32_t n, float *out)
{
    const uint8_t *codes = mat_codes(w, row) + (size_t)c0 * w->bits / 8;
    if (w->bits == 32) {
        memcpy(out, codes, n * sizeof(float));
        return;
    }
    if (w->bits == 16) {
        for (uint32_t c = 0; c < n; c++) out[c] = load_bf16(codes + 2 * (size_t)c);
        return;
    }
    size_t at = mat_scale_at(w, row) + (size_t)(c0 / w->group) * 2;
    const uint8_t *scales = w->scales + at, *biases = w->biases + at;
    uint32_t unit_bytes = 4u * w->bits;
    for (uint32_t g = 0; g < n / w->group; g++) {
        v8 scale = v8_set1(load_bf16(scales + 2 * (size_t)g)), bias = v8_set1(load_bf16(biases + 2 * (size_t)g));
        for (uint32_t u = 0; u < w->group / 32; u++, codes += unit_bytes, out += 32) {
            PREFETCH(codes + PREFETCH_AHEAD);
            if (w->bits == 4)
                dequant4_unit(codes, scale, bias, out);
            else
                dequant8_unit(codes, scale, bias, out);
        }
    }
}

static void dequant_row(const lily_matrix *w, uint32_t row, float *out)
{
    dequant_words(w, row, 0, w->cols, out);
    if (w->bits != 4) return;
    for (uint32_t u = 0; u < w->cols / 32; u++, out += 32) {
        float words[32];
        memcpy(words, out, sizeof words);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 8; j++) out[4 * j + i] = words[8 * i + j];
    }
}

/* Activations in word order. */
static size_t words_bytes(uint32_t cols) { return LILY_CPU_PAD8(cols) * sizeof(float); }

static void words_pack(const float *x, uint32_t cols, uint8_t *packed)
{
    float *out = (float *)(void *)packed;
    for (uint32_t u = 0; u < cols / 32; u++, x += 32, out += 32)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 8; j++) out[8 * i + j] = x[4 * j + i];
}

#define DOT_COLS 1024      /* columns dequantised at a time: four rows of them stay in the first cache */
#define DOT_TOKENS 64      /* tokens that share them */

/* acc[t][r] += rows[r] . x[t] for nr rows and nt tokens, both constants. */
UNROLLED void dot_tile(const float *rows, int nr, const float *const *x, int nt, uint32_t cols, v8 (*acc)[4])
{
    v8 sum[2][4];
    for (int t = 0; t < nt; t++)
        for (int r = 0; r < nr; r++) sum[t][r] = acc[t][r];
    uint32_t whole = cols & ~7u;
    for (uint32_t c = 0; c < whole; c += 8)
        for (int t = 0; t < nt; t++) {
            v8 xv = v8_load(x[t] + c);
            for (int r = 0; r < nr; r++) sum[t][r] = v8_fma(v8_load(rows + r * DOT_COLS + c), xv, sum[t][r]);
        }
    if (whole < cols)
        for (int t = 0; t < nt; t++) {
            v8 xv = v8_load_part(x[t] + whole, cols - whole);
            for (int r = 0; r < nr; r++)
                sum[t][r] = v8_fma(v8_load_part(rows + r * DOT_COLS + whole, cols - whole), xv, sum[t][r]);
        }
    for (int t = 0; t < nt; t++)
        for (int r = 0; r < nr; r++) acc[t][r] = sum[t][r];
}

/* Four rows or one, n <= DOT_TOKENS tokens; x[t] points to the token's activations in the matrix's order. */
static void dot_rows(const lily_matrix *w, uint32_t row, int nr, const float *const *x, uint32_t n, float *y,
                     size_t y_stride)
{
    float rows[4 * DOT_COLS];
    const float *at[2];
    v8 acc[DOT_TOKENS][4];
    memset(acc, 0, n * sizeof acc[0]);
    for (uint32_t c = 0; c < w->cols; c += DOT_COLS) {
        uint32_t cols = w->cols - c < DOT_COLS ? w->cols - c : DOT_COLS;
        for (int r = 0; r < nr; r++) dequant_words(w, row + (uint32_t)r, c, cols, rows + r * DOT_COLS);
        for (uint32_t t = 0; t < n; t += 2) {
            at[0] = x[t] + c;
            if (t + 1 < n) at[1] = x[t + 1] + c;
            if (nr == 4 && t + 1 < n)
                dot_tile(rows, 4, at, 2, cols, acc + t);
            else if (nr == 4)
                dot_tile(rows, 4, at, 1, cols, acc + t);
            else if (t + 1 < n)
                dot_tile(rows, 1, at, 2, cols, acc + t);
            else
                dot_tile(rows, 1, at, 1, cols, acc + t);
        }
    }
    for (uint32_t t = 0; t < n; t++)
        for (int r = 0; r < nr; r++) y[t * y_stride + (size_t)r] = v8_hsum(acc[t][r]);
}

/* Any width; 4-bit activations packed by words_pack. */
static void matmul_f32(const lily_matrix *w, uint32_t row0, uint32_t row1, const lily_cpu_act *x, const uint32_t *pick,
                       uint32_t n, float *y, size_t y_stride)
{
    const float *at[DOT_TOKENS];
    for (uint32_t t0 = 0; t0 < n; t0 += DOT_TOKENS) {
        uint32_t tokens = n - t0 < DOT_TOKENS ? n - t0 : DOT_TOKENS;
        for (uint32_t t = 0; t < tokens; t++) {
            size_t i = pick ? pick[t0 + t] : t0 + t;
            at[t] = w->bits == 4 ? (const float *)(const void *)(x->packed + i * words_bytes(w->cols))
                                 : x->x + i * w->cols;
        }
        for (uint32_t r = row0, nr; r < row1; r += nr) {
            nr = row1 - r >= 4 ? 4 : 1;
            dot_rows(w, r, (int)nr, at, tokens, y + t0 * y_stride + (r - row0), y_stride);
        }
    }
}

#endif
