/* state.c - one session's memory: pages of keys and values that only grow, recurrent states that cannot be
 * rewound, and snapshots of these to go back to. */
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"

static size_t tail_floats(const lily_config *c) { return (size_t)(c->conv_kernel - 1) * lily_conv_width(c); }

static size_t s_floats(const lily_config *c) { return (size_t)lily_value_width(c) * c->lin_k_dim; }

/* One layer's block begins on a line of its own. */
static size_t recurrent_floats(const lily_config *c)
{
    return cpu_piece((tail_floats(c) + s_floats(c)) * sizeof(float)) / sizeof(float);
}

static size_t recurrent_bytes(const lily_weights *w)
{
    return w->n_delta * recurrent_floats(w->model->config) * sizeof(float);
}

float *cpu_tail(const lily_weights *w, float *recurrent, uint16_t layer)
{
    return recurrent + w->nth[layer] * recurrent_floats(w->model->config);
}

float *cpu_s(const lily_weights *w, float *recurrent, uint16_t layer)
{
    return cpu_tail(w, recurrent, layer) + tail_floats(w->model->config);
}

static size_t page_bytes(const lily_weights *w)
{
    return sizeof(cpu_page) + 2ull * w->n_attention * CPU_PAGE * lily_kv_width(w->model->config) * sizeof(uint16_t);
}

uint16_t *cpu_page_rows(const lily_weights *w, cpu_page *page, uint16_t layer, unsigned which, uint32_t head)
{
    const lily_config *c = w->model->config;
    return page->rows + (((size_t)w->nth[layer] * 2 + which) * c->kv_heads + head) * CPU_PAGE * c->head_dim;
}

/* ---- pages ---- */

static void release_page(cpu_page *p)
{
    if (p && --p->refs == 0) lily_free(p);
}

static cpu_page *new_page(const lily_weights *w)
{
    cpu_page *p = lily_calloc(1, page_bytes(w));
    if (p) p->refs = 1;
    return p;
}

static void drop_pages(lily_state *s, uint32_t keep)
{
    while (s->n_pages > keep) release_page(s->page[--s->n_pages]);
}

int cpu_state_grow(lily_dev *d, lily_state *s, uint32_t context, lily_err *e)
{
    (void)d;
    const uint32_t before = s->n_pages, want = context / CPU_PAGE + (context % CPU_PAGE != 0);
    if (want <= before) return LILY_OK;
    cpu_page **list = lily_realloc(s->page, want, sizeof *list);
    if (!list) return lily_no_memory(e, want * sizeof *list, "keys and values");
    s->page = list;
    while (s->n_pages < want) {
        cpu_page *p = new_page(s->weights);
        if (!p) {
            drop_pages(s, before);
            return lily_no_memory(e, (want - before) * page_bytes(s->weights), "keys and values");
        }
        s->page[s->n_pages++] = p;
    }
    return LILY_OK;
}

int cpu_state_own(lily_state *s, uint32_t n, lily_err *e)
{
    for (uint32_t i = s->position / CPU_PAGE; i <= (s->position + n - 1) / CPU_PAGE; i++) {
        if (s->page[i]->refs == 1) continue;
        cpu_page *p = new_page(s->weights);
        if (!p) return lily_no_memory(e, page_bytes(s->weights), "keys and values");
        memcpy(p->rows, s->page[i]->rows, page_bytes(s->weights) - sizeof *p);
        release_page(s->page[i]);
        s->page[i] = p;
    }
    return LILY_OK;
}

/* ---- life ---- */

static void release_snapshot(cpu_snapshot *s)
{
    if (s && --s->refs == 0) lily_free(s);
}

static void forget_after(lily_state *s, uint32_t position)
{
    while (s->n_snapshots && s->snapshot[s->n_snapshots - 1]->position > position)
        release_snapshot(s->snapshot[--s->n_snapshots]);
}

int cpu_state_new(lily_dev *d, const lily_weights *w, lily_state **out, lily_err *e)
{
    lily_state *s = lily_calloc(1, sizeof *s);
    *out = s;
    if (!s) return lily_no_memory(e, sizeof *s, "a session's state");
    s->weights = w;
    s->next = -1;
    s->recurrent = lily_calloc_aligned(recurrent_bytes(w), 64);
    s->count = lily_calloc(w->model->config->vocab, sizeof *s->count);
    if (s->recurrent && s->count) return LILY_OK;
    cpu_state_free(d, s);
    *out = NULL;
    return lily_no_memory(e, recurrent_bytes(w), "a session's recurrent state");
}

