/* ablate.h - what a switch is worth: the model with it and without it, in pairs that alternate. */
#ifndef LILY_RUN_ABLATE_H
#define LILY_RUN_ABLATE_H

#include "run/engine.h"

typedef struct lily_ablate_options {
    uint64_t switches;          /* lily_ablation bits */
    const uint32_t *lengths;    /* context lengths */
    uint32_t n_lengths;
    uint32_t decode_tokens;     /* a sample, from that context on */
    uint32_t pairs;
} lily_ablate_options;

typedef struct lily_ablate_result {
    unsigned which;             /* the switch */
    const char *refused;        /* why it cannot be measured here: then nothing below is set; else NULL */
    const char *phase;          /* "prefill" or "decode" */
    uint32_t context;
    uint32_t n_pairs;
    const double *with, *without;       /* tok/s of each pair */
    double with_tok_s, without_tok_s;   /* medians */
    /* What the switch is worth: with / without - 1, the median over pairs, and the interval in which the median lies
     * with 95 % confidence (by order of rank, no distribution assumed; with less than six pairs, all of them). */
    double effect, low, high;
} lily_ablate_result;

/* Calls `result` once for each switch that is refused, and for each (switch, phase, length) that is measured.
 * Pairs alternate: with, without, without, with …, so that drift falls on both. */
int lily_engine_ablate(lily_engine *g, const lily_ablate_options *o,
                       void (*result)(void *user, const lily_ablate_result *r), void *user, lily_err *e);

/* The ranks (from 0) of the sorted pairs between which the median lies with 95 % confidence: the lower one; the upper
 * one is n - 1 - it. */
uint32_t lily_ablate_rank(uint32_t n);

#endif
