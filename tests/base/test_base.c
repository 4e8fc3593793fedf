/* The foundation: errors, memory that fails on demand, buffers, arenas, files, random numbers, UTF-8. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../check.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/utf8.h"

static void sentences_stay_printable(void **state)
{
    (void)state;
    lily_err e;
    assert_int_equal(lily_fail(&e, LILY_FORMAT, "name '%s'", "a\x1b[31m\n\xff z\xc3\xa9"), LILY_FORMAT);
    assert_string_equal(e.text, "name 'a?[31m?? z\xc3\xa9'");
    lily_err_prefix(&e, "FILE");
    assert_string_equal(e.text, "FILE: name 'a?[31m?? z\xc3\xa9'");
    char longer[3 * LILY_ERR_TEXT];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    lily_fail(&e, LILY_IO, "%s", longer);
    assert_int_equal(strlen(e.text), LILY_ERR_TEXT - 1);
    lily_err_prefix(&e, "P");
    assert_int_equal(strncmp(e.text, "P: xxx", 6), 0);
}

static void every_code_has_statuses(void **state)
{
    (void)state;
    assert_int_equal(lily_err_exit_status(LILY_OK), 0);
    for (int code = 1; code <= LILY_INTERNAL; code++) {
        assert_in_range(lily_err_exit_status(code), 1, 130);
        assert_in_range(lily_err_http_status(code), 400, 599);
    }
    assert_string_equal(lily_err_name(LILY_CONTEXT), "CONTEXT");
}

static void allocation_fails_on_demand_and_never_wraps(void **state)
{
    (void)state;
    assert_null(lily_calloc(SIZE_MAX / 2, 4));
    assert_null(lily_realloc(NULL, SIZE_MAX / 2, 4));
    lily_mem_fail_after(1);
    void *first = lily_calloc(1, 8), *second = lily_calloc(1, 8);
    lily_mem_fail_after(-1);
    assert_non_null(first);
    assert_null(second);
    lily_free(first);
}

static void a_buffer_remembers_its_failure(void **state)
{
    (void)state;
    lily_err e;
    lily_buf b = {0};
    for (int i = 0; i < 1000; i++) lily_buf_printf(&b, "%d,", i);
    check_ok(lily_buf_ok(&b, "text", &e), &e);
    assert_int_equal(b.len, 3890);
    assert_int_equal(strlen(b.data), b.len);
    lily_buf_drop(&b, 2);
    assert_int_equal(strncmp(b.data, "1,2,", 4), 0);
    lily_mem_fail_after(0);
    for (int i = 0; i < 10000; i++) lily_buf_putc(&b, 'x');
    lily_mem_fail_after(-1);
    check_fails(lily_buf_ok(&b, "text", &e), LILY_NO_MEMORY, &e);
    lily_buf_free(&b);
}

static void an_arena_aligns_and_frees_all(void **state)
{
    (void)state;
    lily_arena a = {0};
    for (size_t i = 1; i < 3000; i += 7) {
        unsigned char *p = lily_arena_calloc(&a, i, 40);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
        for (size_t k = 0; k < i * 40; k++) assert_int_equal(p[k], 0);
        memset(p, 0xff, i * 40);
    }
    assert_null(lily_arena_calloc(&a, SIZE_MAX / 4, 16));
    lily_arena_free(&a);
    assert_int_equal(a.total, 0);
}

static void only_regular_files_are_read(void **state)
{
    (void)state;
    lily_err e;
    lily_map m;
    lily_buf b = {0};
    char dir[] = "/tmp/lily-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_fails(lily_map_open(&m, path, &e), LILY_IO, &e);
    check_fails(lily_map_open(&m, dir, &e), LILY_IO, &e);
    check_fails(lily_file_read(&b, path, 10, &e), LILY_IO, &e);
    unlink(path);
    check_fails(lily_map_open(&m, path, &e), LILY_IO, &e);
    assert_non_null(strstr(e.text, "pipe"));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("12345678901", f);
    fclose(f);
    check_fails(lily_file_read(&b, path, 10, &e), LILY_FORMAT, &e);
    lily_buf_clear(&b);
    check_ok(lily_file_read(&b, path, 11, &e), &e);
    assert_string_equal(b.data, "12345678901");
    check_ok(lily_map_open(&m, path, &e), &e);
    assert_int_equal(m.size, 11);
    lily_map_close(&m);
    lily_buf_free(&b);
    unlink(path);
    rmdir(dir);
}

static void *no_room(size_t n)
{
    (void)n;
    return NULL;
}

/* A good file, or a client's good request, would be called broken. */
static void json_without_memory(void **state)
{
    (void)state;
    json_malloc_t normal_malloc;
    json_free_t normal_free;
    json_t *v;
    lily_err e;
    json_get_alloc_funcs(&normal_malloc, &normal_free);
    json_set_alloc_funcs(no_room, normal_free);
    int rc = lily_json_parse(&v, "{\"n\": 7}", 8, "file", &e);
    json_set_alloc_funcs(normal_malloc, normal_free);
    check_fails(rc, LILY_NO_MEMORY, &e);
}

