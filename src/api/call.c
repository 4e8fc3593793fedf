#include "api/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/guard.h"
#include "api/json_out.h"
#include "api/page.h"
#include "api/trace.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"

enum { ID_BYTES = 65 };

struct lily_call {
    char id[ID_BYTES];
    uint64_t start;                 /* its head was read (ns) */
    bool talks, ended;              /* asked the engine; the engine's last word came */
    uint64_t asked, begun, first_token;     /* ns; 0: not yet */
    uint32_t n_prompt, n_reused, n_generated;
    double prompt_seconds, reply_seconds;
    enum lily_end end;
    lily_refusal *refusal;          /* or NULL */
    lily_trace *trace;
};

/* ---- ids ---- */

static bool sane(const char *id)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    size_t n = strlen(id);
    return n > 0 && n < ID_BYTES && strspn(id, letters) == n;
}

/* The client's own, so that its log and ours can be laid side by side, or a new one. */
static void choose_id(lily_call *c, const lily_http_req *req)
{
    const char *given = lily_http_header(req, "x-request-id");
    if (given && sane(given)) {
        snprintf(c->id, sizeof c->id, "%s", given);
        return;
    }
    snprintf(c->id, sizeof c->id, "req-%016" PRIx64, lily_random_seed());
}

/* ---- what the engine says ---- */

void lily_call_talks(lily_call *c, lily_api *api, lily_engine *g, const lily_http_req *req)
{
    lily_metrics_request(&api->metrics);
    if (!c) return;
    c->talks = true;
    if (api->trace_dir) c->trace = lily_trace_open(api->trace_dir, c->id, g, req);
}

void lily_call_asked(lily_call *c, const lily_ask *ask)
{
    if (!c) return;
    if (!c->asked) c->asked = lily_now_ns();
    c->ended = false;
    c->n_prompt = ask->n_tokens;
    lily_trace_asked(c->trace, ask);
}

void lily_call_heard(lily_call *c, const lily_event *ev)
{
    if (!c) return;
    lily_trace_heard(c->trace, ev);
    switch (ev->kind) {
    case LILY_EVENT_START:
        if (c->begun) break;    /* of several answers the first one reads the prompt */
        c->begun = lily_now_ns();
        c->n_reused = ev->n_reused;
        break;
    case LILY_EVENT_PROGRESS:
        break;
    case LILY_EVENT_TOKEN:
        if (!c->first_token) c->first_token = lily_now_ns();
        c->n_generated++;
        break;
    case LILY_EVENT_END:
        c->ended = true;
        c->end = ev->end;
        c->prompt_seconds += ev->prompt_seconds;
        c->reply_seconds += ev->reply_seconds;
        break;
    }
}

/* ---- refusals ---- */

/* The sentence without the words of the client that it may quote: of a body that is no JSON they are the prompt's. */
static void strip_quoted(const char *sentence, char *out, size_t room)
{
    static const char quotes[] = "'\"";
    size_t n = strlen(sentence), from = strcspn(sentence, quotes), to = n;
    while (to > from + 1 && !strchr(quotes, sentence[to - 1])) to--;
    if (to <= from + 1) to = n;    /* a single one: its end was cut off */
    snprintf(out, room, "%.*s%s%s", (int)from, sentence, sentence[from] ? "…" : "", sentence + to);
}

void lily_call_refused(lily_call *c, const lily_refusal *r)
{
    if (!c) return;
    if (!c->refusal) c->refusal = lily_calloc(1, sizeof *c->refusal);
    if (c->refusal) *c->refusal = *r;
    char sentence[LILY_ERR_TEXT + sizeof "…"];
    strip_quoted(r->err.text, sentence, sizeof sentence);
    lily_log(LILY_LOG_DEBUG, "%s [%s]", sentence, c->id);
}

/* ---- the end ---- */

static double seconds(uint64_t from, uint64_t to) { return to > from ? (double)(to - from) * 1e-9 : 0; }

static void count(const lily_call *c, lily_metrics *m, const char *path, int status)
{
    lily_metrics_answer(m, path, status);
    if (!c->begun) return;
    lily_metrics_time(m, LILY_TIME_REQUEST, lily_seconds_since(c->start));
    if (c->first_token) lily_metrics_time(m, LILY_TIME_FIRST_TOKEN, seconds(c->start, c->first_token));
    if (c->ended && c->n_generated > 1)
        lily_metrics_time(m, LILY_TIME_PER_TOKEN, c->reply_seconds / (c->n_generated - 1));
}

/* Without the engine's last word: the client left before it came, or the request was wrong or found the queue full. */
static const char *finish_of(const lily_call *c, const lily_http_req *req)
{
    static const char *const names[N_LILY_ENDS] = {"stop", "length", "cancelled", "error"};
    if (c->ended) return names[c->end];
    return lily_http_gone(req) ? "cancelled" : "refused";
}

