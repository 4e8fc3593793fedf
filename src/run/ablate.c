/* ablate.c - a second set of plans without the switch, and pairs of samples that branch off one prompt. */
#include "run/ablate.h"

#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "run/engine_inside.h"
#include "run/speed.h"

enum { LEAST_PAIRS = 3 };

typedef struct side {           /* the model with the switch, or without it */
    lily_loaded m;              /* shares all but plans and runs with the engine's */
    lily_session *session;
} side;

typedef struct ablation {
    lily_engine *g;
    const lily_ablate_options *o;
    void (*result)(void *user, const lily_ablate_result *r);
    void *user;
    int32_t *tokens;
    /* The prompt of the length under way: all but its last token, and all before its last chunk. */
    lily_session *stem, *deep;
    uint64_t told;              /* switches that were measured or refused */
    double *with, *without;     /* [samples] tok/s */
    double *work;               /* [samples] */
    int rc;
    lily_err *e;
} ablation;

/* ---- the interval ---- */

/* Of 95 %, two-sided. */
static double students_t(uint32_t freedom)
{
    static const double t[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                               2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
    enum { KNOWN = sizeof t / sizeof *t };
    return freedom <= KNOWN ? t[freedom - 1] : 1.960 + 2.52 / freedom;
}

double lily_ablate_mean(const double *values, uint32_t n, double *reach)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++) sum += values[i];
    const double mean = sum / n;
    for (uint32_t i = 0; i < n; i++) squares += (values[i] - mean) * (values[i] - mean);
    *reach = students_t(n - 1) * sqrt(squares / (n - 1) / n);
    return mean;
}

/* ---- the model without a switch ---- */

static void close_side(side *s)
{
    lily_session_free(s->session);
    if (s->m.run_decode) s->m.ops->release(s->m.dev, s->m.run_decode);
    if (s->m.run_prefill) s->m.ops->release(s->m.dev, s->m.run_prefill);
    lily_plan_free(s->m.decode);
    lily_plan_free(s->m.prefill);
}

static int plan_side(side *s, const lily_loaded *m, uint64_t ablated, uint32_t chunk, lily_err *e)
{
    *s = (side){.m = *m};
    s->m.decode = s->m.prefill = NULL;
    s->m.run_decode = s->m.run_prefill = NULL;
    s->m.ablated |= ablated;
    s->m.chunk = chunk;
    return lily_plan_runs(&s->m, e);
}

/* The phases in which the two sides differ. */
static unsigned phases(const side sides[2], unsigned which, uint32_t length)
{
    const lily_loaded *a = &sides[0].m, *b = &sides[1].m;
    const lily_plan_device d = lily_loaded_device(a);
    unsigned in = lily_ablation_phases(which);
    if (which == ABLATE_PROMPT_CHUNKS) return length - 1 > a->chunk ? in : 0;
    if (a->ops->heeds & lily_bit(which)) return in;
    if (lily_plan_hash(a->decode, &d) == lily_plan_hash(b->decode, &d)) in &= ~(unsigned)LILY_DECODE;
    if (lily_plan_hash(a->prefill, &d) == lily_plan_hash(b->prefill, &d)) in &= ~(unsigned)LILY_PREFILL;
    return in;
}

static int prepare_side(side *s, lily_err *e)
{
    const lily_loaded *m = &s->m;
    TRY(m->ops->prepare(m->dev, m->weights, m->decode, &s->m.run_decode, e));
    TRY(m->ops->prepare(m->dev, m->weights, m->prefill, &s->m.run_prefill, e));
    return lily_session_new(&s->session, m, e);
}

/* LILY_UNSUPPORTED with the reason when there is nothing to measure at any length. */
static int open_sides(side sides[2], const lily_loaded *m, unsigned which, uint32_t length, lily_err *e)
{
    const uint64_t below = lily_ablation_below(which);
    const bool whole = which == ABLATE_PROMPT_CHUNKS && length > m->chunk;
    if (m->ablated & lily_bit(which)) return lily_fail(e, LILY_UNSUPPORTED, "it is off already (--without)");
    TRY(lily_device_without(m->ops, lily_bit(which), e));
    if (!lily_ablation_phases(which))
        return lily_fail(e, LILY_UNSUPPORTED, "it acts neither on how prompts are read nor on tokens without a format");
    TRY(plan_side(&sides[0], m, below, m->chunk, e));
    TRY(plan_side(&sides[1], m, below | lily_bit(which), whole ? length : m->chunk, e));
    if (which != ABLATE_PROMPT_CHUNKS && !phases(sides, which, length))
        return lily_fail(e, LILY_UNSUPPORTED, "device %s has nothing that it turns off for this model", m->ops->name);
    if (!phases(sides, which, length)) return LILY_OK;
    TRY(prepare_side(&sides[0], e));
    return prepare_side(&sides[1], e);
}

