/* Headers of safetensors files and folders of them: what is accepted, and the sentence for each damage. */
#include "../check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/random.h"
#include "checkpoint/safetensors.h"
#include "scratch.h"

#define TINY LILY_BINARY_DIR "/tests/ck/tiny"

/* A file in memory: length, header, `data` zero bytes. */
static lily_map image(const char *header, uint64_t claimed, size_t data)
{
    size_t n = strlen(header);
    uint8_t *p = calloc(8 + n + data, 1);
    memcpy(p, &claimed, 8);
    memcpy(p + 8, header, n);
    return (lily_map){p, 8 + n + data};
}

static int parse(const lily_map *m, size_t *n, lily_err *e)
{
    lily_arena arena = {0};
    lily_tensor *list;
    int rc = lily_st_parse(&list, n, m, "f", &arena, e);
    lily_arena_free(&arena);
    return rc;
}

static void names_a_pointer_of_git_lfs(void **state)
{
    (void)state;
    char text[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    lily_map m = {(uint8_t *)text, sizeof text - 1};
    size_t n;
    lily_err e;
    assert_int_equal(parse(&m, &n, &e), LILY_FORMAT);
    assert_string_equal(e.text, "f: a Git LFS pointer, not the file itself: run git lfs pull");
}

static void reads_a_header(void **state)
{
    (void)state;
    const char *header = "{\"__metadata__\":{\"format\":\"mlx\"},"
                         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[6,14]},"
                         "\"a\":{\"dtype\":\"BF16\",\"shape\":[3,1],\"data_offsets\":[0,6]},"
                         "\"empty\":{\"dtype\":\"U32\",\"shape\":[0,9],\"data_offsets\":[14,14]},"
                         "\"scalar\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[14,15]}} ";
    lily_map m = image(header, strlen(header), 15);
    lily_arena arena = {0};
    lily_tensor *t;
    size_t n;
    lily_err e;
    check_ok(lily_st_parse(&t, &n, &m, "f", &arena, &e), &e);
    assert_int_equal(n, 4);
    const uint8_t *data = m.data + 8 + strlen(header);
    assert_string_equal(t[0].name, "b");
    assert_string_equal(t[0].file, "f");
    assert_ptr_equal(t[0].data, data + 6);
    assert_int_equal(t[0].dtype, LILY_F32);
    assert_int_equal(t[1].rank, 2);
    assert_int_equal(t[1].dim[0], 3);
    assert_int_equal(t[1].dim[2], 1);
    assert_int_equal(t[2].bytes, 0);
    assert_int_equal(t[3].bytes, 1);
    lily_arena_free(&arena);
    free((void *)m.data);
}

#define T(dtype, shape, offsets)                                                                             \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(a, b)                                                                                            \
    "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" a "},\"u\":{\"dtype\":\"U8\",\"shape\":[4],"  \
    "\"data_offsets\":" b "}}"

