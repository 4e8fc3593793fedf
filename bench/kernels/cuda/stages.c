/* stages.c - what each row of a prompt takes inside the model, by events on the stream between stages, and the dense
 * products of it against cuBLAS on bf16 weights of the same shape, alone and alternating with the model in one process.
 *
 *   stages MODEL [LAYERS [ROUNDS]]      the first LAYERS of the checkpoint (8) as a whole model
 *
 * One JSON line a row and length; rows that multiply have tflops, cublas_tflops and their ratio. */
#include <cublas_v2.h>
#include <dlfcn.h>
#include <string.h>

#include "check.h"
#include "base/mem.h"
#include "checkpoint/checkpoint.h"
#include "device/cuda/cuda.h"

enum { CHUNK = 4096, MAX_ROUNDS = 100, MAX_ROWS = 128, BLAS_RUNS = 4 };

typedef cublasStatus_t gemm_fn(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *, const void *,
                               cudaDataType, int, const void *, cudaDataType, int, const void *, void *, cudaDataType, int,
                               cublasComputeType_t, cublasGemmAlgo_t);

typedef struct blas {
    cublasHandle_t handle;
    gemm_fn *gemm;              /* NULL: cuBLAS is not there */
    void *w, *x, *y, *room;
    cudaEvent_t from, to;
} blas;

/* ---- cuBLAS ---- */

static void *symbol(void *lib, const char *name)
{
    void *p = dlsym(lib, name);
    if (!p) fprintf(stderr, "cuBLAS has no %s\n", name);
    return p;
}

/* Bytes that look like bf16 numbers of both signs around 1: zeros would be multiplied faster. */
static void fill(void *to, size_t n)
{
    uint16_t *host = malloc(n * sizeof *host);
    uint32_t seed = 1;
    for (size_t i = 0; host && i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        host[i] = (uint16_t)(0x3F00 | (seed >> 16 & 0x80FF));
    }
    CHECK(cudaMemcpy(to, host, n * sizeof *host, cudaMemcpyHostToDevice));
    free(host);
}

static void open_blas(blas *b, cudaStream_t stream)
{
    enum { WIDEST = 16384, DEEPEST = 4096, ROOM = 64 << 20 };
    *b = (blas){0};
    void *lib = dlopen("libcublas.so.13", RTLD_NOW);
    if (!lib) lib = dlopen("libcublas.so.12", RTLD_NOW);
    if (!lib) {
        fprintf(stderr, "without cuBLAS: %s\n", dlerror());
        return;
    }
    cublasStatus_t (*create)(cublasHandle_t *), (*set)(cublasHandle_t, cudaStream_t), (*space)(cublasHandle_t, void *, size_t);
    *(void **)&create = symbol(lib, "cublasCreate_v2");
    *(void **)&set = symbol(lib, "cublasSetStream_v2");
    *(void **)&space = symbol(lib, "cublasSetWorkspace_v2");
    *(void **)&b->gemm = symbol(lib, "cublasGemmEx");
    CHECK(cudaMalloc(&b->w, 2ull * WIDEST * DEEPEST));
    CHECK(cudaMalloc(&b->x, 2ull * CHUNK * DEEPEST));
    CHECK(cudaMalloc(&b->y, 2ull * CHUNK * WIDEST));
    CHECK(cudaMalloc(&b->room, ROOM));
    fill(b->w, (size_t)WIDEST * DEEPEST);
    fill(b->x, (size_t)CHUNK * DEEPEST);
    CHECK(create(&b->handle));
    CHECK(set(b->handle, stream));
    CHECK(space(b->handle, b->room, ROOM));
    CHECK(cudaEventCreate(&b->from));
    CHECK(cudaEventCreate(&b->to));
}

