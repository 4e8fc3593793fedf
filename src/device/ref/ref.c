/* ref.c - the reference device's rows and its place among the devices. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "device/ref/ref.h"

static int (*const functions[N_STEPS])(ref_run *, uint16_t, lily_err *) = {
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

int ref_run_row(ref_run *r, uint16_t row, uint16_t layer, lily_err *e)
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

static void ref_unload(lily_dev *d, lily_weights *w)
{
    (void)d;
    if (!w) return;
    lily_free(w->nth);
    lily_free(w->frequency);
    lily_free(w);
}

static int ref_load(lily_dev *d, const lily_model *model, lily_weights **out, lily_err *e)
{
    const lily_config *c = model->config;
    lily_weights *w = lily_calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return lily_no_memory(e, sizeof *w, "weights");
    w->model = model;
    w->nth = lily_calloc(c->layers, sizeof *w->nth);
    w->frequency = lily_calloc(c->rotary / 2, sizeof *w->frequency);
    if (!w->nth || !w->frequency) {
        ref_unload(d, w);
        return lily_no_memory(e, c->layers * sizeof *w->nth, "weights");
    }
    for (uint32_t i = 0; i < c->layers; i++)
        w->nth[i] = (uint16_t)(c->full_attention[i] ? w->n_attention++ : w->n_delta++);
    for (uint32_t i = 0; i < c->rotary / 2; i++) w->frequency[i] = pow(c->rope_theta, -2.0 * i / c->rotary);
    *out = w;
    return LILY_OK;
}

static uint64_t ref_load_bytes(const lily_config *c)
{
    return sizeof(lily_weights) + c->layers * sizeof(uint16_t) + c->rotary / 2 * sizeof(double);
}

const lily_dev_ops lily_dev_ref = {
    .name = "ref",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .open = ref_open,
    .close = ref_close,
    .describe = ref_describe,
    .load = ref_load,
    .unload = ref_unload,
    .load_bytes = ref_load_bytes,
    .prepare = ref_prepare,
    .release = ref_release,
    .state_new = ref_state_new,
    .state_free = ref_state_free,
    .state_grow = ref_state_grow,
    .state_position = ref_state_position,
    .state_positions = ref_state_positions,
    .state_copy = ref_state_copy,
    .state_drop = ref_state_drop,
    .state_count_reset = ref_state_count_reset,
    .state_bytes = ref_state_bytes,
    .state_cost = ref_state_cost,
    .submit = ref_submit,
    .wait = ref_wait,
    .peek = ref_peek,
    .peek_state = ref_peek_state,
};
