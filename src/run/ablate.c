/* ablate.c - a second set of plans without the switch, and pairs of samples. */
#include "run/ablate.h"

#include "base/mem.h"
#include "run/engine_inside.h"
#include "run/speed.h"

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
    double *speed;              /* [2 phases][2 sides][lengths][pairs] */
    double *work;               /* [pairs] */
    int rc;
    lily_err *e;
} ablation;

uint32_t lily_ablate_rank(uint32_t n)
{
    /* The chance that at most k of n fair coins fall on one side, kept at 2.5 % at each end. */
    double chance = 1, below = 0;
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) chance /= 2;
    for (; k < n / 2; k++) {
        below += chance;
        if (below > 0.025) break;
        chance = chance * (n - k) / (k + 1);
    }
    return k ? k - 1 : 0;
}

/* ---- the model without a switch ---- */

static void close_without(side *s)
{
    lily_session_free(s->session);
    if (s->m.run_decode) s->m.ops->release(s->m.dev, s->m.run_decode);
    if (s->m.run_prefill) s->m.ops->release(s->m.dev, s->m.run_prefill);
    lily_plan_free(s->m.decode);
    lily_plan_free(s->m.prefill);
}

static int plan_without(side *s, const lily_loaded *m, unsigned which, lily_err *e)
{
    lily_plan_device d = lily_device_for_plan(m->ops, m->dev);
    s->m = *m;
    s->m.decode = s->m.prefill = NULL;
    s->m.run_decode = s->m.run_prefill = NULL;
    s->m.ablated |= lily_bit(which);
    if (which == ABLATE_PROMPT_CHUNKS) s->m.chunk = m->context;
    lily_plan_ask ask = {
        .mode = LILY_DECODE, .max_tokens = 1, .max_context = m->context, .ablated = s->m.ablated};
    TRY(lily_plan_make(&s->m.decode, &d, m->config, &ask, e));
    ask.mode = LILY_PREFILL;
    ask.max_tokens = s->m.chunk;
    return lily_plan_make(&s->m.prefill, &d, m->config, &ask, e);
}

/* LILY_UNSUPPORTED with the reason when there is nothing to measure. */
static int check_plans(const side *s, const lily_loaded *m, unsigned which, lily_err *e)
{
    lily_plan_device d = lily_device_for_plan(m->ops, m->dev);
    if (m->ablated & lily_bit(which)) return lily_fail(e, LILY_UNSUPPORTED, "it is off already (--without)");
    if (!lily_ablation_phases(which))
        return lily_fail(e, LILY_UNSUPPORTED, "it acts neither on how prompts are read nor on tokens without a format");
    if (which == ABLATE_PROMPT_CHUNKS && s->m.chunk == m->chunk)
        return lily_fail(e, LILY_UNSUPPORTED, "a chunk is as long as the context already");
    if (m->ops->heeds & lily_bit(which)) return LILY_OK;
    if (lily_plan_hash(s->m.decode, &d) == lily_plan_hash(m->decode, &d) &&
        lily_plan_hash(s->m.prefill, &d) == lily_plan_hash(m->prefill, &d))
        return lily_fail(e, LILY_UNSUPPORTED, "device %s has nothing that it turns off for this model", m->ops->name);
    return LILY_OK;
}

static int open_without(side *s, const lily_loaded *m, unsigned which, lily_err *e)
{
    TRY(lily_device_without(m->ops, lily_bit(which), e));
    TRY(plan_without(s, m, which, e));
    TRY(check_plans(s, m, which, e));
    TRY(m->ops->prepare(m->dev, m->weights, s->m.decode, &s->m.run_decode, e));
    TRY(m->ops->prepare(m->dev, m->weights, s->m.prefill, &s->m.run_prefill, e));
    return lily_session_new(&s->session, &s->m, e);
}

/* ---- pairs ---- */

static double *speeds(const ablation *a, unsigned phase, unsigned without, uint32_t length)
{
    return a->speed + ((phase * 2 + without) * (size_t)a->o->n_lengths + length) * a->o->pairs;
}

