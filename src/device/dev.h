/* dev.h - what the engine asks of a device, and nothing else.
 *
 * A device publishes rows (plan/plan.h).  The planner places them; the device turns a plan into whatever it
 * runs best: a walk in order, a thread plan, encoder commands, a captured graph.  It never decides what the
 * model is.  One thread, the engine's, makes all calls for a device. */
#ifndef LILY_DEVICE_DEV_H
#define LILY_DEVICE_DEV_H

#include <stdatomic.h>

#include "model/weights.h"
#include "plan/plan.h"

typedef struct lily_dev     lily_dev;      /* one opened device */
typedef struct lily_weights lily_weights;  /* the model as this device wants it */
typedef struct lily_exec    lily_exec;     /* one plan made ready: scratch memory, graphs */
typedef struct lily_state   lily_state;    /* one session's KV and recurrent state on this device */

/* ---- how the next token is chosen, on the device ---- */

typedef struct lily_bias {
    int32_t token;
    float add;                  /* to its logit, before everything else */
} lily_bias;

/* Order of operations: not-a-number test, bias, allow mask, penalties (over the tokens that the state counted:
 * repetition divides a positive logit or multiplies a negative one; presence and frequency subtract), then
 * temperature, top-k, top-p, min-p, and a draw. temperature 0 is greedy: the largest after penalties, the
 * lowest id on ties. Ids from n_vocab on have no text: they are never chosen and have no share in any softmax.
 * host/pick.h says every detail. */
typedef struct lily_pick {
    float temperature, top_p, min_p, presence, frequency, repetition;    /* neutral: 1, 1, 0, 0, 0, 1 */
    int32_t top_k;              /* 0: all */
    int32_t n_logprobs;         /* alternatives wanted, 0 … LILY_MAX_TOP */
    uint64_t seed, draw;        /* counter-based: draw n of seed s is the same number on every device */
    const uint32_t *allow;      /* vocabulary bit mask of a grammar, or NULL */
    const lily_bias *bias;
    uint32_t n_bias;
    int32_t n_vocab;
} lily_pick;

/* ---- one run ---- */

enum { LILY_MAX_TOP = 20, LILY_KV_PAGE = 256 };

typedef struct lily_lane {      /* one session in this run */
    lily_state *state;
    const int32_t *tokens;      /* NULL: the token that the previous run left on the device (n_tokens is 1) */
    uint32_t n_tokens;          /* 1 … the plan's max_tokens */
    const lily_pick *pick;      /* NULL: state only, no token wanted */
    bool count;                 /* EMBED counts these tokens for the penalties (replies are counted, prompts not); a
                                   chosen token counts when it becomes an input, before the next choice */
    /* Scoring: for each of the n_tokens positions the log-probability of scored[i] (the token that really
     * followed) and the top id; NULL: none. */
    const int32_t *scored;
    const uint32_t *mark;       /* ascending offsets 1 … n_tokens: after that many of the tokens the recurrent */
    uint32_t n_marks;           /* state is kept as a snapshot, without cutting the run */
    const atomic_bool *cancel;  /* looked at between stages; may be NULL */
} lily_lane;

typedef struct lily_top {
    int32_t token;
    float logprob;
} lily_top;

typedef struct lily_done {
    uint64_t device_ns;
    int32_t  token;             /* the choice, or -1 */
    float    logprob;           /* of the choice, under the plain softmax of the logits: before bias, penalties
                                   and temperature */
    lily_top top[LILY_MAX_TOP]; /* best first, lowest id on ties; the first n_logprobs are set */
    const float *scores;        /* [n_tokens], natural log; valid until the next submit */
    const int32_t *best;        /* [n_tokens] */
    const float *logits;        /* [V] of the last token, in host memory where the device has it there, else NULL;
                                   valid until the next submit */
    bool cancelled;             /* the run was stopped (submit and wait say LILY_OK): see lily_dev_ops.submit for
                                   where its state stands */
} lily_done;

/* ---- the device ---- */

typedef struct lily_dev_options {
    const char *which;          /* variant or index, NULL: best ("avx2", "portable" for cpu) */
    uint32_t threads;           /* 0: real cores */
    void (*loading)(void *user, double fraction);       /* told how far load is; may be NULL */
    void *user;
} lily_dev_options;

