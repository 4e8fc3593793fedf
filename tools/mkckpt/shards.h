/* shards.h - which entry goes to which safetensors file, their headers, and writing to the right place. */
#ifndef LILY_TOOLS_SHARDS_H
#define LILY_TOOLS_SHARDS_H

#include "base/arena.h"
#include "preset.h"
#include "values.h"

typedef struct place {
    int fd;
    const char *file;           /* its name, for sentences and the index */
    uint64_t at[3];             /* offset in the file of each part */
} place;

typedef struct shards {
    lily_arena arena;
    const entry *entries;
    size_t n_entries;
    place *place;               /* [n_entries] */
    size_t *first;              /* [n + 1] first entry of each shard */
    uint32_t n;
    uint64_t bytes;             /* of all tensors */
} shards;

/* Divides the entries: into p->shards parts of about the same size, or such that none passes `limit` bytes. */
int shards_plan(shards *s, const preset *p, const entry *entries, size_t n, double limit, lily_err *e);
/* Creates the files in dir at their full size with their headers. */
int shards_create(shards *s, const preset *p, const char *dir, lily_err *e);
/* dir/model.safetensors.index.json */
int shards_write_index(const shards *s, const char *dir, lily_err *e);
int shards_close(shards *s, lily_err *e);       /* also reports a write that failed late */

/* Creates dir/name with these bytes. */
int write_file(const char *dir, const char *name, const void *data, size_t n, lily_err *e);
int write_at(int fd, const char *file, uint64_t at, const void *data, size_t n, lily_err *e);

#endif
