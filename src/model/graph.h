/* graph.h - the model as a list of steps with what each reads and writes. */
#ifndef LILY_MODEL_GRAPH_H
#define LILY_MODEL_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/config.h"

enum lily_mode { LILY_DECODE = 1, LILY_PREFILL = 2 };

enum lily_step {
#define X(name, formula) STEP_##name,
#include "model/steps.def"
#undef X
    N_STEPS
};

enum lily_slot {
#define X(name, kind, elements, what) SLOT_##name,
#include "model/slots.def"
#undef X
    N_SLOTS
};

enum lily_slot_kind { SLOT_INPUT, SLOT_SCRATCH, SLOT_STATE, SLOT_SESSION, SLOT_OUTPUT };

_Static_assert(N_STEPS <= 64 && N_SLOTS <= 64, "a set of steps or slots is one 64-bit word");

static inline uint64_t lily_bit(unsigned i) { return 1ull << i; }

/* Cut points of a plan: a grammar's mask is computed while LILY_FORWARD runs. */
enum lily_segment { LILY_FORWARD, LILY_HEAD, LILY_PICK, N_SEGMENTS };

/* "Before layer 0": layer + 1, in 16 bits, is the layer whose norm NORM_NEXT applies. */
#define LILY_BEFORE_LAYERS 0xffffu

typedef struct lily_node {
    uint16_t step;              /* enum lily_step */
    uint16_t layer;             /* 0 … L-1, LILY_BEFORE_LAYERS, or L for the head */
    uint16_t segment;           /* enum lily_segment */
    uint64_t reads, writes;     /* sets of slots */
} lily_node;

/* The whole forward pass in an order that is valid to run; *n nodes, to be freed by lily_free. */
int lily_graph_build(lily_node **nodes, size_t *n, const lily_config *c, enum lily_mode mode, lily_err *e);

const char *lily_step_name(unsigned step);
const char *lily_slot_name(unsigned slot);
enum lily_slot_kind lily_slot_kind(unsigned slot);
/* Elements of a slot for a run of at most `tokens` tokens. */
uint64_t lily_slot_elements(unsigned slot, const lily_config *c, uint64_t tokens);

#endif
