/* json_writer.h - JSON text as Python's json.dump(ensure_ascii=False) lays it out. */
#ifndef LILY_TOOLS_JSON_WRITER_H
#define LILY_TOOLS_JSON_WRITER_H

#include <stdbool.h>

#include "base/buf.h"

enum { JW_COMPACT = -1, JW_ONE_LINE = 0 };  /* indent: separators (",", ":"), (", ", ": "); n > 0: n blanks a level */

typedef struct jw {
    lily_buf out;
    int indent, depth;
    bool empty;             /* nothing in the current list or object yet */
} jw;

/* Everything takes a key, NULL in a list and at the top. */
void jw_open(jw *w, const char *key, char bracket);     /* '{' or '[' */
void jw_close(jw *w, char bracket);                     /* '}' or ']' */
void jw_string(jw *w, const char *key, const char *value);
void jw_int(jw *w, const char *key, long long value);
void jw_bool(jw *w, const char *key, bool value);
/* A value whose text is given: null, or a number spelled as Python does. */
void jw_raw(jw *w, const char *key, const char *text);

#endif
