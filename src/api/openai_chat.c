/* openai_chat.c - POST /v1/chat/completions, streamed or not: one job a request.
 *
 * A stream's status and headers are held back until there is something to say, but no longer than COMMIT_SECONDS:
 * what fails at once is then an HTTP error, and a client that waits in the queue or for a long prompt still sees
 * at once that it was heard.  From then on keep-alive comments come from the HTTP layer's clock. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/json_out.h"
#include "api/openai_json.h"
#include "base/clock.h"

#define COMMIT_SECONDS 0.25
#define SLOW_CLIENT_SECONDS 60.0

enum { SEND_AT = 32 * 1024 };    /* bytes of events; far below what the HTTP layer holds for a client */

typedef struct talk {
    lily_job *job;
    lily_engine *engine;
    lily_openai_request q;
    lily_openai_head head;
    lily_openai_stream stream;
    lily_openai_answer answer;
    lily_buf out;               /* events not yet given to the HTTP layer; or the answer */
    bool begun;                 /* status 200 was sent: errors are events from now on */
    lily_refusal refusal;
} talk;

/* ---- errors ---- */

static void fail_before(talk *t) { lily_reply_refusal(t->job->req, &t->refusal); }

/* An engine that gave up: a status while there is still one to choose, an event in the stream after that. */
static int engine_failed(talk *t, const lily_answer_event *ev)
{
    lily_refusal *r = &t->refusal;
    if (ev->finish == LILY_FINISH_CANCELLED) {
        r->status = 503;
        lily_refuse(r, LILY_BUSY, NULL, "the server is stopping");
    } else {
        r->err = *ev->err;
        r->code = ev->err_code;
    }
    if (t->q.stream && t->begun) {
        lily_buf_puts(&t->out, "data: ");
        lily_refusal_json(r, &t->out);
        lily_buf_puts(&t->out, "\n\n");
    } else {
        fail_before(t);
    }
    return LILY_OK;
}

static bool gave_up(const lily_answer_event *ev)
{
    return ev->kind == LILY_ANSWER_FINISH &&
           (ev->finish == LILY_FINISH_ERROR || ev->finish == LILY_FINISH_CANCELLED);
}

/* ---- streamed ---- */

static int send_events(talk *t, lily_err *e)
{
    lily_http_req *req = t->job->req;
    TRY(lily_buf_ok(&t->out, "a stream", e));
    if (!t->begun) {
        TRY(lily_http_set_header(req, "Cache-Control", "no-cache", e));
        TRY(lily_http_set_header(req, "X-Accel-Buffering", "no", e));    /* nginx would hold a stream back */
        TRY(lily_http_stream_begin(req, "text/event-stream", e));
        t->begun = true;
    }
    if (t->out.len == 0) return LILY_OK;
    int rc = lily_http_stream_write(req, t->out.data, t->out.len, e);
    if (rc == LILY_BUSY) {
        TRY(lily_http_wait_room(req, t->out.len, SLOW_CLIENT_SECONDS, e));
        rc = lily_http_stream_write(req, t->out.data, t->out.len, e);
    }
    lily_buf_clear(&t->out);
    return rc;
}

static int on_stream(void *user, const lily_answer_event *ev, lily_err *e)
{
    talk *t = user;
    if (gave_up(ev)) return engine_failed(t, ev);
    lily_openai_stream_event(&t->stream, ev, &t->out);
    return t->out.len > SEND_AT ? send_events(t, e) : LILY_OK;
}

static int stream_answer(talk *t, lily_chat_run *run, lily_err *e)
{
    uint64_t start = lily_now_ns();
    bool finished = false;
    while (!finished) {
        double left = COMMIT_SECONDS - lily_seconds_since(start);
        TRY(lily_chat_wait(run, t->begun ? -1 : left > 0 ? left : 0, &finished, e));
        if (t->refusal.err.code && !t->begun) return LILY_OK;    /* answered with a status */
        if (!t->begun && t->out.len == 0 && lily_seconds_since(start) < COMMIT_SECONDS) continue;
        lily_openai_stream_open(&t->stream, &t->out);
        TRY(send_events(t, e));
    }
    return lily_http_stream_end(t->job->req, e);
}

