/* The store of sampled replies: what goes in comes out under its prompt, its bytes are bounded, the longest unused
 * goes first. */
#include "../check.h"

#include <string.h>

#include "base/mem.h"
#include "run/replies.h"

static lily_replied reply(const int32_t *ids, size_t n, const char *content)
{
    return (lily_replied){.turn = ids,
                          .n_turn = n,
                          .ended = true,
                          .content = content,
                          .n_content = strlen(content),
                          .reasoning = "because",
                          .n_reasoning = 7,
                          .calls = "",
                          .n_calls = 0};
}

static lily_replies_key key_of(int32_t id) { return lily_replies_key_add(lily_replies_key_start(), &id, 1); }

/* Takes the reply with this content. */
static bool is_content(void *user, const lily_replied *r)
{
    const char *want = user;
    return r->n_content == strlen(want) && memcmp(r->content, want, r->n_content) == 0;
}

static bool take_first(void *user, const lily_replied *r)
{
    *(lily_replied *)user = *r;
    return true;
}

static void test_key_is_of_all_before(void **state)
{
    (void)state;
    const int32_t a[] = {1, 2, 3}, b[] = {1, 3, 2};
    lily_replies_key whole = lily_replies_key_add(lily_replies_key_start(), a, 3);
    lily_replies_key parts = lily_replies_key_add(lily_replies_key_add(lily_replies_key_start(), a, 1), a + 1, 2);
    lily_replies_key other = lily_replies_key_add(lily_replies_key_start(), b, 3);
    assert_memory_equal(&whole, &parts, sizeof whole);
    assert_memory_not_equal(&whole, &other, sizeof whole);
}

static void test_found_under_its_prompt(void **state)
{
    (void)state;
    lily_err e = {0};
    lily_replies *s;
    const int32_t ids[] = {10, 11, 12};
    check_ok(lily_replies_new(&s, 100000, &e), &e);
    lily_replied in = reply(ids, 3, "hello"), out;
    check_ok(lily_replies_add(s, key_of(1), &in, &e), &e);
    assert_true(lily_replies_find(s, key_of(1), take_first, &out));
    assert_int_equal(out.n_turn, 3);
    assert_memory_equal(out.turn, ids, sizeof ids);
    assert_memory_equal(out.content, "hello", 5);
    assert_memory_equal(out.reasoning, "because", 7);
    assert_true(out.ended);
    assert_false(lily_replies_find(s, key_of(2), take_first, &out));
    assert_false(lily_replies_find(s, key_of(1), is_content, "other"));
    /* Two answers to one prompt: both are there, the newest is shown first. */
    in = reply(ids, 2, "again");
    check_ok(lily_replies_add(s, key_of(1), &in, &e), &e);
    assert_true(lily_replies_find(s, key_of(1), take_first, &out));
    assert_memory_equal(out.content, "again", 5);
    assert_true(lily_replies_find(s, key_of(1), is_content, "hello"));
    lily_replies_clear(s);
    assert_false(lily_replies_find(s, key_of(1), take_first, &out));
    lily_replies_free(s);
}

static void test_bounded(void **state)
{
    (void)state;
    lily_err e = {0};
    lily_replies *s;
    int32_t ids[256] = {0};
    enum { FITS = 8 };
    const size_t one = 1024 + 200;    /* of 256 ids; 200 is more than the rest takes, and less than twice that */
    check_ok(lily_replies_new(&s, FITS * one, &e), &e);
    lily_replied in = reply(ids, 256, "x"), out;
    for (int32_t i = 0; i < 1000; i++) {
        check_ok(lily_replies_add(s, key_of(i), &in, &e), &e);
        assert_true(lily_replies_find(s, key_of(0), take_first, &out));    /* used all the time: it stays */
    }
    uint32_t there = 0;
    for (int32_t i = 0; i < 1000; i++) there += lily_replies_find(s, key_of(i), take_first, &out);
    assert_in_range(there, FITS - 1, FITS + 1);
    assert_true(lily_replies_find(s, key_of(999), take_first, &out));
    assert_false(lily_replies_find(s, key_of(1), take_first, &out));
    /* One that would push out everything else is not kept. */
    int32_t many[2048] = {0};
    in = reply(many, 2048, "x");
    check_ok(lily_replies_add(s, key_of(5000), &in, &e), &e);
    assert_false(lily_replies_find(s, key_of(5000), take_first, &out));
    assert_true(lily_replies_find(s, key_of(999), take_first, &out));
    lily_replies_free(s);
}

static void test_same_is_kept_once(void **state)
{
    (void)state;
    lily_err e = {0};
    lily_replies *s;
    int32_t ids[256] = {0};
    check_ok(lily_replies_new(&s, 8 * 1224, &e), &e);
    lily_replied in = reply(ids, 256, "x"), out;
    check_ok(lily_replies_add(s, key_of(1), &in, &e), &e);
    for (int i = 0; i < 100; i++) check_ok(lily_replies_add(s, key_of(2), &in, &e), &e);
    assert_true(lily_replies_find(s, key_of(1), take_first, &out));
    lily_replies_free(s);
}

static void test_no_memory(void **state)
{
    (void)state;
    lily_err e = {0};
    lily_replies *s;
    const int32_t ids[] = {1};
    lily_replied in = reply(ids, 1, "x"), out;
    lily_mem_fail_after(0);
    check_fails(lily_replies_new(&s, 1000, &e), LILY_NO_MEMORY, &e);
    lily_mem_fail_after(-1);
    check_ok(lily_replies_new(&s, 100000, &e), &e);
    lily_mem_fail_after(0);
    check_fails(lily_replies_add(s, key_of(1), &in, &e), LILY_NO_MEMORY, &e);
    lily_mem_fail_after(-1);
    assert_false(lily_replies_find(s, key_of(1), take_first, &out));
    lily_replies_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_is_of_all_before), cmocka_unit_test(test_found_under_its_prompt),
        cmocka_unit_test(test_bounded),              cmocka_unit_test(test_same_is_kept_once),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
