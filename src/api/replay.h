/* replay.h - history that comes back as JSON, read as the tokens that were sampled.
 *
 * A client sends an assistant's turn back as text, reasoning and parsed calls.  Rendered and tokenised it differs from
 * what the model said: other cuts between tokens, other spaces in the arguments, white space that a template trims.
 * The conversation's state would then be of no use from that turn on.  So replies are noted while they are sent, and
 * put back into later prompts in place of the rendered ids where all of this holds:
 *
 *   - the tokens before the turn are those that it followed then;
 *   - the message says what the client was given: content and reasoning but for white space around them, calls as JSON
 *     values.  One that was changed is never replaced;
 *   - the template renders the turn as a whole.  Where it leaves out the thought, what follows the thought may be
 *     replayed as far as its text is the same; so may a reply that the model did not end itself (a limit, a stop string).
 *
 * Only tokens that the model chose ever come in, none of which was a special one: text of a client stays text. */
#ifndef LILY_API_REPLAY_H
#define LILY_API_REPLAY_H

#include <jansson.h>

#include "api/answer.h"
#include "api/chat.h"
#include "run/replies.h"

/* Puts noted replies into a prompt that was made of `messages`; moves its marks along. */
int lily_replay_prompt(lily_chat_prompt *p, lily_replies *s, const lily_tokenizer *k, const json_t *messages,
                       lily_err *e);

/* A reply on its way to the client.  Lost memory loses the note, not the reply. */
typedef struct lily_replay_note {
    const lily_tokenizer *tokenizer;
    lily_replies_key before;
    lily_ids turn;
    lily_buf content, reasoning, calls;     /* calls: the list without its end */
    bool ended;                             /* set before FINISH: by the model */
    bool lost;                              /* cannot be replayed */
} lily_replay_note;                         /* freed by lily_replay_note_free */

/* `p` is the prompt that it answers. */
void lily_replay_note_begin(lily_replay_note *n, const lily_chat_prompt *p, const lily_tokenizer *k);
void lily_replay_note_token(lily_replay_note *n, int32_t id);
/* Each event before the client gets it.  With FINISH the reply goes into the store: the next request may come at once. */
void lily_replay_note_event(lily_replay_note *n, const lily_answer_event *ev, lily_replies *s);
void lily_replay_note_free(lily_replay_note *n);

#endif
