/* tokenizer.json as hostile input, the split expression, and lost memory while loading. */
#include <string.h>

#include "../check.h"
#include "base/mem.h"
#include "fixture.h"
#include "text/pretokenize.h"
#include "text/tokenizer_file.h"

static int read_text(const char *json, size_t n, lily_err *e)
{
    lily_tokenizer *t = lily_calloc(1, sizeof *t);
    if (!t) return lily_no_memory(e, sizeof *t, "the tokenizer");
    int rc = lily_tokenizer_read(t, json, n, e);
    lily_tokenizer_free(t);
    return rc;
}

static int read_root(const json_t *root, lily_err *e)
{
    char *text = json_dumps(root, JSON_COMPACT);
    int rc = read_text(text, strlen(text), e);
    free(text);
    return rc;
}

/* The value at a path of keys and indices, "model/vocab"; NULL where there is none. */
static json_t *at_path(json_t *v, const char *path, char *last, size_t cap)
{
    char copy[128];
    snprintf(copy, sizeof copy, "%s", path);
    char *save, *key = strtok_r(copy, "/", &save);
    for (char *next; (next = strtok_r(NULL, "/", &save)) != NULL; key = next)
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(key)) : json_object_get(v, key);
    snprintf(last, cap, "%s", key);
    return v;
}

typedef struct damage {
    const char *path, *value;    /* JSON put there; NULL removes the key */
    int code;
    const char *sentence;        /* a part of it */
} damage;

static const damage damages[] = {
    {"normalizer", "null", LILY_UNSUPPORTED, "\"normalizer\" is missing, expected NFC"},
    {"normalizer/type", "\"NFKC\"", LILY_UNSUPPORTED, "\"normalizer\" is NFKC, expected NFC"},
    {"normalizer", "[]", LILY_UNSUPPORTED, "\"normalizer\" is without a type"},
    {"pre_tokenizer", "{\"type\":\"Whitespace\"}", LILY_UNSUPPORTED, "\"pre_tokenizer\" is Whitespace"},
    {"pre_tokenizer/pretokenizers", "[]", LILY_UNSUPPORTED, "\"pre_tokenizer\" has 0 parts"},
    {"pre_tokenizer/pretokenizers/0/behavior", "\"Removed\"", LILY_UNSUPPORTED,
     "\"behavior\" of Split is Removed"},
    {"pre_tokenizer/pretokenizers/0/invert", "true", LILY_UNSUPPORTED, "\"invert\" of Split is true"},
    {"pre_tokenizer/pretokenizers/0/pattern", "{\"String\":\"a\"}", LILY_UNSUPPORTED, "has no Regex"},
    {"pre_tokenizer/pretokenizers/0/pattern/Regex", "\"\"", LILY_FORMAT, "has 0 bytes"},
    {"pre_tokenizer/pretokenizers/0/pattern/Regex", "\"a(\"", LILY_FORMAT, "does not compile"},
    {"pre_tokenizer/pretokenizers/0/pattern/Regex", "\"(a|(?R))\"", LILY_UNSUPPORTED, "a group at byte 3"},
    {"pre_tokenizer/pretokenizers/1/use_regex", "true", LILY_UNSUPPORTED, "\"use_regex\" of the ByteLevel"},
    {"pre_tokenizer/pretokenizers/1/add_prefix_space", "1", LILY_FORMAT, "is not true or false"},
    {"post_processor", "{\"type\":\"TemplateProcessing\"}", LILY_UNSUPPORTED,
     "\"post_processor\" is TemplateProcessing"},
    {"decoder/type", "\"WordPiece\"", LILY_UNSUPPORTED, "\"decoder\" is WordPiece"},
    {"model/type", "\"Unigram\"", LILY_UNSUPPORTED, "\"model\" is Unigram, expected BPE"},
    {"model/byte_fallback", "true", LILY_UNSUPPORTED, "\"byte_fallback\" of the model is true"},
    {"model/ignore_merges", "true", LILY_UNSUPPORTED, "\"ignore_merges\" of the model is true"},
    {"model/unk_token", "\"<unk>\"", LILY_UNSUPPORTED, "\"unk_token\" of the model is set"},
    {"model/dropout", "0.1", LILY_UNSUPPORTED, "\"dropout\" of the model is set"},
    {"model/vocab", NULL, LILY_FORMAT, "\"vocab\" of the model is not an object"},
    {"model/vocab", "{}", LILY_FORMAT, "no entry for byte 0x00"},
    {"model/vocab/a", NULL, LILY_FORMAT, "no entry for byte 0x61"},
    {"model/vocab/a", "\"1\"", LILY_FORMAT, "the id of \"a\" in \"vocab\" is not an integer"},
    {"model/vocab/a", "-1", LILY_FORMAT, "id -1 is outside"},
    {"model/vocab/a", "1048576", LILY_FORMAT, "id 1048576 is outside"},
    {"model/vocab/a", "9223372036854775807", LILY_FORMAT, "is outside"},
    {"model/vocab/a", "7", LILY_FORMAT, "id 7 is given twice"},
    {"model/vocab/", "2000", LILY_FORMAT, ""},
    {"model/vocab/a b", "2000", LILY_FORMAT, "is not spelled in the byte alphabet"},
    {"model/merges", "{}", LILY_FORMAT, "\"merges\" of the model is not a list"},
    {"model/merges/3", "[\"a\"]", LILY_FORMAT, "merge 3 is not a pair"},
    {"model/merges/3", "\"ab\"", LILY_FORMAT, "merge 3 is not a pair"},
    {"model/merges/3", "[\"a\",\"nowhere\"]", LILY_FORMAT, "merge 3 names \"nowhere\", which is not in"},
    {"model/merges/3", "[\"a\",\" \"]", LILY_FORMAT, "merge 3 names \" \""},
    {"model/merges/3", "[\"\",\"a\"]", LILY_FORMAT, "merge 3 names \"\""},
    {"model/merges/3", "[\"Q\",\"q\"]", LILY_FORMAT, "merge 3 joins to bytes that are not in"},
    {"added_tokens", "{}", LILY_FORMAT, "\"added_tokens\" is not a list"},
    {"added_tokens/2", "7", LILY_FORMAT, "added token 2 has no \"content\""},
    {"added_tokens/2/content", "\"\"", LILY_FORMAT, "an added token has 0 bytes"},
    {"added_tokens/2/content", "\"<|im_start|>\"", LILY_FORMAT, "have the same text"},
    {"added_tokens/2/id", "5", LILY_FORMAT, "id 5 is given twice"},
    {"added_tokens/2/id", "1.5", LILY_FORMAT, "\"id\" is not an integer"},
    {"added_tokens/2/id", "99999999", LILY_FORMAT, "\"id\" is 99999999, expected 0 to"},
    {"added_tokens/2/normalized", "true", LILY_UNSUPPORTED, "\"normalized\" of added token 2 is true"},
    {"added_tokens/2/lstrip", "true", LILY_UNSUPPORTED, "\"lstrip\" of added token 2 is true"},
    {"added_tokens/2/special", "\"yes\"", LILY_FORMAT, "\"special\" of added token 2"},
};

