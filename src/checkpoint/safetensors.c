#include "checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/json.h"
#include "base/mem.h"

/* All types of the format whose elements are whole bytes; the first ones in the order of enum lily_dtype. */
static const struct {
    const char *name;
    uint8_t bytes;
    enum lily_dtype type;
} dtypes[] = {
    /* clang-format off */
    {"BF16", 2, LILY_BF16}, {"F16", 2, LILY_F16}, {"F32", 4, LILY_F32}, {"U32", 4, LILY_U32},
    {"F64", 8, LILY_OTHER_DTYPE}, {"I64", 8, LILY_OTHER_DTYPE}, {"U64", 8, LILY_OTHER_DTYPE},
    {"C64", 8, LILY_OTHER_DTYPE}, {"I32", 4, LILY_OTHER_DTYPE}, {"I16", 2, LILY_OTHER_DTYPE},
    {"U16", 2, LILY_OTHER_DTYPE}, {"I8", 1, LILY_OTHER_DTYPE}, {"U8", 1, LILY_OTHER_DTYPE},
    {"BOOL", 1, LILY_OTHER_DTYPE}, {"F8_E4M3", 1, LILY_OTHER_DTYPE}, {"F8_E5M2", 1, LILY_OTHER_DTYPE},
    {"F8_E8M0", 1, LILY_OTHER_DTYPE},
    /* clang-format on */
};

enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

const char *lily_dtype_name(enum lily_dtype t)
{
    return t < LILY_OTHER_DTYPE ? dtypes[t].name : "another type";
}

/* The readers of one entry leave naming the file and the tensor to read_entries. */

static int read_dtype(lily_tensor *t, unsigned *size, const json_t *entry, lily_err *e)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    if (!name) return lily_fail(e, LILY_FORMAT, "\"dtype\" is not a string");
    for (size_t i = 0; i < N_DTYPES; i++)
        if (strcmp(name, dtypes[i].name) == 0) {
            t->dtype = dtypes[i].type;
            *size = dtypes[i].bytes;
            return LILY_OK;
        }
    return lily_fail(e, LILY_FORMAT, "type \"%.32s\" is not known", name);
}

/* A list of exactly n integers, none negative. */
static int read_numbers(uint64_t *out, size_t n, const json_t *list, const char *key, lily_err *e)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return lily_fail(e, LILY_FORMAT, "\"%s\"[%zu] is not a non-negative integer", key, i);
        out[i] = (uint64_t)json_integer_value(v);
    }
    return LILY_OK;
}

/* Fills the shape and the number of bytes it asks for. */
static int read_shape(lily_tensor *t, unsigned size, const json_t *entry, lily_err *e)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) return lily_fail(e, LILY_FORMAT, "\"shape\" is not a list");
    size_t rank = json_array_size(shape);
    if (rank > LILY_MAX_RANK)
        return lily_fail(e, LILY_FORMAT, "%zu dimensions, expected at most %d", rank, LILY_MAX_RANK);
    TRY(read_numbers(t->dim, rank, shape, "shape", e));
    t->rank = (uint32_t)rank;
    t->bytes = size;
    bool zero = false, wraps = false;
    for (size_t i = 0; i < LILY_MAX_RANK; i++) {
        if (i >= rank) t->dim[i] = 1;
        if (t->dim[i] == 0)
            zero = true;
        else if (__builtin_mul_overflow(t->bytes, t->dim[i], &t->bytes))
            wraps = true;
    }
    if (zero)
        t->bytes = 0;
    else if (wraps)
        return lily_fail(e, LILY_FORMAT, "the product of its dimensions passes 64 bits");
    return LILY_OK;
}

/* *begin and *end are offsets in the data. */
static int read_entry(lily_tensor *t, uint64_t *begin, uint64_t *end, const json_t *entry, lily_err *e)
{
    unsigned size = 0;
    if (!json_is_object(entry)) return lily_fail(e, LILY_FORMAT, "not a JSON object");
    TRY(read_dtype(t, &size, entry, e));
    TRY(read_shape(t, size, entry, e));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_array(offsets) || json_array_size(offsets) != 2)
        return lily_fail(e, LILY_FORMAT, "\"data_offsets\" is not a list of two numbers");
    uint64_t at[2];
    TRY(read_numbers(at, 2, offsets, "data_offsets", e));
    if (at[0] > at[1])
        return lily_fail(e, LILY_FORMAT, "begins at byte %" PRIu64 " and ends at %" PRIu64, at[0], at[1]);
    if (at[1] - at[0] != t->bytes)
        return lily_fail(e, LILY_FORMAT, "%" PRIu64 " bytes, expected %" PRIu64 " by its shape and type",
                         at[1] - at[0], t->bytes);
    *begin = at[0];
    *end = at[1];
    return LILY_OK;
}

