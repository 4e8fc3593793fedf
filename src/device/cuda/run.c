/* run.c - a plan's stages onto the stream, what a run needs before them, and what it leaves. */
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/random.h"
#include "device/cuda/cuda.h"

/* ---- scratch ---- */

bool cuda_is_half(unsigned slot)
{
    return slot == SLOT_N || slot == SLOT_M || slot == SLOT_DNG || slot == SLOT_AOG || slot == SLOT_EH || slot == SLOT_SH ||
           slot == SLOT_ED;
}

size_t cuda_slot_bytes(const lily_dev *d, unsigned slot, const lily_config *c, uint32_t tokens)
{
    (void)d;
    const size_t n = (size_t)lily_slot_elements(slot, c, tokens);
    if (tokens > 1) return n * (cuda_is_half(slot) ? 2 : 4);
    if (slot == SLOT_DNG) return 4 * (n + (size_t)c->lin_v_heads * CUDA_QUARTERS);
    return 4 * (n + (slot == SLOT_N || slot == SLOT_M ? cuda_norm_tail() : 0));
}

int cuda_prepare(lily_dev *d, const lily_weights *w, const lily_plan *plan, lily_exec **out, lily_err *e)
{
    *out = NULL;
    TRY(cuda_check_switches(d, plan->ablated, e));
    lily_exec *x = lily_calloc(1, sizeof *x);
    if (!x) return lily_no_memory(e, sizeof *x, "a plan's scratch memory");
    x->dev = d;
    x->weights = w;
    x->plan = plan;
    const size_t n = plan->max_tokens;
    cudaError_t rc = cudaMalloc((void **)&x->memory, plan->scratch_bytes);
    if (rc == cudaSuccess) rc = cudaMemsetAsync(x->memory, 0, plan->scratch_bytes, d->stream);
    if (rc == cudaSuccess) rc = cudaMalloc((void **)&x->tokens, 2 * n * sizeof *x->tokens);
    if (rc == cudaSuccess) rc = cudaMallocHost((void **)&x->sending, 2 * n * sizeof *x->sending);
    if (rc == cudaSuccess) rc = cudaMallocHost((void **)&x->scores, 2 * n * sizeof *x->scores);
    x->scored = x->tokens + n;
    if (rc == cudaSuccess) {
        *out = x;
        return LILY_OK;
    }
    cuda_release(d, x);
    return cuda_fail(e, rc, "a plan's scratch memory");
}

void cuda_release(lily_dev *d, lily_exec *x)
{
    if (!x) return;
    cudaStreamSynchronize(d->stream);
    for (int i = 0; i < N_SEGMENTS; i++)
        for (int k = 0; k < N_SEGMENTS; k++)
            if (x->graph[i][k]) cudaGraphExecDestroy(x->graph[i][k]);
    cudaFree(x->memory);
    cudaFree(x->tokens);
    cudaFreeHost(x->sending);
    cudaFreeHost(x->scores);
    cudaFreeHost(x->routing);
    lily_free(x);
}

/* ---- what is asked of a lane ---- */

static int check_marks(const lily_lane *lane, lily_err *e)
{
    if (lane->n_marks > CUDA_MAX_MARKS)
        return lily_fail(e, LILY_UNSUPPORTED, "cuda: %u marks in one run, at most %d", lane->n_marks, CUDA_MAX_MARKS);
    for (uint32_t i = 0; i < lane->n_marks; i++)
        if (lane->mark[i] < 1 || lane->mark[i] > lane->n_tokens || (i && lane->mark[i] <= lane->mark[i - 1]))
            return lily_fail(e, LILY_ARGUMENT, "mark %u (after %u of %u tokens) is out of order", i, lane->mark[i],
                             lane->n_tokens);
    return LILY_OK;
}

