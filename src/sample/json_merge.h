/* json_merge.h - two schemas as one that holds for both.  Private to src/sample. */
#ifndef LILY_SAMPLE_JSON_MERGE_H
#define LILY_SAMPLE_JSON_MERGE_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"

/* What `pattern` and `format` are in a merged schema: a list of strings that all hold. */
#define JSON_MERGED "\001merged"

/* Schemas that merging has made, by the two that each stands for; they live until the end. */
typedef struct json_merges {
    json_t *made; /* array */
    struct json_merge_pair {
        const json_t *a, *b;
        json_t *both;
    } * pairs; /* [room_pairs] by hash; both NULL: free */
    size_t n_pairs, room_pairs;
    uint32_t left; /* keywords that may still be copied */
} json_merges;

void json_merges_free(json_merges *m);
/* {"allOf": [a, b]}; the same for the same two. NULL: no memory. */
const json_t *json_all_of(json_merges *m, const json_t *a, const json_t *b);
/* Schemas without allOf and $ref, objects or booleans. NULL with `e` set: LILY_UNSUPPORTED when it takes too
 * long, or what cannot be said in one schema. */
const json_t *json_merge(json_merges *m, const json_t *a, const json_t *b, lily_err *e);
/* `s` without the n keywords. */
const json_t *json_without(json_merges *m, const json_t *s, const char *const *names, size_t n, lily_err *e);

#endif
