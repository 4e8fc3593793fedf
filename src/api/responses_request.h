/* responses_request.h - the body of POST /v1/responses, put into the form of a chat request and read as one.
 *
 *     input, instructions                     messages
 *     tools (flat, in namespaces, custom)     tools, each a function under a name of its own
 *     tool_choice, reasoning, text.format     tool_choice, reasoning_effort, response_format
 *     max_output_tokens, include              max_completion_tokens, logprobs
 *
 * So a field means the same here and there, and what chat requests know beside OpenAI's fields works here too. */
#ifndef LILY_API_RESPONSES_REQUEST_H
#define LILY_API_RESPONSES_REQUEST_H

#include <jansson.h>
#include <stdbool.h>

#include "api/openai_request.h"

typedef struct lily_responses_request {
    lily_openai_request chat;
    json_t *body;               /* as it came; owned, as are the next three */
    json_t *messages;
    json_t *tools;              /* as the chat request has them */
    json_t *names;              /* what the model calls a tool -> {"name", "namespace"?, "custom"?} of the client's */
    json_t *shown;              /* borrowed from body, in a list of its own: the tools that are in force */
    bool summary;               /* the reasoning is wanted as a summary */
} lily_responses_request;

/* Takes over `body`, also on failure. The request must be freed in either case. */
int lily_responses_request_read(lily_responses_request *q, json_t *body, const lily_openai_defaults *d,
                                lily_refusal *r);
void lily_responses_request_free(lily_responses_request *q);

/* A refusal that names fields of the chat request then names those of this one. */
void lily_responses_rename(lily_refusal *r);

/* ---- its parts ---- */

/* responses_items.c: instructions and input as q->messages. */
int lily_responses_items(lily_responses_request *q, lily_refusal *r);
/* responses_tools.c: tools as q->tools, q->names and q->shown; *choice is tool_choice of the chat request, owned, or
 * NULL. */
int lily_responses_tools(lily_responses_request *q, json_t **choice, lily_refusal *r);
/* The name that the model knows a tool by; namespace may be NULL.  False: it is too long. */
typedef char lily_responses_name[256];
bool lily_responses_tool_name(lily_responses_name out, const char *namespace, const char *name);

/* Begins the field encrypted_content of a reasoning item, before its text: a client that sends nothing else of it
 * back still sends the thought. */
#define LILY_RESPONSES_SEAL "lily-plain:"

#endif
