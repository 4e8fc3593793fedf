/* state.c - one session's memory on the device: recurrent states with snapshots, and keys and values in pages that
 * branches share.  Copies go onto the device's stream, so they stand between runs in their order. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "device/cuda/cuda.h"

/* ---- sizes ---- */

static size_t tail_floats(const lily_config *c) { return (size_t)c->conv_kernel * lily_conv_width(c); }

static size_t s_floats(const lily_config *c) { return (size_t)lily_value_width(c) * c->lin_k_dim; }

static size_t layer_floats(const lily_config *c) { return (tail_floats(c) + s_floats(c) + 63) / 64 * 64; }

static size_t block_bytes(const lily_weights *w) { return w->n_delta * layer_floats(w->model->config) * sizeof(float); }

static size_t page_bytes(const lily_weights *w)
{
    return 2ull * w->n_attention * CUDA_PAGE * lily_kv_width(w->model->config) * sizeof(uint16_t);
}

/* S first: it is read in pieces of 16 bytes whatever the width of the convolution. */
size_t cuda_s_at(const lily_weights *w, uint16_t layer) { return w->nth[layer] * layer_floats(w->model->config); }

size_t cuda_tail_at(const lily_weights *w, uint16_t layer) { return cuda_s_at(w, layer) + s_floats(w->model->config); }

/* ---- memory ---- */

static int take(lily_state *s, void **out, size_t bytes, lily_err *e)
{
    CU(cudaMallocAsync(out, bytes ? bytes : 1, s->dev->stream));
    cudaError_t rc = cudaMemsetAsync(*out, 0, bytes, s->dev->stream);
    if (rc == cudaSuccess) return LILY_OK;
    cudaFreeAsync(*out, s->dev->stream);
    *out = NULL;
    return cuda_fail(e, rc, "cudaMemsetAsync");
}

static void give(const lily_state *s, void *p)
{
    if (p) cudaFreeAsync(p, s->dev->stream);
}

static void release_snapshot(lily_state *s, cuda_snapshot *p)
{
    if (!p || --p->refs) return;
    give(s, p->recurrent);
    lily_free(p);
}

static void release_page(lily_state *s, cuda_page *p)
{
    if (!p || --p->refs) return;
    give(s, p->rows);
    lily_free(p);
}

/* ---- life ---- */

int cuda_state_new(lily_dev *d, const lily_weights *w, lily_state **out, lily_err *e)
{
    const lily_config *c = w->model->config;
    lily_state *s = lily_calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return lily_no_memory(e, sizeof *s, "a session's state");
    s->dev = d;
    s->weights = w;
    int rc = take(s, (void **)&s->recurrent, block_bytes(w), e);
    if (rc == LILY_OK) rc = take(s, (void **)&s->count, c->vocab * sizeof *s->count, e);
    if (rc != LILY_OK) {
        cuda_state_free(d, s);
        return rc;
    }
    *out = s;
    return LILY_OK;
}

void cuda_state_free(lily_dev *d, lily_state *s)
{
    if (!s) return;
    for (uint32_t i = 0; i < s->n_snapshots; i++) release_snapshot(s, s->snapshot[i]);
    for (uint32_t i = 0; i < s->n_pages; i++) release_page(s, s->page[i]);
    give(s, s->recurrent);
    give(s, s->count);
    give(s, s->table);
    lily_free(s->snapshot);
    lily_free(s->page);
    lily_free(s->host_table);
    if (d->token_owner == s) d->token_owner = NULL;
    d->there.recurrent = NULL; /* the next state may get the same addresses: nothing is believed to be there */
    lily_free(s);
}

/* ---- pages ---- */

static int new_page(lily_state *s, cuda_page **out, lily_err *e)
{
    *out = lily_calloc(1, sizeof **out);
    if (!*out) return lily_no_memory(e, sizeof **out, "keys and values");
    (*out)->refs = 1;
    int rc = take(s, (void **)&(*out)->rows, page_bytes(s->weights), e);
    if (rc != LILY_OK) {
        lily_free(*out);
        *out = NULL;
    }
    return rc;
}

