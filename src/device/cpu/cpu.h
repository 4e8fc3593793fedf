/* cpu.h - the CPU device: the plan walked in order, each stage spread over a pool of threads.
 *
 * Weights are read where the checkpoint is mapped.  Activations are f32 [T][width] in the plan's slots; a row
 * packs its inputs for 4-bit products into its own workspace (kernels/kernels.h).  Every row gives a token the
 * same bits however tokens are cut into runs: kernels do, and work is never summed in the order in which
 * threads finish. */
#ifndef LILY_DEVICE_CPU_CPU_H
#define LILY_DEVICE_CPU_CPU_H

#include "device/cpu/kernels/kernels.h"
#include "device/cpu/pool.h"
#include "device/host/run.h"

struct lily_dev {
    const lily_cpu_kernels *k;
    lily_pool *pool;
    lily_newest newest;
};

/* ---- keys and values ---- */

#define CPU_PAGE 256u           /* positions of a KV page, a multiple of LILY_CPU_KV_TILE */

/* Keys and values of all attention layers for CPU_PAGE positions: bf16 [layer][K, V][Hk][CPU_PAGE][D].
 * Shared by the states that branched after it; copied before a shared one is written. */
typedef struct cpu_page {
    uint32_t refs;
    uint16_t rows[];
} cpu_page;

struct lily_kv {
    cpu_page **page;            /* [n_pages] */
    uint32_t n_pages;
};

struct lily_exec {
    const lily_weights *weights;
    lily_scratch scratch;
    float *rope;                /* [max_tokens][2][R/2] cosines, then sines, of the run at hand */
    lily_watch_fn *watch;       /* may be NULL */
    void *watch_arg;
};

/* ---- what rows use ---- */

static inline uint8_t *cpu_workspace(const lily_run *r) { return run_workspace(r); }

static inline const lily_layer *cpu_layer(const lily_run *r, uint16_t layer) { return &r->model->layer[layer]; }

static inline bool cpu_does(const lily_run *r, enum lily_step step) { return r->stage->steps & lily_bit(step); }

