/* Networks and the matcher, without JSON. */
#include <stdio.h>
#include <string.h>

#include "../check.h"
#include "sample/match.h"

static lily_match run(lily_matcher *m, const char *text)
{
    lily_match at = lily_matcher_start(m);
    for (; *text && at; text++) at = lily_matcher_step(m, at, (uint8_t)*text);
    return at;
}

/* b = "(" b ")" | "x" | "" in place of the brackets' inside */
static lily_grammar *brackets(void)
{
    lily_err e;
    lily_grammar *g;
    check_ok(lily_grammar_new(&g, &e), &e);
    uint32_t rule = lily_grammar_rule(g);
    uint32_t inside = lily_grammar_call(g, rule, lily_grammar_text(g, ")", 1, LILY_GRAMMAR_END));
    uint32_t b = lily_grammar_split(g, lily_grammar_text(g, "(", 1, inside),
                                    lily_grammar_text(g, "x", 1, LILY_GRAMMAR_END));
    lily_grammar_set_rule(g, rule, lily_grammar_split(g, b, LILY_GRAMMAR_END));
    check_ok(lily_grammar_finish(g, b, b, &e), &e);
    return g;
}

static void test_calls(void **state)
{
    (void)state;
    lily_err e;
    lily_matcher *m;
    lily_grammar *g = brackets();
    check_ok(lily_matcher_new(&m, g, false, &e), &e);
    lily_grammar_let_go(g); /* the matcher holds it */
    static const char *const yes[] = {"x", "()", "(x)", "((()))"}, *const no[] = {"",    "(",  "(x",
                                                                                  "())", "xx", ")"};
    for (size_t i = 0; i < 4; i++) assert_true(lily_matcher_complete(m, run(m, yes[i])));
    for (size_t i = 0; i < 6; i++) assert_false(lily_matcher_complete(m, run(m, no[i])));
    lily_matcher_free(m);
}

/* Depth that a text gives up is not missed: tidying keeps the stacks. */
static void test_tidy(void **state)
{
    (void)state;
    lily_err e;
    lily_matcher *m;
    lily_grammar *g;
    bool forgotten = false, once = false;
    enum { LONG = 5000 };
    check_ok(lily_grammar_new(&g, &e), &e);
    /* LONG times "a", then a bracket that stays open all the while */
    uint32_t rule = lily_grammar_rule(g), as = LILY_GRAMMAR_END;
    for (int i = 0; i < LONG; i++) as = lily_grammar_text(g, "a", 1, as);
    lily_grammar_set_rule(g, rule, as);
    uint32_t start = lily_grammar_text(
        g, "(", 1, lily_grammar_call(g, rule, lily_grammar_text(g, ")", 1, LILY_GRAMMAR_END)));
    check_ok(lily_grammar_finish(g, start, start, &e), &e);
    check_ok(lily_matcher_new(&m, g, false, &e), &e);
    lily_match at = lily_matcher_step(m, lily_matcher_start(m), '(');
    for (int i = 0; i < LONG; i++) {
        at = lily_matcher_tidy(m, lily_matcher_step(m, at, 'a'), &forgotten);
        once = once || forgotten;
    }
    assert_true(once);
    assert_false(lily_matcher_complete(m, at));
    assert_int_equal(lily_matcher_step(m, at, 'a'), LILY_MATCH_NONE);
    assert_true(lily_matcher_complete(m, lily_matcher_step(m, at, ')')));
    check_ok(lily_matcher_ok(m, &e), &e);
    lily_matcher_free(m);
    lily_grammar_let_go(g);
}

static void test_endless(void **state)
{
    (void)state;
    lily_err e;
    lily_grammar *g;
    check_ok(lily_grammar_new(&g, &e), &e);
    uint32_t rule = lily_grammar_rule(g),
             a = lily_grammar_text(g, "a", 1, lily_grammar_call(g, rule, LILY_GRAMMAR_END));
    lily_grammar_set_rule(g, rule, a);
    check_fails(lily_grammar_finish(g, a, a, &e), LILY_ARGUMENT, &e);
    lily_grammar_let_go(g);
}