/* Pageable memory: the copy out of it has been made when this returns. */
static int send_table(lily_state *s, uint32_t first, uint32_t n, lily_err *e)
{
    for (uint32_t i = first; i < first + n; i++) s->host_table[i] = s->page[i]->rows;
    CU(cudaMemcpyAsync(s->table + first, s->host_table + first, n * sizeof *s->table, cudaMemcpyHostToDevice, s->dev->stream));
    return LILY_OK;
}

/* Room for so many pages in the lists; the table on the device may move. */
static int grow_lists(lily_state *s, uint32_t want, lily_err *e)
{
    if (want <= s->room_pages) return LILY_OK;
    const uint32_t room = want > 2 * s->room_pages ? want : 2 * s->room_pages;
    cuda_page **pages = lily_realloc(s->page, room, sizeof *pages);
    if (pages) s->page = pages;
    uint16_t **rows = lily_realloc(s->host_table, room, sizeof *rows);
    if (rows) s->host_table = rows;
    if (!pages || !rows) return lily_no_memory(e, room * sizeof *pages, "keys and values");
    uint16_t **table;
    TRY(take(s, (void **)&table, room * sizeof *table, e));
    give(s, s->table);
    s->table = table;
    s->room_pages = room;
    return s->n_pages ? send_table(s, 0, s->n_pages, e) : LILY_OK;
}

static void drop_pages(lily_state *s, uint32_t keep)
{
    while (s->n_pages > keep) release_page(s, s->page[--s->n_pages]);
}

static uint32_t pages_for(uint32_t positions) { return positions / CUDA_PAGE + (positions % CUDA_PAGE != 0); }

int cuda_state_grow(lily_dev *d, lily_state *s, uint32_t context, lily_err *e)
{
    (void)d;
    const uint32_t before = s->n_pages, want = pages_for(context);
    if (want <= before) return LILY_OK;
    TRY(grow_lists(s, want, e));
    int rc = LILY_OK;
    while (rc == LILY_OK && s->n_pages < want) {
        rc = new_page(s, &s->page[s->n_pages], e);
        s->n_pages += rc == LILY_OK;
    }
    if (rc == LILY_OK) rc = send_table(s, before, want - before, e);
    if (rc != LILY_OK) drop_pages(s, before);
    return rc;
}

int cuda_state_own(lily_state *s, uint32_t n, lily_err *e)
{
    for (uint32_t i = s->position / CUDA_PAGE; i <= (s->position + n - 1) / CUDA_PAGE; i++) {
        cuda_page *shared = s->page[i], *own;
        if (shared->refs == 1) continue;
        TRY(new_page(s, &own, e));
        s->page[i] = own;
        cudaError_t rc = cudaMemcpyAsync(own->rows, shared->rows, page_bytes(s->weights), cudaMemcpyDeviceToDevice, s->dev->stream);
        release_page(s, shared);
        if (rc != cudaSuccess) return cuda_fail(e, rc, "copy of a page");
        TRY(send_table(s, i, 1, e));
    }
    return LILY_OK;
}

/* ---- positions ---- */

uint32_t cuda_state_position(const lily_state *s) { return s->position; }

size_t cuda_state_positions(const lily_state *s, uint32_t *out, size_t room)
{
    size_t n = 0;
    for (uint32_t i = 0; i < s->n_snapshots; i++)
        if (s->snapshot[i]->position < s->position && n++ < room) out[n - 1] = s->snapshot[i]->position;
    if (n++ < room) out[n - 1] = s->position;
    return n;
}

