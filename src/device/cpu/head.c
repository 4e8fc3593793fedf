/* head.c - both ends of the model: a token becomes a vector, the last vector becomes the next token. */
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/host/pick.h"

static void embed_tokens(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    const lily_run *r = context;
    for (uint32_t t = begin; t < end; t++) /* tokens are in range: submit looked */
        r->dev->k->dequant_row(&r->model->embed, (uint32_t)run_token(r, t),
                               run_slot(r, SLOT_X) + (size_t)t * r->config->hidden);
}

int cpu_embed(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    cpu_each_token(r, r->tokens, embed_tokens, r);
    for (uint32_t t = 0; r->lane->count && t < r->tokens; t++) r->state->count[run_token(r, t)]++;
    return LILY_OK;
}

typedef struct norming {
    const lily_run *r;
    const float *from;
    float *to;
    lily_vector weight;
} norming;

static void norm_tokens(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    const norming *n = context;
    const uint32_t width = n->r->config->hidden;
    for (size_t t = begin; t < end; t++)
        n->r->dev->k->rmsnorm(n->from + t * width, n->weight, width, n->r->config->eps, n->to + t * width);
}

void cpu_norm(const lily_run *r, unsigned from, unsigned to, lily_vector weight)
{
    norming n = {r, run_slot(r, from), run_slot(r, to), weight};
    cpu_each_token(r, r->tokens, norm_tokens, &n);
}

int cpu_norm_next(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)e;
    const uint16_t next = (uint16_t)(layer + 1); /* LILY_BEFORE_LAYERS + 1 is 0 */
    cpu_norm(r, SLOT_X, SLOT_N,
             next < r->config->layers ? r->model->layer[next].norm_mix : r->model->norm_final);
    return LILY_OK;
}

/* ---- scores: the softmax at each given position, from logits that are never kept ---- */

/* What one block of the vocabulary adds to one position's softmax. */
typedef struct score {
    double sum; /* of exp(logit - most) */
    float most;
    int32_t best;
} score;

enum { SCORE_BLOCK = 4096, SCORE_ROWS = 64 };

static uint32_t score_blocks(const lily_config *c)
{
    return (c->vocab + SCORE_BLOCK - 1) / SCORE_BLOCK;
}

typedef struct scoring {
    const lily_run *r;
    lily_cpu_act act;
    score *scores; /* [blocks][T] */
    float *wanted; /* [T] logit of the token that followed; written by the one block that has it */
    float *tiles;  /* [threads][T][SCORE_ROWS] */
    uint32_t n_vocab;
} scoring;

static void add_logits(const lily_cpu_kernels *k, const float *logit, uint32_t n, int32_t first, score *s)
{
    uint32_t best = k->argmax(logit, n);
    float top = logit[best];
    if (top > s->most || s->best < 0) {
        s->sum *= exp((double)s->most - top);
        s->most = top;
        s->best = first + (int32_t)best;
    }
    s->sum += k->exp_sum(logit, n, s->most); /* a not-a-number stays in the sum */
}

static void score_block(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    const scoring *s = context;
    const uint32_t tokens = s->r->tokens;
    float *y = s->tiles + (size_t)thread * tokens * SCORE_ROWS;
    for (uint32_t b = begin; b < end; b++) {
        uint32_t to = (b + 1) * SCORE_BLOCK < s->n_vocab ? (b + 1) * SCORE_BLOCK : s->n_vocab;
        for (uint32_t t = 0; t < tokens; t++) s->scores[b * tokens + t] = (score){0, -INFINITY, -1};
        for (uint32_t v = b * SCORE_BLOCK; v < to; v += SCORE_ROWS) {
            uint32_t n = to - v < SCORE_ROWS ? to - v : SCORE_ROWS;
            s->r->dev->k->matmul(&s->r->model->head, v, v + n, &s->act, NULL, tokens, y, SCORE_ROWS);
            for (uint32_t t = 0; t < tokens; t++) {
                uint32_t want = (uint32_t)s->r->lane->scored[t] - v;
                add_logits(s->r->dev->k, y + (size_t)t * SCORE_ROWS, n, (int32_t)v,
                           &s->scores[b * tokens + t]);
                if (want < n) s->wanted[t] = y[(size_t)t * SCORE_ROWS + want];
            }
        }
    }
}

