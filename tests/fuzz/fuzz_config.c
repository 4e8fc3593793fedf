/* Any JSON as config.json, and the same as generation_config.json: refused, or all numbers within bounds. */
#include <stdlib.h>

#include "model/config_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const lily_model_config *m)
{
    const lily_config *c = lily_config_numbers(m);
    if (c->layers > LILY_MAX_LAYERS || c->n_eos > LILY_MAX_EOS || c->top_k > c->experts) abort();
    if (c->q_heads % c->kv_heads || c->lin_v_heads % c->lin_k_heads || c->rotary > c->head_dim) abort();
    for (uint32_t i = 0; i < c->n_eos; i++)
        if (c->eos[i] < 0 || (uint32_t)c->eos[i] >= c->vocab) abort();
    lily_quant q = lily_config_quant(m, "layers.0.mlp.gate");
    if (q.bits != 0 && q.bits != 4 && q.bits != 8) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *v = NULL;
    lily_model_config *m = NULL;
    lily_err e;
    if (lily_json_parse(&v, (const char *)data, size, "config.json", &e) != LILY_OK) return 0;
    if (json_is_object(v) && lily_config_parse(&m, v, v, &e) == LILY_OK) check(m);
    lily_config_close(m);
    json_decref(v);
    return 0;
}
