/* disk.c - the folder and its index. */
#include "run/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/disk_inside.h"
#include "version.h"

static const char SUFFIX[] = ".lilycache", REPLIES[] = "replies.lilycache", TEMPORARY[] = "tmp-";

enum {
    STALE_SECONDS = 3600,           /* a temporary file that old was left by a crash */
    SMALL_FILE = 512 << 20,
};

/* ---- what this program and model are ---- */

/* Which kernels compute: their names in order. */
static uint64_t hash_rows(uint64_t h, const lily_plan *p, const lily_plan_device *d)
{
    for (uint32_t i = 0; i < p->n_stages; i++)
        for (const char *c = d->rows[p->stages[i].row].name; *c; c++)
            h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    return h;
}

static int make_identity(lily_disk *d, lily_err *e)
{
    const lily_loaded *m = d->m;
    lily_plan_device device = lily_loaded_device(m);
    char layout[64];
    m->ops->state_layout(m->dev, layout, sizeof layout);
    uint64_t rows = hash_rows(hash_rows(0xcbf29ce484222325u, m->decode, &device), m->prefill, &device);
    lily_buf_printf(&d->identity, "lily %s %s\ncheckpoint %s\nstate %s\nrows %016" PRIx64 "\n", LILY_VERSION,
                    LILY_COMMIT, lily_ckpt_fingerprint(m->ckpt), layout, rows);
    return lily_buf_ok(&d->identity, "the cache's identity", e);
}

/* ---- index ---- */

void disk_set_places(disk_entry *x, const int32_t *tokens, const uint32_t *positions, uint32_t n)
{
    lily_replies_key key = lily_replies_key_start();
    for (uint32_t i = 0, at = 0; i < n; at = positions[i++]) {
        key = lily_replies_key_add(key, tokens + at, positions[i] - at);
        x->place[i] = (disk_place){positions[i], key};
    }
    x->n_places = n;
}

int disk_add(lily_disk *d, const disk_entry *x, lily_err *e)
{
    for (uint32_t i = 0; i < d->n_entries; i++)
        if (strcmp(d->entry[i].name, x->name) == 0) {
            d->entry[i] = *x;
            return LILY_OK;
        }
    if (d->n_entries == d->cap_entries) {
        uint32_t cap = d->cap_entries ? 2 * d->cap_entries : 16;
        disk_entry *grown = lily_realloc(d->entry, cap, sizeof *grown);
        if (!grown) return lily_no_memory(e, cap * sizeof *grown, "the cache's index");
        d->entry = grown;
        d->cap_entries = cap;
    }
    d->entry[d->n_entries++] = *x;
    return LILY_OK;
}

static void remove_file(const lily_disk *d, const char *name)
{
    char *path = lily_path_join(d->dir, name);
    if (path) (void)unlink(path);
    lily_free(path);
}

void disk_remove(lily_disk *d, uint32_t i, bool file)
{
    if (file) remove_file(d, d->entry[i].name);
    d->entry[i] = d->entry[--d->n_entries];
}

static bool same_key(lily_replies_key a, lily_replies_key b) { return a.hi == b.hi && a.lo == b.lo; }

static int by_position(const void *a, const void *b)
{
    const disk_place *x = *(disk_place *const *)a, *y = *(disk_place *const *)b;
    return x->position < y->position ? -1 : x->position > y->position;
}

/* One pass over the tokens, with the places of all entries in order. */
uint32_t disk_find(const lily_disk *d, const int32_t *tokens, uint32_t n, uint32_t *prefix)
{
    size_t n_places = 0;
    uint32_t best = d->n_entries;
    *prefix = 0;
    for (uint32_t i = 0; i < d->n_entries; i++) n_places += d->entry[i].n_places;
    const disk_place **place = n_places ? lily_calloc(n_places, sizeof *place) : NULL;
    if (!place) return best;
    n_places = 0;
    for (uint32_t i = 0; i < d->n_entries; i++)
        for (uint32_t j = 0; j < d->entry[i].n_places; j++) place[n_places++] = &d->entry[i].place[j];
    qsort(place, n_places, sizeof *place, by_position);
    lily_replies_key key = lily_replies_key_start();
    const disk_place *longest = NULL;
    for (size_t i = 0, at = 0; i < n_places && place[i]->position <= n; i++) {
        key = lily_replies_key_add(key, tokens + at, place[i]->position - at);
        at = place[i]->position;
        if (same_key(key, place[i]->key)) longest = place[i];
    }
    lily_free(place);
    for (uint32_t i = 0; longest && i < d->n_entries; i++)
        if (longest >= d->entry[i].place && longest < d->entry[i].place + LILY_CACHE_SECTIONS) best = i;
    if (longest) *prefix = longest->position;
    return best;
}

