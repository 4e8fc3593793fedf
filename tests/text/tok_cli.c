/* tok_cli - the tokenizer behind JSON lines, for tests written in Python.
 *
 *   tok_cli MODEL_DIR < requests > answers, one JSON value a line:
 *   {"text": S, "special": B}                 -> [id, …]
 *   {"spans": [[S, control], …]}              -> [id, …]
 *   {"ids": [id, …], "skip": B}               -> "text", decoded whole
 *   {"ids": [id, …], "skip": B, "step": true} -> [text after each token …, text of the flush] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "text/decode.h"
#include "text/tokenizer.h"

static json_t *ids_to_json(const lily_ids *ids)
{
    json_t *out = json_array();
    for (size_t i = 0; i < ids->n; i++) json_array_append_new(out, json_integer(ids->id[i]));
    return out;
}

static int encode(const lily_tokenizer *t, const json_t *request, json_t **answer, lily_err *e)
{
    const json_t *spans = json_object_get(request, "spans"), *text = json_object_get(request, "text");
    size_t n = spans ? json_array_size(spans) : 1;
    lily_span *span = lily_calloc(n, sizeof *span);
    lily_ids ids = {0};
    for (size_t i = 0; i < n; i++) {
        const json_t *s = spans ? json_array_get(json_array_get(spans, i), 0) : text;
        const json_t *control =
            spans ? json_array_get(json_array_get(spans, i), 1) : json_object_get(request, "special");
        span[i] = (lily_span){json_string_value(s), json_string_length(s), json_is_true(control)};
    }
    int rc = spans ? lily_encode_spans(t, span, n, &ids, e)
                   : lily_encode(t, span[0].text, span[0].n, span[0].control, &ids, e);
    if (rc == LILY_OK) *answer = ids_to_json(&ids);
    lily_ids_free(&ids);
    lily_free(span);
    return rc;
}

static json_t *take(lily_buf *b)
{
    json_t *s = json_stringn(lily_buf_str(b), b->len);
    lily_buf_clear(b);
    return s;
}

static int decode(const lily_tokenizer *t, const json_t *request, json_t **answer, lily_err *e)
{
    const json_t *list = json_object_get(request, "ids");
    bool skip = json_is_true(json_object_get(request, "skip")),
         step = json_is_true(json_object_get(request, "step"));
    lily_ids ids = {0};
    lily_buf out = {0};
    lily_decoder d = {0};
    json_t *steps = json_array();
    for (size_t i = 0; i < json_array_size(list); i++) {
        int32_t id = (int32_t)json_integer_value(json_array_get(list, i));
        TRY(lily_ids_add(&ids, id, e));
        lily_decoder_id(&d, t, id, skip, &out);
        json_array_append_new(steps, take(&out));
    }
    lily_decoder_flush(&d, &out);
    json_array_append_new(steps, take(&out));
    int rc = lily_decode(t, ids.id, ids.n, skip, &out, e);
    *answer = step ? json_incref(steps) : take(&out);
    json_decref(steps);
    lily_ids_free(&ids);
    lily_buf_free(&out);
    return rc;
}

int main(int argc, char **argv)
{
    lily_tokenizer *t;
    lily_err e;
    char *line = NULL;
    size_t cap = 0;
    if (argc != 2 || lily_tokenizer_open(&t, argv[1], &e) != LILY_OK) {
        fprintf(stderr, "tok_cli: %s\n", argc == 2 ? e.text : "expects MODEL_DIR");
        return 1;
    }
    int rc = 0;
    for (ssize_t n; rc == 0 && (n = getline(&line, &cap, stdin)) > 0;) {
        json_t *request, *answer = NULL;
        rc = lily_json_parse(&request, line, (size_t)n, "request", &e);
        if (rc != LILY_OK) break;
        rc = json_object_get(request, "ids") ? decode(t, request, &answer, &e)
                                             : encode(t, request, &answer, &e);
        if (rc == LILY_OK) {
            json_dumpf(answer, stdout, JSON_ENCODE_ANY | JSON_COMPACT);
            putchar('\n');
        }
        json_decref(answer);
        json_decref(request);
    }
    if (rc != LILY_OK) fprintf(stderr, "tok_cli: %s\n", e.text);
    free(line);
    lily_tokenizer_free(t);
    return rc == LILY_OK ? 0 : 1;
}
