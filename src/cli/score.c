/* score.c - lily score: teacher-forced likelihood of a text, as JSON or for people. */
#include "run/score.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/commands.h"

enum { MAX_INPUT = 1 << 30 };

static int read_ids(const char *path, lily_ids *ids, lily_err *e)
{
    json_t *list = NULL;
    TRY(lily_json_read(&list, path, MAX_INPUT, e));
    int rc = LILY_OK;
    const char *name = lily_path_base(path);
    size_t n = json_array_size(list);
    if (!json_is_array(list)) rc = lily_fail(e, LILY_ARGUMENT, "%s: not a JSON list of token ids", name);
    ids->id = lily_calloc(n, sizeof *ids->id);
    if (rc == LILY_OK && !ids->id) rc = lily_no_memory(e, n * sizeof *ids->id, "token ids");
    for (size_t i = 0; rc == LILY_OK && i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            rc = lily_fail(e, LILY_ARGUMENT, "%s: entry %zu is not a token id", name, i);
        else
            ids->id[ids->n++] = (int32_t)json_integer_value(v);
    }
    json_decref(list);
    return rc;
}

/* How a saved score differs: ids must be the same, agreement is the share of equal top ids. */
typedef struct comparison {
    double agreement;
    int64_t first;          /* position of the first other top id, -1: none */
    double max_nll;         /* largest difference of a loss */
} comparison;

static int compare(const json_t *saved, const char *name, const lily_ids *ids, const lily_scored *s, comparison *c,
                   lily_err *e)
{
    const json_t *sids = json_object_get(saved, "ids"), *best = json_object_get(saved, "best"),
                 *nll = json_object_get(saved, "nll");
    if (!json_is_array(sids) || !json_is_array(best) || !json_is_array(nll))
        return lily_fail(e, LILY_ARGUMENT, "%s: not a saved score (made by lily score --json)", name);
    if (json_array_size(sids) != ids->n || json_array_size(best) != ids->n - 1 || json_array_size(nll) != ids->n - 1)
        return lily_fail(e, LILY_ARGUMENT, "%s: scores %zu tokens, this text has %zu", name, json_array_size(sids), ids->n);
    size_t equal = 0;
    *c = (comparison){.first = -1};
    for (size_t i = 0; i < ids->n; i++)
        if (json_integer_value(json_array_get(sids, i)) != ids->id[i])
            return lily_fail(e, LILY_ARGUMENT, "%s: scores other tokens, the first at position %zu", name, i);
    for (size_t i = 0; i + 1 < ids->n; i++) {
        bool same = json_integer_value(json_array_get(best, i)) == s->best[i];
        equal += same;
        if (!same && c->first < 0) c->first = (int64_t)i;
        double d = fabs(json_number_value(json_array_get(nll, i)) - s->nll[i]);
        if (d > c->max_nll) c->max_nll = d;
    }
    c->agreement = ids->n > 1 ? (double)equal / (double)(ids->n - 1) : 1;
    return LILY_OK;
}

/* %.9g gives every float back exactly. */
static void print_json(const lily_ids *ids, const lily_scored *s, const comparison *c)
{
    printf("{\"ids\": [");
    for (size_t i = 0; i < ids->n; i++) printf("%s%d", i ? ", " : "", ids->id[i]);
    printf("], \"nll\": [");
    for (size_t i = 0; i + 1 < ids->n; i++) printf("%s%.9g", i ? ", " : "", (double)s->nll[i]);
    printf("], \"best\": [");
    for (size_t i = 0; i + 1 < ids->n; i++) printf("%s%d", i ? ", " : "", s->best[i]);
    printf("], \"ppl\": %.12g, \"top\": [", s->ppl);
    for (uint32_t i = 0; i < s->n_top; i++)
        printf("%s[%d, %.9g]", i ? ", " : "", s->top_id[i], (double)s->top_logit[i]);
    printf("]");
    if (c) {
        printf(", \"agreement\": %.6f, \"first_difference\": ", c->agreement);
        if (c->first < 0)
            printf("null");
        else
            printf("%lld", (long long)c->first);
        printf(", \"max_nll_difference\": %.9g", c->max_nll);
    }
    printf("}\n");
}

static void print_plain(const lily_ids *ids, const lily_scored *s, const comparison *c)
{
    printf("tokens      %zu\nperplexity  %.4f\n", ids->n, s->ppl);
    if (!c) return;
    printf("agreement   %.2f %% of the top tokens, largest difference of a loss %.6f\n", c->agreement * 100, c->max_nll);
    if (c->first >= 0) printf("first other top token at position %lld\n", (long long)c->first);
}

static int score(const lily_args *a, lily_engine *g, const lily_ids *ids, const uint32_t *windows, uint32_t n_windows,
                 lily_err *e)
{
    lily_scored s = {0};
    comparison c;
    json_t *saved = NULL;
    int rc = LILY_OK;
    const char *against = a->value[OPT_AGAINST];
    if (against) TRY_TO(done, lily_json_read(&saved, against, MAX_INPUT, e));
    TRY_TO(done, lily_engine_score(g, ids->id, (uint32_t)ids->n, windows, n_windows, &s, e));
    if (against) TRY_TO(done, compare(saved, lily_path_base(against), ids, &s, &c, e));
    if (lily_arg_given(a, OPT_JSON))
        print_json(ids, &s, against ? &c : NULL);
    else
        print_plain(ids, &s, against ? &c : NULL);
done:
    lily_scored_free(&s);
    json_decref(saved);
    return rc;
}

int lily_cmd_score(const lily_args *a, lily_err *e)
{
    lily_engine_options o;
    lily_engine *g = NULL;
    lily_ids ids = {0};
    lily_buf text = {0};
    uint32_t *windows = NULL, n_windows = 0;
    char *dir = NULL;
    int rc;
    if (lily_arg_given(a, OPT_TEXT) == lily_arg_given(a, OPT_IDS))
        return lily_fail(e, LILY_ARGUMENT, "score needs either --text FILE or --ids FILE");
    TRY_TO(done, lily_engine_options_from(a, &o, &dir, e));
    o.cache_bytes = LILY_NO_CACHE;
    /* What can be wrong without the model is found before the weights are read. */
    if (lily_arg_given(a, OPT_WINDOWS)) TRY_TO(done, lily_arg_list(a, OPT_WINDOWS, &windows, &n_windows, e));
    if (lily_arg_given(a, OPT_IDS))
        TRY_TO(done, read_ids(a->value[OPT_IDS], &ids, e));
    else
        TRY_TO(done, lily_file_read(&text, a->value[OPT_TEXT], MAX_INPUT, e));
    TRY_TO(done, lily_engine_open(&g, &o, e));
    if (lily_arg_given(a, OPT_TEXT))
        TRY_TO(done, lily_encode(lily_engine_tokenizer(g), lily_buf_str(&text), text.len, false, &ids, e));
    TRY_TO(done, score(a, g, &ids, windows, n_windows, e));
done:
    lily_free(windows);
    lily_buf_free(&text);
    lily_ids_free(&ids);
    lily_engine_close(g);
    lily_free(dir);
    return rc;
}
