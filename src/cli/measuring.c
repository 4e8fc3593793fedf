/* measuring.c - see measuring.h. */
#include "cli/measuring.h"

#include <stdio.h>

#include "base/mem.h"

static int read_options(lily_measuring *w, const lily_args *a, lily_err *e)
{
    uint64_t decode, samples;
    TRY(lily_arg_uint(a, OPT_DECODE, 1, 1 << 20, w->timing.decode_tokens, &decode, e));
    TRY(lily_arg_uint(a, OPT_SAMPLES, 1, 1000, w->timing.samples, &samples, e));
    w->timing.decode_tokens = (uint32_t)decode;
    w->timing.samples = (uint32_t)samples;
    w->json = lily_arg_given(a, OPT_JSON);
    if (!lily_arg_given(a, OPT_LENGTHS)) return LILY_OK;
    TRY(lily_arg_list(a, OPT_LENGTHS, &w->lengths, &w->timing.n_lengths, e));
    w->timing.lengths = w->lengths;
    return LILY_OK;
}

int lily_measuring_open(lily_measuring *w, const lily_args *a, lily_timing timing, lily_err *e)
{
    *w = (lily_measuring){.timing = timing};
    TRY(read_options(w, a, e));
    TRY(lily_engine_options_from(a, &w->o, &w->dir, e));
    w->o.cache_bytes = LILY_NO_CACHE;
    TRY(lily_engine_open(&w->g, &w->o, e));
    if (!w->json) printf("%s\n", lily_engine_device_text(w->g));
    return LILY_OK;
}

void lily_measuring_close(lily_measuring *w)
{
    lily_engine_close(w->g);
    lily_free(w->lengths);
    lily_free(w->dir);
}

void lily_print_list(const char *name, const double *values, uint32_t n)
{
    printf(", \"%s\": [", name);
    for (uint32_t i = 0; i < n; i++) printf("%s%.6g", i ? ", " : "", values[i]);
    printf("]");
}
