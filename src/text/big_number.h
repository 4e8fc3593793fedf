/* big_number.h - numbers that jansson cannot hold.
 *
 * JSON has integers of any size and jansson only int64; a client's 18446744073709551615 must reach the
 * prompt digit by digit, neither refused nor rounded to a double.  Such a number (and a real that
 * overflows a double) is carried as the object {"\u0001number": "DIGITS"}.  A client that forges this object
 * gets what it could have written anyway: the number. */
#ifndef LILY_TEXT_BIG_NUMBER_H
#define LILY_TEXT_BIG_NUMBER_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

/* lily_json_parse, with such numbers carried. */
int lily_json_parse_big(json_t **out, const char *text, size_t n, const char *what, lily_err *e);
/* Appends j as JSON text, spaced as json.dumps of Python spaces it, such numbers as their digits. */
int lily_json_print_big(const json_t *j, lily_buf *out, lily_err *e);
/* The digits if j is a carried number, else NULL. */
const char *lily_big_number(const json_t *j);

#endif
