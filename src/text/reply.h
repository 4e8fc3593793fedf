/* reply.h - reads a reply while it is generated: reasoning | text | tool calls.
 *
 * The reader is fed what each token stands for, in order, cut anywhere (a UTF-8 character may be cut too),
 * and sends events to a sink.  The joined events do not depend on the cuts.  Text of an event is whole
 * UTF-8 characters; bytes that are no UTF-8 become U+FFFD.
 *
 * The form, as the templates of this family write it:
 *
 *   REASONING\n</think>\n\nTEXT\n\n<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n
 *   </function>\n</tool_call>\n<tool_call>…
 *
 * <think>, </think>, <tool_call> and </tool_call> count where they are added tokens (`special`); the same
 * letters as ordinary text are text.  <function=…> and <parameter=…> are always ordinary text.
 *
 * What is repaired: a function block without its wrapper, if it begins a line and names a declared tool;
 * doubled or orphaned wrappers and closing tags; a missing </function>; JSON inside the wrapper; thinking
 * that was never closed before a complete call that ends the reply.  What is never a call: anything inside
 * reasoning that goes on, in a code fence, in inline code, after a quotation mark, or on a quoted line. */
#ifndef LILY_TEXT_REPLY_H
#define LILY_TEXT_REPLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

typedef enum lily_reply_kind {
    LILY_REPLY_REASONING,    /* text: more of the reasoning */
    LILY_REPLY_TEXT,         /* text: more of the answer */
    LILY_REPLY_CALL,         /* text: the name of the function; a call begins */
    LILY_REPLY_ARGUMENTS,    /* text: more of the call's arguments, JSON text of one object when joined */
    LILY_REPLY_CALL_END,     /* the call is complete; without parameters its arguments were "{}" */
    LILY_REPLY_CALL_CUT,     /* the reply ended inside the call: not a call that may be made */
} lily_reply_kind;

typedef struct lily_reply_event {
    lily_reply_kind kind;
    size_t call;             /* 0, 1, …: which call, for the four kinds above that belong to one */
    const char *text;        /* not NUL-terminated, valid during the callback; NULL for the two ends */
    size_t n;
} lily_reply_event;

/* Any code but LILY_OK stops the reader; feed or finish returns it. */
typedef int lily_reply_sink(void *user, const lily_reply_event *ev, lily_err *e);

typedef struct lily_reply_options {
    bool thinking;           /* the prompt ends inside a think block: lily_rendered_in_think */
    const char *begun;       /* NULL, or what of the answer stands in the prompt already; used by lily_reply_new */
    size_t n_begun;
    const json_t *tools;     /* borrowed; OpenAI's list; NULL or empty: nothing is read as a call */
    lily_reply_sink *sink;
    void *user;
} lily_reply_options;

typedef struct lily_reply lily_reply;

int lily_reply_new(lily_reply **out, const lily_reply_options *options, lily_err *e);
void lily_reply_free(lily_reply *r);

/* n bytes of the reply; special: they are exactly one added token.  Events that are decided are sent
 * before it returns; text that may yet turn out to be a tag waits. */
int lily_reply_feed(lily_reply *r, const char *bytes, size_t n, bool special, lily_err *e);
/* The reply is over.  cut: by a limit, a stop string or a cancel, not by its own end. */
int lily_reply_finish(lily_reply *r, bool cut, lily_err *e);

/* What the next token belongs to: reasoning until the thinking is closed. */
bool lily_reply_is_reasoning(const lily_reply *r);
/* Complete calls so far. */
size_t lily_reply_calls(const lily_reply *r);

#endif