/* The recurrent block at a position; NULL in *block stands for the empty state. */
static int block_at(const lily_state *s, uint32_t position, const float **block, lily_err *e)
{
    *block = NULL;
    if (position == 0) return LILY_OK;
    if (position == s->position) *block = s->recurrent;
    for (uint32_t i = 0; !*block && i < s->n_snapshots; i++)
        if (s->snapshot[i]->position == position) *block = s->snapshot[i]->recurrent;
    if (*block) return LILY_OK;
    return lily_fail(e, LILY_ARGUMENT, "the state at token %u was not kept; it stands at %u", position, s->position);
}

static int set_recurrent(lily_state *s, const float *block, lily_err *e)
{
    if (!block)
        CU(cudaMemsetAsync(s->recurrent, 0, block_bytes(s->weights), s->dev->stream));
    else if (block != s->recurrent)
        CU(cudaMemcpyAsync(s->recurrent, block, block_bytes(s->weights), cudaMemcpyDeviceToDevice, s->dev->stream));
    return LILY_OK;
}

static void forget_token(lily_state *s)
{
    if (s->dev->token_owner == s) s->dev->token_owner = NULL;
}

static void drop_later(lily_state *s, uint32_t position)
{
    while (s->n_snapshots && s->snapshot[s->n_snapshots - 1]->position > position)
        release_snapshot(s, s->snapshot[--s->n_snapshots]);
}

/* dst's snapshots and first pages become those of src, in shared memory; pages that dst had beyond stay as room. */
static int share(lily_state *dst, const lily_state *src, uint32_t position, lily_err *e)
{
    const uint32_t pages = pages_for(position);
    uint32_t n = 0;
    while (n < src->n_snapshots && src->snapshot[n]->position <= position) n++;
    cuda_snapshot **list = lily_calloc(n, sizeof *list);
    if (!list) return lily_no_memory(e, n * sizeof *list, "snapshots");
    int rc = grow_lists(dst, pages, e);
    if (rc != LILY_OK) {
        lily_free(list);
        return rc;
    }
    for (uint32_t i = 0; i < n; i++) (list[i] = src->snapshot[i])->refs++;
    for (uint32_t i = 0; i < dst->n_snapshots; i++) release_snapshot(dst, dst->snapshot[i]);
    lily_free(dst->snapshot);
    dst->snapshot = list;
    dst->n_snapshots = n;
    for (uint32_t i = 0; i < pages; i++) {
        src->page[i]->refs++;
        if (i < dst->n_pages) release_page(dst, dst->page[i]);
        dst->page[i] = src->page[i];
    }
    if (dst->n_pages < pages) dst->n_pages = pages;
    return pages ? send_table(dst, 0, pages, e) : LILY_OK;
}

int cuda_state_copy(lily_dev *d, lily_state *dst, const lily_state *src, uint32_t position, lily_err *e)
{
    (void)d;
    const float *block;
    TRY(block_at(src, position, &block, e));
    if (dst != src) TRY(share(dst, src, position, e));
    TRY(set_recurrent(dst, block, e));
    drop_later(dst, position);
    dst->position = position;
    forget_token(dst);
    cuda_state_count_reset(dst);
    return LILY_OK;
}

void cuda_state_drop(lily_dev *d, lily_state *s, uint32_t position)
{
    (void)d;
    for (uint32_t i = 0; i < s->n_snapshots; i++) {
        if (s->snapshot[i]->position != position) continue;
        release_snapshot(s, s->snapshot[i]);
        s->n_snapshots--;
        memmove(&s->snapshot[i], &s->snapshot[i + 1], (s->n_snapshots - i) * sizeof *s->snapshot);
        return;
    }
}

void cuda_state_count_reset(lily_state *s)
{
    (void)cudaMemsetAsync(s->count, 0, s->weights->model->config->vocab * sizeof *s->count, s->dev->stream);
}

