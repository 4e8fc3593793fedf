/* call_grammar.h - what stands between <tool_call> and </tool_call>, as a grammar:
 *
 *   \n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n … </function>\n
 *
 * The two tags around it are added tokens, which no grammar of bytes can say (mask.h); who runs the grammar
 * puts them around.
 *
 * NAME is one of the tools.  Parameters come in the order in which they are declared, the required ones always;
 * others only where `additionalProperties` allows them.  A VALUE is what the reader of replies turns into JSON
 * that fits the parameter's schema (text/reply_value.h): a string stands as it is, up to the closing tag on a
 * line of its own; anything else is JSON.
 *
 * A function that is `strict` is held to its schema exactly, or refused.  For any other a keyword that is not
 * supported is overlooked: such a value is only held to its type. */
#ifndef LILY_SAMPLE_CALL_GRAMMAR_H
#define LILY_SAMPLE_CALL_GRAMMAR_H

#include <jansson.h>

#include "sample/grammar.h"

/* tools: OpenAI's list, each with `function` or flat. only: the tool that may be called, NULL: any of them.
 * LILY_ARGUMENT when there is no such tool, or a name that cannot be written in this form; LILY_UNSUPPORTED and
 * LILY_ARGUMENT as lily_json_schema for strict functions, "tools[0].function.parameters: #/properties/a: …". */
int lily_call_grammar(lily_grammar **out, const json_t *tools, const char *only, lily_err *e);
/* Whether a tool is strict. */
bool lily_calls_strict(const json_t *tools);

#endif
