/* server.c - the life of the server: port, loading, serving, the end.
 *
 * The main thread does nothing but wait for signals, which are blocked everywhere, so there is no handler and no
 * global state: SIGTERM and SIGINT from outside, SIGUSR1 from the thread that loads the model. */
#include "api/server.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include "api/api.h"
#include "api/call.h"
#include "api/page.h"
#include "api/supervisor.h"
#include "api/trace.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

typedef struct server {
    lily_api api;
    const lily_server_options *o;
    lily_supervisor supervisor;
    uint64_t turns;                 /* of the network thread, when it was last looked at */
    pthread_t main, loader;
    lily_engine *engine;            /* set by the loader, read after it was joined */
    atomic_bool stop;               /* the loader need not go on */
    int load_rc;
    lily_err load_err;
} server;

static const lily_http_route routes[] = {
    {"POST", "/v1/chat/completions", lily_handle_chat},
    {"POST", "/v1/completions", lily_handle_completions},
    {"POST", "/v1/responses", lily_handle_responses},
    {"POST", "/v1/messages", lily_handle_messages},
    {"POST", "/v1/messages/count_tokens", lily_handle_count_tokens},
    {"GET", "/v1/models", lily_handle_models},
    {"GET", "/v1/models/*", lily_handle_model},
    {"GET", "/health", lily_handle_health},
    {"POST", "/tokenize", lily_handle_tokenize},
    {"POST", "/detokenize", lily_handle_detokenize},
    {"POST", "/apply-template", lily_handle_apply_template},
    {"GET", "/metrics", lily_handle_metrics},
    {"GET", "/props", lily_handle_props},
    {"DELETE", "/cache", lily_handle_forget},
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
    int rc = lily_json_parse(&s->api.template_kwargs, text, strlen(text), "--chat-template-kwargs", e);
    if (rc == LILY_FORMAT) return e->code = LILY_ARGUMENT;    /* no file is damaged */
    if (rc != LILY_OK) return rc;
    if (json_is_object(s->api.template_kwargs)) return LILY_OK;
    return lily_fail(e, LILY_ARGUMENT, "--chat-template-kwargs must be a JSON object");
}

static int open_guard(server *s, const lily_http_options *http, lily_err *e)
{
    lily_guard_options o = s->o->guard;
    TRY(lily_http_reach(http, &o.reach, e));
    TRY(lily_guard_new(&s->api.guard, &o, e));
    if (o.reach != LILY_REACH_NETWORK || lily_guard_has_key(s->api.guard)) return LILY_OK;
    if (!s->o->no_key)
        return lily_fail(e, LILY_ARGUMENT,
                         "other machines can reach this address, and there is no key: give --api-key-file FILE, or "
                         "--no-api-key if anyone may ask");
    lily_log(LILY_LOG_WARN, "anyone who reaches this address may ask: there is no key");
    return LILY_OK;
}

static void say_where(const server *s)
{
    const lily_http_options *h = lily_http_in_force(s->api.http);
    if (h->listen_fd > 0) lily_log(LILY_LOG_INFO, "listening on a socket that was passed");
    else if (h->unix_path) lily_log(LILY_LOG_INFO, "listening on %s", h->unix_path);
    else lily_log(LILY_LOG_INFO, strchr(h->host, ':') ? "listening on http://[%s]:%d" : "listening on http://%s:%d", h->host,
                  lily_http_port(s->api.http));
}

