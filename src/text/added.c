#include "text/added.h"

#include <string.h>

#include "base/mem.h"

void lily_added_init(lily_added *a)
{
    *a = (lily_added){0};
    memset(a->root, 0xff, sizeof a->root);
}

void lily_added_free(lily_added *a)
{
    lily_free(a->node);
}

static int new_node(lily_added *a, unsigned char byte, int32_t *out, lily_err *e)
{
    if (a->n == a->cap) {
        int32_t cap = a->cap ? a->cap * 2 : 256;
        lily_added_node *node = lily_realloc(a->node, (size_t)cap, sizeof *node);
        if (!node) return lily_no_memory(e, (size_t)cap * sizeof *node, "added tokens");
        a->node = node;
        a->cap = cap;
    }
    a->node[a->n] = (lily_added_node){-1, -1, -1, byte};
    *out = a->n++;
    return LILY_OK;
}

static int32_t child_of(const lily_added *a, int32_t node, unsigned char byte)
{
    int32_t c = a->node[node].child;
    while (c >= 0 && a->node[c].byte != byte) c = a->node[c].next;
    return c;
}

int lily_added_add(lily_added *a, const char *text, size_t n, int32_t id, lily_err *e)
{
    if (n == 0 || n > LILY_ADDED_BYTES)
        return lily_fail(e, LILY_FORMAT, "an added token has %zu bytes, expected 1 to %d", n,
                         LILY_ADDED_BYTES);
    if (++a->tokens > LILY_ADDED_MAX)
        return lily_fail(e, LILY_FORMAT, "more than %d added tokens", LILY_ADDED_MAX);
    unsigned char first = (unsigned char)text[0];
    if (a->root[first] < 0) TRY(new_node(a, first, &a->root[first], e));
    int32_t at = a->root[first];
    for (size_t i = 1; i < n; i++) {
        int32_t child = child_of(a, at, (unsigned char)text[i]);
        if (child < 0) {
            TRY(new_node(a, (unsigned char)text[i], &child, e));
            a->node[child].next = a->node[at].child;
            a->node[at].child = child;
        }
        at = child;
    }
    if (a->node[at].id >= 0)
        return lily_fail(e, LILY_FORMAT, "added tokens %d and %d have the same text", (int)a->node[at].id,
                         (int)id);
    a->node[at].id = id;
    return LILY_OK;
}

int32_t lily_added_prefix(const lily_added *a, const char *text, size_t n, size_t *len)
{
    int32_t id = -1;
    *len = 0;
    if (n == 0) return id;
    int32_t at = a->root[(unsigned char)text[0]];
    for (size_t i = 1; at >= 0; i++) {
        if (a->node[at].id >= 0) {
            id = a->node[at].id;
            *len = i;
        }
        if (i == n) break;
        at = child_of(a, at, (unsigned char)text[i]);
    }
    return id;
}
