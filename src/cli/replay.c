/* replay.c - lily replay TRACE: asks again what a trace (api/trace.h) holds, and says whether the same tokens come.
 *
 * A server of its own is started as the traced one was: same context, chunks and switches, on a Unix socket in a folder
 * of this user alone, with traces.  Each request is sent as it came, with the seed that was used; then the two traces
 * are compared.  Several traces are replayed in order, since what a conversation said before is part of it. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/commands.h"

extern char **environ;

enum { TRACE_BYTES = 1 << 30, MAX_ARGUMENTS = 32 };

/* ---- a trace ---- */

typedef struct record {
    json_t *server, *request, *prompt, *tokens, *end;   /* prompt: the first; NULL: the request was refused */
    bool cut;                       /* the client left, or the server died: the rest is not known */
} record;

static void free_record(record *r)
{
    json_decref(r->server);
    json_decref(r->request);
    json_decref(r->prompt);
    json_decref(r->tokens);
    json_decref(r->end);
    *r = (record){0};
}

static void keep(json_t **to, json_t *line, const char *key)
{
    json_t *value = json_object_get(line, key);
    if (value && !*to) *to = json_incref(value);
}

static void take_line(record *r, json_t *line)
{
    json_t *token = json_object_get(line, "token"), *gone = json_object_get(line, "client_gone");
    keep(&r->server, line, "server");
    keep(&r->request, line, "request");
    keep(&r->prompt, line, "prompt");
    keep(&r->end, line, "end");
    if (token) json_array_append(r->tokens, token);
    if (gone) r->cut = json_is_true(gone);
}

static int read_record(record *r, const char *path, lily_err *e)
{
    lily_buf text = {0};
    *r = (record){.tokens = json_array(), .cut = true};
    int rc = r->tokens ? lily_file_read(&text, path, TRACE_BYTES, e) : lily_no_memory(e, 0, "a trace");
    for (const char *p = lily_buf_str(&text); rc == LILY_OK && *p;) {
        const char *end = strchr(p, '\n');
        if (!end) break;    /* the server died while it wrote */
        json_t *line;
        rc = lily_json_parse(&line, p, (size_t)(end - p), lily_path_base(path), e);
        if (rc == LILY_OK) take_line(r, line);
        if (rc == LILY_OK) json_decref(line);
        p = end + 1;
    }
    lily_buf_free(&text);
    if (rc == LILY_OK && (!r->server || !r->request))
        rc = lily_fail(e, LILY_FORMAT, "%s: not a trace of Lily", lily_path_base(path));
    if (rc != LILY_OK) free_record(r);
    return rc;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- the server ---- */

typedef struct child {
    pid_t pid;
    char dir[32], socket[64], traces[64];
} child;

static void add_number(char *out, size_t room, const json_t *server, const char *key)
{
    snprintf(out, room, "%lld", (long long)json_integer_value(json_object_get(server, key)));
}

static void join_names(lily_buf *out, const json_t *list)
{
    size_t i;
    json_t *name;
    json_array_foreach(list, i, name) lily_buf_printf(out, "%s%s", i ? "," : "", json_string_value(name));
}

static int spawn(child *c, const lily_args *a, const record *first, lily_err *e)
{
    char program[PATH_MAX], context[24], chunk[24];
    lily_buf without = {0};
    const char *argv[MAX_ARGUMENTS] = {program, "serve", "--unix-socket", c->socket, "--trace", c->traces,
                                       "--log-level", "warn", "--ctx-size", context, "--chunk", chunk};
    int n = 12;
    static const struct {
        enum lily_option option;
        const char *name;
    } passed[] = {{OPT_MODEL, "--model"}, {OPT_DEVICE, "--device"}, {OPT_THREADS, "--threads"},
                  {OPT_MEMORY_MIB, "--memory-mib"}};
    if (!lily_program_path(program, sizeof program)) return lily_fail(e, LILY_IO, "the path of this program is unknown");
    add_number(context, sizeof context, first->server, "context");
    add_number(chunk, sizeof chunk, first->server, "chunk");
    join_names(&without, json_object_get(first->server, "without"));
    if (without.len) argv[n++] = "--without", argv[n++] = without.data;
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        if (lily_arg_given(a, passed[i].option)) argv[n++] = passed[i].name, argv[n++] = a->value[passed[i].option];
    int failed = without.failed ? ENOMEM : posix_spawn(&c->pid, program, NULL, NULL, (char **)argv, environ);
    lily_buf_free(&without);
    return failed ? lily_fail(e, LILY_IO, "no server to ask: %s", strerror(failed)) : LILY_OK;
}

static bool send_all(int fd, const char *data, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t done = send(fd, data + at, n - at, 0);
        if (done < 0 && errno != EINTR) return false;
        if (done > 0) at += (size_t)done;
    }
    return true;
}

