/* weights.c - from the mapped checkpoint to the device: placed, copied through pinned memory, repacked there. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "device/cpu/pool.h"
#include "device/cuda/cuda.h"

/* One thread copies 4 to 5 GB/s out of the page cache, less than the card takes. */
enum { ALIGN = 256, PIECE = 32 << 20, PIECES = 3, GRAIN = 256 << 10, MOST_THREADS = 8 };

/* ---- what can be packed ---- */

static bool in_groups(const lily_matrix *m, bool eight_too)
{
    return m->group == 64 && m->cols % CUDA_CHUNK_COLS == 0 && (m->bits == 4 || (eight_too && m->bits == 8));
}

static bool product_fits(const lily_matrix *m) { return in_groups(m, false) && m->cols <= CUDA_GEMV_COLS; }

static bool layer_is_packed(const lily_layer *y, bool attention)
{
    bool mixer = attention ? product_fits(&y->q) && product_fits(&y->k) && product_fits(&y->v) && product_fits(&y->o)
                           : product_fits(&y->qkv) && product_fits(&y->z) && product_fits(&y->b) &&
                                 product_fits(&y->a) && product_fits(&y->out);
    return mixer && in_groups(&y->router, true) && in_groups(&y->shared_gate, true) && product_fits(&y->sh_gate) &&
           product_fits(&y->sh_up) && product_fits(&y->sh_down) && product_fits(&y->ex_gate) &&
           product_fits(&y->ex_up) && product_fits(&y->ex_down);
}

static uint32_t blocks_of(uint32_t rows) { return (rows + CUDA_BLOCK_ROWS - 1) / CUDA_BLOCK_ROWS; }

/* The rows of one token hold what a block of threads has of its matrices in shared memory. */
static bool token_fits(const lily_config *c)
{
    const uint32_t conv = blocks_of(lily_conv_width(c)) + blocks_of(lily_value_width(c)) + 2 * blocks_of(c->lin_v_heads);
    const uint32_t attention = blocks_of(2 * lily_q_width(c)) + 2 * blocks_of(lily_kv_width(c));
    return conv <= CUDA_GEMV_BLOCKS && attention <= CUDA_GEMV_BLOCKS && c->hidden % 16 == 0 && c->hidden <= 2048 &&
           c->experts <= 256 && c->top_k <= 16 && c->expert_inter % 8 == 0 && c->shared_inter % 8 == 0 &&
           c->top_k * (c->expert_inter / 8) <= 132 * 4 &&
           c->top_k * c->expert_inter + c->shared_inter <= 8192;
}

bool cuda_is_packed(const lily_model *m)
{
    bool all = token_fits(m->config);
    for (uint32_t i = 0; all && i < m->config->layers; i++)
        all = layer_is_packed(&m->layer[i], m->config->full_attention[i]);
    return all;
}

/* ---- placing and filling ---- */

/* Walks over all weights twice: first to count bytes (base NULL), then to fill them. */
typedef struct loader {
    lily_dev *dev;
    lily_pool *pool;            /* copies into pinned memory */
    uint8_t *base;
    size_t at, all;             /* bytes placed so far, and in the end */
    uint8_t *pinned[PIECES], *staging[PIECES];
    cudaEvent_t used[PIECES];
    unsigned turn;
} loader;

static uint8_t *take(loader *l, size_t bytes)
{
    l->at = (l->at + ALIGN - 1) / ALIGN * ALIGN;
    size_t at = l->at;
    l->at += bytes;
    return l->base ? l->base + at : NULL;
}

typedef struct copy {
    uint8_t *to;
    const uint8_t *from;
    size_t n;
} copy;

static void copy_grains(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    const copy *c = context;
    const size_t at = (size_t)begin * GRAIN, stop = (size_t)end * GRAIN < c->n ? (size_t)end * GRAIN : c->n;
    memcpy(c->to + at, c->from + at, stop - at);
}

/* n bytes through the next pinned buffer to the device, to `to` or (NULL) to its staging buffer, from offset `at` of it. */
static int send(loader *l, uint8_t *to, size_t at, const uint8_t *from, size_t n, lily_err *e)
{
    copy c = {l->pinned[l->turn] + at, from, n};
    lily_pool_for(l->pool, (uint32_t)((n + GRAIN - 1) / GRAIN), 1, copy_grains, &c);
    CU(cudaMemcpyAsync(to ? to : l->staging[l->turn] + at, l->pinned[l->turn] + at, n, cudaMemcpyHostToDevice, l->dev->stream));
    return LILY_OK;
}

