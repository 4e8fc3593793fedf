/* jinja_eval.h - runs a parsed template. */
#ifndef LILY_TEXT_JINJA_EVAL_H
#define LILY_TEXT_JINJA_EVAL_H

#include "text/jinja_ast.h"
#include "text/jinja_text.h"

/* The names of one frame: the context, the template, a turn of a loop, a macro call. */
typedef struct jinja_scope {
    struct jinja_scope *parent;
    const char **names;
    jinja_value *values;
    size_t n, cap;
} jinja_scope;

int jinja_scope_new(jinja_ctx *c, jinja_scope *parent, jinja_scope **out);
int jinja_scope_set(jinja_ctx *c, jinja_scope *s, const char *name, jinja_value v);

int jinja_eval(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out);
/* Runs a statement; what it prints goes to o. */
int jinja_exec(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_out *o);
int jinja_call_macro(jinja_ctx *c, const jinja_node *call, const jinja_value *macro, jinja_scope *s, jinja_value *out);

#endif
