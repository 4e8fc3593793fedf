#include "rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the model ---- */

const char *rig_dir(const char *name)
{
    if (strcmp(name, "demo") == 0) return LILY_SOURCE_DIR "/models/demo";
    return strcmp(name, "tiny") == 0 ? LILY_BINARY_DIR "/tests/ck/tiny" : LILY_BINARY_DIR "/tests/ck/odd";
}

void rig_model_open(rig_model *m, const char *dir)
{
    lily_err e = {0};
    check_ok(lily_ckpt_open(&m->ckpt, dir, &e), &e);
    check_ok(lily_config_open(&m->config, dir, &e), &e);
    check_ok(lily_model_open(&m->model, m->ckpt, m->config, &e), &e);
}

void rig_model_close(rig_model *m)
{
    lily_model_close(m->model);
    lily_config_close(m->config);
    lily_ckpt_close(m->ckpt);
}

/* ---- the device ---- */

static void make_exec(rig *r, enum lily_mode mode, uint32_t max_tokens, uint64_t keep, lily_plan **plan,
                      lily_exec **x)
{
    lily_err e = {0};
    const lily_plan_device d = lily_device_for_plan(r->ops, r->dev);
    const lily_plan_ask ask = {mode, max_tokens, UINT32_MAX, 0, keep};
    check_ok(lily_plan_make(plan, &d, r->c, &ask, &e), &e);
    check_ok(r->ops->prepare(r->dev, r->weights, *plan, x, &e), &e);
}

void rig_open(rig *r, const lily_model *m, const char *device, uint32_t max_tokens, uint64_t keep)
{
    lily_err e = {0};
    *r = (rig){.model = m, .c = m->config};
    check_ok(lily_device_open(&r->ops, &r->dev, device, &(lily_dev_options){0}, &e), &e);
    check_ok(r->ops->load(r->dev, m, &r->weights, &e), &e);
    make_exec(r, LILY_PREFILL, max_tokens, keep, &r->prefill_plan, &r->prefill);
    make_exec(r, LILY_DECODE, 1, keep, &r->decode_plan, &r->decode);
}

void rig_close(rig *r)
{
    r->ops->release(r->dev, r->prefill);
    r->ops->release(r->dev, r->decode);
    lily_plan_free(r->prefill_plan);
    lily_plan_free(r->decode_plan);
    r->ops->unload(r->dev, r->weights);
    r->ops->close(r->dev);
}

lily_state *rig_state(const rig *r)
{
    lily_err e = {0};
    lily_state *s;
    check_ok(r->ops->state_new(r->dev, r->weights, &s, &e), &e);
    check_ok(r->ops->state_grow(r->dev, s, RIG_CONTEXT, &e), &e);
    return s;
}

const lily_pick rig_greedy_pick = {.top_p = 1, .repetition = 1};

lily_done rig_run(const rig *r, lily_exec *x, enum lily_segment last, const lily_lane *lane)
{
    lily_err e = {0};
    uint64_t ticket;
    lily_done done;
    check_ok(r->ops->submit(r->dev, x, LILY_FORWARD, last, lane, 1, &ticket, &e), &e);
    check_ok(r->ops->wait(r->dev, ticket, &done, 1, &e), &e);
    return done;
}

lily_done rig_feed(const rig *r, lily_state *s, const int32_t *tokens, uint32_t n, uint32_t chunk)
{
    lily_pick pick = rig_greedy_pick;
    lily_done done = {.token = -1};
    pick.n_vocab = (int32_t)r->c->vocab;
    for (uint32_t at = 0; at < n;) {
        uint32_t some = chunk == 0 ? 1 : chunk < n - at ? chunk : n - at;
        bool last = at + some == n;
        lily_lane lane = {.state = s, .tokens = tokens + at, .n_tokens = some, .pick = last ? &pick : NULL};
        done = rig_run(r, chunk ? r->prefill : r->decode, last ? LILY_PICK : LILY_FORWARD, &lane);
        at += some;
    }
    return done;
}

static void take(const rig *r, const lily_state *s, unsigned slot, uint16_t layer, float *all, size_t *n,
                 size_t room)
{
    lily_err e = {0};
    size_t some;
    check_ok(r->ops->peek_state(r->dev, s, slot, layer, all + *n, room - *n, &some, &e), &e);
    *n += some;
}

float *rig_memory(const rig *r, const lily_state *s, size_t *n)
{
    const lily_config *c = r->c;
    size_t room = 0;
    for (uint16_t i = 0; i < c->layers; i++)
        room += c->full_attention[i]
                    ? (size_t)2 * r->ops->state_position(s) * lily_kv_width(c)
                    : (size_t)lily_value_width(c) * c->lin_k_dim + (c->conv_kernel - 1) * lily_conv_width(c);
    float *all = malloc(room * sizeof *all + 1);
    *n = 0;
    for (uint16_t i = 0; i < c->layers; i++) {
        if (c->full_attention[i]) {
            take(r, s, SLOT_KV, i, all, n, room);
            continue;
        }
        take(r, s, SLOT_TAIL, i, all, n, room);
        take(r, s, SLOT_S, i, all, n, room);
    }
    assert_int_equal(*n, room);
    return all;
}

/* ---- the reference's numbers ---- */

void rig_numbers_open(rig_numbers *f, const char *name)
{
    char path[512];
    lily_err e = {0};
    snprintf(path, sizeof path, "%s/tests/fixtures/%s/model.json", LILY_SOURCE_DIR, name);
    check_ok(lily_json_read(&f->doc, path, 1 << 20, &e), &e);
    snprintf(path, sizeof path, "%s/tests/fixtures/%s/model.f32", LILY_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    f->n = (size_t)ftell(file) / sizeof *f->data;
    rewind(file);
    f->data = malloc(f->n * sizeof *f->data);
    assert_int_equal(fread(f->data, sizeof *f->data, f->n, file), f->n);
    fclose(file);
}

void rig_numbers_close(rig_numbers *f)
{
    json_decref(f->doc);
    free(f->data);
}

const float *rig_array(const rig_numbers *f, const char *name, size_t *n)
{
    const json_t *array = json_object_get(json_object_get(f->doc, "arrays"), name),
                 *shape = json_object_get(array, "shape");
    if (!array) fail_msg("the fixture has no %s", name);
    size_t at = (size_t)json_integer_value(json_object_get(array, "offset"));
    *n = 1;
    for (size_t i = 0; i < json_array_size(shape); i++)
        *n *= (size_t)json_integer_value(json_array_get(shape, i));
    assert_true(at + *n <= f->n);
    return f->data + at;
}

size_t rig_ints(const json_t *list, int32_t *out, size_t room)
{
    size_t n = json_array_size(list);
    assert_true(n > 0 && n <= room);
    for (size_t i = 0; i < n; i++) out[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return n;
}

double rig_difference(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        if (!(d <= most)) most = isnan(d) ? INFINITY : d;
    }
    return most;
}
