/* score.c - given tokens through the model, pass after pass. */
#include "run/score.h"

#include <math.h>

#include "base/mem.h"
#include "run/engine_inside.h"

typedef struct scorer {
    lily_engine *g;
    const int32_t *tokens;
    uint32_t n;
    const uint32_t *windows;
    uint32_t n_windows;
    lily_scored *out;
    lily_plan *plan;            /* for windows longer than the engine's chunk */
    lily_exec *exec;
    lily_session *session;
    int rc;
    lily_err *e;
} scorer;

void lily_scored_free(lily_scored *s)
{
    lily_free(s->nll);
    lily_free(s->best);
    *s = (lily_scored){0};
}

static int check(const scorer *c)
{
    if (c->g->script) return lily_fail(c->e, LILY_UNSUPPORTED, "a scripted engine scores nothing");
    if (c->n < 2) return lily_fail(c->e, LILY_ARGUMENT, "a score needs two tokens at least, here are %u", c->n);
    if (c->n > c->g->m.context)
        return lily_fail(c->e, LILY_CONTEXT, "the text has %u tokens, the context holds %u", c->n, c->g->m.context);
    for (uint32_t i = 0; i < c->n; i++)
        if (c->tokens[i] < 0 || (uint32_t)c->tokens[i] >= c->g->m.config->vocab)
            return lily_fail(c->e, LILY_ARGUMENT, "token %u is %d, the model has ids 0 to %u", i, c->tokens[i],
                             c->g->m.config->vocab - 1);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->n_windows; i++) {
        if (c->windows[i] == 0) return lily_fail(c->e, LILY_ARGUMENT, "window %u is empty", i);
        sum += c->windows[i];
    }
    if (c->windows && sum != c->n)
        return lily_fail(c->e, LILY_ARGUMENT, "the windows add up to %llu tokens, the text has %u",
                         (unsigned long long)sum, c->n);
    return LILY_OK;
}

/* A plan for the longest window, if the engine's own is for shorter runs. */
static int prepare(scorer *c)
{
    const lily_loaded *m = &c->g->m;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < c->n_windows; i++)
        if (c->windows[i] > longest) longest = c->windows[i];
    if (longest <= m->chunk) return LILY_OK;
    lily_plan_device d = lily_loaded_device(m);
    lily_plan_ask ask = {
        .mode = LILY_PREFILL, .max_tokens = longest, .max_context = m->context, .ablated = m->ablated};
    TRY(lily_plan_make(&c->plan, &d, m->config, &ask, c->e));
    return m->ops->prepare(m->dev, m->weights, c->plan, &c->exec, c->e);
}

/* The highest logits after the last token; the lowest id on ties. */
static void take_top(lily_scored *out, const float *logits, uint32_t vocab)
{
    uint32_t most = sizeof out->top_id / sizeof *out->top_id, n = 0;
    for (uint32_t id = 0; id < vocab; id++) {
        if (n == most && !(logits[id] > out->top_logit[n - 1])) continue;
        uint32_t at = n < most ? n++ : n - 1;
        for (; at > 0 && logits[id] > out->top_logit[at - 1]; at--) {
            out->top_id[at] = out->top_id[at - 1];
            out->top_logit[at] = out->top_logit[at - 1];
        }
        out->top_id[at] = (int32_t)id;
        out->top_logit[at] = logits[id];
    }
    out->n_top = n;
}

/* Out of the device's memory where it does not hand them over. */
static int read_logits(scorer *c, uint32_t window, const lily_done *done)
{
    const lily_loaded *m = &c->g->m;
    uint32_t vocab = m->config->vocab;
    if (done->logits) {
        take_top(c->out, done->logits, vocab);
        return LILY_OK;
    }
    float *logits = lily_calloc(vocab, sizeof *logits);
    if (!logits) return lily_no_memory(c->e, vocab * sizeof *logits, "logits");
    lily_exec *exec = window == 1 ? m->run_decode : c->exec ? c->exec : m->run_prefill;
    int rc = m->ops->peek(m->dev, exec, SLOT_LOGITS, logits, vocab * sizeof *logits, c->e);
    if (rc == LILY_OK) take_top(c->out, logits, vocab);
    lily_free(logits);
    return rc;
}

/* Tokens at … at + n; what follows the very last one is unknown, so its score is left out. */
static int pass(scorer *c, const int32_t *next, uint32_t at, uint32_t n)
{
    lily_done done;
    lily_feed f = {.tokens = c->tokens + at, .n = n, .scored = next + at, .exec = n > 1 ? c->exec : NULL};
    TRY(lily_session_feed(c->session, &f, &done, c->e));
    if (!done.scores || !done.best) return lily_fail(c->e, LILY_DEVICE, "the device gave no scores");
    for (uint32_t i = 0; i < n && at + i + 1 < c->n; i++) {
        c->out->nll[at + i] = -done.scores[i];
        c->out->best[at + i] = done.best[i];
    }
    return at + n == c->n ? read_logits(c, n, &done) : LILY_OK;
}

static int passes(scorer *c)
{
    int32_t *next = lily_calloc(c->n, sizeof *next);
    if (!next) return lily_no_memory(c->e, c->n * sizeof *next, "a score");
    for (uint32_t i = 0; i + 1 < c->n; i++) next[i] = c->tokens[i + 1];
    int rc = LILY_OK;
    for (uint32_t at = 0, i = 0, n; rc == LILY_OK && at < c->n; at += n, i++) {
        uint32_t left = c->n - at;
        n = c->windows ? c->windows[i] : left < c->g->m.chunk ? left : c->g->m.chunk;
        rc = pass(c, next, at, n);
    }
    lily_free(next);
    return rc;
}

static int score(scorer *c)
{
    c->out->n = c->n;
    c->out->nll = lily_calloc(c->n - 1, sizeof *c->out->nll);
    c->out->best = lily_calloc(c->n - 1, sizeof *c->out->best);
    if (!c->out->nll || !c->out->best) return lily_no_memory(c->e, c->n * sizeof *c->out->nll, "a score");
    TRY(prepare(c));
    lily_pool_clear(c->g->pool);    /* the plan has room for one more conversation only if nothing is kept */
    TRY(lily_session_new(&c->session, &c->g->m, c->e));
    TRY(passes(c));
    double sum = 0;
    for (uint32_t i = 0; i + 1 < c->n; i++) sum += (double)c->out->nll[i];
    c->out->ppl = exp(sum / (c->n - 1));
    return LILY_OK;
}

static void run(void *user)
{
    scorer *c = user;
    c->rc = score(c);
    lily_session_free(c->session);
    if (c->exec) c->g->m.ops->release(c->g->m.dev, c->exec);
    lily_plan_free(c->plan);
    if (c->rc != LILY_OK) lily_scored_free(c->out);
}

int lily_engine_score(lily_engine *g, const int32_t *tokens, uint32_t n, const uint32_t *windows, uint32_t n_windows,
                      lily_scored *out, lily_err *e)
{
    scorer c = {.g = g, .tokens = tokens, .n = n, .windows = windows, .n_windows = n_windows, .out = out, .e = e};
    *out = (lily_scored){0};
    TRY(check(&c));
    lily_queue_call(g->queue, run, &c);
    return c.rc;
}
