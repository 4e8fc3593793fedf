/* script_file.h - the file of a script, read and checked.  Private to the script's sources. */
#ifndef LILY_RUN_SCRIPT_FILE_H
#define LILY_RUN_SCRIPT_FILE_H

#include "base/arena.h"
#include "base/json.h"
#include "run/script.h"

enum lily_script_end { SCRIPT_END_ERROR, SCRIPT_END_LAST, SCRIPT_END_RESTART };

typedef struct lily_script_file {
    lily_arena arena;               /* owns all below */
    lily_script_reply *replies;
    uint32_t n_replies;
    enum lily_script_end end;
} lily_script_file;

int lily_script_file_read(lily_script_file *f, const char *path, const lily_tokenizer *t, lily_err *e);

/* ---- sources (script_source.c) ---- */

/* The added tokens of a tokenizer, to be cut out of texts. */
typedef struct lily_script_cutter {
    const lily_tokenizer *tokenizer;
    lily_arena *arena;
    lily_script_token *added;
    size_t n_added;
} lily_script_cutter;

int lily_script_cutter_init(lily_script_cutter *c, const lily_tokenizer *t, lily_arena *arena, lily_err *e);
/* The names of sources, NULL at the end. */
extern const char *const lily_script_sources[];
/* Reads the source called `name` out of the reply object; errors begin with `place`.name. */
int lily_script_source(const lily_script_cutter *c, const json_t *reply, const char *name, const char *place,
                       lily_script_reply *out, lily_err *e);

#endif
