/* generation.c - generation_config.json: end-of-turn ids and sampling defaults. */
#include "model/config_file.h"

#include <math.h>

static int add_one(lily_config *c, const json_t *v, const char *file, lily_err *e)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= c->vocab)
        return lily_fail(e, LILY_FORMAT, "%s: \"eos_token_id\" holds a value that is no id below %u", file,
                         c->vocab);
    int32_t id = (int32_t)json_integer_value(v);
    for (uint32_t i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id) return LILY_OK;
    if (c->n_eos == LILY_MAX_EOS)
        return lily_fail(e, LILY_UNSUPPORTED, "%s: \"eos_token_id\": more than %d ids", file, LILY_MAX_EOS);
    c->eos[c->n_eos++] = id;
    return LILY_OK;
}

int lily_eos_add(lily_config *c, const json_t *obj, const char *file, lily_err *e)
{
    const json_t *v = lily_config_get(obj, "eos_token_id");
    if (!v) return LILY_OK;
    if (!json_is_array(v)) return add_one(c, v, file, e);
    for (size_t i = 0; i < json_array_size(v); i++) TRY(add_one(c, json_array_get(v, i), file, e));
    return LILY_OK;
}

/* Leaves *out alone when the key is absent. */
static int read_float(float *out, const lily_config_file *f, const char *key, double low, double high,
                      lily_err *e)
{
    const json_t *v = lily_config_get(f->top, key);
    if (!v) return LILY_OK;
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (!(x >= low && x <= high))
        return lily_fail(e, LILY_FORMAT, "%s: \"%s\" is not a number from %g to %g", f->name, key, low, high);
    *out = (float)x;
    return LILY_OK;
}

int lily_generation_read(lily_config *c, lily_sampling_defaults *s, const lily_config_file *f, lily_err *e)
{
    *s = (lily_sampling_defaults){.temperature = 1, .top_p = 1, .repetition = 1};
    TRY(lily_eos_add(c, f->top, f->name, e));
    TRY(read_float(&s->temperature, f, "temperature", 0, 100, e));
    TRY(read_float(&s->top_p, f, "top_p", 0, 1, e));
    TRY(read_float(&s->min_p, f, "min_p", 0, 1, e));
    TRY(read_float(&s->presence, f, "presence_penalty", -2, 2, e));
    TRY(read_float(&s->frequency, f, "frequency_penalty", -2, 2, e));
    TRY(read_float(&s->repetition, f, "repetition_penalty", 0.01, 100, e));
    int64_t k = 0;
    if (lily_config_get(f->top, "top_k"))
        TRY(lily_json_uint(f->top, "top_k", 0, INT32_MAX, -1, &k, f->name, e));
    s->top_k = (int32_t)k;
    if (json_is_false(lily_config_get(f->top, "do_sample"))) s->temperature = 0; /* greedy */
    return LILY_OK;
}
