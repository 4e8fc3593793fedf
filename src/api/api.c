#include "api/api.h"

#include "api/call.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    JOB_STACK = 2 * 1024 * 1024,    /* JSON and templates nest; some systems give threads very little */
    LARGE_BODY = 1 << 20,           /* parsed and rendered it took many times that */
};

/* ---- answers ---- */

void lily_reply_json(lily_http_req *req, lily_buf *out)
{
    lily_err e;
    if (lily_buf_ok(out, "an answer", &e) == LILY_OK)
        lily_http_reply(req, 200, "application/json", lily_buf_str(out), out->len, &e);
    else
        lily_http_reply_error(req, 503, e.text, &e);
    lily_buf_free(out);
}

void lily_reply_refusal(lily_http_req *req, const lily_refusal *r)
{
    lily_err e;
    lily_buf body = {0};
    int status = lily_refusal_status(r);
    lily_call_refused(lily_call_of(req), r);
    lily_refusal_json(r, lily_http_path(req), &body);
    if (status == 429 || status == 503) lily_http_set_header(req, "Retry-After", "1", &e);
    if (lily_buf_ok(&body, "an answer", &e) == LILY_OK)
        lily_http_reply(req, status, "application/json", body.data, body.len, &e);
    else
        lily_http_reply_error(req, status, r->err.text, &e);
    lily_buf_free(&body);
}

lily_engine *lily_api_engine(lily_api *api, lily_http_req *req)
{
    lily_engine *g = atomic_load(&api->engine);
    if (!g) {
        lily_refusal r = {.status = 503, .code = "loading"};
        lily_refuse(&r, LILY_BUSY, NULL, "the model is still loading");
        lily_reply_refusal(req, &r);
    }
    return g;
}

lily_openai_defaults lily_api_defaults(const lily_api *api, lily_engine *g)
{
    return (lily_openai_defaults){.sampling = lily_engine_sampling(g),
                                  .kwargs = api->template_kwargs,
                                  .think_limited = api->think_limited,
                                  .think_budget = api->think_budget,
                                  .n_vocab = lily_tokenizer_n_vocab(lily_engine_tokenizer(g))};
}

/* ---- jobs ---- */

static void link_job(lily_job *job)
{
    lily_api *api = job->api;
    pthread_mutex_lock(&api->lock);
    job->next = api->jobs;
    if (job->next) job->next->prev = job;
    api->jobs = job;
    pthread_mutex_unlock(&api->lock);
}

static void end_job(lily_job *job)
{
    lily_api *api = job->api;
    lily_http_unref(job->req);
    pthread_mutex_lock(&api->lock);
    if (job->prev) job->prev->next = job->next;
    else api->jobs = job->next;
    if (job->next) job->next->prev = job->prev;
    if (!api->jobs) pthread_cond_broadcast(&api->idle);
    pthread_mutex_unlock(&api->lock);
    lily_free(job);
}

static void *job_thread(void *arg)
{
    lily_job *job = arg;
    size_t n;
    (void)lily_http_body(job->req, &n);
    job->run(job);
    end_job(job);
    if (n > LARGE_BODY) lily_mem_trim();
    return NULL;
}

static int spawn(lily_job *job)
{
    pthread_attr_t attr;
    pthread_t thread;
    int failed = pthread_attr_init(&attr);
    if (failed) return failed;
    pthread_attr_setstacksize(&attr, JOB_STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    failed = pthread_create(&thread, &attr, job_thread, job);
    pthread_attr_destroy(&attr);
    return failed;
}

void lily_job_start(lily_api *api, lily_http_req *req, lily_job_run *run)
{
    lily_err e;
    lily_job *job = lily_calloc(1, sizeof *job);
    if (!job) {
        lily_http_reply_error(req, 503, "out of memory", &e);
        return;
    }
    *job = (lily_job){.api = api, .req = lily_http_ref(req), .run = run};
    link_job(job);
    if (spawn(job) == 0) return;
    lily_http_reply_error(req, 503, "no thread for this request", &e);
    end_job(job);
}

void lily_job_json(lily_job *job, int (*work)(const lily_job *job, json_t *body, lily_buf *out, lily_refusal *r))
{
    size_t n;
    const char *text = lily_http_body(job->req, &n);
    json_t *body;
    lily_buf out = {0};
    lily_refusal r = {0};
    int rc = lily_body_object(text, n, &body, &r);
    if (rc == LILY_OK) rc = work(job, body, &out, &r);
    if (rc == LILY_OK) {
        lily_reply_json(job->req, &out);
    } else {
        lily_reply_refusal(job->req, &r);
        lily_buf_free(&out);
    }
}

/* Looks the request up, for its job may be over by the time the client leaves. */
static void on_gone(lily_http_req *req, void *arg)
{
    lily_api *api = arg;
    pthread_mutex_lock(&api->lock);
    for (lily_job *job = api->jobs; job; job = job->next)
        if (job->req == req && job->chat) lily_chat_cancel(job->chat);
    pthread_mutex_unlock(&api->lock);
}

void lily_job_set_chat(lily_job *job, lily_chat_run *chat)
{
    pthread_mutex_lock(&job->api->lock);
    job->chat = chat;
    pthread_mutex_unlock(&job->api->lock);
    if (chat) lily_http_on_gone(job->req, on_gone, job->api);
}

void lily_jobs_cancel(lily_api *api)
{
    pthread_mutex_lock(&api->lock);
    for (lily_job *job = api->jobs; job; job = job->next)
        if (job->chat) lily_chat_cancel(job->chat);
    pthread_mutex_unlock(&api->lock);
}

void lily_jobs_wait(lily_api *api)
{
    pthread_mutex_lock(&api->lock);
    while (api->jobs) pthread_cond_wait(&api->idle, &api->lock);
    pthread_mutex_unlock(&api->lock);
}
