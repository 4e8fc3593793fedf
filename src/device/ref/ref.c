/* ref.c - the reference device's rows and its place among the devices. */
#include <stdio.h>

#include "base/mem.h"
#include "device/ref/ref.h"

static int (*const functions[N_STEPS])(lily_run *, uint16_t, lily_err *) = {
#define X(step, function, workspace) [STEP_##step] = ref_##function,
    REF_STEPS(X)
#undef X
};

static const lily_row rows[] = {
#define X(step, function, bytes)                                                                             \
    {.name = #function,                                                                                      \
     .steps = 1ull << STEP_##step,                                                                           \
     .id = STEP_##step,                                                                                      \
     .modes = LILY_DECODE | LILY_PREFILL,                                                                    \
     .exact = LILY_SAME_BITS,                                                                                \
     .invariant = true,                                                                                      \
     .workspace = bytes},
    REF_STEPS(X)
#undef X
};

_Static_assert(sizeof rows / sizeof *rows == N_STEPS, "one row a step");

#define SINGLE "every step is a row of its own already"
#define PLAIN  "it is a plain loop, there is no faster form to leave out"
#define HOST   "it runs on the host, in order"

static const char *const keeps[N_ABLATIONS] = {
    [ABLATE_FUSED_DEQUANT] = PLAIN,     [ABLATE_TILE_SELECT] = PLAIN,       [ABLATE_ROW_GEMV] = PLAIN,
    [ABLATE_DEVICE_ROUTING] = HOST,     [ABLATE_FUSE_EXPERT_UP] = SINGLE,   [ABLATE_FUSE_EXPERT_DOWN] = SINGLE,
    [ABLATE_MATRIX_SCAN] = PLAIN,       [ABLATE_REGISTER_SCAN] = PLAIN,     [ABLATE_FUSE_SCAN_NORM] = SINGLE,
    [ABLATE_FUSE_QK] = SINGLE,          [ABLATE_FUSE_ATTN_GATE] = SINGLE,   [ABLATE_KV_COALESCE] = PLAIN,
    [ABLATE_GQA_PACK] = PLAIN,          [ABLATE_FIXED_BLOCK] = PLAIN,       [ABLATE_TOKEN_HANDOFF] = HOST,
    [ABLATE_GRAPH] = HOST,              [ABLATE_OVERLAP] = HOST,            [ABLATE_WEIGHT_PREFETCH] = HOST,
};

int ref_run_row(lily_run *r, uint16_t row, uint16_t layer, lily_err *e)
{
    return functions[rows[row].id](r, layer, e);
}

static int ref_open(lily_dev **out, const lily_dev_options *options, lily_err *e)
{
    if (options->which) return lily_fail(e, LILY_ARGUMENT, "device ref has no variant '%s'", options->which);
    *out = lily_calloc(1, sizeof **out);
    return *out ? LILY_OK : lily_no_memory(e, sizeof **out, "device ref");
}

static void ref_close(lily_dev *d)
{
    lily_free(d);
}

static void ref_describe(const lily_dev *d, char *text, size_t room, uint64_t *memory_total,
                         uint64_t *memory_free)
{
    (void)d;
    snprintf(text, room, "ref: plain C in float32, 1 thread");
    *memory_total = *memory_free = 0;
}

const lily_dev_ops lily_dev_ref = {
    .name = "ref",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .keeps = keeps,
    .open = ref_open,
    .close = ref_close,
    .describe = ref_describe,
    .load = lily_weights_load,
    .unload = lily_weights_unload,
    .load_bytes = lily_weights_load_bytes,
    .prepare = ref_prepare,
    .release = ref_release,
    .state_new = ref_state_new,
    .state_free = ref_state_free,
    .state_grow = ref_state_grow,
    .state_position = lily_state_position,
    .state_positions = lily_state_positions,
    .state_copy = ref_state_copy,
    .state_drop = lily_state_drop,
    .state_count_reset = lily_state_count_reset,
    .state_bytes = ref_state_bytes,
    .state_cost = ref_state_cost,
    .state_layout = ref_state_layout,
    .rows_save = ref_rows_save,
    .rows_load = ref_rows_load,
    .recurrent_save = lily_recurrent_save,
    .recurrent_load = lily_recurrent_load,
    .submit = ref_submit,
    .wait = ref_wait,
    .peek = ref_peek,
    .watch = ref_watch,
    .poke = ref_poke,
    .peek_state = ref_peek_state,
};
