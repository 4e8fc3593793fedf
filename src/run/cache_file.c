#include "run/cache_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/file.h"
#include "base/mem.h"

static const char MAGIC[8] = "LILYCACH";

enum { VERSION = 1, HEAD = 64, ENTRY = 32, CONTENT = HEAD + LILY_CACHE_SECTIONS * ENTRY };

/* ---- numbers, little-endian on disk ---- */

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get64(const uint8_t *p) { return get32(p) | (uint64_t)get32(p + 4) << 32; }

/* The head: magic 8, version 4, kind 4, sections 4, 0, size 8; at 60 the checksum of all of head and table but
 * itself. */
static uint32_t head_crc(const uint8_t *head)
{
    return lily_crc32c(lily_crc32c(0, head, HEAD - 4), head + HEAD, CONTENT - HEAD);
}

static void put_head(const lily_cache_writer *w, uint8_t *head)
{
    memset(head, 0, CONTENT);
    memcpy(head, MAGIC, sizeof MAGIC);
    put32(head + 8, VERSION);
    put32(head + 12, w->head.kind);
    put32(head + 16, w->head.n_sections);
    put64(head + 24, w->at);
    for (uint32_t i = 0; i < w->head.n_sections; i++) {
        const lily_cache_section *s = &w->head.section[i];
        uint8_t *p = head + HEAD + i * ENTRY;
        put32(p, s->type);
        put32(p + 4, s->number);
        put64(p + 8, s->at);
        put64(p + 16, s->bytes);
        put32(p + 24, s->crc);
    }
    put32(head + HEAD - 4, head_crc(head));
}

/* ---- reading ---- */

/* Sections follow each other and fill the file. */
static int take_sections(lily_cache_file *f, const uint8_t *head, uint64_t size, lily_err *e)
{
    uint64_t at = CONTENT;
    for (uint32_t i = 0; i < f->n_sections; i++) {
        const uint8_t *p = head + HEAD + i * ENTRY;
        lily_cache_section *s = &f->section[i];
        *s = (lily_cache_section){get32(p), get32(p + 4), get64(p + 8), get64(p + 16), get32(p + 24)};
        if (s->at != at || s->bytes > size - at)
            return lily_fail(e, LILY_FORMAT, "section %u lies outside the file", i);
        at += s->bytes;
    }
    return at == size ? LILY_OK : lily_fail(e, LILY_FORMAT, "its sections end before the file");
}

static int take_head(lily_cache_file *f, const uint8_t *head, uint64_t size, lily_err *e)
{
    if (memcmp(head, MAGIC, sizeof MAGIC) != 0) return lily_fail(e, LILY_FORMAT, "not a file of Lily's cache");
    if (get32(head + 8) != VERSION)
        return lily_fail(e, LILY_FORMAT, "version %u of the format, this program knows %d", get32(head + 8), VERSION);
    if (get32(head + HEAD - 4) != head_crc(head)) return lily_fail(e, LILY_FORMAT, "its head is damaged");
    f->kind = (enum lily_cache_kind)get32(head + 12);
    f->n_sections = get32(head + 16);
    if (get64(head + 24) != size || f->n_sections > LILY_CACHE_SECTIONS)
        return lily_fail(e, LILY_FORMAT, "its head does not fit to its %llu bytes", (unsigned long long)size);
    return take_sections(f, head, size, e);
}

static int read_exactly(int fd, uint64_t at, void *out, size_t n, lily_err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return lily_fail(e, LILY_IO, "reading failed: %s", strerror(errno));
        if (got == 0) return lily_fail(e, LILY_FORMAT, "it ends early");
        done += (size_t)got;
    }
    return LILY_OK;
}

static int open_regular(lily_cache_file *f, const char *path, uint64_t *size, lily_err *e)
{
    struct stat st;
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (f->fd < 0) return lily_fail(e, LILY_IO, "%s", strerror(errno));
    if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode)) return lily_fail(e, LILY_FORMAT, "not a file");
    *size = (uint64_t)st.st_size;
    return *size >= CONTENT ? LILY_OK : lily_fail(e, LILY_FORMAT, "%llu bytes are too few", (unsigned long long)*size);
}

int lily_cache_open(lily_cache_file *f, const char *path, lily_err *e)
{
    uint8_t head[CONTENT];
    uint64_t size = 0;
    *f = (lily_cache_file){.fd = -1};
    int rc = open_regular(f, path, &size, e);
    if (rc == LILY_OK) rc = read_exactly(f->fd, 0, head, sizeof head, e);
    if (rc == LILY_OK) rc = take_head(f, head, size, e);
    if (rc != LILY_OK) {
        lily_cache_close(f);
        lily_err_prefix(e, "%s", lily_path_base(path));
    }
    return rc;
}

