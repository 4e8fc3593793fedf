/* values.h - the numbers in the tensors.  Each entry has its own random stream, seeded by its name, so that
 * entries can be made in any order and by any number of threads. */
#ifndef LILY_TOOLS_VALUES_H
#define LILY_TOOLS_VALUES_H

#include "numpy_random.h"
#include "preset.h"
#include "vocabulary.h"

/* Rows of the embedding share a stream in blocks of this size, and so do rows of the head. */
enum { ROW_BLOCK = 1024 };

typedef struct recipe {
    const preset *preset;
    uint32_t seed;
    np_ziggurat ziggurat;
    /* The head: output row j carries a share of the embedding of token j - step, so that most positions have
     * a clear winner and greedy text walks through the vocabulary; the rest of the row is noise that lets the
     * context decide in the other positions. */
    uint32_t text;              /* tokens with text */
    uint32_t step;              /* coprime to it */
    uint32_t end_of_turn, before_end;
    double signal;
} recipe;

void recipe_init(recipe *r, const preset *p, const vocabulary *v, uint32_t seed);

/* Where finished bytes go: to part `which` of the entry, from its byte `at` on. Returns a lily_code. */
typedef struct sink {
    int (*put)(void *self, uint32_t which, uint64_t at, const void *data, size_t n, lily_err *e);
    void *self;
} sink;

/* Blocks that an entry can be made in, independently of each other. */
uint64_t entry_blocks(const entry *e);
int entry_make(const recipe *r, const entry *e, uint64_t block, const sink *s, lily_err *e_out);

#endif