int cuda_state_recover(lily_state *s, lily_err *e)
{
    const cuda_snapshot *newest = s->n_snapshots ? s->snapshot[s->n_snapshots - 1] : NULL;
    s->position = newest ? newest->position : 0;
    forget_token(s);
    return set_recurrent(s, newest ? newest->recurrent : NULL, e);
}

/* ---- snapshots of a run ---- */

int cuda_marks_new(lily_state *s, const lily_lane *lane, cuda_snapshot ***out, lily_err *e)
{
    const uint32_t n = lane->n_marks;
    *out = NULL;
    if (n == 0) return LILY_OK;
    /* Room in the list first, so that keeping them cannot fail. */
    cuda_snapshot **list = lily_realloc(s->snapshot, (size_t)s->n_snapshots + n, sizeof *list);
    if (list) s->snapshot = list;
    cuda_snapshot **fresh = lily_calloc(n, sizeof *fresh);
    int rc = list && fresh ? LILY_OK : lily_no_memory(e, n * sizeof *fresh, "snapshots");
    for (uint32_t i = 0; rc == LILY_OK && i < n; i++) {
        fresh[i] = lily_calloc(1, sizeof **fresh);
        if (!fresh[i]) {
            rc = lily_no_memory(e, sizeof **fresh, "a snapshot");
            break;
        }
        fresh[i]->refs = 1;
        fresh[i]->position = s->position + lane->mark[i];
        rc = take(s, (void **)&fresh[i]->recurrent, block_bytes(s->weights), e);
    }
    if (rc == LILY_OK)
        *out = fresh;
    else if (fresh)
        cuda_marks_free(s, fresh, n);
    return rc;
}

void cuda_marks_keep(lily_state *s, cuda_snapshot **mark, uint32_t n)
{
    /* They lie behind all others: a run begins at the live position, and no snapshot is above that. */
    for (uint32_t i = 0; i < n; i++) s->snapshot[s->n_snapshots++] = mark[i];
    lily_free(mark);
}

void cuda_marks_free(lily_state *s, cuda_snapshot **mark, uint32_t n)
{
    for (uint32_t i = 0; mark && i < n; i++) release_snapshot(s, mark[i]);
    lily_free(mark);
}

/* ---- sizes ---- */

uint64_t cuda_state_bytes(const lily_state *s)
{
    uint64_t bytes = sizeof *s + block_bytes(s->weights) + s->weights->model->config->vocab * sizeof *s->count;
    for (uint32_t i = 0; i < s->n_snapshots; i++) bytes += lily_part_of(block_bytes(s->weights), s->snapshot[i]->refs);
    for (uint32_t i = 0; i < s->n_pages; i++) bytes += lily_part_of(page_bytes(s->weights), s->page[i]->refs);
    return bytes;
}

void cuda_state_cost(const lily_config *c, uint64_t *fixed, uint64_t *snapshot, uint64_t *per_token)
{
    uint64_t attention = 0;
    for (uint32_t i = 0; i < c->layers; i++) attention += c->full_attention[i];
    *snapshot = (c->layers - attention) * layer_floats(c) * sizeof(float);
    *fixed = *snapshot + (uint64_t)c->vocab * sizeof(uint32_t);
    *per_token = attention * 2 * lily_kv_width(c) * sizeof(uint16_t);
}

static int fetch(const lily_state *s, void *to, const void *from, size_t bytes, lily_err *e)
{
    CU(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s->dev->stream));
    CU(cudaStreamSynchronize(s->dev->stream));
    return LILY_OK;
}

/* When it returns `from` is free for other things. */
static int store(const lily_state *s, void *to, const void *from, size_t bytes, lily_err *e)
{
    CU(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, s->dev->stream));
    CU(cudaStreamSynchronize(s->dev->stream));
    return LILY_OK;
}

/* ---- to and from the disk: a position after the other, each [layers][keys, values][Hk][D] in bf16 ---- */

