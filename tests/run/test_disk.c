/* The cache on disk: a conversation comes back as it was, as far as a prompt shares it, or not at all. */
#include "../check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../checkpoint/scratch.h"
#include "base/file.h"
#include "base/mem.h"
#include "run/disk_inside.h"

#define TINY LILY_BINARY_DIR "/tests/ck/tiny"

enum { CONTEXT = 1024, PROMPT = 300, MARK = 70, LIMIT = 64 << 20 };

static const char *device = "ref";
static lily_loaded m;
static int32_t text[PROMPT + 100];

static int load(void **state)
{
    (void)state;
    lily_err e = {0};
    lily_engine_options o = {.model_dir = TINY, .device = device, .context = CONTEXT, .threads = 1};
    check_ok(lily_load(&m, &o, LILY_LOAD_FULL, &e), &e);
    for (uint32_t i = 0; i < PROMPT + 100; i++) text[i] = (int32_t)(i * 7919u % m.config->vocab);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    lily_unload(&m);
    return 0;
}

static lily_session *fresh(void)
{
    lily_err e = {0};
    lily_session *s;
    check_ok(lily_session_new(&s, &m, &e), &e);
    return s;
}

/* Reads n of the tokens, with marks, as a prompt. */
static void read_prompt(lily_session *s, const int32_t *tokens, uint32_t n)
{
    lily_err e = {0};
    const uint32_t marks[] = {MARK, 200};
    lily_reading p = {.tokens = tokens, .n = n, .marks = marks, .n_marks = 2, .fork = 200};
    check_ok(lily_session_begin(s, &p, &e), &e);
    while (p.n_read < p.n) check_ok(lily_session_read(s, &p, UINT32_MAX, NULL, &e), &e);
}

/* The most likely token behind one more. */
static int32_t next(lily_session *s, int32_t token)
{
    lily_err e = {0};
    lily_done done;
    lily_pick pick = {.top_p = 1, .repetition = 1, .n_vocab = (int32_t)m.config->vocab, .n_logprobs = 0};
    lily_feed f = {.tokens = &token, .n = 1, .pick = &pick};
    check_ok(lily_session_feed(s, &f, &done, &e), &e);
    return done.token;
}

static lily_disk *open_disk(const scratch *s, uint64_t limit)
{
    lily_err e = {0};
    lily_disk *d;
    check_ok(lily_disk_open(&d, &m, s->path, limit, &e), &e);
    return d;
}

static size_t files(const scratch *s, char name[64])
{
    size_t n = 0;
    DIR *dir = opendir(s->path);
    for (const struct dirent *item; (item = readdir(dir));)
        if (item->d_name[0] != '.') n++, snprintf(name, 64, "%.63s", item->d_name);
    closedir(dir);
    return n;
}

static void a_conversation_comes_back(void **state)
{
    lily_err e = {0};
    char name[64];
    lily_session *s = fresh(), *back = fresh();
    lily_disk *d = open_disk(*state, 0);
    uint32_t at[LILY_SNAPSHOTS + 1], n;
    read_prompt(s, text, PROMPT);
    assert_false(lily_disk_has(d, s));
    check_ok(lily_disk_save(d, s, true, NULL, NULL, &e), &e);
    assert_true(lily_disk_has(d, s));
    assert_int_equal(files(*state, name), 1);
    /* Another process. */
    lily_disk_close(d);
    d = open_disk(*state, 0);
    assert_true(lily_disk_has(d, s));
    assert_int_equal(lily_disk_prefix(d, text, PROMPT + 50), PROMPT);
    assert_int_equal(lily_disk_prefix(d, text, PROMPT), PROMPT);
    assert_int_equal(lily_disk_prefix(d, text, PROMPT - 1), 200);
    assert_int_equal(lily_disk_prefix(d, text, 199), MARK);
    assert_int_equal(lily_disk_prefix(d, text, MARK - 1), 0);
    assert_int_equal(lily_disk_prefix(d, text + 1, PROMPT), 0);
    check_ok(lily_disk_load(d, back, text, PROMPT + 50, &e), &e);
    assert_memory_equal(lily_session_tokens(back, &n), text, PROMPT * sizeof *text);
    assert_int_equal(n, PROMPT);
    assert_int_equal(lily_session_positions(back, at), 3);
    assert_true(at[0] == MARK && at[1] == 200 && at[2] == PROMPT);
    for (int i = 0; i < 5; i++) assert_int_equal(next(back, text[PROMPT + i]), next(s, text[PROMPT + i]));
    lily_session_free(back);
    lily_session_free(s);
    lily_disk_close(d);
}