static const struct {
    const char *header;
    size_t data;
    const char *says;
} damaged[] = {
    {"", 4, "not valid JSON"},
    {"[]", 0, "the header is not a JSON object"},
    {"{\"t\":1}", 0, "f: t: not a JSON object"},
    {"{\"t\":{}}", 0, "f: t: \"dtype\" is not a string"},
    {T("\"F4\"", "[2]", "[0,1]"), 1, "f: t: type \"F4\" is not known"},
    {T("\"U8\"", "4", "[0,4]"), 4, "f: t: \"shape\" is not a list"},
    {T("\"U8\"", "[-1]", "[0,4]"), 4, "f: t: \"shape\"[0] is not a non-negative integer"},
    {T("\"U8\"", "[4.0]", "[0,4]"), 4, "f: t: \"shape\"[0] is not a non-negative integer"},
    {T("\"U8\"", "[1,1,1,1,1,4]", "[0,4]"), 4, "6 dimensions, expected at most 5"},
    {T("\"U8\"", "[99999999999999999999]", "[0,4]"), 4, "not valid JSON"},
    {T("\"U8\"", "[4294967296,4294967296]", "[0,4]"), 4, "the product of its dimensions passes 64 bits"},
    {T("\"F64\"", "[4611686018427387904]", "[0,4]"), 4, "the product of its dimensions passes 64 bits"},
    {T("\"U8\"", "[4]", "[0]"), 4, "\"data_offsets\" is not a list of two numbers"},
    {T("\"U8\"", "[4]", "[0,\"4\"]"), 4, "\"data_offsets\"[1] is not a non-negative integer"},
    {T("\"U8\"", "[4]", "[4,0]"), 4, "begins at byte 4 and ends at 0"},
    {T("\"F32\"", "[4]", "[0,4]"), 4, "f: t: 4 bytes, expected 16 by its shape and type"},
    {T("\"U8\"", "[4]", "[0,4]"), 3,
     "f: 1 bytes missing: the header describes 4 bytes of data, the file holds 3"},
    {T("\"U8\"", "[4]", "[0,4]"), 9, "f: 9 bytes of data, expected 4 by the header"},
    {T("\"U8\"", "[4]", "[1,5]"), 5, "f: t begins at byte 1 of the data, expected 0"},
    {T("\"U8\"", "[4]", "[9223372036854775803,9223372036854775807]"), 4, "9223372036854775803 bytes missing"},
    {TWO("[0,4]", "[2,6]"), 6, "f: u begins at byte 2 of the data, inside t which ends at 4"},
    {TWO("[0,4]", "[0,4]"), 4, "begins at byte 0 of the data, inside"},
    {TWO("[0,4]", "[5,9]"), 9, "f: u begins at byte 5 of the data, expected 4"},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
     "\"t\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
     0, "not valid JSON"},
    {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "NUL"},
    {"{\"\xff\":1}", 0, "not valid JSON"},
    {"{} {}", 0, "not valid JSON"},
};

static void refuses_damaged_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        lily_map m = image(damaged[i].header, strlen(damaged[i].header), damaged[i].data);
        size_t n;
        lily_err e;
        check_fails(parse(&m, &n, &e), LILY_FORMAT, &e);
        if (!strstr(e.text, damaged[i].says))
            fail_msg("%s:\nwanted \"%s\", got \"%s\"", damaged[i].header, damaged[i].says, e.text);
        assert_int_equal(strncmp(e.text, "f: ", 3), 0);
        assert_int_equal(parse(&m, &n, NULL), LILY_FORMAT); /* without a place for the sentence */
        free((void *)m.data);
    }
}

/* The length comes first in the file and is the first lie to expect. */
static void refuses_damaged_lengths(void **state)
{
    (void)state;
    size_t n;
    lily_err e;
    lily_map m = image("{}", 2, 0);
    check_ok(parse(&m, &n, &e), &e);
    assert_int_equal(n, 0);
    for (uint64_t size = 0; size < 8; size++) {
        check_fails(parse(&(lily_map){m.data, size}, &n, &e), LILY_FORMAT, &e);
        assert_non_null(strstr(e.text, "bytes, expected at least 8"));
    }
    for (uint64_t claim = 3; claim; claim *= 2) {
        memcpy((void *)m.data, &claim, 8);
        check_fails(parse(&m, &n, &e), LILY_FORMAT, &e);
        assert_non_null(strstr(e.text, "bytes missing"));
    }
    free((void *)m.data);
    m = image("{}", LILY_ST_MAX_HEADER + 1, LILY_ST_MAX_HEADER);
    check_fails(parse(&m, &n, &e), LILY_FORMAT, &e);
    assert_non_null(strstr(e.text, "a header of 4194305 bytes, expected at most 4194304"));
    free((void *)m.data);
}

static void refuses_deep_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 1 << 20 };
    char *header = malloc(DEPTH + 1);
    memset(header, '[', DEPTH);
    header[DEPTH] = 0;
    lily_map m = image(header, DEPTH, 0);
    size_t n;
    lily_err e;
    check_fails(parse(&m, &n, &e), LILY_FORMAT, &e);
    free((void *)m.data);
    free(header);
}

