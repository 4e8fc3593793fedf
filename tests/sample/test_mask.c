/* Masks against the automaton, token by token, on the vocabulary of the demo model. */
#include <stdio.h>
#include <string.h>

#include "../check.h"
#include "base/mem.h"
#include "sample/json_schema.h"
#include "sample/mask.h"
#include "text/big_number.h"

#define DEMO LILY_SOURCE_DIR "/models/demo"

static lily_tokenizer *tokenizer;
static lily_token_trie *vocab;
static int32_t end_of_turn;

static lily_grammar *compile(const char *text)
{
    lily_err e;
    lily_grammar *g;
    json_t *j;
    check_ok(lily_json_parse_big(&j, text, strlen(text), "a schema", &e), &e);
    check_ok(lily_json_schema(&g, j, &e), &e);
    json_decref(j);
    return g;
}

static bool bit(const uint32_t *mask, int32_t id)
{
    return mask[id / 32] >> (id % 32) & 1;
}

/* Every bit of the mask where k is, after `text`. Tokens of more than 32 bytes may be left out. */
static void check_bits(lily_grammar *g, lily_mask *k, const char *text, size_t n)
{
    lily_err e;
    lily_matcher *m;
    const uint32_t *mask;
    check_ok(lily_matcher_new(&m, g, false, &e), &e);
    check_ok(lily_mask_allowed(k, &mask, &e), &e);
    lily_match at = lily_matcher_start(m);
    for (size_t i = 0; i < n; i++) at = lily_matcher_step(m, at, (uint8_t)text[i]);
    assert_int_equal(lily_mask_complete(k), lily_matcher_complete(m, at));
    for (int32_t id = 0; id < lily_tokenizer_n_vocab(tokenizer); id++) {
        size_t len;
        const char *bytes = lily_token_bytes(tokenizer, id, &len);
        lily_match to = at;
        for (size_t i = 0; bytes && i < len && to; i++) to = lily_matcher_step(m, to, (uint8_t)bytes[i]);
        bool want = bytes && len > 0 && to && !lily_token_is_added(tokenizer, id);
        if (id == end_of_turn) want = lily_matcher_complete(m, at);
        if (want && len > 32 && id != end_of_turn) continue;
        if (bit(mask, id) != want) fail_msg("token %d after %.*s", (int)id, (int)n, text);
    }
    lily_matcher_free(m);
}

static void check_after(lily_grammar *g, const char *text, size_t n)
{
    lily_err e;
    lily_mask *k;
    bool takes;
    check_ok(lily_mask_new(&k, vocab, g, false, &e), &e);
    check_ok(lily_mask_take(k, text, n, &takes, &e), &e);
    assert_true(takes);
    check_bits(g, k, text, n);
    lily_mask_free(k);
}

static void test_all_bits(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":8},\"age\":{"
         "\"type\":\"integer\"},\"tags\":"
         "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"required\":[\"age\"]}",
         "{\n  \"name\": \"\xc3\xa9\\n\\u00e9xy\", \"age\":120,\"tags\":[\"some words\", \"\"]}"},
        {"true", "{\"a\": [1.5e3, true, null, {\"b\":\"c\"}], \"\xf0\x9f\x99\x82\": -1}"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        lily_grammar *g = compile(texts[i][0]);
        for (size_t n = 0; n <= strlen(texts[i][1]); n++) check_after(g, texts[i][1], n);
        lily_grammar_let_go(g);
    }
}

/* One reply, in which masks are remembered from one count to others: a string and a list, up to their limits.
 */
static void test_counts(void **state)
{
    (void)state;
    lily_grammar *g =
        compile("{\"type\":\"array\",\"minItems\":40,\"maxItems\":45,\"items\":{\"type\":\"string\","
                "\"minLength\":50,\"maxLength\":100}}");
    lily_err e;
    lily_mask *k;
    bool takes;
    char text[8192];
    size_t n = 0;
    check_ok(lily_mask_new(&k, vocab, g, false, &e), &e);
    for (int item = 0; item < 45; item++) {
        int chars = item == 0 ? 100 : item == 44 ? 55 : 50;
        size_t from = n;
        n += (size_t)sprintf(text + n, item ? ",\"" : "[\"");
        for (int i = 0; i <= chars; i++) {
            if (i > 0) text[n++] = 'x';
            check_ok(lily_mask_take(k, text + from, n - from, &takes, &e), &e);
            assert_true(takes);
            from = n;
            if (item == 0 || item > 38) check_bits(g, k, text, n);
        }
        text[n++] = '"';
        check_ok(lily_mask_take(k, "\"", 1, &takes, &e), &e);
        assert_true(takes);
        if (item < 10 || item > 30) check_bits(g, k, text, n);
    }
    lily_mask_free(k);
    lily_grammar_let_go(g);
}

