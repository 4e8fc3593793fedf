#include "api/chat.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "api/call.h"
#include "api/replay.h"
#include "base/mem.h"
#include "sample/call_grammar.h"
#include "text/decode.h"
#include "text/messages.h"

/* ---- marks ---- */

/* Whether the tokens from `at` on spell exactly `text` up to a token's end; that end, or 0. */
static size_t spelled(const lily_tokenizer *k, const lily_ids *ids, size_t at, const char *text)
{
    size_t left = strlen(text);
    for (; left > 0 && at < ids->n; at++) {
        size_t n;
        const char *bytes = lily_token_bytes(k, ids->id[at], &n);
        if (!bytes || n > left || memcmp(bytes, text, n) != 0) return 0;
        text += n;
        left -= n;
    }
    return left == 0 ? at : 0;
}

/* A message ends where the next begins, so that boundary is every <|im_start|> but the first.  The thinking of an
 * old turn is left out of later prompts: they part right behind "<|im_start|>assistant\n". */
static int find_marks(lily_chat_prompt *p, const lily_tokenizer *k, lily_err *e)
{
    static const char start_text[] = "<|im_start|>", think_text[] = "<think>";
    int32_t start = lily_token_find(k, start_text, sizeof start_text - 1);
    int32_t think = lily_token_find(k, think_text, sizeof think_text - 1);
    size_t most = 0;
    for (size_t i = 0; i < p->ids.n; i++) most += p->ids.id[i] == start;
    p->marks = lily_calloc(2 * most, sizeof *p->marks);
    p->turns = lily_calloc(most, sizeof *p->turns);
    if (!p->marks || !p->turns) return lily_no_memory(e, 3 * most * sizeof *p->marks, "message boundaries");
    for (size_t i = 0; i < p->ids.n; i++) {
        if (p->ids.id[i] != start) continue;
        if (i > 0) p->marks[p->n_marks++] = (uint32_t)i;
        size_t end = spelled(k, &p->ids, i + 1, "assistant\n");
        if (!end) continue;
        p->turns[p->n_turns++] = p->marks[p->n_marks++] = (uint32_t)end;
        if (!p->fork && end < p->ids.n && p->ids.id[end] == think) p->fork = (uint32_t)end;
    }
    return LILY_OK;
}

/* ---- the prompt ---- */

static int encode_rendered(lily_chat_prompt *p, const lily_tokenizer *k, lily_err *e)
{
    const lily_rendered *r = &p->rendered;
    lily_span *spans = lily_calloc(r->n_spans, sizeof *spans);
    if (!spans) return lily_no_memory(e, r->n_spans * sizeof *spans, "a prompt");
    size_t at = 0;
    for (size_t i = 0; i < r->n_spans; i++) {
        spans[i] = (lily_span){.text = r->text.data + at, .n = r->spans[i].end - at, .control = r->spans[i].control};
        at = r->spans[i].end;
    }
    int rc = lily_encode_spans(k, spans, r->n_spans, &p->ids, e);
    lily_free(spans);
    if (rc == LILY_OK && p->ids.n > UINT32_MAX / 2)
        rc = lily_fail(e, LILY_CONTEXT, "the prompt has %zu tokens", p->ids.n);
    return rc;
}

static bool ends_with(const lily_buf *text, const char *end, size_t n)
{
    return n <= text->len && memcmp(text->data + text->len - n, end, n) == 0;
}

/* Opens the last turn again, which was rendered as a complete one. */
static int open_last_turn(lily_chat_prompt *p, const json_t *message, lily_err *e)
{
    static const char end_text[] = "<|im_end|>\n";
    lily_rendered *r = &p->rendered;
    const json_t *content = json_object_get(message, "content");
    const char *text = json_string_value(content);
    size_t n = json_string_length(content), n_end = sizeof end_text - 1, kept = n;
    if (!ends_with(&r->text, end_text, n_end) || !r->spans[r->n_spans - 1].control)
        return lily_fail(e, LILY_UNSUPPORTED, "with this chat template a message cannot be continued");
    lily_rendered_cut(r, r->text.len - n_end);
    lily_buf_add(&p->begun, text, n);
    TRY(lily_buf_ok(&p->begun, "a prompt", e));
    if (ends_with(&r->text, text, n)) return LILY_OK;
    while (kept > 0 && strchr(" \t\r\n", text[kept - 1]) && text[kept - 1]) kept--;
    return lily_rendered_add(r, text + kept, n - kept, e);
}

/* What the prompt declares: not the tools with defer_loading, whose descriptions come in messages, if at all.  A new
 * reference; NULL when none is left. */
static int declared(const json_t *tools, json_t **out, lily_err *e)
{
    *out = tools ? json_array() : NULL;
    if (tools && !*out) return lily_no_memory(e, 0, "tools");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *tool = json_array_get(tools, i);
        if (json_is_true(json_object_get(tool, "defer_loading")) || json_array_append(*out, tool) == 0) continue;
        json_decref(*out);
        return lily_no_memory(e, 0, "tools");
    }
    if (json_array_size(*out) > 0) return LILY_OK;
    json_decref(*out);
    *out = NULL;
    return LILY_OK;
}