static void test_damages(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const damage *d = &damages[i];
        json_t *root = fixture_model("tiny");
        char last[64];
        json_t *at = at_path(root, d->path, last, sizeof last);
        json_t *value = d->value ? json_loads(d->value, JSON_DECODE_ANY, NULL) : NULL;
        if (json_is_array(at))
            assert_int_equal(json_array_set_new(at, (size_t)atoi(last), value), 0);
        else if (value)
            assert_int_equal(json_object_set_new(at, last, value), 0);
        else
            assert_int_equal(json_object_del(at, last), 0);
        lily_err e;
        int rc = read_root(root, &e);
        if (rc != d->code || !strstr(e.text, d->sentence) || strncmp(e.text, "tokenizer.json: ", 16) != 0)
            fail_msg("%s = %s: %s (%s)", d->path, d->value ? d->value : "removed", lily_err_name(rc),
                     rc ? e.text : "");
        json_decref(root);
    }
}

static void test_merge_given_twice(void **state)
{
    (void)state;
    json_t *root = fixture_model("tiny"), *merges = json_object_get(json_object_get(root, "model"), "merges");
    lily_err e;
    json_array_append(merges, json_array_get(merges, 5));
    check_fails(read_root(root, &e), LILY_FORMAT, &e);
    assert_non_null(strstr(e.text, "merge 700 is given twice"));
    json_decref(root);
}

static void test_older_merges(void **state)
{
    (void)state;
    json_t *root = fixture_model("tiny"), *model = json_object_get(root, "model"), *old = json_array(),
           *merge;
    size_t i;
    lily_err e;
    json_array_foreach(json_object_get(model, "merges"), i, merge)
        json_array_append_new(old, json_sprintf("%s %s", json_string_value(json_array_get(merge, 0)),
                                                json_string_value(json_array_get(merge, 1))));
    json_object_set_new(model, "merges", old);
    check_ok(read_root(root, &e), &e);
    json_decref(root);
}

