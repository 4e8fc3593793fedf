/* jinja_lex.h - the source of a template as tokens, white-space control done.
 *
 * As jinja2 with trim_blocks and lstrip_blocks: the newline after a statement or comment goes, white space
 * before one that begins its line goes, "-" takes all white space on its side, "+" keeps it; line ends
 * become \n; one newline at the end of the source goes. */
#ifndef LILY_TEXT_JINJA_LEX_H
#define LILY_TEXT_JINJA_LEX_H

#include "text/jinja_value.h"

typedef enum jinja_token_kind {
    JINJA_TOK_TEXT,           /* between tags; never empty */
    JINJA_TOK_PRINT,          /* {{ */
    JINJA_TOK_PRINT_END,
    JINJA_TOK_BLOCK,          /* {% */
    JINJA_TOK_BLOCK_END,
    JINJA_TOK_NAME,
    JINJA_TOK_STRING,
    JINJA_TOK_NUMBER,
    JINJA_TOK_OP,
    JINJA_TOK_END,
} jinja_token_kind;

/* An operator of one or two characters as a number. */
#define JINJA_OP1(a)    ((a))
#define JINJA_OP2(a, b) ((a) | (b) << 8)

typedef struct jinja_token {
    jinja_token_kind kind;
    int line;
    int op;                   /* OP */
    const char *text;         /* TEXT, NAME (NUL-terminated) */
    size_t n;
    jinja_value value;        /* STRING, NUMBER */
} jinja_token;

/* The tokens (in c's arena), the last one END.  source is copied. */
int jinja_lex(jinja_ctx *c, const char *source, size_t n, jinja_token **out);

#endif
