/* main.c - kernels and their rivals: build/bench/kernels [gemv|gemm|delta|attention …] [--mib N] [--rounds N] [--threads N]
 *
 * Every table that runs here does the same work in turn, in an order that reverses each round, with a plain
 * read of the same bytes in between.  Before it is timed, each result is checked against sums in double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/cpu/float_mode.h"
#include "device/cpu/kernels/kernels.h"
#include "make.h"
#include "time.h"

enum { MAX_TABLES = 8, MAX_ROUNDS = 101 };

typedef struct options {
    unsigned rounds, mib;
    lily_pool *pool;
} options;

/* ---- one product over a stack of matrices that is larger than any cache ---- */

typedef struct product {
    const lily_cpu_kernels *k;
    lily_matrix w;
    lily_cpu_act x;
    uint32_t tokens;
    float *y;                  /* [rows][…]: [experts][tokens][rows] */
} product;

static void product_rows(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    product *p = context;
    while (begin < end) {
        uint32_t expert = begin / p->w.rows, row = begin % p->w.rows;
        uint32_t to = p->w.rows - row < end - begin ? p->w.rows : row + (end - begin);
        lily_matrix w = lily_expert(&p->w, expert);
        float *y = p->y + (size_t)expert * p->tokens * p->w.rows + row;
        p->k->matmul(&w, row, to, &p->x, NULL, p->tokens, y, p->w.rows);
        begin += to - row;
    }
}

/* Largest error of some outputs of the last expert, relative to their rms. */
static double product_error(const product *p, const float *x)
{
    lily_matrix w = lily_expert(&p->w, p->w.experts - 1);
    const float *y = p->y + (size_t)(p->w.experts - 1) * p->tokens * w.rows;
    float *row = lily_calloc(w.cols, sizeof *row);
    double worst = 0, square = 0;
    unsigned n = 0;
    for (uint32_t r = 0; row && r < w.rows; r += 1 + w.rows / 37)
        for (uint32_t t = 0; t < p->tokens; t += 1 + p->tokens / 5) {
            double want = 0;
            lily_cpu_portable.dequant_row(&w, r, row);
            for (uint32_t c = 0; c < w.cols; c++) want += (double)row[c] * (double)x[(size_t)t * w.cols + c];
            worst = fmax(worst, fabs(want - (double)y[(size_t)t * w.rows + r]));
            square += want * want;
            n++;
        }
    lily_free(row);
    return worst / sqrt(square / n);
}

static void bench_product(const options *o, uint32_t rows, uint32_t cols, uint16_t bits, uint16_t group, uint32_t tokens,
                          unsigned mib)
{
    lily_matrix probe = {.rows = rows, .cols = cols, .bits = bits, .group = group};
    uint64_t one = lily_matrix_bytes(&probe), want = (uint64_t)mib << 20;
    uint32_t experts = want > one ? (uint32_t)((want + one - 1) / one) : 1;
    void *block;
    product p = {.w = make_matrix(experts, rows, cols, bits, group, &block), .tokens = tokens};
    size_t bytes = (size_t)(one * experts), n_tables;
    float *x = make_floats((size_t)tokens * cols, 3);
    p.y = make_floats((size_t)experts * tokens * rows, 4);
    const lily_cpu_kernels *const *tables = lily_cpu_tables(&n_tables);
    void *packed[MAX_TABLES] = {0};
    double seconds[MAX_TABLES][MAX_ROUNDS], rate[MAX_ROUNDS];
    for (size_t i = 0; i < n_tables; i++) {
        if (!tables[i]->runs_here()) continue;
        size_t record = tables[i]->packed_bytes(cols);
        uint8_t *at = packed[i] = lily_calloc_aligned(record * tokens, 64);
        for (uint32_t t = 0; t < tokens; t++) tables[i]->pack(x + (size_t)t * cols, cols, at + t * record);
    }
    for (unsigned round = 0; round < o->rounds; round++) {
        rate[round] = read_rate(o->pool, block, bytes);
        for (size_t j = 0; j < n_tables; j++) {
            size_t i = round % 2 ? n_tables - 1 - j : j;
            if (!packed[i]) continue;
            p.k = tables[i];
            p.x = (lily_cpu_act){x, packed[i]};
            uint64_t start = bench_now(o->pool);
            lily_pool_for(o->pool, experts * rows, 2 * LILY_CPU_ROW_TILE, product_rows, &p);
            seconds[i][round] = 1e-9 * (double)(bench_now(o->pool) - start);
            if (round == 0)
                printf("  %-10s error %.1e of rms\n", tables[i]->name, product_error(&p, x));
        }
    }
    double plain = median(rate, o->rounds);
    printf("%u-bit group %u, %u x %u, %u tokens, %.0f MB, plain read %.1f GB/s\n", bits, group, rows, cols, tokens,
           (double)bytes * 1e-6, plain * 1e-9);
    for (size_t i = 0; i < n_tables; i++) {
        if (!packed[i]) continue;
        double s = median(seconds[i], o->rounds);
        printf("  %-10s %8.2f ms  %6.1f GB/s (%3.0f %% of reading)  %7.1f GMAC/s\n", tables[i]->name, s * 1e3,
               (double)bytes / s * 1e-9, 100 * (double)bytes / s / plain, (double)experts * rows * cols * tokens / s * 1e-9);
        lily_free_aligned(packed[i]);
    }
    lily_free_aligned(x);
    lily_free_aligned(p.y);
    lily_free(block);
}

