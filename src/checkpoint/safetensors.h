/* safetensors.h - the header of one mapped safetensors file.  Private to src/checkpoint. */
#ifndef LILY_CHECKPOINT_SAFETENSORS_H
#define LILY_CHECKPOINT_SAFETENSORS_H

#include "base/arena.h"
#include "base/file.h"
#include "checkpoint/checkpoint.h"

/* Longest header that is parsed: room for 25,000 tensors, the full model has 260 KB.  It bounds what the JSON
 * parser may allocate (up to 50 times as much), since no number in the file does. */
enum { LILY_ST_MAX_HEADER = 4 << 20 };

/* Reads the header of `map`, whose file is called `file`.  Every tensor of *list (allocated from the arena,
 * in the order of the header) lies inside the map, has the bytes that its shape and type ask for, and
 * shares none with another; together they fill the file.  Names and the list live in the arena. */
int lily_st_parse(lily_tensor **list, size_t *n, const lily_map *map, const char *file, lily_arena *arena,
                  lily_err *e);

#endif