uint32_t lily_disk_prefix(const lily_disk *d, const int32_t *tokens, uint32_t n)
{
    uint32_t prefix;
    (void)disk_find(d, tokens, n, &prefix);
    return prefix;
}

/* ---- files ---- */

static bool is_ours(const char *name)
{
    size_t n = strlen(name), suffix = sizeof SUFFIX - 1;
    return n > suffix && n < DISK_NAME && strcmp(name + n - suffix, SUFFIX) == 0;
}

void disk_touch(const lily_disk *d, const char *name)
{
    char *path = lily_path_join(d->dir, name);
    if (path) (void)utimensat(AT_FDCWD, path, NULL, 0);
    lily_free(path);
}

/* The positions with a recurrent state: ascending, the last one after all tokens. */
static int take_positions(const lily_disk *d, const lily_cache_file *f, const int32_t *tokens, disk_entry *x,
                          lily_err *e)
{
    uint32_t at[LILY_CACHE_SECTIONS], n = 0;
    for (uint32_t i = 0; i < f->n_sections; i++) {
        const lily_cache_section *s = &f->section[i];
        if (s->type != LILY_CACHE_RECURRENT) continue;
        if (s->bytes != d->snapshot || s->number == 0 || s->number > x->n || (n && s->number <= at[n - 1]))
            return lily_fail(e, LILY_FORMAT, "the state at token %u cannot be", s->number);
        at[n++] = s->number;
    }
    if (n == 0 || at[n - 1] != x->n) return lily_fail(e, LILY_FORMAT, "there is no state at its end");
    disk_set_places(x, tokens, at, n);
    return LILY_OK;
}

static int check_identity(const lily_disk *d, const lily_cache_file *f, lily_err *e)
{
    enum { LONGEST = 4096 };
    const lily_cache_section *s = lily_cache_find(f, LILY_CACHE_IDENTITY);
    lily_buf text = {0};
    if (!s) return lily_fail(e, LILY_FORMAT, "it does not say what made it");
    int rc = lily_cache_read(f, s, LONGEST, &text, e);
    if (rc == LILY_OK && (text.len != d->identity.len || memcmp(text.data, d->identity.data, text.len) != 0))
        rc = lily_fail(e, LILY_UNSUPPORTED, "another model, device or version made it");
    lily_buf_free(&text);
    return rc;
}

int disk_read_entry(const lily_disk *d, const lily_cache_file *f, disk_entry *x, lily_buf *tokens, lily_err *e)
{
    const lily_cache_section *said = lily_cache_find(f, LILY_CACHE_TOKENS), *rows = lily_cache_find(f, LILY_CACHE_ROWS);
    const lily_cache_section *sums = lily_cache_find(f, LILY_CACHE_ROW_SUMS);
    if (f->kind != LILY_CACHE_CONVERSATION) return lily_fail(e, LILY_FORMAT, "not a conversation");
    TRY(check_identity(d, f, e));
    if (!said || !rows || !sums) return lily_fail(e, LILY_FORMAT, "a part is missing");
    x->n = rows->number;
    x->settled = said->number;
    uint64_t pieces = ((uint64_t)x->n + LILY_CACHE_PIECE - 1) / LILY_CACHE_PIECE;
    if (x->n == 0 || x->settled > x->n || rows->bytes != x->n * d->per_token || said->bytes != x->n * sizeof(int32_t) ||
        sums->bytes != pieces * sizeof(uint32_t))
        return lily_fail(e, LILY_FORMAT, "its parts do not fit together");
    if (x->n > d->m->context) return lily_fail(e, LILY_UNSUPPORTED, "%u tokens are more than the context", x->n);
    TRY(lily_cache_read(f, said, x->n * sizeof(int32_t), tokens, e));
    return take_positions(d, f, (const int32_t *)(const void *)tokens->data, x, e);
}

