/* speed.c - the engine's own path with random tokens, timed. */
#include "run/speed.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"

int lily_speed_check(const lily_loaded *m, const lily_timing *t, uint64_t more, uint32_t *longest, lily_err *e)
{
    *longest = 0;
    if (t->n_lengths == 0 || t->samples == 0 || t->decode_tokens == 0)
        return lily_fail(e, LILY_ARGUMENT, "a benchmark needs a length, a sample and a token at least");
    for (uint32_t i = 0; i < t->n_lengths; i++) {
        if (t->lengths[i] == 0) return lily_fail(e, LILY_ARGUMENT, "a context of 0 tokens cannot be measured");
        if (t->lengths[i] > *longest) *longest = t->lengths[i];
    }
    if (*longest + more > m->context)
        return lily_fail(e, LILY_CONTEXT, "%u tokens and %llu more do not fit into a context of %u", *longest,
                         (unsigned long long)more, m->context);
    return LILY_OK;
}

int32_t *lily_speed_tokens(const lily_loaded *m, size_t n)
{
    int32_t *tokens = lily_calloc(n, sizeof *tokens);
    for (size_t i = 0; tokens && i < n; i++) tokens[i] = (int32_t)(lily_uniform(0, i) * m->config->vocab);
    return tokens;
}

/* One token, then those that are chosen, as in a reply; *token: the next. */
static int reply(lily_session *s, const lily_loaded *m, int32_t *token, uint32_t n, bool first, lily_err *e)
{
    const lily_pick greedy = {.top_p = 1, .repetition = 1, .n_vocab = (int32_t)m->config->vocab};
    for (uint32_t i = 0; i < n; i++) {
        lily_done done;
        lily_feed f = {.tokens = token, .n = 1, .pick = &greedy, .count = !first || i > 0};
        TRY(lily_session_step(s, &f, lily_hands_over(m) && i + 1 < n ? &greedy : NULL, &done, e));
        *token = done.token;
    }
    return LILY_OK;
}

int lily_speed_prefill(lily_session *s, const lily_loaded *m, const int32_t *tokens, uint32_t length, int32_t *token,
                       double *tok_s, lily_err *e)
{
    lily_reading p = {.tokens = tokens, .n = length - 1, .fresh = true};
    *token = tokens[length - 1];
    uint64_t start = lily_now_ns();
    TRY(lily_session_begin(s, &p, e));
    while (p.n_read < p.n) TRY(lily_session_read(s, &p, UINT32_MAX, NULL, e));
    TRY(reply(s, m, token, 1, true, e));
    *tok_s = length / lily_seconds_since(start);
    return LILY_OK;
}

int lily_speed_decode(lily_session *s, const lily_loaded *m, int32_t *token, uint32_t n, double *tok_s, lily_err *e)
{
    uint64_t start = lily_now_ns();
    TRY(reply(s, m, token, n, false, e));
    *tok_s = n / lily_seconds_since(start);
    return LILY_OK;
}

int lily_speed_verify(lily_session *s, const lily_loaded *m, const int32_t *tokens, uint32_t rows, uint32_t runs,
                      double *tok_s, lily_err *e)
{
    enum { UNMEASURED = 2 };
    uint64_t start = 0;
    for (uint32_t i = 0; i < runs + UNMEASURED; i++) {
        lily_done done;
        lily_feed f = {.tokens = tokens + (size_t)i * rows, .n = rows, .exec = m->run_prefill, .scored = tokens};
        if (i == UNMEASURED) start = lily_now_ns();
        TRY(lily_session_feed(s, &f, &done, e));
    }
    *tok_s = (double)rows * runs / lily_seconds_since(start);
    return LILY_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double lily_median(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}