/* The status of an answer, which is read to its end; 0: there is none. */
static int read_status(int fd)
{
    char head[64] = "", rest[4096];
    size_t have = 0;
    for (;;) {
        bool first = have < sizeof head - 1;
        ssize_t n = first ? read(fd, head + have, sizeof head - 1 - have) : read(fd, rest, sizeof rest);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        if (first) have += (size_t)n;
    }
    int status;
    return sscanf(head, "HTTP/1.1 %d", &status) == 1 ? status : 0;
}

/* One exchange over the socket; *status 0: nobody answers there. */
static int ask(const child *c, const lily_buf *head, const lily_buf *body, int *status, lily_err *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path, c->socket, strlen(c->socket) + 1);
    *status = 0;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return lily_fail(e, LILY_IO, "no socket: %s", strerror(errno));
    bool connected = connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
    /* A body that is refused may not be taken whole; the answer comes all the same. */
    if (connected && send_all(fd, head->data, head->len)) (void)send_all(fd, body->data, body->len);
    if (connected) *status = read_status(fd);
    close(fd);
    return connected && !*status ? lily_fail(e, LILY_IO, "the server gave no answer") : LILY_OK;
}

static int wait_ready(const child *c, lily_err *e)
{
    static const char text[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const lily_buf head = {.data = (char *)text, .len = sizeof text - 1}, body = {0};
    for (int status = 0; status != 200; usleep(20000)) {
        if (waitpid(c->pid, NULL, WNOHANG) == c->pid) return lily_fail(e, LILY_IO, "the server could not be started");
        TRY(ask(c, &head, &body, &status, e));
    }
    return LILY_OK;
}

static int start(child *c, const lily_args *a, const record *first, lily_err *e)
{
    static const char name[] = "/tmp/lily-replay-";
    memcpy(c->dir, name, sizeof name - 1);
    memset(c->dir + sizeof name - 1, 'X', 6);    /* for mkdtemp to fill */
    if (!mkdtemp(c->dir)) return lily_fail(e, LILY_IO, "no folder in /tmp: %s", strerror(errno));
    snprintf(c->socket, sizeof c->socket, "%s/socket", c->dir);
    snprintf(c->traces, sizeof c->traces, "%s/traces", c->dir);
    TRY(spawn(c, a, first, e));
    /* Ctrl-C ends the server, which then answers no more: what was made is still removed. */
    signal(SIGINT, SIG_IGN);
    return wait_ready(c, e);
}

static void stop(child *c)
{
    if (c->pid > 0 && kill(c->pid, SIGTERM) == 0) waitpid(c->pid, NULL, 0);
    if (!c->dir[0]) return;
    unlink(c->socket);
    rmdir(c->traces);
    rmdir(c->dir);
}

/* ---- asking again ---- */

/* Headers that belong to the connection or are replaced. */
static bool own_header(const char *name)
{
    static const char *const names[] = {"host", "connection", "content-length", "transfer-encoding", "expect",
                                        "origin", "x-request-id", "x-lily-seed", "upgrade", "keep-alive"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(name, names[i]) == 0) return true;
    return false;
}

static int put_body(const json_t *request, lily_buf *body, lily_err *e)
{
    const json_t *text = json_object_get(request, "body"), *bytes = json_object_get(request, "body_bytes");
    size_t i;
    json_t *value;
    if (text) lily_buf_add(body, json_string_value(text), json_string_length(text));
    json_array_foreach(bytes, i, value) lily_buf_putc(body, (char)json_integer_value(value));
    return lily_buf_ok(body, "a request", e);
}

static int send_again(const child *c, const record *r, lily_err *e)
{
    lily_buf head = {0}, body = {0};
    const char *name;
    json_t *value;
    int status;
    int rc = put_body(r->request, &body, e);
    lily_buf_printf(&head, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n",
                    text_of(r->request, "method"), text_of(r->request, "path"), body.len);
    json_object_foreach(json_object_get(r->request, "headers"), name, value)
        if (!own_header(name)) lily_buf_printf(&head, "%s: %s\r\n", name, json_string_value(value));
    if (r->prompt) lily_buf_printf(&head, "x-lily-seed: %s\r\n", text_of(r->prompt, "seed"));
    lily_buf_puts(&head, "\r\n");
    if (rc == LILY_OK) rc = lily_buf_ok(&head, "a request", e);
    if (rc == LILY_OK) rc = ask(c, &head, &body, &status, e);
    if (rc == LILY_OK && !status) rc = lily_fail(e, LILY_IO, "the server has ended");
    lily_buf_free(&head);
    lily_buf_free(&body);
    return rc;
}

/* The one trace in the folder, once its last line is there; it is removed. */
static int read_new(record *r, const child *c, lily_err *e)
{
    for (int tries = 0; tries < 500; tries++, usleep(20000)) {
        char path[PATH_MAX] = "";
        DIR *d = opendir(c->traces);
        for (struct dirent *f; d && (f = readdir(d));)
            if (f->d_name[0] != '.') snprintf(path, sizeof path, "%s/%s", c->traces, f->d_name);
        if (d) closedir(d);
        if (!*path) continue;
        TRY(read_record(r, path, e));
        if (!r->cut) {
            unlink(path);
            return LILY_OK;
        }
        free_record(r);
    }
    return lily_fail(e, LILY_IO, "the server wrote no trace");
}

/* ---- comparing ---- */

static void tell_differences(const record *then, const record *now)
{
    static const char *const facts[] = {"version", "commit", "model", "checkpoint", "device", "plans"};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        json_t *a = json_object_get(then->server, facts[i]), *b = json_object_get(now->server, facts[i]);
        if (json_equal(a, b)) continue;
        char *left = json_dumps(a, JSON_ENCODE_ANY | JSON_COMPACT), *right = json_dumps(b, JSON_ENCODE_ANY | JSON_COMPACT);
        printf("another %s: %s then, %s now\n", facts[i], left ? left : "?", right ? right : "?");
        free(left);
        free(right);
    }
}