/* Random changes of a real header: accepted or refused, but every accepted tensor can be read. */
static void survives_random_changes(void **state)
{
    (void)state;
    lily_map file;
    lily_err e;
    check_ok(lily_map_open(&file, TINY "/model-00002-of-00002.safetensors", &e), &e);
    uint8_t *copy = malloc((size_t)file.size);
    uint64_t header;
    memcpy(&header, file.data, 8);
    int accepted = 0;
    for (uint64_t round = 0; round < 400; round++) {
        memcpy(copy, file.data, (size_t)file.size);
        uint32_t r[4];
        lily_philox(7, round, r);
        for (uint32_t i = 0, changes = 1 + r[3] % 3; i < changes; i++)
            copy[r[i] % (8 + header)] ^= (uint8_t)(1u << r[3] / 4 % 8);
        lily_arena arena = {0};
        lily_tensor *t;
        size_t n = 0;
        if (lily_st_parse(&t, &n, &(lily_map){copy, file.size}, "f", &arena, &e) == LILY_OK) {
            accepted++;
            volatile uint8_t sum = 0;
            for (size_t i = 0; i < n; i++)
                if (t[i].bytes) sum = (uint8_t)(sum + t[i].data[0] + t[i].data[t[i].bytes - 1]);
        }
        lily_arena_free(&arena);
    }
    assert_in_range(accepted, 1, 399); /* letters of names may change; most else may not */
    free(copy);
    lily_map_close(&file);
}

/* ---- folders ----------------------------------------------------------------------- */

static const char one_tensor[] = "{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";

static void write_shard(const scratch *s, const char *file, const char *tensor)
{
    char header[256], bytes[300];
    uint64_t n = (uint64_t)snprintf(header, sizeof header, one_tensor, tensor);
    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, header, n);
    memcpy(bytes + 8 + n, "data", 4);
    scratch_write(s, file, bytes, 12 + (size_t)n);
}

static void expect(const scratch *s, int code, const char *says)
{
    lily_ckpt *c = NULL;
    lily_err e;
    check_fails(lily_ckpt_open(&c, s->path, &e), code, &e);
    if (code != LILY_OK) {
        assert_null(c);
        if (!strstr(e.text, says)) fail_msg("wanted \"%s\", got \"%s\"", says, e.text);
    }
    lily_ckpt_close(c);
}

static void reads_a_folder(void **state)
{
    const scratch *s = *state;
    write_shard(s, "model-2.safetensors", "b");
    write_shard(s, "model-1.safetensors", "c");
    write_shard(s, "model.safetensors", "a");
    write_shard(s, "other.safetensors", "d");
    lily_ckpt *c;
    lily_err e;
    check_ok(lily_ckpt_open(&c, s->path, &e), &e);
    assert_int_equal(lily_ckpt_count(c), 3);
    assert_int_equal(lily_ckpt_bytes(c), 12);
    assert_string_equal(lily_ckpt_at(c, 0)->name, "a");
    assert_string_equal(lily_ckpt_at(c, 2)->file, "model-1.safetensors");
    assert_memory_equal(lily_ckpt_find(c, "b")->data, "data", 4);
    assert_null(lily_ckpt_find(c, "d"));
    lily_ckpt_close(c);
    /* With an index, only the files in it are read. */
    scratch_text(s, "model.safetensors.index.json", "{\"weight_map\":{\"d\":\"other.safetensors\"}}");
    check_ok(lily_ckpt_open(&c, s->path, &e), &e);
    assert_int_equal(lily_ckpt_count(c), 1);
    assert_string_equal(lily_ckpt_at(c, 0)->name, "d");
    lily_ckpt_close(c);
}

static const struct {
    const char *index, *says;
} bad_index[] = {
    {"", "model.safetensors.index.json: not valid JSON"},
    {"[]", "model.safetensors.index.json: \"weight_map\" is not an object"},
    {"{\"weight_map\":{}}", "model.safetensors.index.json: \"weight_map\" is empty"},
    {"{\"weight_map\":{\"a\":1}}", "a: \"(not a string)\" is not the name of a file in this folder"},
    {"{\"weight_map\":{\"a\":\"\"}}", "is not the name of a file"},
    {"{\"weight_map\":{\"a\":\"..\"}}", "is not the name of a file"},
    {"{\"weight_map\":{\"a\":\"../model-1.safetensors\"}}",
     "\"../model-1.safetensors\" is not the name of a file"},
    {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "is not the name of a file"},
    {"{\"weight_map\":{\"a\":\"model-1.safetensors\\u0000\"}}", "is not the name of a file"},
    {"{\"weight_map\":{\"a\":\"model-9.safetensors\"}}",
     "model-9.safetensors: named in model.safetensors.index.json, but missing from the folder"},
    {"{\"weight_map\":{\"x\":\"model-1.safetensors\"}}", "model-1.safetensors: x: expected here"},
    {"{\"weight_map\":{\"a\":\"model-2.safetensors\",\"b\":\"model-1.safetensors\"}}",
     ": expected in model-"},
};

