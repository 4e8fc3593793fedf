#include "checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/safetensors.h"

static const char index_name[] = "model.safetensors.index.json";

enum {
    MAX_SHARDS = 1024,
    MAX_INDEX = LILY_ST_MAX_HEADER,
};

typedef struct shard {
    char *name; /* in the arena */
    lily_map map;
} shard;

struct lily_ckpt {
    lily_arena arena;
    char *dir;
    json_t *places; /* the index's weight_map while opening, NULL without an index */
    shard *shards;
    size_t n_shards;
    lily_tensor *tensors; /* by name */
    size_t n_tensors;
    uint64_t bytes;
    char fingerprint[33]; /* "" until asked for */
};

/* ---- which files ------------------------------------------------------------------- */

static int add_shard(lily_ckpt *c, const char *name, lily_err *e)
{
    for (size_t i = 0; i < c->n_shards; i++)
        if (strcmp(c->shards[i].name, name) == 0) return LILY_OK;
    if (c->n_shards == MAX_SHARDS)
        return lily_fail(e, LILY_FORMAT, "%s: more than %d shards", lily_path_base(c->dir), MAX_SHARDS);
    char *copy = lily_arena_strndup(&c->arena, name, strlen(name));
    if (!copy) return lily_no_memory(e, strlen(name), "a shard's name");
    c->shards[c->n_shards++].name = copy;
    return LILY_OK;
}

/* A file named by the index must lie in the same folder. */
static bool plain_file_name(const json_t *v)
{
    const char *s = json_string_value(v);
    return s && *s && strlen(s) == json_string_length(v) && !strpbrk(s, "/\\") && strcmp(s, ".") != 0 &&
           strcmp(s, "..") != 0;
}

static int shards_by_index(lily_ckpt *c, const json_t *index, lily_err *e)
{
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map))
        return lily_fail(e, LILY_FORMAT, "%s: \"weight_map\" is not an object", index_name);
    const char *name;
    json_t *file;
    json_object_foreach (map, name, file) {
        if (!plain_file_name(file))
            return lily_fail(e, LILY_FORMAT, "%s: %s: \"%.64s\" is not the name of a file in this folder",
                             index_name, name,
                             json_is_string(file) ? json_string_value(file) : "(not a string)");
        TRY(add_shard(c, json_string_value(file), e));
    }
    if (c->n_shards == 0) return lily_fail(e, LILY_FORMAT, "%s: \"weight_map\" is empty", index_name);
    c->places = json_incref(map);
    return LILY_OK;
}

/* model*.safetensors; hidden files and other quantisations under other names stay out. */
static bool is_shard_name(const char *s)
{
    static const char end[] = ".safetensors";
    size_t n = strlen(s), m = sizeof end - 1;
    return strncmp(s, "model", 5) == 0 && n >= 5 + m && strcmp(s + n - m, end) == 0;
}

static int shards_by_folder(lily_ckpt *c, lily_err *e)
{
    const char *base = lily_path_base(c->dir);
    DIR *d = opendir(c->dir);
    if (!d) return lily_fail(e, LILY_IO, "%s: %s", base, strerror(errno));
    int rc = LILY_OK;
    for (struct dirent *f; rc == LILY_OK && (f = readdir(d)) != NULL;)
        if (is_shard_name(f->d_name)) rc = add_shard(c, f->d_name, e);
    closedir(d);
    if (rc == LILY_OK && c->n_shards == 0)
        rc = lily_fail(e, LILY_FORMAT, "%s: no %s and no model*.safetensors", base, index_name);
    return rc;
}

static int shard_by_name(const void *a, const void *b)
{
    return strcmp(((const shard *)a)->name, ((const shard *)b)->name);
}

static int list_shards(lily_ckpt *c, lily_err *e)
{
    c->shards = lily_arena_calloc(&c->arena, MAX_SHARDS, sizeof *c->shards);
    char *path = lily_path_join(c->dir, index_name);
    if (!path || !c->shards) {
        lily_free(path);
        return lily_no_memory(e, MAX_SHARDS * sizeof *c->shards, "the list of shards");
    }
    int rc;
    if (lily_file_exists(path)) {
        json_t *index = NULL;
        rc = lily_json_read(&index, path, MAX_INDEX, e);
        if (rc == LILY_OK) rc = shards_by_index(c, index, e);
        json_decref(index);
    } else {
        rc = shards_by_folder(c, e);
    }
    lily_free(path);
    if (rc == LILY_OK) qsort(c->shards, c->n_shards, sizeof *c->shards, shard_by_name);
    return rc;
}

/* ---- their tensors ----------------------------------------------------------------- */

static int open_shard(lily_ckpt *c, shard *s, lily_tensor **list, size_t *n, lily_err *e)
{
    char *path = lily_path_join(c->dir, s->name);
    if (!path) return lily_no_memory(e, strlen(s->name), "a path");
    int rc = LILY_OK;
    if (c->places && !lily_file_exists(path))
        rc = lily_fail(e, LILY_FORMAT, "%s: named in %s, but missing from the folder", s->name, index_name);
    if (rc == LILY_OK) rc = lily_map_open(&s->map, path, e);
    if (rc == LILY_OK) rc = lily_st_parse(list, n, &s->map, s->name, &c->arena, e);
    lily_free(path);
    return rc;
}

