/* guide.h - what a reply must be, token by token.  Private to src/run.
 *
 * A thought comes first and is free, but the turn cannot end inside it, unless right behind a tool call,
 * which the reader of replies takes for one (text/reply.h).  Behind </think> the grammar holds, or a tool
 * call may begin, after which all is free. */
#ifndef LILY_RUN_GUIDE_H
#define LILY_RUN_GUIDE_H

#include "run/load.h"

typedef struct lily_guide {
    const lily_loaded *m;
    lily_mask *mask;                   /* NULL: all is free */
    uint32_t *own;                     /* a mask of the guide's making, or NULL */
    int32_t think_end, call, call_end; /* ids; -1: there is none, or it does not matter here */
    bool thinking, begun;              /* begun: a token of the answer came */
    bool called;                       /* the thought so far ends in a call */
} lily_guide;                          /* {0} is free */

int lily_guide_begin(lily_guide *g, const lily_loaded *m, const lily_ask *ask, lily_err *e);
void lily_guide_end(lily_guide *g);
/* The tokens that may follow, NULL: any; valid until the next call. *finished: the reply is complete and
 * nothing but the end of the turn can follow. LILY_UNSUPPORTED when the grammar cannot go on with this
 * vocabulary. */
int lily_guide_allowed(lily_guide *g, const uint32_t **allow, bool *finished, lily_err *e);
/* A token was chosen (id -1: bytes without an id). *fits false: the grammar refuses it. */
int lily_guide_take(lily_guide *g, int32_t id, const char *bytes, size_t n, bool *fits, lily_err *e);
/* Whether the turn may end here. */
bool lily_guide_may_end(const lily_guide *g);

#endif
