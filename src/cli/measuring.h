/* measuring.h - what lily bench and lily ablate share: what to time, the engine, and how results begin. */
#ifndef LILY_CLI_MEASURING_H
#define LILY_CLI_MEASURING_H

#include "cli/commands.h"
#include "run/timing.h"

typedef struct lily_measuring {
    lily_engine *g;
    lily_engine_options o;
    bool json;
    lily_timing timing;
    uint32_t *lengths;          /* of the timing, if they were given */
    char *dir;
} lily_measuring;

/* Reads the options; `timing` has what holds where none was given.  Opens the engine, which keeps no conversations, and
 * says which device it is, unless results are JSON. */
int lily_measuring_open(lily_measuring *w, const lily_args *a, lily_timing timing, lily_err *e);
void lily_measuring_close(lily_measuring *w);

/* ", "name": [1, 2]" */
void lily_print_list(const char *name, const double *values, uint32_t n);

#endif
