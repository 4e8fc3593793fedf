/* chat.h - one chat request, whatever protocol or terminal it comes from: messages in, answer events out.
 *
 *     messages -> normalised (text/messages.h) -> rendered (text/template.h) -> ids and marks -> engine
 *     engine events -> answer events (answer.h), on the thread that waits for them */
#ifndef LILY_API_CHAT_H
#define LILY_API_CHAT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/answer.h"
#include "base/err.h"
#include "run/engine.h"
#include "text/template.h"
#include "text/tokenizer.h"

/* ---- the prompt ---- */

typedef struct lily_chat_prompt {
    lily_rendered rendered;
    lily_ids ids;
    uint32_t *marks;            /* positions that later prompts of the conversation will share: where a message
                                   begins, and where an assistant's turn begins to speak; ascending, owned */
    uint32_t n_marks;
    uint32_t *turns;            /* those of the marks where an assistant's turn begins to speak, the last one where
                                   the reply will; owned */
    uint32_t n_turns;
    uint32_t fork;              /* the first turn that shows its thought: a template that leaves old ones out will part
                                   there; 0: none */
    bool in_think;              /* it ends inside a think block: the reply begins with reasoning */
    lily_buf begun;             /* the text of the last message, when the reply goes on in it */
} lily_chat_prompt;                  /* {0} is an empty one */

/* messages: in OpenAI's form, as the client sent them; tools and kwargs may be NULL.  go_on: the last message is the
 * assistant's, without calls, and the reply goes on in it: its turn is left open, its thinking is closed, and white
 * space at its end stays even where the template would trim it.  Errors as those of lily_messages_normalize and
 * lily_template_render; LILY_UNSUPPORTED when the template ends messages otherwise than with <|im_end|>. */
int lily_chat_prompt_make(lily_chat_prompt *out, const lily_template *t, const lily_tokenizer *k, const json_t *messages,
                     const json_t *tools, const json_t *kwargs, bool go_on, lily_err *e);
void lily_chat_prompt_free(lily_chat_prompt *p);

/* ---- the request ---- */

enum lily_tool_choice {
    LILY_TOOLS_AUTO,            /* text or calls */
    LILY_TOOLS_NONE,            /* the tools are left out of the prompt, and nothing is read as a call */
    LILY_TOOLS_REQUIRED,        /* at least one call, of any tool */
    LILY_TOOLS_NAMED,           /* at least one call, of the tool called `tool_name` alone */
};

typedef struct lily_chat {
    const json_t *messages;     /* borrowed like all that follows; used until lily_chat_start returns */
    bool go_on;                 /* the reply goes on in the last message */
    const lily_ids *prompt_ids; /* in place of messages: the prompt itself, and the reply is text as it comes */
    uint32_t prompt_mark;       /* where further prompts will part from it; 0: nowhere */
    const json_t *tools;        /* OpenAI's list or NULL; used until lily_chat_free */
    const json_t *kwargs;       /* template variables (enable_thinking …) or NULL */
    lily_sampling sampling;
    uint32_t max_tokens;        /* 0: the room left */
    const char *const *stop;
    const size_t *stop_len;
    size_t n_stop;
    enum lily_tool_choice tool_choice;
    const char *tool_name;      /* for LILY_TOOLS_NAMED */
    bool single_call;           /* the first complete tool call ends the answer */
    bool think_limited;         /* thinking takes think_budget tokens at most; then it is closed and the answer
                                   follows */
    uint32_t think_budget;
    lily_grammar *grammar;      /* what the answer behind a thought must be, or NULL */
    bool ignore_eos, no_reuse;
    const char *endpoint;       /* for the record of scripted replies, with the next; may be NULL */
    int32_t script_reply;       /* -1: none named */
    struct lily_call *call;     /* told what is asked and what comes (call.h); or NULL */
    lily_answer_sink *sink;     /* on the thread that calls lily_chat_wait */
    void *user;
} lily_chat;

typedef struct lily_chat_run lily_chat_run;

/* LILY_CONTEXT when the prompt leaves no room for a reply: *n_prompt (may be NULL) then tells its tokens.
 * LILY_BUSY when the queue is full. */
int lily_chat_start(lily_chat_run **out, lily_engine *g, const lily_chat *chat, uint32_t *n_prompt, lily_err *e);
/* Hands what has happened to the sink; when nothing has, waits at most `seconds` (< 0: without end) for it.
 * *finished: FINISH was handed over.  Fails with what the sink returned: then cancel and free. */
int lily_chat_wait(lily_chat_run *r, double seconds, bool *finished, lily_err *e);
/* Any thread: the answer ends soon with LILY_FINISH_CANCELLED. */
void lily_chat_cancel(lily_chat_run *r);
/* Cancels what still runs. */
void lily_chat_free(lily_chat_run *r);

#endif
