#include "gpu.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/random.h"
#include "device/cuda/cuda.h"

const char *const gpu_models[N_MODELS] = {TINY, ODD, DEMO};

const char *gpu_variant;

static int n_failed;

void gpu_or_skip(void)
{
    lily_err e;
    lily_dev *d;
    int rc = lily_dev_cuda.open(&d, &(lily_dev_options){.which = gpu_variant}, &e);
    if (rc == LILY_OK) {
        lily_dev_cuda.close(d);
        return;
    }
    assert_int_equal(rc, LILY_UNSUPPORTED);
    print_message("skipped: %s\n", e.text);
    skip();
}

bool gpu_is_hopper(void)
{
    lily_err e;
    lily_dev *d;
    check_ok(lily_dev_cuda.open(&d, &(lily_dev_options){.which = gpu_variant}, &e), &e);
    const bool hopper = d->hopper;
    lily_dev_cuda.close(d);
    return hopper;
}

void gpu_tokens(const opened *o, int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)(lily_uniform(11, i) * o->config.vocab);
}

float *gpu_run(session *s, lily_lane lane, bool decode, lily_done *done)
{
    lily_err e;
    const size_t n = s->weights ? s->plan[decode]->slot_bytes[SLOT_LOGITS] : 0;
    run_tokens(s, lane, decode, done);
    float *logits = lily_calloc(1, n);
    assert_non_null(logits);
    check_ok(s->ops->peek(s->dev, s->exec[decode], SLOT_LOGITS, logits, n, &e), &e);
    return logits;
}

void gpu_expect(double off, double allowed, const char *fmt, ...)
{
    char what[256];
    va_list list;
    va_start(list, fmt);
    vsnprintf(what, sizeof what, fmt, list);
    va_end(list);
    if (off <= allowed) return;
    n_failed++;
    print_message("%s: %.3g, allowed %.3g\n", what, off, allowed);
}

void gpu_settle(void)
{
    int n = n_failed;
    n_failed = 0;
    if (n) fail_msg("%d differences are too large", n);
}
