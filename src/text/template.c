#include "text/template.h"

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/jinja_eval.h"

enum {
    TEMPLATE_BYTES = 1024 * 1024,          /* largest template file */
    PARSE_MEMORY = 256 * 1024 * 1024,
    RENDER_MEMORY = 64 * 1024 * 1024,      /* beside MEMORY_PER_BYTE of the request */
    MEMORY_PER_BYTE = 48,
    STEPS = 20 * 1000 * 1000,              /* beside STEPS_PER_VALUE of the request */
    STEPS_PER_VALUE = 5000,
};

struct lily_template {
    lily_arena arena;    /* the source and its tree */
    jinja_node *body;
    char *name;
    json_t *specials;    /* bos_token … of tokenizer_config.json, or NULL */
};

void lily_rendered_free(lily_rendered *r)
{
    lily_buf_free(&r->text);
    lily_free(r->spans);
    *r = (lily_rendered){.limit = r->limit};
}

void lily_template_free(lily_template *t)
{
    if (!t) return;
    json_decref(t->specials);
    lily_arena_free(&t->arena);
    lily_free(t->name);
    lily_free(t);
}

int lily_template_parse(lily_template **out, const char *text, size_t n, const char *name, lily_err *e)
{
    *out = NULL;
    if (n > TEMPLATE_BYTES)
        return lily_fail(e, LILY_FORMAT, "%s: %zu bytes, expected at most %d", name, n, TEMPLATE_BYTES);
    lily_template *t = lily_calloc(1, sizeof *t);
    if (!t) return lily_no_memory(e, sizeof *t, name);
    t->name = lily_strdup(name);
    if (!t->name) {
        lily_template_free(t);
        return lily_no_memory(e, strlen(name), name);
    }
    jinja_ctx c = {.arena_limit = PARSE_MEMORY, .steps_left = STEPS, .line = 1, .name = t->name, .err = e};
    int rc = jinja_parse(&c, text, n, &t->body);
    t->arena = c.arena;
    if (rc == LILY_OK) *out = t;
    else lily_template_free(t);
    return rc;
}

/* Copies the special tokens, which are a string or an object with "content", into t. */
static int take_specials(lily_template *t, const json_t *config, lily_err *e)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    t->specials = json_object();
    bool ok = t->specials != NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && ok; i++) {
        json_t *token = json_object_get(config, names[i]);
        if (json_is_object(token)) token = json_object_get(token, "content");
        if (json_is_string(token)) ok = json_object_set(t->specials, names[i], token) == 0;
    }
    return ok ? LILY_OK : lily_no_memory(e, 0, "the special tokens");
}

/* The template inside tokenizer_config.json, or NULL. */
static const json_t *config_template(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template");
    if (json_is_string(value)) return value;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        const json_t *text = json_object_get(entry, "template");
        if (name && strcmp(name, "default") == 0 && json_is_string(text)) return text;
    }
    return NULL;
}

static int read_template(lily_template **out, const char *path, const json_t *config, lily_err *e)
{
    if (lily_file_exists(path)) {
        lily_buf text = {0};
        int rc = lily_file_read(&text, path, TEMPLATE_BYTES, e);
        if (rc == LILY_OK) rc = lily_template_parse(out, lily_buf_str(&text), text.len, lily_path_base(path), e);
        lily_buf_free(&text);
        return rc;
    }
    const json_t *text = config_template(config);
    if (!text)
        return lily_fail(e, LILY_FORMAT, "chat_template.jinja: missing, and tokenizer_config.json has no \"chat_template\"");
    return lily_template_parse(out, json_string_value(text), json_string_length(text),
                               "tokenizer_config.json: chat_template", e);
}

int lily_template_load(lily_template **out, const char *model_dir, lily_err *e)
{
    enum { CONFIG_BYTES = 16 * 1024 * 1024 };
    *out = NULL;
    json_t *config = NULL;
    char *path = lily_path_join(model_dir, "chat_template.jinja");
    char *config_path = lily_path_join(model_dir, "tokenizer_config.json");
    int rc = path && config_path ? LILY_OK : lily_no_memory(e, strlen(model_dir), "a path");
    if (rc == LILY_OK && lily_file_exists(config_path)) rc = lily_json_read(&config, config_path, CONFIG_BYTES, e);
    if (rc == LILY_OK) rc = read_template(out, path, config, e);
    if (rc == LILY_OK) rc = take_specials(*out, config, e);
    if (rc != LILY_OK) {
        lily_template_free(*out);
        *out = NULL;
    }
    json_decref(config);
    lily_free(path);
    lily_free(config_path);
    return rc;
}

/* Counts the values and the bytes of text of a request. */
static void measure(const json_t *j, size_t *values, size_t *bytes)
{
    const char *key;
    json_t *item;
    size_t i;
    ++*values;
    if (json_is_string(j)) *bytes += json_string_length(j);
    json_object_foreach ((json_t *)j, key, item) {
        *bytes += strlen(key);
        measure(item, values, bytes);
    }
    json_array_foreach (j, i, item) measure(item, values, bytes);
}

