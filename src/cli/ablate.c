/* ablate.c - lily ablate: what each switch is worth on this machine (schema of the JSON lines:
 * docs/results-schema.md). */
#include "run/ablate.h"

#include "cli/measuring.h"
#include "cli/result_line.h"
#include "plan/plan.h"

static void print_json(const lily_measuring *w, const lily_ablate_result *a)
{
    lily_result_line_begin(w->g, &w->o);
    printf(", \"switch\": \"%s\"", lily_ablation_name(a->which));
    if (a->refused) {
        printf(", \"refused\": \"%s\"}\n", a->refused);
        return;
    }
    printf(", \"phase\": \"%s\", \"context\": %u, \"tokens\": %u, \"with_tok_s\": %.6g, \"without_tok_s\": %.6g, "
           "\"effect\": %.5g, \"interval\": [%.5g, %.5g]",
           a->phase, a->context, a->tokens, a->with_tok_s, a->without_tok_s, a->effect, a->low, a->high);
    lily_print_list("with", a->with, a->n_pairs);
    lily_print_list("without_it", a->without, a->n_pairs);
    printf("}\n");
}

static void print_line(const lily_ablate_result *a)
{
    if (a->refused)
        printf("%-16s not measured: %s\n", lily_ablation_name(a->which), a->refused);
    else
        printf("%-16s %-7s %7u tokens  %+7.2f %% (%+.2f to %+.2f)  %.2f with, %.2f tok/s without, %u pairs\n",
               lily_ablation_name(a->which), a->phase, a->context, 100 * a->effect, 100 * a->low, 100 * a->high,
               a->with_tok_s, a->without_tok_s, a->n_pairs);
}

static void on_result(void *user, const lily_ablate_result *a)
{
    const lily_measuring *w = user;
    if (w->json)
        print_json(w, a);
    else
        print_line(a);
    fflush(stdout);
}

int lily_cmd_ablate(const lily_args *a, lily_err *e)
{
    static const uint32_t usual[] = {512};
    lily_measuring w = {0};
    lily_ablate_options o = {.switches = lily_bit(N_ABLATIONS) - 1};
    int rc;
    if (lily_arg_given(a, OPT_SWITCHES)) {
        o.switches = 0;
        TRY(lily_ablation_parse(a->value[OPT_SWITCHES], &o.switches, e));
    }
    TRY(lily_arg_real(a, OPT_SECONDS, 0, 1e6, 0, &o.seconds, e));
    TRY_TO(done, lily_measuring_open(&w, a, (lily_timing){usual, 1, 32, 6}, e));
    o.timing = w.timing;
    TRY_TO(done, lily_engine_ablate(w.g, &o, on_result, &w, e));
done:
    lily_measuring_close(&w);
    return rc;
}