static void put_members(const lily_call *c, const lily_http_req *req, int status, lily_buf *out)
{
    lily_buf_puts(out, ",\"id\":");
    lily_json_put_text(out, c->id);
    lily_buf_puts(out, ",\"method\":");
    lily_json_put_text(out, lily_http_method(req));
    lily_buf_puts(out, ",\"path\":");
    lily_json_put_text(out, lily_http_path(req));
    lily_buf_printf(out, ",\"status\":%d,\"seconds\":%.6f,\"client_gone\":%s", status, lily_seconds_since(c->start),
                    lily_http_gone(req) ? "true" : "false");
    if (c->refusal || status >= 400) {
        const lily_refusal *r = c->refusal ? c->refusal : &(lily_refusal){.status = status};
        lily_buf_puts(out, ",\"param\":");
        lily_json_put_text(out, r->param[0] ? r->param : NULL);
        lily_buf_puts(out, ",\"code\":");
        lily_json_put_text(out, lily_refusal_code(r));
    }
    if (!c->talks) return;
    lily_buf_printf(out, ",\"finish\":\"%s\",\"prompt_tokens\":%u,\"cached_tokens\":%u,\"completion_tokens\":%u",
                    finish_of(c, req), c->n_prompt, c->n_reused, c->n_generated);
    lily_buf_printf(out,
                    ",\"queue_seconds\":%.6f,\"first_token_seconds\":%.6f,\"prompt_seconds\":%.6f,"
                    "\"reply_seconds\":%.6f",
                    seconds(c->asked, c->begun), seconds(c->start, c->first_token), c->prompt_seconds,
                    c->reply_seconds);
}

/* For a person. */
static void put_sentence(const lily_call *c, const lily_http_req *req, int status, char *out, size_t room)
{
    size_t n = (size_t)snprintf(out, room, "%.16s %.200s %d in %.3f s", lily_http_method(req), lily_http_path(req),
                                status, lily_seconds_since(c->start));
    if (c->talks && n < room) n += (size_t)snprintf(out + n, room - n, ", %s", finish_of(c, req));
    if (c->talks && c->n_prompt && n < room)    /* a body that was refused has no prompt */
        n += (size_t)snprintf(out + n, room - n, ": prompt %u (%u reused), answer %u", c->n_prompt, c->n_reused,
                              c->n_generated);
    if (n < room)
        snprintf(out + n, room - n, "%s [%s]", lily_http_gone(req) ? ", the client left" : "", c->id);
}

/* Those that ask again and again, and files of the page, are of interest only when something is looked for. */
static enum lily_log_level level_of(const lily_http_req *req, int status)
{
    const char *path = lily_http_path(req);
    if (status >= 500 && status != 503) return LILY_LOG_WARN;
    bool quiet = strcmp(path, "/health") == 0 || strcmp(path, "/metrics") == 0 || lily_is_page(path);
    return quiet ? LILY_LOG_DEBUG : LILY_LOG_INFO;
}

static void write_line(const lily_call *c, const lily_http_req *req, int status)
{
    enum lily_log_level level = level_of(req, status);
    if (!lily_log_shows(level)) return;
    char text[512];
    lily_buf members = {0};
    put_sentence(c, req, status, text, sizeof text);
    if (lily_log_format_now() == LILY_LOG_JSON) put_members(c, req, status, &members);
    lily_log_event(level, text, members.failed ? "" : lily_buf_str(&members));
    lily_buf_free(&members);
}

void lily_call_over(lily_http_req *req, void *arg)
{
    lily_api *api = arg;
    lily_call *c = lily_http_note(req);
    if (!c) return;
    int status = lily_http_status(req);
    if (!status) status = 499;    /* the client left before there was an answer */
    count(c, &api->metrics, lily_http_path(req), status);
    write_line(c, req, status);
    lily_trace_close(c->trace, status, lily_http_gone(req));
    lily_free(c->refusal);
    lily_free(c);
}

/* ---- the begin ---- */

bool lily_call_admit(lily_http_req *req, void *arg)
{
    lily_api *api = arg;
    lily_err e;
    lily_call *c = lily_calloc(1, sizeof *c);
    if (c) {
        c->start = lily_now_ns();
        choose_id(c, req);
        lily_http_set_note(req, c);
        lily_http_set_header(req, "X-Request-Id", c->id, &e);
        /* Anthropic's clients look for it under this name. */
        if (strncmp(lily_http_path(req), "/v1/messages", 12) == 0) lily_http_set_header(req, "request-id", c->id, &e);
    }
    return lily_guard_admit(api->guard, req);
}

lily_call *lily_call_of(const lily_http_req *req) { return lily_http_note(req); }