static int check_forward(const lily_dev *d, const lily_exec *x, const lily_lane *lane, lily_err *e)
{
    const lily_state *s = lane->state;
    const uint32_t vocab = x->weights->model->config->vocab;
    const uint64_t room = (uint64_t)s->n_pages * CUDA_PAGE, most = x->plan->max_context < room ? x->plan->max_context : room;
    if ((uint64_t)s->position + lane->n_tokens > most)
        return lily_fail(e, LILY_CONTEXT, "%u tokens after %u are more than the %u that there is room for", lane->n_tokens,
                         s->position, (uint32_t)most);
    if (!lane->tokens && d->token_owner != s) return lily_fail(e, LILY_ARGUMENT, "no run left a token for this session");
    for (uint32_t t = 0; lane->tokens && t < lane->n_tokens; t++)
        if (lane->tokens[t] < 0 || (uint32_t)lane->tokens[t] >= vocab)
            return lily_fail(e, LILY_ARGUMENT, "token %d is not one of the model's %u", lane->tokens[t], vocab);
    return check_marks(lane, e);
}

static int check_lane(const lily_dev *d, const lily_exec *x, enum lily_segment first, const lily_lane *lane,
                      uint32_t n_lanes, lily_err *e)
{
    const uint32_t most = x->plan->max_tokens, vocab = x->weights->model->config->vocab;
    if (n_lanes != 1) return lily_fail(e, LILY_UNSUPPORTED, "the device runs one session at a time, not %u", n_lanes);
    if (lane->n_tokens < 1 || lane->n_tokens > most || (!lane->tokens && lane->n_tokens != 1))
        return lily_fail(e, LILY_ARGUMENT, "%u tokens in a run of at most %u", lane->n_tokens, most);
    if (lane->pick && (lane->pick->n_vocab < 1 || (uint32_t)lane->pick->n_vocab > vocab))
        return lily_fail(e, LILY_ARGUMENT, "%d of %u tokens cannot be chosen from", lane->pick->n_vocab, vocab);
    return first == LILY_FORWARD ? check_forward(d, x, lane, e) : LILY_OK;
}

/* ---- what the device must know before a run ---- */

/* What a pick points to, in device memory that grows as needed. */
static int send_list(lily_dev *d, void **room, size_t *have, const void *from, size_t bytes, lily_err *e)
{
    if (bytes > *have) {
        CU(cudaStreamSynchronize(d->stream));
        cudaFree(*room);
        *room = NULL;
        *have = 0;
        CU(cudaMalloc(room, bytes));
        *have = bytes;
    }
    CU(cudaMemcpyAsync(*room, from, bytes, cudaMemcpyHostToDevice, d->stream));
    return LILY_OK;
}

static int describe_pick(lily_dev *d, const lily_pick *k, uint32_t vocab, cuda_lane *to, lily_err *e)
{
    _Static_assert(sizeof(cuda_bias) == sizeof(lily_bias), "a list of one is a list of the other");
    to->temperature = k->temperature, to->top_p = k->top_p, to->min_p = k->min_p;
    to->presence = k->presence, to->frequency = k->frequency, to->repetition = k->repetition;
    to->top_k = k->top_k, to->n_logprobs = k->n_logprobs, to->n_vocab = k->n_vocab;
    const bool greedy = !(k->temperature > 0) || k->top_k == 1;
    to->uniform = greedy ? 0 : lily_uniform(k->seed, k->draw);
    to->allow = NULL, to->bias = NULL, to->n_bias = k->n_bias;
    if (k->allow) {
        TRY(send_list(d, (void **)&d->allow, &d->allow_bytes, k->allow, (vocab + 31) / 32 * sizeof(uint32_t), e));
        to->allow = d->allow;
    }
    if (k->n_bias) {
        TRY(send_list(d, (void **)&d->bias, &d->bias_bytes, k->bias, k->n_bias * sizeof *k->bias, e));
        to->bias = d->bias;
    }
    return LILY_OK;
}