/* After stage number `stage` of the plan. */
typedef void lily_watch_fn(void *arg, lily_exec *, uint32_t stage);

typedef struct lily_dev_ops {
    const char *name;           /* "ref", "cpu", "cuda", "metal" */
    const lily_row *rows;       /* preferred first */
    size_t n_rows;
    /* Switches beside the rows': those that it heeds in how it launches and computes (it reads plan->ablated; for
     * TOKEN_HANDOFF: it takes a lane without tokens, and a run before the one before it is waited for), and of all that it
     * cannot go without, why: [N_ABLATIONS], else NULL; a NULL table: there is nothing. */
    uint64_t heeds;
    const char *const *keeps;
    bool own_memory;            /* it has memory of its own, where weights, states and scratch go */
    uint32_t chunk;             /* prompt tokens a run that suit it, if there is memory for them; 0: it does not matter */
    /* NULL: four bytes an element. */
    size_t (*slot_bytes)(const lily_dev *, unsigned slot, const lily_config *, uint32_t tokens);

    /* LILY_UNSUPPORTED when this machine has no such device; the sentence says what is missing. */
    int  (*open)(lily_dev **, const lily_dev_options *, lily_err *);
    void (*close)(lily_dev *);
    /* One line for people ("cpu: 2 threads, avx2", its name, a colon and a blank first), and memory in bytes (0: unknown). */
    void (*describe)(const lily_dev *, char *text, size_t room, uint64_t *memory_total, uint64_t *memory_free);

    /* The model that plans will be made for, told before them: rows may fit one and not another.  NULL: no matter. */
    void (*look)(lily_dev *, const lily_model *);
    /* The model must outlive the weights. */
    int  (*load)(lily_dev *, const lily_model *, lily_weights **, lily_err *);
    void (*unload)(lily_dev *, lily_weights *);
    /* Bytes that load will take beside the map; for the estimate before loading. */
    uint64_t (*load_bytes)(const lily_model *);

    int  (*prepare)(lily_dev *, const lily_weights *, const lily_plan *, lily_exec **, lily_err *);
    void (*release)(lily_dev *, lily_exec *);

    /* State.  KV grows by pages up to what state_grow has allowed; positions count tokens. */
    int  (*state_new)(lily_dev *, const lily_weights *, lily_state **, lily_err *);
    void (*state_free)(lily_dev *, lily_state *);
    /* Makes room for `context` tokens in all; LILY_NO_MEMORY leaves the state as it was. */
    int  (*state_grow)(lily_dev *, lily_state *, uint32_t context, lily_err *);
    uint32_t (*state_position)(const lily_state *);
    /* Positions that the state can go back to, ascending; the live one is the last. Returns how many there are
     * and writes at most `room`. */
    size_t (*state_positions)(const lily_state *, uint32_t *out, size_t room);
    /* dst becomes src as it was at `position`, one of state_positions (or 0: empty), with the snapshots up to
     * there.  dst == src goes back: later snapshots and KV rows are forgotten.  The counts for the penalties
     * start anew. */
    int  (*state_copy)(lily_dev *, lily_state *dst, const lily_state *src, uint32_t position, lily_err *);
    void (*state_drop)(lily_dev *, lily_state *, uint32_t position);      /* forgets a snapshot, not the live state */
    void (*state_count_reset)(lily_state *);                              /* penalties start anew */
    /* Bytes now held by the state, of what branches share an equal part each, so that the sum over all states is what
     * they hold together; and by the formula, for the estimate: fixed part, one snapshot, one token.  KV grows by
     * LILY_KV_PAGE tokens at most. */
    uint64_t (*state_bytes)(const lily_state *);
    void (*state_cost)(const lily_config *, uint64_t *fixed, uint64_t *snapshot, uint64_t *per_token);

    /* States on disk (docs/cache-format.md).  state_layout names what the bytes mean and whatever decides them: device,
     * variant, types; an entry is of use only where it is the same.  Keys and values of n positions from `from` on take
     * n * per_token bytes (state_cost), the recurrent state at one of state_positions `snapshot` bytes; both in host
     * memory.  Loading begins with an empty state that has grown to the whole length: first all rows, then recurrent
     * states at ascending positions: each becomes a snapshot, and the state stands at the last one.  What was loaded may
     * be anything: a device checks nothing but its own bounds.  All five are NULL where a device cannot. */
    void (*state_layout)(const lily_dev *, char *text, size_t room);
    int  (*rows_save)(lily_dev *, const lily_state *, uint32_t from, uint32_t n, void *out, lily_err *);
    int  (*rows_load)(lily_dev *, lily_state *, uint32_t from, uint32_t n, const void *in, lily_err *);
    int  (*recurrent_save)(lily_dev *, const lily_state *, uint32_t position, void *out, lily_err *);
    int  (*recurrent_load)(lily_dev *, lily_state *, uint32_t position, const void *in, lily_err *);

    /* Runs segments first … last of the plan for the lanes (the first version takes one).  LILY_FORWARD appends
     * the lane's tokens to its state and advances the position.  When it fails or is cancelled, KV rows and
     * recurrent states are half written: the state then stands at its newest snapshot that is not later than
     * where the run began (0 when there is none), and state_position tells where that is.  An argument that is
     * refused leaves the state as it was; so does a later segment, which only reads it.
     * submit may return before the work is done; wait blocks for it. */
    int  (*submit)(lily_dev *, lily_exec *, enum lily_segment first, enum lily_segment last, const lily_lane *,
                   uint32_t n_lanes, uint64_t *ticket, lily_err *);
    int  (*wait)(lily_dev *, uint64_t ticket, lily_done *, uint32_t n_lanes, lily_err *);

    /* Benchmarks: bytes a second of plain reads of the weights, nothing computed, as many threads as a run has: the
     * limit of decoding.  One burst of about a tenth of a second.  0: the model is too small to tell.  NULL: none. */
    double (*read_rate)(lily_dev *, const lily_weights *);

    /* Tests: what a slot holds after the last submit, as f32 (int32 slots: as int32), for the tokens of that
     * run; `room` is in bytes.  The plan must have been made with that slot in `keep`; it then holds what the
     * last layer wrote. */
    int  (*peek)(lily_dev *, lily_exec *, unsigned slot, void *dst, size_t room, lily_err *);
    /* Proofs: from now on `watch` is called after each stage of a run, when the slots that the stage wrote can be peeked
     * even if they are not kept, and poked: set to f32 values (or int32) from here.  NULL: no more. */
    void (*watch)(lily_exec *, lily_watch_fn *watch, void *arg);
    int  (*poke)(lily_dev *, lily_exec *, unsigned slot, const void *src, size_t bytes, lily_err *);
    /* A state slot of one layer as f32: SLOT_S, SLOT_TAIL, or SLOT_KV (keys of all positions [n][Hk][D], then
     * values).  *n floats are written; too little room is LILY_ARGUMENT. */
    int  (*peek_state)(lily_dev *, const lily_state *, unsigned slot, uint16_t layer, float *dst, size_t room,
                       size_t *n, lily_err *);
} lily_dev_ops;

