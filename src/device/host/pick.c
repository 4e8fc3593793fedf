#include "device/host/pick.h"

#include <math.h>
#include <string.h>

#include "base/random.h"

typedef struct picker {
    const lily_pick *pick;
    uint32_t n;            /* n_vocab */
    float *logit, *weight; /* [n] */
    uint32_t *heap;        /* [n] ids */
    uint32_t n_heap;
    bool worst_first; /* the heap's order */
} picker;

size_t lily_pick_room(uint32_t vocab)
{
    return (size_t)vocab * (2 * sizeof(float) + sizeof(uint32_t));
}

/* ---- the plain softmax ---- */

static int check_numbers(const float *logits, uint32_t n, lily_err *e)
{
    for (uint32_t i = 0; i < n; i++)
        if (!(logits[i] < INFINITY))
            return lily_fail(e, LILY_DEVICE, "the logit of token %u is %s", i,
                             isnan(logits[i]) ? "not a number" : "infinite");
    return LILY_OK;
}

static uint32_t argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static double log_sum_exp(const float *x, uint32_t n)
{
    double most = x[argmax(x, n)], sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (x[i] > most - 50) sum += exp(x[i] - most); /* all the others together are below 1e-16 */
    return most + log(sum);
}

/* The `room` largest, best first, lowest id on ties. */
static void find_top(const float *x, uint32_t n, double normaliser, lily_top *top, uint32_t room)
{
    uint32_t held = 0;
    for (uint32_t i = 0; room && i < n; i++) {
        if (held == room && x[i] <= x[top[held - 1].token]) continue;
        uint32_t at = held < room ? held++ : held - 1;
        for (; at && x[i] > x[top[at - 1].token]; at--) top[at] = top[at - 1];
        top[at].token = (int32_t)i;
    }
    for (uint32_t i = 0; i < held; i++) top[i].logprob = (float)(x[top[i].token] - normaliser);
    for (uint32_t i = held; i < room; i++) top[i] = (lily_top){-1, -INFINITY};
}

/* ---- what the caller changes about it ---- */

static void adjust(picker *p, const float *logits, const uint32_t *count)
{
    const lily_pick *k = p->pick;
    memcpy(p->logit, logits, p->n * sizeof *logits);
    for (uint32_t i = 0; i < k->n_bias; i++)
        if (k->bias[i].token >= 0 && (uint32_t)k->bias[i].token < p->n)
            p->logit[k->bias[i].token] += k->bias[i].add;
    for (uint32_t i = 0; k->allow && i < p->n; i++)
        if (!(k->allow[i / 32] >> (i % 32) & 1)) p->logit[i] = -INFINITY;
    if (!count || (k->repetition == 1 && k->presence == 0 && k->frequency == 0)) return;
    for (uint32_t i = 0; i < p->n; i++) {
        if (!count[i]) continue;
        float l = p->logit[i];
        p->logit[i] =
            (l > 0 ? l / k->repetition : l * k->repetition) - k->presence - k->frequency * (float)count[i];
    }
}

/* ---- the candidates in order ---- */

static bool before(const picker *p, uint32_t a, uint32_t b)
{
    return p->logit[a] > p->logit[b] || (p->logit[a] == p->logit[b] && a < b);
}

/* Does a belong above b in the heap? */
static bool above(const picker *p, uint32_t a, uint32_t b)
{
    return p->worst_first ? before(p, b, a) : before(p, a, b);
}

static void sift_down(picker *p, uint32_t i)
{
    uint32_t id = p->heap[i];
    for (uint32_t child; (child = 2 * i + 1) < p->n_heap; i = child) {
        if (child + 1 < p->n_heap && above(p, p->heap[child + 1], p->heap[child])) child++;
        if (!above(p, p->heap[child], id)) break;
        p->heap[i] = p->heap[child];
    }
    p->heap[i] = id;
}

static void order_heap(picker *p)
{
    for (uint32_t i = p->n_heap / 2; i-- > 0;) sift_down(p, i);
}

