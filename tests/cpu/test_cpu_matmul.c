/* test_cpu_matmul.c - products of every width, group and shape against sums in double; the same bits for a
 * token alone and in any company; not a byte read past the tensor. */
#include "kernels_check.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"

/* Three tensors in a mapping whose next page cannot be read: each in turn ends exactly there. */
typedef struct guarded {
    uint8_t *base[3];
    size_t size[3];
} guarded;

static uint8_t *guarded_tensor(guarded *g, int i, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
    g->size[i] = (pages + 1) * page;
    g->base[i] = mmap(NULL, g->size[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g->base[i] != MAP_FAILED);
    assert_int_equal(mprotect(g->base[i] + pages * page, page, PROT_NONE), 0);
    return g->base[i] + pages * page - bytes;
}

static lily_matrix guarded_matrix(guarded *g, uint32_t rows, uint32_t cols, uint16_t bits, uint16_t group)
{
    lily_matrix m = {.experts = 1, .rows = rows, .cols = cols, .bits = bits, .group = group};
    size_t bytes = (size_t)rows * lily_row_bytes(&m), groups = (size_t)rows * lily_row_groups(&m);
    uint8_t *codes = guarded_tensor(g, 0, bytes), *scales = guarded_tensor(g, 1, 2 * groups + 1),
            *biases = guarded_tensor(g, 2, 2 * groups + 1);
    for (size_t i = 0; i < bytes; i++) codes[i] = (uint8_t)(lily_uniform(bits, i) * 256);
    if (bits >= 16)
        for (size_t i = 0; i < (size_t)rows * cols; i++) {
            float f = random_float(5, i);
            uint16_t h = lily_float_to_bf16(f);
            memcpy(codes + i * bits / 8, bits == 16 ? (void *)&h : (void *)&f, bits / 8);
        }
    for (size_t i = 0; i < groups; i++) {
        float scale = random_float(1, i) * 0.02f, bias = -scale * (float)(1 << (bits - 1)) + 0.02f * random_float(2, i);
        uint16_t s = lily_float_to_bf16(scale), b = lily_float_to_bf16(bias);
        memcpy(scales + 1 + 2 * i, &s, 2);
        memcpy(biases + 1 + 2 * i, &b, 2);
    }
    m.codes = codes;
    m.scales = scales + 1;
    m.biases = biases + 1;
    return m;
}

static void free_guarded(guarded *g)
{
    for (int i = 0; i < 3; i++) munmap(g->base[i], g->size[i]);
}

static double weight(const lily_matrix *m, uint32_t r, uint32_t c)
{
    const uint8_t *row = m->codes + r * lily_row_bytes(m);
    if (m->bits == 32) return lily_bits_float(lily_load_u32(row + 4 * c));
    if (m->bits == 16) return lily_bf16_to_float(lily_load_u16(row + 2 * c));
    unsigned code = m->bits == 8 ? row[c] : row[c / 2] >> 4 * (c % 2) & 15;
    size_t g = r * lily_row_groups(m) + c / m->group;
    return (double)lily_bf16_to_float(lily_load_u16(m->scales + 2 * g)) * code +
           lily_bf16_to_float(lily_load_u16(m->biases + 2 * g));
}

enum { TOKENS = 75 };

static uint8_t *packed_of(const lily_cpu_kernels *k, const float *x, uint32_t cols, uint32_t tokens)
{
    uint8_t *packed = lily_calloc_aligned(k->packed_bytes(cols) * tokens, 64);
    assert_non_null(packed);
    for (uint32_t t = 0; t < tokens; t++) k->pack(x + (size_t)t * cols, cols, packed + t * k->packed_bytes(cols));
    return packed;
}

static void check_matrix(const lily_cpu_kernels *k, const lily_matrix *m)
{
    uint32_t cols = m->cols, rows = m->rows;
    float *x = random_floats((size_t)TOKENS * cols, 9), *y = random_floats((size_t)TOKENS * rows, 1),
          *one = random_floats(rows, 1), *row = random_floats(cols, 1);
    uint8_t *packed = packed_of(k, x, cols, TOKENS);
    lily_cpu_act act = {x, packed};
    k->matmul(m, 0, rows, &act, NULL, TOKENS, y, rows);
    for (uint32_t r = 0; r < rows; r++) {
        k->dequant_row(m, r, row);
        for (uint32_t c = 0; c < cols; c++) check_near(row[c], weight(m, r, c), 1e-7, "dequantised weight");
        for (uint32_t t = 0; t < TOKENS; t += 37) {
            double want = 0, size = 0;
            for (uint32_t c = 0; c < cols; c++) {
                double p = weight(m, r, c) * (double)x[(size_t)t * cols + c];
                want += p;
                size += p * p;
            }
            double step = m->bits == 4 ? k->packed_step : 0;
            check_near(y[(size_t)t * rows + r], want, sqrt(size) * (4e-6 + 8 * step) + 1e-7, k->name);
        }
    }
    /* Other cuts of rows and tokens, and tokens picked out of order: the same bits. */
    for (uint32_t t = 0; t < TOKENS; t += 11) {
        uint32_t pick[3] = {t, 0, TOKENS - 1}, cut = rows / 3;
        float three[3][64];
        k->matmul(m, 0, cut, &act, &pick[0], 1, one, rows);
        k->matmul(m, cut, rows, &act, &pick[0], 1, one + cut, rows);
        assert_memory_equal(one, y + (size_t)t * rows, rows * sizeof *one);
        k->matmul(m, 0, rows, &act, pick, 3, three[0], 64);
        for (int i = 0; i < 3; i++) assert_memory_equal(three[i], y + (size_t)pick[i] * rows, rows * sizeof *one);
    }
    lily_free_aligned(x);
    lily_free_aligned(y);
    lily_free_aligned(one);
    lily_free_aligned(row);
    lily_free_aligned(packed);
}

static void products(void **state)
{
    (void)state;
    static const uint16_t groups[] = {32, 64, 128};
    static const uint32_t units[] = {1, 2, 3, 9, 17};
    FOR_TABLES(k)
    {
        for (uint16_t bits = 4; bits <= 8; bits += 4)
            for (int g = 0; g < 3; g++)
                for (int u = 0; u < 5; u++) {
                    guarded mem;
                    lily_matrix m = guarded_matrix(&mem, 37, units[u] * groups[g], bits, groups[g]);
                    check_matrix(k, &m);
                    free_guarded(&mem);
                }
        for (uint16_t bits = 16; bits <= 32; bits += 16)
            for (uint32_t cols = 5; cols < 1100; cols += 509) {
                guarded mem;
                lily_matrix m = guarded_matrix(&mem, 9, cols, bits, 0);
                check_matrix(k, &m);
                free_guarded(&mem);
            }
    }
}

/* A damaged activation must show in the product, not vanish in its rounding. */
static void not_a_number(void **state)
{
    (void)state;
    guarded mem;
    lily_matrix m = guarded_matrix(&mem, 4, 128, 4, 64);
    FOR_TABLES(k)
    {
        float *x = random_floats(128, 3), y[4];
        for (int i = 0; i < 2; i++) {
            x[70] = i ? NAN : INFINITY;
            uint8_t *packed = packed_of(k, x, 128, 1);
            lily_cpu_act act = {x, packed};
            k->matmul(&m, 0, 4, &act, NULL, 1, y, 4);
            for (int r = 0; r < 4; r++) assert_false(isfinite(y[r]));
            lily_free_aligned(packed);
        }
        lily_free_aligned(x);
    }
    free_guarded(&mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products), cmocka_unit_test(not_a_number)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