/* Brings the lane on the device up to date; nothing is sent when it is so already. */
static int send_lane(lily_dev *d, const lily_exec *x, enum lily_segment first, const lily_lane *lane,
                     cuda_snapshot *const *mark, lily_err *e)
{
    const lily_state *s = lane->state;
    const lily_config *c = x->weights->model->config;
    cuda_lane want = d->there;
    if (lane->pick) TRY(describe_pick(d, lane->pick, c->vocab, &want, e));
    if (!lane->pick) want.n_vocab = (int32_t)c->vocab;
    want.recurrent = s->recurrent;
    want.pages = (uint16_t *const *)s->table;
    want.count = s->count;
    want.counts = lane->count;
    want.n_marks = lane->n_marks;
    for (uint32_t i = 0; i < lane->n_marks; i++) want.mark[i] = mark ? mark[i]->recurrent : NULL, want.mark_at[i] = lane->mark[i];
    size_t bytes = offsetof(cuda_lane, position);
    bool same = memcmp(&want, &d->there, bytes) == 0;
    if (first == LILY_FORWARD) {
        const bool given = lane->tokens && lane->n_tokens == 1;
        want.position = s->position;
        if (given) want.token = lane->tokens[0];
        const bool same_token = !given || (d->token_known && want.token == d->there.token);
        if (want.position != d->there.position || !same_token) {
            /* Position, token and turn go together; a token that is only on the device must not be overwritten. */
            if (!given && d->token_owner == s && !d->token_known)
                CU(cudaMemcpyAsync((uint8_t *)d->lane + bytes, &want.position, sizeof want.position, cudaMemcpyHostToDevice, d->stream));
            else
                bytes = sizeof want;
            same = false;
        }
    }
    if (same) return LILY_OK;
    if (bytes == sizeof want && d->token_owner != s) d->token_owner = NULL;
    cuda_lane *pinned = &d->sending[d->newest % CUDA_ANSWERS];
    *pinned = want;
    CU(cudaMemcpyAsync(d->lane, pinned, bytes, cudaMemcpyHostToDevice, d->stream));
    d->there = want;
    if (bytes == sizeof want) d->token_known = true;
    return LILY_OK;
}

static int send_tokens(const lily_dev *d, lily_exec *x, const lily_lane *lane, lily_err *e)
{
    const size_t n = lane->n_tokens;
    if (n > 1) memcpy(x->sending, lane->tokens, n * sizeof *x->sending);
    if (n > 1) CU(cudaMemcpyAsync(x->tokens, x->sending, n * sizeof *x->tokens, cudaMemcpyHostToDevice, d->stream));
    int32_t *scored = x->sending + x->plan->max_tokens;
    if (lane->scored) memcpy(scored, lane->scored, n * sizeof *scored);
    if (lane->scored) CU(cudaMemcpyAsync(x->scored, scored, n * sizeof *scored, cudaMemcpyHostToDevice, d->stream));
    return LILY_OK;
}

/* ---- stages ---- */

static uint32_t first_stage(const lily_plan *p, enum lily_segment first)
{
    return first == LILY_FORWARD ? 0 : p->segment_end[first - 1];
}

/* A long run is kept few layers ahead of the device, so that cancelling takes effect. */
static int keep_pace(cuda_run *r, uint32_t i, const atomic_bool *cancel, uint32_t *layers, bool *cancelled, lily_err *e)
{
    lily_dev *d = r->dev;
    *cancelled = cancel && atomic_load_explicit(cancel, memory_order_relaxed);
    if (*cancelled || !cancel || r->tokens == 1 || i == 0 || r->plan->stages[i].layer == r->plan->stages[i - 1].layer)
        return LILY_OK;
    CU(cudaEventRecord(d->layer[*layers % CUDA_ANSWERS], d->stream));
    if (++*layers >= CUDA_ANSWERS) CU(cudaEventSynchronize(d->layer[*layers % CUDA_ANSWERS]));
    return LILY_OK;
}

