/* test_pick.c - the choice of a token: every rule of host/pick.h, and that draws follow their weights. */
#include "../check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "device/host/pick.h"

enum { MOST = 4096 };

static float room[3 * MOST];

static const lily_pick neutral = {.temperature = 1, .top_p = 1, .repetition = 1};

static lily_done choose(const float *logits, uint32_t n, lily_pick pick, const uint32_t *count)
{
    lily_err e = {0};
    lily_done done = {.token = -1};
    assert_true(lily_pick_room(n) <= sizeof room);
    if (!pick.n_vocab) pick.n_vocab = (int32_t)n;
    check_ok(lily_pick_token(logits, &pick, count, room, &done, &e), &e);
    return done;
}

static void fill(float *logits, uint32_t n, uint64_t seed, float scale)
{
    for (uint32_t i = 0; i < n; i++) logits[i] = scale * (float)(lily_uniform(seed, i) - 0.5);
}

/* Draws many times and compares with the weights p[0 … n) by chi-square: with the fixed seed the value is one
 * number; the bound is the 0.9999 quantile (Wilson and Hilferty's approximation). */
static void check_distribution(const float *logits, uint32_t n, lily_pick pick, const double *p)
{
    enum { DRAWS = 40000 };
    uint32_t *seen = calloc(n, sizeof *seen);
    double sum = 0, chi = 0, freedom = -1;
    for (uint32_t i = 0; i < DRAWS; i++) {
        pick.draw = i;
        seen[choose(logits, n, pick, NULL).token]++;
    }
    for (uint32_t i = 0; i < n; i++) sum += p[i];
    double rest_p = 0, rest_seen = 0;
    for (uint32_t i = 0; i < n; i++) {
        double expected = p[i] / sum * DRAWS;
        if (p[i] == 0) assert_int_equal(seen[i], 0);
        if (expected < 10) {
            rest_p += expected;
            rest_seen += seen[i];
            continue;
        }
        chi += (seen[i] - expected) * (seen[i] - expected) / expected;
        freedom++;
    }
    if (rest_p >= 10) {
        chi += (rest_seen - rest_p) * (rest_seen - rest_p) / rest_p;
        freedom++;
    }
    free(seen);
    if (freedom < 1) return;
    double h = 2 / (9 * freedom), bound = freedom * pow(1 - h + 3.719 * sqrt(h), 3);
    if (!(chi < bound)) fail_msg("chi-square %g, %g is the bound for %g degrees", chi, bound, freedom);
}

/* The rule, slowly: sort, cut, weigh. */
static void expected_weights(const float *logits, uint32_t n, lily_pick pick, double *p)
{
    uint32_t order[MOST];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at && logits[i] > logits[order[at - 1]]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    uint32_t keep = pick.top_k > 0 && (uint32_t)pick.top_k < n ? (uint32_t)pick.top_k : n;
    double sum = 0, reached = 0, best = logits[order[0]];
    memset(p, 0, n * sizeof *p);
    for (uint32_t i = 0; i < keep; i++) sum += exp((logits[order[i]] - best) / pick.temperature);
    for (uint32_t i = 0; i < keep; i++) {
        double weight = exp((logits[order[i]] - best) / pick.temperature);
        if (weight >= pick.min_p) p[order[i]] = weight;
        reached += weight;
        if (pick.top_p < 1 && reached >= pick.top_p * sum) break;
    }
}

static void draws_follow_their_weights(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } cases[] = {
        {1, 1, 0, 0},       {0.7f, 1, 0, 0},  {2.5f, 1, 0, 0},      {1, 0.8f, 0, 0}, {1, 0.31f, 0, 0},
        {1, 1, 0, 5},       {0.5f, 1, 0, 20}, {1, 1, 0.2f, 0},      {1, 0.9f, 0, 7}, {1.3f, 0.95f, 0.1f, 10},
        {1, 0.5f, 0.5f, 3}, {1, 1, 0, 100},   {0.6f, 0.95f, 0, 20}, {1, 1, 1, 0}};
    float logits[100];
    double p[100];
    fill(logits, 100, 7, 6);
    logits[40] = logits[41] = logits[42] = logits[9]; /* ties */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lily_pick pick = neutral;
        pick.temperature = cases[i].temperature;
        pick.top_p = cases[i].top_p;
        pick.min_p = cases[i].min_p;
        pick.top_k = cases[i].top_k;
        pick.seed = 1000 + i;
        expected_weights(logits, 100, pick, p);
        check_distribution(logits, 100, pick, p);
    }
}

