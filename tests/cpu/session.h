/* session.h - one model on one device, for tests that compare runs. */
#ifndef LILY_TESTS_CPU_SESSION_H
#define LILY_TESTS_CPU_SESSION_H

#include "../check.h"

#include "checkpoint/checkpoint.h"
#include "device/dev.h"

/* A checkpoint; `layers` from `first` on are taken as the whole model (0: all of it). */
typedef struct opened {
    lily_ckpt *ckpt;
    lily_model_config *file;
    lily_model *all;
    lily_config config;
    lily_model model;
} opened;

void open_model(opened *o, const char *dir, uint32_t first, uint32_t layers);
void close_model(opened *o);

typedef struct session {
    const lily_dev_ops *ops;
    lily_dev *dev;
    lily_weights *weights;
    lily_plan *plan[2];         /* prefill, decode */
    lily_exec *exec[2];
    lily_state *state;
    uint64_t without, keep;
} session;

enum { PREFILL_TOKENS = 256, CONTEXT = 1024 };

/* which: the device's variant, or NULL.  without: ablation bits; keep: slots to be peeked. */
void open_session(session *s, const opened *o, const lily_dev_ops *ops, const char *which, uint32_t threads,
                  uint64_t without, uint64_t keep);
void close_session(session *s);

/* Appends n tokens in one run (a decode plan's when decode is set) and returns the logits after the last. */
const float *run_tokens(session *s, lily_lane lane, bool decode, lily_done *done);

/* Every switch that splits a fused row. */
uint64_t all_switches(void);

/* Largest |a - b| over the rms of b. */
double difference(const float *a, const float *b, size_t n);

#endif
