#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

struct lily_arena_block {
    struct lily_arena_block *next;
    size_t used, room;
    _Alignas(max_align_t) unsigned char data[];
};

enum { BLOCK_BYTES = 64 * 1024 };

void *lily_arena_calloc(lily_arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 2) return NULL;
    bytes = (bytes + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
    struct lily_arena_block *b = a->first;
    if (!b || b->room - b->used < bytes) {
        size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        b = lily_calloc(1, sizeof *b + room);
        if (!b) return NULL;
        b->room = room;
        b->next = a->first;
        a->first = b;
        a->total += sizeof *b + room;
    }
    void *p = b->data + b->used;
    b->used += bytes;
    return p;
}

char *lily_arena_strndup(lily_arena *a, const char *s, size_t n)
{
    char *copy = lily_arena_calloc(a, n + 1, 1);
    if (copy) memcpy(copy, s, n);
    return copy;
}

void lily_arena_free(lily_arena *a)
{
    while (a->first) {
        struct lily_arena_block *next = a->first->next;
        lily_free(a->first);
        a->first = next;
    }
    a->total = 0;
}
