/* bench.h - how fast prompts are read and tokens come, at given context lengths. */
#ifndef LILY_RUN_BENCH_H
#define LILY_RUN_BENCH_H

#include "run/engine.h"
#include "run/timing.h"

typedef struct lily_bench_options {
    lily_timing timing;
    const uint32_t *rows;       /* also runs of so many tokens whose choices are all wanted, as when guesses are verified */
    uint32_t n_rows;
} lily_bench_options;

typedef struct lily_bench_result {
    const char *phase;          /* "prefill", "decode" or "verify" */
    uint32_t context;
    uint32_t rows;              /* verify: tokens a run; else 0 */
    uint32_t n_samples;
    double tok_s;               /* median */
    const double *samples;      /* tok/s each */
    /* Decode: bytes that a token moves (weights, state, keys and values), bytes a second of plain reads in bursts
     * before and after each sample, and the share of that rate that decoding reached (medians).  0: not known. */
    double token_bytes, read_rate, read_share;
    uint64_t device_bytes;      /* taken since the device was opened, of memory of its own; it only grows.  0: none */
} lily_bench_result;

/* Calls `result` for each (phase, length) when it is done; lengths alternate, so that drift of the machine falls on
 * all of them. */
int lily_engine_bench(lily_engine *g, const lily_bench_options *o,
                      void (*result)(void *user, const lily_bench_result *r), void *user, lily_err *e);

#endif
