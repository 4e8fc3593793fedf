/* added.h - finds added tokens in raw text: leftmost first, longest first. */
#ifndef LILY_TEXT_ADDED_H
#define LILY_TEXT_ADDED_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* What a file may ask for. A search costs at most LILY_ADDED_BYTES steps a byte of text. */
enum { LILY_ADDED_MAX = 4096, LILY_ADDED_BYTES = 256 };

/* A node of the trie: the text read so far. Children form a list through `next`. */
typedef struct lily_added_node {
    int32_t id;              /* the added token with exactly this text, or -1 */
    int32_t child, next;     /* index, or -1 */
    unsigned char byte;      /* the last byte of the text */
} lily_added_node;

typedef struct lily_added {
    lily_added_node *node;
    int32_t n, cap;
    int32_t root[256];       /* node of each first byte, or -1 */
    int32_t tokens;
} lily_added;

void lily_added_init(lily_added *a);
void lily_added_free(lily_added *a);

/* n is 1 … LILY_ADDED_BYTES; a text that is there already is LILY_FORMAT. */
int lily_added_add(lily_added *a, const char *text, size_t n, int32_t id, lily_err *e);

/* The longest added token that text[0 … n) begins with, and its length; or -1. */
int32_t lily_added_prefix(const lily_added *a, const char *text, size_t n, size_t *len);

#endif
