/* serve.c - what a turn reports, and its steps when the model answers. */
#include "run/serve.h"

#include "base/clock.h"

/* ---- what a turn reports ---- */

void lily_turn_begin(lily_turn *t, lily_request *r, const lily_loaded *m)
{
    uint32_t room = m->context - r->ask.n_tokens, asked = r->ask.max_tokens;
    *t = (lily_turn){.r = r, .m = m, .limit = asked && asked < room ? asked : room};
}

int lily_turn_started(lily_turn *t, uint32_t n_reused, lily_err *e)
{
    t->started = lily_now_ns();
    t->n_reused = t->n_done = n_reused;
    lily_event ev = {
        .kind = LILY_EVENT_START, .n_prompt = t->r->ask.n_tokens, .n_reused = n_reused, .n_done = n_reused};
    return lily_request_push(t->r, &ev, e);
}

int lily_turn_progress(lily_turn *t, uint32_t n_done, lily_err *e)
{
    t->n_done = n_done;
    lily_event ev = {.kind = LILY_EVENT_PROGRESS,
                     .n_prompt = t->r->ask.n_tokens,
                     .n_reused = t->n_reused,
                     .n_done = n_done};
    return lily_request_push(t->r, &ev, e);
}

int lily_turn_token(lily_turn *t, lily_event *ev, lily_err *e)
{
    t->last_token = lily_now_ns();
    if (!t->first_token) t->first_token = t->last_token;
    ev->kind = LILY_EVENT_TOKEN;
    ev->n_prompt = ev->n_done = t->r->ask.n_tokens;
    ev->n_reused = t->n_reused;
    TRY(lily_request_push(t->r, ev, e));
    t->n_generated++;
    return LILY_OK;
}

int lily_turn_over(lily_turn *t, enum lily_end end)
{
    t->end = end;
    t->phase = LILY_PHASE_OVER;
    return LILY_OK;
}

bool lily_turn_is_due(const lily_turn *t, uint64_t now)
{
    if (t->due <= now || atomic_load(&t->r->cancel)) return true;
    return t->script && !t->paused && lily_request_caught_up(t->r);
}

static enum lily_end how(const lily_turn *t, int rc)
{
    if (rc == LILY_OK) return t->end;
    if (rc != LILY_CANCELLED) return LILY_END_ERROR;
    return atomic_load(&t->r->stopped) ? LILY_END_STOP : LILY_END_CANCELLED;
}

void lily_turn_close(lily_turn *t, int rc)
{
    t->end = how(t, rc);
    t->phase = LILY_PHASE_OVER;
    lily_guide_end(&t->guide);
    if (t->session) lily_session_forget_flight(t->session);
    if (t->session) lily_pool_give(t->pool, t->session, !t->r->ask.no_reuse);
    t->session = NULL;
    if (t->script) lily_script_close_turn(t);
}

void lily_turn_end(lily_turn *t)
{
    uint64_t now = lily_now_ns(), read = t->first_token ? t->first_token : now;
    lily_event ev = {.n_prompt = t->r->ask.n_tokens,
                     .n_reused = t->n_reused,
                     .n_done = t->n_done,
                     .end = t->end,
                     .err = t->end == LILY_END_ERROR ? &t->err : NULL,
                     .err_code = t->end == LILY_END_ERROR ? t->err_code : NULL,
                     .n_generated = t->n_generated,
                     .prompt_seconds = t->started ? (double)(read - t->started) * 1e-9 : 0,
                     .reply_seconds = (double)(t->last_token - t->first_token) * 1e-9};
    lily_request_finish(t->r, &ev);
}

bool lily_is_eos(const lily_loaded *m, int32_t id)
{
    for (uint32_t i = 0; i < m->config->n_eos; i++)
        if (m->config->eos[i] == id) return true;
    return false;
}

/* ---- by the model ---- */

