/* bench.h - how fast prompts are read and tokens come, at given context lengths. */
#ifndef LILY_RUN_BENCH_H
#define LILY_RUN_BENCH_H

#include "base/buf.h"
#include "run/engine.h"

typedef struct lily_bench_options {
    const uint32_t *lengths;    /* context lengths */
    uint32_t n_lengths;
    uint32_t decode_tokens;     /* per sample, from that context on */
    uint32_t samples;
} lily_bench_options;

typedef struct lily_bench_result {
    const char *phase;          /* "prefill" or "decode" */
    uint32_t context;
    uint32_t n_samples;
    double tok_s;               /* median */
    const double *samples;      /* tok/s each */
    /* Decode: bytes that a token moves (weights, state, keys and values), bytes a second of plain reads in bursts
     * before and after each sample, and the share of that rate that decoding reached (medians).  0: not known. */
    double token_bytes, read_rate, read_share;
} lily_bench_result;

/* Calls `result` for each (phase, length) when it is done; lengths alternate, so that drift of the machine falls on
 * all of them. */
int lily_engine_bench(lily_engine *g, const lily_bench_options *o,
                      void (*result)(void *user, const lily_bench_result *r), void *user, lily_err *e);

#endif
