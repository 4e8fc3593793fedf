/* cpu.c - the CPU device's rows and its place among the devices. */
#include "device/cpu/cpu.h"

#include <stdio.h>

#include "base/mem.h"

#define S(step) (1ull << STEP_##step)
#define OFF(switch) (1ull << ABLATE_##switch)

/* Differences to ref, of the output's rms.  Products of 4-bit matrices round activations to 16 bits (portable
 * does not); keys and values are rounded to bf16; the rest is float32 in another order. */
enum {
    EXACT_PRODUCT = LILY_LOWER_PRECISION,
    EXACT_ROUNDED = LILY_LOWER_PRECISION,
    EXACT_ORDER = LILY_REORDERED,
    EXACT_BITS = LILY_SAME_BITS
};
#define TOLERANCE_PRODUCT 2e-3f
#define TOLERANCE_ROUNDED 5e-2f
#define TOLERANCE_ORDER   2e-5f
#define TOLERANCE_BITS    0

/* name, steps, switches that remove it, difference to ref, function, workspace; preferred first */
#define CPU_ROWS(X)                                                                                          \
    X(delta_in, S(PROJ_QKV) | S(PROJ_Z) | S(PROJ_BA), 0,                                                     \
      PRODUCT, cpu_delta_in, cpu_hidden_workspace)                                                           \
    X(delta_scan, S(CONV) | S(QK_L2) | S(GATES) | S(GDN) | S(GNORM), OFF(FUSE_SCAN_NORM),                    \
      ORDER, cpu_delta_scan, cpu_scan_workspace)                                                             \
    X(attn_in, S(PROJ_QG) | S(PROJ_K) | S(PROJ_V), 0,                                                        \
      PRODUCT, cpu_attn_in, cpu_hidden_workspace)                                                            \
    X(rope_append, S(QK_ROPE) | S(KV_APPEND), OFF(FUSE_QK),                                                  \
      ROUNDED, cpu_qk_rope, cpu_rope_workspace)                                                              \
    X(attn_gate, S(ATTN) | S(O_GATE), OFF(FUSE_ATTN_GATE), ROUNDED, cpu_attn, cpu_attn_workspace)            \
    X(experts_up, S(EXP_UP) | S(EXP_ACT) | S(SH_UP) | S(SH_ACT), OFF(FUSE_EXPERT_UP),                        \
      PRODUCT, cpu_experts_up, cpu_experts_up_workspace)                                                     \
    X(experts_down, S(EXP_DOWN) | S(SH_DOWN) | S(SH_GATE) | S(COMBINE), OFF(FUSE_EXPERT_DOWN),               \
      PRODUCT, cpu_experts_down, cpu_experts_down_workspace)                                                 \
    X(embed, S(EMBED), 0, BITS, cpu_embed, NULL)                                                             \
    X(norm_next, S(NORM_NEXT), 0, ORDER, cpu_norm_next, NULL)                                                \
    X(proj_qkv, S(PROJ_QKV), 0, PRODUCT, cpu_delta_in, cpu_hidden_workspace)                                 \
    X(proj_z, S(PROJ_Z), 0, PRODUCT, cpu_delta_in, cpu_hidden_workspace)                                     \
    X(proj_ba, S(PROJ_BA), 0, PRODUCT, cpu_delta_in, cpu_hidden_workspace)                                   \
    X(conv, S(CONV), 0, ORDER, cpu_conv, NULL)                                                               \
    X(qk_l2, S(QK_L2), 0, ORDER, cpu_qk_l2, NULL)                                                            \
    X(gates, S(GATES), 0, ORDER, cpu_gates, NULL)                                                            \
    X(gdn, S(GDN), 0, ORDER, cpu_gdn, cpu_gdn_workspace)                                                     \
    X(gnorm, S(GNORM), 0, ORDER, cpu_gnorm, NULL)                                                            \
    X(proj_out, S(PROJ_OUT), 0, PRODUCT, cpu_proj_out, cpu_value_workspace)                                  \
    X(proj_qg, S(PROJ_QG), 0, PRODUCT, cpu_attn_in, cpu_hidden_workspace)                                    \
    X(proj_k, S(PROJ_K), 0, PRODUCT, cpu_attn_in, cpu_hidden_workspace)                                      \
    X(proj_v, S(PROJ_V), 0, PRODUCT, cpu_attn_in, cpu_hidden_workspace)                                      \
    X(qk_rope, S(QK_ROPE), 0, ORDER, cpu_qk_rope, cpu_rope_workspace)                                        \
    X(kv_append, S(KV_APPEND), 0, ROUNDED, cpu_kv_append, NULL)                                              \
    X(attn, S(ATTN), 0, ROUNDED, cpu_attn, cpu_attn_workspace)                                               \
    X(o_gate, S(O_GATE), 0, ORDER, cpu_o_gate, NULL)                                                         \
    X(proj_o, S(PROJ_O), 0, PRODUCT, cpu_proj_o, cpu_query_workspace)                                        \
    X(add_mix, S(ADD_MIX), 0, BITS, cpu_add_mix, NULL)                                                       \
    X(norm_post, S(NORM_POST), 0, ORDER, cpu_norm_post, NULL)                                                \
    X(router, S(ROUTER), 0, PRODUCT, cpu_router, cpu_hidden_workspace)                                       \
    X(topk, S(TOPK), 0, ORDER, cpu_topk, NULL)                                                               \
    X(route_count, S(ROUTE_COUNT), 0, BITS, cpu_route_count, NULL)                                           \
    X(route_offsets, S(ROUTE_OFFSETS), 0, BITS, cpu_route_offsets, NULL)                                     \
    X(route_scatter, S(ROUTE_SCATTER), 0, BITS, cpu_route_scatter, cpu_scatter_workspace)                    \
    X(exp_up, S(EXP_UP), 0, PRODUCT, cpu_exp_up, cpu_exp_up_workspace)                                       \
    X(exp_act, S(EXP_ACT), 0, ORDER, cpu_exp_act, NULL)                                                      \
    X(exp_down, S(EXP_DOWN), 0, PRODUCT, cpu_exp_down, cpu_exp_down_workspace)                               \
    X(sh_up, S(SH_UP), 0, PRODUCT, cpu_sh_up, cpu_hidden_workspace)                                          \
    X(sh_act, S(SH_ACT), 0, ORDER, cpu_sh_act, NULL)                                                         \
    X(sh_down, S(SH_DOWN), 0, PRODUCT, cpu_sh_down, cpu_sh_down_workspace)                                   \
    X(sh_gate, S(SH_GATE), 0, PRODUCT, cpu_sh_gate, cpu_hidden_workspace)                                    \
    X(combine, S(COMBINE), 0, ORDER, cpu_combine, NULL)                                                      \
    X(head, S(HEAD), 0, PRODUCT, cpu_head, cpu_head_workspace)                                               \
    X(sample, S(SAMPLE), 0, BITS, cpu_sample, cpu_sample_workspace)                                          \
    X(commit, S(COMMIT), 0, BITS, cpu_commit, NULL)

