/* serve_script.c - the steps of a turn that is answered by a script.  It pauses by saying when it is due again, so that
 * others go on. */
#include "base/clock.h"
#include "run/serve.h"

enum {
    READ_STEPS = 10,    /* in which the prompt is "read" */
    /* A script is faster than any reader of its replies; without waiting for it the reply would be over before a stop
     * string was seen. Who was slower than this once is not waited for again. */
    KEEP_STEP_MS = 1000,
};

static void pause_ms(lily_turn *t, uint32_t ms)
{
    t->due = lily_now_ns() + ms * 1000000ull;
    t->paused = true;
}

/* ---- BEGIN and READ ---- */

static uint32_t read_pause(const lily_turn *t)
{
    uint32_t ms = t->reply->prefill_ms;
    return (uint32_t)((uint64_t)ms * (t->i + 1) / READ_STEPS - (uint64_t)ms * t->i / READ_STEPS);
}

static int begin(lily_turn *t, lily_err *e)
{
    TRY(lily_script_take(t->script, &t->r->ask, &t->reply, &t->ticket, &t->err_code, e));
    TRY(lily_turn_started(t, 0, e));
    TRY(lily_guide_begin(&t->guide, t->m, &t->r->ask, true, e));
    t->phase = LILY_PHASE_READ;
    pause_ms(t, read_pause(t));
    return LILY_OK;
}

static int pretend_to_read(lily_turn *t, lily_err *e)
{
    uint32_t n = t->r->ask.n_tokens;
    t->i++;
    if (t->reply->prefill_ms || t->i == READ_STEPS)
        TRY(lily_turn_progress(t, (uint32_t)((uint64_t)n * t->i / READ_STEPS), e));
    if (t->i < READ_STEPS) {
        pause_ms(t, read_pause(t));
        return LILY_OK;
    }
    t->i = 0;
    t->phase = LILY_PHASE_REPLY;
    t->paused = false;
    t->due = lily_now_ns() + KEEP_STEP_MS * 1000000ull;
    return LILY_OK;
}

/* ---- REPLY ---- */

static int send_token(lily_turn *t, const lily_script_token *token, lily_err *e)
{
    const lily_top itself = {token->id, 0};
    const lily_sampling *sampling = &t->r->ask.sampling;
    lily_event ev = {.id = token->id, .added = token->added, .bytes = token->bytes, .n_bytes = token->n};
    if (sampling->logprobs && sampling->n_logprobs > 0) {
        ev.n_top = 1;
        ev.top = &itself;
    }
    return lily_turn_token(t, &ev, e);
}

static int refused(lily_turn *t, lily_err *e, const char *what)
{
    t->err_code = "script_refused";
    return lily_fail(e, LILY_DEVICE, "the format of the reply refuses %s of the script", what);
}

/* The end of the turn, which a format may refuse. */
static int finish(lily_turn *t, lily_err *e)
{
    if (!lily_guide_may_end(&t->guide)) return refused(t, e, "the end");
    return lily_turn_over(t, LILY_END_STOP);
}

/* The reply's tokens until its end, an end-of-turn token in it, or the limit. */
static int speak(lily_turn *t, lily_err *e)
{
    const lily_script_reply *reply = t->reply;
    uint64_t i = t->i++;
    if (reply->fail_at == i + 1)
        return lily_fail(e, LILY_DEVICE, "scripted device error at token %u", (unsigned)i + 1);
    if (i == reply->n_tokens * reply->times_over)
        return reply->cut ? lily_turn_over(t, LILY_END_LENGTH) : finish(t, e);
    const lily_script_token *token = &reply->tokens[i % reply->n_tokens];
    if (token->id >= 0 && lily_is_eos(t->m, token->id) && (!t->r->ask.ignore_eos || lily_guide_binds(&t->guide)))
        return finish(t, e);
    bool fits;
    TRY(lily_guide_take(&t->guide, token->id, token->bytes, token->n, &fits, e));
    if (!fits) return refused(t, e, "a token");
    TRY(lily_script_note_token(t->script, t->ticket, token->id, e));
    TRY(send_token(t, token, e));
    return t->n_generated < t->limit ? LILY_OK : lily_turn_over(t, LILY_END_LENGTH);
}

/* Before each token: first until the reader has caught up, then the reply's own pause. */
static int reply(lily_turn *t, lily_err *e)
{
    if (!t->paused) {
        t->behind = t->behind || !lily_request_caught_up(t->r);
        pause_ms(t, t->reply->delay_ms);
        if (t->reply->delay_ms) return LILY_OK;
    }
    TRY(speak(t, e));
    t->paused = false;
    t->due = t->behind ? 0 : lily_now_ns() + KEEP_STEP_MS * 1000000ull;
    return LILY_OK;
}

int lily_script_step(lily_turn *t, lily_err *e)
{
    switch (t->phase) {
    case LILY_PHASE_BEGIN:
        return begin(t, e);
    case LILY_PHASE_READ:
        return pretend_to_read(t, e);
    default:
        return reply(t, e);
    }
}

static const char *ended(enum lily_end end, bool stopped)
{
    switch (end) {
    case LILY_END_STOP:
        return stopped ? "stop_string" : "stop";
    case LILY_END_LENGTH:
        return "length";
    case LILY_END_CANCELLED:
        return "cancel";
    default:
        return "error";
    }
}

void lily_script_close_turn(lily_turn *t)
{
    if (t->reply) lily_script_note_end(t->script, t->ticket, ended(t->end, atomic_load(&t->r->stopped)));
}