static int open_http(server *s, lily_err *e)
{
    lily_http_options http = s->o->http;
    TRY(lily_supervisor_meet(&s->supervisor, &http.listen_fd, e));
    if (!http.max_body_bytes) http.max_body_bytes = LILY_DEFAULT_BODY;
    http.format_error = lily_http_error_json;
    http.admit = lily_call_admit;
    http.over = lily_call_over;
    http.routes = routes;
    http.arg = &s->api;
    TRY(open_guard(s, &http, e));
    if (s->o->trace_dir) TRY(lily_trace_folder(s->o->trace_dir, e));
    TRY(lily_http_open(&s->api.http, &http, e));
    say_where(s);
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

/* ---- signs of life ---- */

/* The network thread has turned since it was last asked to: it serves. */
static void feed_watchdog(server *s)
{
    if (!s->supervisor.watchdog_ns) return;
    uint64_t turns = lily_http_turns(s->api.http);
    if (turns != s->turns) lily_supervisor_tell(&s->supervisor, "WATCHDOG=1");
    s->turns = turns;
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

/* The network thread gets a while to say that answers were cancelled; a client that does not read is not waited for. */
#define CANCELLED_SECONDS 2.0

static void finish_answers(server *s, const sigset_t *ends)
{
    lily_err e;
    uint64_t since = lily_now_ns();
    double patience = s->o->stop_seconds;
    bool cancelled = false;
    lily_http_stop_accepting(s->api.http);
    while (lily_http_drain(s->api.http, 0.1, &e) == LILY_BUSY) {
        feed_watchdog(s);
        if (!signalled(ends) && lily_seconds_since(since) < patience) continue;
        if (cancelled) return;
        lily_jobs_cancel(&s->api);
        cancelled = true;
        since = lily_now_ns();
        patience = CANCELLED_SECONDS;
    }
}

/* ---- serving ---- */

/* The next signal, or 0 when it is time for a sign of life. */
static int wait_signal(server *s, const sigset_t *set)
{
    int which;
#ifdef __linux__
    if (s->supervisor.watchdog_ns) {
        uint64_t ns = s->supervisor.watchdog_ns / 3;
        struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
        which = sigtimedwait(set, NULL, &time);
        return which > 0 ? which : 0;
    }
#endif
    sigwait(set, &which);
    return which;
}

static int ready(server *s, bool stopping, lily_err *e)
{
    TRY(loaded(s, e));
    if (stopping) return LILY_OK;
    lily_log(LILY_LOG_INFO, "ready: %s on %s", lily_engine_model_name(s->engine), lily_engine_device_text(s->engine));
    lily_supervisor_tell(&s->supervisor, "READY=1\nSTATUS=serving");
    return LILY_OK;
}

static int serve(server *s, const sigset_t *ends, lily_err *e)
{
    sigset_t all = *ends;
    sigaddset(&all, SIGUSR1);
    bool is_ready = false, stop = false;
    while (!is_ready || !stop) {    /* the loader is waited for: it owns what it has opened */
        int which = wait_signal(s, &all);
        if (which == 0) {
            feed_watchdog(s);
        } else if (which == SIGUSR1) {
            is_ready = true;
            int rc = ready(s, stop, e);
            if (rc == LILY_CANCELLED) break;
            if (rc != LILY_OK) return rc;
        } else {
            stop = true;
            atomic_store(&s->stop, true);
        }
    }
    lily_log(LILY_LOG_INFO, "stopping");
    lily_supervisor_tell(&s->supervisor, "STOPPING=1\nSTATUS=finishing answers");
    finish_answers(s, ends);
    return LILY_OK;
}

static int run(server *s, const sigset_t *ends, lily_err *e)
{
    int rc;
    TRY_TO(done, read_kwargs(s, e));
    TRY_TO(done, lily_engine_precheck(&s->o->engine, e));    /* a server that listens shall not end by a slip */
    TRY_TO(done, open_http(s, e));
    if (pthread_create(&s->loader, NULL, load, s) != 0)
        rc = lily_fail(e, LILY_NO_MEMORY, "no thread to load the model on");
    else
        rc = serve(s, ends, e);
done:
    lily_http_close(s->api.http);
    lily_jobs_wait(&s->api);
    lily_engine_close(s->engine);
    lily_guard_free(s->api.guard);
    lily_supervisor_part(&s->supervisor);
    json_decref(s->api.template_kwargs);
    return rc;
}

int lily_server_run(const lily_server_options *o, lily_err *e)
{
    server s = {.o = o, .main = pthread_self(), .supervisor = {.notify_fd = -1}};
    s.api.created = (int64_t)time(NULL);
    s.api.think_limited = o->think_limited;
    s.api.think_budget = o->think_budget;
    s.api.options = o;
    s.api.trace_dir = o->trace_dir;
    lily_metrics_init(&s.api.metrics);
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
    lily_metrics_destroy(&s.api.metrics);
    pthread_cond_destroy(&s.api.idle);
    pthread_mutex_destroy(&s.api.lock);
    return rc;
}
