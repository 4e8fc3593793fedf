/* chat.h - one conversation in a terminal or a pipe. */
#ifndef LILY_CLI_CHAT_H
#define LILY_CLI_CHAT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "run/engine.h"

typedef struct lily_talk {
    lily_engine *engine;
    json_t *messages;           /* the conversation so far, system message first if there is one */
    json_t *kwargs;             /* template variables */
    lily_sampling sampling;
    bool fixed_seed;            /* else each answer takes a new one */
    uint32_t max_tokens;
    bool stats;                 /* tokens, reuse and speed after each answer */
    bool terminal;              /* standard output is one: reasoning is shown, dimmed */
} lily_talk;

/* Asks (n bytes) and prints the answer as it comes; question and answer join the conversation.  An interrupted answer joins
 * as far as it came; a question without any answer is taken back.  *interrupted tells of Ctrl-C. */
int lily_talk_ask(lily_talk *t, const char *question, size_t n, bool *interrupted, lily_err *e);
/* The conversation without its last question and what followed, or false when there is none. The question is
 * given to the caller (a new reference) when `question` is not NULL. */
bool lily_talk_undo(lily_talk *t, json_t **question);
/* Sets, replaces or (NULL) removes the system message. */
void lily_talk_set_system(lily_talk *t, const char *text);

/* Reads lines until /exit or the end of input. */
int lily_talk_loop(lily_talk *t, lily_err *e);

/* Ctrl-C since the last call?  Without this, and outside of an answer, it ends the program as ever. */
bool lily_interrupted(void);
void lily_catch_interrupts(void);

#endif
