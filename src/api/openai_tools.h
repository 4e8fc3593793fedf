/* openai_tools.h - the fields `tools` and `tool_choice` of a chat request. */
#ifndef LILY_API_OPENAI_TOOLS_H
#define LILY_API_OPENAI_TOOLS_H

#include "api/fields.h"
#include "api/openai_request.h"

/* Readers of the two fields (api/fields.h). */
int lily_openai_read_tools(void *out, const lily_field *f, const json_t *value, lily_refusal *r);
int lily_openai_read_tool_choice(void *out, const lily_field *f, const json_t *value, lily_refusal *r);
/* Puts them together, when both are read: which tools the model is shown, and which of them it may or must call. */
int lily_openai_choose_tools(lily_openai_request *q, lily_refusal *r);

#endif
