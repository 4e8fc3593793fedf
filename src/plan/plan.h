/* plan.h - from the model's steps and a device's rows to stages in order, with their waits and their memory.
 *
 * Three words: a STEP is what the model does (model/steps.def).  A ROW is what a device can run as one kernel:
 * a set of steps.  A STAGE is a row placed in a plan, with what it must wait for.  The planner covers the
 * steps with the device's rows in its order of preference, under the switches; orders the stages; drops slots
 * that only a row's inside used; places the others in one arena by lifetime; and derives every wait and
 * barrier from the declared reads and writes.  Nothing else decides what runs. */
#ifndef LILY_PLAN_PLAN_H
#define LILY_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "model/graph.h"

struct lily_dev;

/* ---- switches ---- */

enum lily_ablation {
#define X(id, name, phases, with, without) ABLATE_##id,
#include "plan/ablate.def"
#undef X
    N_ABLATIONS
};

/* What the engine turns off by itself, whatever the device. */
#define LILY_ENGINE_ABLATIONS (lily_bit(ABLATE_PROMPT_CHUNKS) | lily_bit(ABLATE_MASK_OVERLAP) | lily_bit(ABLATE_SELF_PROOF))

const char *lily_ablation_name(unsigned id);
const char *lily_ablation_with(unsigned id);
const char *lily_ablation_without(unsigned id);
/* lily_mode bits: where its speed can be seen. */
unsigned lily_ablation_phases(unsigned id);
/* Other switches that must be off before this one changes anything: what they have would run instead. */
uint64_t lily_ablation_below(unsigned id);
/* Adds the bits of a list "a,b c" of switch names to *mask; an unknown name is LILY_ARGUMENT, with the
 * known ones in the sentence. */
int lily_ablation_parse(const char *names, uint64_t *mask, lily_err *e);

/* ---- rows ---- */

enum lily_exact { LILY_SAME_BITS, LILY_REORDERED, LILY_LOWER_PRECISION };

typedef struct lily_row {
    const char *name;           /* shown by inspect, traces and benchmarks */
    uint64_t steps;             /* the steps it performs, one bit each */
    uint64_t off;               /* removed when any of these ablation bits is set */
    uint8_t  modes;             /* lily_mode bits */
    uint8_t  exact;             /* lily_exact, against its steps run one by one on `ref` */
    bool     invariant;         /* same bits for a token however tokens are cut into runs */
    float    tolerance;         /* largest |difference| to ref, relative to the output's rms; 0: same bits */
    uint16_t id;                /* the device's own number for it: opcode, function index */
    uint32_t min_tokens, max_tokens;     /* where it applies; 0: no limit.  Numbers, not a function, */
    uint32_t min_context, max_context;   /* so that every plan can be enumerated, printed and tested */
    bool   (*fits)(const struct lily_dev *, const lily_config *);   /* chip and dimensions only; NULL: always */
    size_t (*workspace)(const struct lily_dev *, const lily_config *, uint32_t tokens, uint32_t context);
                                /* bytes of its own scratch (split-KV partials, packed activations); NULL: none */
} lily_row;

/* ---- plans ---- */

enum { LILY_MAX_ROWS = 128 };

typedef struct lily_stage {
    uint16_t row;               /* index into the device's rows */
    uint16_t layer;             /* as in lily_node */
    uint16_t segment;
    uint16_t level;             /* longest chain before it; stages of one level may run together */
    uint16_t n_wait;            /* earlier stages it must follow, implied ones dropped */
    const uint16_t *wait;       /* their indices in the plan */
    uint64_t steps;             /* the row's */
    uint64_t reads, writes;     /* slots that really reach memory */
    uint64_t dies;              /* scratch slots that nobody reads after this stage */
    bool     barrier;           /* in-order devices: something since the last barrier matters */
} lily_stage;

#define LILY_NO_PLACE SIZE_MAX

typedef struct lily_plan {
    enum lily_mode mode;
    uint32_t max_tokens, max_context;   /* what it may be used for */
    uint64_t ablated;
    uint32_t n_stages;
    const lily_stage *stages;
    uint32_t segment_end[N_SEGMENTS];   /* first stage after each segment */
    size_t   scratch_bytes;             /* one arena for all slots and the rows' workspaces */
    size_t   slot_at[N_SLOTS];          /* byte offset in the arena, aligned to 64; LILY_NO_PLACE */
    size_t   slot_bytes[N_SLOTS];
    size_t   workspace_at[LILY_MAX_ROWS];   /* a row's own scratch in the same arena; LILY_NO_PLACE */
    uint32_t n_barriers, n_levels;
} lily_plan;

/* What the planner needs to know of a device. */
typedef struct lily_plan_device {
    const char *name;
    const lily_row *rows;       /* preferred first; the ones of single steps last */
    size_t n_rows;
    const struct lily_dev *dev; /* for fits and workspace; may be NULL where they are */
    size_t (*slot_bytes)(const struct lily_dev *, unsigned slot, const lily_config *, uint32_t tokens);
                                /* NULL: four bytes an element */
    uint64_t refused[LILY_MAX_ROWS / 64];   /* one bit a row that is not to be taken, since it was found wrong */
} lily_plan_device;

typedef struct lily_plan_ask {
    enum lily_mode mode;
    uint32_t max_tokens, max_context;
    uint64_t ablated;           /* lily_ablation bits */
    uint64_t keep;              /* scratch slots that must reach memory and stay until the end (traces).  Rows of
                                   several steps that are the only readers of such a slot are not taken, since they
                                   need not write it: what is watched then runs in smaller rows */
} lily_plan_ask;

/* LILY_UNSUPPORTED when a step has no row ("device cuda has no row for step GDN"). */
int lily_plan_make(lily_plan **out, const lily_plan_device *d, const lily_config *c, const lily_plan_ask *ask,
                   lily_err *e);
void lily_plan_free(lily_plan *p);

/* The plan as text: one line a stage, then totals.  `whole` false: layers that repeat are shown once. */
int lily_plan_print(const lily_plan *p, const lily_plan_device *d, bool whole, lily_buf *out, lily_err *e);
/* 64 bits over rows, layers, waits and places: which plan ran, in results. */
uint64_t lily_plan_hash(const lily_plan *p, const lily_plan_device *d);

#endif
