#include "api/openai_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "api/json_out.h"
#include "base/clock.h"
#include "base/random.h"

void lily_openai_head_init(lily_openai_head *h, const char *model, const lily_tokenizer *tokenizer)
{
    *h = (lily_openai_head){.created = (int64_t)time(NULL), .model = model, .tokenizer = tokenizer};
    snprintf(h->id, sizeof h->id, "chatcmpl-%016" PRIx64 "%08x", lily_random_seed(), (unsigned)lily_random_seed());
}

/* ---- parts ---- */

static void put_head(lily_buf *out, const lily_openai_head *h, const char *object)
{
    lily_buf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", h->id, object,
                    h->created);
    lily_json_put_text(out, h->model);
}

/* "key":"text" */
static void put_member(lily_buf *out, const char *key, const char *text, size_t n)
{
    lily_json_put_text(out, key);
    lily_buf_putc(out, ':');
    lily_json_put_string(out, text, n);
}

static void put_reasoning(lily_buf *out, const char *text, size_t n)
{
    put_member(out, "reasoning_content", text, n);
    lily_buf_putc(out, ',');
    put_member(out, "reasoning", text, n);
}

static void put_call_id(lily_buf *out) { lily_buf_printf(out, "\"id\":\"call_%016" PRIx64 "\"", lily_random_seed()); }

static const char *finish_text(lily_finish f)
{
    return f == LILY_FINISH_LENGTH ? "length" : f == LILY_FINISH_CALLS ? "tool_calls" : "stop";
}

/* The members of one entry, without its braces. */
static void put_token(lily_buf *out, int32_t id, float logprob, const char *bytes, size_t n)
{
    put_member(out, "token", bytes, n);
    lily_buf_puts(out, ",\"logprob\":");
    lily_json_put_number(out, logprob);
    lily_buf_puts(out, ",\"bytes\":");
    lily_json_put_bytes(out, bytes, n);
    if (id >= 0) lily_buf_printf(out, ",\"id\":%d", (int)id);
}

static void put_top(lily_buf *out, const lily_openai_head *h, const lily_answer_token *t, const lily_top *top)
{
    /* A scripted token without id has itself as its only alternative. */
    const char *bytes = top->token < 0 ? t->bytes : NULL;
    size_t n = top->token < 0 ? t->n_bytes : 0;
    if (top->token >= 0) bytes = lily_token_bytes(h->tokenizer, top->token, &n);
    lily_buf_putc(out, '{');
    put_token(out, top->token, top->logprob, bytes ? bytes : "", bytes ? n : 0);
    lily_buf_putc(out, '}');
}

void lily_openai_put_logprobs(lily_buf *out, const lily_openai_head *h, const lily_answer_event *ev, bool first)
{
    for (size_t i = 0; i < ev->n_tokens; i++) {
        const lily_answer_token *t = ev->tokens[i];
        lily_buf_puts(out, first ? "{" : ",{");
        first = false;
        put_token(out, t->id, t->logprob, t->bytes, t->n_bytes);
        lily_buf_puts(out, ",\"top_logprobs\":[");
        for (uint32_t j = 0; j < t->n_top; j++) {
            if (j > 0) lily_buf_putc(out, ',');
            put_top(out, h, t, &t->top[j]);
        }
        lily_buf_puts(out, "]}");
    }
}

void lily_openai_put_usage(lily_buf *out, const lily_usage *u)
{
    lily_buf_printf(out,
                    "\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%u,"
                    "\"prompt_tokens_details\":{\"cached_tokens\":%u},"
                    "\"completion_tokens_details\":{\"reasoning_tokens\":%u}}",
                    u->n_prompt, u->n_reply, u->n_prompt + u->n_reply, u->n_reused, u->n_reasoning);
}

/* `steps`: tokens made in that time, which is one less than n where the time runs from the first one. */
static void put_rate(lily_buf *out, const char *phase, uint32_t n, uint32_t steps, double seconds)
{
    lily_buf_printf(out, "\"%s_n\":%u,\"%s_ms\":%.3f,\"%s_per_second\":%.3f", phase, n, phase, seconds * 1e3, phase,
                    seconds > 0 ? steps / seconds : 0.0);
}

void lily_openai_put_timings(lily_buf *out, const lily_usage *u)
{
    lily_buf_printf(out, "\"timings\":{\"cache_n\":%u,", u->n_reused);
    uint32_t fresh = u->n_prompt - u->n_reused;
    put_rate(out, "prompt", fresh, fresh, u->prompt_seconds);
    lily_buf_putc(out, ',');
    put_rate(out, "predicted", u->n_reply, u->n_reply ? u->n_reply - 1 : 0, u->reply_seconds);
    lily_buf_putc(out, '}');
}

