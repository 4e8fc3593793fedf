/* A file of the cache: what is written is read, and whatever is not exactly that is refused. */
#include "../check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../checkpoint/scratch.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"
#include "run/cache_file.h"

enum { BIG = 5000, HEAD = 64 + 16 * 32 };

static void crc_known_answers(void **state)
{
    (void)state;
    uint8_t zeros[32] = {0}, ones[32], all[256];
    memset(ones, 0xff, sizeof ones);
    for (int i = 0; i < 256; i++) all[i] = (uint8_t)i;
    assert_int_equal(lily_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(lily_crc32c(0, zeros, 32), 0x8a9136aau);    /* RFC 3720, B.4 */
    assert_int_equal(lily_crc32c(0, ones, 32), 0x62a8ab43u);
    for (size_t cut = 0; cut <= 256; cut++)
        assert_int_equal(lily_crc32c(lily_crc32c(0, all, cut), all + cut, 256 - cut), lily_crc32c(0, all, 256));
}

static char *path_of(const scratch *s, const char *name) { return lily_path_join(s->path, name); }

static size_t count_files(const scratch *s)
{
    size_t n = 0;
    DIR *dir = opendir(s->path);
    for (const struct dirent *item; (item = readdir(dir));) n += item->d_name[0] != '.';
    closedir(dir);
    return n;
}

static int write_file(const scratch *s, lily_err *e)
{
    lily_cache_writer w;
    uint8_t big[BIG];
    for (int i = 0; i < BIG; i++) big[i] = (uint8_t)(i * 7);
    TRY(lily_cache_create(&w, s->path, LILY_CACHE_CONVERSATION, e));
    int rc = lily_cache_begin(&w, LILY_CACHE_IDENTITY, 0, e);
    if (rc == LILY_OK) rc = lily_cache_write(&w, "me", 2, e);
    if (rc == LILY_OK) rc = lily_cache_begin(&w, LILY_CACHE_RECURRENT, 17, e);
    if (rc == LILY_OK) rc = lily_cache_write(&w, big, 1000, e);
    if (rc == LILY_OK) rc = lily_cache_write(&w, big + 1000, BIG - 1000, e);
    if (rc == LILY_OK) rc = lily_cache_begin(&w, LILY_CACHE_SAID, 0, e);
    if (rc == LILY_OK) return lily_cache_commit(&w, s->path, "a.lilycache", true, e);
    lily_cache_abandon(&w);
    return rc;
}

/* Opens and reads everything. */
static int read_file(const char *path, lily_err *e)
{
    lily_cache_file f;
    lily_buf out = {0};
    TRY(lily_cache_open(&f, path, e));
    int rc = LILY_OK;
    for (uint32_t i = 0; i < f.n_sections && rc == LILY_OK; i++) rc = lily_cache_read(&f, &f.section[i], BIG, &out, e);
    if (rc == LILY_OK) {
        const lily_cache_section *s = lily_cache_find(&f, LILY_CACHE_RECURRENT);
        assert_int_equal(f.kind, LILY_CACHE_CONVERSATION);
        assert_int_equal(f.n_sections, 3);
        assert_int_equal(s->number, 17);
        assert_int_equal(s->bytes, BIG);
        assert_null(lily_cache_find(&f, LILY_CACHE_TOKENS));
        assert_int_equal(out.len, 2 + BIG);
        assert_memory_equal(out.data, "me", 2);
        for (int i = 0; i < BIG; i++) assert_int_equal((uint8_t)out.data[2 + i], (uint8_t)(i * 7));
        uint8_t part[10];
        check_ok(lily_cache_read_part(&f, s, BIG - 10, part, 10, e), e);
        assert_int_equal(part[9], (uint8_t)((BIG - 1) * 7));
        check_fails(lily_cache_read_part(&f, s, BIG - 10, part, 11, e), LILY_FORMAT, e);
        check_fails(lily_cache_read_part(&f, s, UINT64_MAX, part, 10, e), LILY_FORMAT, e);
    }
    lily_buf_free(&out);
    lily_cache_close(&f);
    return rc;
}

static void what_is_written_is_read(void **state)
{
    const scratch *s = *state;
    lily_err e = {0};
    struct stat st;
    check_ok(write_file(s, &e), &e);
    char *path = path_of(s, "a.lilycache");
    check_ok(read_file(path, &e), &e);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    check_ok(write_file(s, &e), &e);    /* over the old one */
    check_ok(read_file(path, &e), &e);
    assert_int_equal(count_files(s), 1);
    lily_free(path);
}

/* Every byte of head and table, some of the rest, and every length. */
static void whatever_else_is_refused(void **state)
{
    const scratch *s = *state;
    lily_err e = {0};
    lily_buf good = {0};
    check_ok(write_file(s, &e), &e);
    char *path = path_of(s, "a.lilycache");
    check_ok(lily_file_read(&good, path, 1 << 20, &e), &e);
    for (size_t i = 0; i < good.len; i += i < HEAD ? 1 : 97) {
        good.data[i] ^= 0x10;
        scratch_write(s, "a.lilycache", good.data, good.len);
        check_fails(read_file(path, &e), LILY_FORMAT, &e);
        good.data[i] ^= 0x10;
    }
    for (size_t n = 0; n < good.len; n += n < HEAD + 4 ? 1 : 97) {
        scratch_write(s, "a.lilycache", good.data, n);
        check_fails(read_file(path, &e), LILY_FORMAT, &e);
    }
    lily_buf_putc(&good, 0);
    scratch_write(s, "a.lilycache", good.data, good.len);
    check_fails(read_file(path, &e), LILY_FORMAT, &e);
    lily_free(path);
    path = path_of(s, "none");
    check_fails(read_file(path, &e), LILY_IO, &e);
    check_fails(read_file(s->path, &e), LILY_FORMAT, &e);
    lily_free(path);
    lily_buf_free(&good);
}

static void nothing_half_written_stays(void **state)
{
    const scratch *s = *state;
    lily_err e = {0};
    lily_cache_writer w;
    check_ok(lily_cache_create(&w, s->path, LILY_CACHE_REPLIES, &e), &e);
    check_ok(lily_cache_begin(&w, LILY_CACHE_SAID, 0, &e), &e);
    check_ok(lily_cache_write(&w, "text", 4, &e), &e);
    assert_int_equal(count_files(s), 1);
    lily_cache_abandon(&w);
    assert_int_equal(count_files(s), 0);
    check_fails(lily_cache_create(&w, "/nonexistent/folder", LILY_CACHE_REPLIES, &e), LILY_IO, &e);
    int rc = LILY_NO_MEMORY;
    for (int64_t n = 0; rc == LILY_NO_MEMORY; n++) {
        assert_int_equal(count_files(s), 0);
        lily_mem_fail_after(n);
        rc = write_file(s, &e);
        lily_mem_fail_after(-1);
    }
    check_ok(rc, &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc_known_answers),
        cmocka_unit_test_setup_teardown(what_is_written_is_read, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(whatever_else_is_refused, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(nothing_half_written_stays, scratch_open, scratch_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
