#include "run/script_play.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "device/host/pick.h"
#include "run/serve.h"

static bool has_logits(const lily_script_reply *r)
{
    return r->source.logits || (r->after_think && r->after_think->logits);
}

int lily_play_begin(lily_play *p, const lily_loaded *m, const lily_ask *ask, const lily_script_reply *reply, lily_err *e)
{
    uint32_t vocab = m->config->vocab;
    *p = (lily_play){.m = m, .ask = ask, .reply = reply, .source = &reply->source};
    if (!has_logits(reply)) return LILY_OK;
    p->logits = lily_calloc(vocab, sizeof *p->logits);
    p->count = lily_calloc(vocab, sizeof *p->count);
    p->room = lily_calloc(1, lily_pick_room(vocab));
    return p->logits && p->count && p->room ? LILY_OK : lily_no_memory(e, lily_pick_room(vocab), "scripted scores");
}

void lily_play_end(lily_play *p)
{
    lily_free(p->logits);
    lily_free(p->count);
    lily_free(p->room);
    *p = (lily_play){0};
}

static int refused(const char **err_code, lily_err *e, const char *what)
{
    *err_code = "script_refused";
    return lily_fail(e, LILY_DEVICE, "the format of the reply refuses %s of the script", what);
}

static lily_script_token token_of(const lily_loaded *m, int32_t id)
{
    lily_script_token t = {.id = id, .added = lily_token_is_added(m->tokenizer, id)};
    t.bytes = lily_token_bytes(m->tokenizer, id, &t.n);
    if (!t.bytes) t.n = 0;
    return t;
}

/* Its logprob is 0, and itself the one alternative. */
static void set_token(const lily_play *p, const lily_script_token *token, lily_play_step *out)
{
    out->kind = LILY_PLAY_TOKEN;
    out->token = *token;
    if (!p->ask->sampling.logprobs || p->ask->sampling.n_logprobs == 0) return;
    out->n_top = 1;
    out->top[0] = (lily_top){token->id, 0};
}

static int take(lily_guide *g, const lily_script_token *t, bool *fits, lily_err *e)
{
    return lily_guide_take(g, t->id, t->bytes ? t->bytes : "", t->n, fits, e);
}

static int take_forced(const lily_play *p, lily_guide *g, int32_t id, lily_play_step *out, lily_err *e)
{
    const lily_script_token token = token_of(p->m, id);
    bool fits;
    set_token(p, &token, out);
    TRY(take(g, &token, &fits, e));
    return fits ? LILY_OK : lily_fail(e, LILY_INTERNAL, "the guide refuses the token that it forces");
}

/* The turn ends here. */
static int stop(const lily_guide *g, lily_play_step *out, const char **err_code, lily_err *e)
{
    if (!lily_guide_may_end(g)) return refused(err_code, e, "the end");
    out->kind = LILY_PLAY_STOP;
    return LILY_OK;
}

static bool ends_turn(const lily_play *p, const lily_guide *g, int32_t id)
{
    return id >= 0 && lily_is_eos(p->m, id) && (!p->ask->ignore_eos || lily_guide_binds(g));
}

/* ---- by scores ---- */

static void set_logits(lily_play *p)
{
    uint32_t vocab = p->m->config->vocab;
    const lily_script_logits *l = &p->source->logits[p->source->every_step ? 0 : p->at];
    for (uint32_t i = 0; i < vocab; i++) p->logits[i] = l->nan ? NAN : LILY_SCRIPT_LOW;
    for (uint32_t i = 0; i < l->n; i++) p->logits[l->set[i].token] = l->set[i].add;
}

static int next_by_logits(lily_play *p, lily_guide *g, uint32_t draw, lily_play_step *out, const char **err_code,
                          lily_err *e)
{
    const lily_sampling *sampling = &p->ask->sampling;
    lily_pick pick = lily_pick_of(sampling, p->m);
    lily_done done;
    bool finished, fits;
    if (!p->source->every_step && p->at == p->source->n_logits) return stop(g, out, err_code, e);
    TRY(lily_guide_finished(g, &finished, e));
    if (finished) return stop(g, out, err_code, e);
    TRY(lily_guide_allowed(g, &pick.allow, e));
    pick.draw = draw;
    set_logits(p);
    TRY(lily_pick_token(p->logits, &pick, p->count, p->room, &done, e));
    p->at++;
    if (ends_turn(p, g, done.token)) return stop(g, out, err_code, e);
    p->n_taken++;
    p->count[done.token]++;
    *out = (lily_play_step){.kind = LILY_PLAY_TOKEN, .token = token_of(p->m, done.token), .scripted = true};
    if (sampling->logprobs) {
        out->logprob = done.logprob;
        out->n_top = (uint32_t)sampling->n_logprobs;
        memcpy(out->top, done.top, out->n_top * sizeof *out->top);
    }
    TRY(take(g, &out->token, &fits, e));
    return fits ? LILY_OK : lily_fail(e, LILY_INTERNAL, "a token was chosen that the format does not allow");
}

/* ---- by tokens ---- */

/* forced: what the guide would put here, or -1. */
static int next_by_tokens(lily_play *p, lily_guide *g, int32_t forced, lily_play_step *out, const char **err_code,
                          lily_err *e)
{
    const lily_script_source *s = p->source;
    bool end = p->at == s->n_tokens * s->times_over, fits = false;
    const lily_script_token *token = end ? NULL : &s->tokens[p->at % s->n_tokens];
    end = end || ends_turn(p, g, token->id);
    if (end && (lily_guide_may_end(g) || forced < 0)) return stop(g, out, err_code, e);
    if (!end) TRY(take(g, token, &fits, e));
    if (!fits) return forced < 0 ? refused(err_code, e, "a token") : take_forced(p, g, forced, out, e);
    p->at++;
    p->n_taken++;
    set_token(p, token, out);
    out->scripted = true;
    return LILY_OK;
}

/* ---- the next ---- */

/* The source has nothing more, and says nothing of the end. */
static bool is_cut(const lily_play *p)
{
    const lily_script_source *s = p->source;
    uint64_t n = s->logits ? s->n_logits : s->n_tokens * s->times_over;
    return p->reply->cut && p->at == n && !s->every_step;
}

static void turn_to_answer(lily_play *p)
{
    if (p->after_think || !p->reply->after_think) return;
    p->after_think = true;
    p->source = p->reply->after_think;
    p->at = 0;
}

int lily_play_next(lily_play *p, lily_guide *g, uint32_t draw, lily_play_step *out, const char **err_code, lily_err *e)
{
    int32_t forced;
    bool closes;
    *out = (lily_play_step){.kind = LILY_PLAY_TOKEN};
    TRY(lily_guide_forced(g, &forced, &closes, e));
    if (closes) turn_to_answer(p);
    if (closes || (forced >= 0 && p->source->logits)) {
        if (p->count && forced >= 0) p->count[forced]++;
        return take_forced(p, g, forced, out, e);
    }
    if (p->reply->fail_at == p->n_taken + 1)
        return lily_fail(e, LILY_DEVICE, "scripted device error at token %u", (unsigned)p->n_taken + 1);
    if (is_cut(p)) {
        out->kind = LILY_PLAY_LENGTH;
        return LILY_OK;
    }
    return p->source->logits ? next_by_logits(p, g, draw, out, err_code, e)
                             : next_by_tokens(p, g, forced, out, err_code, e);
}
