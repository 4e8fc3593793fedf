#include "device/host/weights.h"

#include <math.h>

#include "base/mem.h"

void lily_weights_unload(lily_dev *d, lily_weights *w)
{
    (void)d;
    if (!w) return;
    lily_free(w->nth);
    lily_free(w->frequency);
    lily_free(w);
}

int lily_weights_load(lily_dev *d, const lily_model *model, lily_weights **out, lily_err *e)
{
    const lily_config *c = model->config;
    lily_weights *w = lily_calloc(1, sizeof *w);
    *out = NULL;
    if (!w) return lily_no_memory(e, sizeof *w, "weights");
    w->model = model;
    w->nth = lily_calloc(c->layers, sizeof *w->nth);
    w->frequency = lily_calloc(c->rotary / 2, sizeof *w->frequency);
    if (!w->nth || !w->frequency) {
        lily_weights_unload(d, w);
        return lily_no_memory(e, lily_weights_load_bytes(model), "weights");
    }
    for (uint32_t i = 0; i < c->layers; i++)
        w->nth[i] = (uint16_t)(c->full_attention[i] ? w->n_attention++ : w->n_delta++);
    for (uint32_t i = 0; i < c->rotary / 2; i++) w->frequency[i] = pow(c->rope_theta, -2.0 * i / c->rotary);
    *out = w;
    return LILY_OK;
}

uint64_t lily_weights_load_bytes(const lily_model *m)
{
    const lily_config *c = m->config;
    return sizeof(lily_weights) + c->layers * sizeof(uint16_t) + c->rotary / 2 * sizeof(double);
}
