/* products.c - matrices times the activations of a run, cut into row tiles over the pool. */
#include "device/cpu/cpu.h"

enum { FEW_TOKENS = 4 }; /* so many are done before a second thread is awake */

void cpu_each_token(const lily_run *r, uint32_t n, lily_pool_fn *fn, void *context)
{
    if (n < FEW_TOKENS)
        fn(context, 0, n, 0);
    else
        lily_pool_for(r->dev->pool, n, (n + 63) / 64, fn, context);
}

size_t cpu_packed_bytes(const lily_dev *d, uint32_t cols, size_t n)
{
    return cpu_piece(cpu_kernels(d)->packed_bytes(cols) * n);
}

typedef struct packing {
    const lily_cpu_kernels *k;
    const float *x;
    uint8_t *packed;
    uint32_t cols;
} packing;

static void pack_tokens(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    const packing *p = context;
    size_t bytes = p->k->packed_bytes(p->cols);
    for (uint32_t t = begin; t < end; t++)
        p->k->pack(p->x + (size_t)t * p->cols, p->cols, p->packed + t * bytes);
}

void cpu_pack(const lily_run *r, const float *x, uint32_t cols, uint32_t n, void *packed)
{
    packing p = {r->dev->k, x, packed, cols};
    cpu_each_token(r, n, pack_tokens, &p);
}

typedef struct products {
    const lily_cpu_kernels *k;
    const cpu_target *targets;
    uint32_t n_targets, tokens;
    lily_cpu_act act;
} products;

static uint32_t tiles_of(const lily_matrix *w)
{
    return (w->rows + CPU_ROWS_AT_ONCE - 1) / CPU_ROWS_AT_ONCE;
}

/* Items are the row tiles of all targets, one target after the other. */
static void product_tiles(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    const products *p = context;
    for (uint32_t i = 0; i < p->n_targets && end > 0; i++) {
        const cpu_target *to = &p->targets[i];
        uint32_t tiles = tiles_of(to->w), last = end < tiles ? end : tiles;
        if (begin < last) {
            uint32_t row0 = begin * CPU_ROWS_AT_ONCE, row1 = last * CPU_ROWS_AT_ONCE;
            if (row1 > to->w->rows) row1 = to->w->rows;
            p->k->matmul(to->w, row0, row1, &p->act, NULL, p->tokens, to->out + row0, to->stride);
        }
        begin = begin > tiles ? begin - tiles : 0;
        end = end > tiles ? end - tiles : 0;
    }
}

void cpu_products(const lily_run *r, const float *x, uint32_t tokens, const cpu_target *targets, uint32_t n,
                  void *packed)
{
    products p = {r->dev->k, targets, n, tokens, {x, packed}};
    uint32_t tiles = 0;
    bool four_bits = false;
    for (uint32_t i = 0; i < n; i++) {
        tiles += tiles_of(targets[i].w);
        four_bits |= targets[i].w->bits == 4;
    }
    if (four_bits) cpu_pack(r, x, targets[0].w->cols, tokens, packed);
    lily_pool_for(r->dev->pool, tiles, 1, product_tiles, &p);
}
