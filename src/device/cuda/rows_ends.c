/* rows_ends.c - both ends of the model: a token becomes a vector, the last vector becomes the next token. */
#include "device/cuda/cuda.h"

int cuda_row_embed(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    CU(cuda_embed(&r->weights->embed, r->given ? r->exec->tokens : NULL, r->dev->lane, cuda_floats(r, SLOT_X), r->tokens,
                  r->dev->stream));
    return LILY_OK;
}

/* One token, and the first norm. */
int cuda_row_embed_token(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    CU(cuda_embed_token(&r->weights->embed, r->dev->lane, cuda_floats(r, SLOT_X), r->weights->layer[0].norm_mix,
                        cuda_floats(r, SLOT_N), r->dev->stream));
    return LILY_OK;
}

int cuda_row_norm(cuda_run *r, uint16_t layer, lily_err *e)
{
    const lily_config *c = r->config;
    const uint16_t next = (uint16_t)(layer + 1); /* LILY_BEFORE_LAYERS + 1 is 0 */
    const bool post = cuda_does(r, STEP_NORM_POST);
    const float *weight = post                ? r->weights->layer[layer].norm_post
                          : next < c->layers ? r->weights->layer[next].norm_mix
                                              : r->weights->norm_final;
    CU(cuda_rms_norm(cuda_floats(r, SLOT_X), weight, cuda_slot(r, post ? SLOT_M : SLOT_N), c->hidden, r->tokens, c->eps,
                     r->half, r->plan->max_tokens == 1, r->dev->stream));
    return LILY_OK;
}

/* Logits of so many positions at once are kept for their scores. */
enum { SCORED_AT_ONCE = 32 };

size_t cuda_head_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)d, (void)context;
    const size_t some = tokens < SCORED_AT_ONCE ? tokens : SCORED_AT_ONCE;
    return (some * c->vocab + 2 * (size_t)tokens) * sizeof(float);
}

static int score(cuda_run *r, lily_err *e)
{
    const lily_config *c = r->config;
    const size_t most = r->plan->max_tokens < SCORED_AT_ONCE ? r->plan->max_tokens : SCORED_AT_ONCE;
    float *logits = cuda_workspace(r), *scores = logits + most * c->vocab;
    int32_t *best = (int32_t *)(void *)(scores + r->plan->max_tokens);
    const uint8_t *n = cuda_slot(r, SLOT_N);
    cudaStream_t s = r->dev->stream;
    for (uint32_t t = 0; t < r->tokens; t += SCORED_AT_ONCE) {
        const uint32_t some = r->tokens - t < SCORED_AT_ONCE ? r->tokens - t : SCORED_AT_ONCE;
        TRY(cuda_project_from(r, &r->weights->head, n + (size_t)t * c->hidden * (r->half ? 2 : 4), !r->half, some, logits,
                              c->vocab, 0, e));
        CU(cuda_score(logits, r->exec->scored + t, some, c->vocab, (uint32_t)r->n_vocab, scores + t, best + t, s));
    }
    CU(cudaMemcpyAsync(r->exec->scores, scores, r->tokens * sizeof *scores, cudaMemcpyDeviceToHost, s));
    CU(cudaMemcpyAsync(r->exec->scores + r->plan->max_tokens, best, r->tokens * sizeof *best, cudaMemcpyDeviceToHost, s));
    return LILY_OK;
}

int cuda_row_head(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    const lily_config *c = r->config;
    const cuda_matrix *w = &r->weights->head;
    const uint8_t *last = (const uint8_t *)cuda_slot(r, SLOT_N) + (size_t)(r->tokens - 1) * c->hidden * (r->half ? 2 : 4);
    if (r->dev->hopper && !r->half && w->layout == CUDA_PACKED && w->bits == 4) {
        cuda_gemv a = cuda_gemv_of(r, w, SLOT_N);
        a.n_sections = 1;
        a.section[0] = (cuda_section){cuda_floats(r, SLOT_LOGITS), 0, w->rows};
        CU(cuda_gemv_head(&a, cuda_overlaps(r), r->dev->stream));
    } else {
        TRY(cuda_project_from(r, w, last, !r->half, 1, cuda_floats(r, SLOT_LOGITS), c->vocab, 0, e));
    }
    return r->scored ? score(r, e) : LILY_OK;
}

size_t cuda_sample_workspace(const lily_dev *d, const lily_config *c, uint32_t tokens, uint32_t context)
{
    (void)d, (void)tokens, (void)context;
    return cuda_pick_room(c->vocab);
}

int cuda_row_sample(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    if (!r->picks) return LILY_OK;
    CU(cuda_pick(cuda_floats(r, SLOT_LOGITS), r->dev->lane, cuda_workspace(r), cuda_ints(r, SLOT_TOKEN), r->dev->answer,
                 r->config->vocab, -1, cuda_overlaps(r), r->dev->stream));
    return LILY_OK;
}

/* With the step to the next token. */
int cuda_row_pick(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    if (!r->picks) return LILY_OK;
    CU(cuda_pick(cuda_floats(r, SLOT_LOGITS), r->dev->lane, cuda_workspace(r), cuda_ints(r, SLOT_TOKEN), r->dev->answer,
                 r->config->vocab, r->forward ? (int32_t)r->tokens : 0, cuda_overlaps(r), r->dev->stream));
    return LILY_OK;
}

int cuda_row_commit(cuda_run *r, uint16_t layer, lily_err *e)
{
    (void)layer;
    if (!r->picks) return LILY_OK;
    CU(cuda_commit(r->dev->lane, cuda_ints(r, SLOT_TOKEN), r->forward ? r->tokens : 0, r->dev->stream));
    return LILY_OK;
}
