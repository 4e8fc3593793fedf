/* api.h - what the handlers of all endpoints share.  Private to src/api.
 *
 * Small questions are answered inside the handler, on the network thread.  Whatever renders, encodes or waits for
 * the engine is a job with a thread of its own, which blocks as it likes. */
#ifndef LILY_API_API_H
#define LILY_API_API_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "api/chat.h"
#include "api/errors.h"
#include "api/guard.h"
#include "api/http.h"
#include "api/metrics.h"
#include "api/openai_request.h"
#include "run/engine.h"

typedef struct lily_api lily_api;
typedef struct lily_job lily_job;

typedef void lily_job_run(lily_job *job);

struct lily_job {
    lily_api *api;
    lily_http_req *req;         /* held */
    lily_job_run *run;
    lily_chat_run *chat;        /* cancelled when the client leaves; guarded by api->lock */
    lily_job *prev, *next;
};

struct lily_api {
    _Atomic(lily_engine *) engine;      /* NULL while loading */
    json_t *template_kwargs;            /* or NULL; constant */
    bool think_limited;                 /* thinking takes think_budget tokens where a request says nothing of it */
    uint32_t think_budget;
    int64_t created;                    /* Unix seconds of the start */
    lily_guard *guard;
    const char *trace_dir;              /* or NULL */
    const struct lily_server_options *options;
    lily_http *http;
    lily_metrics metrics;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    lily_job *jobs;
};

/* The engine, or NULL after the request was answered with 503: the model is still loading. */
lily_engine *lily_api_engine(lily_api *api, lily_http_req *req);

/* Runs `run` on a thread of its own; it must answer job->req. Answers 503 when there is no thread to be had. */
void lily_job_start(lily_api *api, lily_http_req *req, lily_job_run *run);
/* Such a job's whole work when it takes one JSON object and gives another: `work` takes over the body and appends to out. */
void lily_job_json(lily_job *job, int (*work)(const lily_job *job, json_t *body, lily_buf *out, lily_refusal *r));
/* From now on the chat is cancelled when the client leaves; NULL before it is freed. */
void lily_job_set_chat(lily_job *job, lily_chat_run *chat);
/* Server's end: cancels all chats; waits until no job is left. */
void lily_jobs_cancel(lily_api *api);
void lily_jobs_wait(lily_api *api);

/* Answers with the text in `out`, or with 503 when memory was lost; frees it. */
void lily_reply_json(lily_http_req *req, lily_buf *out);
void lily_reply_refusal(lily_http_req *req, const lily_refusal *r);
/* Defaults for lily_openai_request_read. */
lily_openai_defaults lily_api_defaults(const lily_api *api, lily_engine *g);

/* Handlers (http.h), by source. */
void lily_handle_chat(lily_http_req *req, void *api);           /* openai_chat.c */
void lily_handle_completions(lily_http_req *req, void *api);    /* completions.c */
void lily_handle_responses(lily_http_req *req, void *api);      /* responses.c */
void lily_handle_messages(lily_http_req *req, void *api);       /* anthropic_messages.c */
void lily_handle_count_tokens(lily_http_req *req, void *api);
void lily_handle_models(lily_http_req *req, void *api);         /* models.c */
void lily_handle_model(lily_http_req *req, void *api);
void lily_handle_health(lily_http_req *req, void *api);         /* ops.c */
void lily_handle_metrics(lily_http_req *req, void *api);
void lily_handle_forget(lily_http_req *req, void *api);
void lily_handle_props(lily_http_req *req, void *api);          /* props.c */
void lily_handle_script(lily_http_req *req, void *api);
void lily_handle_tokenize(lily_http_req *req, void *api);       /* tokens.c */
void lily_handle_detokenize(lily_http_req *req, void *api);
void lily_handle_apply_template(lily_http_req *req, void *api);

#endif