static uint32_t pop(picker *p)
{
    uint32_t first = p->heap[0];
    p->heap[0] = p->heap[--p->n_heap];
    if (p->n_heap) sift_down(p, 0);
    return first;
}

static uint32_t last_of_all(const picker *p)
{
    uint32_t last = 0;
    for (uint32_t i = 1; i < p->n; i++)
        if (before(p, last, i)) last = i;
    return last;
}

/* The last candidate that top_k keeps: a heap of the k best so far has it on top. */
static uint32_t last_of_top_k(picker *p, uint32_t k)
{
    uint32_t i = 0;
    p->worst_first = true;
    for (p->n_heap = 0; i < p->n && p->n_heap < k; i++)
        if (p->logit[i] > -INFINITY) p->heap[p->n_heap++] = i;
    order_heap(p);
    for (; i < p->n; i++) {
        if (!before(p, i, p->heap[0])) continue;
        p->heap[0] = i;
        sift_down(p, 0);
    }
    return p->heap[0];
}

/* Building the heap is linear, and only what is kept is sorted. */
static uint32_t last_of_top_p(picker *p, uint32_t last, double sum)
{
    double reached = 0, wanted = p->pick->top_p * sum;
    p->worst_first = false;
    p->n_heap = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->logit[i] > -INFINITY && !before(p, last, i)) p->heap[p->n_heap++] = i;
    order_heap(p);
    for (;;) {
        uint32_t id = pop(p);
        reached += p->weight[id];
        if (reached >= wanted || !p->n_heap) return id;
    }
}

/* ---- the draw ---- */

static bool kept(const picker *p, uint32_t i, uint32_t last)
{
    return !before(p, last, i) && p->weight[i] > 0 && !(p->weight[i] < p->pick->min_p);
}

static uint32_t draw(picker *p, uint32_t best)
{
    const lily_pick *k = p->pick;
    const double most = p->logit[best];
    const bool some = k->top_k > 0 && (uint32_t)k->top_k < p->n;
    uint32_t last = some ? last_of_top_k(p, (uint32_t)k->top_k) : last_of_all(p), chosen = best;
    double sum = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        if (before(p, last, i)) continue; /* its weight is never looked at */
        p->weight[i] = (float)exp((p->logit[i] - most) / k->temperature);
        sum += p->weight[i];
    }
    if (k->top_p < 1) last = last_of_top_p(p, last, sum);
    sum = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (kept(p, i, last)) sum += p->weight[i];
    double reached = 0, wanted = lily_uniform(k->seed, k->draw) * sum;
    for (uint32_t i = 0; i < p->n && reached <= wanted; i++) {
        if (!kept(p, i, last)) continue;
        reached += p->weight[i];
        chosen = i;
    }
    return chosen;
}

int lily_pick_token(const float *logits, const lily_pick *pick, const uint32_t *count, void *room,
                    lily_done *done, lily_err *e)
{
    picker p = {.pick = pick, .n = (uint32_t)pick->n_vocab, .logit = room};
    p.weight = p.logit + p.n;
    p.heap = (uint32_t *)(void *)(p.weight + p.n);
    TRY(check_numbers(logits, p.n, e));
    adjust(&p, logits, count);
    uint32_t chosen = argmax(p.logit, p.n);
    if (!(p.logit[chosen] > -INFINITY)) return lily_fail(e, LILY_ARGUMENT, "no token is allowed to follow");
    if (pick->temperature > 0 && pick->top_k != 1) chosen = draw(&p, chosen);

    double normaliser = log_sum_exp(logits, p.n);
    uint32_t n_top = pick->n_logprobs < 0              ? 0
                     : pick->n_logprobs > LILY_MAX_TOP ? LILY_MAX_TOP
                                                       : (uint32_t)pick->n_logprobs;
    find_top(logits, p.n, normaliser, done->top, n_top);
    done->token = (int32_t)chosen;
    done->logprob = (float)(logits[chosen] - normaliser);
    return LILY_OK;
}
