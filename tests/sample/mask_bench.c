/* mask_bench MODEL_DIR SCHEMA.json TEXT - time to compile, to make the vocabulary's trie, and of the mask
 * before each token of the text; the second pass is a second reply with the same schema.  A list of tools in place
 * of a schema is for the inside of a call. */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "sample/call_grammar.h"
#include "sample/json_schema.h"
#include "sample/mask.h"

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int reply(const lily_tokenizer *t, const lily_token_trie *v, lily_grammar *g, const lily_ids *ids,
                 lily_err *e)
{
    lily_mask *k;
    const uint32_t *mask;
    double *us = calloc(ids->n + 1, sizeof *us), sum = 0;
    bool takes = true;
    TRY(lily_mask_new(&k, v, g, false, e));
    for (size_t i = 0; i < ids->n && takes; i++) {
        size_t n;
        const char *bytes = lily_token_bytes(t, ids->id[i], &n);
        uint64_t start = lily_now_ns();
        TRY(lily_mask_allowed(k, &mask, e));
        us[i] = lily_seconds_since(start) * 1e6;
        sum += us[i];
        TRY(lily_mask_take(k, bytes, n, &takes, e));
    }
    printf("%zu tokens%s: ", ids->n, takes && lily_mask_complete(k) ? "" : " (the text does not fit)");
    qsort(us, ids->n, sizeof *us, by_size);
    printf("mask median %.1f us, mean %.1f, 90%% %.1f, 99%% %.1f, most %.1f\n", us[ids->n / 2], sum / (double)ids->n,
           us[ids->n * 9 / 10], us[ids->n * 99 / 100], us[ids->n - 1]);
    lily_mask_free(k);
    free(us);
    return LILY_OK;
}

static int bench(const char *dir, const char *schema, const char *text, lily_err *e)
{
    lily_tokenizer *t;
    lily_token_trie *v;
    lily_grammar *g;
    json_t *j;
    lily_ids ids = {0};
    lily_buf doc = {0};
    TRY(lily_tokenizer_open(&t, dir, e));
    TRY(lily_json_read(&j, schema, 1 << 24, e));
    uint64_t start = lily_now_ns();
    TRY(lily_token_trie_new(&v, t, NULL, 0, e));
    printf("vocabulary of %d: %.1f ms\n", (int)lily_tokenizer_n_vocab(t), lily_seconds_since(start) * 1e3);
    start = lily_now_ns();
    TRY(json_is_array(j) ? lily_call_grammar(&g, j, NULL, e) : lily_json_schema(&g, j, e));
    printf("schema: %.2f ms, %u nodes\n", lily_seconds_since(start) * 1e3, g->n_nodes);
    lily_buf_puts(&doc, text);
    TRY(lily_encode(t, doc.data, doc.len, false, &ids, e));
    for (int i = 0; i < 2; i++) TRY(reply(t, v, g, &ids, e));
    lily_buf_free(&doc);
    lily_ids_free(&ids);
    lily_grammar_let_go(g);
    lily_token_trie_free(v);
    json_decref(j);
    lily_tokenizer_free(t);
    return LILY_OK;
}

int main(int argc, char **argv)
{
    lily_err e;
    if (argc == 4 && bench(argv[1], argv[2], argv[3], &e) == LILY_OK) return 0;
    fprintf(stderr, "mask_bench: %s\n", argc == 4 ? e.text : "expects MODEL_DIR SCHEMA.json TEXT");
    return 1;
}
