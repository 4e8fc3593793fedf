/* responses_json.h - the JSON of /v1/responses: the response object, and the events of its stream.
 *
 * An answer is a list of items in the order in which the model said them:
 *
 *     reasoning           content of reasoning_text; with reasoning.summary its text is the summary instead
 *     message             one output_text
 *     function_call       or custom_tool_call, under the name that the client gave the tool
 *
 * One item is open at a time.  Streamed or not, the same steps are taken: what is not streamed takes only the last. */
#ifndef LILY_API_RESPONSES_JSON_H
#define LILY_API_RESPONSES_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "api/answer.h"
#include "api/errors.h"
#include "api/openai_json.h"
#include "api/responses_request.h"
#include "base/buf.h"

enum lily_response_item { LILY_ITEM_NONE, LILY_ITEM_REASONING, LILY_ITEM_MESSAGE, LILY_ITEM_CALL };

typedef struct lily_responses_writer {
    lily_openai_head head;              /* id: "resp_…" */
    const lily_responses_request *q;
    uint32_t sequence;                  /* of the next event */
    bool opened;
    enum lily_response_item item;       /* that is open */
    size_t index;                       /* of the open item, or of the next one */
    char item_id[32], call_id[32];
    const json_t *tool;                 /* the open call: an entry of q->names, or NULL */
    bool answered;                      /* there is a message or a call */
    lily_buf name, text;                /* of the open item; the arguments of a call */
    lily_buf logprobs;                  /* of the open message: JSON objects with commas between */
    lily_buf items;                     /* complete ones: JSON objects with commas between */
    lily_buf spare;                     /* events that nobody wants */
} lily_responses_writer;                /* freed by lily_responses_writer_free */

void lily_responses_writer_init(lily_responses_writer *w, const lily_responses_request *q, const char *model,
                                const lily_tokenizer *tokenizer);
void lily_responses_writer_free(lily_responses_writer *w);

/* Streamed: whole events are appended to `out`. */
void lily_responses_open(lily_responses_writer *w, lily_buf *out);
void lily_responses_event(lily_responses_writer *w, const lily_answer_event *ev, lily_buf *out);
void lily_responses_fail(lily_responses_writer *w, const lily_refusal *r, lily_buf *out);

/* Not streamed: every event, then the response; ev is the FINISH. LILY_NO_MEMORY when a part was lost. */
void lily_responses_gather(lily_responses_writer *w, const lily_answer_event *ev);
int lily_responses_whole(lily_responses_writer *w, const lily_answer_event *ev, lily_buf *out, lily_err *e);

#endif
