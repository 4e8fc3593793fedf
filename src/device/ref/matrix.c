/* matrix.c - packed matrices: one row made plain, and its dot products. */
#include <string.h>

#include "base/bytes.h"
#include "device/ref/ref.h"

typedef float vec4 __attribute__((vector_size(16))); /* GCC and Clang, any machine */

static vec4 load4(const float *p)
{
    vec4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Sixteen partial sums in a written-out order: no machine and no compiler may choose another. */
float ref_dot(const float *a, const float *b, uint32_t n)
{
    vec4 sum[4] = {{0}};
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16) {
        sum[0] += load4(a + i) * load4(b + i);
        sum[1] += load4(a + i + 4) * load4(b + i + 4);
        sum[2] += load4(a + i + 8) * load4(b + i + 8);
        sum[3] += load4(a + i + 12) * load4(b + i + 12);
    }
    for (uint32_t j = 0; i + j < n; j++) sum[j / 4][j % 4] += a[i + j] * b[i + j];
    vec4 all = (sum[0] + sum[2]) + (sum[1] + sum[3]);
    return (all[0] + all[2]) + (all[1] + all[3]);
}

static void quantised_row(const lily_matrix *m, uint32_t row, float *w)
{
    uint32_t groups = lily_row_groups(m);
    const uint8_t *code = m->codes + row * lily_row_bytes(m);
    const uint8_t *scales = m->scales + (uint64_t)row * groups * 2,
                  *biases = m->biases + (uint64_t)row * groups * 2;
    for (uint32_t g = 0; g < groups; g++) {
        float scale = lily_bf16_to_float(lily_load_u16(scales + 2 * g));
        float bias = lily_bf16_to_float(lily_load_u16(biases + 2 * g));
        float *to = w + g * m->group;
        if (m->bits == 8) {
            for (uint32_t i = 0; i < m->group; i++) to[i] = scale * (float)code[i] + bias;
            code += m->group;
        } else {
            for (uint32_t i = 0; i < m->group / 2; i++) {
                to[2 * i] = scale * (float)(code[i] & 15) + bias; /* the low nibble is the earlier column */
                to[2 * i + 1] = scale * (float)(code[i] >> 4) + bias;
            }
            code += m->group / 2;
        }
    }
}

void ref_matrix_row(const lily_matrix *m, uint32_t row, float *w)
{
    const uint8_t *code = m->codes + row * lily_row_bytes(m);
    if (m->bits == 16)
        for (uint32_t i = 0; i < m->cols; i++) w[i] = lily_bf16_to_float(lily_load_u16(code + 2 * (size_t)i));
    else if (m->bits == 32)
        for (uint32_t i = 0; i < m->cols; i++) w[i] = lily_bits_float(lily_load_u32(code + 4 * (size_t)i));
    else
        quantised_row(m, row, w);
}

void ref_product(const lily_matrix *m, uint32_t n, const float *const *x, float *const *y, float *row)
{
    for (uint32_t i = 0; n && i < m->rows; i++) {
        ref_matrix_row(m, i, row);
        for (uint32_t v = 0; v < n; v++) y[v][i] = ref_dot(row, x[v], m->cols);
    }
}

void ref_project(lily_run *r, const lily_matrix *m, unsigned in, uint32_t in_stride, unsigned out,
                 uint32_t out_stride, uint32_t out_at)
{
    lily_exec *x = r->exec;
    for (uint32_t t = 0; t < r->tokens; t++) {
        x->in[t] = run_slot(r, in) + (size_t)t * in_stride;
        x->out[t] = run_slot(r, out) + (size_t)t * out_stride + out_at;
    }
    ref_product(m, r->tokens, x->in, x->out, x->row);
}