static size_t common(const json_t *a, const json_t *b)
{
    size_t n = 0;
    while (n < json_array_size(a) && n < json_array_size(b) && json_equal(json_array_get(a, n), json_array_get(b, n))) n++;
    return n;
}

/* Behind a stop string the engine may have gone on for a few tokens more or less, which nobody was sent. */
static bool compare(const char *name, const record *then, const record *now)
{
    json_t *old_prompt = json_object_get(then->prompt, "ids"), *new_prompt = json_object_get(now->prompt, "ids");
    size_t n_then = json_array_size(then->tokens), n_now = json_array_size(now->tokens), n = common(then->tokens, now->tokens);
    if (!json_equal(old_prompt, new_prompt) && (old_prompt || new_prompt)) {
        printf("%s: another prompt, from its token %zu on\n", name, common(old_prompt, new_prompt));
        return false;
    }
    bool shorter = n == n_then || n == n_now, same_end = json_equal(then->end, now->end) || (!then->end && !now->end);
    bool fits = then->cut ? n == n_then : shorter && same_end;
    if (fits)
        printf("%s: the same %zu tokens\n", name, n);
    else if (shorter)
        printf("%s: %zu tokens then, %zu now, the first %zu the same\n", name, n_then, n_now, n);
    else
        printf("%s: token %zu is %lld then, %lld now\n", name, n, json_integer_value(json_array_get(then->tokens, n)),
               json_integer_value(json_array_get(now->tokens, n)));
    return fits;
}

/* ---- the command ---- */

static int replay(const child *c, const char *path, bool first, bool *same, lily_err *e)
{
    record then, now = {0};
    TRY(read_record(&then, path, e));
    int rc = send_again(c, &then, e);
    if (rc == LILY_OK) rc = read_new(&now, c, e);
    if (rc == LILY_OK) {
        if (first) tell_differences(&then, &now);
        *same = compare(lily_path_base(path), &then, &now) && *same;
        fflush(stdout);
    }
    free_record(&then);
    free_record(&now);
    return rc;
}

static int is_trace(const struct dirent *f)
{
    size_t n = strlen(f->d_name);
    return n > 6 && strcmp(f->d_name + n - 6, ".jsonl") == 0;
}

/* The traces that a word names: a file, or those of a folder in the order of their times. */
static int list_traces(const char *word, lily_buf *paths, lily_err *e)
{
    struct dirent **found;
    struct stat st;
    if (stat(word, &st) != 0) return lily_fail(e, LILY_IO, "%s: %s", word, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        lily_buf_add(paths, word, strlen(word) + 1);
        return lily_buf_ok(paths, "a path", e);
    }
    int n = scandir(word, &found, is_trace, alphasort);
    for (int i = 0; i < n; i++) {
        lily_buf_printf(paths, "%s/%s", word, found[i]->d_name);
        lily_buf_putc(paths, 0);
        free(found[i]);
    }
    if (n >= 0) free(found);
    TRY(lily_buf_ok(paths, "paths", e));
    return n > 0 ? LILY_OK : lily_fail(e, LILY_ARGUMENT, "%s: no trace is in it", word);
}

int lily_cmd_replay(const lily_args *a, lily_err *e)
{
    child c = {0};
    record first = {0};
    lily_buf paths = {0};
    bool same = true;
    int rc;
    if (!a->word) return lily_fail(e, LILY_ARGUMENT, "a trace or a folder of traces is needed: lily replay TRACE");
    TRY_TO(done, list_traces(a->word, &paths, e));
    TRY_TO(done, read_record(&first, paths.data, e));
    if (strcmp(text_of(first.server, "device"), "script") == 0) {
        rc = lily_fail(e, LILY_UNSUPPORTED, "these answers came from a script, not from the model");
        goto done;
    }
    TRY_TO(done, start(&c, a, &first, e));
    for (const char *p = paths.data; p < paths.data + paths.len; p += strlen(p) + 1)
        TRY_TO(done, replay(&c, p, p == paths.data, &same, e));
    if (!same) rc = lily_fail(e, LILY_DEVICE, "the replay differs");
done:
    stop(&c);
    free_record(&first);
    lily_buf_free(&paths);
    return rc;
}
