#include "api/talk.h"

#include <errno.h>
#include <stdlib.h>

#include "api/call.h"
#include "base/clock.h"
#include "base/mem.h"

#define COMMIT_SECONDS 0.25
#define SLOW_CLIENT_SECONDS 60.0

enum { SEND_AT = 32 * 1024 };    /* bytes of events; far below what the HTTP layer holds for a client */

typedef struct talk {
    lily_job *job;
    const lily_protocol *protocol;
    void *self;
    lily_talk_request q;
    lily_buf out;               /* events not yet given to the HTTP layer; or the answer */
    bool begun;                 /* status 200 was sent: errors are events from now on */
    bool last;                  /* the answer that runs is the last one */
    uint64_t start;             /* when the first was asked for */
    lily_refusal refusal;
} talk;

/* ---- errors ---- */

static void fail_before(talk *t) { lily_reply_refusal(t->job->req, &t->refusal); }

static void fail_within(talk *t)
{
    lily_call_refused(lily_call_of(t->job->req), &t->refusal);
    t->protocol->fail(t->self, &t->refusal, &t->out);
}

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
    if (t->begun) fail_within(t);
    else fail_before(t);
    return LILY_OK;
}

static bool gave_up(const lily_answer_event *ev)
{
    return ev->kind == LILY_ANSWER_FINISH &&
           (ev->finish == LILY_FINISH_ERROR || ev->finish == LILY_FINISH_CANCELLED);
}

/* ---- streamed ---- */

static int begin_stream(talk *t, lily_err *e)
{
    lily_http_req *req = t->job->req;
    if (t->protocol->keep_alive) lily_http_set_keep_alive(req, t->protocol->keep_alive);
    TRY(lily_http_stream_begin(req, "text/event-stream", e));
    t->begun = true;
    return LILY_OK;
}

static int send_events(talk *t, lily_err *e)
{
    lily_http_req *req = t->job->req;
    TRY(lily_buf_ok(&t->out, "a stream", e));
    if (!t->begun) TRY(begin_stream(t, e));
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
    t->protocol->event(t->self, ev, &t->out);
    return t->out.len > SEND_AT ? send_events(t, e) : LILY_OK;
}

static int stream_answer(talk *t, lily_chat_run *run, lily_err *e)
{
    bool finished = false;
    while (!finished) {
        double left = COMMIT_SECONDS - lily_seconds_since(t->start);
        TRY(lily_chat_wait(run, t->begun ? -1 : left > 0 ? left : 0, &finished, e));
        if (t->refusal.err.code && !t->begun) return LILY_OK;    /* answered with a status */
        if (!t->begun && t->out.len == 0 && lily_seconds_since(t->start) < COMMIT_SECONDS) continue;
        if (!finished) t->protocol->open(t->self, &t->out);
        TRY(send_events(t, e));
    }
    bool ends = t->last || t->refusal.err.code;
    return ends ? lily_http_stream_end(t->job->req, e) : LILY_OK;
}

/* ---- not streamed ---- */

static int on_answer(void *user, const lily_answer_event *ev, lily_err *e)
{
    talk *t = user;
    if (gave_up(ev)) return engine_failed(t, ev);
    t->protocol->gather(t->self, ev);
    if (ev->kind != LILY_ANSWER_FINISH || !t->last) return LILY_OK;
    TRY(t->protocol->whole(t->self, ev, &t->out, e));
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

/* A replay (docs/operations.md) gives the seed beside the body, which stays as it was. */
static int read_seed(talk *t)
{
    const char *text = lily_http_header(t->job->req, "x-lily-seed");
    if (!text) return LILY_OK;
    char *end;
    errno = 0;
    long long seed = strtoll(text, &end, 10);
    if (!*text || *end || errno)
        return lily_refuse(&t->refusal, LILY_ARGUMENT, "x-lily-seed", "x-lily-seed is not a whole number of 64 bits");
    t->q.chat->sampling.seed = (uint64_t)seed;
    return LILY_OK;
}

static int read_request(talk *t)
{
    size_t n;
    const char *text = lily_http_body(t->job->req, &n);
    json_t *body;
    lily_call_talks(lily_call_of(t->job->req), t->job->api, t->q.engine, t->job->req);
    TRY(lily_body_object(text, n, &body, &t->refusal));
    TRY(t->protocol->read(t->self, &t->q, body, &t->refusal));
    TRY(read_seed(t));
    lily_chat *chat = t->q.chat;
    chat->endpoint = lily_http_path(t->job->req);
    chat->script_reply = script_reply(t->job->req);
    chat->call = lily_call_of(t->job->req);
    chat->sink = t->q.stream ? on_stream : on_answer;
    chat->user = t;
    return LILY_OK;
}

static int start(talk *t, lily_chat_run **run)
{
    uint32_t n_prompt = 0;
    lily_refusal *r = &t->refusal;
    int rc = lily_chat_start(run, t->q.engine, t->q.chat, &n_prompt, &r->err);
    if (rc == LILY_OK) return rc;
    lily_name_messages(r);
    if (rc == LILY_CONTEXT && n_prompt > 0) {
        r->n_prompt = n_prompt;
        r->n_ctx = lily_engine_context(t->q.engine);
    }
    if (t->protocol->refused) t->protocol->refused(t->self, r);
    return rc;
}

static int answer(talk *t, lily_chat_run *run)
{
    lily_err e = {0};
    lily_job_set_chat(t->job, run);
    int rc = t->q.stream ? stream_answer(t, run, &e) : whole_answer(run, &e);
    lily_job_set_chat(t->job, NULL);
    if (rc == LILY_OK) return t->refusal.err.code;    /* told by an event */
    /* A client that left needs no words; the HTTP layer ends a stream that its job drops. */
    if (rc != LILY_CANCELLED && !t->begun)
        lily_http_reply_error(t->job->req, lily_err_http_status(rc), e.text, &e);
    return rc;
}

/* An answer that could not even be asked for. */
static void fail_to_start(talk *t)
{
    lily_err e;
    if (!t->begun) {
        fail_before(t);
        return;
    }
    fail_within(t);
    if (send_events(t, &e) == LILY_OK) lily_http_stream_end(t->job->req, &e);
}

static void give_answers(talk *t)
{
    size_t n = t->q.n_answers ? t->q.n_answers : 1;
    t->start = lily_now_ns();
    int rc = LILY_OK;
    for (size_t i = 0; i < n && rc == LILY_OK; i++) {
        lily_chat_run *run = NULL;
        t->last = i + 1 == n;
        if (i > 0) t->protocol->next(t->self, i);
        rc = start(t, &run);
        if (rc != LILY_OK) {
            fail_to_start(t);
        } else {
            if (i == 0 && t->protocol->begin) t->protocol->begin(t->self, &t->q);
            rc = answer(t, run);
        }
        lily_chat_free(run);
    }
}

void lily_talk(lily_job *job, const lily_protocol *p)
{
    talk t = {.job = job, .protocol = p, .self = lily_calloc(1, p->size)};
    t.q = (lily_talk_request){.api = job->api, .engine = atomic_load(&job->api->engine)};
    int rc = t.self ? LILY_OK : lily_no_memory(&t.refusal.err, p->size, "a request");
    if (rc == LILY_OK) rc = read_request(&t);
    if (rc == LILY_OK) give_answers(&t);
    else fail_before(&t);
    if (t.self) p->free(t.self);
    lily_free(t.self);
    lily_buf_free(&t.out);
}
