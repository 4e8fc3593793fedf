/* script_logits.c - the source `logits`: scores for the sampler in place of tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/dev.h"
#include "run/script_file.h"

enum { KEY = 64 };      /* bytes of a key that are shown */

/* "#123"; false: it is no such thing. */
static bool row_number(const char *key, size_t n, uint32_t n_rows, int32_t *id)
{
    char *end;
    if (n < 2 || n > 11 || key[0] != '#' || strspn(key + 1, "0123456789") != n - 1) return false;
    long long row = strtoll(key + 1, &end, 10);
    *id = row < n_rows ? (int32_t)row : -1;
    return true;
}

/* The one token of this text, or -1. */
static int token_of(const lily_script_cutter *c, const char *text, size_t n, int32_t *id, lily_err *e)
{
    lily_ids ids = {0};
    TRY(lily_encode(c->tokenizer, text, n, true, &ids, e));
    *id = ids.n == 1 ? ids.id[0] : -1;
    lily_ids_free(&ids);
    /* There are tokens whose own text is cut in another way. */
    for (int32_t i = 0; *id < 0 && n > 0 && i < lily_tokenizer_n_vocab(c->tokenizer); i++) {
        size_t len;
        const char *bytes = lily_token_bytes(c->tokenizer, i, &len);
        if (bytes && len == n && memcmp(bytes, text, n) == 0) *id = i;
    }
    return LILY_OK;
}

static int read_score(const lily_script_cutter *c, const char *key, const json_t *v, const char *place, lily_bias *out,
                      lily_err *e)
{
    if (!json_is_number(v)) return lily_fail(e, LILY_ARGUMENT, "%s.%.*s: not a number", place, KEY, key);
    out->add = (float)json_number_value(v);
    if (isinf(out->add)) return lily_fail(e, LILY_ARGUMENT, "%s.%.*s: too large", place, KEY, key);
    const bool row = row_number(key, strlen(key), c->n_rows, &out->token);
    if (!row) TRY(token_of(c, key, strlen(key), &out->token, e));
    if (out->token < 0 || (uint32_t)out->token >= c->n_rows)
        return lily_fail(e, LILY_ARGUMENT, "%s.%.*s: %s", place, KEY, key,
                         row ? "the model has no such row" : "not exactly one token");
    return LILY_OK;
}

static int read_step(const lily_script_cutter *c, const json_t *v, const char *place, lily_script_logits *out, lily_err *e)
{
    const char *key;
    json_t *score;
    out->nan = json_is_string(v) && strcmp(json_string_value(v), "nan") == 0;
    if (out->nan) return LILY_OK;
    if (!json_is_object(v)) return lily_fail(e, LILY_ARGUMENT, "%s: not an object of scores or \"nan\"", place);
    lily_bias *set = lily_arena_calloc(c->arena, json_object_size(v), sizeof *set);
    if (!set) return lily_no_memory(e, json_object_size(v) * sizeof *set, "a scripted reply");
    out->set = set;
    json_object_foreach((json_t *)v, key, score) TRY(read_score(c, key, score, place, &set[out->n++], e));
    return LILY_OK;
}

int lily_script_read_logits(const lily_script_cutter *c, const json_t *v, const char *place, lily_script_source *out,
                            lily_err *e)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    lily_script_logits *list = lily_arena_calloc(c->arena, n, sizeof *list);
    if (!list) return lily_no_memory(e, n * sizeof *list, "a scripted reply");
    *out = (lily_script_source){.logits = list, .n_logits = n, .every_step = !json_is_array(v)};
    for (size_t i = 0; i < n; i++) {
        char inner[128];
        if (json_is_array(v)) snprintf(inner, sizeof inner, "%s.logits[%zu]", place, i);
        else snprintf(inner, sizeof inner, "%s.logits", place);
        TRY(read_step(c, json_is_array(v) ? json_array_get(v, i) : v, inner, &list[i], e));
    }
    return LILY_OK;
}