void cuda_state_layout(const lily_dev *d, char *text, size_t room)
{
    snprintf(text, room, "cuda %d.%d%s bf16", d->props.major, d->props.minor, d->props.major == 9 && !d->hopper ? " portable" : "");
}

/* Positions first … first + n of a page, between its copy here and `bytes`. */
static void copy_rows(const lily_weights *w, uint16_t *page, uint32_t first, uint32_t n, uint8_t *bytes, bool save)
{
    const lily_config *c = w->model->config;
    const size_t row = c->head_dim * sizeof(uint16_t), heads = 2 * (size_t)w->n_attention * c->kv_heads;
    for (uint32_t p = first; p < first + n; p++)
        for (size_t h = 0; h < heads; h++, bytes += row) {
            uint16_t *at = page + (h * CUDA_PAGE + p) * c->head_dim;
            memcpy(save ? (void *)bytes : at, save ? (void *)at : bytes, row);
        }
}

/* Page by page through host memory.  A page of which only a part is loaded keeps the rest. */
static int move_rows(const lily_state *s, uint32_t from, uint32_t n, uint8_t *bytes, bool save, lily_err *e)
{
    const size_t page = page_bytes(s->weights), per_token = page / CUDA_PAGE;
    uint16_t *rows = n ? lily_calloc(1, page) : NULL;
    if (n && !rows) return lily_no_memory(e, page, "keys and values");
    int rc = LILY_OK;
    for (uint32_t p = from; rc == LILY_OK && p < from + n;) {
        const uint32_t first = p % CUDA_PAGE, left = from + n - p, some = left < CUDA_PAGE - first ? left : CUDA_PAGE - first;
        uint16_t *there = s->page[p / CUDA_PAGE]->rows;
        if (save || some < CUDA_PAGE) rc = fetch(s, rows, there, page, e);
        if (rc == LILY_OK) copy_rows(s->weights, rows, first, some, bytes, save);
        if (rc == LILY_OK && !save) rc = store(s, there, rows, page, e);
        p += some;
        bytes += some * per_token;
    }
    lily_free(rows);
    return rc;
}

int cuda_rows_save(lily_dev *d, const lily_state *s, uint32_t from, uint32_t n, void *out, lily_err *e)
{
    (void)d;
    if (from > s->position || n > s->position - from)
        return lily_fail(e, LILY_ARGUMENT, "rows %u to %u of a state of %u tokens", from, from + n, s->position);
    return move_rows(s, from, n, out, true, e);
}

int cuda_rows_load(lily_dev *d, lily_state *s, uint32_t from, uint32_t n, const void *in, lily_err *e)
{
    (void)d;
    const uint64_t room = (uint64_t)s->n_pages * CUDA_PAGE;
    if (s->position || from > room || n > room - from)
        return lily_fail(e, LILY_ARGUMENT, "rows %u to %u cannot be loaded into a state of %u tokens with room for %llu", from,
                         from + n, s->position, (unsigned long long)room);
    if (n) TRY(cuda_state_own(s, from + n, e));     /* of an empty state: pages 0 … from + n */
    return move_rows(s, from, n, (uint8_t *)(uintptr_t)in, false, e);
}

int cuda_recurrent_save(lily_dev *d, const lily_state *s, uint32_t position, void *out, lily_err *e)
{
    (void)d;
    const float *block;
    TRY(block_at(s, position, &block, e));
    if (!block) return lily_fail(e, LILY_ARGUMENT, "an empty state is not saved");
    return fetch(s, out, block, block_bytes(s->weights), e);
}