static int render(lily_chat_prompt *p, const lily_template *t, const json_t *messages, const json_t *tools,
                  const json_t *kwargs, bool go_on, lily_err *e)
{
    json_t *normal, *shown = NULL;
    TRY(lily_messages_normalize(messages, &normal, e));
    int rc = declared(tools, &shown, e);
    if (rc == LILY_OK) rc = lily_template_render(t, normal, shown, kwargs, !go_on, &p->rendered, e);
    json_decref(shown);
    if (rc == LILY_OK && go_on) rc = open_last_turn(p, json_array_get(normal, json_array_size(normal) - 1), e);
    json_decref(normal);
    return rc;
}

int lily_chat_prompt_make(lily_chat_prompt *out, const lily_template *t, const lily_tokenizer *k, const json_t *messages,
                     const json_t *tools, const json_t *kwargs, bool go_on, lily_err *e)
{
    *out = (lily_chat_prompt){0};
    int rc = render(out, t, messages, tools, kwargs, go_on, e);
    if (rc == LILY_OK) rc = encode_rendered(out, k, e);
    if (rc == LILY_OK) rc = find_marks(out, k, e);
    if (json_is_true(json_object_get(kwargs, "preserve_thinking"))) out->fork = 0;    /* nothing will be left out */
    if (rc == LILY_OK) out->in_think = lily_rendered_in_think(&out->rendered);
    else lily_chat_prompt_free(out);
    return rc;
}

/* A prompt that was given as ids. Its text is for the record of scripted replies. */
static int copy_ids(lily_chat_prompt *out, const lily_chat *c, const lily_tokenizer *k, lily_err *e)
{
    const lily_ids *ids = c->prompt_ids;
    TRY(lily_ids_reserve(&out->ids, ids->n, e));
    if (ids->n) memcpy(out->ids.id, ids->id, ids->n * sizeof *ids->id);
    out->ids.n = ids->n;
    if (c->prompt_mark) {
        out->marks = lily_calloc(1, sizeof *out->marks);
        if (!out->marks) return lily_no_memory(e, sizeof *out->marks, "a prompt");
        out->marks[out->n_marks++] = c->prompt_mark;
    }
    return lily_decode(k, ids->id, ids->n, false, &out->rendered.text, e);
}

void lily_chat_prompt_free(lily_chat_prompt *p)
{
    lily_rendered_free(&p->rendered);
    lily_ids_free(&p->ids);
    lily_free(p->marks);
    lily_free(p->turns);
    lily_buf_free(&p->begun);
    *p = (lily_chat_prompt){0};
}

/* ---- the run ---- */

struct lily_chat_run {
    lily_answer *answer;
    lily_request *request;
    lily_call *call;
    bool finished;
    lily_answer_sink *sink;     /* the caller's */
    void *user;
    lily_replies *replies;      /* NULL: this reply is not noted */
    lily_replay_note note;
    pthread_mutex_t lock;       /* for `news`; never held around calls of the engine */
    pthread_cond_t more;
    bool news;
};

static void wake(void *user)
{
    lily_chat_run *r = user;
    pthread_mutex_lock(&r->lock);
    r->news = true;
    pthread_cond_signal(&r->more);
    pthread_mutex_unlock(&r->lock);
}

static int on_answer(void *user, const lily_answer_event *ev, lily_err *e)
{
    lily_chat_run *r = user;
    if (r->replies) lily_replay_note_event(&r->note, ev, r->replies);
    return r->sink(r->user, ev, e);
}

/* What calls must be: where they are required, and where a function is strict. */
static int make_calls(lily_grammar **out, const lily_chat *c, const json_t *tools, lily_err *e)
{
    const char *only = c->tool_choice == LILY_TOOLS_NAMED ? c->tool_name : NULL;
    *out = NULL;
    if (c->tool_choice <= LILY_TOOLS_NONE && !lily_calls_strict(tools)) return LILY_OK;
    return lily_call_grammar(out, tools, only, e);
}