/* ---- not streamed ---- */

static int on_answer(void *user, const lily_answer_event *ev, lily_err *e)
{
    talk *t = user;
    if (gave_up(ev)) return engine_failed(t, ev);
    lily_openai_answer_event(&t->answer, ev);
    if (ev->kind != LILY_ANSWER_FINISH) return LILY_OK;
    TRY(lily_openai_answer_json(&t->answer, ev, &t->out, e));
    return lily_http_reply(t->job->req, 200, "application/json", t->out.data, t->out.len, e);
}

static int whole_answer(lily_chat_run *run, lily_err *e)
{
    for (bool finished = false; !finished;) TRY(lily_chat_wait(run, -1, &finished, e));
    return LILY_OK;
}

/* ---- the job ---- */

static int32_t script_reply(const lily_http_req *req)
{
    const char *text = lily_http_header(req, "x-lily-reply");
    if (!text || !*text) return -1;
    char *end;
    long n = strtol(text, &end, 10);
    return *end || n < 0 || n > INT32_MAX ? -1 : (int32_t)n;
}

static int read_request(talk *t)
{
    size_t n;
    const char *text = lily_http_body(t->job->req, &n);
    json_t *body;
    lily_openai_defaults d = lily_api_defaults(t->job->api, t->engine);
    TRY(lily_body_object(text, n, &body, &t->refusal));
    TRY(lily_openai_request_read(&t->q, body, &d, &t->refusal));
    t->q.chat.endpoint = lily_http_path(t->job->req);
    t->q.chat.script_reply = script_reply(t->job->req);
    t->q.chat.sink = t->q.stream ? on_stream : on_answer;
    t->q.chat.user = t;
    return LILY_OK;
}

static int start(talk *t, lily_chat_run **run)
{
    uint32_t n_prompt = 0;
    int rc = lily_chat_start(run, t->engine, &t->q.chat, &n_prompt, &t->refusal.err);
    if (rc == LILY_OK) return rc;
    lily_name_messages(&t->refusal);
    if (rc == LILY_CONTEXT && n_prompt > 0) {
        t->refusal.n_prompt = n_prompt;
        t->refusal.n_ctx = lily_engine_context(t->engine);
    }
    return rc;
}

static void answer(talk *t, lily_chat_run *run)
{
    lily_err e = {0};
    lily_openai_head_init(&t->head, lily_engine_model_name(t->engine), lily_engine_tokenizer(t->engine));
    t->stream = (lily_openai_stream){.head = &t->head,
                                     .include_usage = t->q.include_usage,
                                     .return_progress = t->q.return_progress};
    t->answer = (lily_openai_answer){.head = &t->head, .with_logprobs = t->q.chat.sampling.logprobs};
    lily_job_set_chat(t->job, run);
    int rc = t->q.stream ? stream_answer(t, run, &e) : whole_answer(run, &e);
    /* A client that left needs no words; the HTTP layer ends a stream that its job drops. */
    if (rc != LILY_OK && rc != LILY_CANCELLED && !t->begun)
        lily_http_reply_error(t->job->req, lily_err_http_status(rc), e.text, &e);
    lily_job_set_chat(t->job, NULL);
}

static void chat_job(lily_job *job)
{
    talk t = {.job = job, .engine = atomic_load(&job->api->engine)};
    lily_chat_run *run = NULL;
    if (read_request(&t) == LILY_OK && start(&t, &run) == LILY_OK) answer(&t, run);
    else fail_before(&t);
    lily_chat_free(run);
    lily_openai_answer_free(&t.answer);
    lily_openai_request_free(&t.q);
    lily_buf_free(&t.out);
}

void lily_handle_chat(lily_http_req *req, void *api)
{
    if (lily_api_engine(api, req)) lily_job_start(api, req, chat_job);
}
