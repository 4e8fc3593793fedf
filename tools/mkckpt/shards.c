#include "shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "json_writer.h"

/* ---- files ------------------------------------------------------------------------- */

static int create(int *fd, const char *dir, const char *name, lily_err *e)
{
    char *path = lily_path_join(dir, name);
    if (!path) return lily_no_memory(e, strlen(dir), "a path");
    *fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int saved = errno;
    lily_free(path);
    return *fd < 0 ? lily_fail(e, LILY_IO, "%s: %s", name, strerror(saved)) : LILY_OK;
}

int write_at(int fd, const char *file, uint64_t at, const void *data, size_t n, lily_err *e)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = pwrite(fd, (const char *)data + done, n - done, (off_t)(at + done));
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0)
            return lily_fail(e, LILY_IO, "%s: %s", file, k < 0 ? strerror(errno) : "nothing was written");
        done += (size_t)k;
    }
    return LILY_OK;
}

static int close_file(int fd, const char *file, lily_err *e)
{
    return close(fd) == 0 ? LILY_OK : lily_fail(e, LILY_IO, "%s: %s", file, strerror(errno));
}

int write_file(const char *dir, const char *name, const void *data, size_t n, lily_err *e)
{
    int fd;
    TRY(create(&fd, dir, name, e));
    int rc = write_at(fd, name, 0, data, n, e), closed = close_file(fd, name, rc == LILY_OK ? e : NULL);
    return rc != LILY_OK ? rc : closed;
}

/* ---- division ---------------------------------------------------------------------- */

int shards_plan(shards *s, const preset *p, const entry *entries, size_t n, double limit, lily_err *e)
{
    *s = (shards){.entries = entries, .n_entries = n};
    s->place = lily_arena_calloc(&s->arena, n, sizeof *s->place);
    s->first = lily_arena_calloc(&s->arena, n + 1, sizeof *s->first);
    if (!s->place || !s->first) return lily_no_memory(e, n * sizeof *s->place, "the list of shards");
    for (size_t i = 0; i < n; i++) s->bytes += entry_bytes(&entries[i]);
    double used = 0, goal = p->shards ? (double)s->bytes / p->shards : limit;
    s->n = 1;
    for (size_t i = 0; i < n; i++) {
        double size = (double)entry_bytes(&entries[i]);
        bool full = p->shards ? s->n < p->shards && used + size / 2 > goal : used + size > goal;
        if (used > 0 && full) {
            s->first[s->n++] = i;
            used = 0;
        }
        used += size;
    }
    s->first[s->n] = n;
    return LILY_OK;
}

/* ---- headers ----------------------------------------------------------------------- */

/* The header of entries [first, end), and each part's offset in the data. */
static uint64_t header_json(jw *w, const shards *s, size_t first, size_t end)
{
    uint64_t at = 0;
    jw_open(w, NULL, '{');
    jw_open(w, "__metadata__", '{');
    jw_string(w, "format", "mlx");
    jw_close(w, '}');
    for (size_t i = first; i < end; i++) {
        const entry *t = &s->entries[i];
        part parts[3];
        for (uint32_t j = 0, n = entry_parts(t, parts); j < n; j++) {
            char name[160];
            snprintf(name, sizeof name, "%s%s", t->name, parts[j].suffix);
            jw_open(w, name, '{');
            jw_string(w, "dtype", parts[j].dtype);
            jw_open(w, "shape", '[');
            for (uint32_t k = 0; k + 1 < t->rank; k++) jw_int(w, NULL, t->dim[k]);
            jw_int(w, NULL, parts[j].last);
            jw_close(w, ']');
            jw_open(w, "data_offsets", '[');
            jw_int(w, NULL, (long long)at);
            s->place[i].at[j] = at;
            at += parts[j].bytes;
            jw_int(w, NULL, (long long)at);
            jw_close(w, ']');
            jw_close(w, '}');
        }
    }
    jw_close(w, '}');
    return at;
}

