/* bench.c - samples at several lengths, by turns. */
#include "run/bench.h"

#include <string.h>

#include "base/mem.h"
#include "run/engine_inside.h"
#include "run/speed.h"

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

static double read_rate(const bencher *b)
{
    const lily_loaded *m = &b->g->m;
    return m->ops->read_rate ? m->ops->read_rate(m->dev, m->weights) : 0;
}

static int sample(bencher *b, uint32_t length, double *read, double *reply, double *rate)
{
    const lily_loaded *m = &b->g->m;
    int32_t token;
    TRY(lily_speed_prefill(b->session, m, b->tokens, length, &token, read, b->e));
    double before = read_rate(b);
    TRY(lily_speed_decode(b->session, m, &token, b->o->decode_tokens, reply, b->e));
    *rate = (before + read_rate(b)) / 2;
    return LILY_OK;
}

static double median(bencher *b, const double *values)
{
    memcpy(b->sorted, values, b->o->samples * sizeof *values);
    return lily_median(b->sorted, b->o->samples);
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

int lily_engine_bench(lily_engine *g, const lily_bench_options *o,
                      void (*result)(void *user, const lily_bench_result *r), void *user, lily_err *e)
{
    bencher b = {.g = g, .o = o, .result = result, .user = user, .e = e};
    uint32_t longest;
    if (g->script) return lily_fail(e, LILY_UNSUPPORTED, "a scripted engine has no speed");
    TRY(lily_speed_check(&g->m, o->lengths, o->n_lengths, o->samples, o->decode_tokens, &longest, e));
    size_t n = (size_t)longest + o->decode_tokens, n_samples = (size_t)o->n_lengths * o->samples;
    b.tokens = lily_speed_tokens(&g->m, n);
    b.prefill = lily_calloc(n_samples, sizeof *b.prefill);
    b.decode = lily_calloc(n_samples, sizeof *b.decode);
    b.rate = lily_calloc(n_samples, sizeof *b.rate);
    b.sorted = lily_calloc(o->samples, sizeof *b.sorted);
    if (b.tokens && b.prefill && b.decode && b.rate && b.sorted)
        lily_queue_call(g->queue, run, &b);
    else
        b.rc = lily_no_memory(e, n * sizeof *b.tokens, "a benchmark");
    lily_free(b.sorted);
    lily_free(b.rate);
    lily_free(b.decode);
    lily_free(b.prefill);
    lily_free(b.tokens);
    return b.rc;
}
