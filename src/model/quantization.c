/* quantization.c - config.json's "quantization": one affine form for all modules, and exceptions by name. */
#include "model/config_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/tensor_name.h"

/* One form.  Members absent in an exception are those of `base`. */
static int read_form(lily_quant *q, const json_t *obj, lily_quant base, const char *module, const char *file,
                     lily_err *e)
{
    int64_t bits, group;
    char what[256];
    snprintf(what, sizeof what, "%s: %s", file, module);
    TRY(lily_json_uint(obj, "bits", 1, 32, base.bits ? (int64_t)base.bits : -1, &bits, what, e));
    TRY(lily_json_uint(obj, "group_size", 1, 65536, base.group ? (int64_t)base.group : -1, &group, what, e));
    const json_t *mode = lily_config_get(obj, "mode");
    const char *name = mode ? json_string_value(mode) : "affine";
    if (!name || strcmp(name, "affine") != 0)
        return lily_fail(e, LILY_UNSUPPORTED, "%s: quantisation mode \"%.32s\"; Lily reads affine", what,
                         name ? name : "(not a string)");
    if (bits != 4 && bits != 8)
        return lily_fail(e, LILY_UNSUPPORTED, "%s: %lld bits; Lily reads 4 and 8", what, (long long)bits);
    if (group != 32 && group != 64 && group != 128)
        return lily_fail(e, LILY_UNSUPPORTED, "%s: groups of %lld; Lily reads 32, 64 and 128", what,
                         (long long)group);
    *q = (lily_quant){(uint32_t)bits, (uint32_t)group};
    return LILY_OK;
}

static int by_module(const void *a, const void *b)
{
    return strcmp(((const lily_quant_entry *)a)->module, ((const lily_quant_entry *)b)->module);
}

/* An exception: an object, or false for a module that stays plain. Those of skipped modules do not matter. */
static int read_entry(lily_quant_table *t, const char *module, const json_t *v, const char *file, lily_err *e)
{
    const char *canonical;
    if (lily_tensor_name(module, &canonical) != LILY_TENSOR_TEXT) return LILY_OK;
    lily_quant q = {0};
    if (!json_is_false(v)) TRY(read_form(&q, v, t->base, module, file, e));
    char *name = lily_strdup(canonical);
    if (!name) return lily_no_memory(e, strlen(canonical), "a module's name");
    t->entries[t->n++] = (lily_quant_entry){name, q};
    return LILY_OK;
}

static int read_entries(lily_quant_table *t, const json_t *obj, const char *file, lily_err *e)
{
    t->entries = lily_calloc(json_object_size(obj), sizeof *t->entries);
    if (!t->entries) return lily_no_memory(e, json_object_size(obj) * sizeof *t->entries, "the quantisation");
    const char *key;
    json_t *v;
    json_object_foreach ((json_t *)obj, key, v)
        if (json_is_object(v) || json_is_false(v)) TRY(read_entry(t, key, v, file, e));
    if (t->n) qsort(t->entries, t->n, sizeof *t->entries, by_module);
    for (size_t i = 0; i + 1 < t->n; i++) {
        const lily_quant_entry *a = &t->entries[i], *b = a + 1;
        if (by_module(a, b) == 0 && (a->quant.bits != b->quant.bits || a->quant.group != b->quant.group))
            return lily_fail(e, LILY_FORMAT, "%s: two entries for %s in \"quantization\" differ", file,
                             a->module);
    }
    return LILY_OK;
}

int lily_quant_read(lily_quant_table *t, const lily_config_file *f, lily_err *e)
{
    const json_t *obj = lily_config_get(f->top, "quantization");
    if (!obj) obj = lily_config_get(f->top, "quantization_config");
    if (!obj) return LILY_OK;
    if (!json_is_object(obj))
        return lily_fail(e, LILY_FORMAT, "%s: \"quantization\" is not an object", f->name);
    const json_t *method = lily_config_get(obj, "quant_method");
    if (method)
        return lily_fail(e, LILY_UNSUPPORTED,
                         "%s: quantisation method \"%.32s\"; Lily reads MLX affine groups", f->name,
                         json_is_string(method) ? json_string_value(method) : "(not a string)");
    TRY(read_form(&t->base, obj, (lily_quant){0}, "\"quantization\"", f->name, e));
    return read_entries(t, obj, f->name, e);
}

void lily_quant_free(lily_quant_table *t)
{
    for (size_t i = 0; i < t->n; i++) lily_free(t->entries[i].module);
    lily_free(t->entries);
    *t = (lily_quant_table){0};
}

lily_quant lily_quant_find(const lily_quant_table *t, const char *module)
{
    const char *canonical;
    if (lily_tensor_name(module, &canonical) != LILY_TENSOR_TEXT) canonical = module;
    lily_quant_entry key = {(char *)canonical, {0}};
    const lily_quant_entry *found = t->n ? bsearch(&key, t->entries, t->n, sizeof key, by_module) : NULL;
    return found ? found->quant : t->base;
}
