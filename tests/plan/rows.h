/* rows.h - a device that is only a table: fused rows as a graphics processor would have them, then one row for
 * each step. */
#ifndef LILY_TESTS_PLAN_ROWS_H
#define LILY_TESTS_PLAN_ROWS_H

#include "plan/plan.h"

/* Every fused row has a switch of its own: bit 0 … N_FUSIONS-1 of `off`. */
#define FUSIONS(X)                                                                                           \
    X(qkvzba,       _(PROJ_QKV) | _(PROJ_Z) | _(PROJ_BA))                                                    \
    X(conv_gates,   _(CONV) | _(QK_L2) | _(GATES))                                                           \
    X(scan_norm,    _(GDN) | _(GNORM))                                                                       \
    X(qgkv,         _(PROJ_QG) | _(PROJ_K) | _(PROJ_V))                                                      \
    X(rope_append,  _(QK_ROPE) | _(KV_APPEND))                                                               \
    X(attn_gate,    _(ATTN) | _(O_GATE))                                                                     \
    X(add_norm,     _(ADD_MIX) | _(NORM_POST))                                                               \
    X(route,        _(ROUTER) | _(TOPK))                                                                     \
    X(sort,         _(ROUTE_COUNT) | _(ROUTE_OFFSETS) | _(ROUTE_SCATTER))                                    \
    X(experts_up,   _(EXP_UP) | _(EXP_ACT) | _(SH_UP) | _(SH_ACT))                                           \
    X(experts_down, _(EXP_DOWN) | _(SH_DOWN) | _(SH_GATE) | _(COMBINE) | _(NORM_NEXT))                       \
    X(pick,         _(SAMPLE) | _(COMMIT))

enum {
#define X(name, steps) FUSION_##name,
    FUSIONS(X)
#undef X
    N_FUSIONS
};

extern const lily_row table_rows[];
extern const size_t n_table_rows;

#endif