static int append(lily_ckpt *c, const lily_tensor *list, size_t n, lily_err *e)
{
    lily_tensor *all = lily_realloc(c->tensors, c->n_tensors + n, sizeof *all);
    if (!all) return lily_no_memory(e, (c->n_tensors + n) * sizeof *all, "the list of tensors");
    c->tensors = all;
    if (n) memcpy(all + c->n_tensors, list, n * sizeof *all);
    c->n_tensors += n;
    for (size_t i = 0; i < n; i++) c->bytes += list[i].bytes;
    return LILY_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const lily_tensor *)a)->name, ((const lily_tensor *)b)->name);
}

/* Every tensor once, and where the index says. */
static int check_places(const lily_ckpt *c, lily_err *e)
{
    for (size_t i = 0; i + 1 < c->n_tensors; i++) {
        const lily_tensor *t = &c->tensors[i];
        if (by_name(t, t + 1) == 0)
            return lily_fail(e, LILY_FORMAT, "%s: %s is in %s too", t->file, t->name, t[1].file);
    }
    if (!c->places) return LILY_OK;
    const char *name;
    json_t *file;
    json_object_foreach (c->places, name, file) {
        const lily_tensor *t = lily_ckpt_find(c, name);
        if (!t)
            return lily_fail(e, LILY_FORMAT, "%s: %s: expected here by %s, but not found",
                             json_string_value(file), name, index_name);
        if (strcmp(t->file, json_string_value(file)) != 0)
            return lily_fail(e, LILY_FORMAT, "%s: %s: expected in %s by %s", t->file, name,
                             json_string_value(file), index_name);
    }
    return LILY_OK;
}

static int open_all(lily_ckpt *c, lily_err *e)
{
    TRY(list_shards(c, e));
    for (size_t i = 0; i < c->n_shards; i++) {
        lily_tensor *list = NULL;
        size_t n = 0;
        TRY(open_shard(c, &c->shards[i], &list, &n, e));
        TRY(append(c, list, n, e));
    }
    if (c->n_tensors) qsort(c->tensors, c->n_tensors, sizeof *c->tensors, by_name);
    return check_places(c, e);
}

int lily_ckpt_open(lily_ckpt **out, const char *dir, lily_err *e)
{
    *out = NULL;
    lily_ckpt *c = lily_calloc(1, sizeof *c);
    if (!c) return lily_no_memory(e, sizeof *c, "a checkpoint");
    c->dir = lily_strdup(dir);
    int rc = c->dir ? open_all(c, e) : lily_no_memory(e, strlen(dir), "a path");
    json_decref(c->places);
    c->places = NULL;
    if (rc == LILY_OK)
        *out = c;
    else
        lily_ckpt_close(c);
    return rc;
}

void lily_ckpt_close(lily_ckpt *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_shards; i++) lily_map_close(&c->shards[i].map);
    lily_free(c->tensors);
    lily_free(c->dir);
    lily_arena_free(&c->arena);
    lily_free(c);
}

const char *lily_ckpt_dir(const lily_ckpt *c)
{
    return c->dir;
}

size_t lily_ckpt_count(const lily_ckpt *c)
{
    return c->n_tensors;
}

const lily_tensor *lily_ckpt_at(const lily_ckpt *c, size_t i)
{
    return &c->tensors[i];
}

const lily_tensor *lily_ckpt_find(const lily_ckpt *c, const char *name)
{
    lily_tensor key = {.name = name};
    return c->n_tensors ? bsearch(&key, c->tensors, c->n_tensors, sizeof key, by_name) : NULL;
}

uint64_t lily_ckpt_bytes(const lily_ckpt *c)
{
    return c->bytes;
}

/* The fingerprint touches one page a tensor: reading ahead, which may be megabytes a touch, would make it
 * take seconds on a cold file.  Loading wants it again. */
static void read_ahead(const lily_ckpt *c, bool on)
{
    for (size_t i = 0; i < c->n_shards; i++) {
        const lily_map *m = &c->shards[i].map;
        posix_madvise((void *)m->data, (size_t)m->size, on ? POSIX_MADV_NORMAL : POSIX_MADV_RANDOM);
    }
}

const char *lily_ckpt_fingerprint(lily_ckpt *c)
{
    if (c->fingerprint[0]) return c->fingerprint;
    lily_fnv h = lily_fnv_start();
    read_ahead(c, false);
    for (size_t i = 0; i < c->n_shards; i++) h = lily_fnv_u64(h, c->shards[i].map.size);
    for (size_t i = 0; i < c->n_tensors; i++) h = lily_fnv_tensor(h, &c->tensors[i]);
    read_ahead(c, true);
    h = lily_fnv_file(h, c->dir, "config.json");
    lily_fnv_hex(h, c->fingerprint);
    return c->fingerprint;
}
