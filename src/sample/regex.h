/* regex.h - a regular expression of ECMA 262 as a tree.  Private to src/sample.
 *
 * What is regular: characters, classes, escapes \d \D \w \W \s \S \t \n \v \f \r \0 \cX \xHH \uHHHH \u{H…}
 * and of punctuation, groups (also named), quantifiers (also lazy, which accept the same), alternation, ^ and
 * $. LILY_UNSUPPORTED for look-around, back references, \b, \B and \p. */
#ifndef LILY_SAMPLE_REGEX_H
#define LILY_SAMPLE_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { REGEX_LAST = 0x10FFFF, REGEX_ENDLESS = INT32_MAX };

enum regex_kind {
    REGEX_EMPTY,
    REGEX_SET,    /* a character of set `a` */
    REGEX_CAT,    /* a, then b */
    REGEX_ALT,    /* a or b */
    REGEX_REPEAT, /* a between least and most times */
    REGEX_BEGIN,  /* ^ */
    REGEX_END,    /* $ */
};

typedef struct regex_node {
    enum regex_kind kind;
    uint32_t a, b;
    int32_t least, most;
} regex_node;

typedef struct regex_range {
    uint32_t low, high; /* code points, both inside */
} regex_range;

typedef struct regex_set {
    uint32_t from, n; /* into the ranges, ascending, with gaps between */
} regex_set;

typedef struct regex {
    regex_node *nodes;
    regex_set *sets;
    regex_range *ranges;
    uint32_t n_nodes, n_sets, n_ranges, room_nodes, room_sets, room_ranges;
    uint32_t root;
} regex;

/* `n` bytes of UTF-8. */
int regex_parse(regex *r, const char *text, size_t n, lily_err *e);
void regex_free(regex *r);

#endif