static int next_piece(loader *l, lily_err *e)
{
    l->turn = (l->turn + 1) % PIECES;
    CU(cudaEventSynchronize(l->used[l->turn]));
    return LILY_OK;
}

static int end_piece(loader *l, lily_err *e)
{
    if (l->dev->loading && l->all) l->dev->loading(l->dev->loading_user, (double)l->at / (double)l->all);
    CU(cudaEventRecord(l->used[l->turn], l->dev->stream));
    return LILY_OK;
}

static int send_all(loader *l, uint8_t *to, const uint8_t *from, size_t n, lily_err *e)
{
    for (size_t at = 0; at < n; at += PIECE) {
        size_t some = n - at < PIECE ? n - at : PIECE;
        TRY(next_piece(l, e));
        TRY(send(l, to + at, 0, from + at, some, e));
        TRY(end_piece(l, e));
    }
    return LILY_OK;
}

static int load_vector(loader *l, lily_vector v, size_t n, float **out, lily_err *e)
{
    *out = (float *)(void *)take(l, n * sizeof(float));
    return l->base ? send_all(l, (uint8_t *)*out, (const uint8_t *)v, n * sizeof(float), e) : LILY_OK;
}

static int load_raw(loader *l, const lily_matrix *m, cuda_matrix *out, lily_err *e)
{
    const size_t rows = (size_t)m->experts * m->rows, codes = lily_row_bytes(m), groups = 2 * (size_t)lily_row_groups(m);
    *out = (cuda_matrix){.experts = m->experts, .rows = m->rows, .cols = m->cols, .bits = m->bits, .group = m->group};
    uint8_t *c = take(l, rows * codes), *s = take(l, rows * groups), *b = take(l, rows * groups);
    out->codes = c, out->scales = s, out->biases = b;
    for (uint32_t i = 0; l->base && i < m->experts; i++) {
        const lily_matrix one = lily_expert(m, i);
        const size_t row = (size_t)i * m->rows;
        TRY(send_all(l, c + row * codes, one.codes, m->rows * codes, e));
        if (!m->group) continue;
        TRY(send_all(l, s + row * groups, one.scales, m->rows * groups, e));
        TRY(send_all(l, b + row * groups, one.biases, m->rows * groups, e));
    }
    return LILY_OK;
}

/* A matrix, or experts that lie one behind the other, in pieces that a staging buffer holds. */
static int pack_rows(loader *l, const lily_matrix *m, uint32_t rows, uint8_t *chunks, uint16_t layout, lily_err *e)
{
    const size_t codes = lily_row_bytes(m), groups = 2 * (size_t)lily_row_groups(m);
    const uint32_t most = (uint32_t)(PIECE / (codes + 2 * groups)) / 16 * 16;
    for (uint32_t row = 0; row < rows; row += most) {
        const uint32_t n = rows - row < most ? rows - row : most;
        TRY(next_piece(l, e));
        TRY(send(l, NULL, 0, m->codes + row * codes, n * codes, e));
        TRY(send(l, NULL, n * codes, m->scales + row * groups, n * groups, e));
        TRY(send(l, NULL, n * (codes + groups), m->biases + row * groups, n * groups, e));
        const uint8_t *at = l->staging[l->turn];
        const cuda_repack_args a = {at, at + n * codes, at + n * (codes + groups), chunks, row, n, m->cols, m->bits, layout};
        CU(cuda_repack(&a, l->dev->stream));
        TRY(end_piece(l, e));
    }
    return LILY_OK;
}

static int fill_packed(loader *l, const lily_matrix *m, const cuda_matrix *to, lily_err *e)
{
    const uint32_t unit = to->layout == CUDA_PACKED ? 16 : 8;
    const size_t expert = (size_t)to->blocks * (m->cols / CUDA_CHUNK_COLS) * CUDA_CHUNK_BYTES(m->bits);
    uint8_t *chunks = (uint8_t *)(uintptr_t)to->codes;
    if (m->step == m->rows && m->rows % unit == 0) return pack_rows(l, m, m->experts * m->rows, chunks, to->layout, e);
    for (uint32_t i = 0; i < m->experts; i++) {
        const lily_matrix one = lily_expert(m, i);
        TRY(pack_rows(l, &one, m->rows, chunks + i * expert, to->layout, e));
    }
    return LILY_OK;
}

static cuda_matrix packed_as(const lily_matrix *m, uint16_t layout)
{
    const uint32_t blocks = layout == CUDA_PACKED ? blocks_of(m->rows) : (m->rows + 7) / 8;
    return (cuda_matrix){.experts = m->experts, .rows = m->rows, .cols = m->cols, .blocks = blocks, .bits = m->bits,
                         .group = m->group, .layout = layout};
}

