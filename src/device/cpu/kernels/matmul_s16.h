/* matmul_s16.h - 4-bit products in whole numbers (AVX2).
 *
 * Activations are 16-bit with one f32 scale per block of 64 columns: x ~ scale * q, |q| <= 32767, so the
 * rounding is 1.5e-5 of a block's largest value.  The sum of code * q over a lane's 8 columns of a block is
 * exact in 32 bits (15 * 32767 * 8 < 2^22) and exact in f32.  Per block and row then one fused
 * multiply-add: acc[lane] += (weight scale * activation scale) * sum.  The biases come in by
 * sum over groups of bias * (sum of the group's x), eight groups a step.
 * vpmaddwd does 16 products where an f32 multiply-add does 8, and codes need no conversion.
 *
 * A packed token: q [blocks][64] in word order (columns 0, 4, … 60 of a block, then 1, 5, …), then f32
 * scale [blocks], sum64 [blocks], sum32 [2 blocks], the counts rounded up to 8 blocks with zeros.
 * A row's lanes add in the order of blocks whatever the tile, so every token has the same bits in any. */
#ifndef LILY_DEVICE_CPU_MATMUL_S16_H
#define LILY_DEVICE_CPU_MATMUL_S16_H

#include <immintrin.h>
#include <math.h>

#include "device/cpu/kernels/matmul.h"

#define S16_STEP 8u        /* blocks whose scales are handled together */
#define S16_TOKENS 8       /* tokens of a tile */

static uint32_t s16_blocks(uint32_t cols) { return (cols + 63) / 64; }
static uint32_t s16_padded(uint32_t cols) { return (s16_blocks(cols) + S16_STEP - 1) / S16_STEP * S16_STEP; }

static size_t s16_bytes(uint32_t cols) { return (size_t)s16_padded(cols) * (64 * 2 + 4 * 4); }

/* One packed token by its parts. */
typedef struct s16_token {
    const int16_t *q;
    const float *scale, *sum64, *sum32;
} s16_token;

static s16_token s16_view(const uint8_t *packed, uint32_t cols)
{
    uint32_t n = s16_padded(cols);
    const float *f = (const float *)(const void *)(packed + (size_t)n * 128);
    return (s16_token){(const int16_t *)(const void *)packed, f, f + n, f + 2 * n};
}

/* 16 of each 4 x 16 values: out[i] gets column 4 j + i at j. */
static inline void s16_words(const float *x, __m256 scale, __m256i out[4], __m256i *sum_low, __m256i *sum_high)
{
    __m256i n[8];
    for (int i = 0; i < 8; i++) n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), scale));
    *sum_low = _mm256_add_epi32(_mm256_add_epi32(n[0], n[1]), _mm256_add_epi32(n[2], n[3]));
    *sum_high = _mm256_add_epi32(_mm256_add_epi32(n[4], n[5]), _mm256_add_epi32(n[6], n[7]));
    int32_t all[64] __attribute__((aligned(32)));
    for (int i = 0; i < 8; i++) _mm256_store_si256((__m256i *)(void *)(all + 8 * i), n[i]);
    int16_t words[64] __attribute__((aligned(32)));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 16; j++) words[16 * i + j] = (int16_t)all[4 * j + i];
    for (int i = 0; i < 4; i++) out[i] = _mm256_load_si256((const __m256i *)(const void *)(words + 16 * i));
}

static int32_t s16_hsum(__m256i v)
{
    __m128i a = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}

/* The largest magnitude of 64; a NaN, whose bits are the largest of all, comes through. */
static float s16_largest(const float *x)
{
    __m256i top = _mm256_setzero_si256();
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    for (int i = 0; i < 8; i++)
        top = _mm256_max_epi32(top, _mm256_and_si256((__m256i)v8_load(x + 8 * i), magnitude));
    __m128i a = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return lily_bits_float((uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(a, _mm_shuffle_epi32(a, 0xb1))));
}

