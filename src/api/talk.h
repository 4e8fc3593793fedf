/* talk.h - a request and its answers, given in any protocol.
 *
 *     body -> protocol->read -> lily_chat -> engine -> answer events -> protocol->event -> bytes of a stream
 *                                                                    -> protocol->gather, ->whole -> one JSON text
 *
 * What all protocols share is here: a stream's status and headers are held back until there is something to say, but
 * no longer than a quarter of a second: what fails at once is then an HTTP error, and a client that waits in the queue
 * or for a long prompt still sees at once that it was heard.  From then on the HTTP layer's clock keeps the connection
 * alive.  Writes wait for a client that reads slowly; a client that leaves cancels its answer. */
#ifndef LILY_API_TALK_H
#define LILY_API_TALK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "api/api.h"
#include "api/chat.h"
#include "api/errors.h"

/* What a protocol's reader finds out. */
typedef struct lily_talk_request {
    const lily_api *api;        /* given, as is the next */
    lily_engine *engine;
    lily_chat *chat;            /* inside the protocol's state; endpoint, script_reply, sink and user are set by talk */
    bool stream;
    size_t n_answers;           /* one after the other, each by a run of the engine; 0 is 1 */
} lily_talk_request;

/* `self` is the state of one answer: `size` bytes, zero at first, given back to `free` in any case. */
typedef struct lily_protocol {
    size_t size;
    /* Takes over the body, also on failure. */
    int (*read)(void *self, lily_talk_request *q, json_t *body, lily_refusal *r);
    /* The prompt is in the queue: nothing has been sent yet. May be NULL. */
    void (*begin)(void *self, const lily_talk_request *q);
    /* Puts into the chat what answer i (from 1) asks for. May be NULL when there is only one. */
    void (*next)(void *self, size_t i);
    /* Gives a refusal of lily_chat_start the names of this protocol. May be NULL. */
    void (*refused)(void *self, lily_refusal *r);
    void (*free)(void *self);

    /* Streamed: each appends whole events to `out`.  `open` is called whenever there is nothing else to say, also
     * before its turn has come: it begins the stream if that can be done and has not been done yet.  `event` is called
     * with the FINISH of each answer too, but not when that is an error: then `fail` is. */
    void (*open)(void *self, lily_buf *out);
    void (*event)(void *self, const lily_answer_event *ev, lily_buf *out);
    void (*fail)(void *self, const lily_refusal *r, lily_buf *out);
    const char *keep_alive;     /* an event that says nothing, for long silences; NULL: a comment */

    /* Not streamed: all events of all answers, then the whole; `ev` is the last FINISH. */
    void (*gather)(void *self, const lily_answer_event *ev);
    int (*whole)(void *self, const lily_answer_event *ev, lily_buf *out, lily_err *e);
} lily_protocol;

/* A job (api.h) that serves one request. */
void lily_talk(lily_job *job, const lily_protocol *p);

#endif
