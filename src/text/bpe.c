/* Two ways to the same result: words are a few bytes long, and searching the lowest rank in a small array
 * is fastest; a long run (base64, a megabyte of one letter) goes through a heap over a linked list. */
#include "text/bpe.h"

#include <string.h>

#include "base/mem.h"
#include "base/random.h"

enum { SHORT = 48 };               /* bytes of a piece that is searched linearly */
#define NO_RANK UINT32_MAX

int lily_bpe_init(lily_bpe *b, size_t n, lily_err *e)
{
    *b = (lily_bpe){.mask = 15, .seed = lily_random_seed()};
    while (b->mask < n * 2) b->mask = b->mask * 2 + 1;
    b->slot = lily_calloc(b->mask + 1, sizeof *b->slot);
    if (!b->slot) return lily_no_memory(e, (b->mask + 1) * sizeof *b->slot, "merges");
    for (uint64_t i = 0; i <= b->mask; i++) b->slot[i].pair = UINT64_MAX;
    return LILY_OK;
}

void lily_bpe_free(lily_bpe *b)
{
    lily_free(b->slot);
}

/* The slot of the pair, or the empty one where it belongs. */
static inline lily_merge *find_merge(const lily_bpe *b, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t h = (pair ^ b->seed) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    uint64_t i = (h ^ h >> 32) & b->mask;
    while (b->slot[i].pair != pair && b->slot[i].pair != UINT64_MAX) i = (i + 1) & b->mask;
    return &b->slot[i];
}

bool lily_bpe_add(lily_bpe *b, int32_t left, int32_t right, int32_t id)
{
    lily_merge *m = find_merge(b, left, right);
    if (m->pair != UINT64_MAX) return false;
    *m = (lily_merge){(uint64_t)(uint32_t)left << 32 | (uint32_t)right, b->n++, id};
    return true;
}

typedef struct pair_info {
    uint32_t rank;       /* NO_RANK: the pair does not merge */
    int32_t id;
} pair_info;

static inline pair_info look_up(const lily_bpe *b, int32_t left, int32_t right)
{
    const lily_merge *m = find_merge(b, left, right);
    if (m->pair == UINT64_MAX) return (pair_info){NO_RANK, -1};
    return (pair_info){m->rank, m->id};
}

/* piece of 2 … SHORT bytes; id has room for n. Returns the number of tokens. */
static size_t encode_short(const lily_bpe *b, const unsigned char *piece, size_t n, int32_t *id)
{
    pair_info pair[SHORT];         /* [i]: of tokens i and i + 1 */
    for (size_t i = 0; i < n; i++) id[i] = b->byte_id[piece[i]];
    for (size_t i = 0; i + 1 < n; i++) pair[i] = look_up(b, id[i], id[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (pair[i].rank < pair[best].rank) best = i;
        if (pair[best].rank == NO_RANK) break;
        id[best] = pair[best].id;
        memmove(id + best + 1, id + best + 2, (n - best - 2) * sizeof *id);
        if (best + 2 < n) memmove(pair + best, pair + best + 1, (n - best - 2) * sizeof *pair);
        n--;
        if (best > 0) pair[best - 1] = look_up(b, id[best - 1], id[best]);
        if (best + 1 < n) pair[best] = look_up(b, id[best], id[best + 1]);
    }
    return n;
}

/* A long piece: the tokens are a doubly linked list over the places of their first bytes, and a heap holds
 * (rank << 32 | place) of every pair that merges.  A pair changes only by growing and ranks are unique to a
 * pair, so an entry is stale exactly when the rank noted at its place is another. */
typedef struct long_piece {
    uint64_t *heap;      /* [2 n]: n - 1 at the start, and each merge removes one and adds up to two */
    size_t n_heap;
    pair_info *pair;     /* [n] of the token at a place and its right neighbour */
    int32_t *id;         /* [n] */
    uint32_t *prev, *next;
} long_piece;

enum { LONG_BYTES = 2 * 8 + 8 + 4 + 4 + 4 };

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t v = heap[i];
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= n) break;
        if (c + 1 < n && heap[c + 1] < heap[c]) c++;
        if (heap[c] >= v) break;
        heap[i] = heap[c];
        i = c;
    }
    heap[i] = v;
}