void cpu_state_free(lily_dev *d, lily_state *s)
{
    (void)d;
    if (!s) return;
    for (uint32_t i = 0; i < s->n_snapshots; i++) release_snapshot(s->snapshot[i]);
    drop_pages(s, 0);
    lily_free(s->snapshot);
    lily_free(s->page);
    lily_free_aligned(s->recurrent);
    lily_free(s->count);
    lily_free(s);
}

uint32_t cpu_state_position(const lily_state *s) { return s->position; }

size_t cpu_state_positions(const lily_state *s, uint32_t *out, size_t room)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_snapshots; i++)
        if (s->snapshot[i]->position < s->position && n++ < room) out[n - 1] = s->snapshot[i]->position;
    if (n++ < room) out[n - 1] = s->position;
    return n;
}

void cpu_state_count_reset(lily_state *s) { memset(s->count, 0, s->weights->model->config->vocab * sizeof *s->count); }

/* ---- branches ---- */

/* The recurrent block at a position; NULL in *block stands for the empty state. */
static int block_at(const lily_state *s, uint32_t position, const float **block, lily_err *e)
{
    *block = NULL;
    if (position == 0) return LILY_OK;
    if (position == s->position) {
        *block = s->recurrent;
        return LILY_OK;
    }
    for (uint32_t i = 0; i < s->n_snapshots; i++)
        if (s->snapshot[i]->position == position) *block = s->snapshot[i]->recurrent;
    if (*block) return LILY_OK;
    return lily_fail(e, LILY_ARGUMENT, "the state at token %u was not kept; it stands at %u", position, s->position);
}

static void set_recurrent(lily_state *s, const float *block)
{
    if (!block)
        memset(s->recurrent, 0, recurrent_bytes(s->weights));
    else if (block != s->recurrent)
        memcpy(s->recurrent, block, recurrent_bytes(s->weights));
}

/* dst's snapshots and pages become those of src up to a position, in shared memory. */
static int share(lily_state *dst, const lily_state *src, uint32_t position, lily_err *e)
{
    const uint32_t pages = position / CPU_PAGE + (position % CPU_PAGE != 0);
    const uint32_t most = pages > dst->n_pages ? pages : dst->n_pages;     /* room that dst had stays */
    uint32_t n = 0;
    while (n < src->n_snapshots && src->snapshot[n]->position <= position) n++;
    cpu_snapshot **snapshot = lily_realloc(NULL, n + 1, sizeof *snapshot);
    cpu_page **page = lily_realloc(NULL, most + 1, sizeof *page);
    if (!snapshot || !page) {
        lily_free(snapshot);
        lily_free(page);
        return lily_no_memory(e, (n + pages) * sizeof *page, "a branch of a session");
    }
    for (uint32_t i = 0; i < n; i++) (snapshot[i] = src->snapshot[i])->refs++;
    for (uint32_t i = 0; i < pages; i++) (page[i] = src->page[i])->refs++;
    for (uint32_t i = 0; i < dst->n_pages; i++)
        if (i < pages)
            release_page(dst->page[i]);
        else
            page[i] = dst->page[i];
    forget_after(dst, 0);
    lily_free(dst->snapshot);
    lily_free(dst->page);
    dst->snapshot = snapshot;
    dst->n_snapshots = n;
    dst->page = page;
    dst->n_pages = most;
    return LILY_OK;
}

int cpu_state_copy(lily_dev *d, lily_state *dst, const lily_state *src, uint32_t position, lily_err *e)
{
    (void)d;
    const float *block;
    TRY(block_at(src, position, &block, e));
    if (dst == src) {
        /* The block may be in a snapshot, which stays: its position is not above this one.  Pages stay too,
         * as room for what comes. */
        set_recurrent(dst, block);
        forget_after(dst, position);
    } else {
        TRY(share(dst, src, position, e));
        set_recurrent(dst, block);
    }
    dst->position = position;
    dst->next = -1;
    cpu_state_count_reset(dst);
    return LILY_OK;
}

void cpu_state_drop(lily_dev *d, lily_state *s, uint32_t position)
{
    (void)d;
    for (uint32_t i = 0; i < s->n_snapshots; i++) {
        if (s->snapshot[i]->position != position) continue;
        release_snapshot(s->snapshot[i]);
        s->n_snapshots--;
        memmove(&s->snapshot[i], &s->snapshot[i + 1], (s->n_snapshots - i) * sizeof *s->snapshot);
        return;
    }
}

void cpu_state_recover(lily_state *s)
{
    const cpu_snapshot *newest = s->n_snapshots ? s->snapshot[s->n_snapshots - 1] : NULL;
    set_recurrent(s, newest ? newest->recurrent : NULL);
    s->position = newest ? newest->position : 0;
    s->next = -1;
}