static void a_part_comes_back(void **state)
{
    lily_err e = {0};
    lily_session *s = fresh(), *back = fresh(), *cold = fresh();
    lily_disk *d = open_disk(*state, 0);
    int32_t other[PROMPT];
    read_prompt(s, text, PROMPT);
    check_ok(lily_disk_save(d, s, true, NULL, NULL, &e), &e);
    memcpy(other, text, sizeof other);
    other[250] ^= 1;
    assert_int_equal(lily_disk_prefix(d, other, PROMPT), 200);
    check_ok(lily_disk_load(d, back, other, PROMPT, &e), &e);
    read_prompt(back, other, PROMPT);
    read_prompt(cold, other, PROMPT);
    for (int i = 0; i < 5; i++) assert_int_equal(next(back, text[i]), next(cold, text[i]));
    other[0] ^= 1;
    lily_session *none = fresh();
    check_fails(lily_disk_load(d, none, other, PROMPT, &e), LILY_ARGUMENT, &e);
    lily_session_free(none);
    lily_session_free(cold);
    lily_session_free(back);
    lily_session_free(s);
    lily_disk_close(d);
}

static void what_goes_on_takes_the_place(void **state)
{
    lily_err e = {0};
    char name[64];
    lily_session *s = fresh();
    lily_disk *d = open_disk(*state, 0);
    for (uint32_t n = 250; n <= PROMPT; n += 25) {
        read_prompt(s, text, n);
        check_ok(lily_disk_save(d, s, true, NULL, NULL, &e), &e);
    }
    assert_int_equal(files(*state, name), 1);
    lily_session *other = fresh();
    int32_t branch[PROMPT];
    memcpy(branch, text, sizeof branch);
    branch[210] ^= 1;
    read_prompt(other, branch, PROMPT);
    check_ok(lily_disk_save(d, other, false, NULL, NULL, &e), &e);
    assert_int_equal(files(*state, name), 2);
    lily_disk_clear(d);
    assert_int_equal(files(*state, name), 0);
    lily_session_free(other);
    lily_session_free(s);
    lily_disk_close(d);
}

static void a_large_one_waits(void **state)
{
    lily_err e = {0};
    lily_session *s = fresh();
    lily_disk *d = open_disk(*state, 0);
    read_prompt(s, text, 200);
    assert_true(lily_disk_is_due(d, s));
    d->small = 0;
    assert_true(lily_disk_is_due(d, s));
    check_ok(lily_disk_save(d, s, true, NULL, NULL, &e), &e);
    read_prompt(s, text, 220);
    assert_false(lily_disk_is_due(d, s));
    read_prompt(s, text, 240);
    assert_true(lily_disk_is_due(d, s));
    d->small = UINT64_MAX;
    read_prompt(s, text, 210);
    assert_true(lily_disk_is_due(d, s));
    lily_session_free(s);
    lily_disk_close(d);
}

static bool at_once(void *user)
{
    int *countdown = user;
    return (*countdown)-- == 0;
}