static void json_is_strict(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "{", "{} x", "{\"a\":1,\"a\":2}", "\"\xff\"", "[1,]", "NaN", "{'a':1}"};
    lily_err e;
    json_t *v;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_fails(lily_json_parse(&v, bad[i], strlen(bad[i]), "file", &e), LILY_FORMAT, &e);
    lily_buf deep = {0};
    for (int i = 0; i < 100000; i++) lily_buf_putc(&deep, '[');
    check_fails(lily_json_parse(&v, deep.data, deep.len, "file", &e), LILY_FORMAT, &e);
    lily_buf_free(&deep);
    check_ok(lily_json_parse(&v, "{\"n\": 7}", 8, "file", &e), &e);
    int64_t n;
    check_ok(lily_json_uint(v, "n", 0, 7, -1, &n, "file", &e), &e);
    assert_int_equal(n, 7);
    check_fails(lily_json_uint(v, "n", 8, 9, -1, &n, "file", &e), LILY_FORMAT, &e);
    check_fails(lily_json_uint(v, "m", 0, 9, -1, &n, "file", &e), LILY_FORMAT, &e);
    check_ok(lily_json_uint(v, "m", 0, 9, 5, &n, "file", &e), &e);
    assert_int_equal(n, 5);
    json_decref(v);
}

/* Known answers of the authors' test vectors for Philox4x32-10. */
static void philox_known_answers(void **state)
{
    (void)state;
    uint32_t r[4];
    lily_philox(0, 0, r);
    const uint32_t zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(r, zero, sizeof r);
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = lily_uniform(42, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(sum > 49500 && sum < 50500);
}

static void bf16_rounds_to_even(void **state)
{
    (void)state;
    assert_int_equal(lily_float_to_bf16(1.0f), 0x3f80);
    assert_int_equal(lily_float_to_bf16(lily_bits_float(0x3f808000)), 0x3f80);
    assert_int_equal(lily_float_to_bf16(lily_bits_float(0x3f818000)), 0x3f82);
    assert_int_equal(lily_float_to_bf16(lily_bits_float(0x7f7fffff)), 0x7f80);
    assert_true((lily_float_to_bf16(lily_bits_float(0x7f800001)) & 0x7fff) > 0x7f80);
    for (uint32_t h = 0; h < 0x10000; h++)
        if ((h & 0x7fff) <= 0x7f80) assert_int_equal(lily_float_to_bf16(lily_bf16_to_float((uint16_t)h)), h);
}

static void utf8_accepts_exactly_the_scalar_values(void **state)
{
    (void)state;
    unsigned char s[4];
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000) continue;
        size_t n = lily_utf8_encode(c, s);
        assert_int_equal(lily_utf8_length(s, n), n);
        assert_int_equal(lily_utf8_decode(s, n), c);
        if (n > 1) assert_int_equal(lily_utf8_length(s, n - 1), 0);
    }
    static const char *const bad[] = {"\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(lily_utf8_length((const unsigned char *)bad[i], strlen(bad[i])), 0);
    bool open;
    assert_int_equal(lily_utf8_subpart((const unsigned char *)"\xe2\x82", 2, &open), 2);
    assert_true(open);
    assert_int_equal(lily_utf8_subpart((const unsigned char *)"\xe2\x82x", 3, &open), 2);
    assert_false(open);
    assert_int_equal(lily_utf8_subpart((const unsigned char *)"\xed\xa0\x80", 3, &open), 1);
    assert_false(open);
}

