/* messages.h - what clients send, turned into what chat templates accept.
 *
 * Templates of this family are strict: one system message and only at the start, arguments as objects, a
 * user question somewhere.  Clients are not.  A template renders what comes out of here; it never sees the
 * request itself.  Every refusal names its place: "messages[2].content[0]: image input is not supported, only text (part type 'image_url')". */
#ifndef LILY_TEXT_MESSAGES_H
#define LILY_TEXT_MESSAGES_H

#include <jansson.h>

#include "base/err.h"

/* Makes a new list (owned by the caller) out of an OpenAI-style one, which stays as it is:
 *
 *   role            developer is system, function is tool; others but system, user, assistant, tool are refused
 *   content         null or absent is ""; a list of text parts is joined; image, audio, video, file parts and
 *                   unknown ones are refused by name
 *   system          those at the start become one, joined by an empty line; a later one stays at its place, so
 *                   that the prefix of the prompt does not change, as "<system>\nTEXT\n</system>" in a user turn,
 *                   or among the tool results if it stands in a tool loop (there a user turn would count as a
 *                   new question and remove the thoughts of the loop)
 *   reasoning       another name of reasoning_content; null is absent
 *   tool_calls      null or [] is absent; {"name", "arguments"} without "function" is taken; the older
 *                   function_call too
 *   arguments       a JSON string is parsed, "" and null are {}; a string that is no JSON object (a call that
 *                   was cut once) becomes the one parameter "arguments" with that text, so that one bad turn
 *                   does not end the conversation
 *   tool results    need no tool_call_id
 *   no question     when no user message is left (a trimmed tool loop), an empty one is put behind the system
 *                   message
 *
 * Errors: LILY_ARGUMENT for what is not of the form, and for strings of arguments that have more than
 * LILY_JSON_MAX_PARTS lists and objects in all; LILY_UNSUPPORTED for images and the like. */
int lily_messages_normalize(const json_t *messages, json_t **out, lily_err *e);

#endif
