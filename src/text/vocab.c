#include "text/vocab.h"

#include <string.h>

#include "base/mem.h"
#include "base/random.h"

int lily_vocab_init(lily_vocab *v, size_t n_pieces, lily_err *e)
{
    *v = (lily_vocab){.seed = lily_random_seed(), .mask = 15};
    if (n_pieces > LILY_VOCAB_MAX)
        return lily_fail(e, LILY_FORMAT, "%zu pieces, at most %d are taken", n_pieces, LILY_VOCAB_MAX);
    while (v->mask < n_pieces * 2) v->mask = v->mask * 2 + 1;
    v->slot = lily_calloc(v->mask + 1, sizeof *v->slot);
    if (!v->slot) return lily_no_memory(e, (v->mask + 1) * sizeof *v->slot, "the vocabulary");
    memset(v->slot, 0xff, (v->mask + 1) * sizeof *v->slot);
    return LILY_OK;
}

void lily_vocab_drop_index(lily_vocab *v)
{
    lily_free(v->slot);
    v->slot = NULL;
}

void lily_vocab_free(lily_vocab *v)
{
    lily_free(v->token);
    lily_buf_free(&v->bytes);
    lily_vocab_drop_index(v);
}

static uint64_t hash_bytes(uint64_t seed, const char *p, size_t n)
{
    uint64_t h = seed ^ n;
    for (size_t at = 0; at < n; at += 8) {
        uint64_t w = 0;
        memcpy(&w, p + at, n - at < 8 ? n - at : 8);
        h = (h ^ w) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    return h ^ h >> 32;
}

/* The slot that holds these bytes, or the empty one where they belong. */
static int32_t *find_slot(const lily_vocab *v, const char *bytes, size_t n)
{
    for (uint64_t i = hash_bytes(v->seed, bytes, n) & v->mask;; i = (i + 1) & v->mask) {
        int32_t id = v->slot[i];
        if (id < 0) return &v->slot[i];
        const lily_token *t = &v->token[id];
        if (t->len == n && memcmp(v->bytes.data + t->at, bytes, n) == 0) return &v->slot[i];
    }
}

int32_t lily_vocab_find(const lily_vocab *v, const char *bytes, size_t n)
{
    return *find_slot(v, bytes, n);
}

static int make_room(lily_vocab *v, int32_t id, lily_err *e)
{
    if (id < v->cap) return LILY_OK;
    int32_t cap = v->cap < 512 ? 512 : v->cap;
    while (cap <= id) cap *= 2;
    lily_token *token = lily_realloc(v->token, (size_t)cap, sizeof *token);
    if (!token) return lily_no_memory(e, (size_t)cap * sizeof *token, "the vocabulary");
    memset(token + v->cap, 0, (size_t)(cap - v->cap) * sizeof *token);
    v->token = token;
    v->cap = cap;
    return LILY_OK;
}

int lily_vocab_add(lily_vocab *v, int64_t id, const char *bytes, size_t n, enum lily_token_kind kind,
                   lily_err *e)
{
    if (id < 0 || id >= LILY_VOCAB_MAX)
        return lily_fail(e, LILY_FORMAT, "id %lld is outside 0 to %d", (long long)id, LILY_VOCAB_MAX - 1);
    if (n == 0) return lily_fail(e, LILY_FORMAT, "the text of id %lld is empty", (long long)id);
    if (id < v->n && v->token[id].kind != LILY_TOKEN_NONE)
        return lily_fail(e, LILY_FORMAT, "id %lld is given twice", (long long)id);
    TRY(make_room(v, (int32_t)id, e));
    if (kind == LILY_TOKEN_PIECE) {
        int32_t *slot = find_slot(v, bytes, n);
        if (*slot >= 0)
            return lily_fail(e, LILY_FORMAT, "ids %d and %lld have the same bytes", (int)*slot,
                             (long long)id);
        *slot = (int32_t)id;
    }
    v->token[id] = (lily_token){(uint32_t)v->bytes.len, (uint32_t)n, (uint8_t)kind};
    lily_buf_add(&v->bytes, bytes, n);
    if (id >= v->n) v->n = (int32_t)id + 1;
    return lily_buf_ok(&v->bytes, "the vocabulary", e);
}
