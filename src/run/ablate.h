/* ablate.h - what a switch is worth: the model with it and without it, in pairs that alternate. */
#ifndef LILY_RUN_ABLATE_H
#define LILY_RUN_ABLATE_H

#include "run/engine.h"
#include "run/timing.h"

typedef struct lily_ablate_options {
    uint64_t switches;          /* lily_ablation bits */
    lily_timing timing;
    double seconds;             /* for one switch, phase and length: no further pair after so long, but three at least;
                                   0: all pairs */
} lily_ablate_options;

typedef struct lily_ablate_result {
    unsigned which;             /* the switch */
    const char *refused;        /* why it cannot be measured here: then nothing below is set; else NULL */
    const char *phase;          /* "prefill" or "decode" */
    uint32_t context, tokens;   /* tokens of a sample, the last of which ends (prefill) or begins (decode) at `context` */
    uint32_t n_pairs;
    const double *with, *without;       /* tok/s of each pair */
    double with_tok_s, without_tok_s;   /* medians */
    /* What the switch is worth: with / without - 1, the geometric mean over pairs, and the interval in which its
     * expectation lies with 95 % confidence, by Student's t of the logarithms of the ratios. */
    double effect, low, high;
} lily_ablate_result;

/* Calls `result` once for each switch that is refused, and for each (length, switch, phase) that is measured.
 *
 * Pairs alternate: with, without, without, with …, so that drift falls on both; one unmeasured pair comes first.  A prompt
 * is read once for each length: samples of decoding branch off at its end, samples of reading, at most a chunk, off before
 * its last chunk.  prompt-chunks alone reads whole prompts, where they are longer than a chunk.  What a switch needs to be
 * seen (lily_ablation_below) is off on both sides. */
int lily_engine_ablate(lily_engine *g, const lily_ablate_options *o,
                       void (*result)(void *user, const lily_ablate_result *r), void *user, lily_err *e);

/* The mean of n >= 2 values, and how far from it 95 % confidence reaches to both sides. */
double lily_ablate_mean(const double *values, uint32_t n, double *reach);

#endif
