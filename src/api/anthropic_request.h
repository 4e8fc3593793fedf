/* anthropic_request.h - the body of POST /v1/messages as that of a chat request.
 *
 *     system, messages of blocks, tools, tool_choice, thinking, stop_sequences, output_config, context_management
 *         -> messages, tools, tool_choice, thinking, stop, response_format, chat_template_kwargs
 *
 * What is left to check, ranges above all, is checked where chat requests are (openai_request.h), so both protocols
 * have one set of rules and the same prompt for the same conversation. */
#ifndef LILY_API_ANTHROPIC_REQUEST_H
#define LILY_API_ANTHROPIC_REQUEST_H

#include <jansson.h>

#include "api/errors.h"

/* *out: the chat request, which shares values with `body`; NULL on failure.  `kwargs`: the server's template variables
 * or NULL: without a field `thinking` they decide, and thinking is off where they say nothing, for a client that does
 * not ask for thinking blocks need not know them. */
int lily_anthropic_chat_body(const json_t *body, const json_t *kwargs, json_t **out, lily_refusal *r);
/* Gives back Anthropic's names of fields in a refusal of the chat request. */
void lily_anthropic_names(lily_refusal *r);

#endif