static void set_bounds(jinja_ctx *c, const json_t *messages, const json_t *tools, const json_t *kwargs)
{
    size_t values = 0, bytes = 0;
    measure(messages, &values, &bytes);
    if (tools) measure(tools, &values, &bytes);
    if (kwargs) measure(kwargs, &values, &bytes);
    c->arena_limit = RENDER_MEMORY + MEMORY_PER_BYTE * (bytes + 64 * values);
    c->steps_left = STEPS + STEPS_PER_VALUE * (int64_t)values + (int64_t)bytes;
}

static int set_json(jinja_ctx *c, jinja_scope *s, const char *name, const json_t *j)
{
    jinja_value v = jinja_none();
    if (j) TRY(jinja_from_json(c, j, &v));
    return jinja_scope_set(c, s, name, v);
}

/* What transformers hands to a template: special tokens, the caller's variables, then its own. */
static int fill_context(jinja_ctx *c, const lily_template *t, const json_t *messages, const json_t *tools,
                        const json_t *kwargs, bool add_generation_prompt, jinja_scope *s)
{
    const char *key;
    json_t *item;
    json_object_foreach (t->specials, key, item) {
        jinja_value v;
        TRY(jinja_text(c, json_string_value(item), json_string_length(item), true, false, &v));
        TRY(jinja_scope_set(c, s, key, v));
    }
    json_object_foreach ((json_t *)kwargs, key, item) TRY(set_json(c, s, key, item));
    TRY(set_json(c, s, "documents", kwargs ? json_object_get(kwargs, "documents") : NULL));
    TRY(set_json(c, s, "messages", messages));
    TRY(set_json(c, s, "tools", json_is_null(tools) ? NULL : tools));
    return jinja_scope_set(c, s, "add_generation_prompt", jinja_bool(add_generation_prompt));
}

/* Hands the builder's text and runs to the caller. */
static int take_output(jinja_out *o, lily_rendered *out, lily_err *e)
{
    out->spans = lily_calloc(o->n_runs, sizeof *out->spans);
    if (!out->spans) return lily_no_memory(e, o->n_runs * sizeof *out->spans, "the spans of a prompt");
    for (size_t i = 0; i < o->n_runs; i++) out->spans[i] = (lily_rendered_span){o->runs[i].end, o->runs[i].control};
    out->n_spans = out->cap_spans = o->n_runs;
    out->text = o->text;
    o->text = (lily_buf){0};
    return LILY_OK;
}

int lily_template_render(const lily_template *t, const json_t *messages, const json_t *tools, const json_t *kwargs,
                         bool add_generation_prompt, lily_rendered *out, lily_err *e)
{
    lily_rendered_free(out);
    jinja_ctx c = {.line = 1, .name = t->name, .err = e};
    jinja_out o = {.limit = out->limit ? out->limit : LILY_RENDERED_LIMIT, .is_prompt = true};
    jinja_scope *context, *top;
    set_bounds(&c, messages, tools, kwargs);
    int rc = jinja_scope_new(&c, NULL, &context);
    if (rc == LILY_OK) rc = fill_context(&c, t, messages, tools, kwargs, add_generation_prompt, context);
    if (rc == LILY_OK) rc = jinja_scope_new(&c, context, &top);
    if (rc == LILY_OK) rc = jinja_exec(&c, t->body, top, &o);
    if (rc == LILY_OK) rc = take_output(&o, out, e);
    jinja_out_free(&o);
    lily_arena_free(&c.arena);
    return rc;
}

/* Position behind the last `tag` in text[0 … n), 0 if there is none. */
static size_t last_tag(const char *text, size_t n, const char *tag)
{
    size_t len = strlen(tag);
    for (size_t at = n; at >= len; at--)
        if (memcmp(text + at - len, tag, len) == 0) return at;
    return 0;
}

void lily_rendered_cut(lily_rendered *r, size_t n)
{
    if (n >= r->text.len) return;
    lily_buf_cut(&r->text, n);
    while (r->n_spans > 0 && (r->n_spans > 1 ? r->spans[r->n_spans - 2].end : 0) >= n) r->n_spans--;
    if (r->n_spans > 0) r->spans[r->n_spans - 1].end = n;
}

int lily_rendered_add(lily_rendered *r, const char *text, size_t n, lily_err *e)
{
    if (n == 0) return LILY_OK;
    if (r->n_spans == 0 || r->spans[r->n_spans - 1].control) {
        lily_rendered_span *grown = lily_realloc(r->spans, r->n_spans + 1, sizeof *grown);
        if (!grown) return lily_no_memory(e, (r->n_spans + 1) * sizeof *grown, "the spans of a prompt");
        r->spans = grown;
        r->cap_spans = r->n_spans + 1;
        r->spans[r->n_spans++] = (lily_rendered_span){.control = false};
    }
    lily_buf_add(&r->text, text, n);
    r->spans[r->n_spans - 1].end = r->text.len;
    return lily_buf_ok(&r->text, "a prompt", e);
}

bool lily_rendered_in_think(const lily_rendered *r)
{
    for (size_t i = r->n_spans; i-- > 0;) {
        if (!r->spans[i].control) continue;
        size_t from = i ? r->spans[i - 1].end : 0, n = r->spans[i].end - from;
        size_t open = last_tag(r->text.data + from, n, "<think>"), closed = last_tag(r->text.data + from, n, "</think>");
        if (open || closed) return open > closed;
    }
    return false;
}
