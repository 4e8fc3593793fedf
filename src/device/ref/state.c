/* state.c - keys and values of a session, kept in float32 and copied for each branch. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "device/ref/ref.h"

enum { PAGE = 256 }; /* tokens by which they grow */

int ref_state_new(lily_dev *d, const lily_weights *w, lily_state **out, lily_err *e)
{
    (void)d;
    const uint32_t n = 2 * w->n_attention;
    TRY(lily_state_open(w, sizeof(lily_kv) + n * sizeof(float *), out, e));
    (*out)->kv->n_rows = n;
    return LILY_OK;
}

void ref_state_free(lily_dev *d, lily_state *s)
{
    (void)d;
    if (!s) return;
    for (uint32_t i = 0; i < s->kv->n_rows; i++) lily_free(s->kv->rows[i]);
    lily_state_close(s);
}

int ref_state_grow(lily_dev *d, lily_state *s, uint32_t context, lily_err *e)
{
    (void)d;
    if (context <= s->capacity) return LILY_OK;
    size_t width = lily_kv_width(s->weights->model->config);
    uint64_t capacity = ((uint64_t)context + PAGE - 1) / PAGE * PAGE;
    for (uint32_t i = 0; i < s->kv->n_rows; i++) {
        float *grown = lily_realloc(s->kv->rows[i], capacity * width, sizeof *grown);
        if (!grown) return lily_no_memory(e, capacity * width * sizeof *grown, "keys and values");
        s->kv->rows[i] = grown;
    }
    s->capacity = capacity;
    return LILY_OK;
}

int ref_state_copy(lily_dev *d, lily_state *dst, const lily_state *src, uint32_t position, lily_err *e)
{
    const float *block;
    TRY(lily_state_at(src, position, &block, e)); /* before dst is made to grow for it */
    if (dst != src) TRY(ref_state_grow(d, dst, position, e));
    TRY(lily_state_copy(dst, src, position, e));
    size_t floats = (size_t)position * lily_kv_width(src->weights->model->config);
    for (uint32_t i = 0; dst != src && floats && i < src->kv->n_rows; i++)
        memcpy(dst->kv->rows[i], src->kv->rows[i], floats * sizeof(float));
    return LILY_OK;
}

/* ---- to and from the disk: a position after the other, each [layers][keys, values][Hk * D] ---- */

void ref_state_layout(const lily_dev *d, char *text, size_t room)
{
    (void)d;
    snprintf(text, room, "ref f32");
}

int ref_rows_save(lily_dev *d, const lily_state *s, uint32_t from, uint32_t n, void *out, lily_err *e)
{
    (void)d;
    const size_t width = lily_kv_width(s->weights->model->config);
    float *to = out;
    TRY(lily_rows_saved(s, from, n, e));
    for (size_t p = from; p < (size_t)from + n; p++)
        for (uint32_t i = 0; i < s->kv->n_rows; i++, to += width)
            memcpy(to, s->kv->rows[i] + p * width, width * sizeof *to);
    return LILY_OK;
}

int ref_rows_load(lily_dev *d, lily_state *s, uint32_t from, uint32_t n, const void *in, lily_err *e)
{
    (void)d;
    const size_t width = lily_kv_width(s->weights->model->config);
    const float *at = in;
    TRY(lily_rows_loaded(s, from, n, e));
    for (size_t p = from; p < (size_t)from + n; p++)
        for (uint32_t i = 0; i < s->kv->n_rows; i++, at += width)
            memcpy(s->kv->rows[i] + p * width, at, width * sizeof *at);
    return LILY_OK;
}

/* ---- sizes, and a look inside ---- */

uint64_t ref_state_bytes(const lily_state *s)
{
    return lily_state_bytes(s) +
           s->kv->n_rows * s->capacity * lily_kv_width(s->weights->model->config) * sizeof(float);
}

void ref_state_cost(const lily_config *c, uint64_t *fixed, uint64_t *snapshot, uint64_t *per_token)
{
    lily_state_cost(c, sizeof(float), fixed, snapshot, per_token);
}

int ref_peek_state(lily_dev *d, const lily_state *s, unsigned slot, uint16_t layer, float *dst, size_t room,
                   size_t *n, lily_err *e)
{
    (void)d;
    TRY(lily_state_peek(s, slot, layer, dst, room, n, e));
    if (slot != SLOT_KV || *n == 0) return LILY_OK;
    float *const *rows = s->kv->rows + 2 * s->weights->nth[layer];
    memcpy(dst, rows[0], *n / 2 * sizeof *dst);
    memcpy(dst + *n / 2, rows[1], *n / 2 * sizeof *dst);
    return LILY_OK;
}
