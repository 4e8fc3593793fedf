/* cuda.h - the CUDA device: the plan's stages put on a stream one after the other; a plan of one token is a graph that
 * is launched again and again.
 *
 * What changes between runs is in a cuda_lane on the device (kernels/kernels.h).  Rows of one token ("fast" ones) are
 * launched before the rows before them have ended and ask for their weights meanwhile; the others wait in order. */
#ifndef LILY_DEVICE_CUDA_CUDA_H
#define LILY_DEVICE_CUDA_CUDA_H

#include "device/cuda/kernels/kernels.h"
#include "device/dev.h"

/* The CUDA runtime is linked in; it needs a driver of its own major version. */
enum { CUDA_LEAST_DRIVER = 13000, CUDA_LEAST_MAJOR = 8 };

#define CU(call)                                                                                             \
    do {                                                                                                     \
        cudaError_t cu_error_ = (call);                                                                      \
        if (cu_error_ != cudaSuccess) return cuda_fail(e, cu_error_, #call);                                 \
    } while (0)

/* LILY_NO_MEMORY for a full card, else LILY_DEVICE. */
int cuda_fail(lily_err *e, cudaError_t code, const char *what);

/* ---- the device ---- */

struct lily_dev {
    int index;
    struct cudaDeviceProp props;
    int driver;
    void (*loading)(void *user, double fraction);       /* lily_dev_options */
    void *loading_user;
    bool hopper;                /* rows and kernels that only compute capability 9.0 has are taken */
    cudaStream_t stream;
    /* Of the model that plans are made for: every projection is made of 4-bit groups of 64, the router of 4 or 8 bits, and
     * rows of one token or of bf16 products fit it. */
    bool packed;
    cuda_lane *lane;                    /* on the device */
    cuda_lane there;                    /* what it holds once all that was submitted has run, but for the token: */
    bool token_known;                   /* there.token is right */
    const lily_state *token_owner;      /* whose next input it is */
    cuda_lane *sending;                 /* pinned [CUDA_ANSWERS] */
    cuda_answer *answer;                /* pinned [CUDA_ANSWERS] */
    cudaEvent_t started[CUDA_ANSWERS], ended[CUDA_ANSWERS], layer[CUDA_ANSWERS];
    struct cuda_ticket {
        uint64_t ticket;
        lily_exec *exec;
        uint32_t tokens, turn;
        bool picked, scored, cancelled;
        int32_t n_logprobs;
    } run[CUDA_ANSWERS];                /* of ticket t at t % CUDA_ANSWERS */
    uint64_t newest;
    uint32_t *allow;                    /* device copies of what a pick points to */
    cuda_bias *bias;
    size_t allow_bytes, bias_bytes;
    uint32_t *sink;
    uint8_t *expanded;          /* without fused-dequant: a matrix as bf16 */
    size_t expanded_bytes;
};

/* card.c: LILY_UNSUPPORTED with a sentence where it will not do. */
int cuda_find_driver(int *driver, lily_err *);
int cuda_find_card(lily_dev *, const char *which, lily_err *);
int cuda_check_driver(int driver, lily_err *);
int cuda_check_card(const char *name, int major, int minor, lily_err *);
/* Of the switches that the device heeds, those that only some cards can do without. */
int cuda_check_switches(const lily_dev *, uint64_t ablated, lily_err *);
/* "N", "portable" or "N,portable" of n cards; NULL: the first.  LILY_ARGUMENT for anything else. */
int cuda_choose(const char *which, int n, int *index, bool *portable, lily_err *);

/* ---- weights ---- */

typedef struct cuda_layer {
    float *norm_mix, *norm_post, *conv, *decay, *dt_bias, *norm_gated, *norm_q, *norm_k;
    cuda_matrix qkv, z, b, a, out, q, k, v, o;          /* qkv z b a, and q k v, lie one behind the other if packed */
    cuda_matrix router, shared_gate, sh_gate, sh_up, sh_down, ex_gate, ex_up, ex_down;
} cuda_layer;

struct lily_weights {
    const lily_model *model;
    uint16_t *nth;              /* [L] a layer's number among those of its kind */
    uint32_t n_delta, n_attention;
    uint8_t *memory;            /* everything below, on the device */
    size_t bytes;
    cuda_layer *layer;          /* [L] */
    cuda_matrix embed, head;
    float *norm_final;
    double *frequency;          /* [R/2] */
};

int cuda_load(lily_dev *, const lily_model *, lily_weights **, lily_err *);
void cuda_unload(lily_dev *, lily_weights *);
uint64_t cuda_load_bytes(const lily_model *);
/* lily_dev.packed of a model */
bool cuda_is_packed(const lily_model *);

/* ---- state ---- */

/* Recurrent state of all DeltaNet layers at one position: [layer] tail, then S (cuda_delta).  Shared by the states that
 * branched from it, never written again. */
typedef struct cuda_snapshot {
    uint32_t position, refs;
    float *recurrent;
} cuda_snapshot;

/* Keys and values of CUDA_PAGE positions; shared by the states that branched after it. */
typedef struct cuda_page {
    uint32_t refs;
    uint16_t *rows;
} cuda_page;

struct lily_state {
    lily_dev *dev;
    const lily_weights *weights;
    uint32_t position;
    float *recurrent;
    cuda_snapshot **snapshot;   /* ascending positions, none above `position` */
    uint32_t n_snapshots;
    uint32_t *count;            /* [V] */
    cuda_page **page;           /* [n_pages] */
    uint32_t n_pages, room_pages;
    uint16_t **table, **host_table;     /* [room_pages] their rows, on the device and here */
};

/* Floats into a recurrent block. */
size_t cuda_tail_at(const lily_weights *, uint16_t layer);
size_t cuda_s_at(const lily_weights *, uint16_t layer);

int cuda_state_new(lily_dev *, const lily_weights *, lily_state **, lily_err *);
void cuda_state_free(lily_dev *, lily_state *);
int cuda_state_grow(lily_dev *, lily_state *, uint32_t context, lily_err *);
uint32_t cuda_state_position(const lily_state *);
size_t cuda_state_positions(const lily_state *, uint32_t *out, size_t room);
int cuda_state_copy(lily_dev *, lily_state *dst, const lily_state *src, uint32_t position, lily_err *);
void cuda_state_drop(lily_dev *, lily_state *, uint32_t position);
void cuda_state_count_reset(lily_state *);
uint64_t cuda_state_bytes(const lily_state *);
void cuda_state_cost(const lily_config *, uint64_t *fixed, uint64_t *snapshot, uint64_t *per_token);
void cuda_state_layout(const lily_dev *, char *text, size_t room);
int cuda_rows_save(lily_dev *, const lily_state *, uint32_t from, uint32_t n, void *out, lily_err *);
int cuda_rows_load(lily_dev *, lily_state *, uint32_t from, uint32_t n, const void *in, lily_err *);
int cuda_recurrent_save(lily_dev *, const lily_state *, uint32_t position, void *out, lily_err *);
int cuda_recurrent_load(lily_dev *, lily_state *, uint32_t position, const void *in, lily_err *);
int cuda_peek_state(lily_dev *, const lily_state *, unsigned slot, uint16_t layer, float *dst, size_t room, size_t *n,
                    lily_err *);

/* Makes the pages of positions `position` … position + n the state's own, before a run writes them. */
int cuda_state_own(lily_state *, uint32_t n, lily_err *);
/* Snapshots that a lane marks, to be filled by the run; then kept or thrown away. */
int cuda_marks_new(lily_state *, const lily_lane *, cuda_snapshot ***out, lily_err *);
void cuda_marks_keep(lily_state *, cuda_snapshot **mark, uint32_t n);
void cuda_marks_free(lily_state *, cuda_snapshot **mark, uint32_t n);
/* Back to the newest snapshot, or to nothing. */
int cuda_state_recover(lily_state *, lily_err *);

/* ---- runs ---- */

struct lily_exec {
    lily_dev *dev;
    const lily_weights *weights;
    const lily_plan *plan;
    uint8_t *memory;            /* of the plan's scratch */
    int32_t *tokens, *scored;   /* device [max_tokens] */
    int32_t *sending;           /* pinned [2 * max_tokens] */
    float *scores;              /* pinned [max_tokens], then best */
    /* Of runs of few tokens, [first][last]: for how many, scored or not, and how many such runs there were in a row. */
    cudaGraphExec_t graph[N_SEGMENTS][N_SEGMENTS];
    uint32_t graph_kind[N_SEGMENTS][N_SEGMENTS], warm[N_SEGMENTS][N_SEGMENTS];
    uint32_t last_tokens;
    int32_t *routing;           /* pinned; without device-routing: ids, order, place, offsets, counts; else NULL */
    lily_watch_fn *watch;       /* may be NULL */
    void *watch_arg;
    cudaEvent_t *stage_event;   /* measuring: recorded before the first stage and after each; may be NULL */
};

typedef struct cuda_run {
    lily_dev *dev;
    lily_exec *exec;
    const lily_weights *weights;
    const lily_config *config;
    const lily_plan *plan;
    const lily_stage *stage;
    uint32_t tokens;
    bool half;                  /* inputs of products are bf16 */
    bool given;                 /* tokens are in exec->tokens, else in the lane */
    bool scored, picks;
    bool forward;               /* the run began with LILY_FORWARD: COMMIT moves the position */
    int32_t n_vocab;
} cuda_run;

static inline void *cuda_slot(const cuda_run *r, unsigned slot) { return r->exec->memory + r->plan->slot_at[slot]; }
static inline float *cuda_floats(const cuda_run *r, unsigned slot) { return cuda_slot(r, slot); }
static inline int32_t *cuda_ints(const cuda_run *r, unsigned slot) { return cuda_slot(r, slot); }
static inline void *cuda_workspace(const cuda_run *r) { return r->exec->memory + r->plan->workspace_at[r->stage->row]; }
/* May a row of one token begin before the one before it has ended? */
static inline bool cuda_overlaps(const cuda_run *r) { return r->dev->hopper && !(r->plan->ablated & lily_bit(ABLATE_OVERLAP)); }
/* Does it then wait before it asks for weights? */
static inline bool cuda_is_patient(const cuda_run *r) { return r->plan->ablated & lily_bit(ABLATE_WEIGHT_PREFETCH); }
static inline bool cuda_does(const cuda_run *r, enum lily_step step) { return r->stage->steps & lily_bit(step); }

/* Does DNG lack the norm's factors, which the squares behind it are for? */
bool cuda_leaves_squares(const lily_plan *);

/* Slots that are bf16 in plans of several tokens: inputs of products, and what the experts say. */
bool cuda_is_half(unsigned slot);
size_t cuda_slot_bytes(const lily_dev *, unsigned slot, const lily_config *, uint32_t tokens);

int cuda_prepare(lily_dev *, const lily_weights *, const lily_plan *, lily_exec **, lily_err *);
void cuda_release(lily_dev *, lily_exec *);
int cuda_submit(lily_dev *, lily_exec *, enum lily_segment first, enum lily_segment last, const lily_lane *,
                uint32_t n_lanes, uint64_t *ticket, lily_err *);
int cuda_wait(lily_dev *, uint64_t ticket, lily_done *, uint32_t n_lanes, lily_err *);
int cuda_peek(lily_dev *, lily_exec *, unsigned slot, void *dst, size_t room, lily_err *);
void cuda_watch(lily_exec *, lily_watch_fn *watch, void *arg);
int cuda_poke(lily_dev *, lily_exec *, unsigned slot, const void *src, size_t bytes, lily_err *);

/* ---- rows ---- */

typedef int cuda_row_fn(cuda_run *r, uint16_t layer, lily_err *e);
typedef size_t cuda_workspace_fn(const lily_dev *, const lily_config *, uint32_t tokens, uint32_t context);
int cuda_run_row(cuda_run *r, lily_err *e);

/* rows_ends.c */
cuda_row_fn cuda_row_embed, cuda_row_embed_token, cuda_row_norm, cuda_row_head, cuda_row_sample, cuda_row_commit,
    cuda_row_pick;
cuda_workspace_fn cuda_head_workspace, cuda_sample_workspace;
/* rows_mixer.c */
cuda_row_fn cuda_row_delta_in, cuda_row_conv, cuda_row_qk_l2, cuda_row_gates, cuda_row_gdn, cuda_row_gnorm, cuda_row_scan,
    cuda_row_out, cuda_row_out_norm, cuda_row_add, cuda_row_attn_in, cuda_row_rope, cuda_row_append, cuda_row_attn,
    cuda_row_o_gate, cuda_row_attn_token,
    cuda_row_attn_many, cuda_row_out_add, cuda_row_scan_many, cuda_row_scan_blocks, cuda_row_add_norm;
cuda_workspace_fn cuda_attn_token_workspace, cuda_scan_workspace, cuda_blocks_workspace;
/* rows_experts.c */
cuda_row_fn cuda_row_router, cuda_row_topk, cuda_row_count, cuda_row_offsets, cuda_row_scatter, cuda_row_exp_up,
    cuda_row_exp_act, cuda_row_exp_down, cuda_row_sh_up, cuda_row_sh_act, cuda_row_sh_down, cuda_row_sh_gate,
    cuda_row_combine, cuda_row_experts_up, cuda_row_experts_token, cuda_row_route_token, cuda_row_up_token,
    cuda_row_down_token, cuda_row_up_any, cuda_row_down_any, cuda_row_router_gate, cuda_row_route, cuda_row_combine_norm;
cuda_workspace_fn cuda_map_workspace, cuda_route_workspace, cuda_experts_token_workspace;

/* products.c: by the fastest kernel that takes the matrix, out[t * stride + at + r]: of a slot, or of n vectors. */
int cuda_multiply(cuda_run *r, cuda_gemm *, lily_err *e);      /* under the plan's switches */
int cuda_project(cuda_run *r, const cuda_matrix *w, unsigned in, float *out, size_t stride, size_t at, lily_err *e);
int cuda_project_from(cuda_run *r, const cuda_matrix *w, const void *in, bool norm_tail, uint32_t n, float *out,
                      size_t stride, size_t at, lily_err *e);
/* Matrices that lie one behind the other, of one slot. */
typedef struct cuda_target {
    const cuda_matrix *w;
    float *out;
    size_t stride;
} cuda_target;
int cuda_project_row(cuda_run *r, const cuda_target *targets, uint32_t n, unsigned in, lily_err *e);
/* gemv's arguments for a packed matrix and a slot of one token. */
cuda_gemv cuda_gemv_of(const cuda_run *r, const cuda_matrix *w, unsigned in);

/* measure.c */
double cuda_read_rate(lily_dev *, const lily_weights *);

#endif
