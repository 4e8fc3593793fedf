/* mem.h - the general allocator.  Every allocation of Lily's own goes through here, so that a test can
 * make the n-th one fail and a size out of a file can never wrap. */
#ifndef LILY_BASE_MEM_H
#define LILY_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* n items of `size` bytes, zeroed, or NULL (also when n * size overflows). Zero items give a valid pointer. */
void *lily_calloc(size_t n, size_t size);
/* Resizes to n items; the old block stays valid on NULL. */
void *lily_realloc(void *p, size_t n, size_t size);
void lily_free(void *p);

/* Zeroed and aligned to `align` (a power of two); freed by lily_free_aligned.  For device buffers. */
void *lily_calloc_aligned(size_t bytes, size_t align);
void lily_free_aligned(void *p);

/* A NUL-terminated copy of s[0 … n), or NULL. */
char *lily_strndup(const char *s, size_t n);
char *lily_strdup(const char *s);

/* Gives freed memory back to the system where the C library would keep it.  It takes milliseconds. */
void lily_mem_trim(void);

/* For programs that run for long, once at the start: large blocks (states, snapshots, bodies) go back to the system when
 * they are freed.  glibc would keep them in its heap from the first one on, where they leave holes. */
void lily_mem_return_large(void);

/* "out of memory (BYTES bytes for WHAT)" */
int lily_no_memory(lily_err *e, size_t bytes, const char *what);

/* Tests: let n more allocations succeed on this thread, then fail all until called again; -1: never fail. */
void lily_mem_fail_after(int64_t n);
/* How many allocations this thread has asked for since lily_mem_fail_after. */
int64_t lily_mem_count(void);

#endif