lily_pick lily_pick_of(const lily_sampling *s, const lily_loaded *m)
{
    int32_t with_text = lily_tokenizer_n_vocab(m->tokenizer), rows = (int32_t)m->config->vocab;
    return (lily_pick){.temperature = s->temperature,
                       .top_p = s->top_p,
                       .min_p = s->min_p,
                       .presence = s->presence,
                       .frequency = s->frequency,
                       .repetition = s->repetition,
                       .top_k = s->top_k,
                       .n_logprobs = s->logprobs ? s->n_logprobs : 0,
                       .seed = s->seed,
                       .bias = s->bias,
                       .n_bias = s->n_bias,
                       .n_vocab = with_text < rows ? with_text : rows};
}

/* A guide is made before anything is read, so that a format that cannot be met costs nothing. */
static int begin_in(lily_turn *t, lily_session *s, lily_err *e)
{
    const lily_ask *a = &t->r->ask;
    t->pick = lily_pick_of(&a->sampling, t->m);
    t->token = a->tokens[a->n_tokens - 1];
    TRY(lily_guide_begin(&t->guide, t->m, a, t->reply != NULL, e));
    TRY(lily_session_begin(s, &t->reading, e));
    TRY(lily_turn_started(t, t->reading.n_read, e));
    t->phase = t->reading.n_read < t->reading.n ? LILY_PHASE_READ : LILY_PHASE_REPLY;
    return LILY_OK;
}

int lily_model_begin(lily_turn *t, lily_err *e)
{
    const lily_ask *a = &t->r->ask;
    t->reading = (lily_reading){.tokens = a->tokens,
                                .n = a->n_tokens - 1,
                                .marks = a->marks,
                                .n_marks = a->n_marks,
                                .fork = a->fork,
                                .fresh = a->no_reuse};
    TRY(lily_pool_take(t->pool, &t->reading, &t->session, e));
    return t->session ? begin_in(t, t->session, e) : LILY_OK;
}

int lily_model_read(lily_turn *t, uint32_t most, lily_err *e)
{
    TRY(lily_session_read(t->session, &t->reading, most, &t->r->cancel, e));
    TRY(lily_turn_progress(t, t->reading.n_read, e));
    if (t->reading.n_read == t->reading.n) t->phase = LILY_PHASE_REPLY;
    return LILY_OK;
}

static int send_token(lily_turn *t, const lily_done *done, lily_err *e)
{
    const lily_sampling *sampling = &t->r->ask.sampling;
    lily_event ev = {.id = done->token, .added = lily_token_is_added(t->m->tokenizer, done->token)};
    ev.bytes = lily_token_bytes(t->m->tokenizer, done->token, &ev.n_bytes);
    if (!ev.bytes) ev.n_bytes = 0;
    if (sampling->logprobs) {
        ev.logprob = done->logprob;
        ev.n_top = (uint32_t)sampling->n_logprobs;
        ev.top = done->top;
    }
    return lily_turn_token(t, &ev, e);
}

/* The token that was chosen: the end of the turn, or one of the reply. */
static int accept(lily_turn *t, const lily_done *done, bool *ends, lily_err *e)
{
    bool fits = true;
    size_t n = 0;
    if (done->token < 0) return lily_fail(e, LILY_DEVICE, "the device chose no token");
    *ends = lily_is_eos(t->m, done->token) && (!t->r->ask.ignore_eos || lily_guide_binds(&t->guide));
    if (*ends) return LILY_OK;
    const char *bytes = lily_token_bytes(t->m->tokenizer, done->token, &n);
    TRY(lily_guide_take(&t->guide, done->token, bytes ? bytes : "", bytes ? n : 0, &fits, e));
    if (!fits)
        return lily_fail(e, LILY_INTERNAL, "token %d was chosen, which the format does not allow",
                         (int)done->token);
    return send_token(t, done, e);
}

/* ---- one run, with the tokens that may come of it ---- */

typedef struct masking {
    lily_turn *t;
    const uint32_t *allow;
} masking;