static void gemv(const options *o)
{
    bench_product(o, 8192, 2048, 4, 64, 1, o->mib);
    bench_product(o, 512, 2048, 4, 64, 1, o->mib);
    bench_product(o, 2048, 4096, 4, 64, 1, o->mib);
    bench_product(o, 2048, 512, 4, 64, 1, o->mib);
    bench_product(o, 256, 2048, 8, 64, 1, o->mib);
    bench_product(o, 2048, 2048, 4, 32, 1, o->mib);
    bench_product(o, 2048, 2048, 4, 128, 1, o->mib);
}

static void gemm(const options *o)
{
    bench_product(o, 8192, 2048, 4, 64, 256, 1);
    bench_product(o, 512, 2048, 4, 64, 16, 16);
    bench_product(o, 2048, 512, 4, 64, 16, 16);
    bench_product(o, 256, 2048, 8, 64, 256, 1);
}

/* ---- the rest, one item a head ---- */

typedef struct heads {
    const lily_cpu_kernels *k;
    uint32_t tokens, context, heads;
    lily_cpu_delta delta;
    lily_cpu_span span;
    const float *q;
    uint32_t *limit;
    float *out;
} heads;

static void delta_heads(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    heads *h = context;
    for (uint32_t i = begin; i < end; i++) {
        lily_cpu_delta d = h->delta;
        d.state += (size_t)i * d.dk * d.dv;
        d.v += (size_t)i * d.dv;
        d.out += (size_t)i * d.dv;
        h->k->delta_rule(&d, 0, d.dv);
    }
}

static void time_heads(const options *o, const char *what, heads *h, lily_pool_fn *fn, double bytes, double macs)
{
    size_t n_tables;
    const lily_cpu_kernels *const *tables = lily_cpu_tables(&n_tables);
    double seconds[MAX_TABLES][MAX_ROUNDS];
    for (unsigned round = 0; round < o->rounds; round++)
        for (size_t j = 0; j < n_tables; j++) {
            size_t i = round % 2 ? n_tables - 1 - j : j;
            if (!tables[i]->runs_here()) continue;
            h->k = tables[i];
            uint64_t start = bench_now(o->pool);
            lily_pool_for(o->pool, h->heads, 1, fn, h);
            seconds[i][round] = 1e-9 * (double)(bench_now(o->pool) - start);
        }
    printf("%s\n", what);
    for (size_t i = 0; i < n_tables; i++) {
        if (!tables[i]->runs_here()) continue;
        double s = median(seconds[i], o->rounds);
        printf("  %-10s %8.3f ms  %6.1f GB/s  %6.1f GMAC/s\n", tables[i]->name, s * 1e3, bytes / s * 1e-9, macs / s * 1e-9);
    }
}

static void delta(const options *o)
{
    for (uint32_t tokens = 1; tokens <= 512; tokens *= 512) {
        uint32_t n = 32 * (tokens == 1 ? 64 : 1), d = 128;
        float *state = make_floats((size_t)n * d * d, 1), *v = make_floats((size_t)tokens * n * d, 2),
              *k = make_floats((size_t)tokens * d, 5), *gate = make_floats(tokens, 6),
              *out = make_floats((size_t)tokens * n * d, 7);
        for (uint32_t t = 0; t < tokens; t++) {
            lily_cpu_portable.l2norm(k + (size_t)t * d, d, 1e-6f, 1.0f, k + (size_t)t * d);
            gate[t] = 0.5f;
        }
        heads h = {.tokens = tokens, .heads = n};
        h.delta = (lily_cpu_delta){.state = state, .q = k, .k = k, .v = v, .decay = gate, .beta = gate, .out = out, .kq = gate,
                                   .q_stride = d, .k_stride = d, .v_stride = n * d, .gate_stride = 1,
                                   .out_stride = n * d, .dk = d, .dv = d, .tokens = tokens};
        char what[80];
        snprintf(what, sizeof what, "delta rule, %u heads of 128 x 128, %u tokens", n, tokens);
        time_heads(o, what, &h, delta_heads, 2.0 * n * d * d * 4, 3.0 * n * d * d * tokens);
        lily_free_aligned(state);
        lily_free_aligned(v);
        lily_free_aligned(k);
        lily_free_aligned(gate);
        lily_free_aligned(out);
    }
}