static void s16_pack(const float *x, uint32_t cols, uint8_t *packed)
{
    uint32_t blocks = s16_blocks(cols), n = s16_padded(cols);
    int16_t *q = (int16_t *)(void *)packed;
    float *scale = (float *)(void *)(packed + (size_t)n * 128), *sum64 = scale + n, *sum32 = scale + 2 * n;
    memset(scale, 0, n * 4 * sizeof(float));
    memset(q + (size_t)blocks * 64, 0, (size_t)(n - blocks) * 128);
    for (uint32_t b = 0; b < blocks; b++, q += 64) {
        float block[64] = {0};
        uint32_t here = cols - b * 64 < 64 ? cols - b * 64 : 64;
        memcpy(block, x + (size_t)b * 64, here * sizeof(float));
        float most = s16_largest(block);
        __m256i words[4], low, high;
        s16_words(block, _mm256_set1_ps(most > 0 ? 32767.0f / most : 0.0f), words, &low, &high);
        for (int i = 0; i < 4; i++) _mm256_storeu_si256((__m256i *)(void *)(q + 16 * i), words[i]);
        scale[b] = most / 32767.0f;
        sum32[2 * b] = scale[b] * (float)s16_hsum(low);
        sum32[2 * b + 1] = scale[b] * (float)s16_hsum(high);
        sum64[b] = sum32[2 * b] + sum32[2 * b + 1];
    }
}

/* Scales and biases of blocks b … b + n (n <= 8) of one row, f32, one per block - per half block for
 * groups of 32 - zero beyond n. */
typedef struct s16_affine {
    v8 scale[2], bias[2];
} s16_affine;

static inline v8 s16_load_affine(const uint8_t *p, uint32_t n)
{
    return n >= 8 ? v8_load_bf16(p) : v8_load_bf16_part(p, n);
}

/* Half as many, for groups of two blocks. */
static inline v8 s16_load_pairs(const uint8_t *p, uint32_t n)
{
    return n >= 8 ? v8_from_bf16((v8h)_mm_loadl_epi64((const __m128i *)(const void *)p)) : v8_load_bf16_part(p, n / 2);
}

UNROLLED s16_affine s16_affine_at(const lily_matrix *w, const uint8_t *scales, const uint8_t *biases, uint32_t b,
                                       uint32_t n, uint32_t group)
{
    s16_affine a = {0};
    if (group == 64) {
        a.scale[0] = s16_load_affine(scales + 2 * (size_t)b, n);
        a.bias[0] = s16_load_affine(biases + 2 * (size_t)b, n);
    } else if (group == 128) {
        const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
        a.scale[0] = _mm256_permutevar8x32_ps(s16_load_pairs(scales + b, n), twice);
        a.bias[0] = _mm256_permutevar8x32_ps(s16_load_pairs(biases + b, n), twice);
    } else {
        uint32_t units = w->cols / 32 - 2 * b;
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t here = units > 8 * i ? units - 8 * i : 0;
            a.scale[i] = s16_load_affine(scales + 4 * (size_t)b + 16 * i, here);
            a.bias[i] = s16_load_affine(biases + 4 * (size_t)b + 16 * i, here);
        }
    }
    return a;
}

/* Weight scale times activation scale of 8 blocks, ready to be broadcast: one float a block, or two. */
UNROLLED void s16_products(const s16_affine *a, const float *x_scale, uint32_t group, float *out)
{
    v8 x = v8_load(x_scale);
    if (group != 32) {
        v8_store(out, a->scale[0] * x);
        return;
    }
    v8_store(out, a->scale[0] * _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)));
    v8_store(out + 8, a->scale[1] * _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7)));
}

UNROLLED v8 s16_product_of(const float *products, uint32_t block, uint32_t group)
{
    if (group != 32) return _mm256_broadcast_ss(products + block);
    v8 pair = _mm256_castpd_ps(_mm256_broadcast_sd((const double *)(const void *)(products + 2 * (size_t)block)));
    return _mm256_permutevar8x32_ps(pair, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

UNROLLED v8 s16_add_biases(const s16_affine *a, const s16_token *x, uint32_t b, uint32_t group, v8 acc)
{
    if (group != 32) return v8_fma(a->bias[0], v8_load(x->sum64 + b), acc);
    acc = v8_fma(a->bias[0], v8_load(x->sum32 + 2 * (size_t)b), acc);
    return v8_fma(a->bias[1], v8_load(x->sum32 + 2 * (size_t)b + 8), acc);
}

static inline void s16_unpack(__m256i v, __m256i code[4])
{
    const __m256i low = _mm256_set1_epi16(15);
    code[0] = _mm256_and_si256(v, low);
    code[1] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    code[2] = _mm256_and_si256(_mm256_srli_epi16(v, 8), low);
    code[3] = _mm256_srli_epi16(v, 12);
}

static inline v8 s16_dot(const __m256i code[4], const int16_t *q)
{
    const __m256i *x = (const __m256i *)(const void *)q;
    __m256i a = _mm256_add_epi32(_mm256_madd_epi16(code[0], _mm256_load_si256(x)),
                                 _mm256_madd_epi16(code[1], _mm256_load_si256(x + 1)));
    __m256i b = _mm256_add_epi32(_mm256_madd_epi16(code[2], _mm256_load_si256(x + 2)),
                                 _mm256_madd_epi16(code[3], _mm256_load_si256(x + 3)));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(a, b));
}

static inline __m256i s16_codes(const uint8_t *codes)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)codes);
}

