/* schema_sample - a model that chooses at random among the tokens that a schema allows.  A line of standard
 * input is
 * {"schema": S, "seed": N, "texts": K, "tokens": LIMIT}; the answer is a line of JSON: K texts, null for one
 * that was cut at the limit; or {"error": SENTENCE}.  The argument is the folder of the vocabulary. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/random.h"
#include "sample/json_schema.h"
#include "sample/mask.h"
#include "text/big_number.h"

typedef struct world {
    lily_tokenizer *t;
    lily_token_trie *v;
    int32_t end;
    uint64_t seed, draw;
} world;

static uint32_t below(world *w, uint32_t n)
{
    uint32_t random[4];
    lily_philox(w->seed, w->draw++, random);
    return random[0] % n;
}

/* A random one of the allowed tokens, -1: there is none.  Each first byte is as likely as any other, and half
 * of the time it is one of `ends` if there are such: texts would hardly end otherwise. */
static int32_t choose(world *w, const uint32_t *mask, const char *ends)
{
    int32_t picked[256], list[256], n = 0;
    uint32_t seen[256] = {0}, n_ends = 0;
    for (int32_t id = 0; id < lily_tokenizer_n_vocab(w->t); id++) {
        size_t len;
        const char *bytes = lily_token_bytes(w->t, id, &len);
        if (!(mask[id / 32] >> (id % 32) & 1) || id == w->end || !bytes || len == 0) continue;
        uint8_t first = (uint8_t)bytes[0];
        if (below(w, ++seen[first]) == 0) picked[first] = id;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t b = 1; b < 256; b++)
            if (seen[b] && (strchr(ends, b) != NULL) == (pass == 0)) list[n++] = picked[b];
        if (pass == 0) n_ends = (uint32_t)n;
    }
    if (n == 0) return -1;
    return n_ends && below(w, 2) ? list[below(w, n_ends)] : list[below(w, (uint32_t)n)];
}

static int sample(world *w, lily_grammar *g, int limit, json_t *texts, lily_err *e)
{
    lily_mask *k;
    lily_buf text = {0};
    bool fits = true, whole = false;
    TRY(lily_mask_new(&k, w->v, g, false, e));
    for (int i = 0; i < limit && !whole; i++) {
        const uint32_t *mask;
        TRY(lily_mask_allowed(k, &mask, e));
        bool may_end = mask[w->end / 32] >> (w->end % 32) & 1;
        /* the longer the text, the more it wants to end */
        int32_t id = choose(w, mask, i < limit / 8 ? "" : i < limit / 2 ? "\"]}" : "\"]}0n");
        if (id < 0 && !may_end)
            return lily_fail(e, LILY_INTERNAL, "nothing is allowed after %.200s", lily_buf_str(&text));
        whole = may_end && (id < 0 || below(w, 2));
        if (whole) break;
        size_t n;
        const char *bytes = lily_token_bytes(w->t, id, &n);
        lily_buf_add(&text, bytes, n);
        TRY(lily_mask_take(k, bytes, n, &fits, e));
        if (!fits)
            return lily_fail(e, LILY_INTERNAL, "an allowed token does not fit: %.200s", lily_buf_str(&text));
    }
    json_array_append_new(texts, whole ? json_stringn(lily_buf_str(&text), text.len) : json_null());
    lily_buf_free(&text);
    lily_mask_free(k);
    return LILY_OK;
}

static json_t *answer(world *w, const json_t *in)
{
    lily_err e;
    lily_grammar *g;
    json_t *texts = json_array();
    w->seed = (uint64_t)json_integer_value(json_object_get(in, "seed"));
    w->draw = 0;
    int rc = lily_json_schema(&g, json_object_get(in, "schema"), &e);
    for (json_int_t i = json_integer_value(json_object_get(in, "texts")); i > 0 && rc == LILY_OK; i--)
        rc = sample(w, g, (int)json_integer_value(json_object_get(in, "tokens")), texts, &e);
    lily_grammar_let_go(g);
    if (rc == LILY_OK) return texts;
    json_decref(texts);
    return json_pack("{s:s}", "error", e.text);
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0;
    lily_err e;
    world w = {0};
    if (argc != 2 || lily_tokenizer_open(&w.t, argv[1], &e) != LILY_OK) return 1;
    w.end = lily_token_find(w.t, "<|im_end|>", 10);
    if (lily_token_trie_new(&w.v, w.t, &w.end, 1, &e) != LILY_OK) return 1;
    for (ssize_t n; (n = getline(&line, &room, stdin)) > 0;) {
        json_t *in;
        if (lily_json_parse_big(&in, line, (size_t)n, "a line", &e) != LILY_OK) return 1;
        json_t *out = answer(&w, in);
        json_dumpf(out, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(in);
    }
    free(line);
    lily_token_trie_free(w.v);
    lily_tokenizer_free(w.t);
    return 0;
}