static int finish_scores(const scoring *s, lily_err *e)
{
    const lily_run *r = s->r;
    for (uint32_t t = 0; t < r->tokens; t++) {
        score all = {0, -INFINITY, -1};
        for (uint32_t b = 0; b * SCORE_BLOCK < s->n_vocab; b++) {
            const score *one = &s->scores[b * r->tokens + t];
            if (one->most > all.most || all.best < 0) {
                all.sum *= exp((double)all.most - one->most);
                all.most = one->most;
                all.best = one->best;
            }
            all.sum += one->sum * exp((double)one->most - all.most);
        }
        if (!isfinite(all.sum))
            return lily_fail(e, LILY_DEVICE, "cpu: the logits after position %u are not all numbers",
                             r->first + t);
        run_slot(r, SLOT_SCORES)[t] = (float)((double)s->wanted[t] - all.most - log(all.sum));
        run_ints(r, SLOT_BEST)[t] = all.best;
    }
    r->done->scores = run_slot(r, SLOT_SCORES);
    r->done->best = run_ints(r, SLOT_BEST);
    return LILY_OK;
}

size_t cpu_head_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)context;
    return cpu_packed_bytes(d, c->hidden, tokens) +
           cpu_piece((size_t)score_blocks(c) * tokens * sizeof(score)) + cpu_piece(tokens * sizeof(float)) +
           cpu_piece((size_t)cpu_threads(d) * tokens * SCORE_ROWS * sizeof(float));
}

int cpu_head(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    const lily_config *c = r->config;
    const float *n = run_slot(r, SLOT_N);
    uint8_t *at = cpu_workspace(r);
    void *packed = cpu_take(&at, cpu_packed_bytes(r->dev, c->hidden, r->tokens));
    cpu_target logits = {&r->model->head, run_slot(r, SLOT_LOGITS), c->vocab};
    cpu_products(r, n + (size_t)(r->tokens - 1) * c->hidden, 1, &logits, 1, packed);
    if (!r->lane->scored) return LILY_OK;

    scoring s = {
        .r = r, .act = {n, packed}, .n_vocab = r->lane->pick ? (uint32_t)r->lane->pick->n_vocab : c->vocab};
    s.scores = cpu_take(&at, (size_t)score_blocks(c) * r->tokens * sizeof(score));
    s.wanted = cpu_take(&at, r->tokens * sizeof(float));
    s.tiles = cpu_take(&at, (size_t)cpu_threads(r->dev) * r->tokens * SCORE_ROWS * sizeof(float));
    for (uint32_t t = 0; t < r->tokens; t++) s.wanted[t] = NAN;
    cpu_pack(r, n, c->hidden, r->tokens, packed);
    lily_pool_for(r->dev->pool, (s.n_vocab + SCORE_BLOCK - 1) / SCORE_BLOCK, 1, score_block, &s);
    return finish_scores(&s, e);
}

size_t cpu_sample_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)d, (void)tokens, (void)context;
    return lily_pick_room(c->vocab);
}

int cpu_sample(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    if (!r->lane->pick) return LILY_OK;
    TRY(lily_pick_token(run_slot(r, SLOT_LOGITS), r->lane->pick, r->state->count, cpu_workspace(r), r->done,
                        e));
    *run_ints(r, SLOT_TOKEN) = r->done->token;
    return LILY_OK;
}

int cpu_commit(lily_run *r, uint16_t layer, lily_err *e)
{
    (void)layer, (void)e;
    if (r->lane->pick) r->state->next = *run_ints(r, SLOT_TOKEN);
    return LILY_OK;
}
