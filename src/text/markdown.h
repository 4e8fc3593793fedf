/* markdown.h - as much of Markdown as tells quoted text from the model's own: code fences, inline code,
 * quoted lines.  Fed character by character. */
#ifndef LILY_TEXT_MARKDOWN_H
#define LILY_TEXT_MARKDOWN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct markdown {
    char fence;            /* '`' or '~' inside a fenced block, else 0 */
    size_t fence_ticks;
    size_t code_ticks;     /* inside inline code: how many backticks opened it */
    char run;              /* the present run of backticks or tildes */
    size_t run_length;
    bool run_at_start;
    size_t indent;         /* white space at the beginning of the line */
    bool in_line;          /* something but white space is on the line */
    bool quoted;           /* the line begins with '>' */
    char last[4];          /* the last bytes but white space at line begins */
} markdown;                /* {0} is the beginning of a text */

/* One byte of the text. */
void markdown_byte(markdown *m, char byte);
/* Whether a tag at this place would be quoted: in code, on a quoted line, behind a quotation mark. */
bool markdown_is_quoted(markdown *m);
/* Whether only white space stands before it on its line. */
static inline bool markdown_at_line_start(const markdown *m) { return !m->in_line && m->run_length == 0; }

#endif
