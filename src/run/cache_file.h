/* cache_file.h - one file of the cache on disk: sections with checksums (docs/cache-format.md).
 *
 * Reading trusts nothing: what a file says of itself is checked against its size when it is opened, and each section
 * against its checksum when it is read.  Writing goes to a temporary file beside the others, which takes its name when
 * it is complete, so that a reader, another process too, sees all of it or nothing. */
#ifndef LILY_RUN_CACHE_FILE_H
#define LILY_RUN_CACHE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum lily_cache_kind { LILY_CACHE_CONVERSATION = 1, LILY_CACHE_REPLIES = 2 };

enum lily_cache_type {
    LILY_CACHE_IDENTITY = 1,    /* text: what made it; of use only where it is the same */
    LILY_CACHE_TOKENS = 2,      /* int32 each; number: of these before the last reply (lily_session_settled) */
    LILY_CACHE_RECURRENT = 3,   /* number: the position */
    LILY_CACHE_ROWS = 4,        /* number: how many positions; its checksum is 0, ROW_SUMS has those of its pieces */
    LILY_CACHE_ROW_SUMS = 5,    /* uint32 each: CRC-32C of each LILY_CACHE_PIECE positions of ROWS */
    LILY_CACHE_SAID = 6,        /* replies (replies.h) */
};

enum {
    LILY_CACHE_SECTIONS = 16,   /* of a file at most */
    LILY_CACHE_PIECE = 256,     /* positions */
};

typedef struct lily_cache_section {
    uint32_t type, number;
    uint64_t at, bytes;         /* in the file */
    uint32_t crc;
} lily_cache_section;

/* ---- reading ---- */

typedef struct lily_cache_file {
    int fd;
    enum lily_cache_kind kind;
    uint32_t n_sections;
    lily_cache_section section[LILY_CACHE_SECTIONS];
} lily_cache_file;

/* LILY_FORMAT when it is damaged, of another version, or no file of the cache; LILY_IO when it cannot be read. */
int lily_cache_open(lily_cache_file *f, const char *path, lily_err *e);
void lily_cache_close(lily_cache_file *f);
/* The first section of the type, or NULL. */
const lily_cache_section *lily_cache_find(const lily_cache_file *f, enum lily_cache_type type);
/* A whole section of at most `limit` bytes, its checksum checked; appended. */
int lily_cache_read(const lily_cache_file *f, const lily_cache_section *s, size_t limit, lily_buf *out, lily_err *e);
/* The same into memory that has room for exactly that. */
int lily_cache_read_into(const lily_cache_file *f, const lily_cache_section *s, void *out, size_t n, lily_err *e);
/* n bytes of a section from `from` on, unchecked. */
int lily_cache_read_part(const lily_cache_file *f, const lily_cache_section *s, uint64_t from, void *out, size_t n,
                         lily_err *e);

/* ---- writing ---- */

typedef struct lily_cache_writer {
    int fd;
    char *temporary;            /* its path */
    lily_cache_file head;
    uint64_t at;                /* bytes so far */
} lily_cache_writer;

int lily_cache_create(lily_cache_writer *w, const char *dir, enum lily_cache_kind kind, lily_err *e);
/* Begins a section; what is written next is its content. */
int lily_cache_begin(lily_cache_writer *w, enum lily_cache_type type, uint32_t number, lily_err *e);
int lily_cache_write(lily_cache_writer *w, const void *data, size_t n, lily_err *e);
/* The file is complete and becomes dir/name.  Either this or ABANDON ends every writer that was created.  `sync`: it is
 * on the disk then, which takes a while; else a power cut may leave it damaged, which a reader finds. */
int lily_cache_commit(lily_cache_writer *w, const char *dir, const char *name, bool sync, lily_err *e);
void lily_cache_abandon(lily_cache_writer *w);

#endif