static void push(long_piece *l, uint64_t v)
{
    size_t i = l->n_heap++;
    for (; i > 0 && l->heap[(i - 1) / 2] > v; i = (i - 1) / 2) l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = v;
}

static uint64_t pop(long_piece *l)
{
    uint64_t v = l->heap[0];
    l->heap[0] = l->heap[--l->n_heap];
    sift_down(l->heap, l->n_heap, 0);
    return v;
}

static int place_long(lily_bpe_work *w, long_piece *l, size_t n, lily_err *e)
{
    if (n > w->cap) {
        void *memory = lily_realloc(w->memory, n, LONG_BYTES);
        if (!memory) return lily_no_memory(e, n * LONG_BYTES, "a long piece of text");
        w->memory = memory;
        w->cap = n;
    }
    l->heap = w->memory;
    l->pair = (pair_info *)(l->heap + 2 * n);
    l->id = (int32_t *)(l->pair + n);
    l->prev = (uint32_t *)(l->id + n);
    l->next = l->prev + n;
    return LILY_OK;
}

/* Notes and queues the pair that begins at `place`; n is the end of the list. */
static void renew_pair(const lily_bpe *b, long_piece *l, uint32_t place, uint32_t n)
{
    uint32_t right = l->next[place];
    l->pair[place] = right < n ? look_up(b, l->id[place], l->id[right]) : (pair_info){NO_RANK, -1};
    if (l->pair[place].rank != NO_RANK) push(l, (uint64_t)l->pair[place].rank << 32 | place);
}

static int encode_long(const lily_bpe *b, lily_bpe_work *w, const unsigned char *piece, uint32_t n,
                       int32_t *out, size_t *n_out, lily_err *e)
{
    long_piece l = {0};
    TRY(place_long(w, &l, n, e));
    for (uint32_t i = 0; i < n; i++) {
        l.id[i] = b->byte_id[piece[i]];
        l.prev[i] = i - 1;
        l.next[i] = i + 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        l.pair[i] = i + 1 < n ? look_up(b, l.id[i], l.id[i + 1]) : (pair_info){NO_RANK, -1};
        if (l.pair[i].rank != NO_RANK) l.heap[l.n_heap++] = (uint64_t)l.pair[i].rank << 32 | i;
    }
    for (size_t i = l.n_heap / 2; i-- > 0;) sift_down(l.heap, l.n_heap, i);
    while (l.n_heap > 0) {
        uint64_t top = pop(&l);
        uint32_t left = (uint32_t)top;
        if (l.pair[left].rank != top >> 32) continue;
        uint32_t right = l.next[left];
        l.id[left] = l.pair[left].id;
        l.next[left] = l.next[right];
        if (l.next[left] < n) l.prev[l.next[left]] = left;
        l.pair[right].rank = NO_RANK;
        renew_pair(b, &l, left, n);
        if (left > 0) renew_pair(b, &l, l.prev[left], n);
    }
    size_t count = 0;
    for (uint32_t i = 0; i < n; i = l.next[i]) out[count++] = l.id[i];
    *n_out = count;
    return LILY_OK;
}

void lily_bpe_work_free(lily_bpe_work *w)
{
    lily_free(w->memory);
}

int lily_bpe_encode(const lily_bpe *b, lily_bpe_work *w, const char *piece, size_t n, lily_ids *out,
                    lily_err *e)
{
    const unsigned char *p = (const unsigned char *)piece;
    TRY(lily_ids_reserve(out, n, e));
    size_t count = n;
    if (n <= 1) {
        if (n == 1) out->id[out->n] = b->byte_id[p[0]];
    } else if (n <= SHORT) {
        count = encode_short(b, p, n, out->id + out->n);
    } else {
        TRY(encode_long(b, w, p, (uint32_t)n, out->id + out->n, &count, e));
    }
    out->n += count;
    return LILY_OK;
}
