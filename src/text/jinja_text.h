/* jinja_text.h - strings with origins: cutting, joining, and the text forms of values. */
#ifndef LILY_TEXT_JINJA_TEXT_H
#define LILY_TEXT_JINJA_TEXT_H

#include "base/buf.h"
#include "text/jinja_value.h"

/* A string being built.  Same rules as lily_buf: a failed allocation is remembered. */
typedef struct jinja_out {
    lily_buf text;
    jinja_run *runs;       /* owned */
    size_t n_runs, cap_runs;
    size_t limit;          /* most bytes */
    bool is_prompt;        /* the output itself, not a value on its way */
    bool failed, full;
} jinja_out;

void jinja_out_free(jinja_out *o);
void jinja_out_bytes(jinja_out *o, const char *p, size_t n, bool control);
void jinja_out_str(jinja_out *o, const jinja_str *s);
int jinja_out_ok(jinja_ctx *c, const jinja_out *o);
/* Moves what was built into the arena and frees the builder, also on failure. */
int jinja_out_value(jinja_ctx *c, jinja_out *o, jinja_value *out);

/* New strings in the arena.  `copy` false: p lives long enough. */
int jinja_text(jinja_ctx *c, const char *p, size_t n, bool control, bool copy, jinja_value *out);
int jinja_substr(jinja_ctx *c, const jinja_str *s, size_t from, size_t to, jinja_value *out);
int jinja_concat(jinja_ctx *c, const jinja_str *const *parts, size_t n, jinja_value *out);
/* "a + b" of two strings: the one that is not markup is escaped if the other is. */
int jinja_add_text(jinja_ctx *c, const jinja_str *a, const jinja_str *b, jinja_value *out);

/* str(v): the value itself if it is a string.  Text made of data is data; words for numbers, True and
 * None are data as well, so that nothing computed from a request can become a control token. */
int jinja_str_of(jinja_ctx *c, const jinja_value *v, const jinja_str **out);
/* json.dumps(v, ensure_ascii=False, indent=indent); indent < 0: on one line. */
int jinja_json_of(jinja_ctx *c, const jinja_value *v, int indent, jinja_value *out);
/* repr() of a float: the shortest digits that read back as the same number. */
size_t jinja_float_repr(double f, char out[32]);

bool jinja_is_space(uint32_t cp);    /* str.isspace() */
enum { JINJA_LEFT = 1, JINJA_RIGHT = 2 };
/* Bounds of s without the characters of `chars` (NULL: white space) at the sides. */
void jinja_strip(const jinja_str *s, const jinja_str *chars, int sides, size_t *from, size_t *to);
/* Byte position of the first `needle` at or after `from`, or SIZE_MAX. */
size_t jinja_find(const jinja_str *s, const jinja_str *needle, size_t from);
size_t jinja_char_count(const jinja_str *s);
/* Byte position of character number `index` (from 0; up to the length). */
size_t jinja_char_at(const jinja_str *s, size_t index);
/* max < 0: all.  sep NULL: at white space. */
int jinja_split(jinja_ctx *c, const jinja_str *s, const jinja_str *sep, int64_t max, jinja_list **out);
int jinja_replace(jinja_ctx *c, const jinja_str *s, const jinja_str *old, const jinja_str *with, int64_t max,
                  jinja_value *out);
/* Full Unicode case mapping as Python does it. */
int jinja_case(jinja_ctx *c, const jinja_str *s, bool upper, jinja_value *out);

#endif
