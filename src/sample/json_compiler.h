/* json_compiler.h - what the parts of json_schema.c share.  Private to src/sample. */
#ifndef LILY_SAMPLE_JSON_COMPILER_H
#define LILY_SAMPLE_JSON_COMPILER_H

#include <jansson.h>

#include "base/buf.h"
#include "sample/json_keywords.h"
#include "sample/json_merge.h"
#include "sample/json_parts.h"

/* What a schema may cost. */
enum { MAX_NESTING = 64, MAX_SCHEMAS = 10000, MAX_NAMES = 2048, MAX_REFS = 1024, MAX_ALTERNATIVES = 1024 };
enum { MAX_VALUES = 4096, MAX_COUNT = 10000 };
enum { MAX_COMPARED = 100000 }; /* pairs of schemas and values, for all oneOf together */
enum { MAX_MERGED = 100000 };   /* keywords that making one schema out of several may copy */
enum { MAX_PATTERNS = 256 };    /* `pattern` and `format` in all */

/* A schema that is compiled as a rule of its own: what a $ref leads to, or one that is put together. */
typedef struct reference {
    const json_t *target;
    char *place; /* "#/$defs/x" */
    uint32_t rule;
    bool merges;
} reference;

/* The rule of strings that fit a pattern and a format (either may be NULL) and are of some length. */
typedef struct patterned {
    const json_t *pattern, *format;
    int64_t low, high;
    uint32_t rule;
} patterned;

typedef struct compiler {
    json_parts p;
    lily_grammar *g;
    const json_t *root;
    reference *refs; /* those from n_done on are still to be compiled */
    size_t n_refs, n_done;
    json_merges merges;
    lily_buf place; /* "#/properties/x" */
    int nesting;
    patterned *patterns;
    uint32_t n_schemas, n_patterns;
    uint32_t compared; /* what is left of MAX_COMPARED */
    lily_err *e;
} compiler;

/* Fails with the present place and a sentence. */
#define REFUSE(c, code, ...) json_refuse_at((c), (code), __FILE__, __LINE__, __VA_ARGS__)
int json_refuse_at(compiler *c, enum lily_code code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* The schema `s` at `name` below the present place (and at `under` below that, NULL: nothing), in front of
 * `next`. */
int json_below(compiler *c, const json_t *s, const char *name, const char *under, uint32_t next,
               uint32_t *out);
/* A count, `missing` when it is absent. */
int json_read_count(compiler *c, const json_t *s, const char *name, int64_t missing, int64_t *out);

/* The values of one type that fit `s`; groups: its keywords. */
int json_numbers(compiler *c, const json_t *s, unsigned groups, bool whole, uint32_t next, uint32_t *out);
int json_strings(compiler *c, const json_t *s, uint32_t next, uint32_t *out);
int json_lists(compiler *c, const json_t *s, uint32_t next, uint32_t *out);
int json_objects(compiler *c, const json_t *s, uint32_t next, uint32_t *out);

#endif
