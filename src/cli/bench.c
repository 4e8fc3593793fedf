/* bench.c - lily bench: speed at given context lengths (schema of the JSON lines: docs/results-schema.md). */
#include "run/bench.h"

#include "base/mem.h"
#include "cli/measuring.h"
#include "cli/result_line.h"

static void print_json(const lily_measuring *w, const lily_bench_result *b)
{
    lily_result_line_begin(w->g, &w->o);
    printf(", \"plan\": \"%016llx\", \"phase\": \"%s\", \"context\": %u",
           (unsigned long long)lily_engine_plan_hash(w->g, b->phase[0] == 'd' ? LILY_DECODE : LILY_PREFILL), b->phase,
           b->context);
    if (b->rows) printf(", \"rows\": %u", b->rows);
    printf(", \"tok_s\": %.6g", b->tok_s);
    lily_print_list("samples", b->samples, b->n_samples);
    if (b->read_rate > 0)
        printf(", \"token_bytes\": %.0f, \"read_gb_s\": %.4g, \"read_share\": %.4g", b->token_bytes, b->read_rate / 1e9,
               b->read_share);
    if (b->device_bytes) printf(", \"device_bytes\": %llu", (unsigned long long)b->device_bytes);
    printf("}\n");
}

static void print_line(const lily_bench_result *b)
{
    double low = b->samples[0], high = b->samples[0];
    for (uint32_t i = 1; i < b->n_samples; i++) {
        if (b->samples[i] < low) low = b->samples[i];
        if (b->samples[i] > high) high = b->samples[i];
    }
    printf("%-8s %8u tokens  %10.2f tok/s  (%.2f to %.2f in %u samples)", b->phase, b->context, b->tok_s, low, high,
           b->n_samples);
    if (b->read_rate > 0)
        printf(", %.0f %% of plain reads at %.1f GB/s", b->read_share * 100, b->read_rate / 1e9);
    if (b->rows) printf(", %u rows a run, %.3f ms each run", b->rows, 1e3 * b->rows / b->tok_s);
    putchar('\n');
}

static void on_result(void *user, const lily_bench_result *b)
{
    const lily_measuring *w = user;
    if (w->json)
        print_json(w, b);
    else
        print_line(b);
    fflush(stdout);
}

int lily_cmd_bench(const lily_args *a, lily_err *e)
{
    static const uint32_t usual[] = {256, 1024};
    lily_measuring w = {0};
    lily_bench_options o = {0};
    uint32_t *rows = NULL;
    int rc = LILY_OK;
    if (lily_arg_given(a, OPT_VERIFY)) TRY(lily_arg_list(a, OPT_VERIFY, &rows, &o.n_rows, e));
    TRY_TO(done, lily_measuring_open(&w, a, (lily_timing){usual, 2, 32, 3}, e));
    o.timing = w.timing;
    o.rows = rows;
    TRY_TO(done, lily_engine_bench(w.g, &o, on_result, &w, e));
done:
    lily_measuring_close(&w);
    lily_free(rows);
    return rc;
}
