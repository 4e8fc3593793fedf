/* fuzz_json_schema.c - a schema, a NUL, then bytes for the matcher. What is refused must say why, and what was accepted as
 * a beginning can be completed: here, that it has a next byte or is complete. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sample/json_schema.h"
#include "sample/match.h"
#include "text/big_number.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(lily_grammar *g, const uint8_t *text, size_t n)
{
    lily_matcher *m;
    lily_err e;
    bool forgotten, goes_on = false;
    if (lily_matcher_new(&m, g, n % 2, &e) != LILY_OK) return;
    lily_match at = lily_matcher_start(m);
    for (size_t i = 0; i < n; i++) {
        lily_match to = lily_matcher_step(m, at, text[i]);
        if (to != LILY_MATCH_NONE) at = lily_matcher_tidy(m, to, &forgotten);
    }
    for (unsigned b = 0; b < 256; b++) goes_on = goes_on || lily_matcher_step(m, at, (uint8_t)b) != LILY_MATCH_NONE;
    if (lily_matcher_ok(m, &e) == LILY_OK && !goes_on && !lily_matcher_complete(m, at)) abort();
    lily_matcher_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lily_err e = {0};
    json_t *schema;
    lily_grammar *g;
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size;
    if (lily_json_parse_big(&schema, (const char *)data, n, "the schema", &e) != LILY_OK) return 0;
    int rc = lily_json_schema(&g, schema, &e);
    if (rc == LILY_OK) {
        if (end) walk(g, end + 1, size - n - 1);
        lily_grammar_let_go(g);
    } else if ((rc != LILY_ARGUMENT && rc != LILY_UNSUPPORTED) || e.text[0] != '#') {
        abort();
    }
    json_decref(schema);
    return 0;
}
