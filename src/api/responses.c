/* responses.c - POST /v1/responses, streamed or not; nothing is stored. */
#include "api/responses_json.h"
#include "api/talk.h"

typedef struct responses_talk {
    lily_responses_request q;
    lily_responses_writer writer;
} responses_talk;

static int read_request(void *self, lily_talk_request *q, json_t *body, lily_refusal *r)
{
    responses_talk *t = self;
    lily_openai_defaults d = lily_api_defaults(q->api, q->engine);
    TRY(lily_responses_request_read(&t->q, body, &d, r));
    q->chat = &t->q.chat.chat;
    q->stream = t->q.chat.stream;
    return LILY_OK;
}

static void begin(void *self, const lily_talk_request *q)
{
    responses_talk *t = self;
    lily_responses_writer_init(&t->writer, &t->q, lily_engine_model_name(q->engine),
                               lily_engine_tokenizer(q->engine));
}

static void refused(void *self, lily_refusal *r)
{
    (void)self;
    lily_responses_rename(r);
}

static void free_talk(void *self)
{
    responses_talk *t = self;
    lily_responses_writer_free(&t->writer);
    lily_responses_request_free(&t->q);
}

static void open_stream(void *self, lily_buf *out) { lily_responses_open(&((responses_talk *)self)->writer, out); }

static void event(void *self, const lily_answer_event *ev, lily_buf *out)
{
    lily_responses_event(&((responses_talk *)self)->writer, ev, out);
}

static void fail(void *self, const lily_refusal *r, lily_buf *out)
{
    lily_responses_fail(&((responses_talk *)self)->writer, r, out);
}

static void gather(void *self, const lily_answer_event *ev)
{
    lily_responses_gather(&((responses_talk *)self)->writer, ev);
}

static int whole(void *self, const lily_answer_event *ev, lily_buf *out, lily_err *e)
{
    return lily_responses_whole(&((responses_talk *)self)->writer, ev, out, e);
}

static const lily_protocol responses = {
    .size = sizeof(responses_talk),
    .read = read_request,
    .begin = begin,
    .refused = refused,
    .free = free_talk,
    .open = open_stream,
    .event = event,
    .fail = fail,
    .gather = gather,
    .whole = whole,
};

static void responses_job(lily_job *job) { lily_talk(job, &responses); }

void lily_handle_responses(lily_http_req *req, void *api)
{
    if (lily_api_engine(api, req)) lily_job_start(api, req, responses_job);
}
