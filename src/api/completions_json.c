#include "api/completions_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/json_out.h"
#include "base/random.h"
#include "base/utf8.h"
#include "text/decode.h"

/* ---- log probabilities ---- */

static size_t count_chars(const char *s, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++) chars += ((unsigned char)s[i] & 0xc0) != 0x80;
    return chars;
}

/* A token that is no text by itself is written as OpenAI does: "bytes:\xe2\x80". */
static void put_token(lily_buf *out, const char *bytes, size_t n)
{
    if (lily_utf8_valid(bytes, n)) {
        lily_json_put_string(out, bytes, n);
        return;
    }
    lily_buf_puts(out, "\"bytes:");
    for (size_t i = 0; i < n; i++) lily_buf_printf(out, "\\\\x%02x", (unsigned char)bytes[i]);
    lily_buf_putc(out, '"');
}

static void put_top(const lily_completions_writer *w, const lily_answer_token *t, lily_buf *out)
{
    lily_buf_putc(out, '{');
    for (uint32_t i = 0; i < t->n_top; i++) {
        size_t n = t->n_bytes;
        const char *bytes = t->bytes;    /* a scripted token without id has itself as its only alternative */
        if (t->top[i].token >= 0) bytes = lily_token_bytes(w->head.tokenizer, t->top[i].token, &n);
        if (i > 0) lily_buf_putc(out, ',');
        put_token(out, bytes ? bytes : "", bytes ? n : 0);
        lily_buf_putc(out, ':');
        lily_json_put_number(out, (double)t->top[i].logprob);
    }
    lily_buf_putc(out, '}');
}

static void add_logprobs(lily_completions_writer *w, const lily_answer_event *ev)
{
    lily_completion_logprobs *l = &w->logprobs;
    for (size_t i = 0; i < ev->n_tokens; i++) {
        const lily_answer_token *t = ev->tokens[i];
        size_t into = t->at > w->n_bytes ? t->at - w->n_bytes : 0;
        const char *comma = l->tokens.len > 0 ? "," : "";
        lily_buf_puts(&l->tokens, comma);
        put_token(&l->tokens, t->bytes, t->n_bytes);
        lily_buf_puts(&l->values, comma);
        lily_json_put_number(&l->values, (double)t->logprob);
        lily_buf_puts(&l->tops, comma);
        put_top(w, t, &l->tops);
        lily_buf_printf(&l->offsets, "%s%zu", comma, w->n_chars + count_chars(ev->text, into < ev->n ? into : ev->n));
    }
}

/* Takes them out of the writer. */
static void put_logprobs(lily_completions_writer *w, lily_buf *out)
{
    lily_completion_logprobs *l = &w->logprobs;
    if (!w->q->with_logprobs) {
        lily_buf_puts(out, "null");
        return;
    }
    lily_buf_printf(out, "{\"tokens\":[%s],\"token_logprobs\":[%s],\"text_offset\":[%s],\"top_logprobs\":",
                    lily_buf_str(&l->tokens), lily_buf_str(&l->values), lily_buf_str(&l->offsets));
    if (w->q->logprobs > 0) lily_buf_printf(out, "[%s]}", lily_buf_str(&l->tops));
    else lily_buf_puts(out, "null}");
    lily_buf *parts[] = {&l->tokens, &l->values, &l->tops, &l->offsets};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i]->failed) out->failed = true;
        lily_buf_clear(parts[i]);
    }
}

/* ---- pieces ---- */

static void put_head(const lily_completions_writer *w, lily_buf *out)
{
    lily_buf_printf(out, "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":%" PRId64 ",\"model\":", w->head.id,
                    w->head.created);
    lily_json_put_text(out, w->head.model);
}

static void put_choice(lily_completions_writer *w, const char *text, size_t n, const char *finish, lily_buf *out)
{
    lily_buf_printf(out, "{\"index\":%zu,\"text\":", w->index);
    lily_json_put_string(out, text, n);
    lily_buf_puts(out, ",\"logprobs\":");
    put_logprobs(w, out);
    lily_buf_puts(out, ",\"finish_reason\":");
    lily_json_put_text(out, finish);
    lily_buf_putc(out, '}');
}

static const char *finish_text(lily_finish f) { return f == LILY_FINISH_LENGTH ? "length" : "stop"; }

/* The prompt before its answer. */
static void put_echo(lily_completions_writer *w, lily_buf *out)
{
    const lily_completion_prompt *p = &w->q->prompts[w->index / (size_t)w->q->q.n];
    size_t before = out->len;
    lily_err e;
    if (w->begun) return;
    w->begun = true;
    if (!w->q->echo) return;
    if (p->text) lily_buf_add(out, p->text, p->n_text);
    else if (lily_decode(w->head.tokenizer, p->ids.id, p->ids.n, false, out, &e) != LILY_OK) out->failed = true;
    w->n_chars = count_chars(lily_buf_str(out) + before, out->len - before);
}

