/* schema_cli - a line of standard input is {"schema": S, "texts": [T, …]}; the answer is a line of JSON: for
 * each text whether it fits (true), begins something that fits ("prefix") or neither (false); or {"error":
 * SENTENCE}. */
#include <string.h>

#include "base/buf.h"
#include "sample/json_schema.h"
#include "sample/match.h"
#include "lines.h"

static json_t *judge(lily_grammar *g, const json_t *text, lily_err *e)
{
    lily_matcher *m;
    const char *s = json_string_value(text);
    if (lily_matcher_new(&m, g, false, e) != LILY_OK) return NULL;
    lily_match at = lily_matcher_start(m);
    for (size_t i = 0; i < json_string_length(text) && at; i++) at = lily_matcher_step(m, at, (uint8_t)s[i]);
    json_t *out = lily_matcher_complete(m, at) ? json_true() : at ? json_string("prefix") : json_false();
    lily_matcher_free(m);
    return out;
}

static json_t *answer(const json_t *in)
{
    lily_err e;
    lily_grammar *g;
    json_t *texts = json_object_get(in, "texts"), *out = json_array();
    if (lily_json_schema(&g, json_object_get(in, "schema"), &e) != LILY_OK) {
        json_decref(out);
        return json_pack("{s:s}", "error", e.text);
    }
    for (size_t i = 0; i < json_array_size(texts); i++)
        json_array_append_new(out, judge(g, json_array_get(texts, i), &e));
    lily_grammar_let_go(g);
    return out;
}

int main(void) { return answer_lines("schema_cli", answer); }
