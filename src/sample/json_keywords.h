/* json_keywords.h - the keywords that schemas may have, and what they say of. */
#ifndef LILY_SAMPLE_JSON_KEYWORDS_H
#define LILY_SAMPLE_JSON_KEYWORDS_H

#include <stdbool.h>

#include "base/buf.h"

/* Groups as bits. */
enum {
    KEYWORD_IGNORED = 0,
    KEYWORD_TYPE = 1,
    KEYWORD_VALUES = 2,
    KEYWORD_ANY_OF = 4,
    KEYWORD_ONE_OF = 8,
    KEYWORD_ALL_OF = 16,
    KEYWORD_REF = 32,
    KEYWORD_OBJECT = 64,
    KEYWORD_ARRAY = 128,
    KEYWORD_STRING = 256,
    KEYWORD_NUMBER = 512,
};

/* False: it is not supported.  Names that begin with "x-" only describe. */
bool json_keyword_group(const char *name, unsigned *group);
/* The regular expression of a value of `format`, NULL: it is not supported. */
const char *json_format_pattern(const char *name);

/* The tables of the documentation, as Markdown. */
void lily_json_keyword_table(lily_buf *out);
void lily_json_format_table(lily_buf *out);

#endif
