/* guide.h - what a reply must be, token by token.  Private to src/run.
 *
 * A reply goes through phases: a thought, then an answer in a format or calls of tools.
 *
 * A thought is free.  Where something must follow it the turn cannot end inside it, unless right behind a tool
 * call, which the reader of replies takes for one (text/reply.h).  With a budget it takes so many tokens at most:
 * the guide closes it by forced tokens, a line end and </think>, before them a closing sentence where the budget is
 * large enough for one; these count too.  The budget is one for all thoughts of a reply.  A character that is under way is finished first, and a call that has just
 * ended may be the end.
 *
 * Behind the thought the grammar of the answer holds, or a call may begin in its place.  A grammar of calls holds
 * from <tool_call> to </tool_call>: where calls are required nothing but calls may come, else wherever one begins
 * that is not quoted.
 *
 * Where a single text can follow it is forced: tokens that come without a choice. */
#ifndef LILY_RUN_GUIDE_H
#define LILY_RUN_GUIDE_H

#include "run/load.h"
#include "text/ids.h"
#include "text/markdown.h"

enum lily_guide_phase {
    LILY_GUIDE_FREE,
    LILY_GUIDE_THOUGHT,
    LILY_GUIDE_FORMAT,      /* the answer's grammar */
    LILY_GUIDE_TEXT,        /* free, but calls are looked for, and a budget looks for further thoughts */
    LILY_GUIDE_BEFORE_CALL, /* a call must come */
    LILY_GUIDE_CALL,
    LILY_GUIDE_BEHIND_CALL, /* the end, or another call */
};

typedef struct lily_guide {
    const lily_loaded *m;
    const lily_ask *ask;
    enum lily_guide_phase phase;
    lily_mask *format, *call;          /* or NULL */
    uint32_t *own;                     /* a mask of the guide's making */
    int32_t think_begin, think_end, call_begin, call_end; /* ids; -1: there is none */
    bool begun;                        /* a token of the answer came that is no white space */
    uint32_t blanks;                   /* bytes of white space where a call is due */
    markdown line;                     /* of the text */

    /* the thought */
    bool called;                       /* it ends in a call so far */
    uint32_t n_thought;                /* its tokens */
    char last;                         /* byte */
    unsigned open;                     /* bytes that its last character still needs */
    uint32_t close_at;                 /* tokens of it when the guide closes it */
    uint32_t sentence;                 /* tokens of the closing sentence, 0: without */
    bool closing;                      /* the guide has begun to close it */

    lily_ids forced;                   /* those from forced_at on are still to come */
    size_t forced_at;
    bool whole;                        /* force all that is certain; else leave the last token of it to be chosen, which
                                          may reach further */
} lily_guide;                          /* {0} is free */

/* The ask must outlive the guide. whole: see above; for scripts, whose tokens need not be those of a vocabulary. */
int lily_guide_begin(lily_guide *g, const lily_loaded *m, const lily_ask *ask, bool whole, lily_err *e);
void lily_guide_end(lily_guide *g);
/* The token that must come, -1: there is a choice.  *closes: it closes the thinking, and comes whatever else would
 * fit. */
int lily_guide_forced(lily_guide *g, int32_t *id, bool *closes, lily_err *e);
/* *finished: the reply is complete and nothing but the end of the turn can follow. */
int lily_guide_finished(lily_guide *g, bool *finished, lily_err *e);
/* Whether anything is forbidden now. */
bool lily_guide_holds(const lily_guide *g);
/* The tokens that may follow while it is not finished, NULL: any; a forced one alone; valid until the next call.
 * LILY_UNSUPPORTED when the grammar cannot go on with this vocabulary. */
int lily_guide_allowed(lily_guide *g, const uint32_t **allow, lily_err *e);
/* A token was chosen (id -1: bytes without an id). *fits false: it is refused, and nothing has changed. */
int lily_guide_take(lily_guide *g, int32_t id, const char *bytes, size_t n, bool *fits, lily_err *e);
/* Whether the turn may end here. */
bool lily_guide_may_end(const lily_guide *g);
/* Whether the end of the turn counts although the request ignores it: something decides where it may be. */
bool lily_guide_binds(const lily_guide *g);

#endif
