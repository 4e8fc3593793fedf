/* completions.c - POST /v1/completions, streamed or not: raw prompts, and text as it comes. */
#include "api/completions_json.h"
#include "api/talk.h"

typedef struct completions_talk {
    lily_completions_request q;
    lily_completions_writer writer;
    uint64_t seed;              /* of the first answer to a prompt */
} completions_talk;

static int read_request(void *self, lily_talk_request *q, json_t *body, lily_refusal *r)
{
    completions_talk *t = self;
    lily_openai_defaults d = lily_api_defaults(q->api, q->engine);
    lily_completions_limits limits = {.tokenizer = lily_engine_tokenizer(q->engine),
                                      .vocab = lily_engine_config(q->engine)->vocab,
                                      .context = lily_engine_context(q->engine)};
    TRY(lily_completions_request_read(&t->q, body, &d, &limits, r));
    q->chat = &t->q.q.chat;
    q->stream = t->q.q.stream;
    q->n_answers = t->q.n_prompts * (size_t)t->q.q.n;
    return LILY_OK;
}

static void begin(void *self, const lily_talk_request *q)
{
    completions_talk *t = self;
    t->seed = q->chat->sampling.seed;
    lily_completions_writer_init(&t->writer, &t->q, lily_engine_model_name(q->engine),
                                 lily_engine_tokenizer(q->engine));
}

static void next(void *self, size_t i)
{
    completions_talk *t = self;
    size_t n = (size_t)t->q.q.n;
    t->q.q.chat.prompt_ids = &t->q.prompts[i / n].ids;
    t->q.q.chat.sampling.seed = t->seed + i % n;
}

static void free_talk(void *self)
{
    completions_talk *t = self;
    lily_completions_writer_free(&t->writer);
    lily_completions_request_free(&t->q);
}

/* There is nothing to say before the first text. */
static void open_stream(void *self, lily_buf *out)
{
    (void)self;
    (void)out;
}

static void event(void *self, const lily_answer_event *ev, lily_buf *out)
{
    lily_completions_event(&((completions_talk *)self)->writer, ev, out);
}

static void fail(void *self, const lily_refusal *r, lily_buf *out)
{
    (void)self;
    lily_buf_puts(out, "data: ");
    lily_refusal_json(r, "/v1/completions", out);
    lily_buf_puts(out, "\n\n");
}

static void gather(void *self, const lily_answer_event *ev)
{
    lily_completions_gather(&((completions_talk *)self)->writer, ev);
}

static int whole(void *self, const lily_answer_event *ev, lily_buf *out, lily_err *e)
{
    (void)ev;
    return lily_completions_whole(&((completions_talk *)self)->writer, out, e);
}

static const lily_protocol completions = {
    .size = sizeof(completions_talk),
    .read = read_request,
    .begin = begin,
    .next = next,
    .free = free_talk,
    .open = open_stream,
    .event = event,
    .fail = fail,
    .gather = gather,
    .whole = whole,
};

static void completions_job(lily_job *job) { lily_talk(job, &completions); }

void lily_handle_completions(lily_http_req *req, void *api)
{
    if (lily_api_engine(api, req)) lily_job_start(api, req, completions_job);
}
