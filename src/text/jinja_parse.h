/* jinja_parse.h - what the two halves of the parser share. */
#ifndef LILY_TEXT_JINJA_PARSE_H
#define LILY_TEXT_JINJA_PARSE_H

#include "text/jinja_ast.h"
#include "text/jinja_lex.h"

typedef struct jinja_parser {
    jinja_ctx *c;
    const jinja_token *at;
    int nesting;              /* of expressions and statements */
    const char **callable;    /* names that a call may use: macros, assigned names, parameters */
    size_t n_callable, cap_callable;
} jinja_parser;

enum { JINJA_MAX_NESTING = 150 };

int jinja_syntax(jinja_parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int jinja_unsupported(jinja_parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int jinja_node_new(jinja_parser *p, jinja_node_kind kind, jinja_node **out);
int jinja_node_add(jinja_parser *p, jinja_node *n, jinja_node *item);
int jinja_deeper(jinja_parser *p);    /* pairs with p->nesting-- */

bool jinja_is_op(const jinja_parser *p, int op);
bool jinja_is_name(const jinja_parser *p, const char *name);
bool jinja_take_op(jinja_parser *p, int op);
bool jinja_take_name(jinja_parser *p, const char *name);
int jinja_expect_op(jinja_parser *p, int op, const char *text);
/* Any name but the words of expressions. */
int jinja_expect_name(jinja_parser *p, const char **name);

/* cond: "a if b" is part of it. */
int jinja_parse_expr(jinja_parser *p, bool cond, jinja_node **out);
/* Expressions with commas between them are a tuple. */
int jinja_parse_tuple(jinja_parser *p, bool cond, jinja_node **out);

#endif