static int create_shard(shards *s, uint32_t number, bool odd_header, const char *dir, lily_err *e)
{
    char name[64];
    int fd;
    snprintf(name, sizeof name, "model-%05u-of-%05u.safetensors", number + 1, s->n);
    const char *file = lily_arena_strndup(&s->arena, name, strlen(name));
    if (!file) return lily_no_memory(e, strlen(name), "a file's name");
    TRY(create(&fd, dir, file, e));
    size_t first = s->first[number], end = s->first[number + 1];
    jw w = {.indent = JW_COMPACT};
    uint64_t data = header_json(&w, s, first, end);
    /* MLX does not pad its headers, so tensor data may start at any byte. */
    if (odd_header && w.out.len % 2 == 0) lily_buf_putc(&w.out, ' ');
    uint64_t length = w.out.len, base = 8 + length;
    for (size_t i = first; i < end; i++) {
        s->place[i].fd = fd;
        s->place[i].file = file;
        for (int j = 0; j < 3; j++) s->place[i].at[j] += base;
    }
    int rc = lily_buf_ok(&w.out, file, e);
    if (rc == LILY_OK) rc = write_at(fd, file, 0, &length, 8, e);
    if (rc == LILY_OK) rc = write_at(fd, file, 8, w.out.data, w.out.len, e);
    if (rc == LILY_OK && ftruncate(fd, (off_t)(base + data)) != 0)
        rc = lily_fail(e, LILY_IO, "%s: %s", file, strerror(errno));
    lily_buf_free(&w.out);
    return rc;
}

int shards_create(shards *s, const preset *p, const char *dir, lily_err *e)
{
    for (size_t i = 0; i < s->n_entries; i++) s->place[i].fd = -1;
    for (uint32_t i = 0; i < s->n; i++) TRY(create_shard(s, i, i % 2 == 1 || p->shards == 0, dir, e));
    return LILY_OK;
}

int shards_close(shards *s, lily_err *e)
{
    int rc = LILY_OK;
    for (uint32_t i = 0; i < s->n; i++) {
        place *first = &s->place[s->first[i]];
        if (first->file && first->fd >= 0) {
            int closed = close_file(first->fd, first->file, e);
            if (rc == LILY_OK) rc = closed;
        }
    }
    lily_arena_free(&s->arena);
    *s = (shards){0};
    return rc;
}

/* ---- index ------------------------------------------------------------------------- */

typedef struct row {
    char name[160];
    const char *file;
} row;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const row *)a)->name, ((const row *)b)->name);
}

int shards_write_index(const shards *s, const char *dir, lily_err *e)
{
    row *rows = lily_calloc(3 * s->n_entries, sizeof *rows);
    if (!rows) return lily_no_memory(e, 3 * s->n_entries * sizeof *rows, "the index");
    size_t n = 0;
    for (size_t i = 0; i < s->n_entries; i++) {
        part parts[3];
        for (uint32_t j = 0, k = entry_parts(&s->entries[i], parts); j < k; j++) {
            rows[n].file = s->place[i].file;
            snprintf(rows[n++].name, sizeof rows->name, "%s%s", s->entries[i].name, parts[j].suffix);
        }
    }
    qsort(rows, n, sizeof *rows, by_name);
    jw w = {.indent = 2};
    jw_open(&w, NULL, '{');
    jw_open(&w, "metadata", '{');
    jw_int(&w, "total_size", (long long)s->bytes);
    jw_close(&w, '}');
    jw_open(&w, "weight_map", '{');
    for (size_t i = 0; i < n; i++) jw_string(&w, rows[i].name, rows[i].file);
    jw_close(&w, '}');
    jw_close(&w, '}');
    lily_buf_putc(&w.out, '\n');
    lily_free(rows);
    int rc = lily_buf_ok(&w.out, "the index", e);
    if (rc == LILY_OK) rc = write_file(dir, "model.safetensors.index.json", w.out.data, w.out.len, e);
    lily_buf_free(&w.out);
    return rc;
}