static size_t packed_bytes(const cuda_matrix *m)
{
    return (size_t)m->experts * m->blocks * (m->cols / CUDA_CHUNK_COLS) * CUDA_CHUNK_BYTES(m->bits);
}

/* Matrices whose chunks lie one behind the other, so that one product serves all, or each as it comes. */
static int load_row(loader *l, const lily_matrix *const *m, cuda_matrix *const *out, unsigned n, bool eight_too, lily_err *e)
{
    bool pack = true;
    size_t bytes = 0;
    for (unsigned i = 0; i < n; i++) pack &= in_groups(m[i], eight_too);
    if (!pack) {
        for (unsigned i = 0; i < n; i++) TRY(load_raw(l, m[i], out[i], e));
        return LILY_OK;
    }
    for (unsigned i = 0; i < n; i++) {
        *out[i] = packed_as(m[i], CUDA_PACKED);
        bytes += packed_bytes(out[i]);
    }
    uint8_t *at = take(l, bytes);
    for (unsigned i = 0; l->base && i < n; i++) {
        out[i]->codes = at;
        at += packed_bytes(out[i]);
        TRY(fill_packed(l, m[i], out[i], e));
    }
    return LILY_OK;
}

static int load_matrix(loader *l, const lily_matrix *m, cuda_matrix *out, bool eight_too, lily_err *e)
{
    return load_row(l, &m, &out, 1, eight_too, e);
}

static int load_pair(loader *l, const lily_matrix *first, const lily_matrix *second, cuda_matrix *a, cuda_matrix *b,
                     lily_err *e)
{
    if (!in_groups(first, false) || !in_groups(second, false)) {
        TRY(load_raw(l, first, a, e));
        return load_raw(l, second, b, e);
    }
    *a = packed_as(first, CUDA_PAIR_FIRST);
    *b = packed_as(second, CUDA_PAIR_SECOND);
    a->codes = b->codes = take(l, packed_bytes(a));
    if (!l->base) return LILY_OK;
    TRY(fill_packed(l, first, a, e));
    return fill_packed(l, second, b, e);
}

static int load_mixer(loader *l, const lily_config *c, const lily_layer *m, bool attention, cuda_layer *y, lily_err *e)
{
    if (attention) {
        const lily_matrix *in[] = {&m->q, &m->k, &m->v};
        cuda_matrix *to[] = {&y->q, &y->k, &y->v};
        TRY(load_row(l, in, to, 3, false, e));
        TRY(load_matrix(l, &m->o, &y->o, false, e));
        TRY(load_vector(l, m->norm_q, c->head_dim, &y->norm_q, e));
        return load_vector(l, m->norm_k, c->head_dim, &y->norm_k, e);
    }
    const lily_matrix *in[] = {&m->qkv, &m->z, &m->b, &m->a};
    cuda_matrix *to[] = {&y->qkv, &y->z, &y->b, &y->a};
    TRY(load_row(l, in, to, 4, false, e));
    TRY(load_matrix(l, &m->out, &y->out, false, e));
    TRY(load_vector(l, m->conv, (size_t)lily_conv_width(c) * c->conv_kernel, &y->conv, e));
    TRY(load_vector(l, m->decay, c->lin_v_heads, &y->decay, e));
    TRY(load_vector(l, m->dt_bias, c->lin_v_heads, &y->dt_bias, e));
    return load_vector(l, m->norm_gated, c->lin_v_dim, &y->norm_gated, e);
}

static int load_layer(loader *l, const lily_config *c, const lily_layer *m, bool attention, cuda_layer *y, lily_err *e)
{
    TRY(load_vector(l, m->norm_mix, c->hidden, &y->norm_mix, e));
    TRY(load_vector(l, m->norm_post, c->hidden, &y->norm_post, e));
    TRY(load_mixer(l, c, m, attention, y, e));
    const lily_matrix *route[] = {&m->router, &m->shared_gate};
    cuda_matrix *to[] = {&y->router, &y->shared_gate};
    TRY(load_row(l, route, to, 2, true, e));
    TRY(load_pair(l, &m->sh_gate, &m->sh_up, &y->sh_gate, &y->sh_up, e));
    TRY(load_matrix(l, &m->sh_down, &y->sh_down, false, e));
    TRY(load_pair(l, &m->ex_gate, &m->ex_up, &y->ex_gate, &y->ex_up, e));
    return load_matrix(l, &m->ex_down, &y->ex_down, false, e);
}

