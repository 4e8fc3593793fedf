/* bench.c - the engine's own path with random tokens, timed. */
#include "run/bench.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "run/engine_inside.h"

typedef struct bencher {
    lily_engine *g;
    const lily_bench_options *o;
    void (*result)(void *user, const lily_bench_result *r);
    void *user;
    lily_session *session;
    int32_t *tokens;            /* [longest + decode_tokens] */
    double *prefill, *decode;   /* [lengths][samples] tok/s */
    double *rate;               /* [lengths][samples] bytes a second of plain reads around the decode sample */
    double *sorted;             /* [samples], for medians */
    int rc;
    lily_err *e;
} bencher;

/* A prompt is read when the first token of the reply is there. */
static int prefill(bencher *b, uint32_t n)
{
    lily_session *s = b->session;
    lily_reading p = {.tokens = b->tokens, .n = n - 1, .fresh = true};
    TRY(lily_session_begin(s, &p, b->e));
    while (p.n_read < p.n) TRY(lily_session_read(s, &p, UINT32_MAX, NULL, b->e));
    return LILY_OK;
}

/* Tokens from `at` on, one by one, each with a choice after it as in a reply. */
static int decode(bencher *b, uint32_t at, uint32_t n)
{
    const lily_pick greedy = {.top_p = 1, .repetition = 1, .n_vocab = (int32_t)b->g->m.config->vocab};
    for (uint32_t i = at; i < at + n; i++) {
        lily_done done;
        lily_feed f = {.tokens = b->tokens + i, .n = 1, .pick = &greedy, .count = i > at};
        TRY(lily_session_feed(b->session, &f, &done, b->e));
    }
    return LILY_OK;
}

static double read_rate(const bencher *b)
{
    const lily_loaded *m = &b->g->m;
    return m->ops->read_rate ? m->ops->read_rate(m->dev, m->weights) : 0;
}

