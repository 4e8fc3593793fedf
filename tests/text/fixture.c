#include "fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../check.h"

static json_t *read_json(const char *path)
{
    json_t *root = NULL;
    lily_err e;
    check_ok(lily_json_read(&root, path, (size_t)64 << 20, &e), &e);
    return root;
}

json_t *fixture_results(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, FIXTURES "/%s/tokenizer.json", name);
    return read_json(path);
}

/* ---- the full vocabulary: 1,500 trained merges, then made-up words of syllables, then the added tokens */

enum { FULL_PIECES = 248044 };
#define SPACE "\xc4\xa0"    /* U+0120, the letter for byte 0x20 */

typedef struct filling {
    json_t *vocab, *merges;
} filling;

/* The merge of a and b as a new entry, unless their word is there or the vocabulary is full. */
static void add_word(filling *f, const char *a, const char *b)
{
    char word[256];
    assert_true((size_t)snprintf(word, sizeof word, "%s%s", a, b) < sizeof word);
    if (json_object_size(f->vocab) >= FULL_PIECES || json_object_get(f->vocab, word)) return;
    json_object_set_new(f->vocab, word, json_integer((json_int_t)json_object_size(f->vocab)));
    json_array_append_new(f->merges, json_pack("[ss]", a, b));
}

/* out = a then b */
static const char *join(char out[16], const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    assert_true(n + m < 16);
    memcpy(out, a, n);
    memcpy(out + n, b, m + 1);
    return out;
}

static void add_syllables(filling *f)
{
    char s[100][4] = {{0}}, spaced[100][16], two[16], spaced_two[16];
    for (int i = 0; i < 100; i++) {
        s[i][0] = "bcdfghjklmnpqrstvwxz"[i / 5];
        s[i][1] = "aeiou"[i % 5];
        join(spaced[i], SPACE, s[i]);
    }
    for (int i = 0; i < 100; i++) add_word(f, (char[]){s[i][0], 0}, s[i] + 1);
    for (int i = 0; i < 100; i++) add_word(f, SPACE, s[i]);
    for (int i = 0; i < 10000; i++) add_word(f, s[i / 100], s[i % 100]);
    for (int i = 0; i < 10000; i++) add_word(f, spaced[i / 100], s[i % 100]);
    for (int i = 0; json_object_size(f->vocab) < FULL_PIECES; i++) {
        join(two, s[i / 10000], s[i / 100 % 100]);
        add_word(f, two, s[i % 100]);
        add_word(f, join(spaced_two, SPACE, two), s[i % 100]);
    }
}

static json_t *build_full(void)
{
    json_t *root = read_json(FIXTURES "/odd/model/tokenizer.json"), *model = json_object_get(root, "model");
    json_t *trained = read_json(FIXTURES "/full/merges.json"), *old = json_object_get(model, "vocab");
    filling f = {json_object(), json_array()};
    const char *key;
    json_t *value;
    size_t i;
    json_object_foreach(old, key, value)
        if (json_integer_value(value) < 256) json_object_set(f.vocab, key, value);
    json_array_foreach(trained, i, value)
        add_word(&f, json_string_value(json_array_get(value, 0)), json_string_value(json_array_get(value, 1)));
    add_syllables(&f);
    json_array_foreach(json_object_get(root, "added_tokens"), i, value)
        json_object_set_new(value, "id", json_integer(FULL_PIECES + (json_int_t)i));
    json_object_set_new(model, "vocab", f.vocab);
    json_object_set_new(model, "merges", f.merges);
    json_decref(trained);
    return root;
}

json_t *fixture_model(const char *name)
{
    char path[512];
    if (strcmp(name, "full") == 0) return build_full();
    snprintf(path, sizeof path, FIXTURES "/%s/model/tokenizer.json", name);
    return read_json(path);
}

lily_tokenizer *fixture_tokenizer(const char *name)
{
    char dir[512], path[600];
    lily_tokenizer *t = NULL;
    lily_err e;
    snprintf(dir, sizeof dir, FIXTURES "/%s/model", name);
    if (strcmp(name, "full") == 0) {
        snprintf(dir, sizeof dir, LILY_BINARY_DIR "/tests/full-tokenizer-%ld", (long)getpid());
        snprintf(path, sizeof path, "%s/tokenizer.json", dir);
        json_t *root = build_full();
        assert_true(mkdir(dir, 0777) == 0 || errno == EEXIST);
        assert_int_equal(json_dump_file(root, path, JSON_COMPACT), 0);
        json_decref(root);
    }
    check_ok(lily_tokenizer_open(&t, dir, &e), &e);
    if (strcmp(name, "full") == 0) {
        remove(path);
        remove(dir);
    }
    return t;
}

int fixture_differences(const json_t *want, const lily_ids *ids)
{
    int differ = 0;
    if (json_array_size(want) != ids->n) return -1;
    for (size_t i = 0; i < ids->n; i++) differ += json_integer_value(json_array_get(want, i)) != ids->id[i];
    return differ;
}
