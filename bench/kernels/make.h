/* make.h - matrices and vectors to measure on. */
#ifndef LILY_BENCH_MAKE_H
#define LILY_BENCH_MAKE_H

#include "model/weights.h"

/* A stack of random matrices at an odd address; *block is to be freed by lily_free.  Exits when memory is out. */
lily_matrix make_matrix(uint32_t experts, uint32_t rows, uint32_t cols, uint16_t bits, uint16_t group, void **block);
/* n values, roughly normal; freed by lily_free_aligned. */
float *make_floats(size_t n, uint64_t seed);

#endif