/* Milliseconds of one product, after one that is not counted. */
static float time_blas(const blas *b, int rows, int cols, int n, cudaStream_t stream)
{
    const float one = 1, zero = 0;
    float ms = 0;
    for (int i = 0; i <= BLAS_RUNS; i++) {
        if (i == 1) CHECK(cudaEventRecord(b->from, stream));
        CHECK(b->gemm(b->handle, CUBLAS_OP_T, CUBLAS_OP_N, rows, n, cols, &one, b->w, CUDA_R_16BF, cols, b->x, CUDA_R_16BF, cols, &zero,
                      b->y, CUDA_R_16BF, rows, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    }
    CHECK(cudaEventRecord(b->to, stream));
    CHECK(cudaEventSynchronize(b->to));
    CHECK(cudaEventElapsedTime(&ms, b->from, b->to));
    return ms / BLAS_RUNS;
}

/* ---- the model ---- */

typedef struct model {
    lily_ckpt *ckpt;
    lily_model_config *file;
    lily_model *all;
    lily_config config;
    lily_model part;
    lily_dev *dev;
    lily_weights *weights;
    lily_plan *plan;
    lily_exec *exec;
    lily_state *state;
    cudaEvent_t *event;         /* [n_stages + 1] */
} model;

static void open_model(model *m, const char *dir, uint32_t layers)
{
    CHECK(lily_ckpt_open(&m->ckpt, dir, &failure));
    CHECK(lily_config_open(&m->file, dir, &failure));
    CHECK(lily_model_open(&m->all, m->ckpt, m->file, &failure));
    m->config = *m->all->config;
    m->part = *m->all;
    m->part.config = &m->config;
    if (layers < m->config.layers) m->config.layers = layers;
    CHECK(lily_dev_cuda.open(&m->dev, &(lily_dev_options){0}, &failure));
    CHECK(lily_dev_cuda.load(m->dev, &m->part, &m->weights, &failure));
    const lily_plan_device d = lily_device_for_plan(&lily_dev_cuda, m->dev);
    const lily_plan_ask ask = {.mode = LILY_PREFILL, .max_tokens = CHUNK, .max_context = CHUNK};
    CHECK(lily_plan_make(&m->plan, &d, &m->config, &ask, &failure));
    CHECK(lily_dev_cuda.prepare(m->dev, m->weights, m->plan, &m->exec, &failure));
    CHECK(lily_dev_cuda.state_new(m->dev, m->weights, &m->state, &failure));
    CHECK(lily_dev_cuda.state_grow(m->dev, m->state, CHUNK, &failure));
    m->event = calloc(m->plan->n_stages + 1, sizeof *m->event);
    for (uint32_t i = 0; i <= m->plan->n_stages; i++) CHECK(cudaEventCreate(&m->event[i]));
    m->exec->stage_event = m->event;
}

/* A prompt of n tokens; what each row took, over all layers that have it, is added to ms[row]. */
static void run_prompt(model *m, uint32_t n, double *ms, uint32_t *count)
{
    int32_t *tokens = malloc(n * sizeof *tokens);
    for (uint32_t i = 0; tokens && i < n; i++) tokens[i] = (int32_t)(i * 7919u % m->config.vocab);
    CHECK(lily_dev_cuda.state_copy(m->dev, m->state, m->state, 0, &failure));
    const lily_lane lane = {.state = m->state, .tokens = tokens, .n_tokens = n};
    uint64_t ticket;
    lily_done done;
    CHECK(lily_dev_cuda.submit(m->dev, m->exec, LILY_FORWARD, LILY_FORWARD, &lane, 1, &ticket, &failure));
    CHECK(lily_dev_cuda.wait(m->dev, ticket, &done, 1, &failure));
    for (uint32_t i = 0; i < m->plan->segment_end[LILY_FORWARD]; i++) {
        float took;
        CHECK(cudaEventElapsedTime(&took, m->event[i], m->event[i + 1]));
        ms[m->plan->stages[i].row] += (double)took;
        count[m->plan->stages[i].row]++;
    }
    free(tokens);
}

/* Rows and columns of the dense products; 0 for other rows. */
static int product_of(const lily_config *c, const char *row, int *cols)
{
    *cols = (int)c->hidden;
    if (strcmp(row, "delta_in") == 0) return (int)(lily_conv_width(c) + lily_value_width(c) + 2 * c->lin_v_heads);
    if (strcmp(row, "attn_in") == 0) return (int)(2 * lily_q_width(c) + 2 * lily_kv_width(c));
    if (strcmp(row, "proj_out") == 0) return *cols = (int)lily_value_width(c), (int)c->hidden;
    if (strcmp(row, "proj_o") == 0) return *cols = (int)lily_q_width(c), (int)c->hidden;
    return 0;
}

static void measure(model *m, const blas *b, uint32_t n, int rounds)
{
    double ms[MAX_ROWS] = {0}, blas_ms[MAX_ROWS] = {0}, all = 0;
    uint32_t count[MAX_ROWS] = {0}, none[MAX_ROWS] = {0};
    double warm[MAX_ROWS] = {0};
    const size_t n_rows = lily_dev_cuda.n_rows < MAX_ROWS ? lily_dev_cuda.n_rows : MAX_ROWS;
    run_prompt(m, n, warm, none);
    for (int i = 0; i < rounds; i++) {
        run_prompt(m, n, ms, count);
        for (size_t r = 0; b->gemm && r < n_rows; r++) {
            int cols;
            const int rows = product_of(&m->config, lily_dev_cuda.rows[r].name, &cols);
            if (rows && count[r]) blas_ms[r] += (double)time_blas(b, rows, cols, (int)n, m->dev->stream) / rounds;
        }
    }
    for (size_t r = 0; r < n_rows; r++) all += ms[r];
    for (size_t r = 0; r < n_rows; r++) {
        if (!count[r]) continue;
        const char *name = lily_dev_cuda.rows[r].name;
        const double each = ms[r] / count[r];
        int cols;
        const int rows = product_of(&m->config, name, &cols);
        printf("{\"bench\": \"stages\", \"row\": \"%s\", \"tokens\": %u, \"ms\": %.4f, \"share\": %.4f", name, n, each, ms[r] / all);
        if (rows) printf(", \"rows\": %d, \"cols\": %d, \"tflops\": %.1f", rows, cols, 2e-9 * n * rows * cols / each);
        if (rows && b->gemm)
            printf(", \"cublas_tflops\": %.1f, \"of_cublas\": %.3f", 2e-9 * n * rows * cols / blas_ms[r], blas_ms[r] / each);
        printf("}\n");
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const uint32_t lengths[] = {512, 2048, 4096};
    if (argc < 2) {
        fprintf(stderr, "usage: stages MODEL [LAYERS [ROUNDS]]\n");
        return 2;
    }
    const int rounds = argc > 3 ? atoi(argv[3]) : 10;
    static model m;
    blas b;
    open_model(&m, argv[1], argc > 2 ? (uint32_t)atoi(argv[2]) : 8);
    open_blas(&b, m.dev->stream);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) measure(&m, &b, lengths[i], rounds < 1 ? 1 : rounds);
    return 0;
}
