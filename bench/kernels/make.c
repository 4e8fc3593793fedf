#include "make.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/random.h"

static void *must(void *p)
{
    if (p) return p;
    fprintf(stderr, "kernels: out of memory\n");
    exit(1);
}

float *make_floats(size_t n, uint64_t seed)
{
    float *x = must(lily_calloc_aligned((n + 8) * sizeof *x, 64));
    for (size_t i = 0; i < n; i += 4) {
        uint32_t r[4];
        lily_philox(seed, i, r);
        for (size_t j = 0; j < 4 && i + j < n; j++) {
            float sum = 0;    /* of four uniform bytes: near enough to normal */
            for (int b = 0; b < 4; b++) sum += (float)(r[j] >> 8 * b & 255) / 255.0f - 0.5f;
            x[i + j] = 1.7f * sum;
        }
    }
    return x;
}

lily_matrix make_matrix(uint32_t experts, uint32_t rows, uint32_t cols, uint16_t bits, uint16_t group, void **block)
{
    lily_matrix m = {.experts = experts, .rows = rows, .cols = cols, .bits = bits, .group = group};
    size_t codes = (size_t)experts * rows * lily_row_bytes(&m), groups = (size_t)experts * rows * lily_row_groups(&m);
    uint8_t *p = must(lily_calloc(codes + 4 * groups + 64, 1));
    *block = p;
    p += 3;
    m.codes = p;
    for (size_t i = 0; i + 16 <= codes; i += 16) lily_philox(7, i, (uint32_t *)(void *)(*(uint8_t **)block + i));
    m.scales = p + codes;
    m.biases = p + codes + 2 * groups;
    for (size_t i = 0; i < groups; i++) {
        uint32_t r[4];
        lily_philox(9, i, r);
        float scale = ((float)(r[0] >> 8) / 16777216.0f + 0.5f) * (r[1] & 1 ? 0.01f : -0.01f);
        float bias = scale * -(float)(1 << (bits - 1)) * (0.8f + 0.4f * (float)(r[2] >> 8) / 16777216.0f);
        uint16_t s = lily_float_to_bf16(scale), b = lily_float_to_bf16(bias);
        memcpy(p + codes + 2 * i, &s, 2);
        memcpy(p + codes + 2 * groups + 2 * i, &b, 2);
    }
    return m;
}