static int put_stages(cuda_run *r, uint32_t begin, uint32_t end, const atomic_bool *cancel, bool *cancelled, lily_err *e)
{
    uint32_t layers = 0;
    cudaEvent_t *at = r->exec->stage_event;
    if (at) CU(cudaEventRecord(at[begin], r->dev->stream));
    for (uint32_t i = begin; i < end; i++) {
        TRY(keep_pace(r, i, cancel, &layers, cancelled, e));
        if (*cancelled) return LILY_OK;
        r->stage = &r->plan->stages[i];
        TRY(cuda_run_row(r, e));
        if (at) CU(cudaEventRecord(at[i + 1], r->dev->stream));
        if (!r->exec->watch) continue;
        CU(cudaStreamSynchronize(r->dev->stream));
        r->exec->watch(r->exec->watch_arg, r->exec, i);
    }
    return LILY_OK;
}

static int capture(cuda_run *r, uint32_t begin, uint32_t end, cudaGraphExec_t *out, lily_err *e)
{
    cudaGraph_t graph = NULL;
    bool never;
    CU(cudaStreamBeginCapture(r->dev->stream, cudaStreamCaptureModeThreadLocal));
    int rc = put_stages(r, begin, end, NULL, &never, e);
    cudaError_t ended = cudaStreamEndCapture(r->dev->stream, &graph);
    if (rc == LILY_OK && ended == cudaSuccess) ended = cudaGraphInstantiate(out, graph, 0);
    if (graph) cudaGraphDestroy(graph);
    TRY(rc);
    CU(ended);
    return LILY_OK;
}

/* Runs of so few tokens are worth a graph. */
enum { FEW_TOKENS = 8 };

/* Whether what is put on the stream is the same for every run of so many tokens. */
static bool is_fixed(const cuda_run *r, enum lily_segment last, const lily_lane *lane)
{
    const uint64_t off = r->plan->ablated;
    const bool host_routes = r->plan->mode == LILY_PREFILL && (off & lily_bit(ABLATE_DEVICE_ROUTING));
    return r->tokens <= FEW_TOKENS && !(off & lily_bit(ABLATE_GRAPH)) && !host_routes && !r->exec->watch &&
           !r->exec->stage_event && (last < LILY_PICK || lane->pick);
}

/* Few tokens: the second time in a row that a segment is run with so many it is captured, and from then on launched. */
static int put(cuda_run *r, enum lily_segment first, enum lily_segment last, const lily_lane *lane, bool *cancelled,
               lily_err *e)
{
    lily_exec *x = r->exec;
    const uint32_t begin = first_stage(r->plan, first), end = r->plan->segment_end[last];
    *cancelled = lane->cancel && atomic_load_explicit(lane->cancel, memory_order_relaxed);
    if (*cancelled) return LILY_OK;
    if (!is_fixed(r, last, lane)) return put_stages(r, begin, end, lane->cancel, cancelled, e);
    cudaGraphExec_t *graph = &x->graph[first][last];
    const uint32_t kind = 2 * r->tokens + r->scored;
    if (x->graph_kind[first][last] != kind) {
        if (*graph) CU(cudaGraphExecDestroy(*graph));
        *graph = NULL;
        x->graph_kind[first][last] = kind;
        x->warm[first][last] = 0;
    }
    if (x->warm[first][last]++ == 0) return put_stages(r, begin, end, lane->cancel, cancelled, e);
    if (!*graph) TRY(capture(r, begin, end, graph, e));
    CU(cudaGraphLaunch(*graph, r->dev->stream));
    return LILY_OK;
}

/* ---- a run ---- */

static int after_forward(lily_dev *d, const lily_lane *lane, cuda_snapshot **mark, int rc, bool cancelled, lily_err *e)
{
    lily_state *s = lane->state;
    if (rc == LILY_OK && !cancelled) {
        cuda_marks_keep(s, mark, lane->n_marks);
        s->position += lane->n_tokens;
        return LILY_OK;
    }
    lily_err other;
    cudaStreamSynchronize(d->stream);
    d->there.recurrent = NULL;
    cuda_marks_free(s, mark, lane->n_marks);
    int back = cuda_state_recover(s, rc == LILY_OK ? e : &other);
    return rc == LILY_OK ? back : rc;
}