static void the_same_seed_is_the_same_draw(void **state)
{
    (void)state;
    float logits[500];
    fill(logits, 500, 3, 2);
    lily_pick pick = neutral;
    uint32_t differ = 0;
    for (uint32_t i = 0; i < 50; i++) {
        pick.seed = 5;
        pick.draw = i;
        int32_t a = choose(logits, 500, pick, NULL).token;
        assert_int_equal(choose(logits, 500, pick, NULL).token, a);
        pick.seed = 6;
        differ += choose(logits, 500, pick, NULL).token != a;
    }
    assert_true(differ > 40);
}

static void greedy_takes_the_first_of_the_largest(void **state)
{
    (void)state;
    float logits[MOST] = {0};
    lily_pick pick = neutral;
    for (int k = 0; k < 3; k++) {
        pick.temperature = k == 0 ? 0 : 1.5f;
        pick.top_k = k == 1 ? 1 : 0;
        pick.top_p = k == 2 ? 0 : 1; /* an empty nucleus keeps the best one */
        for (uint32_t seed = 1; seed < 40; seed++) {
            fill(logits, MOST, seed, 8);
            pick.draw = seed;
            uint32_t best = 0;
            for (uint32_t i = 0; i < MOST; i++)
                if (logits[i] > logits[best]) best = i;
            logits[(best + 1000) % MOST] = logits[best];
            uint32_t want = (best + 1000) % MOST < best ? (best + 1000) % MOST : best;
            assert_int_equal(choose(logits, MOST, pick, NULL).token, want);
        }
    }
    memset(logits, 0, sizeof logits);
    pick = neutral;
    pick.temperature = 0;
    assert_int_equal(choose(logits, MOST, pick, NULL).token, 0);
    pick.top_p = 1e-9f;
    pick.temperature = 1;
    assert_int_equal(choose(logits, MOST, pick, NULL).token, 0);
}

static void bias_and_mask(void **state)
{
    (void)state;
    float logits[64];
    fill(logits, 64, 11, 10);
    lily_pick pick = neutral;
    pick.temperature = 0;
    int32_t best = choose(logits, 64, pick, NULL).token;
    const lily_bias ban[] = {{best, -100}, {-5, 100}, {64, 100}};
    pick.bias = ban;
    pick.n_bias = 3;
    int32_t second = choose(logits, 64, pick, NULL).token;
    assert_int_not_equal(second, best);
    const lily_bias force = {63, 100};
    pick.bias = &force;
    pick.n_bias = 1;
    pick.temperature = 1;
    for (uint32_t i = 0; i < 200; i++) {
        pick.draw = i;
        assert_int_equal(choose(logits, 64, pick, NULL).token, 63);
    }
    /* The mask has the last word over the bias. */
    const uint32_t allow[2] = {1u << 5 | 1u << 6, 0};
    pick.allow = allow;
    for (uint32_t i = 0; i < 200; i++) {
        pick.draw = i;
        int32_t token = choose(logits, 64, pick, NULL).token;
        assert_true(token == 5 || token == 6);
        pick.top_k = (int32_t)(i % 4) * 20;
        pick.top_p = i % 3 ? 1 : 0.999f;
    }
    const uint32_t none[2] = {0, 0};
    pick.allow = none;
    pick.n_vocab = 64;
    lily_err e;
    lily_done done;
    check_fails(lily_pick_token(logits, &pick, NULL, room, &done, &e), LILY_ARGUMENT, &e);
}

static void penalties(void **state)
{
    (void)state;
    float logits[4] = {2, 1.5f, -1, -3};
    uint32_t count[4] = {0};
    lily_pick pick = neutral;
    pick.temperature = 0;
    count[0] = 1;
    pick.presence = 0.6f; /* 1.4 */
    assert_int_equal(choose(logits, 4, pick, count).token, 1);
    pick.presence = 0.4f; /* 1.6 */
    assert_int_equal(choose(logits, 4, pick, count).token, 0);
    pick.frequency = 0.05f; /* 1.55, twice 1.5: a tie goes to the lowest */
    assert_int_equal(choose(logits, 4, pick, count).token, 0);
    count[0] = 3; /* 1.45 */
    assert_int_equal(choose(logits, 4, pick, count).token, 1);
    pick = neutral;
    pick.temperature = 0;
    pick.repetition = 2; /* 1 */
    assert_int_equal(choose(logits, 4, pick, count).token, 1);
    count[1] = 1; /* 1 and 0.75 */
    assert_int_equal(choose(logits, 4, pick, count).token, 0);
    count[2] = 7;
    /* A negative logit is multiplied: -2 is no reason to take it. */
    const uint32_t only[1] = {1u << 2 | 1u << 3};
    pick.allow = only;
    assert_int_equal(choose(logits, 4, pick, count).token, 2);
    pick.repetition = 4; /* -4 */
    assert_int_equal(choose(logits, 4, pick, count).token, 3);
    /* Log-probabilities know nothing of all this. */
    pick.n_logprobs = 4;
    lily_done done = choose(logits, 4, pick, count);
    double sum = exp(2) + exp(1.5) + exp(-1) + exp(-3);
    assert_true(fabs(done.logprob - (-3 - log(sum))) < 1e-6);
    assert_true(fabs(done.top[0].logprob - (2 - log(sum))) < 1e-6);
    for (int32_t i = 0; i < 4; i++) assert_int_equal(done.top[i].token, i);
}