static int make_mask(void *user, lily_err *e)
{
    masking *k = user;
    return lily_guide_allowed(&k->t->guide, &k->allow, e);
}

static int join_mask(void *user, const uint32_t **allow, lily_err *e)
{
    masking *k = user;
    TRY(lily_ahead_join(k->t->m->ahead, e));
    *allow = k->allow;
    return LILY_OK;
}

/* Whether the run behind this one can be submitted before the host has seen what this one chooses: that it will be wanted
 * is likely, what it may choose needs no mask, and no other session runs between. */
static bool hands_over(const lily_turn *t)
{
    return t->alone && lily_hands_over(t->m) && !lily_guide_holds(&t->guide) && t->n_generated + 1 < t->limit;
}

static int feed_free(lily_turn *t, const lily_feed *f, lily_done *done, lily_err *e)
{
    lily_pick next = t->pick;
    next.draw++;
    return lily_session_step(t->session, f, hands_over(t) ? &next : NULL, done, e);
}

/* The run that has chosen already did so before the guide knew what it would forbid. */
static int choose_again(lily_turn *t, lily_err *e)
{
    if (!lily_guide_holds(&t->guide)) return LILY_OK;
    t->pick.draw = t->n_generated;
    TRY(lily_guide_allowed(&t->guide, &t->pick.allow, e));
    return lily_session_choose_again(t->session, &t->pick, e);
}

int lily_model_land(lily_turn *t, lily_err *e)
{
    if (!t->session || !lily_session_flies(t->session)) return LILY_OK;
    TRY(choose_again(t, e));
    lily_session_end_flight(t->session);
    return LILY_OK;
}

static int feed_guided(lily_turn *t, const lily_feed *f, lily_done *done, lily_err *e)
{
    masking k = {.t = t};
    lily_feed guided = *f;
    if (lily_session_flies(t->session)) {
        TRY(choose_again(t, e));
        return feed_free(t, f, done, e);
    }
    if (!t->m->ahead || !lily_guide_holds(&t->guide)) {
        TRY(lily_guide_allowed(&t->guide, &t->pick.allow, e));
        return feed_free(t, f, done, e);
    }
    guided.allow = join_mask;
    guided.user = &k;
    lily_ahead_begin(t->m->ahead, make_mask, &k);
    int rc = lily_session_feed(t->session, &guided, done, e);
    (void)lily_ahead_join(t->m->ahead, NULL); /* a run that failed early did not ask */
    return rc;
}

/* What is fed next. */
static lily_feed feed_of(lily_turn *t, const lily_pick *pick)
{
    return (lily_feed){
        .tokens = &t->token, .n = 1, .pick = pick, .count = t->n_generated > 0, .cancel = &t->r->cancel};
}

static int prompt_is_read(lily_turn *t, lily_err *e)
{
    return t->n_generated == 0 ? lily_turn_progress(t, t->r->ask.n_tokens, e) : LILY_OK;
}

int lily_model_feed(lily_turn *t, lily_err *e)
{
    lily_done unasked;
    lily_feed f = feed_of(t, NULL);
    TRY(lily_session_feed(t->session, &f, &unasked, e));
    return prompt_is_read(t, e);
}

/* Feeds the last token of the prompt, then the one that was chosen, and chooses the next. */
int lily_model_reply(lily_turn *t, lily_err *e)
{
    bool ends = false;
    lily_done done;
    TRY(lily_guide_finished(&t->guide, &ends, e));
    if (ends) return lily_turn_over(t, LILY_END_STOP);
    t->pick.draw = t->n_generated;
    lily_feed f = feed_of(t, &t->pick);
    TRY(feed_guided(t, &f, &done, e));
    TRY(prompt_is_read(t, e));
    t->token = done.token;
    TRY(accept(t, &done, &ends, e));
    if (ends) return lily_turn_over(t, LILY_END_STOP);
    return t->n_generated < t->limit ? LILY_OK : lily_turn_over(t, LILY_END_LENGTH);
}