static void refuses_bad_indices(void **state)
{
    const scratch *s = *state;
    write_shard(s, "model-1.safetensors", "a");
    write_shard(s, "model-2.safetensors", "b");
    expect(s, LILY_OK, "");
    for (size_t i = 0; i < sizeof bad_index / sizeof *bad_index; i++) {
        scratch_text(s, "model.safetensors.index.json", bad_index[i].index);
        expect(s, LILY_FORMAT, bad_index[i].says);
    }
}

static void refuses_bad_folders(void **state)
{
    const scratch *s = *state;
    char path[600];
    expect(&(scratch){"/nonexistent/folder"}, LILY_IO, "folder: ");
    expect(s, LILY_FORMAT, "no model.safetensors.index.json and no model*.safetensors");
    write_shard(s, "model-1.safetensors", "a");
    write_shard(s, "model-2.safetensors", "a");
    expect(s, LILY_FORMAT, "a is in model-");
    snprintf(path, sizeof path, "%s/model-2.safetensors", s->path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes to it: opening must not wait */
    expect(s, LILY_IO, "model-2.safetensors: not a regular file");
    assert_int_equal(unlink(path), 0);
    scratch_write(s, "model-2.safetensors", "", 0);
    expect(s, LILY_FORMAT, "model-2.safetensors: 0 bytes, expected at least 8");
    assert_int_equal(unlink(path), 0);
    char target[600];
    snprintf(target, sizeof target, "%s/elsewhere", s->path);
    write_shard(s, "elsewhere", "b");
    assert_int_equal(symlink(target, path), 0); /* as in the cache of the Hugging Face hub */
    expect(s, LILY_OK, "");
}

static void survives_failed_allocations(void **state)
{
    (void)state;
    lily_ckpt *c;
    lily_err e;
    int64_t n = 0;
    for (;; n++) {
        lily_mem_fail_after(n);
        int rc = lily_ckpt_open(&c, TINY, &e);
        lily_mem_fail_after(-1);
        if (rc == LILY_OK) break;
        assert_int_equal(rc, LILY_NO_MEMORY);
        assert_null(c);
    }
    assert_in_range(n, 10, 100000);
    lily_ckpt_close(c);
}

/* ---- fingerprint ------------------------------------------------------------------- */

static void fingerprint(const scratch *s, char out[33])
{
    lily_ckpt *c;
    lily_err e;
    check_ok(lily_ckpt_open(&c, s->path, &e), &e);
    memcpy(out, lily_ckpt_fingerprint(c), 33);
    assert_string_equal(lily_ckpt_fingerprint(c), out);
    lily_ckpt_close(c);
}

static void fingerprint_tells_apart(void **state)
{
    const scratch *s = *state;
    char before[33], after[33];
    write_shard(s, "model.safetensors", "a");
    fingerprint(s, before);
    assert_int_equal(strlen(before), 32);
    assert_int_equal(strspn(before, "0123456789abcdef"), 32);
    fingerprint(s, after);
    assert_string_equal(before, after);
    scratch_text(s, "config.json", "{}");
    fingerprint(s, after);
    assert_string_not_equal(before, after);
    scratch_text(s, "config.json", "{ }");
    fingerprint(s, before);
    assert_string_not_equal(before, after);
    write_shard(s, "model.safetensors", "b");
    fingerprint(s, after);
    assert_string_not_equal(before, after);
    char path[600];
    snprintf(path, sizeof path, "%s/model.safetensors", s->path);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    fputc('!', f);
    fclose(f);
    fingerprint(s, before);
    assert_string_not_equal(before, after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_header), cmocka_unit_test(names_a_pointer_of_git_lfs),
        cmocka_unit_test(refuses_damaged_headers),
        cmocka_unit_test(refuses_damaged_lengths),
        cmocka_unit_test(refuses_deep_nesting),
        cmocka_unit_test(survives_random_changes),
        cmocka_unit_test_setup_teardown(reads_a_folder, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(refuses_bad_indices, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(refuses_bad_folders, scratch_open, scratch_close),
        cmocka_unit_test(survives_failed_allocations),
        cmocka_unit_test_setup_teardown(fingerprint_tells_apart, scratch_open, scratch_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
