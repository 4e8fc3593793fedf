/* check.h - errors end a benchmark that runs the model: CHECK(call) of what returns 0 or fails, with `failure` as its lily_err. */
#ifndef LILY_BENCH_CHECK_H
#define LILY_BENCH_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"

#define CHECK(call)                                                        \
    do {                                                                   \
        const int code_ = (int)(call);                                     \
        if (code_) {                                                       \
            fprintf(stderr, "%s: %d: %s\n", #call, code_, failure.text);   \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

static lily_err failure;

#endif