static void attention_heads(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    heads *h = context;
    uint32_t nq = 8 * h->tokens, dim = 256;
    void *scratch = lily_calloc_aligned(h->k->attn_scratch(dim, nq), 64);
    float *state = lily_calloc_aligned((2 * nq + (size_t)nq * dim) * sizeof(float), 64);
    for (uint32_t i = begin; scratch && state && i < end; i++) {
        lily_cpu_span s = h->span;
        s.k += (size_t)i * h->context * dim;
        s.v += (size_t)i * h->context * dim;
        lily_cpu_softmax soft = {state, state + nq, state + 2 * nq};
        lily_cpu_softmax_begin(&soft, nq, dim);
        h->k->attn_span(&s, h->q, h->limit, nq, dim, &soft, scratch);
    }
    lily_free_aligned(scratch);
    lily_free_aligned(state);
}

static void attention(const options *o)
{
    for (uint32_t tokens = 1; tokens <= 8; tokens *= 8) {
        uint32_t n = 8, dim = 256, context = 32768, nq = 8 * tokens;
        size_t values = (size_t)n * context * dim;
        float *q = make_floats((size_t)nq * dim, 1), *rows = make_floats(values, 2);
        uint16_t *kv = lily_calloc_aligned(2 * values, 64);
        uint32_t *limit = lily_calloc(nq, sizeof *limit);
        if (!kv || !limit) exit(1);
        lily_cpu_portable.to_bf16(rows, (uint32_t)values, kv);
        for (uint32_t i = 0; i < nq; i++) limit[i] = context;
        for (size_t i = 0; i < (size_t)nq * dim; i++) q[i] /= 16;
        heads h = {.tokens = tokens, .context = context, .heads = n, .q = q, .limit = limit,
                   .span = {kv, kv, dim, context}};
        char what[80];
        snprintf(what, sizeof what, "attention, %u KV heads, 8 query heads each, %u tokens, context %u", n, tokens, context);
        time_heads(o, what, &h, attention_heads, 4.0 * (double)values, 2.0 * (double)values * nq);
        lily_free_aligned(q);
        lily_free_aligned(rows);
        lily_free_aligned(kv);
        lily_free(limit);
    }
}

static const struct {
    const char *name;
    void (*run)(const options *);
} benches[] = {{"gemv", gemv}, {"gemm", gemm}, {"delta", delta}, {"attention", attention}};

int main(int argc, char **argv)
{
    unsigned threads = 0;
    options o = {.rounds = 7, .mib = 600};
    bool any = false, wanted[sizeof benches / sizeof *benches] = {false};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            o.rounds = (unsigned)atoi(argv[++i]);
        else if (strcmp(argv[i], "--mib") == 0 && i + 1 < argc)
            o.mib = (unsigned)atoi(argv[++i]);
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            threads = (unsigned)atoi(argv[++i]);
        for (size_t b = 0; b < sizeof benches / sizeof *benches; b++)
            if (strcmp(argv[i], benches[b].name) == 0) any = wanted[b] = true;
    }
    if (o.rounds < 1 || o.rounds > MAX_ROUNDS || o.mib < 1) {
        fprintf(stderr, "kernels: --rounds is 1 … %d, --mib at least 1\n", MAX_ROUNDS);
        return 2;
    }
    lily_err e;
    lily_float_flush();
    if (lily_pool_open(&o.pool, threads, &e) != LILY_OK) {
        fprintf(stderr, "kernels: %s\n", e.text);
        return 1;
    }
    printf("%u threads\n", lily_pool_threads(o.pool));
    for (size_t b = 0; b < sizeof benches / sizeof *benches; b++)
        if (!any || wanted[b]) benches[b].run(&o);
    lily_pool_close(o.pool);
    return 0;
}