static void a_stopped_save_leaves_nothing(void **state)
{
    lily_err e = {0};
    char name[64];
    lily_session *s = fresh();
    lily_disk *d = open_disk(*state, 0);
    read_prompt(s, text, PROMPT);
    int rc = LILY_CANCELLED, asked = 0;
    for (; rc == LILY_CANCELLED; asked++) {
        int countdown = asked;
        assert_int_equal(files(*state, name), 0);
        rc = lily_disk_save(d, s, true, at_once, &countdown, &e);
    }
    check_ok(rc, &e);
    assert_in_range(asked, 4, 20);    /* before each state, and each piece of rows */
    lily_session_free(s);
    lily_disk_close(d);
}

static void damage_is_found(void **state)
{
    const scratch *dir = *state;
    lily_err e = {0};
    char name[64];
    lily_buf good = {0};
    lily_session *s = fresh();
    lily_disk *d = open_disk(dir, 0);
    read_prompt(s, text, PROMPT);
    check_ok(lily_disk_save(d, s, true, NULL, NULL, &e), &e);
    assert_int_equal(files(dir, name), 1);
    char *path = lily_path_join(dir->path, name);
    check_ok(lily_file_read(&good, path, LIMIT, &e), &e);
    size_t step = good.len / 40;
    for (size_t i = 600; i < good.len; i += step) {
        uint32_t n;
        lily_session *back = fresh();
        /* Damaged while it is in the index. */
        good.data[i] ^= 1;
        scratch_write(dir, name, good.data, good.len);
        assert_int_not_equal(lily_disk_load(d, back, text, PROMPT, &e), LILY_OK);
        (void)lily_session_tokens(back, &n);
        assert_int_equal(n, 0);
        assert_int_equal(lily_disk_prefix(d, text, PROMPT), 0);    /* not tried again */
        /* The session is as good as a new one. */
        read_prompt(back, text, 100);
        lily_session_free(back);
        good.data[i] ^= 1;
        scratch_write(dir, name, good.data, good.len);
        lily_disk_close(d);
        d = open_disk(dir, 0);
        assert_int_equal(lily_disk_prefix(d, text, PROMPT), PROMPT);
    }
    lily_free(path);
    lily_buf_free(&good);
    lily_session_free(s);
    lily_disk_close(d);
}

static void limit_and_use(void **state)
{
    lily_err e = {0};
    char name[64];
    lily_session *s = fresh();
    lily_disk *d = open_disk(*state, 0);
    lily_buf one = {0};
    read_prompt(s, text, PROMPT);
    check_ok(lily_disk_save(d, s, true, NULL, NULL, &e), &e);
    files(*state, name);
    char *path = lily_path_join(((const scratch *)*state)->path, name);
    check_ok(lily_file_read(&one, path, LIMIT, &e), &e);
    lily_free(path);
    lily_disk_close(d);
    d = open_disk(*state, 3 * one.len + 10);
    int32_t other[6][PROMPT];
    for (int i = 0; i < 6; i++) {
        memcpy(other[i], text, sizeof other[i]);
        other[i][0] = i + 1;
        lily_session *o = fresh(), *used = fresh();
        read_prompt(o, other[i], PROMPT);
        check_ok(lily_disk_save(d, o, false, NULL, NULL, &e), &e);
        check_ok(lily_disk_load(d, used, text, PROMPT, &e), &e);    /* the first one is used all the time */
        assert_true(files(*state, name) <= 3);
        lily_session_free(used);
        lily_session_free(o);
    }
    assert_int_equal(files(*state, name), 3);
    assert_int_equal(lily_disk_prefix(d, other[0], PROMPT), 0);
    assert_int_equal(lily_disk_prefix(d, other[5], PROMPT), PROMPT);
    lily_buf_free(&one);
    lily_session_free(s);
    lily_disk_close(d);
}

static bool take_any(void *user, const lily_replied *r)
{
    *(size_t *)user = r->n_turn;
    return true;
}