static const lily_row rows[] = {
#define X(row, set, switches, difference, function, bytes)                                                   \
    {.name = #row, .steps = set, .off = switches, .modes = LILY_DECODE | LILY_PREFILL, .invariant = true,    \
     .exact = EXACT_##difference, .tolerance = TOLERANCE_##difference, .workspace = bytes},
    CPU_ROWS(X)
#undef X
};

static cpu_row_fn *const functions[] = {
#define X(row, set, switches, difference, function, bytes) function,
    CPU_ROWS(X)
#undef X
};

#define HOST "it runs on the host, a stage at a time"

static const char *const keeps[N_ABLATIONS] = {
    [ABLATE_FUSED_DEQUANT] = "weights stay packed in the map, and no kernel unpacks whole matrices",
    [ABLATE_TILE_SELECT] = "its tiles have the width of a vector register",
    [ABLATE_ROW_GEMV] = "one kernel multiplies by one vector and by many, so that both give the same bits",
    [ABLATE_DEVICE_ROUTING] = HOST,
    [ABLATE_MATRIX_SCAN] = "it goes token by token, the state in registers",
    [ABLATE_REGISTER_SCAN] = "its recurrent update has no other form",
    [ABLATE_KV_COALESCE] = "a thread reads whole rows of the cache",
    [ABLATE_GQA_PACK] = "a row of the cache is read once for all query heads, and there is no other form",
    [ABLATE_FIXED_BLOCK] = "there is one path for every length",
    [ABLATE_TOKEN_HANDOFF] = HOST,
    [ABLATE_GRAPH] = HOST,
    [ABLATE_OVERLAP] = HOST,
    [ABLATE_WEIGHT_PREFETCH] = HOST,
};

enum { N_ROWS = sizeof rows / sizeof *rows };

int cpu_run_row(lily_run *r, uint16_t row, uint16_t layer, lily_err *e) { return functions[row](r, layer, e); }

unsigned cpu_threads(const lily_dev *d) { return d ? lily_pool_threads(d->pool) : lily_physical_cores(); }

const lily_cpu_kernels *cpu_kernels(const lily_dev *d) { return d ? d->k : lily_cpu_select(NULL); }

static void cpu_close(lily_dev *d)
{
    if (!d) return;
    lily_pool_close(d->pool);
    lily_free(d);
}

static int cpu_open(lily_dev **out, const lily_dev_options *options, lily_err *e)
{
    *out = NULL;
    const lily_cpu_kernels *k = lily_cpu_select(options->which);
    if (!k)
        return lily_fail(e, LILY_UNSUPPORTED, "device cpu has no variant '%s' that runs here; the best one is %s",
                         options->which, lily_cpu_select(NULL)->name);
    lily_dev *d = lily_calloc(1, sizeof *d);
    if (!d) return lily_no_memory(e, sizeof *d, "device cpu");
    d->k = k;
    int rc = lily_pool_open(&d->pool, options->threads, e);
    if (rc != LILY_OK) {
        cpu_close(d);
        return rc;
    }
    *out = d;
    return LILY_OK;
}

static void cpu_describe(const lily_dev *d, char *text, size_t room, uint64_t *memory_total, uint64_t *memory_free)
{
    const unsigned n = cpu_threads(d);
    snprintf(text, room, "cpu: %u thread%s, %s", n, n == 1 ? "" : "s", d->k->name);
    lily_cpu_memory(memory_total, memory_free);
}

const lily_dev_ops lily_dev_cpu = {
    .name = "cpu",
    .rows = rows,
    .n_rows = N_ROWS,
    .keeps = keeps,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .load = lily_weights_load,
    .unload = lily_weights_unload,
    .load_bytes = lily_weights_load_bytes,
    .prepare = cpu_prepare,
    .release = cpu_release,
    .state_new = cpu_state_new,
    .state_free = cpu_state_free,
    .state_grow = cpu_state_grow,
    .state_position = lily_state_position,
    .state_positions = lily_state_positions,
    .state_copy = cpu_state_copy,
    .state_drop = lily_state_drop,
    .state_count_reset = lily_state_count_reset,
    .state_bytes = cpu_state_bytes,
    .state_cost = cpu_state_cost,
    .state_layout = cpu_state_layout,
    .rows_save = cpu_rows_save,
    .rows_load = cpu_rows_load,
    .recurrent_save = lily_recurrent_save,
    .recurrent_load = lily_recurrent_load,
    .submit = cpu_submit,
    .wait = cpu_wait,
    .read_rate = cpu_read_rate,
    .peek = cpu_peek,
    .watch = cpu_watch,
    .poke = cpu_poke,
    .peek_state = cpu_peek_state,
};