static int sample(ablation *a, const side *s, unsigned without, uint32_t l, uint32_t pair)
{
    uint32_t length = a->o->lengths[l];
    int32_t token;
    TRY(lily_speed_prefill(s->session, &s->m, a->tokens, length, &token, &speeds(a, 0, without, l)[pair], a->e));
    return lily_speed_decode(s->session, &s->m, &token, a->o->decode_tokens, &speeds(a, 1, without, l)[pair], a->e);
}

static double median_of(ablation *a, const double *values)
{
    for (uint32_t i = 0; i < a->o->pairs; i++) a->work[i] = values[i];
    return lily_median(a->work, a->o->pairs);
}

static void report(ablation *a, unsigned which, unsigned phase, uint32_t l)
{
    uint32_t n = a->o->pairs, rank = lily_ablate_rank(n);
    const double *with = speeds(a, phase, 0, l), *without = speeds(a, phase, 1, l);
    lily_ablate_result r = {.which = which,
                            .phase = phase ? "decode" : "prefill",
                            .context = a->o->lengths[l],
                            .n_pairs = n,
                            .with = with,
                            .without = without,
                            .with_tok_s = median_of(a, with),
                            .without_tok_s = median_of(a, without)};
    for (uint32_t i = 0; i < n; i++) a->work[i] = with[i] / without[i] - 1;
    r.effect = lily_median(a->work, n);
    r.low = a->work[rank];
    r.high = a->work[n - 1 - rank];
    a->result(a->user, &r);
}

/* One unmeasured pair brings both plans up to speed. */
static int measure(ablation *a, unsigned which, const side *sides)
{
    for (uint32_t l = 0; l < a->o->n_lengths; l++) {
        TRY(sample(a, &sides[0], 0, l, 0));
        TRY(sample(a, &sides[1], 1, l, 0));
        for (uint32_t i = 0; i < a->o->pairs; i++) {
            unsigned first = i % 2;
            TRY(sample(a, &sides[first], first, l, i));
            TRY(sample(a, &sides[!first], !first, l, i));
        }
        report(a, which, 0, l);
        report(a, which, 1, l);
    }
    return LILY_OK;
}

static int one_switch(ablation *a, unsigned which)
{
    side sides[2] = {{.m = a->g->m}};
    lily_err why;
    int rc = open_without(&sides[1], &a->g->m, which, &why);
    if (rc == LILY_UNSUPPORTED)
        a->result(a->user, &(lily_ablate_result){.which = which, .refused = why.text});
    else if (rc != LILY_OK)
        *a->e = why;
    else if ((rc = lily_session_new(&sides[0].session, &a->g->m, a->e)) == LILY_OK)
        rc = measure(a, which, sides);
    lily_session_free(sides[0].session);
    close_without(&sides[1]);
    return rc == LILY_UNSUPPORTED ? LILY_OK : rc;
}

static void run(void *user)
{
    ablation *a = user;
    lily_pool_clear(a->g->pool);    /* two conversations of full length are needed, and no more are kept */
    for (unsigned i = 0; i < N_ABLATIONS && a->rc == LILY_OK; i++)
        if (a->o->switches & lily_bit(i)) a->rc = one_switch(a, i);
}

int lily_engine_ablate(lily_engine *g, const lily_ablate_options *o,
                       void (*result)(void *user, const lily_ablate_result *r), void *user, lily_err *e)
{
    ablation a = {.g = g, .o = o, .result = result, .user = user, .e = e};
    uint32_t longest;
    if (g->script) return lily_fail(e, LILY_UNSUPPORTED, "a scripted engine has no speed");
    TRY(lily_speed_check(&g->m, o->lengths, o->n_lengths, o->pairs, o->decode_tokens, &longest, e));
    size_t n = (size_t)longest + o->decode_tokens, n_speeds = 4 * (size_t)o->n_lengths * o->pairs;
    a.tokens = lily_speed_tokens(&g->m, n);
    a.speed = lily_calloc(n_speeds, sizeof *a.speed);
    a.work = lily_calloc(o->pairs, sizeof *a.work);
    if (a.tokens && a.speed && a.work)
        lily_queue_call(g->queue, run, &a);
    else
        a.rc = lily_no_memory(e, n * sizeof *a.tokens, "an ablation");
    lily_free(a.work);
    lily_free(a.speed);
    lily_free(a.tokens);
    return a.rc;
}