/* FIPS 180-4's examples: none, one and two blocks, with the length in the same block or one of its own. */
static void sha256_known_answers(void **state)
{
    (void)state;
    static const struct {
        const char *text, *hex;
    } known[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint8_t hash[LILY_SHA256_BYTES];
        char hex[2 * LILY_SHA256_BYTES + 1];
        lily_sha256(known[i].text, strlen(known[i].text), hash);
        for (int b = 0; b < LILY_SHA256_BYTES; b++) snprintf(hex + 2 * b, 3, "%02x", hash[b]);
        assert_string_equal(hex, known[i].hex);
    }
}

/* What a line of the log looks like, through a file in the place of standard error. */
static void logged(char *out, size_t room, enum lily_log_level level, const char *text, const char *members)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    int before = dup(STDERR_FILENO);
    dup2(fileno(f), STDERR_FILENO);
    lily_log_event(level, text, members);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(f);
    out[fread(out, 1, room - 1, f)] = 0;
    fclose(f);
}

static void log_lines(void **state)
{
    (void)state;
    char line[8192], longer[4000];
    lily_err e;
    json_t *json;
    logged(line, sizeof line, LILY_LOG_INFO, "text", ",\"x\":1");
    assert_string_equal(line, "lily: text\n");
    logged(line, sizeof line, LILY_LOG_INFO, "a\x1b[2J\nlily: b \xc3\xa9", "");
    assert_string_equal(line, "lily: a?[2J?lily: b \xc3\xa9\n");
    logged(line, sizeof line, LILY_LOG_DEBUG, "text", "");
    assert_string_equal(line, "");
    lily_log_set_format(LILY_LOG_JSON);
    logged(line, sizeof line, LILY_LOG_WARN, "a \"b\" \\ \n\x1b \xff\xc3\xa9", ",\"x\":1");
    check_ok(lily_json_parse(&json, line, strlen(line), "a line", &e), &e);
    assert_string_equal(json_string_value(json_object_get(json, "message")), "a \"b\" \\ \n\x1b \xc3\xa9");
    assert_string_equal(json_string_value(json_object_get(json, "level")), "warn");
    assert_int_equal(json_integer_value(json_object_get(json, "x")), 1);
    json_decref(json);
    memset(longer, 1, sizeof longer - 1);    /* six bytes each when escaped: cut, but still JSON */
    longer[sizeof longer - 1] = 0;
    logged(line, sizeof line, LILY_LOG_INFO, longer, "");
    check_ok(lily_json_parse(&json, line, strlen(line), "a line", &e), &e);
    json_decref(json);
    lily_log_set_format(LILY_LOG_TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentences_stay_printable),
        cmocka_unit_test(every_code_has_statuses),
        cmocka_unit_test(allocation_fails_on_demand_and_never_wraps),
        cmocka_unit_test(a_buffer_remembers_its_failure),
        cmocka_unit_test(an_arena_aligns_and_frees_all),
        cmocka_unit_test(only_regular_files_are_read),
        cmocka_unit_test(json_is_strict),
        cmocka_unit_test(json_without_memory),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(bf16_rounds_to_even),
        cmocka_unit_test(utf8_accepts_exactly_the_scalar_values),
        cmocka_unit_test(sha256_known_answers),
        cmocka_unit_test(log_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
