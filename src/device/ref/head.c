/* head.c - both ends of the model: a token becomes a vector, the last vector becomes the next token. */
#include <math.h>

#include "device/host/pick.h"
#include "device/ref/ref.h"

int ref_embed(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    for (uint32_t t = 0; t < r->tokens; t++) {
        uint32_t token = (uint32_t)run_token(r, t); /* in range: submit looked */
        ref_matrix_row(&r->model->embed, token, run_slot(r, SLOT_X) + (size_t)t * r->config->hidden);
        if (r->lane->count) r->state->count[token]++;
    }
    return LILY_OK;
}

int ref_norm_next(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const uint32_t width = r->config->hidden;
    const uint16_t next = (uint16_t)(layer + 1); /* LILY_BEFORE_LAYERS + 1 is 0 */
    lily_vector w = next < r->config->layers ? r->model->layer[next].norm_mix : r->model->norm_final;
    for (uint32_t t = 0; t < r->tokens; t++)
        ref_rms_norm(run_slot(r, SLOT_N) + (size_t)t * width, run_slot(r, SLOT_X) + (size_t)t * width, w,
                     width, r->config->eps);
    return LILY_OK;
}

/* What the softmax at one scored position needs, gathered while the logits pass by once. */
typedef struct score {
    double sum;         /* of exp(logit - most) */
    float most, wanted; /* the largest so far; the logit of the token that followed */
    int32_t best;
} score;

size_t ref_head_workspace(const lily_dev *dev, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)dev, (void)c, (void)context;
    return tokens * sizeof(score);
}

static void add_logit(score *s, float logit, int32_t token, int32_t wanted)
{
    if (token == wanted) s->wanted = logit;
    if (logit > s->most) {
        s->sum = s->sum * exp((double)s->most - logit) + 1;
        s->most = logit;
        s->best = token;
    } else {
        s->sum += exp((double)logit - s->most); /* a not-a-number stays in the sum */
    }
}

static int finish_scores(lily_run *r, const score *s, lily_err *e)
{
    for (uint32_t t = 0; t < r->tokens; t++) {
        if (!isfinite(s[t].sum))
            return lily_fail(e, LILY_DEVICE, "ref: the logits after position %u are not all numbers",
                             r->first + t);
        run_slot(r, SLOT_SCORES)[t] = (float)((double)s[t].wanted - s[t].most - log(s[t].sum));
        run_ints(r, SLOT_BEST)[t] = s[t].best;
    }
    r->done->scores = run_slot(r, SLOT_SCORES);
    r->done->best = run_ints(r, SLOT_BEST);
    return LILY_OK;
}

int ref_head(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    const lily_config *c = r->config;
    const int32_t *wanted = r->lane->scored;
    const uint32_t last = r->tokens - 1,
                   n_vocab = r->lane->pick ? (uint32_t)r->lane->pick->n_vocab : c->vocab;
    const float *n = run_slot(r, SLOT_N);
    score *s = run_workspace(r);
    float *row = r->exec->row, *logits = run_slot(r, SLOT_LOGITS);
    for (uint32_t t = 0; t < r->tokens; t++) s[t] = (score){.most = -INFINITY, .best = -1};
    for (uint32_t v = 0; v < c->vocab; v++) {
        ref_matrix_row(&r->model->head, v, row);
        logits[v] = ref_dot(row, n + (size_t)last * c->hidden, c->hidden);
        for (uint32_t t = 0; wanted && v < n_vocab && t < r->tokens; t++)
            add_logit(&s[t], t == last ? logits[v] : ref_dot(row, n + (size_t)t * c->hidden, c->hidden),
                      (int32_t)v, wanted[t]);
    }
    return wanted ? finish_scores(r, s, e) : LILY_OK;
}

size_t ref_sample_workspace(const lily_dev *dev, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)dev, (void)tokens, (void)context;
    return lily_pick_room(c->vocab);
}

int ref_sample(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    if (!r->lane->pick) return LILY_OK;
    TRY(lily_pick_token(run_slot(r, SLOT_LOGITS), r->lane->pick, r->state->count, run_workspace(r), r->done,
                        e));
    *run_ints(r, SLOT_TOKEN) = r->done->token;
    return LILY_OK;
}

int ref_commit(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    if (r->lane->pick) r->state->next = *run_ints(r, SLOT_TOKEN);
    return LILY_OK;
}