/* ---- snapshots of a run ---- */

int cpu_snapshots_new(lily_state *s, uint32_t n, cpu_snapshot ***out, lily_err *e)
{
    const size_t bytes = sizeof(cpu_snapshot) + recurrent_bytes(s->weights);
    *out = NULL;
    if (n == 0) return LILY_OK;
    /* Room in the list first, so that keeping them cannot fail. */
    cpu_snapshot **list = lily_realloc(s->snapshot, (size_t)s->n_snapshots + n, sizeof *list);
    cpu_snapshot **fresh = lily_calloc(n, sizeof *fresh);
    if (list) s->snapshot = list;
    bool ok = list && fresh;
    for (uint32_t i = 0; ok && i < n; i++) {
        fresh[i] = lily_calloc(1, bytes);
        ok = fresh[i] != NULL;
        if (ok) fresh[i]->refs = 1;
    }
    if (ok) {
        *out = fresh;
        return LILY_OK;
    }
    if (fresh) cpu_snapshots_free(fresh, n);
    return lily_no_memory(e, bytes, "a snapshot of the recurrent state");
}

void cpu_snapshots_keep(lily_state *s, cpu_snapshot **snapshot, uint32_t n)
{
    /* They lie behind all others: a run begins at the live position, and no snapshot is above that. */
    for (uint32_t i = 0; i < n; i++) s->snapshot[s->n_snapshots++] = snapshot[i];
    lily_free(snapshot);
}

void cpu_snapshots_free(cpu_snapshot **snapshot, uint32_t n)
{
    for (uint32_t i = 0; snapshot && i < n; i++) release_snapshot(snapshot[i]);
    lily_free(snapshot);
}

/* ---- sizes, and a look inside ---- */

uint64_t cpu_state_bytes(const lily_state *s)
{
    return sizeof *s + recurrent_bytes(s->weights) * (1 + (uint64_t)s->n_snapshots) +
           s->weights->model->config->vocab * sizeof *s->count + s->n_pages * (uint64_t)page_bytes(s->weights);
}

void cpu_state_cost(const lily_config *c, uint64_t *fixed, uint64_t *snapshot, uint64_t *per_token)
{
    uint64_t attention = 0;
    for (uint32_t i = 0; i < c->layers; i++) attention += c->full_attention[i];
    *snapshot = (c->layers - attention) * recurrent_floats(c) * sizeof(float);
    *fixed = *snapshot + (uint64_t)c->vocab * sizeof(uint32_t);
    *per_token = attention * 2 * lily_kv_width(c) * sizeof(uint16_t);
}

static void peek_kv(const lily_state *s, uint16_t layer, float *dst)
{
    const lily_config *c = s->weights->model->config;
    for (unsigned which = 0; which < 2; which++)
        for (uint32_t p = 0; p < s->position; p++)
            for (uint32_t h = 0; h < c->kv_heads; h++) {
                const uint16_t *row = cpu_page_rows(s->weights, s->page[p / CPU_PAGE], layer, which, h) +
                                      (size_t)(p % CPU_PAGE) * c->head_dim;
                for (uint32_t i = 0; i < c->head_dim; i++) *dst++ = lily_bf16_to_float(row[i]);
            }
}

int cpu_peek_state(lily_dev *d, const lily_state *s, unsigned slot, uint16_t layer, float *dst, size_t room, size_t *n,
                   lily_err *e)
{
    (void)d;
    const lily_weights *w = s->weights;
    const lily_config *c = w->model->config;
    if (layer >= c->layers || (slot == SLOT_KV) != c->full_attention[layer] ||
        !(slot == SLOT_KV || slot == SLOT_S || slot == SLOT_TAIL))
        return lily_fail(e, LILY_ARGUMENT, "layer %u has no state %s", layer, lily_slot_name(slot));
    *n = slot == SLOT_KV ? 2 * (size_t)s->position * lily_kv_width(c) : slot == SLOT_S ? s_floats(c) : tail_floats(c);
    if (*n > room) return lily_fail(e, LILY_ARGUMENT, "%zu floats do not fit in %zu", *n, room);
    if (slot == SLOT_S)
        memcpy(dst, cpu_s(w, s->recurrent, layer), *n * sizeof *dst);
    else if (slot == SLOT_TAIL)
        memcpy(dst, cpu_tail(w, s->recurrent, layer), *n * sizeof *dst);
    else
        peek_kv(s, layer, dst);
    return LILY_OK;
}
