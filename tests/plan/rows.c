#include "rows.h"

#define _(step) (1ull << STEP_##step)
#define BOTH    (LILY_DECODE | LILY_PREFILL)

static size_t partials(const struct lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)d, (void)context;
    return (size_t)tokens * c->q_heads * 100;
}

const lily_row table_rows[] = {
    /* Never possible: CONV and QK_L2 lie between them and would have to be before and after. */
    {.name = "impossible", .steps = _(PROJ_QKV) | _(GDN), .modes = BOTH},
#define X(fusion, set)                                                                                       \
    {.name = #fusion,                                                                                        \
     .steps = set,                                                                                           \
     .modes = BOTH,                                                                                          \
     .off = 1ull << FUSION_##fusion,                                                                         \
     .workspace = FUSION_##fusion == FUSION_attn_gate ? partials : NULL},
    FUSIONS(X)
#undef X
#define X(step, formula) {.name = #step, .steps = 1ull << STEP_##step, .modes = BOTH},
#include "model/steps.def"
#undef X
};

const size_t n_table_rows = sizeof table_rows / sizeof *table_rows;
