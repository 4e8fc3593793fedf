/* Ids to text: recorded results, whole and token by token, and bytes cut anywhere. */
#include <string.h>

#include "../check.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "fixture.h"
#include "text/decode.h"

static void read_ids(const json_t *list, lily_ids *ids)
{
    lily_err e;
    ids->n = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        check_ok(lily_ids_add(ids, (int32_t)json_integer_value(json_array_get(list, i)), &e), &e);
}

/* Decodes whole and token by token; what comes out on the way must be whole characters. */
static void check_decode(const lily_tokenizer *t, const lily_ids *ids, bool skip, const json_t *want)
{
    lily_buf whole = {0}, steps = {0};
    lily_decoder d = {0};
    lily_err e;
    check_ok(lily_decode(t, ids->id, ids->n, skip, &whole, &e), &e);
    assert_int_equal(whole.len, json_string_length(want));
    assert_memory_equal(lily_buf_str(&whole), json_string_value(want), whole.len);
    for (size_t i = 0; i < ids->n; i++) {
        lily_decoder_id(&d, t, ids->id[i], skip, &steps);
        assert_true(lily_utf8_valid(lily_buf_str(&steps), steps.len));
    }
    lily_decoder_flush(&d, &steps);
    assert_int_equal(steps.len, whole.len);
    assert_memory_equal(lily_buf_str(&steps), lily_buf_str(&whole), whole.len);
    lily_buf_free(&whole);
    lily_buf_free(&steps);
}

static void check_recorded(const char *name)
{
    lily_tokenizer *t = fixture_tokenizer(name);
    json_t *results = fixture_results(name), *one;
    lily_ids ids = {0};
    size_t i;
    json_array_foreach(json_object_get(results, "encode"), i, one)
    {
        read_ids(json_object_get(one, "ids"), &ids);
        check_decode(t, &ids, false, json_object_get(one, "decoded"));
        if (json_object_get(one, "decoded_skip"))
            check_decode(t, &ids, true, json_object_get(one, "decoded_skip"));
    }
    json_array_foreach(json_object_get(results, "decode_bytes"), i, one)
    {
        read_ids(json_object_get(one, "ids"), &ids);
        check_decode(t, &ids, false, json_object_get(one, "text"));
    }
    lily_ids_free(&ids);
    json_decref(results);
    lily_tokenizer_free(t);
}

static void test_recorded_tiny(void **state) { (void)state; check_recorded("tiny"); }
static void test_recorded_odd(void **state) { (void)state; check_recorded("odd"); }
static void test_recorded_full(void **state) { (void)state; check_recorded("full"); }

/* Every sequence of `length` bytes out of those at which UTF-8 turns: one call and byte by byte agree, and
 * the replacement characters are those of the standard's own rule. */
static void test_all_cuts(void **state)
{
    (void)state;
    static const unsigned char edge[] = {0x41, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc3,
                                         0xe0, 0xe4, 0xed, 0xf0, 0xf3, 0xf4, 0xf5};
    lily_buf whole = {0}, steps = {0};
    for (unsigned code = 0; code < 1u << 20; code += 1 + code % 7) {
        char bytes[5];
        lily_decoder a = {0}, b = {0};
        for (unsigned i = 0; i < 5; i++) bytes[i] = (char)edge[code >> 4 * i & 15];
        lily_buf_clear(&whole);
        lily_buf_clear(&steps);
        lily_decoder_bytes(&a, bytes, 5, &whole);
        lily_decoder_flush(&a, &whole);
        for (unsigned i = 0; i < 5; i++) lily_decoder_bytes(&b, bytes + i, 1, &steps);
        lily_decoder_flush(&b, &steps);
        assert_true(lily_utf8_valid(whole.data, whole.len));
        assert_int_equal(whole.len, steps.len);
        assert_memory_equal(whole.data, steps.data, whole.len);
    }
    lily_buf_free(&whole);
    lily_buf_free(&steps);
}

static void test_nothing_is_given_early(void **state)
{
    (void)state;
    lily_decoder d = {0};
    lily_buf out = {0};
    lily_decoder_bytes(&d, "\xf0\x9f", 2, &out);
    lily_decoder_bytes(&d, "\x98", 1, &out);
    assert_int_equal(out.len, 0);
    lily_decoder_bytes(&d, "\x80 \xe4", 3, &out);
    assert_string_equal(out.data, "\xf0\x9f\x98\x80 ");
    lily_decoder_bytes(&d, "!", 1, &out);
    assert_string_equal(out.data, "\xf0\x9f\x98\x80 \xef\xbf\xbd!");
    lily_decoder_flush(&d, &out);
    assert_int_equal(out.len, 9);
    lily_buf_free(&out);
}

static void test_ids_without_text(void **state)
{
    (void)state;
    lily_tokenizer *t = fixture_tokenizer("tiny");
    lily_buf out = {0};
    lily_err e;
    int32_t ids[] = {lily_tokenizer_n_vocab(t), 1 << 30, -1, lily_token_find(t, "</think>", 8)};
    check_ok(lily_decode(t, ids, 4, true, &out, &e), &e);
    assert_string_equal(out.data, "</think>");
    lily_buf_free(&out);
    lily_mem_fail_after(0);
    check_fails(lily_decode(t, ids, 4, true, &out, &e), LILY_NO_MEMORY, &e);
    lily_mem_fail_after(-1);
    lily_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_tiny),          cmocka_unit_test(test_recorded_odd),
        cmocka_unit_test(test_recorded_full),          cmocka_unit_test(test_all_cuts),
        cmocka_unit_test(test_nothing_is_given_early), cmocka_unit_test(test_ids_without_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
