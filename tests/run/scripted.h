/* scripted.h - engines that answer from a script, and what they answered. */
#ifndef LILY_TESTS_RUN_SCRIPTED_H
#define LILY_TESTS_RUN_SCRIPTED_H

#include <stdio.h>
#include <unistd.h>

#include "base/json.h"
#include "text.h"

static char path[256];        /* of the script file */

static inline void write_script(const char *json)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(json, f);
    fclose(f);
}

static inline void script_setup(void)
{
    snprintf(path, sizeof path, "%s", "/tmp/lily-test-XXXXXX");
    assert_non_null(mkdtemp(path));
    strcat(path, "/script.json");
}

static inline void script_teardown(void)
{
    unlink(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
}

static inline lily_engine *open_script(const char *json)
{
    lily_err e;
    lily_engine *g;
    lily_engine_options o = {.model_dir = DEMO, .device = "ref", .context = 512, .script = path};
    write_script(json);
    check_ok(lily_engine_open(&g, &o, &e), &e);
    return g;
}

typedef struct outcome {
    lily_buf pieces;                /* each token's bytes, "|" between; "*" before an added one */
    uint32_t n, n_progress;
    enum lily_end end;
    lily_err err;
    char err_code[32];
    uint32_t n_generated;
} outcome;

static inline void drain(lily_request *r, outcome *out)
{
    *out = (outcome){0};
    for (lily_event *ev; (ev = lily_request_wait(r)); lily_event_free(ev)) {
        if (ev->kind == LILY_EVENT_PROGRESS) out->n_progress++;
        if (ev->kind == LILY_EVENT_TOKEN) {
            lily_buf_printf(&out->pieces, "%s%s", out->n++ ? "|" : "", ev->added ? "*" : "");
            lily_buf_add(&out->pieces, ev->bytes, ev->n_bytes);
        }
        if (ev->kind != LILY_EVENT_END) continue;
        out->end = ev->end;
        out->n_generated = ev->n_generated;
        if (ev->err) out->err = *ev->err;
        if (ev->err_code) snprintf(out->err_code, sizeof out->err_code, "%s", ev->err_code);
    }
}

static const int32_t prompt_ids[] = {1, 2, 3};

static inline lily_ask ask_of(const char *prompt, int32_t reply)
{
    return (lily_ask){.tokens = prompt_ids,
                      .n_tokens = 3,
                      .prompt_text = prompt,
                      .n_prompt_text = strlen(prompt),
                      .endpoint = "/v1/chat/completions",
                      .script_reply = reply};
}

static inline void request(lily_engine *g, const lily_ask *ask, outcome *out)
{
    lily_err e;
    lily_request *r;
    check_ok(lily_engine_submit(g, ask, &r, &e), &e);
    drain(r, out);
    lily_request_free(r);
}

static inline json_t *record(lily_engine *g)
{
    lily_err e;
    lily_buf text = {0};
    json_t *root;
    check_ok(lily_engine_script_record(g, &text, &e), &e);
    check_ok(lily_json_parse(&root, text.data, text.len, "record", &e), &e);
    lily_buf_free(&text);
    return root;
}

static inline const json_t *entry(const json_t *root, size_t i) { return json_array_get(json_object_get(root, "requests"), i); }
static inline const char *text_of(const json_t *entry, const char *key) { return json_string_value(json_object_get(entry, key)); }

#endif