/* The last block of a row may have only 32 columns (groups of 32). */
static inline __m256i s16_half_codes(const uint8_t *codes)
{
    return _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_loadu_si128((const __m128i *)(const void *)codes), 0);
}

/* How many of the n blocks from b have all 64 columns. */
static inline uint32_t s16_whole(const lily_matrix *w, uint32_t b, uint32_t n)
{
    uint32_t whole = w->cols / 64 - b;
    return whole < n ? whole : n;
}

/* Running sums of one row and token. */
typedef struct s16_sums {
    v8 acc, bias;
} s16_sums;

/* Blocks b … b + n of one row for nt tokens (constant): the tile that prompts spend their time in. */
UNROLLED void s16_tile(const lily_matrix *w, uint32_t row, uint32_t b, uint32_t n, const s16_token *x, int nt,
                            uint32_t group, s16_sums *sums)
{
    float products[S16_TOKENS][16] __attribute__((aligned(32)));
    size_t at = mat_scale_at(w, row);
    const s16_affine a = s16_affine_at(w, w->scales + at, w->biases + at, b, n, group);
    const uint8_t *codes = mat_codes(w, row) + (size_t)b * 32;
    v8 acc[S16_TOKENS];
    for (int t = 0; t < nt; t++) {
        s16_products(&a, x[t].scale + b, group, products[t]);
        sums[t].bias = s16_add_biases(&a, x + t, b, group, sums[t].bias);
        acc[t] = sums[t].acc;
    }
    uint32_t whole = s16_whole(w, b, n);
    for (uint32_t i = 0; i < n; i++) {
        __m256i code[4];
        s16_unpack(group != 32 || i < whole ? s16_codes(codes + 32 * i) : s16_half_codes(codes + 32 * i), code);
        for (int t = 0; t < nt; t++)
            acc[t] = v8_fma(s16_product_of(products[t], i, group),
                            s16_dot(code, x[t].q + (size_t)(b + i) * 64), acc[t]);
    }
    for (int t = 0; t < nt; t++) sums[t].acc = acc[t];
}

/* Rows row … row + nr (nr <= LILY_CPU_ROW_TILE) for nt <= 8 tokens. */
UNROLLED void s16_rows(const lily_matrix *w, uint32_t row, uint32_t nr, const s16_token *x, int nt, uint32_t group,
                            float *const *y)
{
    s16_sums sums[LILY_CPU_ROW_TILE][S16_TOKENS];
    uint32_t blocks = s16_blocks(w->cols);
    memset(sums, 0, nr * sizeof sums[0]);
    for (uint32_t b = 0; b < blocks; b += S16_STEP) {
        uint32_t n = blocks - b < S16_STEP ? blocks - b : S16_STEP;
        for (uint32_t r = 0; r < nr; r++) s16_tile(w, row + r, b, n, x, nt, group, sums[r]);
    }
    for (uint32_t r = 0; r < nr; r++)
        for (int t = 0; t < nt; t++) y[t][r] = v8_hsum(sums[r][t].acc + sums[r][t].bias);
}

