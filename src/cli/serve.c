/* serve.c - lily serve. */
#include "api/server.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"

enum { DAY = 86400 };

static int read_address(const lily_args *a, lily_http_options *h, lily_err *e)
{
    uint64_t port;
    TRY(lily_arg_uint(a, OPT_PORT, 0, 65535, 8080, &port, e));
    h->host = a->value[OPT_HOST];
    h->port = (int)port;
    h->unix_path = a->value[OPT_UNIX_SOCKET];
    if (h->unix_path && (h->host || lily_arg_given(a, OPT_PORT)))
        return lily_fail(e, LILY_ARGUMENT, "option --unix-socket takes the place of --host and --port: give one of them");
    return LILY_OK;
}

/* 0 leaves a limit as it is (http.h). */
static int read_limits(const lily_args *a, lily_http_options *h, lily_err *e)
{
    uint64_t body_mib, header_kib, headers, connections;
    TRY(lily_arg_uint(a, OPT_MAX_BODY, 1, 4096, LILY_DEFAULT_BODY >> 20, &body_mib, e));
    TRY(lily_arg_uint(a, OPT_MAX_HEADER, 1, 1024, 0, &header_kib, e));
    TRY(lily_arg_uint(a, OPT_MAX_HEADERS, 1, 10000, 0, &headers, e));
    TRY(lily_arg_uint(a, OPT_MAX_CONNECTIONS, 1, 512, 0, &connections, e));
    TRY(lily_arg_real(a, OPT_HEADER_SECONDS, 0.1, DAY, 0, &h->header_seconds, e));
    TRY(lily_arg_real(a, OPT_BODY_SECONDS, 0.1, DAY, 0, &h->body_seconds, e));
    TRY(lily_arg_real(a, OPT_IDLE_SECONDS, 0.1, DAY, 0, &h->idle_seconds, e));
    TRY(lily_arg_real(a, OPT_WRITE_SECONDS, 0.1, DAY, 0, &h->write_seconds, e));
    TRY(lily_arg_real(a, OPT_KEEP_ALIVE, 0.1, DAY, 0, &h->keep_alive_seconds, e));
    h->max_body_bytes = (size_t)body_mib << 20;
    h->max_header_bytes = (size_t)header_kib << 10;
    h->max_headers = (int)headers;
    h->max_connections = (int)connections;
    return LILY_OK;
}

static int read_log(const lily_args *a, lily_err *e)
{
    int format, level;
    TRY(lily_arg_choice(a, OPT_LOG_FORMAT, LILY_LOG_TEXT, &format, e));
    TRY(lily_arg_choice(a, OPT_LOG_LEVEL, LILY_LOG_INFO, &level, e));
    lily_log_set_format((enum lily_log_format)format);
    lily_log_set_level((enum lily_log_level)level);
    return LILY_OK;
}

static int read_engine(const lily_args *a, lily_engine_options *o, char **dir, lily_err *e)
{
    uint64_t queue, parallel, disk_mib;
    TRY(lily_arg_uint(a, OPT_QUEUE, 1, 100000, 0, &queue, e));
    TRY(lily_arg_uint(a, OPT_PARALLEL, 1, 1024, 0, &parallel, e));
    TRY(lily_arg_uint(a, OPT_CACHE_DIR_MIB, 1, UINT32_MAX, 0, &disk_mib, e));
    TRY(lily_engine_options_from(a, o, dir, e));
    o->cache_dir = a->value[OPT_CACHE_DIR];
    o->cache_dir_bytes = disk_mib << 20;
    o->queue = (uint32_t)queue;
    o->parallel = (uint32_t)parallel;
    return LILY_OK;
}

int lily_cmd_serve(const lily_args *a, lily_err *e)
{
    lily_server_options o = {.template_kwargs = a->value[OPT_KWARGS],
                             .trace_dir = a->value[OPT_TRACE],
                             .no_key = lily_arg_given(a, OPT_NO_API_KEY),
                             .guard = {.key = a->value[OPT_API_KEY],
                                       .key_file = a->value[OPT_API_KEY_FILE],
                                       .origins = a->value[OPT_CORS_ORIGIN],
                                       .hosts = a->value[OPT_ALLOWED_HOST]}};
    uint64_t budget;
    char *dir = NULL;
    TRY(read_log(a, e));
    TRY(read_address(a, &o.http, e));
    TRY(read_limits(a, &o.http, e));
    TRY(lily_arg_real(a, OPT_STOP_SECONDS, 0, DAY, LILY_STOP_SECONDS, &o.stop_seconds, e));
    TRY(lily_arg_uint(a, OPT_THINKING_BUDGET, 0, INT32_MAX, 0, &budget, e));
    o.think_limited = lily_arg_given(a, OPT_THINKING_BUDGET);
    o.think_budget = (uint32_t)budget;
    int rc = read_engine(a, &o.engine, &dir, e);
    if (rc == LILY_OK) rc = lily_server_run(&o, e);
    lily_free(dir);
    return rc;
}
