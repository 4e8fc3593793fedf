/* json_number.h - numbers between bounds.  Private to src/sample. */
#ifndef LILY_SAMPLE_JSON_NUMBER_H
#define LILY_SAMPLE_JSON_NUMBER_H

#include "sample/json_parts.h"

enum { DECIMAL_DIGITS = 40 };

typedef struct decimal {
    bool negative, far;            /* far: it has more whole digits than fit */
    char whole[DECIMAL_DIGITS];    /* "0", or no zero in front */
    char fraction[DECIMAL_DIGITS]; /* no zero at the end; may be empty */
} decimal;

/* False when it is no number. */
bool decimal_of(decimal *d, const json_t *number);
/* Below, at or above 0 as a is below, at or above b. */
int decimal_compare(const decimal *a, const decimal *b);

typedef struct number_bounds {
    const decimal *low, *high; /* NULL: none */
    bool open_low, open_high;  /* the bound itself is outside */
} number_bounds;

/* Without exponent; whole: integers of at most JSON_DIGITS digits, else at most JSON_PRECISION digits in all.
 */
uint32_t part_number_between(const json_parts *p, const number_bounds *b, bool whole, uint32_t next);

#endif
