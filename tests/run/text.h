/* text.h - models and tokens for the tests of the run layer. */
#ifndef LILY_TESTS_RUN_TEXT_H
#define LILY_TESTS_RUN_TEXT_H

#include <stdlib.h>
#include <string.h>

#include "run/load.h"

#include "../check.h"
#include "base/file.h"
#include "base/random.h"

/* The demo model answers sensibly; tiny and odd (made by mkckpt while building) have random weights and are fast. */
#define DEMO LILY_SOURCE_DIR "/models/demo"
#define TINY LILY_BINARY_DIR "/tests/ck/tiny"
#define ODD LILY_BINARY_DIR "/tests/ck/odd"

/* n tokens: for the demo model out of the held-out text, else random ones; freed by the caller. */
static inline int32_t *some_tokens(const lily_loaded *m, uint32_t n)
{
    int32_t *out = calloc(n, sizeof *out);
    assert_non_null(out);
    if (strcmp(m->name, "demo") != 0) {
        for (uint32_t i = 0; i < n; i++) out[i] = (int32_t)(lily_uniform(1, i) * m->config->vocab);
        return out;
    }
    lily_err e;
    lily_buf text = {0};
    lily_ids ids = {0};
    check_ok(lily_file_read(&text, LILY_SOURCE_DIR "/tests/fixtures/eval.txt", 1 << 20, &e), &e);
    check_ok(lily_encode(m->tokenizer, text.data, text.len, false, &ids, &e), &e);
    assert_true(ids.n >= n);
    memcpy(out, ids.id, n * sizeof *out);
    lily_ids_free(&ids);
    lily_buf_free(&text);
    return out;
}

#endif
