/* script_file.h - the file of a script, read and checked.  Private to the script's sources. */
#ifndef LILY_RUN_SCRIPT_FILE_H
#define LILY_RUN_SCRIPT_FILE_H

#include "base/arena.h"
#include "base/json.h"
#include "run/script.h"

enum lily_script_end { SCRIPT_END_ERROR, SCRIPT_END_LAST, SCRIPT_END_RESTART, SCRIPT_END_MODEL };

typedef struct lily_script_file {
    lily_arena arena;               /* owns all below */
    lily_script_reply *replies;
    uint32_t n_replies;
    enum lily_script_end end;
    bool model;                     /* the model runs too */
} lily_script_file;

int lily_script_file_read(lily_script_file *f, const char *path, const lily_tokenizer *t, uint32_t n_rows,
                          lily_err *e);

/* ---- sources (script_source.c) ---- */

/* The added tokens of a tokenizer, to be cut out of texts. */
typedef struct lily_script_cutter {
    const lily_tokenizer *tokenizer;
    lily_arena *arena;
    lily_script_token *added;
    size_t n_added;
    uint32_t n_rows;                /* scores that a model gives */
    bool real;                      /* only tokens with ids will do: the model reads them */
} lily_script_cutter;

int lily_script_cutter_init(lily_script_cutter *c, const lily_tokenizer *t, lily_arena *arena, lily_err *e);
/* The names of sources, NULL at the end. */
extern const char *const lily_script_sources[];
/* Reads the source called `name` out of the object that holds it; errors begin with `place`.name. */
int lily_script_read_source(const lily_script_cutter *c, const json_t *holder, const char *name, const char *place,
                            lily_script_source *out, lily_err *e);
/* The source `logits` (script_logits.c). */
int lily_script_read_logits(const lily_script_cutter *c, const json_t *v, const char *place, lily_script_source *out,
                            lily_err *e);

#endif
