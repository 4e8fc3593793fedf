/* reply_state.h - the reader of replies from inside: what reply*.c share. */
#ifndef LILY_TEXT_REPLY_STATE_H
#define LILY_TEXT_REPLY_STATE_H

#include "base/buf.h"
#include "text/markdown.h"
#include "text/reply.h"
#include "text/reply_value.h"

/* Inside the reader the four tokens are single bytes that UTF-8 never has. */
enum { TOK_THINK = 0xfc, TOK_THINK_END, TOK_CALL, TOK_CALL_END };

enum reply_state {
    IN_THINK,
    IN_THINK_CALL,    /* a call inside thinking, held until it is known whether the thinking goes on */
    IN_TEXT,
    IN_BODY,          /* between the parameters of a call */
    IN_VALUE,
    IN_AFTER,         /* behind a call */
};

struct lily_reply {
    bool calls_allowed;
    const json_t *tools;
    lily_reply_sink *sink;
    void *user;

    enum reply_state state;
    bool final, cut;       /* no more input comes; because of a limit */
    bool done;             /* finished or failed */
    lily_buf in;           /* what came and is not decided: whole characters and token bytes */
    size_t at;             /* of it, taken so far */
    unsigned char part[4]; /* the beginning of a character */
    size_t n_part;

    /* reasoning and text */
    lily_buf out;          /* not yet sent */
    lily_reply_kind out_kind;
    lily_buf space;        /* white space that goes if a tag follows */
    bool started;          /* something of this stretch was sent or held back */
    bool trim_start;       /* newlines at its beginning are framing */
    bool any_text;
    markdown line;         /* code fences and the like around the place */
    bool behind_quoted;    /* a quoted wrapper came last */
    size_t shown_wrappers; /* wrappers shown as text, so that their ends are too */
    size_t literal_until;  /* token bytes of `in` before it are letters */

    /* a call inside thinking */
    size_t scanned;        /* of `in` */
    bool scanned_call;     /* a call was complete there */

    /* calls */
    size_t n_calls;        /* complete ones */
    size_t call;           /* number of the present or next one */
    bool closed;           /* the last call had its own end */
    lily_buf name;
    lily_buf keys;         /* "KEY\0KEY\0": those of this call */
    bool skip_value;       /* the key came twice: the first one counts */
    bool own_line;         /* the value begins on a line of its own */
    bool value_empty;
    reply_value value;
};

/* What a look at undecided input tells. */
enum reply_look { LOOK_NO, LOOK_YES, LOOK_MORE };

/* reply.c */
int reply_say(lily_reply *r, lily_reply_kind kind, const char *text, size_t n, lily_err *e);
int reply_flush(lily_reply *r, lily_err *e);
int reply_emit(lily_reply *r, lily_reply_kind kind, const char *text, size_t n, lily_err *e);
/* Runs the machine over what is in r->in. */
int reply_run(lily_reply *r, lily_err *e);
/* The letters of a token byte. */
const char *reply_letters(unsigned char token);
/* in[from …) against a tag: YES, NO, or MORE if it may become one (never when final). */
enum reply_look reply_match(const lily_reply *r, size_t from, const char *tag);
/* Position behind white space from `from`. */
size_t reply_skip_space(const lily_reply *r, size_t from);

/* reply_prose.c: reasoning and text.  *more: nothing can be decided before more comes. */
int reply_step_prose(lily_reply *r, bool *more, lily_err *e);
int reply_step_think_call(lily_reply *r, bool *more, lily_err *e);
int reply_finish_prose(lily_reply *r, lily_err *e);

/* reply_call.c */
typedef struct reply_opening {
    size_t end;            /* behind "<function=NAME>", or at the "{" of a JSON call */
    size_t name, name_end;
    bool json;
} reply_opening;

/* Whether a call opens at `from`: a wrapper with what belongs behind it, or a bare function. */
enum reply_look reply_look_call(const lily_reply *r, size_t from, reply_opening *o);
bool reply_is_declared(const lily_reply *r, const char *name, size_t n);
int reply_begin_call(lily_reply *r, const reply_opening *o, lily_err *e);
/* A JSON call from its "{": taken if it is one. */
int reply_json_call(lily_reply *r, const reply_opening *o, enum reply_look *look, lily_err *e);
int reply_step_body(lily_reply *r, bool *more, lily_err *e);
int reply_step_value(lily_reply *r, bool *more, lily_err *e);
int reply_step_after(lily_reply *r, bool *more, lily_err *e);
int reply_finish_call(lily_reply *r, lily_err *e);

#endif
