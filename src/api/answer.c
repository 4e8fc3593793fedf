#include "api/answer.h"

#include <string.h>

#include "base/mem.h"
#include "text/decode.h"
#include "text/reply.h"
#include "text/stop.h"

struct lily_answer {
    lily_answer_options o;
    lily_reply *reply;              /* NULL: plain */
    lily_decoder decoder;           /* plain */
    lily_buf piece;
    lily_stop stop;
    lily_buf text;                  /* what the stop strings let through, one event at a time */
    size_t text_in, text_out;       /* bytes of the answer's text read, and sent */
    bool complete;                  /* by a stop string or a single call, before the engine's end */
    lily_usage usage;
    lily_answer_token **pending;    /* read and not yet sent */
    size_t n_pending, cap_pending;
};

/* ---- tokens on their way to an event ---- */

static int keep_token(lily_answer *a, const lily_event *ev, lily_err *e)
{
    if (a->n_pending == a->cap_pending) {
        size_t cap = a->cap_pending ? 2 * a->cap_pending : 16;
        void *grown = lily_realloc(a->pending, cap, sizeof *a->pending);
        if (!grown) return lily_no_memory(e, cap * sizeof *a->pending, "log probabilities");
        a->pending = grown;
        a->cap_pending = cap;
    }
    /* One block: the token, its alternatives, its bytes. */
    size_t tops = ev->n_top * sizeof(lily_top);
    char *block = lily_calloc(1, sizeof(lily_answer_token) + tops + ev->n_bytes + 1);
    if (!block) return lily_no_memory(e, sizeof(lily_answer_token) + tops + ev->n_bytes, "log probabilities");
    char *top = block + sizeof(lily_answer_token), *bytes = top + tops;
    if (tops) memcpy(top, ev->top, tops);
    if (ev->n_bytes) memcpy(bytes, ev->bytes, ev->n_bytes);
    lily_answer_token *t = (lily_answer_token *)(void *)block;
    *t = (lily_answer_token){.id = ev->id,
                             .logprob = ev->logprob,
                             .bytes = bytes,
                             .n_bytes = ev->n_bytes,
                             .top = (const lily_top *)(const void *)top,
                             .n_top = ev->n_top,
                             .at = a->text_in};
    a->pending[a->n_pending++] = t;
    return LILY_OK;
}

static void drop_pending(lily_answer *a, size_t from)
{
    for (size_t i = from; i < a->n_pending; i++) lily_free(a->pending[i]);
    a->n_pending = from;
}

/* A stop string was found: what began behind the text that was let through belongs to it. */
static void drop_stopped_tokens(lily_answer *a)
{
    size_t keep = a->n_pending;
    while (keep > 0 && a->pending[keep - 1]->at >= a->text_out) keep--;
    drop_pending(a, keep);
}

static int emit(lily_answer *a, lily_answer_event *ev, lily_err *e)
{
    bool carries = ev->text || ev->kind == LILY_ANSWER_FINISH;
    if (carries) {
        ev->tokens = (const lily_answer_token *const *)a->pending;
        ev->n_tokens = a->n_pending;
    }
    ev->usage = &a->usage;
    TRY(a->o.sink(a->o.user, ev, e));
    if (carries) drop_pending(a, 0);
    return LILY_OK;
}

/* ---- from the reply reader through the stop strings ---- */

static int emit_text(lily_answer *a, lily_err *e)
{
    TRY(lily_buf_ok(&a->text, "the answer", e));
    if (a->text.len == 0) return LILY_OK;
    a->text_out += a->text.len;
    return emit(a, &(lily_answer_event){.kind = LILY_ANSWER_TEXT, .text = a->text.data, .n = a->text.len}, e);
}

static int take_text(lily_answer *a, const char *text, size_t n, lily_err *e)
{
    a->text_in += n;
    lily_buf_clear(&a->text);
    a->complete = lily_stop_feed(&a->stop, text, n, &a->text);
    TRY(emit_text(a, e));
    if (a->complete) drop_stopped_tokens(a);
    return LILY_OK;
}

static int flush_text(lily_answer *a, lily_err *e)
{
    lily_buf_clear(&a->text);
    lily_stop_flush(&a->stop, &a->text);
    return emit_text(a, e);
}

static int on_reply(void *user, const lily_reply_event *ev, lily_err *e)
{
    static const lily_answer_kind kinds[] = {
        [LILY_REPLY_REASONING] = LILY_ANSWER_REASONING, [LILY_REPLY_TEXT] = LILY_ANSWER_TEXT,
        [LILY_REPLY_CALL] = LILY_ANSWER_CALL,           [LILY_REPLY_ARGUMENTS] = LILY_ANSWER_ARGUMENTS,
        [LILY_REPLY_CALL_END] = LILY_ANSWER_CALL_END,   [LILY_REPLY_CALL_CUT] = LILY_ANSWER_CALL_CUT};
    lily_answer *a = user;
    if (a->complete) return LILY_OK;
    if (ev->kind == LILY_REPLY_TEXT) return take_text(a, ev->text, ev->n, e);
    if (ev->kind == LILY_REPLY_CALL) TRY(flush_text(a, e));    /* a stop string cannot reach over a call */
    lily_answer_event out = {.kind = kinds[ev->kind], .text = ev->text, .n = ev->n, .call = ev->call};
    TRY(emit(a, &out, e));
    if (ev->kind == LILY_REPLY_CALL_END && a->o.single_call) a->complete = true;
    return LILY_OK;
}

