/* pace.h - how many tokens of a prompt to read at a time while others wait.  Private to src/run.
 *
 * What a token costs depends on how many are read with it, the less the more, so a slice is sized by what the last
 * slices took, and grows at most twofold at a time.  Before there was any, a token is taken to cost what a decoded one
 * does, which is the most that it can. */
#ifndef LILY_RUN_PACE_H
#define LILY_RUN_PACE_H

#include <stdint.h>

enum {
    LILY_SLICE_MS = 350,            /* while a reply is being given */
    LILY_SLICE_READING_MS = 1500,   /* while others have yet to begin theirs */
};

typedef struct lily_pace {
    uint64_t decode_ns;             /* of the last decoded token; 0: none yet */
    uint64_t token_ns;              /* a token's share of the last slice; 0: none yet */
    uint32_t slice;                 /* its tokens */
} lily_pace;

/* Tokens that take about so long; 1 at least. */
uint32_t lily_pace_slice(const lily_pace *p, uint32_t ms);
void lily_pace_decoded(lily_pace *p, uint64_t ns);
void lily_pace_sliced(lily_pace *p, uint32_t tokens, uint64_t ns);

#endif
