#include "base/mem.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static _Thread_local int64_t allowed = -1;
static _Thread_local int64_t asked;

static bool refused(void)
{
    asked++;
    if (allowed < 0) return false;
    if (allowed == 0) return true;
    allowed--;
    return false;
}

void lily_mem_fail_after(int64_t n)
{
    allowed = n;
    asked = 0;
}

int64_t lily_mem_count(void)
{
    return asked;
}

void *lily_calloc(size_t n, size_t size)
{
    size_t bytes;
    if (refused() || __builtin_mul_overflow(n, size, &bytes)) return NULL;
    return calloc(1, bytes ? bytes : 1);
}

void *lily_realloc(void *p, size_t n, size_t size)
{
    size_t bytes;
    if (refused() || __builtin_mul_overflow(n, size, &bytes)) return NULL;
    return realloc(p, bytes ? bytes : 1);
}

void lily_free(void *p)
{
    free(p);
}

void *lily_calloc_aligned(size_t bytes, size_t align)
{
    void *p = NULL;
    if (refused() || bytes > SIZE_MAX - align || posix_memalign(&p, align, bytes ? bytes : 1) != 0) return NULL;
    memset(p, 0, bytes);
    return p;
}

void lily_free_aligned(void *p)
{
    free(p);
}

char *lily_strndup(const char *s, size_t n)
{
    char *copy = lily_calloc(n + 1, 1);
    if (copy) memcpy(copy, s, n);
    return copy;
}

char *lily_strdup(const char *s)
{
    return lily_strndup(s, strlen(s));
}

void lily_mem_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void lily_mem_return_large(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
}

int lily_no_memory(lily_err *e, size_t bytes, const char *what)
{
    return lily_fail(e, LILY_NO_MEMORY, "out of memory (%zu bytes for %s)", bytes, what);
}
