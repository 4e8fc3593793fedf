/* state.c - one session's memory: keys and values that only grow, recurrent states that cannot be rewound,
 * and snapshots of these to go back to. */
#include <string.h>

#include "base/mem.h"
#include "device/ref/ref.h"

enum { PAGE = 256 }; /* tokens by which KV grows */

static size_t tail_floats(const lily_config *c)
{
    return (size_t)(c->conv_kernel - 1) * lily_conv_width(c);
}

static size_t s_floats(const lily_config *c)
{
    return (size_t)lily_value_width(c) * c->lin_k_dim;
}

size_t ref_recurrent_floats(const lily_config *c)
{
    return tail_floats(c) + s_floats(c);
}

static size_t all_recurrent_floats(const lily_weights *w)
{
    return w->n_delta * ref_recurrent_floats(w->model->config);
}

float *ref_tail(const lily_weights *w, float *recurrent, uint16_t layer)
{
    return recurrent + w->nth[layer] * ref_recurrent_floats(w->model->config);
}

float *ref_s(const lily_weights *w, float *recurrent, uint16_t layer)
{
    return ref_tail(w, recurrent, layer) + tail_floats(w->model->config);
}

int ref_state_new(lily_dev *d, const lily_weights *w, lily_state **out, lily_err *e)
{
    lily_state *s = lily_calloc(1, sizeof *s);
    *out = s;
    if (!s) return lily_no_memory(e, sizeof *s, "a session's state");
    s->weights = w;
    s->next = -1;
    s->recurrent = lily_calloc(all_recurrent_floats(w), sizeof *s->recurrent);
    s->count = lily_calloc(w->model->config->vocab, sizeof *s->count);
    s->kv = lily_calloc(2 * (size_t)w->n_attention, sizeof *s->kv);
    if (s->recurrent && s->count && s->kv) return LILY_OK;
    ref_state_free(d, s);
    *out = NULL;
    return lily_no_memory(e, all_recurrent_floats(w) * sizeof *s->recurrent, "a session's recurrent state");
}

static void release_snapshot(ref_snapshot *s)
{
    if (s && --s->refs == 0) lily_free(s);
}

static void forget_after(lily_state *s, uint32_t position)
{
    while (s->n_snapshots && s->snapshot[s->n_snapshots - 1]->position > position)
        release_snapshot(s->snapshot[--s->n_snapshots]);
}

void ref_state_free(lily_dev *d, lily_state *s)
{
    (void)d;
    if (!s) return;
    for (uint32_t i = 0; i < s->n_snapshots; i++) release_snapshot(s->snapshot[i]);
    for (uint32_t i = 0; s->kv && i < 2 * s->weights->n_attention; i++) lily_free(s->kv[i]);
    lily_free(s->snapshot);
    lily_free(s->kv);
    lily_free(s->recurrent);
    lily_free(s->count);
    lily_free(s);
}

int ref_state_grow(lily_dev *d, lily_state *s, uint32_t context, lily_err *e)
{
    (void)d;
    if (context <= s->capacity) return LILY_OK;
    size_t width = lily_kv_width(s->weights->model->config);
    uint64_t capacity = ((uint64_t)context + PAGE - 1) / PAGE * PAGE;
    if (capacity > UINT32_MAX)
        return lily_fail(e, LILY_CONTEXT, "a context of %u tokens is too long", context);
    for (uint32_t i = 0; i < 2 * s->weights->n_attention; i++) {
        float *grown = lily_realloc(s->kv[i], capacity * width, sizeof *grown);
        if (!grown) return lily_no_memory(e, capacity * width * sizeof *grown, "keys and values");
        s->kv[i] = grown;
    }
    s->capacity = (uint32_t)capacity;
    return LILY_OK;
}

uint32_t ref_state_position(const lily_state *s)
{
    return s->position;
}

size_t ref_state_positions(const lily_state *s, uint32_t *out, size_t room)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_snapshots; i++)
        if (s->snapshot[i]->position < s->position && n++ < room) out[n - 1] = s->snapshot[i]->position;
    if (n++ < room) out[n - 1] = s->position;
    return n;
}

static ref_snapshot *find_snapshot(const lily_state *s, uint32_t position)
{
    for (uint32_t i = 0; i < s->n_snapshots; i++)
        if (s->snapshot[i]->position == position) return s->snapshot[i];
    return NULL;
}

/* The recurrent block at a position; NULL in *block stands for the empty state. */
static int block_at(const lily_state *s, uint32_t position, const float **block, lily_err *e)
{
    *block = NULL;
    if (position == 0) return LILY_OK;
    const ref_snapshot *snapshot = find_snapshot(s, position);
    if (position == s->position)
        *block = s->recurrent;
    else if (snapshot)
        *block = snapshot->recurrent;
    else
        return lily_fail(e, LILY_ARGUMENT, "the state at token %u was not kept; it stands at %u", position,
                         s->position);
    return LILY_OK;
}

static void set_recurrent(lily_state *s, const float *block)
{
    size_t bytes = all_recurrent_floats(s->weights) * sizeof *s->recurrent;
    if (!block)
        memset(s->recurrent, 0, bytes);
    else if (block != s->recurrent)
        memcpy(s->recurrent, block, bytes);
}