/* Takes one file into the index.  Its name is told by whoever logs. */
static int index_file(lily_disk *d, const char *name, lily_err *e)
{
    lily_cache_file f;
    lily_buf tokens = {0};
    disk_entry x = {0};
    char *path = lily_path_join(d->dir, name);
    int rc = path ? lily_cache_open(&f, path, e) : lily_no_memory(e, strlen(name), "a path");
    lily_free(path);
    if (rc != LILY_OK) return rc;
    snprintf(x.name, sizeof x.name, "%s", name);
    rc = disk_read_entry(d, &f, &x, &tokens, e);
    if (rc != LILY_OK) lily_err_prefix(e, "%s", name);
    if (rc == LILY_OK) rc = disk_add(d, &x, e);
    lily_buf_free(&tokens);
    lily_cache_close(&f);
    return rc;
}

static void drop_stale(const lily_disk *d, const char *name)
{
    struct stat st;
    char *path = lily_path_join(d->dir, name);
    if (path && lstat(path, &st) == 0 && S_ISREG(st.st_mode) && time(NULL) - st.st_mtime > STALE_SECONDS)
        (void)unlink(path);
    lily_free(path);
}

static int scan(lily_disk *d, lily_err *e)
{
    DIR *dir = opendir(d->dir);
    if (!dir) return lily_fail(e, LILY_IO, "%s: %s", d->dir, strerror(errno));
    for (const struct dirent *item; (item = readdir(dir));) {
        lily_err why = {0};
        if (strncmp(item->d_name, TEMPORARY, sizeof TEMPORARY - 1) == 0) drop_stale(d, item->d_name);
        if (!is_ours(item->d_name) || strcmp(item->d_name, REPLIES) == 0) continue;
        if (index_file(d, item->d_name, &why) != LILY_OK)
            lily_log(LILY_LOG_WARN, "cache: passed over: %s", why.text);
    }
    closedir(dir);
    return LILY_OK;
}

/* ---- the limit ---- */

typedef struct disk_file {
    char name[DISK_NAME];
    struct timespec used;
    uint64_t bytes;
} disk_file;

static int by_use(const void *a, const void *b)
{
    const disk_file *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

static struct timespec time_of(const struct stat *st)
{
#if defined(__APPLE__)
    return st->st_mtimespec;
#else
    return st->st_mtim;
#endif
}

/* All files of the cache but the replies, those of other processes and models too. */
static disk_file *list_files(const lily_disk *d, size_t *n, uint64_t *total)
{
    lily_buf list = {0};
    DIR *dir = opendir(d->dir);
    *n = 0;
    *total = 0;
    for (const struct dirent *item; dir && (item = readdir(dir));) {
        struct stat st;
        disk_file f = {0};
        if (!is_ours(item->d_name) || fstatat(dirfd(dir), item->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        *total += (uint64_t)st.st_size;
        if (strcmp(item->d_name, REPLIES) == 0) continue;
        f.used = time_of(&st);
        f.bytes = (uint64_t)st.st_size;
        snprintf(f.name, sizeof f.name, "%.*s", DISK_NAME - 1, item->d_name);    /* is_ours knows its length */
        lily_buf_add(&list, &f, sizeof f);
    }
    if (dir) closedir(dir);
    *n = list.failed ? 0 : list.len / sizeof(disk_file);
    return (disk_file *)(void *)list.data;
}

void disk_trim(lily_disk *d)
{
    size_t n;
    uint64_t total;
    disk_file *file = list_files(d, &n, &total);
    if (n > 1) qsort(file, n, sizeof *file, by_use);
    for (size_t i = 0; i < n && total > d->limit; i++) {
        uint32_t k = 0;
        while (k < d->n_entries && strcmp(d->entry[k].name, file[i].name) != 0) k++;
        if (k < d->n_entries) disk_remove(d, k, true);
        else remove_file(d, file[i].name);
        total -= file[i].bytes;
    }
    lily_free(file);
}

/* ---- life ---- */

static int make_folder(const char *dir, lily_err *e)
{
    struct stat st;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) return lily_fail(e, LILY_IO, "%s: %s", dir, strerror(errno));
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode)) return lily_fail(e, LILY_IO, "%s: not a folder", dir);
    if (st.st_uid != geteuid())
        return lily_fail(e, LILY_ARGUMENT, "%s: belongs to another user, who could put anything into it", dir);
    if (st.st_mode & 022)
        return lily_fail(e, LILY_ARGUMENT, "%s: others may write to it; chmod go-w makes it yours alone", dir);
    return LILY_OK;
}

uint64_t lily_disk_cost(const lily_loaded *m)
{
    uint64_t fixed, snapshot, per_token;
    m->ops->state_cost(m->config, &fixed, &snapshot, &per_token);
    uint64_t piece = per_token * LILY_CACHE_PIECE;
    return piece > snapshot ? piece : snapshot;
}