void lily_cache_close(lily_cache_file *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

const lily_cache_section *lily_cache_find(const lily_cache_file *f, enum lily_cache_type type)
{
    for (uint32_t i = 0; i < f->n_sections; i++)
        if (f->section[i].type == (uint32_t)type) return &f->section[i];
    return NULL;
}

int lily_cache_read_part(const lily_cache_file *f, const lily_cache_section *s, uint64_t from, void *out, size_t n,
                         lily_err *e)
{
    if (from > s->bytes || n > s->bytes - from) return lily_fail(e, LILY_FORMAT, "a section is too short");
    return read_exactly(f->fd, s->at + from, out, n, e);
}

int lily_cache_read_into(const lily_cache_file *f, const lily_cache_section *s, void *out, size_t n, lily_err *e)
{
    if (s->bytes != n)
        return lily_fail(e, LILY_FORMAT, "a section has %llu bytes, expected %zu", (unsigned long long)s->bytes, n);
    TRY(read_exactly(f->fd, s->at, out, n, e));
    return lily_crc32c(0, out, n) == s->crc ? LILY_OK : lily_fail(e, LILY_FORMAT, "a section is damaged");
}

int lily_cache_read(const lily_cache_file *f, const lily_cache_section *s, size_t limit, lily_buf *out, lily_err *e)
{
    if (s->bytes > limit)
        return lily_fail(e, LILY_FORMAT, "a section has %llu bytes, at most %zu are allowed",
                         (unsigned long long)s->bytes, limit);
    if (!lily_buf_reserve(out, (size_t)s->bytes)) return lily_no_memory(e, (size_t)s->bytes, "a file of the cache");
    TRY(lily_cache_read_into(f, s, out->data + out->len, (size_t)s->bytes, e));
    out->len += (size_t)s->bytes;
    return LILY_OK;
}

/* ---- writing ---- */

int lily_cache_create(lily_cache_writer *w, const char *dir, enum lily_cache_kind kind, lily_err *e)
{
    *w = (lily_cache_writer){.fd = -1, .head = {.fd = -1, .kind = kind}, .at = CONTENT};
    w->temporary = lily_path_join(dir, "tmp-XXXXXX");
    if (!w->temporary) return lily_no_memory(e, strlen(dir), "a path");
    w->fd = mkstemp(w->temporary);      /* 0600 */
    if (w->fd >= 0) return LILY_OK;
    lily_fail(e, LILY_IO, "%s: no file can be made: %s", dir, strerror(errno));
    lily_free(w->temporary);
    w->temporary = NULL;
    return LILY_IO;
}

int lily_cache_begin(lily_cache_writer *w, enum lily_cache_type type, uint32_t number, lily_err *e)
{
    if (w->head.n_sections == LILY_CACHE_SECTIONS) return lily_fail(e, LILY_INTERNAL, "too many sections");
    w->head.section[w->head.n_sections++] = (lily_cache_section){.type = type, .number = number, .at = w->at};
    return LILY_OK;
}

static int write_all(int fd, uint64_t at, const void *data, size_t n, lily_err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t put = pwrite(fd, (const char *)data + done, n - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return lily_fail(e, LILY_IO, "writing the cache failed: %s", strerror(errno));
        done += (size_t)put;
    }
    return LILY_OK;
}

int lily_cache_write(lily_cache_writer *w, const void *data, size_t n, lily_err *e)
{
    lily_cache_section *s = &w->head.section[w->head.n_sections - 1];
    TRY(write_all(w->fd, w->at, data, n, e));
    if (s->type != LILY_CACHE_ROWS) s->crc = lily_crc32c(s->crc, data, n);
    s->bytes += n;
    w->at += n;
    return LILY_OK;
}

/* The rename itself must reach the disk too; a file system that cannot say so has it later. */
static void sync_folder(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

static int put_in_place(lily_cache_writer *w, const char *path, bool sync, lily_err *e)
{
    uint8_t head[CONTENT];
    put_head(w, head);
    TRY(write_all(w->fd, 0, head, sizeof head, e));
    if (sync && fsync(w->fd) != 0) return lily_fail(e, LILY_IO, "writing the cache failed: %s", strerror(errno));
    if (rename(w->temporary, path) != 0) return lily_fail(e, LILY_IO, "%s: %s", lily_path_base(path), strerror(errno));
    return LILY_OK;
}

static void end_writer(lily_cache_writer *w)
{
    close(w->fd);
    lily_free(w->temporary);
    *w = (lily_cache_writer){.fd = -1};
}

int lily_cache_commit(lily_cache_writer *w, const char *dir, const char *name, bool sync, lily_err *e)
{
    char *path = lily_path_join(dir, name);
    int rc = path ? put_in_place(w, path, sync, e) : lily_no_memory(e, strlen(dir), "a path");
    lily_free(path);
    if (rc != LILY_OK) {
        lily_cache_abandon(w);
        return rc;
    }
    if (sync) sync_folder(dir);
    end_writer(w);
    return LILY_OK;
}

void lily_cache_abandon(lily_cache_writer *w)
{
    (void)unlink(w->temporary);
    end_writer(w);
}
