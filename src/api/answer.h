/* answer.h - tokens of a reply turned into what protocols send: reasoning, text, tool calls, an end.
 *
 *     engine events -> reply reader (text/reply.h) -> stop strings (text/stop.h) -> the sink's events
 *
 * All text that comes out is whole UTF-8 characters.  Stop strings count in the text of the answer only, not in
 * the reasoning and not in arguments of calls.  The result does not depend on how the tokens cut the text. */
#ifndef LILY_API_ANSWER_H
#define LILY_API_ANSWER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "device/dev.h"
#include "run/engine.h"

typedef enum lily_answer_kind {
    LILY_ANSWER_START,          /* its turn has come: usage tells the prompt's tokens and the reused ones */
    LILY_ANSWER_PROGRESS,       /* usage.n_done tokens of the prompt are read */
    LILY_ANSWER_REASONING,      /* text */
    LILY_ANSWER_TEXT,           /* text */
    LILY_ANSWER_CALL,           /* call, text: the name of the function */
    LILY_ANSWER_ARGUMENTS,      /* call, text: a piece of the arguments, JSON when joined */
    LILY_ANSWER_CALL_END,       /* call: complete */
    LILY_ANSWER_CALL_CUT,       /* call: the reply ended inside it, it must not be made */
    LILY_ANSWER_FINISH,         /* finish; nothing follows */
} lily_answer_kind;

typedef enum lily_finish {
    LILY_FINISH_STOP,           /* the model ended its turn, or a stop string came */
    LILY_FINISH_LENGTH,         /* a limit of tokens */
    LILY_FINISH_CALLS,          /* as STOP, after complete tool calls */
    LILY_FINISH_CANCELLED,
    LILY_FINISH_ERROR,          /* err, err_code */
} lily_finish;

/* One token of the reply and the alternatives to it. */
typedef struct lily_answer_token {
    int32_t id;                 /* -1: a scripted token without id */
    float logprob;
    const char *bytes;          /* may cut a character */
    size_t n_bytes;
    const lily_top *top;        /* best first */
    uint32_t n_top;
    size_t at;                  /* of the answer's text, how much had come before this token */
} lily_answer_token;

typedef struct lily_usage {
    uint32_t n_prompt, n_reused, n_done;
    uint32_t n_reply;           /* tokens read up to the end or the stop string, the end of turn not counted */
    uint32_t n_reasoning;       /* of these inside the thinking; the token that ends it is none */
    double prompt_seconds, reply_seconds;
} lily_usage;

/* Adds what a further answer took to the sum, {0} at first.  again: the prompt is that of the answer before, which
 * counts once. */
void lily_usage_add(lily_usage *sum, const lily_usage *more, bool again);

typedef struct lily_answer_event {
    lily_answer_kind kind;
    const char *text;           /* not NUL-terminated, valid during the callback */
    size_t n;
    size_t call;
    lily_finish finish;
    int stop;                   /* FINISH: index of the stop string that was found, or -1 */
    const lily_err *err;
    const char *err_code;
    /* With logprobs, on events with text and on FINISH: the tokens read since the last such event. Each token is
     * sent once, in order, not before its text; those that lie wholly in a stop string or behind it are not sent. */
    const lily_answer_token *const *tokens;
    size_t n_tokens;
    const lily_usage *usage;    /* so far */
} lily_answer_event;

/* Any code but LILY_OK stops the answer; feed returns it. */
typedef int lily_answer_sink(void *user, const lily_answer_event *ev, lily_err *e);

typedef struct lily_answer_options {
    const lily_tokenizer *tokenizer;    /* tells special tokens, which are no text; NULL: there are none */
    bool plain;                         /* text as it comes: nothing is read as reasoning or as a call */
    bool thinking;                      /* the prompt ends inside a think block */
    const char *begun;                  /* what of the answer stands in the prompt already, or NULL; used by _new */
    size_t n_begun;
    const json_t *tools;                /* borrowed; NULL: nothing is read as a call */
    bool single_call;                   /* the first complete call ends the answer */
    bool logprobs;
    const char *const *stop;            /* copied */
    const size_t *stop_len;
    size_t n_stop;
    lily_answer_sink *sink;
    void *user;
} lily_answer_options;

typedef struct lily_answer lily_answer;

/* LILY_ARGUMENT for stop strings that cannot be (text/stop.h). */
int lily_answer_new(lily_answer **out, const lily_answer_options *o, lily_err *e);
void lily_answer_free(lily_answer *a);
int lily_answer_feed(lily_answer *a, const lily_event *ev, lily_err *e);
/* The answer is complete though the engine goes on: the caller should cancel the request and go on feeding
 * until the end event, which carries the times. */
bool lily_answer_complete(const lily_answer *a);

#endif
