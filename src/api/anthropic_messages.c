/* anthropic_messages.c - POST /v1/messages, streamed or not, and POST /v1/messages/count_tokens.
 *
 * Anthropic's headers (anthropic-version, anthropic-beta) and the query ?beta=true change nothing here. */
#include "api/anthropic_json.h"
#include "api/anthropic_request.h"
#include "api/talk.h"

typedef struct messages_talk {
    lily_openai_request q;
    lily_anthropic_head head;
    lily_anthropic_stream stream;
    lily_anthropic_answer answer;
} messages_talk;

/* Takes over the body. */
static int read_messages(void *self, lily_talk_request *q, json_t *body, lily_refusal *r)
{
    messages_talk *t = self;
    lily_openai_defaults d = lily_api_defaults(q->api, q->engine);
    json_t *chat;
    int rc = lily_anthropic_chat_body(body, d.kwargs, &chat, r);
    json_decref(body);
    if (rc == LILY_OK) rc = lily_openai_request_read(&t->q, chat, &d, r);
    if (rc != LILY_OK) lily_anthropic_names(r);
    q->chat = &t->q.chat;
    q->stream = t->q.stream;
    return rc;
}

static void begin_messages(void *self, const lily_talk_request *q)
{
    messages_talk *t = self;
    lily_anthropic_head_init(&t->head, lily_engine_model_name(q->engine));
    t->head.stop = t->q.stop;
    t->head.stop_len = t->q.stop_len;
    t->stream.head = t->answer.head = &t->head;
}

static void refused(void *self, lily_refusal *r)
{
    (void)self;
    lily_anthropic_names(r);
}

static void free_messages(void *self)
{
    messages_talk *t = self;
    lily_anthropic_answer_free(&t->answer);
    lily_openai_request_free(&t->q);
}

static void open_stream(void *self, lily_buf *out)
{
    lily_anthropic_stream_open(&((messages_talk *)self)->stream, out);
}

static void stream_event(void *self, const lily_answer_event *ev, lily_buf *out)
{
    lily_anthropic_stream_event(&((messages_talk *)self)->stream, ev, out);
}

static void fail_stream(void *self, const lily_refusal *r, lily_buf *out)
{
    (void)self;
    lily_buf_puts(out, "event: error\ndata: ");
    lily_refusal_json(r, "/v1/messages", out);
    lily_buf_puts(out, "\n\n");
}

static void gather(void *self, const lily_answer_event *ev)
{
    lily_anthropic_answer_event(&((messages_talk *)self)->answer, ev);
}

static int whole(void *self, const lily_answer_event *ev, lily_buf *out, lily_err *e)
{
    return lily_anthropic_answer_json(&((messages_talk *)self)->answer, ev, out, e);
}

static const lily_protocol anthropic_messages = {
    .size = sizeof(messages_talk),
    .read = read_messages,
    .begin = begin_messages,
    .refused = refused,
    .free = free_messages,
    .open = open_stream,
    .event = stream_event,
    .fail = fail_stream,
    .keep_alive = lily_anthropic_ping,
    .gather = gather,
    .whole = whole,
};

static void messages_job(lily_job *job) { lily_talk(job, &anthropic_messages); }

/* ---- counting ---- */

static int count_tokens(const lily_job *job, json_t *body, lily_buf *out, lily_refusal *r)
{
    lily_engine *g = atomic_load(&job->api->engine);
    lily_openai_defaults d = lily_api_defaults(job->api, g);
    json_t *chat;
    int rc = lily_anthropic_chat_body(body, d.kwargs, &chat, r);
    json_decref(body);
    if (rc != LILY_OK) return rc;
    lily_chat_prompt prompt = {0};
    TRY(lily_openai_prompt_make(&prompt, g, chat, &d, r));
    lily_buf_printf(out, "{\"input_tokens\":%zu}", prompt.ids.n);
    lily_chat_prompt_free(&prompt);
    return LILY_OK;
}

static void count_job(lily_job *job) { lily_job_json(job, count_tokens); }

void lily_handle_messages(lily_http_req *req, void *api)
{
    if (lily_api_engine(api, req)) lily_job_start(api, req, messages_job);
}

void lily_handle_count_tokens(lily_http_req *req, void *api)
{
    if (lily_api_engine(api, req)) lily_job_start(api, req, count_job);
}