static void rows_without_text(void **state)
{
    (void)state;
    float logits[100];
    fill(logits, 100, 5, 1);
    for (uint32_t i = 90; i < 100; i++) logits[i] = i % 2 ? 50 : NAN;
    lily_pick pick = neutral;
    pick.n_vocab = 90;
    pick.n_logprobs = LILY_MAX_TOP;
    pick.temperature = 3;
    double sum = 0;
    for (uint32_t i = 0; i < 90; i++) sum += exp(logits[i]);
    for (uint32_t i = 0; i < 2000; i++) {
        pick.draw = i;
        lily_done done = choose(logits, 100, pick, NULL);
        assert_true(done.token >= 0 && done.token < 90);
        assert_true(fabs(done.logprob - (logits[done.token] - log(sum))) < 1e-5);
        for (int k = 0; k < LILY_MAX_TOP; k++) assert_true(done.top[k].token < 90);
    }
    /* More alternatives than tokens: the rest is marked as none. */
    pick.n_vocab = 3;
    pick.temperature = 0;
    lily_done done = choose(logits, 100, pick, NULL);
    assert_int_equal(done.top[3].token, -1);
    assert_true(done.top[2].token >= 0);
}

static void alternatives_are_in_order(void **state)
{
    (void)state;
    float logits[1000];
    lily_pick pick = neutral;
    pick.temperature = 0;
    pick.n_logprobs = LILY_MAX_TOP;
    for (uint32_t seed = 0; seed < 20; seed++) {
        fill(logits, 1000, seed, 20);
        for (uint32_t i = 0; i < 1000; i++) logits[i] = roundf(logits[i]); /* many ties */
        lily_done done = choose(logits, 1000, pick, NULL);
        assert_int_equal(done.token, done.top[0].token);
        for (int k = 0; k < LILY_MAX_TOP; k++) {
            uint32_t better = 0, id = (uint32_t)done.top[k].token;
            for (uint32_t i = 0; i < 1000; i++)
                better += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
            assert_int_equal(better, k);
        }
    }
}

static void what_is_no_number_is_refused(void **state)
{
    (void)state;
    float logits[10] = {0};
    lily_pick pick = neutral;
    lily_err e;
    lily_done done;
    pick.n_vocab = 10;
    logits[7] = NAN;
    check_fails(lily_pick_token(logits, &pick, NULL, room, &done, &e), LILY_DEVICE, &e);
    assert_string_equal(e.text, "the logit of token 7 is not a number");
    logits[7] = INFINITY;
    check_fails(lily_pick_token(logits, &pick, NULL, room, &done, &e), LILY_DEVICE, &e);
    logits[7] = -INFINITY;
    for (uint32_t i = 0; i < 500; i++) {
        pick.draw = i;
        pick.top_p = i % 2 ? 0.9999f : 1;
        pick.top_k = i % 5 ? 0 : 9;
        assert_int_not_equal(choose(logits, 10, pick, NULL).token, 7);
    }
}

static void extreme_temperatures(void **state)
{
    (void)state;
    float logits[50];
    fill(logits, 50, 21, 30);
    lily_pick pick = neutral;
    pick.temperature = 0;
    int32_t best = choose(logits, 50, pick, NULL).token;
    pick.temperature = 1e-30f;
    pick.top_p = 0.5f;
    assert_int_equal(choose(logits, 50, pick, NULL).token, best);
    pick.top_p = 1;
    assert_int_equal(choose(logits, 50, pick, NULL).token, best);
    double p[50];
    for (int i = 0; i < 50; i++) p[i] = 1;
    pick.temperature = 1e30f;
    check_distribution(logits, 50, pick, p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_their_weights),
        cmocka_unit_test(the_same_seed_is_the_same_draw),
        cmocka_unit_test(greedy_takes_the_first_of_the_largest),
        cmocka_unit_test(bias_and_mask),
        cmocka_unit_test(penalties),
        cmocka_unit_test(rows_without_text),
        cmocka_unit_test(alternatives_are_in_order),
        cmocka_unit_test(what_is_no_number_is_refused),
        cmocka_unit_test(extreme_temperatures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
