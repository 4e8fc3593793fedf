/* jinja_builtin.h - the filters, tests, methods and functions that templates may name. */
#ifndef LILY_TEXT_JINJA_BUILTIN_H
#define LILY_TEXT_JINJA_BUILTIN_H

#include "text/jinja_value.h"

enum { JINJA_MAX_ARGS = 3 };

typedef struct jinja_builtin {
    const char *name;
    int least, most;                       /* arguments beside the value itself */
    const char *params[JINJA_MAX_ARGS];    /* their keywords; NULL: positional only */
    /* args[i] is NULL for an argument that was left out. */
    int (*run)(jinja_ctx *c, const jinja_value *self, const jinja_value *const *args, jinja_value *out);
} jinja_builtin;

extern const jinja_builtin JINJA_FILTERS[], JINJA_TESTS[], JINJA_METHODS[], JINJA_FUNCTIONS[];

/* Index of name in one of these tables, -1 if absent. */
int jinja_builtin_find(const jinja_builtin *table, const char *name);

/* "a.name" of Python: an attribute, method or member; undefined if there is none. */
int jinja_attribute(jinja_ctx *c, const jinja_value *v, const char *name, jinja_value *out);
/* "a[key]" */
int jinja_item(jinja_ctx *c, const jinja_value *v, const jinja_value *key, jinja_value *out);
/* "a[from:to:step]"; none or undefined for a bound that was left out. */
int jinja_slice(jinja_ctx *c, const jinja_value *v, const jinja_value bounds[3], jinja_value *out);
/* Whether loop has the attribute; others are refused at load. */
bool jinja_loop_has(const char *name);

/* a OP b; OP is one of + - * / % as a character, or JINJA_OP_FLOOR for "//". */
enum { JINJA_OP_FLOOR = '/' | '/' << 8 };
int jinja_binary(jinja_ctx *c, int op, const jinja_value *a, const jinja_value *b, jinja_value *out);

#endif
