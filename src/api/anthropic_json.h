/* anthropic_json.h - the JSON of messages: the answer as one object, and as a stream of events.
 *
 * An answer is a list of content blocks in the order in which they came: thinking, text, tool_use.  Streamed, a block
 * ends when another begins:
 *
 *     message_start  (content_block_start content_block_delta* content_block_stop)*  message_delta  message_stop
 *
 * usage: input_tokens are those read anew, cache_read_input_tokens those reused; both together are the prompt. */
#ifndef LILY_API_ANTHROPIC_JSON_H
#define LILY_API_ANTHROPIC_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "api/answer.h"
#include "base/buf.h"

enum lily_anthropic_block { LILY_BLOCK_NONE, LILY_BLOCK_THINKING, LILY_BLOCK_TEXT, LILY_BLOCK_TOOL };

/* What both forms know of an answer. */
typedef struct lily_anthropic_head {
    char id[40];                        /* "msg_…" */
    const char *model;
    const char *const *stop;            /* the request's, for stop_sequence */
    const size_t *stop_len;
} lily_anthropic_head;

void lily_anthropic_head_init(lily_anthropic_head *h, const char *model);

/* ---- streamed: each call appends whole events to `out` ---- */

typedef struct lily_anthropic_stream {
    const lily_anthropic_head *head;
    bool started;                       /* its turn has come: the usage of the prompt is known */
    bool opened;                        /* message_start is written */
    lily_usage usage;                   /* at the start */
    enum lily_anthropic_block block;    /* the one that is open */
    size_t index;                       /* its place */
    uint64_t signature;                 /* of the thinking so far */
} lily_anthropic_stream;

/* A sign of life. */
extern const char lily_anthropic_ping[];
/* message_start, if it is not there yet and its turn has come. */
void lily_anthropic_stream_open(lily_anthropic_stream *s, lily_buf *out);
/* What the event says; FINISH (but not with an error) ends with message_stop. */
void lily_anthropic_stream_event(lily_anthropic_stream *s, const lily_answer_event *ev, lily_buf *out);

/* ---- not streamed ---- */

typedef struct lily_anthropic_answer {
    const lily_anthropic_head *head;
    lily_buf blocks;                    /* complete ones, JSON with commas between */
    enum lily_anthropic_block block;    /* the one that is being read */
    lily_buf text;                      /* of it; of a call: its arguments */
    lily_buf name;                      /* of the call */
} lily_anthropic_answer;                /* freed by lily_anthropic_answer_free */

void lily_anthropic_answer_event(lily_anthropic_answer *a, const lily_answer_event *ev);
/* Appends the whole answer; ev is the FINISH. LILY_NO_MEMORY when a part was lost. */
int lily_anthropic_answer_json(const lily_anthropic_answer *a, const lily_answer_event *ev, lily_buf *out, lily_err *e);
void lily_anthropic_answer_free(lily_anthropic_answer *a);

#endif
