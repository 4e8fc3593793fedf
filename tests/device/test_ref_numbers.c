/* test_ref_numbers.c - ref against the float64 oracle: logits, greedy tokens, every layer, states. */
#include "rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double tolerance = 1e-4; /* in logits of a few units, for float32 arithmetic */
enum { MOST_TOKENS = 256 };

static const char *const models[] = {"tiny", "odd"};

#define FOR_MODELS(i) for (size_t i = 0; i < sizeof models / sizeof *models; i++)

typedef struct bench {
    rig_model model;
    rig_numbers numbers;
    rig rig;
} bench;

static void bench_open(bench *b, const char *name)
{
    rig_model_open(&b->model, rig_dir(name));
    rig_numbers_open(&b->numbers, name);
    rig_open(&b->rig, b->model.model, "ref", MOST_TOKENS, 0);
}

static void bench_close(bench *b)
{
    rig_close(&b->rig);
    rig_numbers_close(&b->numbers);
    rig_model_close(&b->model);
}

static const float *array(const bench *b, const char *fmt, long n)
{
    char name[64];
    size_t size;
    snprintf(name, sizeof name, fmt, n);
    return rig_array(&b->numbers, name, &size);
}

static void check_close(const char *what, const float *got, const float *want, size_t n, double most)
{
    double d = rig_difference(got, want, n);
    if (!(d <= most)) fail_msg("%s: differs by %g, %g is allowed", what, d, most);
}

static void logits_after_prompts(void **state)
{
    (void)state;
    FOR_MODELS(i)
    {
        bench b;
        bench_open(&b, models[i]);
        size_t k;
        json_t *p;
        json_array_foreach (json_object_get(b.numbers.doc, "prefill"), k, p) {
            int32_t ids[MOST_TOKENS], best[MOST_TOKENS];
            uint32_t n = (uint32_t)rig_ints(json_object_get(p, "ids"), ids, MOST_TOKENS);
            rig_ints(json_object_get(p, "argmax"), best, MOST_TOKENS);
            lily_state *s = rig_state(&b.rig);
            lily_done done = rig_feed(&b.rig, s, ids, n, MOST_TOKENS);
            check_close(models[i], done.logits, array(&b, "prefill.%ld.last", n), b.rig.c->vocab, tolerance);
            assert_int_equal(done.token, best[n - 1]);
            b.rig.ops->state_free(b.rig.dev, s);
        }
        bench_close(&b);
    }
}

static size_t prompt(const bench *b, uint32_t n, int32_t *ids)
{
    size_t k;
    json_t *p;
    json_array_foreach (json_object_get(b->numbers.doc, "prefill"), k, p)
        if (json_integer_value(json_object_get(p, "n")) == n)
            return rig_ints(json_object_get(p, "ids"), ids, MOST_TOKENS);
    fail_msg("no prompt of %u tokens", n);
    return 0;
}

static void logits_at_every_position(void **state)
{
    (void)state;
    FOR_MODELS(i)
    {
        bench b;
        bench_open(&b, models[i]);
        int32_t ids[MOST_TOKENS];
        size_t n = prompt(&b, 65, ids);
        const uint32_t vocab = b.rig.c->vocab;
        const float *want = array(&b, "prefill.65.all", 0);
        lily_state *s = rig_state(&b.rig);
        for (size_t t = 0; t < n; t++) {
            lily_done done = rig_feed(&b.rig, s, ids + t, 1, 0);
            check_close("decoded", done.logits, want + t * vocab, vocab, tolerance);
        }
        b.rig.ops->state_free(b.rig.dev, s);
        bench_close(&b);
    }
}

/* Hands each token on inside the device.  The oracle's tokens hold up to the first margin that float32 may
 * turn. */
static void greedy_tokens(void **state)
{
    (void)state;
    FOR_MODELS(i)
    {
        bench b;
        bench_open(&b, models[i]);
        size_t k, compared = 0;
        json_t *g;
        json_array_foreach (json_object_get(b.numbers.doc, "greedy"), k, g) {
            int32_t ids[MOST_TOKENS], want[64];
            uint32_t n = (uint32_t)json_integer_value(json_object_get(g, "n"));
            size_t steps = rig_ints(json_object_get(g, "tokens"), want, 64);
            const float *rows = array(&b, "greedy.%ld.logits", n);
            lily_pick pick = rig_greedy_pick;
            pick.n_vocab = (int32_t)b.rig.c->vocab;
            prompt(&b, n, ids);
            lily_state *s = rig_state(&b.rig);
            lily_done done = rig_feed(&b.rig, s, ids, n, MOST_TOKENS);
            for (size_t t = 0; t < steps; t++) {
                check_close("greedy", done.logits, rows + t * b.rig.c->vocab, b.rig.c->vocab, tolerance);
                if (json_number_value(json_array_get(json_object_get(g, "margin"), t)) < 10 * tolerance)
                    break;
                assert_int_equal(done.token, want[t]);
                compared++;
                const lily_lane lane = {.state = s, .n_tokens = 1, .pick = &pick};
                done = rig_run(&b.rig, b.rig.decode, LILY_PICK, &lane);
            }
            b.rig.ops->state_free(b.rig.dev, s);
        }
        assert_int_equal(compared, 72);
        bench_close(&b);
    }
}

