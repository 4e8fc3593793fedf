#include "device/host/state.h"

#include <string.h>

#include "base/mem.h"

static size_t tail_floats(const lily_config *c)
{
    return (size_t)(c->conv_kernel - 1) * lily_conv_width(c);
}

static size_t s_floats(const lily_config *c)
{
    return (size_t)lily_value_width(c) * c->lin_k_dim;
}

/* One layer's block begins on a line of its own. */
static size_t layer_floats(const lily_config *c)
{
    return (tail_floats(c) + s_floats(c) + 15) / 16 * 16;
}

static size_t block_bytes(const lily_weights *w)
{
    return w->n_delta * layer_floats(w->model->config) * sizeof(float);
}

float *lily_state_tail(const lily_weights *w, float *recurrent, uint16_t layer)
{
    return recurrent + w->nth[layer] * layer_floats(w->model->config);
}

float *lily_state_s(const lily_weights *w, float *recurrent, uint16_t layer)
{
    return lily_state_tail(w, recurrent, layer) + tail_floats(w->model->config);
}

/* ---- life ---- */

int lily_state_open(const lily_weights *w, size_t kv_bytes, lily_state **out, lily_err *e)
{
    lily_state *s = lily_calloc(1, sizeof *s);
    *out = s;
    if (!s) return lily_no_memory(e, sizeof *s, "a session's state");
    s->weights = w;
    s->next = -1;
    s->recurrent = lily_calloc_aligned(block_bytes(w), 64);
    s->count = lily_calloc(w->model->config->vocab, sizeof *s->count);
    s->kv = lily_calloc(1, kv_bytes);
    if (s->recurrent && s->count && s->kv) return LILY_OK;
    lily_state_close(s);
    *out = NULL;
    return lily_no_memory(e, block_bytes(w), "a session's recurrent state");
}

static void release(lily_snapshot *s)
{
    if (s && --s->refs == 0) lily_free(s);
}

void lily_state_close(lily_state *s)
{
    for (uint32_t i = 0; i < s->n_snapshots; i++) release(s->snapshot[i]);
    lily_free(s->snapshot);
    lily_free(s->kv);
    lily_free_aligned(s->recurrent);
    lily_free(s->count);
    lily_free(s);
}

void lily_state_count_reset(lily_state *s)
{
    memset(s->count, 0, s->weights->model->config->vocab * sizeof *s->count);
}

/* ---- positions ---- */

uint32_t lily_state_position(const lily_state *s)
{
    return s->position;
}

size_t lily_state_positions(const lily_state *s, uint32_t *out, size_t room)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_snapshots; i++)
        if (s->snapshot[i]->position < s->position && n++ < room) out[n - 1] = s->snapshot[i]->position;
    if (n++ < room) out[n - 1] = s->position;
    return n;
}

int lily_state_at(const lily_state *s, uint32_t position, const float **block, lily_err *e)
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
    return lily_fail(e, LILY_ARGUMENT, "the state at token %u was not kept; it stands at %u", position,
                     s->position);
}

static void set_recurrent(lily_state *s, const float *block)
{
    if (!block)
        memset(s->recurrent, 0, block_bytes(s->weights));
    else if (block != s->recurrent)
        memcpy(s->recurrent, block, block_bytes(s->weights));
}

/* dst's snapshots become those of src up to a position, in shared memory. */
static int share_snapshots(lily_state *dst, const lily_state *src, uint32_t position, lily_err *e)
{
    uint32_t n = 0;
    while (n < src->n_snapshots && src->snapshot[n]->position <= position) n++;
    lily_snapshot **list = lily_calloc(n, sizeof *list);
    if (!list) return lily_no_memory(e, n * sizeof *list, "snapshots");
    for (uint32_t i = 0; i < n; i++) {
        list[i] = src->snapshot[i];
        list[i]->refs++;
    }
    for (uint32_t i = 0; i < dst->n_snapshots; i++) release(dst->snapshot[i]);
    lily_free(dst->snapshot);
    dst->snapshot = list;
    dst->n_snapshots = n;
    return LILY_OK;
}

int lily_state_copy(lily_state *dst, const lily_state *src, uint32_t position, lily_err *e)
{
    const float *block;
    TRY(lily_state_at(src, position, &block, e));
    if (dst != src) TRY(share_snapshots(dst, src, position, e));
    set_recurrent(dst, block); /* before later snapshots go: the block may be in one that stays */
    while (dst->n_snapshots && dst->snapshot[dst->n_snapshots - 1]->position > position)
        release(dst->snapshot[--dst->n_snapshots]);
    dst->position = position;
    dst->next = -1;
    lily_state_count_reset(dst);
    return LILY_OK;
}

void lily_state_drop(lily_dev *d, lily_state *s, uint32_t position)
{
    (void)d;
    for (uint32_t i = 0; i < s->n_snapshots; i++) {
        if (s->snapshot[i]->position != position) continue;
        release(s->snapshot[i]);
        s->n_snapshots--;
        memmove(&s->snapshot[i], &s->snapshot[i + 1], (s->n_snapshots - i) * sizeof *s->snapshot);
        return;
    }
}

void lily_state_recover(lily_state *s)
{
    const lily_snapshot *newest = s->n_snapshots ? s->snapshot[s->n_snapshots - 1] : NULL;
    set_recurrent(s, newest ? newest->recurrent : NULL);
    s->position = newest ? newest->position : 0;
    s->next = -1;
}

/* ---- snapshots of a run ---- */