/* ---- streamed ---- */

static void open_chunk(const lily_openai_stream *s, lily_buf *out)
{
    lily_buf_puts(out, "data: ");
    put_head(out, s->head, "chat.completion.chunk");
}

static void open_delta(const lily_openai_stream *s, lily_buf *out)
{
    open_chunk(s, out);
    lily_buf_printf(out, ",\"choices\":[{\"index\":%zu,\"delta\":{", s->index);
}

/* Ends a delta and leaves the chunk open for further members. */
static void close_delta(const lily_openai_stream *s, const lily_answer_event *ev, const char *finish, lily_buf *out)
{
    lily_buf_puts(out, "},\"logprobs\":");
    if (ev && ev->n_tokens > 0) {
        lily_buf_puts(out, "{\"content\":[");
        lily_openai_put_logprobs(out, s->head, ev, true);
        lily_buf_puts(out, "],\"refusal\":null}");
    } else {
        lily_buf_puts(out, "null");
    }
    lily_buf_puts(out, ",\"finish_reason\":");
    lily_json_put_text(out, finish);
    lily_buf_puts(out, "}]");
}

static void close_chunk(lily_buf *out) { lily_buf_puts(out, "}\n\n"); }

void lily_openai_stream_open(lily_openai_stream *s, lily_buf *out)
{
    if (s->opened) return;
    s->opened = true;
    open_delta(s, out);
    lily_buf_puts(out, "\"role\":\"assistant\",\"content\":\"\"");
    close_delta(s, NULL, NULL, out);
    close_chunk(out);
}

static void put_call_delta(const lily_answer_event *ev, lily_buf *out)
{
    lily_buf_printf(out, "\"tool_calls\":[{\"index\":%zu,", ev->call);
    if (ev->kind == LILY_ANSWER_CALL) {
        put_call_id(out);
        lily_buf_puts(out, ",\"type\":\"function\",\"function\":{");
        put_member(out, "name", ev->text, ev->n);
        lily_buf_puts(out, ",\"arguments\":\"\"}}]");
    } else {
        lily_buf_puts(out, "\"function\":{");
        put_member(out, "arguments", ev->text, ev->n);
        lily_buf_puts(out, "}}]");
    }
}

static void put_progress(lily_openai_stream *s, const lily_usage *u, lily_buf *out)
{
    lily_openai_stream_open(s, out);
    open_delta(s, out);
    close_delta(s, NULL, NULL, out);
    lily_buf_printf(out, ",\"prompt_progress\":{\"total\":%u,\"cache\":%u,\"processed\":%u,\"time_ms\":%.0f}",
                    u->n_prompt, u->n_reused, u->n_done, lily_seconds_since(s->started) * 1e3);
    close_chunk(out);
}

static void put_finish(lily_openai_stream *s, const lily_answer_event *ev, lily_buf *out)
{
    open_delta(s, out);
    close_delta(s, ev, finish_text(ev->finish), out);
    lily_buf_putc(out, ',');
    lily_openai_put_timings(out, ev->usage);
    close_chunk(out);
    lily_usage_add(&s->sum, ev->usage, s->index > 0);
    s->opened = false;
    if (++s->index < s->n_answers) return;
    if (s->include_usage) {
        open_chunk(s, out);
        lily_buf_puts(out, ",\"choices\":[],");
        lily_openai_put_usage(out, &s->sum);
        close_chunk(out);
    }
    lily_buf_puts(out, "data: [DONE]\n\n");
}

void lily_openai_stream_event(lily_openai_stream *s, const lily_answer_event *ev, lily_buf *out)
{
    switch (ev->kind) {
    case LILY_ANSWER_START: s->started = lily_now_ns(); return;
    case LILY_ANSWER_CALL_END:
    case LILY_ANSWER_CALL_CUT: return;    /* the finish reason tells */
    case LILY_ANSWER_PROGRESS:
        if (s->return_progress) put_progress(s, ev->usage, out);
        return;
    case LILY_ANSWER_FINISH:
        lily_openai_stream_open(s, out);
        put_finish(s, ev, out);
        return;
    default: break;
    }
    lily_openai_stream_open(s, out);
    open_delta(s, out);
    if (ev->kind == LILY_ANSWER_REASONING) put_reasoning(out, ev->text, ev->n);
    else if (ev->kind == LILY_ANSWER_TEXT) put_member(out, "content", ev->text, ev->n);
    else put_call_delta(ev, out);
    close_delta(s, ev, NULL, out);
    close_chunk(out);
}

