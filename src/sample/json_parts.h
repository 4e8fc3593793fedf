/* json_parts.h - the pieces that every JSON grammar is made of.  Private to src/sample.
 *
 * Each function builds its piece in front of `next` and gives the node that it begins with.  White space is
 * what json.dumps writes, with or without indentation: one blank, or a line end with at most JSON_INDENT
 * blanks. A model could otherwise fill its limit of tokens with blanks. */
#ifndef LILY_SAMPLE_JSON_PARTS_H
#define LILY_SAMPLE_JSON_PARTS_H

#include <jansson.h>

#include "sample/grammar.h"

enum { JSON_INDENT = 32, JSON_DIGITS = 18, JSON_FRACTION = 20, JSON_PRECISION = 15 };

typedef struct json_parts {
    lily_grammar *g;
    /* Rules that are made once. */
    uint32_t space, character, beyond, string, digit, integer, number, value, object, array;
    uint32_t fraction[JSON_PRECISION]; /* nothing, or a point and so many digits at most */
} json_parts;

void parts_init(json_parts *p, lily_grammar *g);

/* One character outside ASCII whose first byte is not in `without` (NULL: any). */
uint32_t part_beyond_ascii(lily_grammar *g, const lily_byte_set *without, uint32_t next);
uint32_t part_space(const json_parts *p, uint32_t next);
uint32_t part_any(const json_parts *p, uint32_t next);
uint32_t part_any_object(const json_parts *p, uint32_t next);
uint32_t part_any_array(const json_parts *p, uint32_t next);
uint32_t part_any_string(const json_parts *p, uint32_t next);
uint32_t part_any_number(const json_parts *p, uint32_t next);
/* Integers of at most JSON_DIGITS digits. */
uint32_t part_any_integer(const json_parts *p, uint32_t next);
uint32_t part_word(const json_parts *p, const char *word, uint32_t next);

/* low … high characters (code points); high < 0: no limit. */
uint32_t part_string(const json_parts *p, int64_t low, int64_t high, uint32_t next);
/* Exactly this value: members in their order, white space as anywhere. */
uint32_t part_literal(const json_parts *p, const json_t *value, uint32_t next);
/* One of n values. */
uint32_t part_literals(const json_parts *p, const json_t *const *values, size_t n, uint32_t next);
/* The string that is a key. */
uint32_t part_key(const json_parts *p, const char *key, uint32_t next);
/* A string without escapes that is no name of `names` (an object or NULL). Names that begin with the same
 * character outside ASCII as one of them are left out too. */
uint32_t part_other_key(const json_parts *p, const json_t *names, uint32_t next);

/* "[", a first item by each of the n rules in their order, then any number by `rest` (PART_NONE: none),
 * between low and high (< 0: no limit) of them in all, "]". */
#define PART_NONE UINT32_MAX
uint32_t part_list(const json_parts *p, const uint32_t *rules, size_t n, uint32_t rest, int64_t low,
                   int64_t high, uint32_t next);

#endif