static void test_take(void **state)
{
    (void)state;
    lily_err e;
    lily_mask *k;
    bool takes, finished;
    lily_grammar *g = compile("{\"const\":\"ab\"}");
    check_ok(lily_mask_new(&k, vocab, g, true, &e), &e);
    check_ok(lily_mask_take(k, "\n\"a", 3, &takes, &e), &e);
    assert_true(takes);
    check_ok(lily_mask_take(k, "bc", 2, &takes, &e), &e);
    assert_false(takes);
    check_ok(lily_mask_take(k, "b\"", 2, &takes, &e), &e); /* where it was before the refusal */
    assert_true(takes);
    assert_true(lily_mask_complete(k));
    check_ok(lily_mask_finished(k, &finished, &e), &e);
    assert_true(finished);
    lily_mask_free(k);
    lily_grammar_let_go(g);
}

/* A mask that was dropped for others is made again the same. */
static void test_many_states(void **state)
{
    (void)state;
    lily_err e;
    lily_grammar *g = compile("{\"type\":\"string\",\"maxLength\":200}");
    char text[202] = "\"";
    memset(text + 1, 'x', 200);
    lily_mask *k;
    const uint32_t *mask;
    bool takes;
    check_ok(lily_mask_new(&k, vocab, g, false, &e), &e);
    check_ok(lily_mask_take(k, text, 1, &takes, &e), &e);
    for (int i = 0; i <= 200; i++) {
        check_ok(lily_mask_allowed(k, &mask, &e), &e);
        int32_t x = 0, quote = 0;
        lily_ids ids = {0};
        check_ok(lily_encode(tokenizer, "x", 1, false, &ids, &e), &e);
        check_ok(lily_encode(tokenizer, "\"", 1, false, &ids, &e), &e);
        x = ids.id[0];
        quote = ids.id[1];
        lily_ids_free(&ids);
        assert_true(bit(mask, quote));
        assert_int_equal(bit(mask, x), i < 200);
        check_ok(lily_mask_take(k, "x", 1, &takes, &e), &e);
        assert_int_equal(takes, i < 200);
    }
    lily_mask_free(k);
    lily_grammar_let_go(g);
}

static void test_lost_memory(void **state)
{
    (void)state;
    lily_grammar *g = compile("{\"type\":\"array\",\"items\":{\"type\":\"string\"}}");
    int failures = 0, rc;
    for (int64_t n = 0;; n++, failures++) {
        lily_err e;
        lily_token_trie *v = NULL;
        lily_mask *k = NULL;
        const uint32_t *mask;
        bool takes = false;
        lily_mem_fail_after(n);
        rc = lily_token_trie_new(&v, tokenizer, &end_of_turn, 1, &e);
        if (rc == LILY_OK) rc = lily_mask_new(&k, v, g, false, &e);
        if (rc == LILY_OK) rc = lily_mask_allowed(k, &mask, &e);
        if (rc == LILY_OK) rc = lily_mask_take(k, "[\"", 2, &takes, &e);
        if (rc == LILY_OK) rc = lily_mask_allowed(k, &mask, &e);
        lily_mem_fail_after(-1);
        lily_mask_free(k);
        lily_token_trie_free(v);
        if (rc == LILY_OK) break;
        assert_int_equal(rc, LILY_NO_MEMORY);
    }
    assert_true(failures > 10);
    lily_grammar_let_go(g);
}

int main(void)
{
    lily_err e;
    if (lily_tokenizer_open(&tokenizer, DEMO, &e) != LILY_OK) return 1;
    end_of_turn = lily_token_find(tokenizer, "<|im_end|>", 10);
    if (lily_token_trie_new(&vocab, tokenizer, &end_of_turn, 1, &e) != LILY_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_bits),    cmocka_unit_test(test_counts),      cmocka_unit_test(test_take),
        cmocka_unit_test(test_many_states), cmocka_unit_test(test_lost_memory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lily_token_trie_free(vocab);
    lily_tokenizer_free(tokenizer);
    return failed;
}