/* dst's snapshots become those of src up to a position, in shared memory. */
static int share_snapshots(lily_state *dst, const lily_state *src, uint32_t position, lily_err *e)
{
    uint32_t n = 0;
    while (n < src->n_snapshots && src->snapshot[n]->position <= position) n++;
    ref_snapshot **list = lily_calloc(n, sizeof *list);
    if (!list) return lily_no_memory(e, n * sizeof *list, "snapshots");
    for (uint32_t i = 0; i < n; i++) {
        list[i] = src->snapshot[i];
        list[i]->refs++;
    }
    for (uint32_t i = 0; i < dst->n_snapshots; i++) release_snapshot(dst->snapshot[i]);
    lily_free(dst->snapshot);
    dst->snapshot = list;
    dst->n_snapshots = n;
    return LILY_OK;
}

int ref_state_copy(lily_dev *d, lily_state *dst, const lily_state *src, uint32_t position, lily_err *e)
{
    const float *block;
    TRY(block_at(src, position, &block, e));
    if (dst == src) {
        set_recurrent(dst, block);
        forget_after(dst, position);
    } else {
        TRY(ref_state_grow(d, dst, position, e));
        TRY(share_snapshots(dst, src, position, e));
        set_recurrent(dst, block);
        size_t floats = (size_t)position * lily_kv_width(src->weights->model->config);
        for (uint32_t i = 0; floats && i < 2 * src->weights->n_attention; i++)
            memcpy(dst->kv[i], src->kv[i], floats * sizeof *dst->kv[i]);
    }
    dst->position = position;
    dst->next = -1;
    ref_state_count_reset(dst);
    return LILY_OK;
}

void ref_state_drop(lily_dev *d, lily_state *s, uint32_t position)
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

void ref_state_count_reset(lily_state *s)
{
    memset(s->count, 0, s->weights->model->config->vocab * sizeof *s->count);
}

void ref_state_recover(lily_state *s)
{
    const ref_snapshot *newest = s->n_snapshots ? s->snapshot[s->n_snapshots - 1] : NULL;
    set_recurrent(s, newest ? newest->recurrent : NULL);
    s->position = newest ? newest->position : 0;
    s->next = -1;
}

/* ---- snapshots of a run ---- */

int ref_snapshots_new(lily_state *s, uint32_t n, ref_snapshot ***out, lily_err *e)
{
    size_t bytes = sizeof(ref_snapshot) + all_recurrent_floats(s->weights) * sizeof(float);
    *out = NULL;
    if (n == 0) return LILY_OK;
    /* Room in the list first, so that keeping them cannot fail. */
    ref_snapshot **list = lily_realloc(s->snapshot, (size_t)s->n_snapshots + n, sizeof *list);
    ref_snapshot **fresh = lily_calloc(n, sizeof *fresh);
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
    if (fresh) ref_snapshots_free(fresh, n);
    return lily_no_memory(e, bytes, "a snapshot of the recurrent state");
}

void ref_snapshots_keep(lily_state *s, ref_snapshot **snapshot, uint32_t n)
{
    /* They lie behind all others: a run begins at the live position, and no snapshot is above that. */
    for (uint32_t i = 0; i < n; i++) s->snapshot[s->n_snapshots++] = snapshot[i];
    lily_free(snapshot);
}

void ref_snapshots_free(ref_snapshot **snapshot, uint32_t n)
{
    for (uint32_t i = 0; snapshot && i < n; i++) release_snapshot(snapshot[i]);
    lily_free(snapshot);
}

/* ---- sizes, and a look inside ---- */

uint64_t ref_state_bytes(const lily_state *s)
{
    const lily_config *c = s->weights->model->config;
    uint64_t block = all_recurrent_floats(s->weights) * sizeof(float);
    return sizeof *s + block * (1 + (uint64_t)s->n_snapshots) + c->vocab * sizeof *s->count +
           2ull * s->weights->n_attention * s->capacity * lily_kv_width(c) * sizeof(float);
}

void ref_state_cost(const lily_config *c, uint64_t *fixed, uint64_t *snapshot, uint64_t *per_token)
{
    uint64_t attention = 0;
    for (uint32_t i = 0; i < c->layers; i++) attention += c->full_attention[i];
    *snapshot = (c->layers - attention) * ref_recurrent_floats(c) * sizeof(float);
    *fixed = *snapshot + (uint64_t)c->vocab * sizeof(uint32_t);
    *per_token = attention * 2 * lily_kv_width(c) * sizeof(float);
}

int ref_peek_state(lily_dev *d, const lily_state *s, unsigned slot, uint16_t layer, float *dst, size_t room,
                   size_t *n, lily_err *e)
{
    (void)d;
    const lily_weights *w = s->weights;
    const lily_config *c = w->model->config;
    if (layer >= c->layers || (slot == SLOT_KV) != c->full_attention[layer] ||
        !(slot == SLOT_KV || slot == SLOT_S || slot == SLOT_TAIL))
        return lily_fail(e, LILY_ARGUMENT, "layer %u has no state %s", layer, lily_slot_name(slot));
    size_t half = (size_t)s->position * lily_kv_width(c);
    *n = slot == SLOT_KV ? 2 * half : slot == SLOT_S ? s_floats(c) : tail_floats(c);
    if (*n > room) return lily_fail(e, LILY_ARGUMENT, "%zu floats do not fit in %zu", *n, room);
    if (slot == SLOT_S)
        memcpy(dst, ref_s(w, s->recurrent, layer), *n * sizeof *dst);
    else if (slot == SLOT_TAIL)
        memcpy(dst, ref_tail(w, s->recurrent, layer), *n * sizeof *dst);
    else
        for (uint32_t i = 0; half && i < 2; i++)
            memcpy(dst + i * half, s->kv[2 * w->nth[layer] + i], half * sizeof *dst);
    return LILY_OK;
}
