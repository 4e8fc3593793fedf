/* load.h - a checkpoint folder opened on a device: everything that a run needs and that no run changes. */
#ifndef LILY_RUN_LOAD_H
#define LILY_RUN_LOAD_H

#include "checkpoint/checkpoint.h"
#include "device/dev.h"
#include "run/ahead.h"
#include "run/engine.h"
#include "sample/mask.h"

/* How far to go: CHECK reads headers, configuration, tokenizer and template and plans on the device; SCRIPT is
 * the same on whatever device opens, for a server that computes nothing; FULL also makes the device's
 * weights and its plans ready to run, after the plan was found to fit into memory. */
enum lily_load_depth { LILY_LOAD_CHECK, LILY_LOAD_SCRIPT, LILY_LOAD_FULL };

typedef struct lily_loaded {
    char *name;                     /* of the folder */
    lily_model_config *settings;
    const lily_config *config;      /* its numbers */
    lily_ckpt *ckpt;
    lily_model *model;
    lily_tokenizer *tokenizer;
    lily_template *chat;
    lily_token_trie *trie;            /* for grammars; not with CHECK */
    uint32_t context, chunk;        /* tokens in all; prompt tokens a run at most */
    uint64_t ablated;
    lily_memory memory;
    uint64_t kept;                  /* bytes that conversations which nobody runs may hold */
    char device_text[128];
    uint64_t device_total, device_free;     /* bytes of the device's memory; 0: unknown */

    const lily_dev_ops *ops;
    lily_dev *dev;
    uint64_t refused[LILY_MAX_ROWS / 64];   /* rows that ref does not agree with */
    lily_plan *decode, *prefill;    /* of one token, of a chunk */
    /* FULL only */
    lily_weights *weights;
    lily_exec *run_decode, *run_prefill;
    lily_ahead *ahead;              /* makes masks during runs; NULL: they are made before */
} lily_loaded;

/* The plans of one token and of a chunk, for m's device, sizes and switches. */
int lily_plan_runs(lily_loaded *m, lily_err *e);
/* The same, and what memory it will take; a chunk that nobody asked for is as long as there is memory for it. */
int lily_plan_memory(lily_loaded *m, const lily_engine_options *o, lily_err *e);
/* Whether the next run is submitted before the token in front of it is read. */
static inline bool lily_hands_over(const lily_loaded *m)
{
    return m->ops->heeds & ~m->ablated & lily_bit(ABLATE_TOKEN_HANDOFF);
}

/* Opens; on failure everything is closed again. */
int lily_load(lily_loaded *m, const lily_engine_options *o, enum lily_load_depth depth, lily_err *e);
void lily_unload(lily_loaded *m);
/* For plans: the device without the rows that were refused. */
lily_plan_device lily_loaded_device(const lily_loaded *m);

#endif