static int sample(bencher *b, uint32_t length, double *read, double *reply, double *rate)
{
    uint64_t start = lily_now_ns();
    TRY(prefill(b, length));
    TRY(decode(b, length - 1, 1));
    *read = length / lily_seconds_since(start);
    double before = read_rate(b);
    start = lily_now_ns();
    TRY(decode(b, length, b->o->decode_tokens));
    *reply = b->o->decode_tokens / lily_seconds_since(start);
    *rate = (before + read_rate(b)) / 2;
    return LILY_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(bencher *b, const double *values)
{
    uint32_t n = b->o->samples;
    for (uint32_t i = 0; i < n; i++) b->sorted[i] = values[i];
    qsort(b->sorted, n, sizeof *b->sorted, by_value);
    return (b->sorted[(n - 1) / 2] + b->sorted[n / 2]) / 2;
}

/* What one token moves in the middle of a sample: weights and keys and values are read, states read and written. */
static double token_bytes(const bencher *b, uint32_t length)
{
    const lily_loaded *m = &b->g->m;
    uint64_t fixed, snapshot, per_token;
    m->ops->state_cost(m->config, &fixed, &snapshot, &per_token);
    return (double)m->model->token_bytes + 2.0 * (double)snapshot +
           (double)per_token * (length + b->o->decode_tokens / 2.0);
}

static void report_prefill(bencher *b, uint32_t l)
{
    const double *samples = b->prefill + (size_t)l * b->o->samples;
    lily_bench_result r = {.phase = "prefill",
                           .context = b->o->lengths[l],
                           .n_samples = b->o->samples,
                           .tok_s = median(b, samples),
                           .samples = samples};
    b->result(b->user, &r);
}

static void report_decode(bencher *b, uint32_t l)
{
    const double *samples = b->decode + (size_t)l * b->o->samples;
    double *rate = b->rate + (size_t)l * b->o->samples;
    lily_bench_result r = {.phase = "decode",
                           .context = b->o->lengths[l],
                           .n_samples = b->o->samples,
                           .tok_s = median(b, samples),
                           .samples = samples};
    if (rate[0] > 0) {
        r.token_bytes = token_bytes(b, r.context);
        r.read_rate = median(b, rate);
        for (uint32_t i = 0; i < b->o->samples; i++) rate[i] = samples[i] * r.token_bytes / rate[i];
        r.read_share = median(b, rate);
    }
    b->result(b->user, &r);
}

/* One unmeasured sample brings weights into memory and clocks up to speed. */
static int rounds(bencher *b)
{
    const lily_bench_options *o = b->o;
    double unused[3];
    TRY(sample(b, o->lengths[0], &unused[0], &unused[1], &unused[2]));
    for (uint32_t i = 0; i < o->samples; i++) {
        for (uint32_t l = 0; l < o->n_lengths; l++) {
            size_t at = (size_t)l * o->samples + i;
            TRY(sample(b, o->lengths[l], &b->prefill[at], &b->decode[at], &b->rate[at]));
            if (i + 1 < o->samples) continue;
            report_prefill(b, l);
            report_decode(b, l);
        }
    }
    return LILY_OK;
}

static void run(void *user)
{
    bencher *b = user;
    lily_pool_clear(b->g->pool);    /* the plan has room for one more conversation only if nothing is kept */
    b->rc = lily_session_new(&b->session, &b->g->m, b->e);
    if (b->rc == LILY_OK) b->rc = rounds(b);
    lily_session_free(b->session);
}

/* *longest starts at 0. */
static int check(const bencher *b, uint32_t *longest)
{
    const lily_bench_options *o = b->o;
    if (b->g->script) return lily_fail(b->e, LILY_UNSUPPORTED, "a scripted engine has no speed");
    if (o->n_lengths == 0 || o->samples == 0 || o->decode_tokens == 0)
        return lily_fail(b->e, LILY_ARGUMENT, "a benchmark needs a length, a sample and a token at least");
    for (uint32_t i = 0; i < o->n_lengths; i++) {
        if (o->lengths[i] == 0) return lily_fail(b->e, LILY_ARGUMENT, "a context of 0 tokens cannot be measured");
        if (o->lengths[i] > *longest) *longest = o->lengths[i];
    }
    if ((uint64_t)*longest + o->decode_tokens > b->g->m.context)
        return lily_fail(b->e, LILY_CONTEXT, "%u tokens and %u more do not fit into a context of %u", *longest,
                         o->decode_tokens, b->g->m.context);
    return LILY_OK;
}

int lily_engine_bench(lily_engine *g, const lily_bench_options *o,
                      void (*result)(void *user, const lily_bench_result *r), void *user, lily_err *e)
{
    bencher b = {.g = g, .o = o, .result = result, .user = user, .e = e};
    uint32_t longest = 0, vocab = g->m.config->vocab;
    TRY(check(&b, &longest));
    size_t n = (size_t)longest + o->decode_tokens, n_samples = (size_t)o->n_lengths * o->samples;
    b.tokens = lily_calloc(n, sizeof *b.tokens);
    b.prefill = lily_calloc(n_samples, sizeof *b.prefill);
    b.decode = lily_calloc(n_samples, sizeof *b.decode);
    b.rate = lily_calloc(n_samples, sizeof *b.rate);
    b.sorted = lily_calloc(o->samples, sizeof *b.sorted);
    if (b.tokens && b.prefill && b.decode && b.rate && b.sorted) {
        for (size_t i = 0; i < n; i++) b.tokens[i] = (int32_t)(lily_uniform(0, i) * vocab);
        lily_queue_call(g->queue, run, &b);
    } else {
        b.rc = lily_no_memory(e, n * sizeof *b.tokens, "a benchmark");
    }
    lily_free(b.sorted);
    lily_free(b.rate);
    lily_free(b.decode);
    lily_free(b.prefill);
    lily_free(b.tokens);
    return b.rc;
}
