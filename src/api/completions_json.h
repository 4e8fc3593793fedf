/* completions_json.h - the JSON of /v1/completions: text_completion, streamed or not. */
#ifndef LILY_API_COMPLETIONS_JSON_H
#define LILY_API_COMPLETIONS_JSON_H

#include <stdbool.h>

#include "api/answer.h"
#include "api/completions_request.h"
#include "api/openai_json.h"
#include "base/buf.h"

typedef struct lily_completion_logprobs {
    lily_buf tokens, values, tops, offsets;     /* entries with commas between */
} lily_completion_logprobs;

typedef struct lily_completions_writer {
    lily_openai_head head;              /* id: "cmpl-…" */
    const lily_completions_request *q;
    size_t index;                       /* of the answer that runs: n for each prompt */
    bool begun;                         /* it has said something: its echo at least */
    size_t n_bytes, n_chars;            /* of its text so far; chars are Unicode's */
    lily_completion_logprobs logprobs;  /* streamed: of one chunk */
    lily_usage sum;                     /* of complete answers */
    lily_buf text;                      /* not streamed: of the answer that runs */
    lily_buf choices;                   /* not streamed: JSON objects with commas between */
} lily_completions_writer;              /* freed by lily_completions_writer_free */

void lily_completions_writer_init(lily_completions_writer *w, const lily_completions_request *q, const char *model,
                                  const lily_tokenizer *tokenizer);
void lily_completions_writer_free(lily_completions_writer *w);

/* Streamed: appends whole events; the last FINISH ends with [DONE]. */
void lily_completions_event(lily_completions_writer *w, const lily_answer_event *ev, lily_buf *out);

/* Not streamed: every event, then the whole. LILY_NO_MEMORY when a part was lost. */
void lily_completions_gather(lily_completions_writer *w, const lily_answer_event *ev);
int lily_completions_whole(const lily_completions_writer *w, lily_buf *out, lily_err *e);

#endif