static void test_cut_off(void **state)
{
    (void)state;
    json_t *root = fixture_model("tiny");
    char *text = json_dumps(root, JSON_COMPACT);
    size_t n = strlen(text);
    lily_err e;
    for (size_t cut = 0; cut < n; cut += 997) check_fails(read_text(text, cut, &e), LILY_FORMAT, &e);
    free(text);
    json_decref(root);
    check_fails(read_text("[]", 2, &e), LILY_FORMAT, &e);
    assert_string_equal(e.text, "tokenizer.json: not a JSON object");
}

static void test_missing_file(void **state)
{
    (void)state;
    lily_tokenizer *t;
    lily_err e;
    check_fails(lily_tokenizer_open(&t, FIXTURES "/nowhere", &e), LILY_IO, &e);
    assert_null(t);
    assert_non_null(strstr(e.text, "tokenizer.json"));
}

static void test_lost_memory(void **state)
{
    (void)state;
    json_t *root = fixture_model("tiny");
    char *text = json_dumps(root, JSON_COMPACT);
    size_t n = strlen(text);
    int64_t failures = 0;
    for (;; failures++) {
        lily_err e;
        lily_mem_fail_after(failures);
        int rc = read_text(text, n, &e);
        lily_mem_fail_after(-1);
        if (rc == LILY_OK) break;
        check_fails(rc, LILY_NO_MEMORY, &e);
    }
    assert_true(failures > 20);
    free(text);
    json_decref(root);
}

/* ---- the split expression */

typedef struct pieces {
    lily_buf text;    /* each followed by '|' */
} pieces;

static int collect(void *ctx, const char *piece, size_t n, lily_err *e)
{
    pieces *p = ctx;
    lily_buf_add(&p->text, piece, n);
    lily_buf_putc(&p->text, '|');
    return lily_buf_ok(&p->text, "pieces", e);
}

static void check_split(const char *pattern, const char *text, const char *want)
{
    lily_pretokenizer *p;
    pieces got = {0};
    lily_err e;
    check_ok(lily_pretokenizer_new(&p, pattern, strlen(pattern), &e), &e);
    check_ok(lily_pretokenize(p, text, strlen(text), collect, &got, &e), &e);
    assert_string_equal(lily_buf_str(&got.text), want);
    lily_buf_free(&got.text);
    lily_pretokenizer_free(p);
}

static void test_split(void **state)
{
    (void)state;
    check_split("b+", "abbcb", "a|bb|c|b|");
    check_split("x", "", "");
    check_split("x*", "axxb", "a|xx|b|");                        /* empty matches cut, and add no piece */
    check_split("\\s", "a\xe1\xa0\x8e z", "a\xe1\xa0\x8e| |z|");   /* U+180E is no white space */
    check_split("\\S+", "a\xe2\x80\xa8z", "a|\xe2\x80\xa8|z|");    /* U+2028 is */
    check_split("(?i:'s)", "x'\xc5\xbfy", "x|'\xc5\xbf|y|");       /* the long s folds to s */
    check_split("[^\\s\\p{L}]+", "a1\xc2\x85", "a|1|\xc2\x85|");
}

static void test_split_refuses(void **state)
{
    (void)state;
    static const char *const patterns[] = {"\\w+",   "[\\S]",    "[a[b]]",    "[]a]", "[^]a]",   "[",
                                           "[a&&b]", "(?<n>a)",  "(*ACCEPT)", "\\p",  "a\\",     "\\Qa\\E",
                                           "(?C)a",  "\\1",      "\\pL",      "\\G",  "(?x: a)", "\\p{L",
                                           "\\p{}",  "\\p{Han}", "\\p{^L}"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lily_pretokenizer *p;
        lily_err e;
        int rc = lily_pretokenizer_new(&p, patterns[i], strlen(patterns[i]), &e);
        if (rc != LILY_UNSUPPORTED) fail_msg("%s: %s", patterns[i], lily_err_name(rc));
        assert_null(p);
    }
}

static void test_split_gives_up(void **state)
{
    (void)state;
    static const char pattern[] = "(?:a|a)+[bc]",
                      text[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    lily_pretokenizer *p;
    pieces got = {0};
    lily_err e;
    check_ok(lily_pretokenizer_new(&p, pattern, sizeof pattern - 1, &e), &e);
    check_fails(lily_pretokenize(p, text, sizeof text - 1, collect, &got, &e), LILY_FORMAT, &e);
    assert_non_null(strstr(e.text, "gives up"));
    lily_buf_free(&got.text);
    lily_pretokenizer_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damages),        cmocka_unit_test(test_merge_given_twice),
        cmocka_unit_test(test_older_merges),   cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_missing_file),   cmocka_unit_test(test_lost_memory),
        cmocka_unit_test(test_split),          cmocka_unit_test(test_split_refuses),
        cmocka_unit_test(test_split_gives_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