/* A hundred readings of each bracket: they share their frames, so that text and time stay as they are. */
static void test_ambiguous(void **state)
{
    (void)state;
    lily_err e;
    lily_grammar *g;
    lily_matcher *m;
    check_ok(lily_grammar_new(&g, &e), &e);
    uint32_t rule = lily_grammar_rule(g), any = lily_grammar_text(g, "x", 1, LILY_GRAMMAR_END);
    for (int i = 0; i < 100; i++) {
        char close[8];
        snprintf(close, sizeof close, "%d.", i);
        uint32_t one =
            lily_grammar_call(g, rule, lily_grammar_text(g, close, strlen(close), LILY_GRAMMAR_END));
        any = lily_grammar_split(g, any, lily_grammar_text(g, "(", 1, one));
    }
    lily_grammar_set_rule(g, rule, any);
    check_ok(lily_grammar_finish(g, any, any, &e), &e);
    check_ok(lily_matcher_new(&m, g, false, &e), &e);
    assert_true(lily_matcher_complete(m, run(m, "(((x1.22.3.")));
    assert_false(lily_matcher_complete(m, run(m, "(((x1.22.")));
    assert_int_equal(run(m, "(((x1.22.3.4"), LILY_MATCH_NONE);
    lily_match at = lily_matcher_start(m);
    for (int i = 0; i < 200; i++) at = lily_matcher_step(m, at, '(');
    at = lily_matcher_step(m, at, 'x');
    for (int i = 0; i < 200; i++) {
        assert_int_not_equal(at, LILY_MATCH_NONE);
        assert_false(lily_matcher_complete(m, at));
        char close[8];
        snprintf(close, sizeof close, "%d.", i % 100);
        for (const char *c = close; *c; c++) at = lily_matcher_step(m, at, (uint8_t)*c);
    }
    assert_true(lily_matcher_complete(m, at));
    check_ok(lily_matcher_ok(m, &e), &e);
    lily_matcher_free(m);
    lily_grammar_let_go(g);
}

/* Counting does not copy: the digits of a thousand million. */
static void test_repeat(void **state)
{
    (void)state;
    lily_err e;
    lily_grammar *g;
    lily_matcher *m;
    check_ok(lily_grammar_new(&g, &e), &e);
    uint32_t ab = lily_grammar_rule(g), c = lily_grammar_rule(g);
    lily_grammar_set_rule(g, ab, lily_grammar_text(g, "ab", 2, LILY_GRAMMAR_END));
    lily_grammar_set_rule(g, c, lily_grammar_text(g, "c", 1, LILY_GRAMMAR_END));
    uint32_t start = lily_grammar_repeated(
        g, ab, 2, 4,
        lily_grammar_repeated(g, c, 0, UINT32_MAX, lily_grammar_text(g, ".", 1, LILY_GRAMMAR_END)));
    start = lily_grammar_split(g, start, lily_grammar_repeated(g, c, 2, 1000000000, LILY_GRAMMAR_END));
    check_ok(lily_grammar_finish(g, start, start, &e), &e);
    check_ok(lily_matcher_new(&m, g, false, &e), &e);
    static const char *const yes[] = {"abab.", "abababab.", "ababccccc.", "cc", "ccccccc"},
                             *const no[] = {"ab.", "ababababab", "c", "abacc", "cca", ""};
    for (size_t i = 0; i < 5; i++) assert_true(lily_matcher_complete(m, run(m, yes[i])));
    for (size_t i = 0; i < 6; i++) assert_false(lily_matcher_complete(m, run(m, no[i])));
    lily_matcher_free(m);
    lily_grammar_let_go(g);
}

/* Rules that come back to themselves before a byte, also behind one that may be empty. */
static void test_loops(void **state)
{
    (void)state;
    for (int empty = 0; empty < 2; empty++) {
        lily_err e;
        lily_grammar *g;
        check_ok(lily_grammar_new(&g, &e), &e);
        uint32_t blank = lily_grammar_rule(g), rule = lily_grammar_rule(g),
                 x = lily_grammar_text(g, "x", 1, 0);
        lily_grammar_set_rule(g, blank, empty ? lily_grammar_split(g, x, LILY_GRAMMAR_END) : x);
        uint32_t a = lily_grammar_call(g, blank, lily_grammar_call(g, rule, x));
        lily_grammar_set_rule(g, rule, lily_grammar_split(g, a, x));
        int rc = lily_grammar_finish(g, x, x, &e);
        assert_int_equal(rc, empty ? LILY_ARGUMENT : LILY_OK);
        if (empty) assert_int_equal(g->loops, rule);
        lily_grammar_let_go(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),     cmocka_unit_test(test_tidy),   cmocka_unit_test(test_endless),
        cmocka_unit_test(test_ambiguous), cmocka_unit_test(test_repeat), cmocka_unit_test(test_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
