/* result_line.h - how each JSON line of a measurement begins: what ran, where, when (docs/results-schema.md). */
#ifndef LILY_CLI_RESULT_LINE_H
#define LILY_CLI_RESULT_LINE_H

#include "run/engine.h"

/* Prints {"version": … "model": "…" to standard output: further fields follow with a comma before each. */
void lily_result_line_begin(const lily_engine *g, const lily_engine_options *o);

#endif
