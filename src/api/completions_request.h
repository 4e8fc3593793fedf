/* completions_request.h - the body of POST /v1/completions: raw prompts, no messages.
 *
 * A prompt is text or ids, or a list of either; each is answered n times.  Text is read as /tokenize reads it: the
 * letters of an added token (<|im_start|> …) are that token. */
#ifndef LILY_API_COMPLETIONS_REQUEST_H
#define LILY_API_COMPLETIONS_REQUEST_H

#include <jansson.h>
#include <stdbool.h>

#include "api/openai_request.h"
#include "text/tokenizer.h"

/* Most answers to one request. */
enum { LILY_COMPLETIONS_MOST = 1024, LILY_COMPLETIONS_TOKENS = 16 /* of an answer, where nothing is said: OpenAI's */ };

typedef struct lily_completion_prompt {
    lily_ids ids;
    const char *text;           /* as the client wrote it, borrowed from its body; NULL: it wrote ids */
    size_t n_text;
} lily_completion_prompt;

typedef struct lily_completions_request {
    lily_openai_request q;      /* sampling, limits, n; q.chat.prompt_ids is that of the first prompt */
    json_t *body;               /* as it came; owned, as is the next */
    lily_completion_prompt *prompts;
    size_t n_prompts;
    uint32_t shared;            /* tokens that all of them begin with; 0: too few to keep, or there is only one */
    bool echo, with_logprobs;
    int64_t logprobs;
} lily_completions_request;

/* What prompts are checked against. */
typedef struct lily_completions_limits {
    const lily_tokenizer *tokenizer;
    uint32_t vocab, context;
} lily_completions_limits;

/* Takes over `body`, also on failure. The request must be freed in either case. */
int lily_completions_request_read(lily_completions_request *q, json_t *body, const lily_openai_defaults *d,
                                  const lily_completions_limits *limits, lily_refusal *r);
void lily_completions_request_free(lily_completions_request *q);

#endif