static int start(lily_disk *d, const char *dir, lily_err *e)
{
    uint64_t fixed;
    if (!d->m->ops->state_layout)
        return lily_fail(e, LILY_UNSUPPORTED, "the device %s cannot write states to a cache on disk", d->m->ops->name);
    d->dir = lily_strdup(dir);
    if (!d->dir) return lily_no_memory(e, strlen(dir), "a path");
    d->m->ops->state_cost(d->m->config, &fixed, &d->snapshot, &d->per_token);
    d->buffer = lily_calloc(1, (size_t)lily_disk_cost(d->m));
    if (!d->buffer) return lily_no_memory(e, (size_t)lily_disk_cost(d->m), "a state on its way to the disk");
    TRY(make_identity(d, e));
    TRY(make_folder(dir, e));
    TRY(scan(d, e));
    disk_trim(d);
    return LILY_OK;
}

int lily_disk_open(lily_disk **out, const lily_loaded *m, const char *dir, uint64_t limit, lily_err *e)
{
    lily_disk *d = lily_calloc(1, sizeof *d);
    *out = NULL;
    if (!d) return lily_no_memory(e, sizeof *d, "the cache");
    d->m = m;
    d->limit = limit ? limit : LILY_DEFAULT_DISK_BYTES;
    d->small = SMALL_FILE;
    int rc = start(d, dir, e);
    if (rc == LILY_OK) *out = d;
    else lily_disk_close(d);
    return rc;
}

void lily_disk_close(lily_disk *d)
{
    if (!d) return;
    lily_buf_free(&d->identity);
    lily_free(d->buffer);
    lily_free(d->entry);
    lily_free(d->dir);
    lily_free(d);
}

void lily_disk_clear(lily_disk *d)
{
    while (d->n_entries) disk_remove(d, d->n_entries - 1, true);
    remove_file(d, REPLIES);
}

/* ---- replies ---- */

void lily_disk_load_replies(lily_disk *d, lily_replies *r)
{
    lily_cache_file f;
    lily_err e = {0};
    lily_buf bytes = {0};
    char *path = lily_path_join(d->dir, REPLIES);
    if (!path || !lily_file_exists(path)) {
        lily_free(path);
        return;
    }
    int rc = lily_cache_open(&f, path, &e);
    lily_free(path);
    if (rc == LILY_OK) {
        const lily_cache_section *s = lily_cache_find(&f, LILY_CACHE_SAID);
        if (f.kind != LILY_CACHE_REPLIES || !s) rc = lily_fail(&e, LILY_FORMAT, "%s: no replies", REPLIES);
        if (rc == LILY_OK) rc = check_identity(d, &f, &e);
        if (rc == LILY_OK) rc = lily_cache_read(&f, s, LILY_REPLIES_BYTES, &bytes, &e);
        if (rc == LILY_OK) rc = lily_replies_read(r, bytes.data, bytes.len, &e);
        lily_cache_close(&f);
    }
    if (rc != LILY_OK) lily_log(LILY_LOG_WARN, "cache: passed over: %s: %s", REPLIES, e.text);
    lily_buf_free(&bytes);
}

void lily_disk_save_replies(lily_disk *d, lily_replies *r)
{
    lily_cache_writer w;
    lily_err e = {0};
    lily_buf bytes = {0};
    lily_disk_load_replies(d, r);    /* what another process has added */
    lily_replies_write(r, &bytes);
    int rc = lily_buf_ok(&bytes, "replies", &e);
    if (rc == LILY_OK) rc = lily_cache_create(&w, d->dir, LILY_CACHE_REPLIES, &e);
    if (rc == LILY_OK) {
        rc = lily_cache_begin(&w, LILY_CACHE_IDENTITY, 0, &e);
        if (rc == LILY_OK) rc = lily_cache_write(&w, d->identity.data, d->identity.len, &e);
        if (rc == LILY_OK) rc = lily_cache_begin(&w, LILY_CACHE_SAID, 0, &e);
        if (rc == LILY_OK) rc = lily_cache_write(&w, bytes.data, bytes.len, &e);
        if (rc == LILY_OK) rc = lily_cache_commit(&w, d->dir, REPLIES, true, &e);
        else lily_cache_abandon(&w);
    }
    if (rc != LILY_OK) lily_log(LILY_LOG_WARN, "cache: %s", e.text);
    lily_buf_free(&bytes);
}
