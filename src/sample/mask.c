#include "sample/mask.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { PLAIN = 24 }; /* characters of a plain token at most */

typedef struct trie_node {
    uint32_t skip;  /* the node behind all that begin like this one */
    int32_t token;  /* whose bytes end here; the first of `twin`s; -1: none */
    uint16_t depth; /* bytes before this one */
    uint8_t byte;
} trie_node;

typedef struct trie {
    trie_node *nodes;
    uint32_t n;
} trie;

struct lily_token_trie {
    trie all;
    trie rest;       /* of the tokens that are not plain */
    uint32_t *plain; /* [PLAIN + 1][words] masks of the plain tokens of at most so many characters */
    int32_t *twin;   /* [n_vocab] the next token with the same bytes, or -1 */
    int32_t *ends;
    size_t n_ends, words;
    int32_t n_vocab;
    uint32_t depth; /* bytes of the longest token */
};

/* ---- making the trie ---- */

typedef struct entry {
    const uint8_t *bytes;
    uint32_t n;
    int32_t id;
    uint32_t plain; /* characters, if it is plain; else 0 */
} entry;

static int by_bytes(const void *va, const void *vb)
{
    const entry *a = va, *b = vb;
    uint32_t n = a->n < b->n ? a->n : b->n;
    int c = memcmp(a->bytes, b->bytes, n);
    if (c != 0) return c;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* How many characters, if they are whole ones that stand for themselves in a JSON string, and not many; else
 * 0. */
static uint32_t plain_chars(const uint8_t *s, size_t n)
{
    uint32_t chars = 0;
    for (size_t i = 0; i < n; chars++) {
        if (s[i] < 0x80) {
            if (s[i] < 0x20 || s[i] == '"' || s[i] == '\\') return 0;
            i++;
            continue;
        }
        size_t len = s[i] >= 0xF0 ? 4 : s[i] >= 0xE0 ? 3 : 2;
        if (s[i] < 0xC2 || s[i] > 0xF4 || i + len > n) return 0;
        if ((s[i] == 0xE0 && s[i + 1] < 0xA0) || (s[i] == 0xED && s[i + 1] > 0x9F)) return 0;
        if ((s[i] == 0xF0 && s[i + 1] < 0x90) || (s[i] == 0xF4 && s[i + 1] > 0x8F)) return 0;
        for (size_t k = 1; k < len; k++)
            if ((s[i + k] & 0xC0) != 0x80) return 0;
        i += len;
    }
    return chars <= PLAIN ? chars : 0;
}

/* The entries are sorted; those of the same bytes come as one, by their first. */
static int make_trie(trie *t, const entry *list, size_t n, bool plain_too, lily_err *e)
{
    size_t room = 0;
    uint32_t open[UINT8_MAX + 1] = {0}, depth = 0; /* the path to the last entry */
    const entry *last = NULL;
    for (size_t i = 0; i < n; i++)
        if (plain_too || !list[i].plain) room += list[i].n;
    t->nodes = lily_calloc(room, sizeof *t->nodes);
    if (!t->nodes) return lily_no_memory(e, room * sizeof *t->nodes, "the trie of the vocabulary");
    for (size_t i = 0; i < n; i++) {
        const entry *at = &list[i];
        if (!plain_too && at->plain) continue;
        uint32_t same = 0;
        while (last && same < last->n && same < at->n && last->bytes[same] == at->bytes[same]) same++;
        if (last && same == at->n) continue; /* a twin: in order nothing else ends inside what came before */
        while (depth > same) t->nodes[open[--depth]].skip = t->n;
        for (; depth < at->n; depth++) {
            open[depth] = t->n;
            t->nodes[t->n++] = (trie_node){.token = -1, .depth = (uint16_t)depth, .byte = at->bytes[depth]};
        }
        t->nodes[open[depth - 1]].token = at->id;
        last = at;
    }
    while (depth > 0) t->nodes[open[--depth]].skip = t->n;
    void *fitting = lily_realloc(t->nodes, t->n, sizeof *t->nodes);
    if (fitting) t->nodes = fitting;
    return LILY_OK;
}

/* Tokens longer than a path is deep are never allowed: none is, in vocabularies as they are. */
static size_t list_tokens(lily_token_trie *v, const lily_tokenizer *t, entry *list)
{
    size_t n = 0;
    for (int32_t id = 0; id < v->n_vocab; id++) {
        size_t len;
        const char *bytes = lily_token_bytes(t, id, &len);
        if (!bytes || len == 0 || len > UINT8_MAX || lily_token_is_added(t, id)) continue;
        list[n] =
            (entry){(const uint8_t *)bytes, (uint32_t)len, id, plain_chars((const uint8_t *)bytes, len)};
        for (uint32_t c = list[n].plain; c > 0 && c <= PLAIN; c++)
            v->plain[c * v->words + (size_t)id / 32] |= UINT32_C(1) << (id % 32);
        if (len > v->depth) v->depth = (uint32_t)len;
        n++;
    }
    qsort(list, n, sizeof *list, by_bytes);
    for (size_t i = 0; i < n; i++) {
        bool twins = i + 1 < n && list[i].n == list[i + 1].n &&
                     memcmp(list[i].bytes, list[i + 1].bytes, list[i].n) == 0;
        v->twin[list[i].id] = twins ? list[i + 1].id : -1;
    }
    return n;
}

static int fill(lily_token_trie *v, const lily_tokenizer *t, const int32_t *ends, size_t n_ends, lily_err *e)
{
    v->n_vocab = lily_tokenizer_n_vocab(t);
    v->words = ((size_t)v->n_vocab + 31) / 32;
    v->plain = lily_calloc((PLAIN + 1) * v->words, sizeof *v->plain);
    v->twin = lily_calloc((size_t)v->n_vocab, sizeof *v->twin);
    v->ends = lily_calloc(n_ends, sizeof *v->ends);
    entry *list = lily_calloc((size_t)v->n_vocab, sizeof *list);
    int rc = v->plain && v->twin && v->ends && list
                 ? LILY_OK
                 : lily_no_memory(e, (size_t)v->n_vocab * sizeof *list, "the trie of the vocabulary");
    if (rc == LILY_OK) {
        for (size_t i = 0; i < n_ends; i++)
            if (ends[i] >= 0 && ends[i] < v->n_vocab) v->ends[v->n_ends++] = ends[i];
        size_t n = list_tokens(v, t, list);
        rc = make_trie(&v->all, list, n, true, e);
        if (rc == LILY_OK) rc = make_trie(&v->rest, list, n, false, e);
    }
    lily_free(list);
    return rc;
}

int lily_token_trie_new(lily_token_trie **out, const lily_tokenizer *t, const int32_t *ends, size_t n_ends,
                        lily_err *e)
{
    lily_token_trie *v = lily_calloc(1, sizeof *v);
    *out = NULL;
    if (!v) return lily_no_memory(e, sizeof *v, "the trie of the vocabulary");
    int rc = fill(v, t, ends, n_ends, e);
    if (rc == LILY_OK)
        *out = v;
    else
        lily_token_trie_free(v);
    return rc;
}

void lily_token_trie_free(lily_token_trie *v)
{
    if (!v) return;
    lily_free(v->all.nodes);
    lily_free(v->rest.nodes);
    lily_free(v->plain);
    lily_free(v->twin);
    lily_free(v->ends);
    lily_free(v);
}

size_t lily_token_trie_words(const lily_token_trie *v)
{
    return v->words;
}

/* ---- one reply ---- */

enum { KEPT = 64 };  /* masks remembered */
enum { REACH = 32 }; /* bytes of a token within which counts are looked at: see lily_mask_allowed */

typedef struct kept {
    lily_match at;    /* NONE: free */
    uint64_t used;    /* when, to find the one that rested longest */
    uint32_t longest; /* bytes of the tokens that were looked at */
    uint32_t *mask;   /* [words] or NULL: not made yet */
} kept;

struct lily_mask {
    const lily_token_trie *v;
    lily_matcher *m;
    lily_match at;
    lily_match *path;      /* [depth + 1] states along a path of the trie */
    uint32_t *after_plain; /* [LILY_MATCH_STATES] 0: not known yet; MIXED; else the state + 1 */
    kept kept[KEPT];
    uint64_t clock;
};

int lily_mask_new(lily_mask **out, const lily_token_trie *v, lily_grammar *g, bool late, lily_err *e)
{
    lily_mask *k = lily_calloc(1, sizeof *k);
    *out = NULL;
    if (!k) return lily_no_memory(e, sizeof *k, "a mask");
    k->v = v;
    k->path = lily_calloc(v->depth + 1, sizeof *k->path);
    k->after_plain = lily_calloc(LILY_MATCH_STATES, sizeof *k->after_plain);
    int rc = k->path && k->after_plain ? lily_matcher_new(&k->m, g, late, e)
                                       : lily_no_memory(e, v->depth * sizeof *k->path, "a mask");
    if (rc == LILY_OK) {
        k->at = lily_matcher_start(k->m);
        *out = k;
    } else {
        lily_mask_free(k);
    }
    return rc;
}

void lily_mask_free(lily_mask *k)
{
    if (!k) return;
    for (size_t i = 0; i < KEPT; i++) lily_free(k->kept[i].mask);
    lily_matcher_free(k->m);
    lily_free(k->path);
    lily_free(k->after_plain);
    lily_free(k);
}

uint64_t lily_token_trie_cost(const lily_tokenizer *t)
{
    uint64_t n = (uint64_t)lily_tokenizer_n_vocab(t), bytes = 0;
    for (int32_t id = 0; id < (int32_t)n; id++) {
        size_t len = 0;
        if (lily_token_bytes(t, id, &len)) bytes += len;
    }
    return 2 * bytes * sizeof(trie_node) + n * (sizeof(entry) + sizeof(int32_t)) +
           (PLAIN + 1 + KEPT) * (n / 8 + 4);
}

/* Only tokens of at most `longest` bytes. */
static void walk(lily_mask *k, const trie *t, lily_match from, uint32_t longest, uint32_t *mask)
{
    const int32_t *twin = k->v->twin;
    k->path[0] = from;
    for (uint32_t i = 0; i < t->n;) {
        const trie_node *n = &t->nodes[i];
        lily_match to =
            n->depth < longest ? lily_matcher_step(k->m, k->path[n->depth], n->byte) : LILY_MATCH_NONE;
        if (to == LILY_MATCH_NONE) {
            i = n->skip;
            continue;
        }
        k->path[n->depth + 1] = to;
        for (int32_t id = n->token; id >= 0; id = twin[id]) mask[id / 32] |= UINT32_C(1) << (id % 32);
        i++;
    }
}

/* Whether `more` continuation bytes lead from `from` to `to`, whatever they are. */
static bool leads_to(lily_mask *k, lily_match from, unsigned more, lily_match to)
{
    for (; more > 0; more--) {
        lily_match one = lily_matcher_step(k->m, from, 0x80);
        for (unsigned b = 0x81; b <= 0xBF; b++)
            if (lily_matcher_step(k->m, from, (uint8_t)b) != one) return false;
        from = one;
    }
    return from == to;
}

/* Whether every plain character leads from `from` to `to`. */
static bool plain_leads_to(lily_mask *k, lily_match from, lily_match to)
{
    for (unsigned b = 0x20; b < 0x80; b++)
        if (b != '"' && b != '\\' && lily_matcher_step(k->m, from, (uint8_t)b) != to) return false;
    for (unsigned lead = 0xC2; lead <= 0xF4; lead++) {
        unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        lily_match first = lily_matcher_step(k->m, from, (uint8_t)lead), known = LILY_MATCH_NONE;
        if (first == LILY_MATCH_NONE && to == LILY_MATCH_NONE) continue;
        for (unsigned b = low; b <= high; b++) {
            lily_match second = lily_matcher_step(k->m, first, (uint8_t)b);
            if (second == LILY_MATCH_NONE) return false;
            if (second != known && !leads_to(k, second, lead >= 0xF0 ? 2 : lead >= 0xE0 ? 1 : 0, to))
                return false;
            known = second;
        }
    }
    return true;
}

enum { MIXED = UINT32_MAX };

/* The state that one plain character leads to, whatever it is; MIXED if that depends. */
static lily_match after_plain(lily_mask *k, lily_match from)
{
    if (k->after_plain[from])
        return k->after_plain[from] == MIXED ? (lily_match)MIXED : k->after_plain[from] - 1;
    lily_match to = lily_matcher_step(k->m, from, 'a');
    bool all = plain_leads_to(k, from, to);
    k->after_plain[from] = all ? to + 1 : MIXED;
    return all ? to : (lily_match)MIXED;
}

/* How many plain characters may follow, PLAIN at most; -1 if that depends on what they are. */
static int plain_room(lily_mask *k, lily_match at)
{
    for (int n = 0; n < PLAIN; n++) {
        lily_match to = after_plain(k, at);
        if (to == MIXED) return -1;
        if (to == LILY_MATCH_NONE) return n;
        to = lily_matcher_near(k->m, to, REACH);
        if (to == at) break;
        at = to;
    }
    return PLAIN;
}

/* What one mask may cost, in ways of the matcher. Texts of common schemas need a few thousand at most. */
enum { WORK = 1 << 18 };

/* When the walk was cut short by the limit, tokens are missing. The single bytes are among the tokens, so
 * that the reply can always go on. */
static void add_bytes(lily_mask *k, uint32_t *mask)
{
    const trie *t = &k->v->all;
    for (uint32_t i = 0; i < t->n; i = t->nodes[i].skip)
        if (lily_matcher_step(k->m, k->at, t->nodes[i].byte) != LILY_MATCH_NONE)
            for (int32_t id = t->nodes[i].token; id >= 0; id = k->v->twin[id])
                mask[id / 32] |= UINT32_C(1) << (id % 32);
}

/* The mask of `near`, the state that stands for the present one. */
static void make(lily_mask *k, lily_match near, uint32_t longest, uint32_t *mask)
{
    const lily_token_trie *v = k->v;
    lily_matcher_limit(k->m, WORK);
    int plain = plain_room(k, near);
    memcpy(mask, v->plain + (plain > 0 ? (size_t)plain : 0) * v->words, v->words * sizeof *mask);
    walk(k, plain < 0 ? &v->all : &v->rest, near, longest, mask);
    if (lily_matcher_no_limit(k->m)) {
        memset(k->after_plain, 0, LILY_MATCH_STATES * sizeof *k->after_plain); /* may be wrong */
        add_bytes(k, mask);
    }
    for (size_t i = 0; i < v->n_ends; i++)
        if (lily_matcher_complete(k->m, k->at)) mask[v->ends[i] / 32] |= UINT32_C(1) << (v->ends[i] % 32);
}

int lily_mask_allowed(lily_mask *k, const uint32_t **mask, lily_err *e)
{
    kept *oldest = &k->kept[0];
    const lily_match near = lily_matcher_near(k->m, k->at, REACH);
    const uint32_t longest = near == k->at ? k->v->depth : REACH;
    for (size_t i = 0; i < KEPT; i++) {
        kept *old = &k->kept[i];
        if (old->at == near && old->longest == longest && old->at != LILY_MATCH_NONE) {
            old->used = ++k->clock;
            *mask = old->mask;
            return LILY_OK;
        }
        if (old->used < oldest->used) oldest = old;
    }
    if (!oldest->mask) oldest->mask = lily_calloc(k->v->words, sizeof *oldest->mask);
    if (!oldest->mask) return lily_no_memory(e, k->v->words * sizeof *oldest->mask, "a mask");
    oldest->at = LILY_MATCH_NONE;
    make(k, near, longest, oldest->mask);
    TRY(lily_matcher_ok(k->m, e));
    oldest->at = near;
    oldest->longest = longest;
    oldest->used = ++k->clock;
    *mask = oldest->mask;
    return LILY_OK;
}

int lily_mask_take(lily_mask *k, const char *bytes, size_t n, bool *fits, lily_err *e)
{
    lily_match at = k->at;
    bool forgotten;
    for (size_t i = 0; i < n && at != LILY_MATCH_NONE; i++)
        at = lily_matcher_step(k->m, at, (uint8_t)bytes[i]);
    TRY(lily_matcher_ok(k->m, e));
    *fits = at != LILY_MATCH_NONE;
    if (!*fits) return LILY_OK;
    k->at = lily_matcher_tidy(k->m, at, &forgotten);
    if (forgotten) {
        for (size_t i = 0; i < KEPT; i++) k->kept[i].at = LILY_MATCH_NONE;
        memset(k->after_plain, 0, LILY_MATCH_STATES * sizeof *k->after_plain);
    }
    return lily_matcher_ok(k->m, e);
}

/* The one byte that fits, -1 when there are several or none. */
static int only_byte(lily_mask *k, lily_match at, lily_match *to)
{
    int only = -1;
    for (unsigned b = 0; b < 256; b++) {
        lily_match one = lily_matcher_step(k->m, at, (uint8_t)b);
        if (one == LILY_MATCH_NONE) continue;
        if (only >= 0) return -1;
        only = (int)b;
        *to = one;
    }
    return only;
}

int lily_mask_forced(lily_mask *k, char *out, size_t room, size_t *n, lily_err *e)
{
    lily_match at = k->at;
    int byte;
    *n = 0;
    while (*n < room && !lily_matcher_complete(k->m, at) && (byte = only_byte(k, at, &at)) >= 0)
        out[(*n)++] = (char)byte;
    return lily_matcher_ok(k->m, e);
}

void lily_mask_restart(lily_mask *k)
{
    k->at = lily_matcher_start(k->m);
}

bool lily_mask_complete(const lily_mask *k)
{
    return lily_matcher_complete(k->m, k->at);
}

int lily_mask_finished(lily_mask *k, bool *finished, lily_err *e)
{
    bool more = false;
    for (unsigned b = 0; b < 256 && !more; b++)
        more = lily_matcher_step(k->m, k->at, (uint8_t)b) != LILY_MATCH_NONE;
    *finished = !more && lily_mask_complete(k);
    return lily_matcher_ok(k->m, e);
}