/* What the lane on the device will hold when the run has ended. */
static void foresee(lily_dev *d, const cuda_run *r, enum lily_segment last, const lily_lane *lane)
{
    if (last != LILY_PICK || !r->picks) return;
    if (r->forward) d->there.position += r->tokens;
    d->there.turn++;
    d->token_known = false;
    d->token_owner = lane->state;
}

static int run(cuda_run *r, enum lily_segment first, enum lily_segment last, const lily_lane *lane, bool *cancelled, lily_err *e)
{
    lily_dev *d = r->dev;
    cuda_snapshot **mark = NULL;
    if (first == LILY_FORWARD) {
        TRY(cuda_state_own(lane->state, r->tokens, e));
        TRY(cuda_marks_new(lane->state, lane, &mark, e));
    }
    int rc = send_lane(d, r->exec, first, lane, mark, e);
    if (rc == LILY_OK) rc = send_tokens(d, r->exec, lane, e);
    if (rc == LILY_OK) rc = put(r, first, last, lane, cancelled, e);
    if (first == LILY_FORWARD) rc = after_forward(d, lane, mark, rc, *cancelled, e);
    if (rc == LILY_OK && !*cancelled) foresee(d, r, last, lane);
    return rc;
}

int cuda_submit(lily_dev *d, lily_exec *x, enum lily_segment first, enum lily_segment last, const lily_lane *lane,
                uint32_t n_lanes, uint64_t *ticket, lily_err *e)
{
    TRY(check_lane(d, x, first, lane, n_lanes, e));
    const unsigned at = (unsigned)((d->newest + 1) % CUDA_ANSWERS);
    if (lane->n_tokens > 1 || lane->scored || d->newest + 1 >= CUDA_ANSWERS) {
        /* What is in pinned memory must have been read before it is written again. */
        const unsigned busy = lane->n_tokens > 1 || lane->scored ? (unsigned)(d->newest % CUDA_ANSWERS) : at;
        CU(cudaEventSynchronize(d->ended[busy]));
    }
    cuda_run r = {.dev = d,
                  .exec = x,
                  .weights = x->weights,
                  .config = x->weights->model->config,
                  .plan = x->plan,
                  .tokens = lane->n_tokens,
                  .half = x->plan->max_tokens > 1,
                  .given = lane->n_tokens > 1,
                  .scored = lane->scored,
                  .picks = lane->pick,
                  .forward = first == LILY_FORWARD,
                  .n_vocab = lane->pick ? lane->pick->n_vocab : (int32_t)x->weights->model->config->vocab};
    bool cancelled = false;
    x->last_tokens = lane->n_tokens;
    const uint32_t turn = d->there.turn;
    CU(cudaEventRecord(d->started[at], d->stream));
    TRY(run(&r, first, last, lane, &cancelled, e));
    CU(cudaEventRecord(d->ended[at], d->stream));
    *ticket = ++d->newest;
    d->run[at] = (struct cuda_ticket){.ticket = *ticket,
                                      .exec = x,
                                      .tokens = lane->n_tokens,
                                      .turn = turn,
                                      .picked = last == LILY_PICK && lane->pick,
                                      .scored = last >= LILY_HEAD && lane->scored,
                                      .cancelled = cancelled,
                                      .n_logprobs = lane->pick ? lane->pick->n_logprobs : 0};
    return LILY_OK;
}