static int load_everything(loader *l, const lily_model *m, lily_weights *w, lily_err *e)
{
    const lily_config *c = m->config;
    const uint32_t half = c->rotary / 2;
    double frequency[512];
    if (half > sizeof frequency / sizeof *frequency)
        return lily_fail(e, LILY_UNSUPPORTED, "cuda: a rotation of %u values is wider than %zu", c->rotary, 2 * sizeof frequency / sizeof *frequency);
    for (uint32_t i = 0; i < half; i++) frequency[i] = pow(c->rope_theta, -2.0 * i / c->rotary);
    w->frequency = (double *)(void *)take(l, half * sizeof(double));
    if (l->base) TRY(send_all(l, (uint8_t *)w->frequency, (const uint8_t *)frequency, half * sizeof(double), e));
    TRY(load_vector(l, m->norm_final, c->hidden, &w->norm_final, e));
    for (uint32_t i = 0; i < c->layers; i++)
        TRY(load_layer(l, c, &m->layer[i], c->full_attention[i], &w->layer[i], e));
    TRY(load_matrix(l, &m->embed, &w->embed, false, e));
    if (c->tied)
        w->head = w->embed;
    else
        TRY(load_matrix(l, &m->head, &w->head, false, e));
    return LILY_OK;
}

uint64_t cuda_load_bytes(const lily_model *m)
{
    loader l = {0};
    lily_weights w = {.layer = lily_calloc(m->config->layers, sizeof *w.layer)};
    lily_err ignored;
    if (w.layer) (void)load_everything(&l, m, &w, &ignored);
    lily_free(w.layer);
    return l.at;
}

/* ---- life ---- */

static int open_loader(loader *l, lily_dev *d, lily_err *e)
{
    const unsigned cores = lily_physical_cores();
    l->dev = d;
    TRY(lily_pool_open(&l->pool, cores < MOST_THREADS ? cores : MOST_THREADS, e));
    for (int i = 0; i < PIECES; i++) {
        CU(cudaMallocHost((void **)&l->pinned[i], PIECE));
        CU(cudaMalloc((void **)&l->staging[i], PIECE));
        CU(cudaEventCreateWithFlags(&l->used[i], cudaEventDisableTiming));
    }
    return LILY_OK;
}

static void close_loader(loader *l)
{
    cudaStreamSynchronize(l->dev->stream);
    for (int i = 0; i < PIECES; i++) {
        cudaFreeHost(l->pinned[i]);
        cudaFree(l->staging[i]);
        if (l->used[i]) cudaEventDestroy(l->used[i]);
    }
    lily_pool_close(l->pool);
}

static int check_sizes(const lily_config *c, lily_err *e)
{
    if (c->lin_k_dim > 256 || c->head_dim > 256)
        return lily_fail(e, LILY_UNSUPPORTED, "cuda: heads of %u and %u are wider than 256", c->lin_k_dim, c->head_dim);
    return LILY_OK;
}

static int fill(lily_dev *d, const lily_model *m, lily_weights *w, lily_err *e)
{
    loader l = {0};
    w->bytes = cuda_load_bytes(m);
    CU(cudaMalloc((void **)&w->memory, w->bytes));
    int rc = open_loader(&l, d, e);
    l.base = w->memory;
    l.all = w->bytes;
    if (rc == LILY_OK) rc = load_everything(&l, m, w, e);
    close_loader(&l);
    TRY(rc);
    CU(cudaStreamSynchronize(d->stream));
    return LILY_OK;
}

int cuda_load(lily_dev *d, const lily_model *m, lily_weights **out, lily_err *e)
{
    const lily_config *c = m->config;
    *out = NULL;
    TRY(check_sizes(c, e));
    lily_weights *w = lily_calloc(1, sizeof *w);
    if (!w) return lily_no_memory(e, sizeof *w, "weights");
    w->model = m;
    w->nth = lily_calloc(c->layers, sizeof *w->nth);
    w->layer = lily_calloc(c->layers, sizeof *w->layer);
    int rc = w->nth && w->layer ? LILY_OK : lily_no_memory(e, c->layers * sizeof *w->layer, "weights");
    for (uint32_t i = 0; rc == LILY_OK && i < c->layers; i++)
        w->nth[i] = (uint16_t)(c->full_attention[i] ? w->n_attention++ : w->n_delta++);
    if (rc == LILY_OK) rc = fill(d, m, w, e);
    if (rc != LILY_OK) {
        cuda_unload(d, w);
        return rc;
    }
    d->packed = cuda_is_packed(m);
    *out = w;
    return LILY_OK;
}

void cuda_unload(lily_dev *d, lily_weights *w)
{
    (void)d;
    if (!w) return;
    cudaFree(w->memory);
    lily_free(w->nth);
    lily_free(w->layer);
    lily_free(w);
}