/* What one of `owners` is said to hold of shared memory: equal parts, together not less than all. */
static inline uint64_t lily_part_of(uint64_t bytes, uint32_t owners)
{
    return (bytes + owners - 1) / owners;
}

extern const lily_dev_ops lily_dev_ref, lily_dev_cpu, lily_dev_cuda;

/* What the planner needs to know of a device; dev may be NULL before it is open. */
lily_plan_device lily_device_for_plan(const lily_dev_ops *ops, const lily_dev *dev);

/* The devices that were built, best first; *n of them. */
const lily_dev_ops *const *lily_devices(size_t *n);
/* By name; NULL when it was not built. */
const lily_dev_ops *lily_device_find(const char *name);
/* Whether lily_device_open would know the name, without opening anything. */
int lily_device_known(const char *name, lily_err *e);
/* Opens NAME or NAME:VARIANT ("cpu:portable"); "auto" is the best one that opens, which is never ref.
 * LILY_ARGUMENT for an unknown name, with the known ones in the sentence.  o->which is taken from the name. */
int lily_device_open(const lily_dev_ops **ops, lily_dev **dev, const char *name, const lily_dev_options *o, lily_err *e);
/* Why the device cannot go without what a switch turns off, as the rest of a sentence; NULL: it can. */
const char *lily_device_keeps(const lily_dev_ops *ops, unsigned ablation);
/* LILY_UNSUPPORTED, with the first of these switches that it cannot turn off and the reason. */
int lily_device_without(const lily_dev_ops *ops, uint64_t ablated, lily_err *e);

#endif
