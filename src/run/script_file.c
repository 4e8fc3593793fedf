/* script_file.c - the JSON of a script, every key checked. */
#include "run/script_file.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { MAX_FILE = 256 << 20, MAX_MS = 24 * 3600 * 1000, PLACE = 64 };

static bool in_list(const char *name, const char *const *list)
{
    while (*list && strcmp(*list, name) != 0) list++;
    return *list != NULL;
}

/* `more` is a second list of names, or NULL. */
static int unknown_keys(const json_t *object, const char *const *known, const char *const *more, const char *prefix,
                        lily_err *e)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        (void)value;
        if (!in_list(key, known) && !(more && in_list(key, more)))
            return lily_fail(e, LILY_ARGUMENT, "%s%s: unknown key", prefix, key);
    }
    return LILY_OK;
}

/* reply.key as a whole number; missing: `otherwise`. */
static int number(const json_t *reply, const char *key, int64_t low, int64_t high, int64_t otherwise, const char *place,
                  int64_t *out, lily_err *e)
{
    const json_t *v = json_object_get(reply, key);
    *out = v ? json_integer_value(v) : otherwise;
    if (v && (!json_is_integer(v) || *out < low || *out > high))
        return lily_fail(e, LILY_ARGUMENT, "%s.%s: not a whole number between %lld and %lld", place, key, (long long)low,
                         (long long)high);
    return LILY_OK;
}

static int read_options(lily_script_file *f, const json_t *reply, const char *place, lily_script_reply *out, lily_err *e)
{
    int64_t delay, prefill, fail_at, times;
    TRY(number(reply, "delay_ms", 0, MAX_MS, 0, place, &delay, e));
    TRY(number(reply, "prefill_ms", 0, MAX_MS, 0, place, &prefill, e));
    TRY(number(reply, "fail_at", 1, INT32_MAX, 0, place, &fail_at, e));
    TRY(number(reply, "times", 0, INT32_MAX, 1, place, &times, e));
    out->delay_ms = (uint32_t)delay;
    out->prefill_ms = (uint32_t)prefill;
    out->fail_at = (uint64_t)fail_at;
    out->times = (uint32_t)times;

    const json_t *cut = json_object_get(reply, "cut"), *when = json_object_get(reply, "when");
    if (cut && !json_is_boolean(cut)) return lily_fail(e, LILY_ARGUMENT, "%s.cut: not true or false", place);
    out->cut = json_is_true(cut);
    if (!when) return LILY_OK;
    if (!json_is_string(when)) return lily_fail(e, LILY_ARGUMENT, "%s.when: not a string", place);
    out->n_when = json_string_length(when);
    out->when = lily_arena_strndup(&f->arena, json_string_value(when), out->n_when);
    return out->when ? LILY_OK : lily_no_memory(e, out->n_when, "a scripted reply");
}

/* The one source that an object holds, beside `known` keys. */
static int read_source(const lily_script_cutter *c, const json_t *holder, const char *const *known, const char *place,
                       lily_script_source *out, lily_err *e)
{
    if (!json_is_object(holder)) return lily_fail(e, LILY_ARGUMENT, "%s: not an object", place);
    char prefix[PLACE + 32];
    snprintf(prefix, sizeof prefix, "%s.", place);
    TRY(unknown_keys(holder, known, lily_script_sources, prefix, e));
    const char *source = NULL;
    for (const char *const *name = lily_script_sources; *name; name++) {
        if (!json_object_get(holder, *name)) continue;
        if (source) return lily_fail(e, LILY_ARGUMENT, "%s: has two sources, %s and %s", place, source, *name);
        source = *name;
    }
    if (!source)
        return lily_fail(e, LILY_ARGUMENT, "%s: has no source (text, pieces, bytes_hex, repeat or logits)", place);
    if (json_object_get(holder, "splits") && strcmp(source, "text") != 0)
        return lily_fail(e, LILY_ARGUMENT, "%s.splits: goes with text, not with %s", place, source);
    return lily_script_read_source(c, holder, source, place, out, e);
}

