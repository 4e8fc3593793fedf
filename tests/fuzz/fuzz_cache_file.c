/* Any bytes as files of the cache on disk: a conversation is refused with a sentence, or fits together; replies are
 * refused or added.  Checksums are put right first, since no fuzzer finds them. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "run/disk_inside.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 64, ENTRY = 32, CONTENT = HEAD + LILY_CACHE_SECTIONS * ENTRY, LARGEST = 1 << 16 };

static uint64_t number(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;) v = v << 8 | p[i];
    return v;
}

static void put(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static void put_checksums(uint8_t *file, size_t size)
{
    if (size < CONTENT) return;
    for (int i = 0; i < LILY_CACHE_SECTIONS; i++) {
        uint8_t *p = file + HEAD + i * ENTRY;
        uint64_t at = number(p + 8, 8), bytes = number(p + 16, 8);
        if (at >= CONTENT && at <= size && bytes <= size - at) put(p + 24, lily_crc32c(0, file + at, (size_t)bytes));
    }
    put(file + HEAD - 4, lily_crc32c(lily_crc32c(0, file, HEAD - 4), file + HEAD, CONTENT - HEAD));
}

static void read_conversation(const lily_cache_file *f)
{
    lily_loaded m = {.context = 4096};
    lily_disk d = {.m = &m, .snapshot = 24, .per_token = 2, .identity = {.data = (char *)"lily\n", .len = 5}};
    disk_entry x = {0};
    lily_buf tokens = {0};
    lily_err e = {0};
    if (disk_read_entry(&d, f, &x, &tokens, &e) != LILY_OK) {
        if (e.text[0] == 0) abort();
    } else {
        if (x.n == 0 || x.n > m.context || tokens.len != x.n * sizeof(int32_t) || x.settled > x.n) abort();
        if (x.n_places == 0 || x.place[x.n_places - 1].position != x.n) abort();
    }
    lily_buf_free(&tokens);
}

static void read_replies(const lily_cache_file *f)
{
    const lily_cache_section *s = lily_cache_find(f, LILY_CACHE_SAID);
    lily_buf bytes = {0};
    lily_replies *r;
    lily_err e = {0};
    if (!s || lily_replies_new(&r, LARGEST, &e) != LILY_OK) return;
    if (lily_cache_read(f, s, LARGEST, &bytes, &e) == LILY_OK) (void)lily_replies_read(r, bytes.data, bytes.len, &e);
    lily_replies_free(r);
    lily_buf_free(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/lily-fuzz-XXXXXX";
    lily_cache_file f;
    lily_err e = {0};
    if (size > LARGEST) return 0;
    uint8_t *file = malloc(size + 1);
    int fd = mkstemp(path);
    if (!file || fd < 0) abort();
    if (size) memcpy(file, data, size);
    put_checksums(file, size);
    if (write(fd, file, size) != (ssize_t)size) abort();
    close(fd);
    if (lily_cache_open(&f, path, &e) == LILY_OK) {
        read_conversation(&f);
        read_replies(&f);
        lily_cache_close(&f);
    } else if (e.text[0] == 0) {
        abort();
    }
    unlink(path);
    free(file);
    return 0;
}
