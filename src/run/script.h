/* script.h - scripted replies: what serve --script FILE says in place of the model (docs/scripted-replies.md).
 *
 * The file is read once at start; every mistake in it is refused with its place, "replies[2].splits".  The order of
 * taking and the record may be asked for from several threads. */
#ifndef LILY_RUN_SCRIPT_H
#define LILY_RUN_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "run/engine.h"

typedef struct lily_script_token {
    int32_t id;                     /* -1: fake text without an id */
    bool added;                     /* an added token of the tokenizer */
    const char *bytes;
    size_t n;
} lily_script_token;

/* The scores of one step. */
typedef struct lily_script_logits {
    const struct lily_bias *set;    /* device/dev.h: `add` is the row's score, those not named have LILY_SCRIPT_LOW */
    uint32_t n;
    bool nan;                       /* all rows are not a number */
} lily_script_logits;

#define LILY_SCRIPT_LOW (-1000.0f)

/* Tokens, or scores to choose them by: the one or the other. */
typedef struct lily_script_source {
    const lily_script_token *tokens;
    size_t n_tokens;
    uint64_t times_over;            /* the tokens come so many times */
    const lily_script_logits *logits;   /* NULL: tokens */
    size_t n_logits;
    bool every_step;                /* the one of logits holds for all steps; else each for one */
} lily_script_source;

typedef struct lily_script_reply {
    lily_script_source source;
    const lily_script_source *after_think;  /* goes on when the engine has closed the thinking; NULL: the same does */
    uint32_t delay_ms, prefill_ms;
    uint64_t fail_at;               /* from 1; 0: never */
    bool cut;                       /* no end of turn: the limit counts as reached */
    const char *when;               /* NULL: any prompt */
    size_t n_when;
    uint32_t times;                 /* 0: any number */
} lily_script_reply;

typedef struct lily_script lily_script;

/* The tokenizer must outlive the script.  n_rows: scores that a model gives, which logits may name. */
int lily_script_open(lily_script **out, const char *path, const lily_tokenizer *t, uint32_t n_rows, lily_err *e);
void lily_script_close(lily_script *s);
/* Whether the model runs too: its states are real, its scores are not used. */
bool lily_script_runs_model(const lily_script *s);

/* Gives the request its reply and opens its record, *ticket.  *reply is NULL, and there is no record, when none is
 * left and the model is to answer itself; else LILY_DEVICE "… is left" with *err_code set to "script_exhausted" then.
 * LILY_ARGUMENT when the reply that the request names does not exist. */
int lily_script_take(lily_script *s, const lily_ask *ask, const lily_script_reply **reply, uint64_t *ticket,
                     const char **err_code, lily_err *e);
/* What the record says of it. */
int lily_script_note_token(lily_script *s, uint64_t ticket, int32_t id, lily_err *e);
void lily_script_note_end(lily_script *s, uint64_t ticket, const char *ended);
/* GET /script as JSON text. */
int lily_script_record(lily_script *s, lily_buf *out, lily_err *e);

#endif
