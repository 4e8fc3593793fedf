#include "../check.h"

#include "fake.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/checkpoint.h"

void fake_read(fake *f, const char *dir)
{
    char path[600];
    lily_ckpt *c;
    lily_err e;
    *f = (fake){0};
    snprintf(path, sizeof path, "%s/config.json", dir);
    check_ok(lily_json_read(&f->config, path, 1 << 20, &e), &e);
    check_ok(lily_ckpt_open(&c, dir, &e), &e);
    for (size_t i = 0; i < lily_ckpt_count(c); i++) {
        const lily_tensor *t = lily_ckpt_at(c, i);
        fake_tensor *copy =
            fake_add(f, t->name, lily_dtype_name(t->dtype), t->rank, t->dim, (size_t)t->bytes);
        memcpy(copy->data, t->data, (size_t)t->bytes);
    }
    lily_ckpt_close(c);
}

void fake_free(fake *f)
{
    json_decref(f->config);
    for (size_t i = 0; i < f->n; i++) free(f->tensors[i].data);
    free(f->tensors);
    *f = (fake){0};
}

fake_tensor *fake_add(fake *f, const char *name, const char *dtype, uint32_t rank, const uint64_t *dim,
                      size_t bytes)
{
    f->tensors = realloc(f->tensors, (f->n + 1) * sizeof *f->tensors);
    assert_non_null(f->tensors);
    fake_tensor *t = &f->tensors[f->n++];
    *t = (fake_tensor){.rank = rank, .bytes = bytes, .data = calloc(bytes + 1, 1)};
    assert_non_null(t->data);
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    memcpy(t->dim, dim, rank * sizeof *dim);
    return t;
}

fake_tensor *fake_find(fake *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->tensors[i].name, name) == 0) return &f->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

void fake_remove(fake *f, const char *name)
{
    fake_tensor *t = fake_find(f, name);
    free(t->data);
    *t = f->tensors[--f->n];
}

void fake_rename(fake *f, const char *prefix, const char *by)
{
    size_t n = strlen(prefix);
    for (size_t i = 0; i < f->n; i++) {
        char *name = f->tensors[i].name, rest[160];
        if (strncmp(name, prefix, n) != 0) continue;
        memcpy(rest, name + n, sizeof rest - n);
        snprintf(name, sizeof f->tensors[i].name, "%s%.100s", by, rest);
    }
}

void fake_write(const fake *f, const scratch *s)
{
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", s->path);
    assert_int_equal(json_dump_file(f->config, path, 0), 0);
    json_t *header = json_object();
    size_t at = 0;
    for (size_t i = 0; i < f->n; i++) {
        const fake_tensor *t = &f->tensors[i];
        json_t *shape = json_array();
        for (uint32_t k = 0; k < t->rank; k++)
            json_array_append_new(shape, json_integer((json_int_t)t->dim[k]));
        json_object_set_new(header, t->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype, "shape", shape,
                                      "data_offsets", (json_int_t)at, (json_int_t)(at + t->bytes)));
        at += t->bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    uint64_t n = strlen(text);
    snprintf(path, sizeof path, "%s/model.safetensors", s->path);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    fwrite(&n, 8, 1, out);
    fwrite(text, 1, n, out);
    for (size_t i = 0; i < f->n; i++) fwrite(f->tensors[i].data, 1, f->tensors[i].bytes, out);
    assert_int_equal(fclose(out), 0);
    free(text);
    json_decref(header);
}
