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

static void wait_for_reader(lily_turn *t)
{
    t->paused = false;
    t->due = t->behind ? 0 : lily_now_ns() + KEEP_STEP_MS * 1000000ull;
}

/* ---- BEGIN and READ ---- */

static uint32_t read_pause(const lily_turn *t)
{
    uint32_t ms = t->reply->prefill_ms;
    return (uint32_t)((uint64_t)ms * (t->i + 1) / READ_STEPS - (uint64_t)ms * t->i / READ_STEPS);
}

/* The model reads the prompt, and perhaps answers too. */
static int begin_model(lily_turn *t, lily_err *e)
{
    TRY(lily_model_begin(t, e));
    if (t->session && t->reply) pause_ms(t, t->reply->prefill_ms);
    return LILY_OK;
}

static int begin(lily_turn *t, lily_err *e)
{
    const lily_ask *ask = &t->r->ask;
    if (!t->asked) {
        TRY(lily_script_take(t->script, ask, &t->reply, &t->ticket, &t->err_code, e));
        t->asked = true;
        if (t->reply) TRY(lily_play_begin(&t->play, t->m, ask, t->reply, e));
    }
    if (t->pool) return begin_model(t, e);
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
    t->phase = LILY_PHASE_REPLY;
    wait_for_reader(t);
    return LILY_OK;
}

/* ---- REPLY ---- */

static int send_step(lily_turn *t, const lily_play_step *step, lily_err *e)
{
    lily_event ev = {.id = step->token.id,
                     .added = step->token.added,
                     .bytes = step->token.bytes,
                     .n_bytes = step->token.n,
                     .logprob = step->logprob,
                     .n_top = step->n_top,
                     .top = step->top};
    return lily_turn_token(t, &ev, e);
}

/* The next token, or the end; the model reads the one before. */
static int speak(lily_turn *t, lily_err *e)
{
    lily_play_step step;
    if (t->session) TRY(lily_model_feed(t, e));
    TRY(lily_play_next(&t->play, &t->guide, t->n_generated, &step, &t->err_code, e));
    if (step.kind != LILY_PLAY_TOKEN)
        return lily_turn_over(t, step.kind == LILY_PLAY_STOP ? LILY_END_STOP : LILY_END_LENGTH);
    if (step.scripted) TRY(lily_script_note_token(t->script, t->ticket, step.token.id, e));
    t->token = step.token.id;
    TRY(send_step(t, &step, e));
    return t->n_generated < t->limit ? LILY_OK : lily_turn_over(t, LILY_END_LENGTH);
}

/* Before each token: first until the reader has caught up, then the reply's own pause. */
static int reply(lily_turn *t, lily_err *e)
{
    if (t->i < READ_STEPS) {    /* the model has just read the prompt */
        t->i = READ_STEPS;
        wait_for_reader(t);
        return LILY_OK;
    }
    if (!t->paused) {
        t->behind = t->behind || !lily_request_caught_up(t->r);
        pause_ms(t, t->reply->delay_ms);
        if (t->reply->delay_ms) return LILY_OK;
    }
    TRY(speak(t, e));
    wait_for_reader(t);
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
    lily_play_end(&t->play);
    if (t->reply) lily_script_note_end(t->script, t->ticket, ended(t->end, atomic_load(&t->r->stopped)));
}