/* ---- samples ---- */

/* Where the last chunk of a prompt of so many tokens begins. */
static uint32_t last_chunk(const ablation *a, uint32_t length)
{
    const uint32_t chunk = a->g->m.chunk;
    return length - 1 > chunk ? length - 1 - chunk : 0;
}

/* Reads tokens up to `to`. */
static int read_to(const ablation *a, lily_session *s, uint32_t to, uint32_t chunk)
{
    uint32_t n;
    for (lily_session_tokens(s, &n); n < to; lily_session_tokens(s, &n)) {
        lily_done done;
        lily_feed f = {.tokens = a->tokens + n, .n = to - n < chunk ? to - n : chunk};
        TRY(lily_session_feed(s, &f, &done, a->e));
    }
    return LILY_OK;
}

static int branch(const ablation *a, lily_session *to, const lily_session *from)
{
    uint32_t n;
    (void)lily_session_tokens(from, &n);
    TRY(lily_session_reset(to, a->e));
    return n ? lily_session_branch(to, from, n, a->e) : LILY_OK;
}

/* Both sides of all switches then branch off what was read once. */
static int read_prompt(ablation *a, uint32_t length)
{
    uint32_t n, deep = last_chunk(a, length);
    (void)lily_session_tokens(a->stem, &n);
    if (n > deep) TRY(lily_session_reset(a->stem, a->e));
    TRY(read_to(a, a->stem, deep, a->g->m.chunk));
    TRY(branch(a, a->deep, a->stem));
    return read_to(a, a->stem, length - 1, a->g->m.chunk);
}

static int sample_prefill(const ablation *a, const side *s, uint32_t length, bool whole, double *tok_s)
{
    const uint32_t from = whole ? 0 : last_chunk(a, length);
    int32_t token = a->tokens[length - 1];
    double unused;
    if (whole)
        TRY(lily_session_reset(s->session, a->e));
    else
        TRY(branch(a, s->session, a->deep));
    uint64_t start = lily_now_ns();
    TRY(read_to(a, s->session, length - 1, s->m.chunk));
    TRY(lily_speed_decode(s->session, &s->m, &token, 1, &unused, a->e));
    *tok_s = (length - from) / lily_seconds_since(start);
    return LILY_OK;
}

static int sample_decode(const ablation *a, const side *s, uint32_t length, double *tok_s)
{
    int32_t token = a->tokens[length - 1];
    double unused;
    TRY(branch(a, s->session, a->stem));
    TRY(lily_speed_decode(s->session, &s->m, &token, 1, &unused, a->e));
    return lily_speed_decode(s->session, &s->m, &token, a->o->timing.decode_tokens, tok_s, a->e);
}

static int sample(const ablation *a, const side *s, unsigned which, unsigned phase, uint32_t length, double *tok_s)
{
    if (phase == LILY_DECODE) return sample_decode(a, s, length, tok_s);
    return sample_prefill(a, s, length, which == ABLATE_PROMPT_CHUNKS, tok_s);
}

/* ---- pairs ---- */

static double median_of(ablation *a, const double *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) a->work[i] = values[i];
    return lily_median(a->work, n);
}

static void report(ablation *a, unsigned which, unsigned phase, uint32_t length, uint32_t n)
{
    const bool decodes = phase == LILY_DECODE, whole = which == ABLATE_PROMPT_CHUNKS;
    lily_ablate_result r = {.which = which,
                            .phase = decodes ? "decode" : "prefill",
                            .context = length,
                            .tokens = decodes ? a->o->timing.decode_tokens : length - (whole ? 0 : last_chunk(a, length)),
                            .n_pairs = n,
                            .with = a->with,
                            .without = a->without,
                            .with_tok_s = median_of(a, a->with, n),
                            .without_tok_s = median_of(a, a->without, n)};
    double reach;
    for (uint32_t i = 0; i < n; i++) a->work[i] = log(a->with[i] / a->without[i]);
    const double mean = lily_ablate_mean(a->work, n, &reach);
    r.effect = exp(mean) - 1;
    r.low = exp(mean - reach) - 1;
    r.high = exp(mean + reach) - 1;
    a->result(a->user, &r);
}

