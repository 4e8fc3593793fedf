/* products.c - which kernel multiplies: packed chunks with one vector, with many, or any matrix plainly. */
#include "device/cuda/cuda.h"

static bool has_norm_tail(const cuda_run *r, unsigned slot)
{
    return r->plan->max_tokens == 1 && (slot == SLOT_N || slot == SLOT_M);
}

static const float *squares_of(const cuda_run *r, unsigned slot)
{
    return slot == SLOT_DNG && cuda_leaves_squares(r->plan) ? cuda_floats(r, slot) + lily_value_width(r->config) : NULL;
}

/* One vector, on any card. */
static bool takes_plain(const cuda_run *r, const cuda_matrix *w)
{
    return !r->half && w->layout == CUDA_PACKED && w->cols <= CUDA_GEMV_COLS;
}

static bool takes_gemv(const cuda_run *r, const cuda_matrix *w)
{
    return r->dev->hopper && takes_plain(r, w) && w->bits == 4 && w->blocks <= CUDA_GEMV_BLOCKS;
}

static bool takes_gemm(const cuda_run *r, const cuda_matrix *w) { return r->half && w->layout == CUDA_PACKED; }

/* Room for a matrix as bf16, kept for the next one. */
static int expanded_room(lily_dev *d, size_t bytes, uint8_t **room, lily_err *e)
{
    if (bytes > d->expanded_bytes) {
        CU(cudaStreamSynchronize(d->stream));
        cudaFree(d->expanded);
        d->expanded = NULL;
        d->expanded_bytes = 0;
        CU(cudaMalloc((void **)&d->expanded, bytes));
        d->expanded_bytes = bytes;
    }
    *room = d->expanded;
    return LILY_OK;
}

int cuda_multiply(cuda_run *r, cuda_gemm *a, lily_err *e)
{
    a->hopper = r->dev->hopper;
    a->one_shape = r->plan->ablated & lily_bit(ABLATE_TILE_SELECT);
    if (a->bits == 4 && r->plan->ablated & lily_bit(ABLATE_FUSED_DEQUANT)) {
        const size_t chunks = (size_t)(a->experts ? a->experts : 1) * a->blocks * (a->cols / CUDA_CHUNK_COLS);
        TRY(expanded_room(r->dev, chunks * CUDA_EXPANDED, &a->expanded, e));
    }
    CU(cuda_gemm_many(a, r->dev->stream));
    return LILY_OK;
}

cuda_gemv cuda_gemv_of(const cuda_run *r, const cuda_matrix *w, unsigned in)
{
    return (cuda_gemv){.chunks = w->codes, .cols = w->cols, .blocks = w->blocks, .in = cuda_floats(r, in),
                       .squares = squares_of(r, in), .norm_tail = has_norm_tail(r, in), .patient = cuda_is_patient(r),
                       .eps = r->config->eps};
}

/* squares: of the heads of `in`, or NULL. */
static int project(cuda_run *r, const cuda_matrix *w, const void *in, bool norm_tail, const float *squares, uint32_t n,
                   float *out, size_t stride, size_t at, lily_err *e)
{
    cudaStream_t s = r->dev->stream;
    if (takes_plain(r, w) && n == 1) {
        const cuda_gemv a = {.chunks = w->codes, .cols = w->cols, .blocks = w->blocks, .n_sections = 1, .in = in,
                             .section = {{out + at, 0, w->rows}}, .squares = squares, .norm_tail = norm_tail, .patient = cuda_is_patient(r),
                             .eps = r->config->eps};
        CU(takes_gemv(r, w) ? cuda_gemv_plain(&a, cuda_overlaps(r), s) : cuda_gemv_any(&a, w->bits, s));
    } else if (takes_gemm(r, w)) {
        cuda_gemm a = {.chunks = w->codes, .cols = w->cols, .blocks = w->blocks, .n_sections = 1, .in = in, .n = n,
                       .section = {{out + at, 0, w->rows}}, .stride = {stride}, .bits = w->bits};
        TRY(cuda_multiply(r, &a, e));
    } else {
        const cuda_product_args a = {.w = *w, .in = in, .out = out, .in_stride = w->cols, .out_stride = stride, .out_at = at,
                                     .n = n, .divide = 1, .eps = r->config->eps, .half = r->half, .norm_tail = norm_tail,
                                     .squares = squares};
        CU(cuda_product(&a, s));
    }
    return LILY_OK;
}

int cuda_project_from(cuda_run *r, const cuda_matrix *w, const void *in, bool norm_tail, uint32_t n, float *out,
                      size_t stride, size_t at, lily_err *e)
{
    return project(r, w, in, norm_tail, NULL, n, out, stride, at, e);
}

int cuda_project(cuda_run *r, const cuda_matrix *w, unsigned in, float *out, size_t stride, size_t at, lily_err *e)
{
    return project(r, w, cuda_slot(r, in), has_norm_tail(r, in), squares_of(r, in), r->tokens, out, stride, at, e);
}

int cuda_project_row(cuda_run *r, const cuda_target *targets, uint32_t n, unsigned in, lily_err *e)
{
    const uint16_t bits = targets[0].w->bits;
    bool together = n > 1;
    for (uint32_t i = 0; i < n; i++)
        together &= (takes_gemm(r, targets[i].w) || takes_plain(r, targets[i].w)) && targets[i].w->bits == bits;
    if (!together) {
        for (uint32_t i = 0; i < n; i++) TRY(cuda_project(r, targets[i].w, in, targets[i].out, targets[i].stride, 0, e));
        return LILY_OK;
    }
    cuda_gemv v = cuda_gemv_of(r, targets[0].w, in);
    cuda_gemm m = {.chunks = v.chunks, .cols = v.cols, .in = cuda_slot(r, in), .n = r->tokens, .bits = bits};
    v.n_sections = m.n_sections = n;
    v.blocks = 0;
    for (uint32_t i = 0; i < n; i++) {
        v.section[i] = m.section[i] = (cuda_section){targets[i].out, v.blocks, targets[i].w->rows};
        m.stride[i] = targets[i].stride;
        v.blocks += targets[i].w->blocks;
    }
    m.blocks = v.blocks;
    if (r->half)
        TRY(cuda_multiply(r, &m, e));
    else if (r->dev->hopper && bits == 4 && v.blocks <= CUDA_GEMV_BLOCKS)
        CU(cuda_gemv_plain(&v, cuda_overlaps(r), r->dev->stream));
    else
        CU(cuda_gemv_any(&v, bits, r->dev->stream));
    return LILY_OK;
}
