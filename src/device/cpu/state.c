/* state.c - keys and values of a session, in pages that branches share. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "device/cpu/cpu.h"

static size_t page_bytes(const lily_weights *w)
{
    return sizeof(cpu_page) +
           2ull * w->n_attention * CPU_PAGE * lily_kv_width(w->model->config) * sizeof(uint16_t);
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

static void drop_pages(lily_kv *kv, uint32_t keep)
{
    while (kv->n_pages > keep) release_page(kv->page[--kv->n_pages]);
}

static uint32_t pages_for(uint32_t positions)
{
    return positions / CPU_PAGE + (positions % CPU_PAGE != 0);
}

int cpu_state_grow(lily_dev *d, lily_state *s, uint32_t context, lily_err *e)
{
    (void)d;
    lily_kv *kv = s->kv;
    const uint32_t before = kv->n_pages, want = pages_for(context);
    if (want <= before) return LILY_OK;
    cpu_page **list = lily_realloc(kv->page, want, sizeof *list);
    if (!list) return lily_no_memory(e, want * sizeof *list, "keys and values");
    kv->page = list;
    while (kv->n_pages < want) {
        cpu_page *p = new_page(s->weights);
        if (!p) {
            drop_pages(kv, before);
            return lily_no_memory(e, (want - before) * page_bytes(s->weights), "keys and values");
        }
        kv->page[kv->n_pages++] = p;
    }
    s->capacity = (uint64_t)want * CPU_PAGE;
    return LILY_OK;
}

int cpu_state_own(lily_state *s, uint32_t n, lily_err *e)
{
    for (uint32_t i = s->position / CPU_PAGE; i <= (s->position + n - 1) / CPU_PAGE; i++) {
        if (s->kv->page[i]->refs == 1) continue;
        cpu_page *p = new_page(s->weights);
        if (!p) return lily_no_memory(e, page_bytes(s->weights), "keys and values");
        memcpy(p->rows, s->kv->page[i]->rows, page_bytes(s->weights) - sizeof *p);
        release_page(s->kv->page[i]);
        s->kv->page[i] = p;
    }
    return LILY_OK;
}

/* ---- life ---- */

int cpu_state_new(lily_dev *d, const lily_weights *w, lily_state **out, lily_err *e)
{
    (void)d;
    return lily_state_open(w, sizeof(lily_kv), out, e);
}

void cpu_state_free(lily_dev *d, lily_state *s)
{
    (void)d;
    if (!s) return;
    drop_pages(s->kv, 0);
    lily_free(s->kv->page);
    lily_state_close(s);
}

/* dst's first pages become those of src, in shared memory; `list` has room for all of dst's. */
static void share_pages(lily_kv *dst, const lily_kv *src, uint32_t n, cpu_page **list)
{
    for (uint32_t i = 0; i < n; i++) (list[i] = src->page[i])->refs++;
    for (uint32_t i = 0; i < dst->n_pages; i++)
        if (i < n)
            release_page(dst->page[i]);
        else
            list[i] = dst->page[i]; /* room that dst had stays */
    if (dst->n_pages < n) dst->n_pages = n;
    lily_free(dst->page);
    dst->page = list;
}

int cpu_state_copy(lily_dev *d, lily_state *dst, const lily_state *src, uint32_t position, lily_err *e)
{
    (void)d;
    if (dst == src) return lily_state_copy(dst, src, position, e); /* pages stay, as room for what comes */
    const float *block;
    TRY(lily_state_at(src, position, &block, e)); /* the position is one that src has pages for */
    const uint32_t pages = pages_for(position), most = pages > dst->kv->n_pages ? pages : dst->kv->n_pages;
    cpu_page **list = lily_calloc(most, sizeof *list);
    if (!list) return lily_no_memory(e, most * sizeof *list, "a branch of a session");
    int rc = lily_state_copy(dst, src, position, e);
    if (rc != LILY_OK) {
        lily_free(list);
        return rc;
    }
    share_pages(dst->kv, src->kv, pages, list);
    dst->capacity = (uint64_t)most * CPU_PAGE;
    return LILY_OK;
}

/* ---- to and from the disk: a position after the other, each [layers][keys, values][Hk][D] in bf16 ---- */

void cpu_state_layout(const lily_dev *d, char *text, size_t room)
{
    snprintf(text, room, "cpu %s bf16", d->k->name);
}

/* Walks the rows of n positions and copies each to or from `bytes`. */
static void copy_rows(const lily_state *s, uint32_t from, uint32_t n, uint8_t *bytes, bool save)
{
    const lily_config *c = s->weights->model->config;
    const size_t row = c->head_dim * sizeof(uint16_t);
    for (uint32_t p = from; p < from + n; p++)
        for (uint16_t layer = 0; layer < c->layers; layer++) {
            if (!c->full_attention[layer]) continue;
            for (unsigned which = 0; which < 2; which++)
                for (uint32_t h = 0; h < c->kv_heads; h++, bytes += row) {
                    uint16_t *at = cpu_page_rows(s->weights, s->kv->page[p / CPU_PAGE], layer, which, h) +
                                   (size_t)(p % CPU_PAGE) * c->head_dim;
                    memcpy(save ? (void *)bytes : at, save ? (void *)at : bytes, row);
                }
        }
}

int cpu_rows_save(lily_dev *d, const lily_state *s, uint32_t from, uint32_t n, void *out, lily_err *e)
{
    (void)d;
    TRY(lily_rows_saved(s, from, n, e));
    copy_rows(s, from, n, out, true);
    return LILY_OK;
}

int cpu_rows_load(lily_dev *d, lily_state *s, uint32_t from, uint32_t n, const void *in, lily_err *e)
{
    (void)d;
    TRY(lily_rows_loaded(s, from, n, e));
    if (n) TRY(cpu_state_own(s, from + n, e)); /* of an empty state: pages 0 … from + n */
    copy_rows(s, from, n, (uint8_t *)in, false);
    return LILY_OK;
}

/* ---- sizes, and a look inside ---- */

uint64_t cpu_state_bytes(const lily_state *s)
{
    uint64_t bytes = lily_state_bytes(s);
    for (uint32_t i = 0; i < s->kv->n_pages; i++) bytes += lily_part_of(page_bytes(s->weights), s->kv->page[i]->refs);
    return bytes;
}

void cpu_state_cost(const lily_config *c, uint64_t *fixed, uint64_t *snapshot, uint64_t *per_token)
{
    lily_state_cost(c, sizeof(uint16_t), fixed, snapshot, per_token);
}

static void peek_kv(const lily_state *s, uint16_t layer, float *dst)
{
    const lily_config *c = s->weights->model->config;
    for (unsigned which = 0; which < 2; which++)
        for (uint32_t p = 0; p < s->position; p++)
            for (uint32_t h = 0; h < c->kv_heads; h++) {
                const uint16_t *row = cpu_page_rows(s->weights, s->kv->page[p / CPU_PAGE], layer, which, h) +
                                      (size_t)(p % CPU_PAGE) * c->head_dim;
                for (uint32_t i = 0; i < c->head_dim; i++) *dst++ = lily_bf16_to_float(row[i]);
            }
}

int cpu_peek_state(lily_dev *d, const lily_state *s, unsigned slot, uint16_t layer, float *dst, size_t room,
                   size_t *n, lily_err *e)
{
    (void)d;
    TRY(lily_state_peek(s, slot, layer, dst, room, n, e));
    if (slot == SLOT_KV) peek_kv(s, layer, dst);
    return LILY_OK;
}