static void advance(lily_completions_writer *w, const lily_answer_event *ev)
{
    w->n_bytes += ev->n;
    w->n_chars += count_chars(ev->text, ev->n);
}

/* The answer is complete; true: it was the last. */
static bool end_answer(lily_completions_writer *w, const lily_answer_event *ev)
{
    size_t n = (size_t)w->q->q.n;
    lily_usage_add(&w->sum, ev->usage, w->index % n > 0);
    w->begun = false;
    w->n_bytes = w->n_chars = 0;
    return ++w->index == w->q->n_prompts * n;
}

/* ---- streamed ---- */

static void put_chunk(lily_completions_writer *w, const char *text, size_t n, const char *finish, lily_buf *out)
{
    lily_buf_puts(out, "data: ");
    put_head(w, out);
    lily_buf_puts(out, ",\"choices\":[");
    put_choice(w, text, n, finish, out);
    lily_buf_puts(out, "]}\n\n");
}

static void put_last(lily_completions_writer *w, lily_buf *out)
{
    if (w->q->q.include_usage) {
        lily_buf_puts(out, "data: ");
        put_head(w, out);
        lily_buf_puts(out, ",\"choices\":[],");
        lily_openai_put_usage(out, &w->sum);
        lily_buf_putc(out, ',');
        lily_openai_put_timings(out, &w->sum);
        lily_buf_puts(out, "}\n\n");
    }
    lily_buf_puts(out, "data: [DONE]\n\n");
}

void lily_completions_event(lily_completions_writer *w, const lily_answer_event *ev, lily_buf *out)
{
    if (ev->kind != LILY_ANSWER_TEXT && ev->kind != LILY_ANSWER_FINISH) return;
    lily_buf echo = {0};
    put_echo(w, &echo);
    if (echo.failed) out->failed = true;
    if (echo.len > 0) put_chunk(w, echo.data, echo.len, NULL, out);
    lily_buf_free(&echo);
    add_logprobs(w, ev);
    advance(w, ev);
    bool ends = ev->kind == LILY_ANSWER_FINISH;
    put_chunk(w, ev->text ? ev->text : "", ev->n, ends ? finish_text(ev->finish) : NULL, out);
    if (ends && end_answer(w, ev)) put_last(w, out);
}

/* ---- not streamed ---- */

void lily_completions_gather(lily_completions_writer *w, const lily_answer_event *ev)
{
    if (ev->kind != LILY_ANSWER_TEXT && ev->kind != LILY_ANSWER_FINISH) return;
    put_echo(w, &w->text);
    add_logprobs(w, ev);
    advance(w, ev);
    lily_buf_add(&w->text, ev->text, ev->n);
    if (ev->kind != LILY_ANSWER_FINISH) return;
    if (w->index > 0) lily_buf_putc(&w->choices, ',');
    put_choice(w, lily_buf_str(&w->text), w->text.len, finish_text(ev->finish), &w->choices);
    if (w->text.failed) w->choices.failed = true;
    lily_buf_clear(&w->text);
    end_answer(w, ev);
}

int lily_completions_whole(const lily_completions_writer *w, lily_buf *out, lily_err *e)
{
    TRY(lily_buf_ok(&w->choices, "an answer", e));
    put_head(w, out);
    lily_buf_puts(out, ",\"choices\":[");
    lily_buf_add(out, lily_buf_str(&w->choices), w->choices.len);
    lily_buf_puts(out, "],");
    lily_openai_put_usage(out, &w->sum);
    lily_buf_putc(out, ',');
    lily_openai_put_timings(out, &w->sum);
    lily_buf_putc(out, '}');
    return lily_buf_ok(out, "an answer", e);
}

/* ---- life ---- */

void lily_completions_writer_init(lily_completions_writer *w, const lily_completions_request *q, const char *model,
                                  const lily_tokenizer *tokenizer)
{
    *w = (lily_completions_writer){.q = q};
    lily_openai_head_init(&w->head, model, tokenizer);
    snprintf(w->head.id, sizeof w->head.id, "cmpl-%016" PRIx64, lily_random_seed());
}

void lily_completions_writer_free(lily_completions_writer *w)
{
    lily_buf_free(&w->logprobs.tokens);
    lily_buf_free(&w->logprobs.values);
    lily_buf_free(&w->logprobs.tops);
    lily_buf_free(&w->logprobs.offsets);
    lily_buf_free(&w->text);
    lily_buf_free(&w->choices);
}
