/* json_text.h - JSON as text: the pieces that must keep every byte, where a parsed value would not. */
#ifndef LILY_TEXT_JSON_TEXT_H
#define LILY_TEXT_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Length of the JSON number that text begins with, the longest one; 0 if there is none. */
size_t lily_json_number_length(const char *text, size_t n);
/* Appends s as the inside of a JSON string: quotation marks, backslashes and control characters escaped,
 * everything else as it is (ensure_ascii off). */
void lily_json_escape(lily_buf *out, const char *s, size_t n);
/* Of the valid JSON object text[0 … n): where the value of `key` stands; false if the key is absent. */
bool lily_json_member(const char *text, size_t n, const char *key, size_t *from, size_t *to);

#endif