int lily_state_marks_new(lily_state *s, const lily_lane *lane, lily_snapshot ***out, lily_err *e)
{
    const uint32_t n = lane->n_marks;
    const size_t bytes = sizeof(lily_snapshot) + block_bytes(s->weights);
    *out = NULL;
    if (n == 0) return LILY_OK;
    /* Room in the list first, so that keeping them cannot fail. */
    lily_snapshot **list = lily_realloc(s->snapshot, (size_t)s->n_snapshots + n, sizeof *list);
    lily_snapshot **fresh = lily_calloc(n, sizeof *fresh);
    if (list) s->snapshot = list;
    bool ok = list && fresh;
    for (uint32_t i = 0; ok && i < n; i++) {
        fresh[i] = lily_calloc(1, bytes);
        ok = fresh[i] != NULL;
        if (!ok) break;
        fresh[i]->refs = 1;
        fresh[i]->position = s->position + lane->mark[i];
    }
    if (ok) {
        *out = fresh;
        return LILY_OK;
    }
    if (fresh) lily_state_marks_free(fresh, n);
    return lily_no_memory(e, bytes, "a snapshot of the recurrent state");
}

void lily_state_marks_keep(lily_state *s, lily_snapshot **mark, uint32_t n)
{
    /* They lie behind all others: a run begins at the live position, and no snapshot is above that. */
    for (uint32_t i = 0; i < n; i++) s->snapshot[s->n_snapshots++] = mark[i];
    lily_free(mark);
}

void lily_state_marks_free(lily_snapshot **mark, uint32_t n)
{
    for (uint32_t i = 0; mark && i < n; i++) release(mark[i]);
    lily_free(mark);
}

/* ---- to and from the disk ---- */

int lily_recurrent_save(lily_dev *d, const lily_state *s, uint32_t position, void *out, lily_err *e)
{
    (void)d;
    const float *block;
    TRY(lily_state_at(s, position, &block, e));
    if (!block) return lily_fail(e, LILY_ARGUMENT, "an empty state is not saved");
    memcpy(out, block, block_bytes(s->weights));
    return LILY_OK;
}

int lily_recurrent_load(lily_dev *d, lily_state *s, uint32_t position, const void *in, lily_err *e)
{
    (void)d;
    const size_t bytes = block_bytes(s->weights);
    if (position <= s->position || position > s->capacity)
        return lily_fail(e, LILY_ARGUMENT, "a state at token %u cannot follow one at %u in room for %llu", position,
                         s->position, (unsigned long long)s->capacity);
    lily_snapshot **list = lily_realloc(s->snapshot, (size_t)s->n_snapshots + 1, sizeof *list);
    if (list) s->snapshot = list;
    lily_snapshot *fresh = list ? lily_calloc(1, sizeof *fresh + bytes) : NULL;
    if (!fresh) return lily_no_memory(e, bytes, "a snapshot of the recurrent state");
    fresh->refs = 1;
    fresh->position = position;
    memcpy(fresh->recurrent, in, bytes);
    s->snapshot[s->n_snapshots++] = fresh;
    set_recurrent(s, fresh->recurrent);
    s->position = position;
    s->next = -1;
    return LILY_OK;
}

int lily_rows_saved(const lily_state *s, uint32_t from, uint32_t n, lily_err *e)
{
    if (from <= s->position && n <= s->position - from) return LILY_OK;
    return lily_fail(e, LILY_ARGUMENT, "rows %u to %u of a state of %u tokens", from, from + n, s->position);
}

int lily_rows_loaded(const lily_state *s, uint32_t from, uint32_t n, lily_err *e)
{
    if (s->position == 0 && from <= s->capacity && n <= s->capacity - from) return LILY_OK;
    return lily_fail(e, LILY_ARGUMENT, "rows %u to %u cannot be loaded into a state of %u tokens with room for %llu", from,
                     from + n, s->position, (unsigned long long)s->capacity);
}

/* ---- sizes, and a look inside ---- */

uint64_t lily_state_bytes(const lily_state *s)
{
    uint64_t snapshots = 0;
    for (uint32_t i = 0; i < s->n_snapshots; i++)
        snapshots += lily_part_of(sizeof(lily_snapshot) + block_bytes(s->weights), s->snapshot[i]->refs);
    return sizeof *s + block_bytes(s->weights) + snapshots + s->weights->model->config->vocab * sizeof *s->count;
}

void lily_state_cost(const lily_config *c, size_t kv_element, uint64_t *fixed, uint64_t *snapshot,
                     uint64_t *per_token)
{
    uint64_t attention = 0;
    for (uint32_t i = 0; i < c->layers; i++) attention += c->full_attention[i];
    *snapshot = (c->layers - attention) * layer_floats(c) * sizeof(float);
    *fixed = *snapshot + (uint64_t)c->vocab * sizeof(uint32_t);
    *per_token = attention * 2 * lily_kv_width(c) * kv_element;
}

int lily_state_peek(const lily_state *s, unsigned slot, uint16_t layer, float *dst, size_t room, size_t *n,
                    lily_err *e)
{
    const lily_weights *w = s->weights;
    const lily_config *c = w->model->config;
    if (layer >= c->layers || (slot == SLOT_KV) != c->full_attention[layer] ||
        !(slot == SLOT_KV || slot == SLOT_S || slot == SLOT_TAIL))
        return lily_fail(e, LILY_ARGUMENT, "layer %u has no state %s", layer, lily_slot_name(slot));
    *n = slot == SLOT_KV  ? 2 * (size_t)s->position * lily_kv_width(c)
         : slot == SLOT_S ? s_floats(c)
                          : tail_floats(c);
    if (*n > room) return lily_fail(e, LILY_ARGUMENT, "%zu floats do not fit in %zu", *n, room);
    if (slot == SLOT_S) memcpy(dst, lily_state_s(w, s->recurrent, layer), *n * sizeof *dst);
    if (slot == SLOT_TAIL) memcpy(dst, lily_state_tail(w, s->recurrent, layer), *n * sizeof *dst);
    return LILY_OK;
}