/* One token: nr rows (constant) side by side, so that four streams of codes are under way. */
UNROLLED void s16_gemv(const lily_matrix *w, uint32_t row, int nr, const s16_token *x, uint32_t group, float *y)
{
    float products[4][16] __attribute__((aligned(32)));
    uint32_t blocks = s16_blocks(w->cols);
    const uint8_t *codes[4], *scales[4], *biases[4];
    v8 acc[4], bias[4];
    /* Past the rows under way. */
    const size_t four_rows = 4 * lily_row_bytes(w), ahead = four_rows > PREFETCH_AHEAD ? four_rows : PREFETCH_AHEAD;
    for (int r = 0; r < nr; r++) {
        size_t at = mat_scale_at(w, row + (uint32_t)r);
        codes[r] = mat_codes(w, row + (uint32_t)r);
        scales[r] = w->scales + at;
        biases[r] = w->biases + at;
        acc[r] = bias[r] = v8_set1(0.0f);
    }
    for (uint32_t b = 0; b < blocks; b += S16_STEP) {
        uint32_t n = blocks - b < S16_STEP ? blocks - b : S16_STEP;
        for (int r = 0; r < nr; r++) {
            const s16_affine a = s16_affine_at(w, scales[r], biases[r], b, n, group);
            s16_products(&a, x->scale + b, group, products[r]);
            bias[r] = s16_add_biases(&a, x, b, group, bias[r]);
        }
        uint32_t whole = s16_whole(w, b, n);
        for (uint32_t i = 0; i < n; i++) {
            const int16_t *q = x->q + (size_t)(b + i) * 64;
            for (int r = 0; r < nr; r++) {
                const uint8_t *at = codes[r] + (size_t)(b + i) * 32;
                if (i % 2 == 0) PREFETCH(at + ahead);
                __m256i code[4];
                s16_unpack(group != 32 || i < whole ? s16_codes(at) : s16_half_codes(at), code);
                acc[r] = v8_fma(s16_product_of(products[r], i, group), s16_dot(code, q), acc[r]);
            }
        }
    }
    for (int r = 0; r < nr; r++) y[r] = v8_hsum(acc[r] + bias[r]);
}

UNROLLED void s16_group(const lily_matrix *w, uint32_t row0, uint32_t row1, const s16_token *x, int nt,
                             uint32_t group, float *const *y)
{
    if (nt == 1) {
        uint32_t r = row0;
        for (; r + 4 <= row1; r += 4) s16_gemv(w, r, 4, x, group, y[0] + (r - row0));
        for (; r < row1; r++) s16_gemv(w, r, 1, x, group, y[0] + (r - row0));
        return;
    }
    for (uint32_t r = row0; r < row1; r += LILY_CPU_ROW_TILE) {
        uint32_t nr = row1 - r < LILY_CPU_ROW_TILE ? row1 - r : LILY_CPU_ROW_TILE;
        float *out[S16_TOKENS];
        for (int t = 0; t < nt; t++) out[t] = y[t] + (r - row0);
        if (nt == 8)
            s16_rows(w, r, nr, x, 8, group, out);
        else if (nt == 4)
            s16_rows(w, r, nr, x, 4, group, out);
        else
            s16_rows(w, r, nr, x, 2, group, out);
    }
}

static void s16_tokens(const lily_matrix *w, uint32_t row0, uint32_t row1, const s16_token *x, int nt, float *const *y)
{
    if (w->group == 64)
        s16_group(w, row0, row1, x, nt, 64, y);
    else if (w->group == 128)
        s16_group(w, row0, row1, x, nt, 128, y);
    else
        s16_group(w, row0, row1, x, nt, 32, y);
}

static void matmul_s16(const lily_matrix *w, uint32_t row0, uint32_t row1, const lily_cpu_act *x, const uint32_t *pick,
                       uint32_t n, float *y, size_t y_stride)
{
    if (w->bits != 4) {
        matmul_f32(w, row0, row1, x, pick, n, y, y_stride);
        return;
    }
    size_t record = s16_bytes(w->cols);
    for (uint32_t t0 = 0, nt; t0 < n; t0 += nt) {
        uint32_t left = n - t0;
        nt = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
        s16_token token[S16_TOKENS];
        float *out[S16_TOKENS];
        for (uint32_t t = 0; t < nt; t++) {
            size_t i = pick ? pick[t0 + t] : t0 + t;
            token[t] = s16_view(x->packed + i * record, w->cols);
            out[t] = y + (t0 + t) * y_stride;
        }
        s16_tokens(w, row0, row1, token, (int)nt, out);
    }
}

#endif
