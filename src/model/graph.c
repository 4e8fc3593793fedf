/* graph.c - THE MODEL.  Each table is one part of the forward pass, top to bottom: the step, what it reads,
 * what it writes.  Everything else in Lily (plans, kernels, fusions) is derived from these tables or checked
 * against them.  Formulas: steps.def; shapes: slots.def; weights: weights.h; prose: docs/model.md. */
#include "model/graph.h"

#include "base/mem.h"

typedef struct part {
    enum lily_step step;
    uint64_t reads, writes;
    unsigned modes;             /* 0: both */
} part;

#define _(slot) lily_bit_const(SLOT_##slot)
#define lily_bit_const(i) (1ull << (i))

/* x = embed[token];  n = norm(x) */
static const part embed[] = {
    {STEP_EMBED,         _(TOKENS) | _(NEXT) | _(COUNT), _(X) | _(COUNT), 0},
    {STEP_NORM_NEXT,     _(X),                           _(N), 0},
};

/* Gated DeltaNet, three layers of four: a linear recurrence with a matrix state for each head. */
static const part delta_net[] = {
    {STEP_PROJ_QKV,      _(N),                           _(QKV), 0},
    {STEP_PROJ_Z,        _(N),                           _(Z), 0},
    {STEP_PROJ_BA,       _(N),                           _(BA), 0},
    {STEP_CONV,          _(QKV) | _(TAIL),               _(U) | _(TAIL), 0},
    {STEP_QK_L2,         _(U),                           _(QK), 0},
    {STEP_GATES,         _(BA),                          _(G), 0},
    {STEP_GDN,           _(QK) | _(U) | _(G) | _(S),     _(DN) | _(S), 0},
    {STEP_GNORM,         _(DN) | _(Z),                   _(DNG), 0},
    {STEP_PROJ_OUT,      _(DNG),                         _(MIX), 0},
    {STEP_ADD_MIX,       _(X) | _(MIX),                  _(X), 0},
};

/* Gated attention, every fourth layer. */
static const part attention[] = {
    {STEP_PROJ_QG,       _(N),                           _(QG), 0},
    {STEP_PROJ_K,        _(N),                           _(KP), 0},
    {STEP_PROJ_V,        _(N),                           _(VP), 0},
    {STEP_QK_ROPE,       _(QG) | _(KP),                  _(Q) | _(K), 0},
    {STEP_KV_APPEND,     _(K) | _(VP),                   _(KV), 0},
    {STEP_ATTN,          _(Q) | _(KV),                   _(AO), 0},
    {STEP_O_GATE,        _(AO) | _(QG),                  _(AOG), 0},
    {STEP_PROJ_O,        _(AOG),                         _(MIX), 0},
    {STEP_ADD_MIX,       _(X) | _(MIX),                  _(X), 0},
};

/* Mixture of experts, every layer, and the norm before the next one.  With several tokens the pairs of token
 * and expert are first sorted by expert, so that each expert's weights are read once. */
#define SORTED (_(ORDER) | _(OFFSETS))
#define SHARES (_(TOPW) | _(SD) | _(SG))
static const part experts[] = {
    {STEP_NORM_POST,     _(X),                           _(M), 0},
    {STEP_ROUTER,        _(M),                           _(RL), 0},
    {STEP_TOPK,          _(RL),                          _(TOPI) | _(TOPW), 0},
    {STEP_ROUTE_COUNT,   _(TOPI),                        _(COUNTS), LILY_PREFILL},
    {STEP_ROUTE_OFFSETS, _(COUNTS),                      _(OFFSETS), LILY_PREFILL},
    {STEP_ROUTE_SCATTER, _(TOPI) | _(OFFSETS),           _(ORDER) | _(PLACE), LILY_PREFILL},
    {STEP_EXP_UP,        _(M) | _(TOPI),                 _(EGU), LILY_DECODE},
    {STEP_EXP_UP,        _(M) | SORTED,                  _(EGU), LILY_PREFILL},
    {STEP_EXP_ACT,       _(EGU),                         _(EH), 0},
    {STEP_EXP_DOWN,      _(EH) | _(TOPI),                _(ED), LILY_DECODE},
    {STEP_EXP_DOWN,      _(EH) | SORTED,                 _(ED), LILY_PREFILL},
    {STEP_SH_UP,         _(M),                           _(SGU), 0},
    {STEP_SH_ACT,        _(SGU),                         _(SH), 0},
    {STEP_SH_DOWN,       _(SH),                          _(SD), 0},
    {STEP_SH_GATE,       _(M),                           _(SG), 0},
    {STEP_COMBINE,       _(X) | _(ED) | SHARES,          _(X), LILY_DECODE},
    {STEP_COMBINE,       _(X) | _(ED) | SHARES | _(PLACE), _(X), LILY_PREFILL},
    {STEP_NORM_NEXT,     _(X),                           _(N), 0},
};

static const part head[] = {
    {STEP_HEAD,          _(N) | _(TOKENS),               _(LOGITS) | _(SCORES) | _(BEST), 0},
};

static const part pick[] = {
    {STEP_SAMPLE,        _(LOGITS) | _(COUNT),           _(TOKEN), 0},
    {STEP_COMMIT,        _(TOKEN),                       _(NEXT), 0},
};

typedef struct builder {
    lily_node *nodes;
    size_t n;
    enum lily_mode mode;
} builder;

static void add(builder *b, const part *parts, size_t n, uint16_t layer, enum lily_segment segment)
{
    for (size_t i = 0; i < n; i++) {
        const part *p = &parts[i];
        if (p->modes && !(p->modes & b->mode)) continue;
        b->nodes[b->n++] = (lily_node){p->step, layer, segment, p->reads, p->writes};
    }
}

#define COUNT_OF(table) (sizeof(table) / sizeof(table)[0])
#define ADD(b, table, layer, segment) add(b, table, COUNT_OF(table), layer, segment)

int lily_graph_build(lily_node **nodes, size_t *n, const lily_config *c, enum lily_mode mode, lily_err *e)
{
    size_t most = COUNT_OF(embed) + c->layers * (COUNT_OF(delta_net) + COUNT_OF(experts)) + COUNT_OF(head) +
                  COUNT_OF(pick);
    builder b = {lily_calloc(most, sizeof *b.nodes), 0, mode};
    if (!b.nodes) return lily_no_memory(e, most * sizeof *b.nodes, "the graph");

    ADD(&b, embed, LILY_BEFORE_LAYERS, LILY_FORWARD);
    for (uint16_t layer = 0; layer < c->layers; layer++) {
        if (c->full_attention[layer])
            ADD(&b, attention, layer, LILY_FORWARD);
        else
            ADD(&b, delta_net, layer, LILY_FORWARD);
        ADD(&b, experts, layer, LILY_FORWARD);
    }
    ADD(&b, head, (uint16_t)c->layers, LILY_HEAD);
    ADD(&b, pick, (uint16_t)c->layers, LILY_PICK);

    *nodes = b.nodes;
    *n = b.n;
    return LILY_OK;
}
