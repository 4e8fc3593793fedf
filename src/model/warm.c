#include "model/warm.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "model/tensor_name.h"

enum {
    BLOCK = 8 << 20,            /* bytes looked at and touched at a time */
    AHEAD = 8,                  /* blocks that the system is asked for in advance */
    SMALLEST_PAGE = 4096,
};

typedef struct block {
    const uint8_t *at;          /* on a page's start */
    size_t bytes;
} block;

typedef struct blocks {
    block *block;
    size_t n;
    uintptr_t page;
} blocks;

static int by_address(const void *a, const void *b)
{
    const block *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* A tensor's pages in blocks; pages at a tensor's ends may be shared with its neighbours, which is no harm. */
static void cut(blocks *l, const lily_tensor *t)
{
    const uint8_t *at = (const uint8_t *)((uintptr_t)t->data & ~(l->page - 1)), *end = t->data + t->bytes;
    for (; at < end; at += BLOCK)
        l->block[l->n++] = (block){at, (size_t)(end - at) < BLOCK ? (size_t)(end - at) : BLOCK};
}

static int list(blocks *l, const lily_ckpt *c, lily_err *e)
{
    const char *name;
    size_t most = 0;
    for (size_t i = 0; i < lily_ckpt_count(c); i++) most += (lily_ckpt_at(c, i)->bytes + l->page) / BLOCK + 1;
    l->block = lily_calloc(most, sizeof *l->block);
    if (!l->block) return lily_no_memory(e, most * sizeof *l->block, "the list of weights");
    for (size_t i = 0; i < lily_ckpt_count(c); i++) {
        const lily_tensor *t = lily_ckpt_at(c, i);
        if (t->bytes && lily_tensor_name(t->name, &name) == LILY_TENSOR_TEXT) cut(l, t);
    }
    qsort(l->block, l->n, sizeof *l->block, by_address);
    return LILY_OK;
}

static bool resident(const block *b, uintptr_t page)
{
    static const size_t most = BLOCK / SMALLEST_PAGE + 1;
    unsigned char in_memory[BLOCK / SMALLEST_PAGE + 1];
    size_t pages = (b->bytes + page - 1) / page;
    if (pages > most || mincore((void *)b->at, b->bytes, (void *)in_memory) != 0) return false;
    for (size_t i = 0; i < pages; i++)
        if (!(in_memory[i] & 1)) return false;
    return true;
}

static void touch(const block *b, uintptr_t page)
{
    const volatile uint8_t *p = b->at;
    for (size_t i = 0; i < b->bytes; i += page) (void)p[i];
}

/* Keeps only blocks of which something is missing. */
static void keep_missing(blocks *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        if (!resident(&l->block[i], l->page)) l->block[n++] = l->block[i];
    l->n = n;
}

int lily_model_warm(const lily_ckpt *c, const atomic_bool *cancel, void (*progress)(void *user, double fraction),
                    void *user, lily_err *e)
{
    blocks l = {.page = (uintptr_t)sysconf(_SC_PAGESIZE)};
    int rc = LILY_OK;
    TRY(list(&l, c, e));
    keep_missing(&l);
    size_t told = 0;
    for (size_t i = 0; i < l.n && rc == LILY_OK; i++) {
        for (size_t k = i ? i + AHEAD : 0; k <= i + AHEAD && k < l.n; k++)
            posix_madvise((void *)l.block[k].at, l.block[k].bytes, POSIX_MADV_WILLNEED);
        touch(&l.block[i], l.page);
        if (cancel && atomic_load(cancel)) rc = lily_fail(e, LILY_CANCELLED, "stopped while reading weights");
        if (!progress || 100 * (i + 1) / l.n == told) continue;
        told = 100 * (i + 1) / l.n;
        progress(user, (double)(i + 1) / (double)l.n);
    }
    lily_free(l.block);
    return rc;
}
