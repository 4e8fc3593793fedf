/* openai_request.h - the body of POST /v1/chat/completions, read and checked into a lily_chat. */
#ifndef LILY_API_OPENAI_REQUEST_H
#define LILY_API_OPENAI_REQUEST_H

#include <jansson.h>
#include <stdbool.h>

#include "api/chat.h"
#include "api/errors.h"
#include "text/stop.h"

typedef struct lily_openai_request {
    lily_chat chat;             /* its pointers lead into `body` and the fields below; sink and user are the caller's */
    bool stream, include_usage, return_progress;

    json_t *body;               /* owned, as is all below */
    json_t *kwargs;
    lily_bias *bias;
    lily_grammar *grammar;      /* of response_format, or NULL */
    const char *stop[LILY_STOP_MAX];
    size_t stop_len[LILY_STOP_MAX];

    /* What fields say before they are put together. */
    int32_t n_vocab;
    int64_t max_tokens, max_completion_tokens, seed, top_k, top_logprobs, n;
    bool cache_prompt, parallel_calls;
    int go_on, add_prompt;              /* continue_final_message, add_generation_prompt: -1 not given */
    const json_t *tool_choice;          /* borrowed from body: the object form; else NULL */
    json_t *allowed_tools;              /* owned: the tools that it leaves, or NULL */
    int64_t budget[3];                  /* of thinking, by the three places that may name one */
    const json_t *template_kwargs;      /* borrowed from body */
    int enable_thinking, thinking, effort;     /* the three other switches: -1 not given, 0 off, 1 on */
} lily_openai_request;

/* What a server says for all requests. */
typedef struct lily_openai_defaults {
    const lily_sampling_defaults *sampling;
    const json_t *kwargs;       /* template variables, or NULL */
    int32_t n_vocab;            /* ids that logit_bias may name */
    bool think_limited;         /* thinking takes think_budget tokens at most where a request says nothing */
    uint32_t think_budget;
} lily_openai_defaults;

/* Takes over `body`, also on failure. The request must be freed in either case. */
int lily_openai_request_read(lily_openai_request *q, json_t *body, const lily_openai_defaults *d, lily_refusal *r);
void lily_openai_request_free(lily_openai_request *q);

/* The same without a prompt: what a protocol that has its own way to say it shares with chat requests. */
int lily_openai_answer_read(lily_openai_request *q, json_t *body, const lily_openai_defaults *d, lily_refusal *r);

/* messages, tools, tool_choice and the template's switches alone: the prompt that the model would read. Takes over
 * `body`. */
int lily_openai_prompt_make(lily_chat_prompt *out, lily_engine *g, json_t *body, const lily_openai_defaults *d,
                            lily_refusal *r);

/* The text of a request's body as a JSON object, LILY_ARGUMENT otherwise; numbers as in text/big_number.h. */
int lily_body_object(const char *text, size_t n, json_t **out, lily_refusal *r);
/* Adds the field to a refusal whose sentence begins with a place in the messages or tools. */
void lily_name_messages(lily_refusal *r);

#endif
