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
    int32_t *tokens;            /* [longest + more] */
    uint32_t more;              /* tokens of a sample beyond its length */
    double *prefill, *decode;   /* [lengths][samples] tok/s */
    double *verify;             /* [rows][lengths][samples] tok/s */
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

static double *verified(const bencher *b, uint32_t row, uint32_t l)
{
    const lily_timing *t = &b->o->timing;
    return b->verify + ((size_t)row * t->n_lengths + l) * t->samples;
}

static uint32_t runs_of(const bencher *b, uint32_t rows)
{
    uint32_t runs = b->o->timing.decode_tokens / rows;
    return runs ? runs : 1;
}

static int sample_verify(bencher *b, uint32_t l, uint32_t i)
{
    const lily_loaded *m = &b->g->m;
    for (uint32_t r = 0; r < b->o->n_rows; r++)
        TRY(lily_speed_verify(b->session, m, b->tokens + b->o->timing.lengths[l], b->o->rows[r], runs_of(b, b->o->rows[r]),
                              &verified(b, r, l)[i], b->e));
    return LILY_OK;
}

static int sample(bencher *b, uint32_t length, double *read, double *reply, double *rate)
{
    const lily_loaded *m = &b->g->m;
    int32_t token;
    TRY(lily_speed_prefill(b->session, m, b->tokens, length, &token, read, b->e));
    double before = read_rate(b);
    TRY(lily_speed_decode(b->session, m, &token, b->o->timing.decode_tokens, reply, b->e));
    *rate = (before + read_rate(b)) / 2;
    return LILY_OK;
}

/* Allocations are kept, so what is taken now is the most so far. */
static uint64_t device_bytes(const bencher *b)
{
    const lily_loaded *m = &b->g->m;
    char text[128];
    uint64_t total, room;
    if (!m->ops->own_memory) return 0;
    m->ops->describe(m->dev, text, sizeof text, &total, &room);
    return m->device_free > room ? m->device_free - room : 0;
}

static double median(bencher *b, const double *values)
{
    memcpy(b->sorted, values, b->o->timing.samples * sizeof *values);
    return lily_median(b->sorted, b->o->timing.samples);
}

/* What one token moves in the middle of a sample: weights and keys and values are read, states read and written. */
static double token_bytes(const bencher *b, uint32_t length)
{
    const lily_loaded *m = &b->g->m;
    uint64_t fixed, snapshot, per_token;
    m->ops->state_cost(m->config, &fixed, &snapshot, &per_token);
    return (double)m->model->token_bytes + 2.0 * (double)snapshot +
           (double)per_token * (length + b->o->timing.decode_tokens / 2.0);
}

static void report_prefill(bencher *b, uint32_t l)
{
    const double *samples = b->prefill + (size_t)l * b->o->timing.samples;
    lily_bench_result r = {.phase = "prefill",
                           .context = b->o->timing.lengths[l],
                           .n_samples = b->o->timing.samples,
                           .tok_s = median(b, samples),
                           .samples = samples,
                           .device_bytes = device_bytes(b)};
    b->result(b->user, &r);
}

static void report_decode(bencher *b, uint32_t l)
{
    const double *samples = b->decode + (size_t)l * b->o->timing.samples;
    double *rate = b->rate + (size_t)l * b->o->timing.samples;
    lily_bench_result r = {.phase = "decode",
                           .context = b->o->timing.lengths[l],
                           .n_samples = b->o->timing.samples,
                           .tok_s = median(b, samples),
                           .samples = samples,
                           .device_bytes = device_bytes(b)};
    if (rate[0] > 0) {
        r.token_bytes = token_bytes(b, r.context);
        r.read_rate = median(b, rate);
        for (uint32_t i = 0; i < b->o->timing.samples; i++) rate[i] = samples[i] * r.token_bytes / rate[i];
        r.read_share = median(b, rate);
    }
    b->result(b->user, &r);
}

static void report_verify(bencher *b, uint32_t l)
{
    for (uint32_t r = 0; r < b->o->n_rows; r++) {
        const double *samples = verified(b, r, l);
        lily_bench_result v = {.phase = "verify",
                               .context = b->o->timing.lengths[l],
                               .rows = b->o->rows[r],
                               .n_samples = b->o->timing.samples,
                               .tok_s = median(b, samples),
                               .samples = samples};
        b->result(b->user, &v);
    }
}

/* One unmeasured sample brings weights into memory and clocks up to speed. */
static int rounds(bencher *b)
{
    const lily_timing *t = &b->o->timing;
    double unused[3];
    TRY(sample(b, t->lengths[0], &unused[0], &unused[1], &unused[2]));
    for (uint32_t i = 0; i < t->samples; i++) {
        for (uint32_t l = 0; l < t->n_lengths; l++) {
            size_t at = (size_t)l * t->samples + i;
            TRY(sample(b, t->lengths[l], &b->prefill[at], &b->decode[at], &b->rate[at]));
            TRY(sample_verify(b, l, i));
            if (i + 1 < t->samples) continue;
            report_prefill(b, l);
            report_decode(b, l);
            report_verify(b, l);
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

/* Verifying reads on behind what was decoded. */
static int count_more(bencher *b, lily_err *e)
{
    uint64_t more = b->o->timing.decode_tokens;
    for (uint32_t r = 0; r < b->o->n_rows; r++) {
        uint32_t rows = b->o->rows[r];
        if (rows == 0 || rows > b->g->m.chunk)
            return lily_fail(e, LILY_ARGUMENT, "runs of %u tokens: there are those of 1 to %u", rows, b->g->m.chunk);
        more += (uint64_t)rows * (runs_of(b, rows) + 2);
    }
    b->more = more < UINT32_MAX ? (uint32_t)more : UINT32_MAX;
    return LILY_OK;
}

int lily_engine_bench(lily_engine *g, const lily_bench_options *o,
                      void (*result)(void *user, const lily_bench_result *r), void *user, lily_err *e)
{
    bencher b = {.g = g, .o = o, .result = result, .user = user, .e = e};
    const lily_timing *t = &o->timing;
    uint32_t longest;
    if (g->script) return lily_fail(e, LILY_UNSUPPORTED, "a scripted engine has no speed");
    TRY(count_more(&b, e));
    TRY(lily_speed_check(&g->m, t, b.more, &longest, e));
    size_t n = (size_t)longest + b.more, n_samples = (size_t)t->n_lengths * t->samples;
    b.tokens = lily_speed_tokens(&g->m, n);
    b.prefill = lily_calloc(n_samples, sizeof *b.prefill);
    b.decode = lily_calloc(n_samples, sizeof *b.decode);
    b.rate = lily_calloc(n_samples, sizeof *b.rate);
    b.verify = lily_calloc(n_samples * o->n_rows, sizeof *b.verify);
    b.sorted = lily_calloc(t->samples, sizeof *b.sorted);
    if (b.tokens && b.prefill && b.decode && b.rate && (b.verify || !o->n_rows) && b.sorted)
        lily_queue_call(g->queue, run, &b);
    else
        b.rc = lily_no_memory(e, n * sizeof *b.tokens, "a benchmark");
    lily_free(b.sorted);
    lily_free(b.verify);
    lily_free(b.rate);
    lily_free(b.decode);
    lily_free(b.prefill);
    lily_free(b.tokens);
    return b.rc;
}
