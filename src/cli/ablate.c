/* ablate.c - lily ablate: what each switch is worth on this machine (schema of the JSON lines:
 * docs/results-schema.md). */
#include "run/ablate.h"

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/result_line.h"
#include "plan/plan.h"

typedef struct report {
    const lily_engine *g;
    const lily_engine_options *o;
    bool json;
} report;

static void print_list(const char *name, const double *values, uint32_t n)
{
    printf(", \"%s\": [", name);
    for (uint32_t i = 0; i < n; i++) printf("%s%.6g", i ? ", " : "", values[i]);
    printf("]");
}

static void print_json(const report *r, const lily_ablate_result *a)
{
    lily_result_line_begin(r->g, r->o);
    printf(", \"switch\": \"%s\"", lily_ablation_name(a->which));
    if (a->refused) {
        printf(", \"refused\": \"%s\"}\n", a->refused);
        return;
    }
    printf(", \"phase\": \"%s\", \"context\": %u, \"with_tok_s\": %.6g, \"without_tok_s\": %.6g, \"effect\": %.5g, "
           "\"interval\": [%.5g, %.5g]",
           a->phase, a->context, a->with_tok_s, a->without_tok_s, a->effect, a->low, a->high);
    print_list("with", a->with, a->n_pairs);
    print_list("without_it", a->without, a->n_pairs);
    printf("}\n");
}

static void on_result(void *user, const lily_ablate_result *a)
{
    const report *r = user;
    if (r->json)
        print_json(r, a);
    else if (a->refused)
        printf("%-16s not measured: %s\n", lily_ablation_name(a->which), a->refused);
    else
        printf("%-16s %-7s %7u tokens  %+7.2f %% (%+.2f to %+.2f)  %.2f with, %.2f tok/s without\n",
               lily_ablation_name(a->which), a->phase, a->context, 100 * a->effect, 100 * a->low, 100 * a->high,
               a->with_tok_s, a->without_tok_s);
    fflush(stdout);
}

static int ablate_options(const lily_args *a, lily_ablate_options *o, uint32_t **lengths, lily_err *e)
{
    static const uint32_t usual[] = {512};
    uint64_t decode, pairs;
    TRY(lily_arg_uint(a, OPT_DECODE, 1, 1 << 20, 32, &decode, e));
    TRY(lily_arg_uint(a, OPT_PAIRS, 1, 1000, 6, &pairs, e));
    *o = (lily_ablate_options){lily_bit(N_ABLATIONS) - 1, usual, 1, (uint32_t)decode, (uint32_t)pairs};
    if (lily_arg_given(a, OPT_SWITCHES)) {
        o->switches = 0;
        TRY(lily_ablation_parse(a->value[OPT_SWITCHES], &o->switches, e));
    }
    if (lily_arg_given(a, OPT_LENGTHS)) {
        TRY(lily_arg_list(a, OPT_LENGTHS, lengths, &o->n_lengths, e));
        o->lengths = *lengths;
    }
    return LILY_OK;
}

int lily_cmd_ablate(const lily_args *a, lily_err *e)
{
    lily_engine_options o;
    lily_ablate_options b;
    lily_engine *g = NULL;
    uint32_t *lengths = NULL;
    char *dir = NULL;
    int rc;
    TRY_TO(done, ablate_options(a, &b, &lengths, e));
    TRY_TO(done, lily_engine_options_from(a, &o, &dir, e));
    o.cache_bytes = LILY_NO_CACHE;
    TRY_TO(done, lily_engine_open(&g, &o, e));
    report r = {g, &o, lily_arg_given(a, OPT_JSON)};
    if (!r.json) printf("%s\n", lily_engine_device_text(g));
    TRY_TO(done, lily_engine_ablate(g, &b, on_result, &r, e));
done:
    lily_engine_close(g);
    lily_free(lengths);
    lily_free(dir);
    return rc;
}
