/* arena.h - many small allocations with one lifetime, freed together. */
#ifndef LILY_BASE_ARENA_H
#define LILY_BASE_ARENA_H

#include <stddef.h>

typedef struct lily_arena {
    struct lily_arena_block *first;    /* newest block */
    size_t total;                      /* bytes held */
} lily_arena;                          /* {0} is an empty one */

/* n items of `size` bytes, zeroed, aligned for any type; NULL when memory is out or n * size overflows. */
void *lily_arena_calloc(lily_arena *a, size_t n, size_t size);
char *lily_arena_strndup(lily_arena *a, const char *s, size_t n);
void lily_arena_free(lily_arena *a);

#endif