/* Two unmeasured pairs bring both plans up to speed: what a device captures it does so at the second run. */
static int measure(ablation *a, unsigned which, unsigned phase, const side sides[2], uint32_t length)
{
    double *at[2] = {a->with, a->without};
    uint32_t n = 0;
    for (int i = 0; i < 4; i++) TRY(sample(a, &sides[i % 2], which, phase, length, at[i % 2]));
    const uint64_t start = lily_now_ns();
    while (n < a->o->timing.samples) {
        if (a->o->seconds > 0 && n >= LEAST_PAIRS && lily_seconds_since(start) > a->o->seconds) break;
        const unsigned first = n % 2;
        TRY(sample(a, &sides[first], which, phase, length, at[first] + n));
        TRY(sample(a, &sides[!first], which, phase, length, at[!first] + n));
        n++;
    }
    report(a, which, phase, length, n);
    return LILY_OK;
}

static void refuse(ablation *a, unsigned which, const char *why)
{
    if (!(a->told & lily_bit(which))) a->result(a->user, &(lily_ablate_result){.which = which, .refused = why});
    a->told |= lily_bit(which);
}

static int one_switch(ablation *a, unsigned which, uint32_t length)
{
    side sides[2] = {0};
    lily_err why;
    int rc = open_sides(sides, &a->g->m, which, length, &why);
    const bool refused = rc == LILY_UNSUPPORTED || rc == LILY_NO_MEMORY;
    if (refused)
        refuse(a, which, why.text);
    else if (rc != LILY_OK)
        *a->e = why;
    const unsigned in = rc == LILY_OK ? phases(sides, which, length) : 0;
    if (in & LILY_PREFILL) rc = measure(a, which, LILY_PREFILL, sides, length);
    if (rc == LILY_OK && (in & LILY_DECODE)) rc = measure(a, which, LILY_DECODE, sides, length);
    if (in) a->told |= lily_bit(which);
    close_side(&sides[0]);
    close_side(&sides[1]);
    return refused ? LILY_OK : rc;
}

static int all_lengths(ablation *a)
{
    TRY(lily_session_new(&a->stem, &a->g->m, a->e));
    TRY(lily_session_new(&a->deep, &a->g->m, a->e));
    for (uint32_t l = 0; l < a->o->timing.n_lengths; l++) {
        TRY(read_prompt(a, a->o->timing.lengths[l]));
        for (unsigned i = 0; i < N_ABLATIONS; i++)
            if (a->o->switches & lily_bit(i)) TRY(one_switch(a, i, a->o->timing.lengths[l]));
    }
    for (unsigned i = 0; i < N_ABLATIONS; i++)
        if (a->o->switches & lily_bit(i)) refuse(a, i, "no prompt was longer than a chunk");
    return LILY_OK;
}

static void run(void *user)
{
    ablation *a = user;
    lily_pool_clear(a->g->pool);    /* the memory of a conversation is for what branches off the prompt */
    a->rc = all_lengths(a);
    lily_session_free(a->deep);
    lily_session_free(a->stem);
}

int lily_engine_ablate(lily_engine *g, const lily_ablate_options *o,
                       void (*result)(void *user, const lily_ablate_result *r), void *user, lily_err *e)
{
    ablation a = {.g = g, .o = o, .result = result, .user = user, .e = e};
    const lily_timing *t = &o->timing;
    uint32_t longest;
    if (g->script) return lily_fail(e, LILY_UNSUPPORTED, "a scripted engine has no speed");
    TRY(lily_speed_check(&g->m, t, (uint64_t)t->decode_tokens + 1, &longest, e));
    if (t->samples < 2) return lily_fail(e, LILY_ARGUMENT, "an interval needs two pairs at least");
    a.tokens = lily_speed_tokens(&g->m, longest);
    a.with = lily_calloc(t->samples, sizeof *a.with);
    a.without = lily_calloc(t->samples, sizeof *a.without);
    a.work = lily_calloc(t->samples, sizeof *a.work);
    if (a.tokens && a.with && a.without && a.work)
        lily_queue_call(g->queue, run, &a);
    else
        a.rc = lily_no_memory(e, longest * sizeof *a.tokens, "an ablation");
    lily_free(a.work);
    lily_free(a.without);
    lily_free(a.with);
    lily_free(a.tokens);
    return a.rc;
}
