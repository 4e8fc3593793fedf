/* Stop strings: held text, borders of pieces, which one counts; and a search the plain way as judge. */
#include <stdlib.h>
#include <string.h>

#include "../check.h"
#include "base/mem.h"
#include "base/random.h"
#include "text/stop.h"

static void start(lily_stop *s, const char *const *text, size_t n)
{
    size_t len[LILY_STOP_MAX];
    lily_err e;
    for (size_t i = 0; i < n; i++) len[i] = strlen(text[i]);
    check_ok(lily_stop_init(s, text, len, n, &e), &e);
}

static bool feed(lily_stop *s, const char *text, lily_buf *out)
{
    return lily_stop_feed(s, text, strlen(text), out);
}

static void test_held_until_known(void **state)
{
    (void)state;
    static const char *const stops[] = {"STOP", "\n\n"};
    lily_stop s;
    lily_buf out = {0};
    start(&s, stops, 2);
    assert_false(feed(&s, "say S", &out));
    assert_string_equal(out.data, "say ");
    assert_false(feed(&s, "TO", &out));
    assert_int_equal(s.n_held, 3);
    assert_false(feed(&s, "UT\n", &out));
    assert_string_equal(out.data, "say STOUT");
    assert_true(feed(&s, "\nmore", &out));
    assert_string_equal(out.data, "say STOUT");
    assert_int_equal(s.found, 1);
    assert_true(feed(&s, "and more", &out));
    lily_stop_flush(&s, &out);
    assert_string_equal(out.data, "say STOUT");
    lily_buf_free(&out);
}

static void test_flush_gives_back(void **state)
{
    (void)state;
    static const char *const stops[] = {"</end>"};
    lily_stop s;
    lily_buf out = {0};
    start(&s, stops, 1);
    assert_false(feed(&s, "x</en", &out));
    assert_string_equal(out.data, "x");
    lily_stop_flush(&s, &out);
    assert_string_equal(out.data, "x</en");
    assert_int_equal(s.n_held, 0);
    lily_buf_free(&out);
}

static void test_earliest_end_then_longest(void **state)
{
    (void)state;
    static const char *const stops[] = {"cd", "bcd", "abcde"};
    lily_stop s;
    lily_buf out = {0};
    start(&s, stops, 3);
    assert_true(feed(&s, "xabcde", &out));
    assert_string_equal(out.data, "xa");
    assert_int_equal(s.found, 1);
    lily_buf_free(&out);
}

static void test_characters_stay_whole(void **state)
{
    (void)state;
    static const char *const stops[] = {"\xe4\xbd\xa0\xe5\xa5\xbd"};
    lily_stop s;
    lily_buf out = {0};
    start(&s, stops, 1);
    assert_false(feed(&s, "\xe4\xbd\xa0", &out));
    assert_int_equal(out.len, 0);
    assert_false(feed(&s, "\xe5\xa4\xa9", &out));    /* shares its first byte with the awaited character */
    assert_string_equal(out.data, "\xe4\xbd\xa0\xe5\xa4\xa9");
    lily_buf_free(&out);
}

static void test_limits(void **state)
{
    (void)state;
    static char long_text[LILY_STOP_BYTES + 1];
    const char *text[LILY_STOP_MAX + 1];
    size_t len[LILY_STOP_MAX + 1];
    lily_stop s;
    lily_err e;
    lily_buf out = {0};
    memset(long_text, 'a', sizeof long_text);
    for (size_t i = 0; i <= LILY_STOP_MAX; i++) {
        text[i] = long_text;
        len[i] = LILY_STOP_BYTES;
    }
    check_fails(lily_stop_init(&s, text, len, LILY_STOP_MAX + 1, &e), LILY_ARGUMENT, &e);
    len[3] = 0;
    check_fails(lily_stop_init(&s, text, len, LILY_STOP_MAX, &e), LILY_ARGUMENT, &e);
    len[3] = LILY_STOP_BYTES + 1;
    check_fails(lily_stop_init(&s, text, len, LILY_STOP_MAX, &e), LILY_ARGUMENT, &e);
    len[3] = LILY_STOP_BYTES;
    check_ok(lily_stop_init(&s, text, len, LILY_STOP_MAX, &e), &e);
    assert_false(lily_stop_feed(&s, long_text, LILY_STOP_BYTES - 1, &out));
    assert_int_equal(s.n_held, LILY_STOP_BYTES - 1);
    assert_true(lily_stop_feed(&s, "a", 1, &out));
    assert_int_equal(out.len, 0);
    check_ok(lily_stop_init(&s, NULL, NULL, 0, &e), &e);
    assert_false(feed(&s, "all of it", &out));
    assert_string_equal(out.data, "all of it");
    lily_buf_free(&out);
}

/* The stop that ends first in text, longest among equals, by trying every place; n when there is none. */
static size_t search(const char *text, size_t n, const char *const *stops, size_t count, int *which)
{
    for (size_t end = 1; end <= n; end++) {
        *which = -1;
        for (size_t i = 0; i < count; i++) {
            size_t len = strlen(stops[i]);
            if (len <= end && memcmp(text + end - len, stops[i], len) == 0 &&
                (*which < 0 || len > strlen(stops[*which])))
                *which = (int)i;
        }
        if (*which >= 0) return end - strlen(stops[*which]);
    }
    return n;
}

static void test_random_texts(void **state)
{
    (void)state;
    uint64_t draw = 0;
    for (int round = 0; round < 20000; round++) {
        char text[40], stop_text[3][8];
        const char *stops[3];
        size_t n = 0, count = 1 + (size_t)(lily_uniform(7, draw++) * 3);
        while (n < sizeof text - 1) text[n++] = "ab"[lily_uniform(7, draw++) < 0.5];
        for (size_t i = 0; i < count; i++) {
            size_t len = 1 + (size_t)(lily_uniform(7, draw++) * 7);
            for (size_t k = 0; k < len; k++) stop_text[i][k] = "ab"[lily_uniform(7, draw++) < 0.5];
            stop_text[i][len] = 0;
            stops[i] = stop_text[i];
        }
        int want_which = -1;
        size_t want = search(text, n, stops, count, &want_which);
        lily_stop s;
        lily_buf out = {0};
        start(&s, stops, count);
        for (size_t at = 0; at < n;) {
            size_t len = 1 + (size_t)(lily_uniform(7, draw++) * 5);
            if (len > n - at) len = n - at;
            lily_stop_feed(&s, text + at, len, &out);
            assert_true(out.len <= want);    /* nothing of the stop string was given out */
            at += len;
        }
        lily_stop_flush(&s, &out);
        assert_int_equal(s.found, want_which);
        assert_int_equal(out.len, want);
        assert_memory_equal(lily_buf_str(&out), text, want);
        lily_buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held_until_known),          cmocka_unit_test(test_flush_gives_back),
        cmocka_unit_test(test_earliest_end_then_longest), cmocka_unit_test(test_characters_stay_whole),
        cmocka_unit_test(test_limits),                    cmocka_unit_test(test_random_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