/* ---- plain text ---- */

/* What the decoder has put into a->piece. */
static int take_piece(lily_answer *a, lily_err *e)
{
    TRY(lily_buf_ok(&a->piece, "the answer", e));
    int rc = a->piece.len > 0 ? take_text(a, a->piece.data, a->piece.len, e) : LILY_OK;
    lily_buf_clear(&a->piece);
    return rc;
}

static int feed_plain(lily_answer *a, const lily_event *ev, lily_err *e)
{
    lily_decoder_bytes(&a->decoder, ev->bytes, ev->n_bytes, &a->piece);
    return take_piece(a, e);
}

static int finish_plain(lily_answer *a, lily_err *e)
{
    lily_decoder_flush(&a->decoder, &a->piece);
    return take_piece(a, e);
}

/* ---- from the engine ---- */

static int read_token(lily_answer *a, const lily_event *ev, lily_err *e)
{
    if (!a->reply) return feed_plain(a, ev, e);
    return lily_reply_feed(a->reply, ev->bytes, ev->n_bytes, ev->added, e);
}

static int take_token(lily_answer *a, const lily_event *ev, lily_err *e)
{
    if (a->complete) return LILY_OK;
    bool thinks = a->reply && lily_reply_is_reasoning(a->reply);
    bool silent = ev->added && a->o.tokenizer && ev->id >= 0 && lily_token_is_special(a->o.tokenizer, ev->id);
    a->usage.n_reply++;
    if (a->o.logprobs) TRY(keep_token(a, ev, e));
    if (!silent) TRY(read_token(a, ev, e));
    /* The token that ends the thinking is no thought. */
    if (thinks && lily_reply_is_reasoning(a->reply)) a->usage.n_reasoning++;
    return LILY_OK;
}

static lily_finish finish_of(const lily_answer *a, const lily_event *ev)
{
    if (!a->complete && ev->end == LILY_END_LENGTH) return LILY_FINISH_LENGTH;
    if (!a->complete && ev->end == LILY_END_CANCELLED) return LILY_FINISH_CANCELLED;
    return a->reply && lily_reply_calls(a->reply) > 0 ? LILY_FINISH_CALLS : LILY_FINISH_STOP;
}

static int take_end(lily_answer *a, const lily_event *ev, lily_err *e)
{
    a->usage.prompt_seconds = ev->prompt_seconds;
    a->usage.reply_seconds = ev->reply_seconds;
    lily_answer_event out = {.kind = LILY_ANSWER_FINISH, .stop = -1};
    if (ev->end == LILY_END_ERROR && !a->complete) {
        out.finish = LILY_FINISH_ERROR;
        out.err = ev->err;
        out.err_code = ev->err_code;
        return emit(a, &out, e);
    }
    if (!a->complete && a->reply) TRY(lily_reply_finish(a->reply, ev->end != LILY_END_STOP, e));
    if (!a->complete && !a->reply) TRY(finish_plain(a, e));
    if (!a->complete) TRY(flush_text(a, e));
    out.finish = finish_of(a, ev);
    out.stop = a->stop.found;
    return emit(a, &out, e);
}

int lily_answer_feed(lily_answer *a, const lily_event *ev, lily_err *e)
{
    switch (ev->kind) {
    case LILY_EVENT_START:
        a->usage.n_prompt = ev->n_prompt;
        a->usage.n_reused = a->usage.n_done = ev->n_reused;
        return emit(a, &(lily_answer_event){.kind = LILY_ANSWER_START}, e);
    case LILY_EVENT_PROGRESS:
        a->usage.n_done = ev->n_done;
        return emit(a, &(lily_answer_event){.kind = LILY_ANSWER_PROGRESS}, e);
    case LILY_EVENT_TOKEN: return take_token(a, ev, e);
    case LILY_EVENT_END: return take_end(a, ev, e);
    }
    return lily_fail(e, LILY_INTERNAL, "engine event %d is unknown", (int)ev->kind);
}

void lily_usage_add(lily_usage *sum, const lily_usage *more, bool again)
{
    if (!again) {
        sum->n_prompt += more->n_prompt;
        sum->n_reused += more->n_reused;
        sum->n_done += more->n_done;
        sum->prompt_seconds += more->prompt_seconds;
    }
    sum->n_reply += more->n_reply;
    sum->n_reasoning += more->n_reasoning;
    sum->reply_seconds += more->reply_seconds;
}

bool lily_answer_complete(const lily_answer *a) { return a->complete; }

int lily_answer_new(lily_answer **out, const lily_answer_options *o, lily_err *e)
{
    lily_answer *a = lily_calloc(1, sizeof *a);
    if (!a) return lily_no_memory(e, sizeof *a, "an answer");
    a->o = *o;
    lily_reply_options reply = {.thinking = o->thinking,
                                .begun = o->begun,
                                .n_begun = o->n_begun,
                                .tools = o->tools,
                                .sink = on_reply,
                                .user = a};
    int rc = lily_stop_init(&a->stop, o->stop, o->stop_len, o->n_stop, e);
    if (rc == LILY_OK && !o->plain) rc = lily_reply_new(&a->reply, &reply, e);
    if (rc == LILY_OK) *out = a;
    else lily_answer_free(a);
    return rc;
}

void lily_answer_free(lily_answer *a)
{
    if (!a) return;
    drop_pending(a, 0);
    lily_free(a->pending);
    lily_buf_free(&a->text);
    lily_buf_free(&a->piece);
    lily_reply_free(a->reply);
    lily_free(a);
}