static int take_answer(lily_dev *d, const struct cuda_ticket *k, lily_done *done, lily_err *e)
{
    const cuda_answer *a = &d->answer[k->turn % CUDA_ANSWERS];
    if (a->fault == CUDA_NOT_A_NUMBER)
        return lily_fail(e, LILY_DEVICE, "the logit of token %d is not a number below infinity", a->fault_token);
    if (a->fault == CUDA_NOTHING_ALLOWED) return lily_fail(e, LILY_ARGUMENT, "no token is allowed to follow");
    done->token = a->token;
    done->logprob = a->logprob;
    for (int32_t i = 0; i < k->n_logprobs && i < CUDA_MAX_TOP; i++)
        done->top[i] = (lily_top){a->top_token[i], a->top_logprob[i]};
    if (k->ticket == d->newest) {
        d->there.token = a->token;
        d->token_known = true;
    }
    return LILY_OK;
}

static int take_scores(const struct cuda_ticket *k, lily_done *done, lily_err *e)
{
    done->scores = k->exec->scores;
    done->best = (const int32_t *)(const void *)(k->exec->scores + k->exec->plan->max_tokens);
    for (uint32_t t = 0; t < k->tokens; t++)
        if (isinf(done->scores[t]) && done->scores[t] > 0)
            return lily_fail(e, LILY_DEVICE, "cuda: the logits after token %u of the run are not all numbers", t);
    return LILY_OK;
}

int cuda_wait(lily_dev *d, uint64_t ticket, lily_done *done, uint32_t n_lanes, lily_err *e)
{
    const unsigned at = (unsigned)(ticket % CUDA_ANSWERS);
    const struct cuda_ticket *k = &d->run[at];
    if (ticket == 0 || ticket != k->ticket || n_lanes != 1)
        return lily_fail(e, LILY_ARGUMENT, "run %llu is not among the newest", (unsigned long long)ticket);
    CU(cudaEventSynchronize(d->ended[at]));
    CU(cudaGetLastError());
    float ms = 0;
    CU(cudaEventElapsedTime(&ms, d->started[at], d->ended[at]));
    *done = (lily_done){.token = -1, .device_ns = (uint64_t)((double)ms * 1e6), .cancelled = k->cancelled};
    if (k->cancelled) return LILY_OK;
    if (k->scored) TRY(take_scores(k, done, e));
    return k->picked ? take_answer(d, k, done, e) : LILY_OK;
}

/* ---- a look inside ---- */

/* A norm that was left to be applied: see cuda_norm_tail. */
static int apply_norm(float *x, size_t n, const uint8_t *behind, const lily_config *c, lily_err *e)
{
    float tail[1 + 1024];
    uint32_t parts;
    CU(cudaMemcpy(tail, behind, sizeof tail, cudaMemcpyDeviceToHost));
    memcpy(&parts, tail, sizeof parts);
    double sum = 0;
    for (uint32_t i = 0; i < parts; i++) sum += (double)tail[1 + i];
    const float scale = parts ? (float)(1 / sqrt(sum / c->hidden + (double)c->eps)) : 1;
    for (size_t i = 0; i < n; i++) x[i] *= scale;
    return LILY_OK;
}

/* The same of each head of DNG. */
static int apply_squares(float *x, size_t n, const uint8_t *behind, const lily_config *c, lily_err *e)
{
    for (size_t head = 0; head < n / CUDA_HEAD; head++) {
        float part[CUDA_QUARTERS];
        CU(cudaMemcpy(part, behind + head * sizeof part, sizeof part, cudaMemcpyDeviceToHost));
        double sum = 0;
        for (int i = 0; i < CUDA_QUARTERS; i++) sum += (double)part[i];
        const float scale = (float)(1 / sqrt(sum / CUDA_HEAD + (double)c->eps));
        for (int i = 0; i < CUDA_HEAD; i++) x[head * CUDA_HEAD + (size_t)i] *= scale;
    }
    return LILY_OK;
}

