#include "api/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/json_out.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "device/dev.h"
#include "plan/plan.h"
#include "version.h"

struct lily_trace {
    int fd;
    uint64_t start;             /* ns */
    lily_buf line;
};

int lily_trace_folder(const char *dir, lily_err *e)
{
    struct stat st;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) return lily_fail(e, LILY_IO, "%s: %s", dir, strerror(errno));
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode)) return lily_fail(e, LILY_IO, "%s: not a folder", dir);
    /* Only a file that was made proves it: root may write everywhere, and some file systems take none. */
    char *probe = lily_path_join(dir, ".probe-XXXXXX");
    if (!probe) return lily_no_memory(e, strlen(dir), "a path");
    int fd = mkstemp(probe);
    int rc = fd >= 0 ? LILY_OK : lily_fail(e, LILY_IO, "%s: no file can be made in it: %s", dir, strerror(errno));
    if (fd >= 0) {
        close(fd);
        unlink(probe);
    }
    lily_free(probe);
    return rc;
}

/* ---- lines ---- */

static void give_up(lily_trace *t, const char *why)
{
    lily_log(LILY_LOG_WARN, "a trace ends early: %s", why);
    close(t->fd);
    t->fd = -1;
}

static void write_line(lily_trace *t)
{
    lily_buf_putc(&t->line, '\n');
    if (t->fd >= 0 && t->line.failed) give_up(t, "out of memory");
    for (size_t at = 0; t->fd >= 0 && at < t->line.len;) {
        ssize_t n = write(t->fd, t->line.data + at, t->line.len - at);
        if (n >= 0) at += (size_t)n;
        else if (errno != EINTR) give_up(t, strerror(errno));
    }
    lily_buf_clear(&t->line);
}

static void put_ids(lily_buf *out, const char *name, const int32_t *ids, size_t n)
{
    lily_buf_printf(out, "\"%s\":[", name);
    for (size_t i = 0; i < n; i++) lily_buf_printf(out, "%s%d", i ? "," : "", (int)ids[i]);
    lily_buf_putc(out, ']');
}

static void put_member(lily_buf *out, const char *name, const char *text)
{
    lily_buf_printf(out, "\"%s\":", name);
    lily_json_put_text(out, text);
}

/* ---- what ran ---- */

static void put_server(lily_buf *out, lily_engine *g)
{
    lily_buf_puts(out, "{\"server\":{");
    put_member(out, "version", LILY_VERSION);
    lily_buf_putc(out, ',');
    put_member(out, "commit", LILY_COMMIT);
    lily_buf_putc(out, ',');
    put_member(out, "model", lily_engine_model_name(g));
    lily_buf_putc(out, ',');
    put_member(out, "checkpoint", lily_engine_fingerprint(g));
    lily_buf_putc(out, ',');
    put_member(out, "device", lily_engine_device_text(g));
    lily_buf_printf(out, ",\"plans\":{\"decode\":\"%016" PRIx64 "\",\"prefill\":\"%016" PRIx64 "\"}",
                    lily_engine_plan_hash(g, LILY_DECODE), lily_engine_plan_hash(g, LILY_PREFILL));
    lily_buf_printf(out, ",\"context\":%u,\"chunk\":%u,\"without\":[", lily_engine_context(g), lily_engine_chunk(g));
    for (unsigned i = 0, n = 0; i < N_ABLATIONS; i++)
        if (lily_engine_ablated(g) >> i & 1) lily_buf_printf(out, "%s\"%s\"", n++ ? "," : "", lily_ablation_name(i));
    lily_buf_puts(out, "]}}");
}

/* ---- the request ---- */

static bool secret(const char *name)
{
    return strcasecmp(name, "authorization") == 0 || strcasecmp(name, "x-api-key") == 0 ||
           strcasecmp(name, "cookie") == 0 || strcasecmp(name, "proxy-authorization") == 0;
}

static void put_header(void *arg, const char *name, const char *value)
{
    lily_buf *out = arg;
    if (secret(name)) return;
    if (out->data[out->len - 1] != '{') lily_buf_putc(out, ',');
    lily_json_put_text(out, name);
    lily_buf_putc(out, ':');
    lily_json_put_text(out, value);
}

static void put_request(lily_buf *out, const char *id, const lily_http_req *req)
{
    size_t n;
    const char *body = lily_http_body(req, &n);
    lily_buf_puts(out, "{\"request\":{");
    put_member(out, "id", id);
    lily_buf_putc(out, ',');
    put_member(out, "method", lily_http_method(req));
    lily_buf_putc(out, ',');
    put_member(out, "path", lily_http_path(req));
    lily_buf_puts(out, ",\"headers\":{");
    if (!out->failed) lily_http_each_header(req, put_header, out);
    lily_buf_puts(out, "},");
    /* As it came, to the byte: what is replayed must be what failed. */
    if (lily_utf8_valid(body, n)) {
        lily_buf_puts(out, "\"body\":");
        lily_json_put_string(out, body, n);
    } else {
        lily_buf_puts(out, "\"body_bytes\":");
        lily_json_put_bytes(out, body, n);
    }
    lily_buf_puts(out, "}}");
}

