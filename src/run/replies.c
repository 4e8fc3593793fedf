#include "run/replies.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

__extension__ typedef unsigned __int128 u128;

enum { BUCKETS = 4096, LARGEST_SHARE = 4 };    /* a reply may take a quarter of the store */

typedef struct entry entry;

/* One block: the entry, its tokens, its three texts. */
struct entry {
    lily_replies_key before;
    size_t bytes;
    lily_replied r;
    entry *next;                /* in its bucket, newest first */
    entry *newer, *older;       /* by use */
};

struct lily_replies {
    pthread_mutex_t lock;
    entry *bucket[BUCKETS];
    entry *newest, *oldest;
    size_t bytes, limit;
};

/* ---- keys ---- */

lily_replies_key lily_replies_key_start(void)
{
    return (lily_replies_key){0x6c62272e07bb0142u, 0x62b821756295c58du};
}

lily_replies_key lily_replies_key_add(lily_replies_key key, const int32_t *ids, size_t n)
{
    const u128 prime = (u128)1 << 88 | 0x13b;
    u128 x = (u128)key.hi << 64 | key.lo;
    for (size_t i = 0; i < n; i++) x = (x ^ (uint32_t)ids[i]) * prime;
    return (lily_replies_key){(uint64_t)(x >> 64), (uint64_t)x};
}

static entry **bucket_of(lily_replies *s, lily_replies_key key)
{
    return &s->bucket[(key.lo ^ key.hi) % BUCKETS];
}

/* ---- life ---- */

int lily_replies_new(lily_replies **out, size_t limit, lily_err *e)
{
    lily_replies *s = *out = lily_calloc(1, sizeof *s);
    if (!s) return lily_no_memory(e, sizeof *s, "the store of replies");
    s->limit = limit;
    pthread_mutex_init(&s->lock, NULL);
    return LILY_OK;
}

static void unlink_use(lily_replies *s, entry *x)
{
    *(x->newer ? &x->newer->older : &s->newest) = x->older;
    *(x->older ? &x->older->newer : &s->oldest) = x->newer;
}

static void make_newest(lily_replies *s, entry *x)
{
    x->newer = NULL;
    x->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = x;
    s->newest = x;
}

static void drop_oldest(lily_replies *s)
{
    entry *x = s->oldest, **at = bucket_of(s, x->before);
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    unlink_use(s, x);
    s->bytes -= x->bytes;
    lily_free(x);
}

void lily_replies_clear(lily_replies *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->oldest) drop_oldest(s);
    pthread_mutex_unlock(&s->lock);
}

void lily_replies_free(lily_replies *s)
{
    if (!s) return;
    lily_replies_clear(s);
    pthread_mutex_destroy(&s->lock);
    lily_free(s);
}

/* ---- adding and finding ---- */

static char *copy(char *to, const void *from, size_t n, const char **kept)
{
    if (n) memcpy(to, from, n);
    *kept = to;
    return to + n;
}

static entry *entry_new(lily_replies_key before, const lily_replied *r)
{
    size_t ids = r->n_turn * sizeof *r->turn;
    size_t bytes = sizeof(entry) + ids + r->n_content + r->n_reasoning + r->n_calls;
    entry *x = lily_calloc(1, bytes);
    if (!x) return NULL;
    char *at = (char *)(x + 1);
    x->before = before;
    x->bytes = bytes;
    x->r = *r;
    if (ids) memcpy(at, r->turn, ids);
    x->r.turn = (const int32_t *)(const void *)at;
    at = copy(at + ids, r->content, r->n_content, &x->r.content);
    at = copy(at, r->reasoning, r->n_reasoning, &x->r.reasoning);
    copy(at, r->calls, r->n_calls, &x->r.calls);
    return x;
}

static bool same_bytes(const void *a, size_t n, const void *b, size_t m)
{
    return n == m && (n == 0 || memcmp(a, b, n) == 0);
}

static bool same_entry(const entry *a, const entry *b)
{
    const lily_replied *x = &a->r, *y = &b->r;
    return a->before.hi == b->before.hi && a->before.lo == b->before.lo && x->ended == y->ended &&
           same_bytes(x->turn, x->n_turn * sizeof *x->turn, y->turn, y->n_turn * sizeof *y->turn) &&
           same_bytes(x->content, x->n_content, y->content, y->n_content) &&
           same_bytes(x->reasoning, x->n_reasoning, y->reasoning, y->n_reasoning) &&
           same_bytes(x->calls, x->n_calls, y->calls, y->n_calls);
}