static int read_after_think(lily_script_file *f, const lily_script_cutter *c, const json_t *v, const char *place,
                            lily_script_reply *out, lily_err *e)
{
    static const char *const known[] = {"splits", NULL};
    char inner[PLACE + 16];
    if (!v) return LILY_OK;
    snprintf(inner, sizeof inner, "%s.after_think", place);
    lily_script_source *source = lily_arena_calloc(&f->arena, 1, sizeof *source);
    if (!source) return lily_no_memory(e, sizeof *source, "a scripted reply");
    out->after_think = source;
    return read_source(c, v, known, inner, source, e);
}

static int read_reply(lily_script_file *f, const lily_script_cutter *c, const json_t *reply, const char *place,
                      lily_script_reply *out, lily_err *e)
{
    static const char *const known[] = {"splits",  "delay_ms", "prefill_ms", "cut", "fail_at",
                                        "after_think", "when", "times", NULL};
    TRY(read_source(c, reply, known, place, &out->source, e));
    TRY(read_after_think(f, c, json_object_get(reply, "after_think"), place, out, e));
    return read_options(f, reply, place, out, e);
}

static int read_end(lily_script_file *f, const json_t *root, lily_err *e)
{
    static const char *const names[] = {"error", "last", "restart", "model", NULL};
    const json_t *end = json_object_get(root, "end"), *model = json_object_get(root, "model");
    if (model && !json_is_boolean(model)) return lily_fail(e, LILY_ARGUMENT, "model: not true or false");
    f->model = json_is_true(model);
    f->end = SCRIPT_END_ERROR;
    if (!end) return LILY_OK;
    const char *name = json_is_string(end) ? json_string_value(end) : "";
    for (unsigned i = 0; names[i]; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        f->end = (enum lily_script_end)i;
        if (f->end == SCRIPT_END_MODEL && !f->model)
            return lily_fail(e, LILY_ARGUMENT, "end: \"model\" goes with \"model\": true");
        return LILY_OK;
    }
    return lily_fail(e, LILY_ARGUMENT, "end: not \"error\", \"last\", \"restart\" or \"model\"");
}

static int read_root(lily_script_file *f, const json_t *root, const lily_tokenizer *t, uint32_t n_rows, lily_err *e)
{
    static const char *const known[] = {"replies", "end", "model", NULL};
    const json_t *replies = json_object_get(root, "replies");
    if (!json_is_object(root)) return lily_fail(e, LILY_ARGUMENT, "not an object with \"replies\"");
    TRY(unknown_keys(root, known, NULL, "", e));
    TRY(read_end(f, root, e));
    if (!json_is_array(replies) || json_array_size(replies) == 0 || json_array_size(replies) > INT32_MAX)
        return lily_fail(e, LILY_ARGUMENT, "replies: not a list with at least one reply");
    f->n_replies = (uint32_t)json_array_size(replies);
    f->replies = lily_arena_calloc(&f->arena, f->n_replies, sizeof *f->replies);
    if (!f->replies) return lily_no_memory(e, f->n_replies * sizeof *f->replies, "scripted replies");
    lily_script_cutter c;
    TRY(lily_script_cutter_init(&c, t, &f->arena, e));
    c.n_rows = n_rows;
    c.real = f->model;
    for (uint32_t i = 0; i < f->n_replies; i++) {
        char place[PLACE];
        snprintf(place, sizeof place, "replies[%u]", i);
        TRY(read_reply(f, &c, json_array_get(replies, i), place, &f->replies[i], e));
    }
    return LILY_OK;
}

int lily_script_file_read(lily_script_file *f, const char *path, const lily_tokenizer *t, uint32_t n_rows,
                          lily_err *e)
{
    json_t *root = NULL;
    *f = (lily_script_file){0};
    TRY(lily_json_read(&root, path, MAX_FILE, e));
    int rc = read_root(f, root, t, n_rows, e);
    json_decref(root);
    if (rc == LILY_OK) return LILY_OK;
    lily_arena_free(&f->arena);
    return lily_err_prefix(e, "%s", lily_path_base(path));
}
