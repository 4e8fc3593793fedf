/* bench.c - lily bench: speed at given context lengths (schema of the JSON lines: docs/results-schema.md). */
#include "run/bench.h"

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/result_line.h"

typedef struct report {
    const lily_engine *g;
    const lily_engine_options *o;
    bool json;
} report;

static void print_json(const report *r, const lily_bench_result *b)
{
    lily_result_line_begin(r->g, r->o);
    printf(", \"plan\": \"%016llx\", \"phase\": \"%s\", \"context\": %u, \"tok_s\": %.6g, \"samples\": [",
           (unsigned long long)lily_engine_plan_hash(r->g, b->phase[0] == 'd' ? LILY_DECODE : LILY_PREFILL), b->phase,
           b->context, b->tok_s);
    for (uint32_t i = 0; i < b->n_samples; i++) printf("%s%.6g", i ? ", " : "", b->samples[i]);
    printf("]");
    if (b->read_rate > 0)
        printf(", \"token_bytes\": %.0f, \"read_gb_s\": %.4g, \"read_share\": %.4g", b->token_bytes, b->read_rate / 1e9,
               b->read_share);
    printf("}\n");
    fflush(stdout);
}

static void on_result(void *user, const lily_bench_result *b)
{
    const report *r = user;
    if (r->json) {
        print_json(r, b);
        return;
    }
    double low = b->samples[0], high = b->samples[0];
    for (uint32_t i = 1; i < b->n_samples; i++) {
        if (b->samples[i] < low) low = b->samples[i];
        if (b->samples[i] > high) high = b->samples[i];
    }
    printf("%-8s %8u tokens  %10.2f tok/s  (%.2f to %.2f in %u samples)", b->phase, b->context, b->tok_s, low, high,
           b->n_samples);
    if (b->read_rate > 0)
        printf(", %.0f %% of plain reads at %.1f GB/s", b->read_share * 100, b->read_rate / 1e9);
    putchar('\n');
    fflush(stdout);
}

static int bench_options(const lily_args *a, lily_bench_options *b, uint32_t **lengths, lily_err *e)
{
    static const uint32_t usual[] = {256, 1024};
    uint64_t decode, samples;
    TRY(lily_arg_uint(a, OPT_DECODE, 1, 1 << 20, 32, &decode, e));
    TRY(lily_arg_uint(a, OPT_SAMPLES, 1, 1000, 3, &samples, e));
    *b = (lily_bench_options){usual, 2, (uint32_t)decode, (uint32_t)samples};
    if (lily_arg_given(a, OPT_LENGTHS)) {
        TRY(lily_arg_list(a, OPT_LENGTHS, lengths, &b->n_lengths, e));
        b->lengths = *lengths;
    }
    return LILY_OK;
}

int lily_cmd_bench(const lily_args *a, lily_err *e)
{
    lily_engine_options o;
    lily_bench_options b;
    lily_engine *g = NULL;
    uint32_t *lengths = NULL;
    char *dir = NULL;
    int rc;
    TRY_TO(done, bench_options(a, &b, &lengths, e));
    TRY_TO(done, lily_engine_options_from(a, &o, &dir, e));
    o.cache_bytes = LILY_NO_CACHE;
    TRY_TO(done, lily_engine_open(&g, &o, e));
    report r = {g, &o, lily_arg_given(a, OPT_JSON)};
    if (!r.json) printf("%s\n", lily_engine_device_text(g));
    TRY_TO(done, lily_engine_bench(g, &b, on_result, &r, e));
done:
    lily_engine_close(g);
    lily_free(lengths);
    lily_free(dir);
    return rc;
}
