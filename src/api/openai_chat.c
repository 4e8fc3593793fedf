/* openai_chat.c - POST /v1/chat/completions, streamed or not. */
#include "api/openai_json.h"
#include "api/talk.h"

typedef struct chat_talk {
    lily_openai_request q;
    lily_openai_head head;
    lily_openai_stream stream;
    lily_openai_answer answer;
} chat_talk;

static int read_chat(void *self, lily_talk_request *q, json_t *body, lily_refusal *r)
{
    chat_talk *t = self;
    lily_openai_defaults d = lily_api_defaults(q->api, q->engine);
    TRY(lily_openai_request_read(&t->q, body, &d, r));
    q->chat = &t->q.chat;
    q->stream = t->q.stream;
    q->n_answers = (size_t)t->q.n;
    return LILY_OK;
}

static void begin_chat(void *self, const lily_talk_request *q)
{
    chat_talk *t = self;
    lily_openai_head_init(&t->head, lily_engine_model_name(q->engine), lily_engine_tokenizer(q->engine));
    t->stream = (lily_openai_stream){.head = &t->head,
                                     .include_usage = t->q.include_usage,
                                     .return_progress = t->q.return_progress,
                                     .n_answers = (size_t)t->q.n};
    t->answer = (lily_openai_answer){.head = &t->head, .with_logprobs = t->q.chat.sampling.logprobs};
}

/* The prompt is read once: what was kept of it is all that the next answer needs. */
static void next_answer(void *self, size_t i)
{
    (void)i;
    ((chat_talk *)self)->q.chat.sampling.seed++;
}

static void free_chat(void *self)
{
    chat_talk *t = self;
    lily_openai_answer_free(&t->answer);
    lily_openai_request_free(&t->q);
}

static void open_stream(void *self, lily_buf *out) { lily_openai_stream_open(&((chat_talk *)self)->stream, out); }

static void stream_event(void *self, const lily_answer_event *ev, lily_buf *out)
{
    lily_openai_stream_event(&((chat_talk *)self)->stream, ev, out);
}

static void fail_stream(void *self, const lily_refusal *r, lily_buf *out)
{
    (void)self;
    lily_buf_puts(out, "data: ");
    lily_refusal_json(r, "/v1/chat/completions", out);
    lily_buf_puts(out, "\n\n");
}

static void gather(void *self, const lily_answer_event *ev)
{
    lily_openai_answer_event(&((chat_talk *)self)->answer, ev);
}

static int whole(void *self, const lily_answer_event *ev, lily_buf *out, lily_err *e)
{
    (void)ev;
    return lily_openai_answer_json(&((chat_talk *)self)->answer, out, e);
}

static const lily_protocol openai_chat = {
    .size = sizeof(chat_talk),
    .read = read_chat,
    .begin = begin_chat,
    .next = next_answer,
    .free = free_chat,
    .open = open_stream,
    .event = stream_event,
    .fail = fail_stream,
    .gather = gather,
    .whole = whole,
};

static void chat_job(lily_job *job) { lily_talk(job, &openai_chat); }

void lily_handle_chat(lily_http_req *req, void *api)
{
    if (lily_api_engine(api, req)) lily_job_start(api, req, chat_job);
}
