/* server.c - the life of the server: port, loading, serving, the end.
 *
 * The main thread does nothing but wait for signals, which are blocked everywhere, so there is no handler and no
 * global state: SIGTERM and SIGINT from outside, SIGUSR1 from the thread that loads the model. */
#include "api/server.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include "api/api.h"
#include "api/page.h"
#include "base/json.h"
#include "base/log.h"

typedef struct server {
    lily_api api;
    lily_http *http;
    const lily_server_options *o;
    pthread_t main, loader;
    lily_engine *engine;            /* set by the loader, read after it was joined */
    atomic_bool stop;               /* the loader need not go on */
    int load_rc;
    lily_err load_err;
} server;

static const lily_http_route routes[] = {
    {"POST", "/v1/chat/completions", lily_handle_chat},
    {"POST", "/v1/responses", lily_handle_responses},
    {"POST", "/v1/messages", lily_handle_messages},
    {"POST", "/v1/messages/count_tokens", lily_handle_count_tokens},
    {"GET", "/v1/models", lily_handle_models},
    {"GET", "/v1/models/*", lily_handle_model},
    {"GET", "/health", lily_handle_health},
    {"POST", "/tokenize", lily_handle_tokenize},
    {"POST", "/detokenize", lily_handle_detokenize},
    {"POST", "/apply-template", lily_handle_apply_template},
    {"GET", "/script", lily_handle_script},
    {"GET", "/", lily_handle_page},
    {"GET", "/app.js", lily_handle_page},
    {"GET", "/markdown.js", lily_handle_page},
    {"GET", "/stream.js", lily_handle_page},
    {"GET", "/style.css", lily_handle_page},
    {"GET", "/icon.svg", lily_handle_page},
    {NULL, NULL, NULL},
};

static int read_kwargs(server *s, lily_err *e)
{
    const char *text = s->o->template_kwargs;
    if (!text) return LILY_OK;
    TRY(lily_json_parse(&s->api.template_kwargs, text, strlen(text), "template variables", e));
    if (json_is_object(s->api.template_kwargs)) return LILY_OK;
    return lily_fail(e, LILY_ARGUMENT, "template variables must be a JSON object");
}

static int open_http(server *s, lily_err *e)
{
    lily_http_options http = {.host = s->o->host,
                              .port = s->o->port,
                              .max_body_bytes = s->o->max_body_bytes ? s->o->max_body_bytes : LILY_DEFAULT_BODY,
                              .format_error = lily_http_error_json,
                              .routes = routes,
                              .arg = &s->api};
    TRY(lily_http_open(&s->http, &http, e));
    lily_log(LILY_LOG_INFO, "listening on http://%s:%d", http.host ? http.host : "127.0.0.1", lily_http_port(s->http));
    return LILY_OK;
}

/* ---- loading ---- */

static void *load(void *arg)
{
    server *s = arg;
    lily_engine_options o = s->o->engine;
    o.cancel = &s->stop;
    s->load_rc = lily_engine_open(&s->engine, &o, &s->load_err);
    pthread_kill(s->main, SIGUSR1);
    return NULL;
}

static int loaded(server *s, lily_err *e)
{
    pthread_join(s->loader, NULL);
    if (s->load_rc != LILY_OK) {
        *e = s->load_err;
        return s->load_rc;
    }
    atomic_store(&s->api.engine, s->engine);
    return LILY_OK;
}

/* ---- the end ---- */

static bool signalled(const sigset_t *ends)
{
    sigset_t pending;
    sigpending(&pending);
    bool any = (sigismember(ends, SIGTERM) && sigismember(&pending, SIGTERM)) || sigismember(&pending, SIGINT);
    int which;
    if (any) sigwait(ends, &which);
    return any;
}

static void finish_answers(server *s, const sigset_t *ends)
{
    lily_err e;
    lily_http_stop_accepting(s->http);
    while (lily_http_drain(s->http, 0.1, &e) == LILY_BUSY)
        if (signalled(ends)) lily_jobs_cancel(&s->api);
}

/* ---- serving ---- */

static int serve(server *s, const sigset_t *ends, lily_err *e)
{
    sigset_t all = *ends;
    sigaddset(&all, SIGUSR1);
    bool ready = false, stop = false;
    while (!ready || !stop) {    /* the loader is waited for: it owns what it has opened */
        int which;
        sigwait(&all, &which);
        if (which != SIGUSR1) {
            stop = true;
            atomic_store(&s->stop, true);
            continue;
        }
        ready = true;
        int rc = loaded(s, e);
        if (rc == LILY_CANCELLED) break;
        if (rc != LILY_OK) return rc;
        if (!stop) lily_log(LILY_LOG_INFO, "ready: %s on %s", lily_engine_model_name(s->engine),
                            lily_engine_device_text(s->engine));
    }
    lily_log(LILY_LOG_INFO, "stopping");
    finish_answers(s, ends);
    return LILY_OK;
}

static int run(server *s, const sigset_t *ends, lily_err *e)
{
    int rc;
    TRY_TO(done, read_kwargs(s, e));
    TRY_TO(done, open_http(s, e));
    if (pthread_create(&s->loader, NULL, load, s) != 0)
        rc = lily_fail(e, LILY_NO_MEMORY, "no thread to load the model on");
    else
        rc = serve(s, ends, e);
done:
    lily_http_close(s->http);
    lily_jobs_wait(&s->api);
    lily_engine_close(s->engine);
    json_decref(s->api.template_kwargs);
    return rc;
}

int lily_server_run(const lily_server_options *o, lily_err *e)
{
    server s = {.o = o, .main = pthread_self()};
    s.api.created = (int64_t)time(NULL);
    s.api.think_limited = o->think_limited;
    s.api.think_budget = o->think_budget;
    pthread_mutex_init(&s.api.lock, NULL);
    pthread_cond_init(&s.api.idle, NULL);
    sigset_t ends, all, before;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    all = ends;
    sigaddset(&all, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = run(&s, &ends, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_cond_destroy(&s.api.idle);
    pthread_mutex_destroy(&s.api.lock);
    return rc;
}