static int open_file(const char *dir, const char *id)
{
    char when[32];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    size_t n = strftime(when, sizeof when, "%Y%m%dT%H%M%S", gmtime_r(&now.tv_sec, &utc));
    snprintf(when + n, sizeof when - n, ".%03ldZ", now.tv_nsec / 1000000);
    lily_buf name = {0};
    lily_buf_printf(&name, "%s/%s-%s.jsonl", dir, when, id);
    /* A client may send an id twice; colons and dots of its own are harmless behind the time. */
    int fd = name.failed ? -1 : open(name.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    for (int again = 2; fd < 0 && errno == EEXIST && again < 1000; again++) {
        lily_buf_clear(&name);
        lily_buf_printf(&name, "%s/%s-%s-%d.jsonl", dir, when, id, again);
        fd = name.failed ? -1 : open(name.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    lily_buf_free(&name);
    return fd;
}

lily_trace *lily_trace_open(const char *dir, const char *id, lily_engine *g, const lily_http_req *req)
{
    int fd = open_file(dir, id);
    lily_trace *t = fd >= 0 ? lily_calloc(1, sizeof *t) : NULL;
    if (!t) {
        lily_log(LILY_LOG_WARN, "no trace of %s: %s", id, strerror(errno));
        if (fd >= 0) close(fd);
        return NULL;
    }
    *t = (lily_trace){.fd = fd, .start = lily_now_ns()};
    put_server(&t->line, g);
    write_line(t);
    put_request(&t->line, id, req);
    write_line(t);
    return t;
}

/* ---- what the engine was asked, and what it did ---- */

static void put_sampling(lily_buf *out, const lily_sampling *s)
{
    /* The seed is a text, since it has more digits than readers of JSON keep. */
    lily_buf_printf(out, "\"seed\":\"%" PRId64 "\",\"top_k\":%d", (int64_t)s->seed, (int)s->top_k);
    const struct {
        const char *name;
        float value;
    } fields[] = {{"temperature", s->temperature}, {"top_p", s->top_p},         {"min_p", s->min_p},
                  {"presence", s->presence},       {"frequency", s->frequency}, {"repetition", s->repetition}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        lily_buf_printf(out, ",\"%s\":", fields[i].name);
        lily_json_put_number(out, (double)fields[i].value);
    }
    lily_buf_puts(out, ",\"bias\":{");
    for (uint32_t i = 0; i < s->n_bias; i++) {
        lily_buf_printf(out, "%s\"%d\":", i ? "," : "", (int)s->bias[i].token);
        lily_json_put_number(out, (double)s->bias[i].add);
    }
    lily_buf_putc(out, '}');
}

void lily_trace_asked(lily_trace *t, const lily_ask *ask)
{
    if (!t) return;
    lily_buf *out = &t->line;
    lily_buf_puts(out, "{\"prompt\":{");
    put_ids(out, "ids", ask->tokens, ask->n_tokens);
    lily_buf_printf(out, ",\"max_tokens\":%u,\"grammar\":%s,\"in_think\":%s,\"reuse\":%s,", ask->max_tokens,
                    ask->grammar ? "true" : "false", ask->in_think ? "true" : "false", ask->no_reuse ? "false" : "true");
    put_sampling(out, &ask->sampling);
    lily_buf_puts(out, "}}");
    write_line(t);
}

void lily_trace_heard(lily_trace *t, const lily_event *ev)
{
    static const char *const ends[N_LILY_ENDS] = {"stop", "length", "cancelled", "error"};
    if (!t) return;
    lily_buf *out = &t->line;
    lily_buf_printf(out, "{\"ms\":%.3f,", lily_seconds_since(t->start) * 1e3);
    switch (ev->kind) {
    case LILY_EVENT_START: lily_buf_printf(out, "\"start\":{\"prompt\":%u,\"reused\":%u}", ev->n_prompt, ev->n_reused); break;
    case LILY_EVENT_PROGRESS: lily_buf_printf(out, "\"read\":%u", ev->n_done); break;
    case LILY_EVENT_TOKEN: lily_buf_printf(out, "\"token\":%d", (int)ev->id); break;
    case LILY_EVENT_END:
        lily_buf_printf(out, "\"end\":\"%s\",\"generated\":%u,\"error\":", ends[ev->end], ev->n_generated);
        lily_json_put_text(out, ev->err ? ev->err->text : NULL);
        break;
    }
    lily_buf_putc(out, '}');
    write_line(t);
}

void lily_trace_close(lily_trace *t, int status, bool client_gone)
{
    if (!t) return;
    lily_buf_printf(&t->line, "{\"ms\":%.3f,\"status\":%d,\"client_gone\":%s}", lily_seconds_since(t->start) * 1e3,
                    status, client_gone ? "true" : "false");
    write_line(t);
    if (t->fd >= 0) close(t->fd);
    lily_buf_free(&t->line);
    lily_free(t);
}
