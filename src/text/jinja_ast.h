/* jinja_ast.h - a parsed template. */
#ifndef LILY_TEXT_JINJA_AST_H
#define LILY_TEXT_JINJA_AST_H

#include "text/jinja_value.h"

typedef enum jinja_node_kind {
    /* expressions */
    JINJA_CONST,        /* value */
    JINJA_NAME,         /* name */
    JINJA_MAKE_LIST,    /* list */
    JINJA_MAKE_TUPLE,   /* list */
    JINJA_MAKE_DICT,    /* list: key, value, key, value … */
    JINJA_ATTR,         /* a . name */
    JINJA_ITEM,         /* a [ b ] */
    JINJA_SLICE,        /* a [ list[0] : list[1] : list[2] ], each may be NULL */
    JINJA_CALL_NAME,    /* name ( list ); names: keywords, NULL for positional */
    JINJA_CALL_METHOD,  /* a . method op ( list ), NULL for an argument left out */
    JINJA_FILTERED,     /* a | filter op ( list ), the same */
    JINJA_TESTED,       /* a is test op ( list ) */
    JINJA_NOT,          /* a */
    JINJA_NEGATE,       /* op '-' or '+', a */
    JINJA_AND,          /* a, b */
    JINJA_OR,
    JINJA_BINARY,       /* a op b: + - * / // % */
    JINJA_CONCAT,       /* list joined by ~ */
    JINJA_COMPARE,      /* list[0] ops[0] list[1] ops[1] … */
    JINJA_COND,         /* a if b else c (NULL) */
    /* statements */
    JINJA_TEXT,         /* value */
    JINJA_PRINT,        /* a */
    JINJA_BODY,         /* list */
    JINJA_IF,           /* list: condition, body, condition, body …; c: else or NULL */
    JINJA_FOR,          /* list: targets (NAME), a: what is walked, op: whether there are several targets,
                           b: the filter or NULL, c: body, d: else or NULL */
    JINJA_SET,          /* list: targets (NAME, or one ATTR of a namespace), a: value, or c: body */
    JINJA_DEFINE,       /* macro name: names[i] with default list[i] or NULL; c: body */
} jinja_node_kind;

enum { JINJA_OP_IN = 256 * 256, JINJA_OP_NOT_IN };    /* beside the operator tokens */

typedef struct jinja_node jinja_node;
struct jinja_node {
    jinja_node_kind kind;
    int line;
    int op;
    const char *name;
    jinja_value value;
    jinja_node *a, *b, *c, *d;
    jinja_node **list;
    const char **names;
    int *ops;
    size_t n;
};

/* The whole template as one BODY in c's arena; LILY_FORMAT or LILY_UNSUPPORTED with line and construct. */
int jinja_parse(jinja_ctx *c, const char *source, size_t n, jinja_node **out);

#endif
