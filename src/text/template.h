/* template.h - the checkpoint's chat template, interpreted, with the origin of every byte of its output.
 *
 * A template is a small part of Jinja (jinja_builtin.c lists its filters, tests and methods); what leaves
 * that part is refused when the template is loaded, with line and construct.  Rendering equals jinja2's
 * ImmutableSandboxedEnvironment(trim_blocks, lstrip_blocks) with the tojson filter of transformers, byte
 * for byte (but for one oddity: jinja2 hides a variable of the request from a loop if the template sets a
 * variable of that name behind the loop; here the loop sees it).  It is strict: guards that the template has are errors here; messages.h meets them before.
 *
 * Text that stands in the template (or is a special token of tokenizer_config.json) is `control`: its
 * tokens may be control tokens.  Text out of messages, tools and kwargs never is, however it was cut or
 * joined on its way, so a user's "<|im_end|>" stays letters. */
#ifndef LILY_TEXT_TEMPLATE_H
#define LILY_TEXT_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct lily_template lily_template;

/* Bytes from the end of the previous span up to `end` have one origin. */
typedef struct lily_rendered_span {
    size_t end;
    bool control;
} lily_rendered_span;

typedef struct lily_rendered {
    lily_buf text;                /* UTF-8 */
    lily_rendered_span *spans;    /* cover text without gaps; neighbours differ in `control` */
    size_t n_spans, cap_spans;
    size_t limit;                 /* set before rendering: most bytes of text; 0 is LILY_RENDERED_LIMIT */
} lily_rendered;                  /* {0} is an empty one */

enum { LILY_RENDERED_LIMIT = 64 * 1024 * 1024 };

void lily_rendered_free(lily_rendered *r);

/* Reads MODEL_DIR/chat_template.jinja, else "chat_template" of tokenizer_config.json (a string, or a list
 * whose entry "default" counts); special tokens of tokenizer_config.json (bos_token …) become variables.
 * LILY_UNSUPPORTED "chat_template.jinja: line 12: filter 'groupby' is not supported" when it leaves the
 * subset, LILY_FORMAT when it is not a template at all.  The template is immutable and may be rendered by
 * several threads at once. */
int lily_template_load(lily_template **out, const char *model_dir, lily_err *e);
/* The same from memory; `name` begins the sentences of errors. */
int lily_template_parse(lily_template **out, const char *text, size_t n, const char *name, lily_err *e);
void lily_template_free(lily_template *t);

/* messages: array; tools: array or NULL; kwargs: object of further variables (enable_thinking …) or NULL.
 * LILY_ARGUMENT with the template's own words when it calls raise_exception, and with the line when an
 * expression fails on these values; LILY_CONTEXT when the output passes the limit; LILY_UNSUPPORTED when
 * it takes more steps or memory than any honest template needs.  `out` is emptied first. */
int lily_template_render(const lily_template *t, const json_t *messages, const json_t *tools, const json_t *kwargs,
                         bool add_generation_prompt, lily_rendered *out, lily_err *e);

/* Leaves the first n bytes of the text. */
void lily_rendered_cut(lily_rendered *r, size_t n);
/* Appends text that is data. */
int lily_rendered_add(lily_rendered *r, const char *text, size_t n, lily_err *e);

/* Whether the text ends inside a think block that the template opened: the reply then begins with
 * reasoning (see reply.h).  Tags in data do not count. */
bool lily_rendered_in_think(const lily_rendered *r);

#endif
