/* disk_inside.h - the index of the cache's folder, as disk.c keeps it and disk_session.c reads and writes what it
 * names.  Private to both. */
#ifndef LILY_RUN_DISK_INSIDE_H
#define LILY_RUN_DISK_INSIDE_H

#include "run/cache_file.h"
#include "run/disk.h"

enum {
    DISK_POSITIONS = 4,         /* recurrent states of a conversation that are written */
    DISK_NAME = 64,             /* bytes of a file's name */
};

typedef struct disk_place {
    uint32_t position;
    lily_replies_key key;       /* of the tokens before it */
} disk_place;

typedef struct disk_entry {
    char name[DISK_NAME];
    uint32_t n, settled;        /* tokens; where the last prompt ends, as lily_session_settled has it */
    uint32_t n_places;
    disk_place place[LILY_CACHE_SECTIONS];      /* ascending; the last one is at n */
} disk_entry;

struct lily_disk {
    const lily_loaded *m;
    char *dir;
    uint64_t limit;
    lily_buf identity;
    uint64_t snapshot, per_token;       /* bytes */
    uint64_t small;                     /* bytes of a file that is written whenever it has changed */
    void *buffer;                       /* for one recurrent state, or one piece of rows */
    disk_entry *entry;
    uint32_t n_entries, cap_entries;
};

/* Reads head, identity and tokens (appended) of a conversation's file, and which positions it has.  LILY_UNSUPPORTED:
 * something else made it. */
int disk_read_entry(const lily_disk *d, const lily_cache_file *f, disk_entry *x, lily_buf *tokens, lily_err *e);
/* The tokens' places with their keys. */
void disk_set_places(disk_entry *x, const int32_t *tokens, const uint32_t *positions, uint32_t n);
int disk_add(lily_disk *d, const disk_entry *x, lily_err *e);
/* Out of the index, and from the disk if `file`. */
void disk_remove(lily_disk *d, uint32_t i, bool file);
/* The entry with the longest prefix of these tokens, *prefix of them; d->n_entries: none. */
uint32_t disk_find(const lily_disk *d, const int32_t *tokens, uint32_t n, uint32_t *prefix);
/* Its time of use is now. */
void disk_touch(const lily_disk *d, const char *name);
/* Removes what was used longest ago until the folder is within its limit. */
void disk_trim(lily_disk *d);

#endif