int cuda_peek(lily_dev *d, lily_exec *x, unsigned slot, void *dst, size_t room, lily_err *e)
{
    const lily_config *c = x->weights->model->config;
    if (slot >= N_SLOTS || x->plan->slot_at[slot] == LILY_NO_PLACE)
        return lily_fail(e, LILY_ARGUMENT, "the plan does not keep slot %s", lily_slot_name(slot));
    const size_t n = (size_t)lily_slot_elements(slot, c, x->last_tokens);
    if (n * 4 > room) return lily_fail(e, LILY_ARGUMENT, "slot %s has %zu bytes, not %zu", lily_slot_name(slot), n * 4, room);
    const uint8_t *at = x->memory + x->plan->slot_at[slot];
    const bool half = x->plan->max_tokens > 1 && cuda_is_half(slot);
    CU(cudaStreamSynchronize(d->stream));
    if (half) {
        float *wide;
        CU(cudaMalloc((void **)&wide, n * 4));
        cudaError_t rc = cuda_convert_bf16((const uint16_t *)(const void *)at, wide, n, d->stream);
        if (rc == cudaSuccess) rc = cudaStreamSynchronize(d->stream);
        if (rc == cudaSuccess) rc = cudaMemcpy(dst, wide, n * 4, cudaMemcpyDeviceToHost);
        cudaFree(wide);
        CU(rc);
        return LILY_OK;
    }
    CU(cudaMemcpy(dst, at, n * 4, cudaMemcpyDeviceToHost));
    if (slot == SLOT_DNG && cuda_leaves_squares(x->plan)) return apply_squares(dst, n, at + n * 4, c, e);
    if (x->plan->max_tokens > 1 || (slot != SLOT_N && slot != SLOT_M)) return LILY_OK;
    return apply_norm(dst, n, at + n * 4, c, e);
}

void cuda_watch(lily_exec *x, lily_watch_fn *watch, void *arg)
{
    x->watch = watch;
    x->watch_arg = arg;
}

static int poke_bytes(lily_dev *d, void *to, const void *from, size_t n, lily_err *e)
{
    CU(cudaMemcpyAsync(to, from, n, cudaMemcpyHostToDevice, d->stream));
    CU(cudaStreamSynchronize(d->stream));
    return LILY_OK;
}

/* No norm is left to be applied to the heads of DNG. */
static int poke_whole_heads(lily_dev *d, float *squares, size_t heads, lily_err *e)
{
    const float one[CUDA_QUARTERS] = {CUDA_HEAD};
    for (size_t i = 0; i < heads; i++) TRY(poke_bytes(d, squares + i * CUDA_QUARTERS, one, sizeof one, e));
    return LILY_OK;
}

int cuda_poke(lily_dev *d, lily_exec *x, unsigned slot, const void *src, size_t bytes, lily_err *e)
{
    const size_t n = bytes / 4, place = x->plan->slot_at[slot];
    if (place == LILY_NO_PLACE || n != lily_slot_elements(slot, x->weights->model->config, x->last_tokens))
        return lily_fail(e, LILY_ARGUMENT, "slot %s cannot be set to %zu bytes", lily_slot_name(slot), bytes);
    uint8_t *to = x->memory + place;
    if (x->plan->max_tokens == 1 || !cuda_is_half(slot)) {
        const uint32_t no_tail = 0;     /* the values are normed */
        TRY(poke_bytes(d, to, src, bytes, e));
        if (slot == SLOT_DNG && cuda_leaves_squares(x->plan)) return poke_whole_heads(d, (float *)(void *)to + n, n / CUDA_HEAD, e);
        if (x->plan->max_tokens > 1 || (slot != SLOT_N && slot != SLOT_M)) return LILY_OK;
        return poke_bytes(d, to + bytes, &no_tail, sizeof no_tail, e);
    }
    uint16_t *half = lily_calloc(n, sizeof *half);
    if (!half) return lily_no_memory(e, n * sizeof *half, "a slot");
    for (size_t i = 0; i < n; i++) half[i] = lily_float_to_bf16(((const float *)src)[i]);
    int rc = poke_bytes(d, to, half, n * sizeof *half, e);
    lily_free(half);
    return rc;
}
