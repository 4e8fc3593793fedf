/* file.h - files read whole or mapped.  Sentences name a file that cannot be opened by its path,
 * one that was opened by the last component of it. */
#ifndef LILY_BASE_FILE_H
#define LILY_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct lily_map {
    const uint8_t *data;    /* page-aligned, read-only, private to nobody; NULL for an empty file */
    uint64_t size;          /* bytes when it was mapped */
} lily_map;

/* Maps a regular file; a directory, pipe or device is refused. */
int lily_map_open(lily_map *m, const char *path, lily_err *e);
void lily_map_close(lily_map *m);

/* Reads a regular file of at most `limit` bytes into out (appended). "-" is standard input. */
int lily_file_read(lily_buf *out, const char *path, size_t limit, lily_err *e);

bool lily_file_exists(const char *path);
/* The part after the last '/', in place. */
const char *lily_path_base(const char *path);
/* dir/name, allocated; NULL when memory is out. */
char *lily_path_join(const char *dir, const char *name);

#endif