int lily_replies_add(lily_replies *s, lily_replies_key before, const lily_replied *r, lily_err *e)
{
    entry *x = entry_new(before, r);
    if (!x) return lily_no_memory(e, r->n_turn * sizeof *r->turn, "a reply");
    entry **bucket = bucket_of(s, before), *same;
    pthread_mutex_lock(&s->lock);
    for (same = *bucket; same && !same_entry(same, x);) same = same->next;
    if (same || x->bytes > s->limit / LARGEST_SHARE) {
        if (same) {
            unlink_use(s, same);
            make_newest(s, same);
        }
        lily_free(x);
    } else {
        while (s->bytes + x->bytes > s->limit) drop_oldest(s);
        x->next = *bucket;
        *bucket = x;
        make_newest(s, x);
        s->bytes += x->bytes;
    }
    pthread_mutex_unlock(&s->lock);
    return LILY_OK;
}

bool lily_replies_find(lily_replies *s, lily_replies_key before, bool (*take)(void *user, const lily_replied *r),
                       void *user)
{
    pthread_mutex_lock(&s->lock);
    entry *x = *bucket_of(s, before);
    while (x && !(x->before.hi == before.hi && x->before.lo == before.lo && take(user, &x->r))) x = x->next;
    if (x) {
        unlink_use(s, x);
        make_newest(s, x);
    }
    pthread_mutex_unlock(&s->lock);
    return x != NULL;
}

/* ---- as bytes: key 16, tokens 4, ended 4, content 4, reasoning 4, calls 4, 0 4, then the tokens and the texts,
 * filled up to whole 4 bytes ---- */

enum { HEAD = 40, UNIT = 4 };

void lily_replies_write(lily_replies *s, lily_buf *out)
{
    pthread_mutex_lock(&s->lock);
    for (const entry *x = s->oldest; x; x = x->newer) {
        const uint32_t head[6] = {(uint32_t)x->r.n_turn,      x->r.ended,
                                  (uint32_t)x->r.n_content,   (uint32_t)x->r.n_reasoning,
                                  (uint32_t)x->r.n_calls,     0};
        lily_buf_add(out, &x->before, sizeof x->before);
        lily_buf_add(out, head, sizeof head);
        lily_buf_add(out, x->r.turn, x->r.n_turn * sizeof *x->r.turn);
        lily_buf_add(out, x->r.content, x->r.n_content);
        lily_buf_add(out, x->r.reasoning, x->r.n_reasoning);
        lily_buf_add(out, x->r.calls, x->r.n_calls);
        while (out->len % UNIT && !out->failed) lily_buf_putc(out, 0);
    }
    pthread_mutex_unlock(&s->lock);
}

/* One reply at the beginning of p[0 … n); how many bytes it takes, or 0. */
static size_t read_one(const char *p, size_t n, lily_replies_key *before, lily_replied *r)
{
    uint32_t head[6];
    if (n < HEAD) return 0;
    memcpy(before, p, sizeof *before);
    memcpy(head, p + sizeof *before, sizeof head);
    uint64_t ids = (uint64_t)head[0] * sizeof *r->turn, size = HEAD + ids + head[2] + head[3] + head[4];
    size = (size + UNIT - 1) / UNIT * UNIT;
    if (size > n || head[1] > 1 || head[5] != 0) return 0;
    *r = (lily_replied){.turn = (const int32_t *)(const void *)(p + HEAD), .n_turn = head[0], .ended = head[1],
                        .n_content = head[2], .n_reasoning = head[3], .n_calls = head[4]};
    r->content = p + HEAD + ids;
    r->reasoning = r->content + head[2];
    r->calls = r->reasoning + head[3];
    return (size_t)size;
}

int lily_replies_read(lily_replies *s, const void *bytes, size_t n, lily_err *e)
{
    const char *p = bytes;
    for (size_t at = 0, size; at < n; at += size) {
        lily_replies_key before;
        lily_replied r;
        size = read_one(p + at, n - at, &before, &r);
        if (size == 0) return lily_fail(e, LILY_FORMAT, "a reply at byte %zu is damaged", at);
        TRY(lily_replies_add(s, before, &r, e));
    }
    return LILY_OK;
}