/* ---- not streamed ---- */

static void end_call(lily_openai_answer *a)
{
    if (a->name.failed || a->arguments.failed) a->calls.failed = true;    /* the next call will clear them */
    lily_buf_puts(&a->calls, a->calls.len ? ",{" : "{");
    put_call_id(&a->calls);
    lily_buf_puts(&a->calls, ",\"type\":\"function\",\"function\":{");
    put_member(&a->calls, "name", lily_buf_str(&a->name), a->name.len);
    lily_buf_putc(&a->calls, ',');
    put_member(&a->calls, "arguments", lily_buf_str(&a->arguments), a->arguments.len);
    lily_buf_puts(&a->calls, "}}");
}

static void put_message(const lily_openai_answer *a, lily_buf *out)
{
    lily_buf_puts(out, "{\"role\":\"assistant\",\"content\":");
    if (a->content.len > 0 || a->calls.len == 0)
        lily_json_put_string(out, lily_buf_str(&a->content), a->content.len);
    else
        lily_buf_puts(out, "null");
    lily_buf_puts(out, ",\"refusal\":null");
    if (a->reasoning.len > 0) {
        lily_buf_putc(out, ',');
        put_reasoning(out, a->reasoning.data, a->reasoning.len);
    }
    if (a->calls.len > 0) {
        lily_buf_puts(out, ",\"tool_calls\":[");
        lily_buf_add(out, a->calls.data, a->calls.len);
        lily_buf_putc(out, ']');
    }
    lily_buf_putc(out, '}');
}

static void end_choice(lily_openai_answer *a, const lily_answer_event *ev)
{
    lily_buf *parts[] = {&a->content, &a->reasoning, &a->calls, &a->name, &a->arguments, &a->logprobs};
    lily_buf *out = &a->choices;
    lily_buf_printf(out, "%s{\"index\":%zu,\"message\":", a->n_choices ? "," : "", a->n_choices);
    put_message(a, out);
    lily_buf_puts(out, ",\"logprobs\":");
    if (a->with_logprobs) {
        lily_buf_puts(out, "{\"content\":[");
        lily_buf_add(out, lily_buf_str(&a->logprobs), a->logprobs.len);
        lily_buf_puts(out, "],\"refusal\":null}");
    } else {
        lily_buf_puts(out, "null");
    }
    lily_buf_printf(out, ",\"finish_reason\":\"%s\"}", finish_text(ev->finish));
    lily_usage_add(&a->sum, ev->usage, a->n_choices > 0);
    a->n_choices++;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i]->failed) out->failed = true;
        lily_buf_clear(parts[i]);
    }
}

void lily_openai_answer_event(lily_openai_answer *a, const lily_answer_event *ev)
{
    switch (ev->kind) {
    case LILY_ANSWER_REASONING: lily_buf_add(&a->reasoning, ev->text, ev->n); break;
    case LILY_ANSWER_TEXT: lily_buf_add(&a->content, ev->text, ev->n); break;
    case LILY_ANSWER_CALL:
        lily_buf_clear(&a->name);
        lily_buf_clear(&a->arguments);
        lily_buf_add(&a->name, ev->text, ev->n);
        break;
    case LILY_ANSWER_ARGUMENTS: lily_buf_add(&a->arguments, ev->text, ev->n); break;
    case LILY_ANSWER_CALL_END: end_call(a); break;
    default: break;
    }
    lily_openai_put_logprobs(&a->logprobs, a->head, ev, a->logprobs.len == 0);
    if (ev->kind == LILY_ANSWER_FINISH) end_choice(a, ev);
}

int lily_openai_answer_json(const lily_openai_answer *a, lily_buf *out, lily_err *e)
{
    TRY(lily_buf_ok(&a->choices, "an answer", e));
    put_head(out, a->head, "chat.completion");
    lily_buf_puts(out, ",\"choices\":[");
    lily_buf_add(out, lily_buf_str(&a->choices), a->choices.len);
    lily_buf_puts(out, "],");
    lily_openai_put_usage(out, &a->sum);
    lily_buf_putc(out, ',');
    lily_openai_put_timings(out, &a->sum);
    lily_buf_putc(out, '}');
    return lily_buf_ok(out, "an answer", e);
}

void lily_openai_answer_free(lily_openai_answer *a)
{
    lily_buf_free(&a->choices);
    lily_buf_free(&a->content);
    lily_buf_free(&a->reasoning);
    lily_buf_free(&a->calls);
    lily_buf_free(&a->name);
    lily_buf_free(&a->arguments);
    lily_buf_free(&a->logprobs);
}