static int submit(lily_chat_run *r, lily_engine *g, const lily_chat *c, const json_t *tools, const lily_chat_prompt *p,
                  lily_err *e)
{
    lily_answer_options answer = {.tokenizer = lily_engine_tokenizer(g),
                                  .plain = c->prompt_ids != NULL,
                                  .thinking = p->in_think,
                                  .begun = p->begun.data,
                                  .n_begun = p->begun.len,
                                  .tools = tools,
                                  .single_call = c->single_call,
                                  .logprobs = c->sampling.logprobs,
                                  .stop = c->stop,
                                  .stop_len = c->stop_len,
                                  .n_stop = c->n_stop,
                                  .sink = on_answer,
                                  .user = r};
    r->sink = c->sink;
    r->user = c->user;
    r->replies = c->no_reuse || c->go_on || c->prompt_ids ? NULL : lily_engine_replies(g);
    if (r->replies) lily_replay_note_begin(&r->note, p, lily_engine_tokenizer(g));
    TRY(lily_answer_new(&r->answer, &answer, e));
    lily_grammar *calls;
    TRY(make_calls(&calls, c, tools, e));
    lily_ask ask = {.tokens = p->ids.id,
                    .n_tokens = (uint32_t)p->ids.n,
                    .marks = p->marks,
                    .n_marks = p->n_marks,
                    .fork = p->fork,
                    .max_tokens = c->max_tokens,
                    .sampling = c->sampling,
                    .grammar = c->grammar,
                    .in_think = p->in_think,
                    .may_call = tools != NULL,
                    .calls = calls,
                    .must_call = c->tool_choice > LILY_TOOLS_NONE,
                    .single_call = c->single_call,
                    .think_limited = c->think_limited,
                    .think_budget = c->think_budget,
                    .ignore_eos = c->ignore_eos,
                    .no_reuse = c->no_reuse,
                    .prompt_text = p->rendered.text.data,
                    .n_prompt_text = p->rendered.text.len,
                    .endpoint = c->endpoint,
                    .script_reply = c->script_reply,
                    .wake = wake,
                    .user = r};
    r->call = c->call;
    lily_call_asked(r->call, &ask);
    int rc = lily_engine_submit(g, &ask, &r->request, e);
    lily_grammar_let_go(calls);
    return rc;
}

static int make_prompt(lily_chat_prompt *out, lily_engine *g, const lily_chat *c, const json_t *tools, lily_err *e)
{
    const lily_tokenizer *k = lily_engine_tokenizer(g);
    if (c->prompt_ids) {
        *out = (lily_chat_prompt){0};
        int rc = copy_ids(out, c, k, e);
        if (rc != LILY_OK) lily_chat_prompt_free(out);
        return rc;
    }
    return lily_chat_prompt_make(out, lily_engine_template(g), k, c->messages, tools, c->kwargs, c->go_on, e);
}

int lily_chat_start(lily_chat_run **out, lily_engine *g, const lily_chat *chat, uint32_t *n_prompt, lily_err *e)
{
    lily_chat_prompt prompt;
    const json_t *tools = chat->tool_choice == LILY_TOOLS_NONE ? NULL : chat->tools;
    TRY(make_prompt(&prompt, g, chat, tools, e));
    int rc = LILY_OK;
    if (!chat->prompt_ids)
        rc = lily_replay_prompt(&prompt, lily_engine_replies(g), lily_engine_tokenizer(g), chat->messages, e);
    if (n_prompt) *n_prompt = (uint32_t)prompt.ids.n;
    lily_chat_run *r = rc == LILY_OK ? lily_calloc(1, sizeof *r) : NULL;
    if (rc == LILY_OK && !r) rc = lily_no_memory(e, sizeof *r, "a chat");
    if (r) {
        pthread_mutex_init(&r->lock, NULL);
        pthread_cond_init(&r->more, NULL);
        rc = submit(r, g, chat, tools, &prompt, e);
    }
    lily_chat_prompt_free(&prompt);
    if (rc == LILY_OK) *out = r;
    else lily_chat_free(r);
    return rc;
}

/* Waits for news until `seconds` have passed; the clock may jump, which makes one wait longer or shorter. */
static void wait_news(lily_chat_run *r, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    if (seconds >= 0) {
        until.tv_sec += (time_t)seconds;
        until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
    }
    pthread_mutex_lock(&r->lock);
    int timed_out = 0;
    while (!r->news && !timed_out)
        timed_out = seconds < 0 ? pthread_cond_wait(&r->more, &r->lock)
                                : pthread_cond_timedwait(&r->more, &r->lock, &until);
    r->news = false;
    pthread_mutex_unlock(&r->lock);
}

int lily_chat_wait(lily_chat_run *r, double seconds, bool *finished, lily_err *e)
{
    lily_event *ev = r->finished ? NULL : lily_request_next(r->request);
    if (!ev && !r->finished) {
        wait_news(r, seconds);
        ev = lily_request_next(r->request);
    }
    int rc = LILY_OK;
    while (ev && rc == LILY_OK) {
        bool was_complete = lily_answer_complete(r->answer);
        lily_call_heard(r->call, ev);
        if (r->replies && ev->kind == LILY_EVENT_TOKEN) lily_replay_note_token(&r->note, ev->id);
        r->note.ended = ev->kind == LILY_EVENT_END && ev->end == LILY_END_STOP && !was_complete;
        rc = lily_answer_feed(r->answer, ev, e);
        r->finished = ev->kind == LILY_EVENT_END;
        if (!was_complete && lily_answer_complete(r->answer)) lily_request_stop(r->request);
        lily_event_free(ev);
        ev = rc == LILY_OK && !r->finished ? lily_request_next(r->request) : NULL;
    }
    *finished = r->finished;
    return rc;
}

void lily_chat_cancel(lily_chat_run *r) { lily_request_cancel(r->request); }

void lily_chat_free(lily_chat_run *r)
{
    if (!r) return;
    if (r->request) lily_request_free(r->request);
    lily_answer_free(r->answer);
    lily_replay_note_free(&r->note);
    pthread_cond_destroy(&r->more);
    pthread_mutex_destroy(&r->lock);
    lily_free(r);
}