int cuda_recurrent_load(lily_dev *d, lily_state *s, uint32_t position, const void *in, lily_err *e)
{
    const uint64_t room = (uint64_t)s->n_pages * CUDA_PAGE;
    if (position <= s->position || position > room)
        return lily_fail(e, LILY_ARGUMENT, "a state at token %u cannot follow one at %u in room for %llu", position,
                         s->position, (unsigned long long)room);
    const uint32_t offset = position - s->position;
    const lily_lane lane = {.state = s, .mark = &offset, .n_marks = 1};
    cuda_snapshot **fresh;
    TRY(cuda_marks_new(s, &lane, &fresh, e));
    int rc = store(s, fresh[0]->recurrent, in, block_bytes(s->weights), e);
    if (rc == LILY_OK) rc = set_recurrent(s, fresh[0]->recurrent, e);
    if (rc != LILY_OK) {
        cuda_marks_free(s, fresh, 1);
        return rc;
    }
    cuda_marks_keep(s, fresh, 1);
    s->position = position;
    if (d->token_owner == s) d->token_owner = NULL;
    return LILY_OK;
}

/* ---- a look inside ---- */

/* The ring's rows in order of age. */
static int peek_tail(const lily_state *s, uint16_t layer, float *dst, lily_err *e)
{
    const lily_config *c = s->weights->model->config;
    const uint32_t width = lily_conv_width(c), back = c->conv_kernel - 1;
    for (uint32_t i = 0; i < back; i++) {
        const int64_t position = (int64_t)s->position - back + i;
        const float *row = s->recurrent + cuda_tail_at(s->weights, layer) + (size_t)(position % c->conv_kernel) * width;
        if (position < 0)
            memset(dst + (size_t)i * width, 0, width * sizeof *dst);
        else
            TRY(fetch(s, dst + (size_t)i * width, row, width * sizeof *dst, e));
    }
    return LILY_OK;
}

static int peek_kv(const lily_state *s, uint16_t layer, float *dst, lily_err *e)
{
    const lily_config *c = s->weights->model->config;
    const size_t head = (size_t)CUDA_PAGE * c->head_dim, some = c->kv_heads * head;
    uint16_t *rows = lily_calloc(2 * some, sizeof *rows);
    if (!rows) return lily_no_memory(e, 2 * some * sizeof *rows, "keys and values");
    int rc = LILY_OK;
    for (uint32_t p = 0; rc == LILY_OK && p < s->position; p++) {
        if (p % CUDA_PAGE == 0)
            rc = fetch(s, rows, s->page[p / CUDA_PAGE]->rows + 2 * some * s->weights->nth[layer], 2 * some * sizeof *rows, e);
        for (uint32_t which = 0; which < 2; which++)
            for (uint32_t i = 0; i < lily_kv_width(c); i++)
                dst[((size_t)which * s->position + p) * lily_kv_width(c) + i] = lily_bf16_to_float(
                    rows[which * some + i / c->head_dim * head + (size_t)(p % CUDA_PAGE) * c->head_dim + i % c->head_dim]);
    }
    lily_free(rows);
    return rc;
}

int cuda_peek_state(lily_dev *d, const lily_state *s, unsigned slot, uint16_t layer, float *dst, size_t room, size_t *n,
                    lily_err *e)
{
    (void)d;
    const lily_weights *w = s->weights;
    const lily_config *c = w->model->config;
    if (layer >= c->layers || (slot == SLOT_KV) != c->full_attention[layer] ||
        !(slot == SLOT_KV || slot == SLOT_S || slot == SLOT_TAIL))
        return lily_fail(e, LILY_ARGUMENT, "layer %u has no state %s", layer, lily_slot_name(slot));
    *n = slot == SLOT_KV  ? 2 * (size_t)s->position * lily_kv_width(c)
         : slot == SLOT_S ? s_floats(c)
                          : (size_t)(c->conv_kernel - 1) * lily_conv_width(c);
    if (*n > room) return lily_fail(e, LILY_ARGUMENT, "%zu floats do not fit in %zu", *n, room);
    if (slot == SLOT_S) return fetch(s, dst, s->recurrent + cuda_s_at(w, layer), *n * sizeof *dst, e);
    return slot == SLOT_KV ? peek_kv(s, layer, dst, e) : peek_tail(s, layer, dst, e);
}