static double rms(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return sqrt(sum / (double)n);
}

/* What layer `last` makes of seven tokens: the model is cut behind it, and its slots are kept. */
static void check_layer(const bench *b, uint32_t last, const int32_t *ids, uint32_t n)
{
    lily_config config = *b->model.model->config;
    lily_model cut = *b->model.model;
    config.layers = last + 1;
    cut.config = &config;
    rig r;
    rig_open(&r, &cut, "ref", 64,
             lily_bit(SLOT_X) | lily_bit(SLOT_MIX) | lily_bit(SLOT_N) | lily_bit(SLOT_TOPI));
    lily_state *s = rig_state(&r);
    rig_feed(&r, s, ids, n, 64);
    lily_err e = {0};
    float got[MOST_TOKENS * 8];
    size_t size = (size_t)n * config.hidden;
    const struct {
        unsigned slot;
        const char *name;
    } parts[] = {{SLOT_MIX, "layers.%ld.mixer"}, {SLOT_X, "layers.%ld.out"}, {SLOT_N, "layers.final_norm"}};
    for (size_t i = 0; i < (last + 1 == b->rig.c->layers ? 3u : 2u); i++) {
        const float *want = array(b, parts[i].name, last);
        check_ok(r.ops->peek(r.dev, r.prefill, parts[i].slot, got, sizeof got, &e), &e);
        check_close(parts[i].name, got, want, size, 1e-5 * rms(want, size));
    }
    int32_t experts[64], want_experts[64];
    const json_t *rows =
        json_array_get(json_object_get(json_object_get(b->numbers.doc, "inside"), "experts"), last);
    check_ok(r.ops->peek(r.dev, r.prefill, SLOT_TOPI, experts, sizeof experts, &e), &e);
    for (uint32_t t = 0; t < n; t++) {
        rig_ints(json_array_get(rows, t), want_experts, 64);
        assert_memory_equal(experts + t * config.top_k, want_experts, config.top_k * sizeof *experts);
    }
    r.ops->state_free(r.dev, s);
    rig_close(&r);
}

static void every_layer(void **state)
{
    (void)state;
    FOR_MODELS(i)
    {
        bench b;
        bench_open(&b, models[i]);
        int32_t ids[MOST_TOKENS];
        uint32_t n = (uint32_t)rig_ints(json_object_get(json_object_get(b.numbers.doc, "inside"), "ids"), ids,
                                        MOST_TOKENS);
        for (uint32_t layer = 0; layer < b.rig.c->layers; layer++) check_layer(&b, layer, ids, n);
        bench_close(&b);
    }
}

static void states(void **state)
{
    (void)state;
    FOR_MODELS(i)
    {
        bench b;
        bench_open(&b, models[i]);
        int32_t ids[MOST_TOKENS];
        uint32_t n = (uint32_t)rig_ints(json_object_get(json_object_get(b.numbers.doc, "inside"), "ids"), ids,
                                        MOST_TOKENS);
        lily_state *s = rig_state(&b.rig);
        rig_feed(&b.rig, s, ids, n, 3);
        lily_err e = {0};
        size_t got, size, room = 1 << 20;
        float *x = malloc(room * sizeof *x);
        const lily_dev_ops *o = b.rig.ops;
        const float *want = rig_array(&b.numbers, "state.0.conv", &size);
        check_ok(o->peek_state(b.rig.dev, s, SLOT_TAIL, 0, x, room, &got, &e), &e);
        assert_int_equal(got, size);
        check_close("tail", x, want, size, 1e-5);
        want = rig_array(&b.numbers, "state.0.recurrent", &size);
        check_ok(o->peek_state(b.rig.dev, s, SLOT_S, 0, x, room, &got, &e), &e);
        assert_int_equal(got, size);
        check_close("S", x, want, size, 1e-5);
        check_ok(o->peek_state(b.rig.dev, s, SLOT_KV, 3, x, room, &got, &e), &e);
        want = rig_array(&b.numbers, "state.3.k", &size);
        assert_int_equal(got, 2 * size);
        check_close("keys", x, want, size, 1e-5);
        want = rig_array(&b.numbers, "state.3.v", &size);
        check_close("values", x + size, want, size, 1e-5);
        check_fails(o->peek_state(b.rig.dev, s, SLOT_KV, 0, x, room, &got, &e), LILY_ARGUMENT, &e);
        check_fails(o->peek_state(b.rig.dev, s, SLOT_KV, 3, x, 1, &got, &e), LILY_ARGUMENT, &e);
        free(x);
        o->state_free(b.rig.dev, s);
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_after_prompts),
        cmocka_unit_test(logits_at_every_position),
        cmocka_unit_test(greedy_tokens),
        cmocka_unit_test(every_layer),
        cmocka_unit_test(states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
