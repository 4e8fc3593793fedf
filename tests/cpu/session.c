#include "session.h"

#include <math.h>

void open_model(opened *o, const char *dir, uint32_t first, uint32_t layers)
{
    lily_err e;
    check_ok(lily_ckpt_open(&o->ckpt, dir, &e), &e);
    check_ok(lily_config_open(&o->file, dir, &e), &e);
    check_ok(lily_model_open(&o->all, o->ckpt, o->file, &e), &e);
    o->config = *o->all->config;
    o->model = *o->all;
    o->model.config = &o->config;
    if (layers == 0) return;
    o->config.layers = layers;
    for (uint32_t i = 0; i < layers; i++) o->config.full_attention[i] = o->all->config->full_attention[first + i];
    o->model.layer += first;
}

void close_model(opened *o)
{
    lily_model_close(o->all);
    lily_config_close(o->file);
    lily_ckpt_close(o->ckpt);
}

void open_session(session *s, const opened *o, const lily_dev_ops *ops, const char *which, uint32_t threads,
                  uint64_t without, uint64_t keep)
{
    lily_err e;
    *s = (session){.ops = ops, .without = without, .keep = keep};
    check_ok(ops->open(&s->dev, &(lily_dev_options){.which = which, .threads = threads}, &e), &e);
    check_ok(ops->load(s->dev, &o->model, &s->weights, &e), &e);
    lily_plan_device d = lily_device_for_plan(ops, s->dev);
    for (int i = 0; i < 2; i++) {
        lily_plan_ask ask = {i ? LILY_DECODE : LILY_PREFILL, i ? 1 : PREFILL_TOKENS, CONTEXT, without, keep};
        check_ok(lily_plan_make(&s->plan[i], &d, &o->config, &ask, &e), &e);
        check_ok(ops->prepare(s->dev, s->weights, s->plan[i], &s->exec[i], &e), &e);
    }
    check_ok(ops->state_new(s->dev, s->weights, &s->state, &e), &e);
    check_ok(ops->state_grow(s->dev, s->state, CONTEXT, &e), &e);
}

void close_session(session *s)
{
    s->ops->state_free(s->dev, s->state);
    for (int i = 0; i < 2; i++) {
        s->ops->release(s->dev, s->exec[i]);
        lily_plan_free(s->plan[i]);
    }
    s->ops->unload(s->dev, s->weights);
    s->ops->close(s->dev);
}

const float *run_tokens(session *s, lily_lane lane, bool decode, lily_done *done)
{
    lily_err e;
    uint64_t ticket;
    if (!lane.state) lane.state = s->state;
    check_ok(s->ops->submit(s->dev, s->exec[decode], LILY_FORWARD, LILY_PICK, &lane, 1, &ticket, &e), &e);
    check_ok(s->ops->wait(s->dev, ticket, done, 1, &e), &e);
    return done->logits;
}

uint64_t all_switches(void)
{
    return lily_bit(ABLATE_FUSE_EXPERT_UP) | lily_bit(ABLATE_FUSE_EXPERT_DOWN) | lily_bit(ABLATE_FUSE_QK) |
           lily_bit(ABLATE_FUSE_SCAN_NORM) | lily_bit(ABLATE_FUSE_ATTN_GATE);
}

double difference(const float *a, const float *b, size_t n)
{
    double most = 0, square = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        if (!(d <= most)) most = d;
        square += (double)b[i] * b[i];
    }
    return most == 0 ? 0 : most / sqrt(square / (double)n);
}