static void replies_come_back(void **state)
{
    lily_err e = {0};
    lily_replies *one, *two, *both;
    const int32_t ids[] = {5, 6, 7};
    lily_replied r = {.turn = ids, .n_turn = 3, .ended = true, .content = "hello", .n_content = 5, .reasoning = "",
                      .calls = "[]", .n_calls = 2};
    lily_replies_key a = lily_replies_key_add(lily_replies_key_start(), ids, 1);
    lily_replies_key b = lily_replies_key_add(lily_replies_key_start(), ids, 2);
    lily_disk *d = open_disk(*state, 0);
    check_ok(lily_replies_new(&one, 1 << 20, &e), &e);
    check_ok(lily_replies_new(&two, 1 << 20, &e), &e);
    check_ok(lily_replies_new(&both, 1 << 20, &e), &e);
    check_ok(lily_replies_add(one, a, &r, &e), &e);
    lily_disk_save_replies(d, one);
    r.n_turn = 2;
    check_ok(lily_replies_add(two, b, &r, &e), &e);
    lily_disk_save_replies(d, two);    /* another process: what is there stays */
    lily_disk_load_replies(d, both);
    size_t n;
    assert_true(lily_replies_find(both, a, take_any, &n));
    assert_int_equal(n, 3);
    assert_true(lily_replies_find(both, b, take_any, &n));
    assert_int_equal(n, 2);
    lily_replies_free(one);
    lily_replies_free(two);
    lily_replies_free(both);
    lily_disk_close(d);
}

static void memory_fails_anywhere(void **state)
{
    lily_err e = {0};
    char name[64];
    lily_session *s = fresh();
    lily_disk *d = NULL;
    read_prompt(s, text, PROMPT);
    int rc = LILY_NO_MEMORY;
    for (int64_t n = 0; rc != LILY_OK; n++) {
        lily_mem_fail_after(n);
        rc = lily_disk_open(&d, &m, ((const scratch *)*state)->path, 0, &e);
        lily_mem_fail_after(-1);
    }
    rc = LILY_NO_MEMORY;
    for (int64_t n = 0; rc != LILY_OK; n++) {
        lily_mem_fail_after(n);
        rc = lily_disk_save(d, s, true, NULL, NULL, &e);
        lily_mem_fail_after(-1);
        assert_true(rc == LILY_OK || rc == LILY_NO_MEMORY);
    }
    assert_int_equal(files(*state, name), 1);
    rc = LILY_NO_MEMORY;
    for (int64_t n = 0; rc != LILY_OK; n++) {
        uint32_t length;
        lily_session *back = fresh();
        lily_mem_fail_after(n);
        rc = lily_disk_load(d, back, text, PROMPT, &e);
        lily_mem_fail_after(-1);
        (void)lily_session_tokens(back, &length);
        assert_int_equal(length, rc == LILY_OK ? PROMPT : 0);
        lily_session_free(back);
    }
    lily_session_free(s);
    lily_disk_close(d);
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_open, scratch_close)

enum { SKIPPED = 77 };      /* what ctest takes for a skipped test */

static bool is_absent(void)
{
    const lily_dev_ops *ops;
    lily_dev *d;
    lily_err e;
    const int rc = lily_device_open(&ops, &d, device, &(lily_dev_options){.threads = 1}, &e);
    if (rc == LILY_OK) ops->close(d);
    if (rc == LILY_UNSUPPORTED) print_message("skipped: %s\n", e.text);
    return rc == LILY_UNSUPPORTED;
}

int main(int argc, char **argv)
{
    if (argc > 1) device = argv[1];
    if (is_absent()) return SKIPPED;
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_conversation_comes_back), IN_SCRATCH(a_part_comes_back),
        IN_SCRATCH(what_goes_on_takes_the_place), IN_SCRATCH(a_large_one_waits), IN_SCRATCH(a_stopped_save_leaves_nothing),
        IN_SCRATCH(damage_is_found), IN_SCRATCH(limit_and_use),
        IN_SCRATCH(replies_come_back), IN_SCRATCH(memory_fails_anywhere),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