/* A piece of a workspace: its size rounded up so that the next is aligned too. */
static inline size_t cpu_piece(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

static inline void *cpu_take(uint8_t **at, size_t bytes)
{
    void *piece = *at;
    *at += cpu_piece(bytes);
    return piece;
}

/* Threads and kernels that a plan is made for; the device may not be open yet. */
unsigned cpu_threads(const lily_dev *d);
const lily_cpu_kernels *cpu_kernels(const lily_dev *d);

/* ---- read_rate.c ---- */
double cpu_read_rate(lily_dev *, const lily_weights *);

/* ---- products.c ---- */

/* A product of a stage: out[t * stride + r] = W[r] . in[t]. */
typedef struct cpu_target {
    const lily_matrix *w;
    float *out;
    size_t stride;
} cpu_target;

enum { CPU_MAX_TARGETS = 4, CPU_ROWS_AT_ONCE = LILY_CPU_ROW_TILE };

/* All targets for x [T][cols of the targets]; `packed` has room for T packed vectors. */
void cpu_products(const lily_run *r, const float *x, uint32_t tokens, const cpu_target *targets, uint32_t n,
                  void *packed);
/* Packs n vectors, on all threads when they are many. */
void cpu_pack(const lily_run *r, const float *x, uint32_t cols, uint32_t n, void *packed);
size_t cpu_packed_bytes(const lily_dev *d, uint32_t cols, size_t n);

/* fn(context, t0, t1, thread) for tokens t0 … t1 of n; on the calling thread alone when they are few. */
void cpu_each_token(const lily_run *r, uint32_t n, lily_pool_fn *fn, void *context);

/* Rows of H values from slot to slot (head.c). */
void cpu_norm(const lily_run *r, unsigned from, unsigned to, lily_vector weight);

/* ---- rows: the functions of CPU_ROWS in cpu.c ---- */

typedef int cpu_row_fn(lily_run *r, uint16_t layer, lily_err *e);
typedef size_t cpu_workspace_fn(const lily_dev *, const lily_config *, uint32_t tokens, uint32_t context);

/* head.c */
cpu_row_fn cpu_embed, cpu_norm_next, cpu_head, cpu_sample, cpu_commit;
cpu_workspace_fn cpu_head_workspace, cpu_sample_workspace;

/* mixer_delta.c: each runs the steps of its row that the planner gave it */
cpu_row_fn cpu_delta_in, cpu_conv, cpu_qk_l2, cpu_gates, cpu_gdn, cpu_gnorm, cpu_delta_scan, cpu_proj_out, cpu_add_mix;
cpu_workspace_fn cpu_hidden_workspace, cpu_gdn_workspace, cpu_scan_workspace, cpu_value_workspace;

/* mixer_attention.c */
cpu_row_fn cpu_attn_in, cpu_qk_rope, cpu_kv_append, cpu_attn, cpu_o_gate, cpu_proj_o;
cpu_workspace_fn cpu_rope_workspace, cpu_attn_workspace, cpu_query_workspace;

/* experts.c */
cpu_row_fn cpu_norm_post, cpu_router, cpu_topk, cpu_route_count, cpu_route_offsets, cpu_route_scatter, cpu_exp_up,
    cpu_exp_act, cpu_exp_down, cpu_sh_up, cpu_sh_act, cpu_sh_down, cpu_sh_gate, cpu_combine, cpu_experts_up,
    cpu_experts_down;
cpu_workspace_fn cpu_scatter_workspace, cpu_exp_up_workspace, cpu_exp_down_workspace, cpu_sh_down_workspace,
    cpu_experts_up_workspace, cpu_experts_down_workspace;

/* ---- state.c ---- */

/* Keys (which 0) or values (1) of one head of an attention layer in a page: [CPU_PAGE][D]. */
uint16_t *cpu_page_rows(const lily_weights *w, cpu_page *page, uint16_t layer, unsigned which, uint32_t head);

int cpu_state_new(lily_dev *, const lily_weights *, lily_state **, lily_err *);
void cpu_state_free(lily_dev *, lily_state *);
int cpu_state_grow(lily_dev *, lily_state *, uint32_t context, lily_err *);
int cpu_state_copy(lily_dev *, lily_state *dst, const lily_state *src, uint32_t position, lily_err *);
uint64_t cpu_state_bytes(const lily_state *);
void cpu_state_cost(const lily_config *, uint64_t *fixed, uint64_t *snapshot, uint64_t *per_token);
void cpu_state_layout(const lily_dev *, char *text, size_t room);
int cpu_rows_save(lily_dev *, const lily_state *, uint32_t from, uint32_t n, void *out, lily_err *);
int cpu_rows_load(lily_dev *, lily_state *, uint32_t from, uint32_t n, const void *in, lily_err *);
int cpu_peek_state(lily_dev *, const lily_state *, unsigned slot, uint16_t layer, float *dst, size_t room, size_t *n,
                   lily_err *);

/* Makes the pages of positions `position` … position + n the state's own, before a run writes them. */
int cpu_state_own(lily_state *, uint32_t n, lily_err *);

/* ---- run.c ---- */

int cpu_prepare(lily_dev *, const lily_weights *, const lily_plan *, lily_exec **, lily_err *);
void cpu_release(lily_dev *, lily_exec *);
int cpu_submit(lily_dev *, lily_exec *, enum lily_segment first, enum lily_segment last, const lily_lane *,
               uint32_t n_lanes, uint64_t *ticket, lily_err *);
int cpu_wait(lily_dev *, uint64_t ticket, lily_done *, uint32_t n_lanes, lily_err *);
int cpu_peek(lily_dev *, lily_exec *, unsigned slot, void *dst, size_t room, lily_err *);
void cpu_watch(lily_exec *, lily_watch_fn *watch, void *arg);
int cpu_poke(lily_dev *, lily_exec *, unsigned slot, const void *src, size_t bytes, lily_err *);

/* The function of a row. */
int cpu_run_row(lily_run *r, uint16_t row, uint16_t layer, lily_err *e);

#endif
