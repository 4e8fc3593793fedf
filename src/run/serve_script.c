/* serve_script.c - a request that is answered by a script. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "run/serve.h"

/* Pauses in short sleeps, so that a cancel is seen soon on any system. */
static int pause_ms(const lily_turn *t, uint32_t ms, lily_err *e)
{
    uint64_t until = lily_now_ns() + ms * 1000000ull, step = 2000000;
    for (;;) {
        if (atomic_load(&t->r->cancel)) return lily_fail(e, LILY_CANCELLED, "cancelled");
        uint64_t now = lily_now_ns();
        if (now >= until) return LILY_OK;
        struct timespec rest = {0, (long)(until - now < step ? until - now : step)};
        nanosleep(&rest, NULL);
    }
}

/* A script is faster than any reader of its replies; without this it would be over before a stop string was
 * seen. Who was slower than this once is not waited for again. */
enum { KEEP_STEP_MS = 1000 };

/* The prompt is "read" in ten steps. */
static int pretend_to_read(lily_turn *t, uint32_t ms, lily_err *e)
{
    enum { STEPS = 10 };
    uint32_t n = t->r->ask.n_tokens;
    for (uint32_t i = 1; i <= STEPS; i++) {
        TRY(pause_ms(t, ms * i / STEPS - ms * (i - 1) / STEPS, e));
        if (ms || i == STEPS) TRY(lily_turn_progress(t, (uint32_t)((uint64_t)n * i / STEPS), e));
    }
    return LILY_OK;
}

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
static int finish(lily_turn *t, enum lily_end *end, lily_err *e)
{
    if (!lily_guide_may_end(&t->guide)) return refused(t, e, "the end");
    *end = LILY_END_STOP;
    return LILY_OK;
}

/* The reply's tokens until its end, an end-of-turn token in it, or the limit. */
static int speak(lily_turn *t, lily_script *script, const lily_script_reply *reply, uint64_t ticket,
                 enum lily_end *end, lily_err *e)
{
    TRY(lily_guide_begin(&t->guide, t->m, &t->r->ask, true, e));
    TRY(pretend_to_read(t, reply->prefill_ms, e));
    uint64_t n = reply->n_tokens * reply->times_over;
    bool in_step = true;
    *end = LILY_END_LENGTH;
    for (uint64_t i = 0; t->n_generated < t->limit; i++) {
        in_step = in_step && lily_request_keep_step(t->r, KEEP_STEP_MS);
        TRY(pause_ms(t, reply->delay_ms, e));
        if (reply->fail_at == i + 1)
            return lily_fail(e, LILY_DEVICE, "scripted device error at token %u", (unsigned)i + 1);
        if (i == n) return reply->cut ? LILY_OK : finish(t, end, e);
        const lily_script_token *token = &reply->tokens[i % reply->n_tokens];
        if (token->id >= 0 && lily_is_eos(t->m, token->id) && (!t->r->ask.ignore_eos || lily_guide_binds(&t->guide)))
            return finish(t, end, e);
        bool fits;
        TRY(lily_guide_take(&t->guide, token->id, token->bytes, token->n, &fits, e));
        if (!fits) return refused(t, e, "a token");
        TRY(lily_script_note_token(script, ticket, token->id, e));
        TRY(send_token(t, token, e));
    }
    return LILY_OK;
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

void lily_serve_script(lily_request *r, lily_script *script, const lily_loaded *m)
{
    lily_turn t;
    lily_err err = {0};
    const lily_script_reply *reply;
    uint64_t ticket = 0;
    enum lily_end end = LILY_END_ERROR;
    lily_turn_begin(&t, r, m);
    int rc = atomic_load(&r->cancel) ? lily_fail(&err, LILY_CANCELLED, "cancelled")
                                     : lily_script_take(script, &r->ask, &reply, &ticket, &t.err_code, &err);
    bool taken = rc == LILY_OK;
    if (rc == LILY_OK) rc = lily_turn_started(&t, 0, &err);
    if (rc == LILY_OK) rc = speak(&t, script, reply, ticket, &end, &err);
    lily_guide_end(&t.guide);
    end = lily_turn_how(&t, end, rc);
    /* Before the END: who has it finds the record complete. */
    if (taken) lily_script_note_end(script, ticket, ended(end, atomic_load(&r->stopped)));
    lily_turn_end(&t, end, &err);
}
