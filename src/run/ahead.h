/* ahead.h - one thread that sleeps until there is something to do while the device runs.
 *
 * The mask of the next token depends on the last one only, and so does the forward pass: the engine's thread
 * hands the mask over, enters the run, and joins before the choice.  Between BEGIN and JOIN what was handed
 * over is the thread's alone.  Private to src/run. */
#ifndef LILY_RUN_AHEAD_H
#define LILY_RUN_AHEAD_H

#include "base/err.h"

typedef struct lily_ahead lily_ahead;

int lily_ahead_new(lily_ahead **out, lily_err *e);
void lily_ahead_free(lily_ahead *a); /* NULL is allowed */
/* Starts work(arg, …); what was begun before must have been joined. */
void lily_ahead_begin(lily_ahead *a, int (*work)(void *arg, lily_err *e), void *arg);
/* Waits for what was begun and gives what it returned; once more, the same again. */
int lily_ahead_join(lily_ahead *a, lily_err *e);

#endif
