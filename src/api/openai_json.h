/* openai_json.h - the JSON of chat completions: chat.completion and chat.completion.chunk.
 *
 * Beside OpenAI's fields: reasoning_content (and the same as reasoning), timings, and the id of each token of
 * logprobs. */
#ifndef LILY_API_OPENAI_JSON_H
#define LILY_API_OPENAI_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "api/answer.h"
#include "base/buf.h"

/* What all chunks of an answer have in common. */
typedef struct lily_openai_head {
    char id[40];                        /* "chatcmpl-…" */
    int64_t created;                    /* Unix seconds */
    const char *model;
    const lily_tokenizer *tokenizer;    /* for the text of alternatives */
} lily_openai_head;

void lily_openai_head_init(lily_openai_head *h, const char *model, const lily_tokenizer *tokenizer);

/* ---- parts that other protocols have too ---- */

/* The tokens that came with an event, as entries of logprobs.content; first: no comma before them. */
void lily_openai_put_logprobs(lily_buf *out, const lily_openai_head *h, const lily_answer_event *ev, bool first);
/* "usage":{…} and "timings":{…} */
void lily_openai_put_usage(lily_buf *out, const lily_usage *u);
void lily_openai_put_timings(lily_buf *out, const lily_usage *u);

/* ---- streamed: each call appends whole events to `out` ---- */

typedef struct lily_openai_stream {
    const lily_openai_head *head;
    bool include_usage, return_progress;
    size_t n_answers;                   /* 0 is 1 */
    size_t index;                       /* of the answer that runs */
    lily_usage sum;                     /* of those that are complete */
    bool opened;                        /* its first chunk, with the role, is written */
    uint64_t started;                   /* when its turn came */
} lily_openai_stream;

/* The first chunk, if it is not there yet. */
void lily_openai_stream_open(lily_openai_stream *s, lily_buf *out);
/* What the event says, after the first chunk; the last FINISH (but not with an error) ends with [DONE]. */
void lily_openai_stream_event(lily_openai_stream *s, const lily_answer_event *ev, lily_buf *out);

/* ---- not streamed ---- */

typedef struct lily_openai_answer {
    const lily_openai_head *head;
    bool with_logprobs;
    size_t n_choices;                   /* complete ones */
    lily_usage sum;                     /* of these */
    lily_buf choices;                   /* JSON objects with commas between */
    lily_buf content, reasoning;        /* of the answer that runs, as is all that follows */
    lily_buf calls;                     /* JSON objects with commas between */
    lily_buf name, arguments;           /* of the call that is being read */
    lily_buf logprobs;                  /* JSON objects with commas between */
} lily_openai_answer;                   /* freed by lily_openai_answer_free */

void lily_openai_answer_event(lily_openai_answer *a, const lily_answer_event *ev);
/* After the last FINISH: appends the whole. LILY_NO_MEMORY when a part was lost. */
int lily_openai_answer_json(const lily_openai_answer *a, lily_buf *out, lily_err *e);
void lily_openai_answer_free(lily_openai_answer *a);

#endif
