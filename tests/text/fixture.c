#include "fixture.h"

#include <stdio.h>

#include "../check.h"

static json_t *read_json(const char *path)
{
    json_t *root = NULL;
    lily_err e;
    check_ok(lily_json_read(&root, path, (size_t)64 << 20, &e), &e);
    return root;
}

json_t *fixture_results(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, FIXTURES "/%s/tokenizer.json", name);
    return read_json(path);
}

json_t *fixture_model(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, LILY_BINARY_DIR "/tests/ck/%s/tokenizer.json", name);
    return read_json(path);
}

lily_tokenizer *fixture_tokenizer(const char *name)
{
    char dir[512];
    lily_tokenizer *t = NULL;
    lily_err e;
    snprintf(dir, sizeof dir, LILY_BINARY_DIR "/tests/ck/%s", name);
    check_ok(lily_tokenizer_open(&t, dir, &e), &e);
    return t;
}

int fixture_differences(const json_t *want, const lily_ids *ids)
{
    int differ = 0;
    if (json_array_size(want) != ids->n) return -1;
    for (size_t i = 0; i < ids->n; i++) differ += json_integer_value(json_array_get(want, i)) != ids->id[i];
    return differ;
}