typedef struct extent {
    uint64_t begin, end;
    lily_tensor *tensor;
} extent;

static int by_begin(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The tensors must lie inside the data and tile it: bytes that nothing describes mean a mixed-up file. */
static int check_extents(extent *x, size_t n, uint64_t room, const char *file, lily_err *e)
{
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++)
        if (x[i].end > end) end = x[i].end;
    if (end > room)
        return lily_fail(e, LILY_FORMAT,
                         "%s: %" PRIu64 " bytes missing: the header describes %" PRIu64
                         " bytes of data, the file holds %" PRIu64,
                         file, end - room, end, room);
    if (n) qsort(x, n, sizeof *x, by_begin);
    uint64_t at = 0;
    for (size_t i = 0; i < n; at = x[i++].end) {
        if (x[i].begin < at)
            return lily_fail(e, LILY_FORMAT,
                             "%s: %s begins at byte %" PRIu64
                             " of the data, inside %s which ends at %" PRIu64,
                             file, x[i].tensor->name, x[i].begin, x[i - 1].tensor->name, at);
        if (x[i].begin > at)
            return lily_fail(e, LILY_FORMAT,
                             "%s: %s begins at byte %" PRIu64 " of the data, expected %" PRIu64, file,
                             x[i].tensor->name, x[i].begin, at);
    }
    if (at != room)
        return lily_fail(e, LILY_FORMAT, "%s: %" PRIu64 " bytes of data, expected %" PRIu64 " by the header",
                         file, room, at);
    return LILY_OK;
}

static int read_entries(lily_tensor *list, size_t *n, extent *x, const json_t *header, const lily_map *map,
                        uint64_t data_at, const char *file, lily_arena *arena, lily_err *e)
{
    const char *name;
    json_t *entry;
    *n = 0;
    json_object_foreach ((json_t *)header, name, entry) {
        if (strcmp(name, "__metadata__") == 0) continue;
        lily_tensor *t = &list[*n];
        t->file = file;
        t->name = lily_arena_strndup(arena, name, strlen(name));
        if (!t->name) return lily_no_memory(e, strlen(name), file);
        x[*n].tensor = t;
        int rc = read_entry(t, &x[*n].begin, &x[*n].end, entry, e);
        if (rc != LILY_OK) {
            if (e) lily_err_prefix(e, "%s: %s", file, t->name);
            return rc;
        }
        ++*n;
    }
    TRY(check_extents(x, *n, map->size - data_at, file, e));
    for (size_t i = 0; i < *n; i++) x[i].tensor->data = map->data + data_at + x[i].begin;
    return LILY_OK;
}

/* What `git clone` leaves in place of a large file where Git LFS is not installed. */
static bool is_lfs_pointer(const lily_map *map)
{
    static const char start[] = "version https://git-lfs.github.com/";
    return map->size >= sizeof start - 1 && memcmp(map->data, start, sizeof start - 1) == 0;
}

int lily_st_parse(lily_tensor **list, size_t *n, const lily_map *map, const char *file, lily_arena *arena,
                  lily_err *e)
{
    if (is_lfs_pointer(map))
        return lily_fail(e, LILY_FORMAT, "%s: a Git LFS pointer, not the file itself: run git lfs pull",
                         file);
    if (map->size < 8)
        return lily_fail(e, LILY_FORMAT, "%s: %" PRIu64 " bytes, expected at least 8", file, map->size);
    uint64_t len = lily_load_u64(map->data);
    if (len > map->size - 8)
        return lily_fail(e, LILY_FORMAT,
                         "%s: %" PRIu64 " bytes missing: a header of %" PRIu64 " bytes in a file of %" PRIu64,
                         file, len - (map->size - 8), len, map->size);
    if (len > LILY_ST_MAX_HEADER)
        return lily_fail(e, LILY_FORMAT, "%s: a header of %" PRIu64 " bytes, expected at most %d", file, len,
                         LILY_ST_MAX_HEADER);
    json_t *header = NULL;
    TRY(lily_json_parse(&header, (const char *)map->data + 8, (size_t)len, file, e));
    extent *x = NULL;
    int rc = LILY_OK;
    if (!json_is_object(header)) {
        rc = lily_fail(e, LILY_FORMAT, "%s: the header is not a JSON object", file);
        goto done;
    }
    size_t room = json_object_size(header);
    x = lily_calloc(room, sizeof *x);
    *list = lily_arena_calloc(arena, room, sizeof **list);
    rc = x && *list ? read_entries(*list, n, x, header, map, 8 + len, file, arena, e)
                    : lily_no_memory(e, room * (sizeof *x + sizeof **list), file);
done:
    lily_free(x);
    json_decref(header);
    return rc;
}
