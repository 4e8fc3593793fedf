/* serve.c - lily serve. */
#include "api/server.h"
#include "base/mem.h"
#include "cli/commands.h"

int lily_cmd_serve(const lily_args *a, lily_err *e)
{
    lily_server_options o = {.host = a->value[OPT_HOST], .template_kwargs = a->value[OPT_KWARGS]};
    uint64_t port, body_mib, budget;
    char *dir = NULL;
    TRY(lily_arg_uint(a, OPT_PORT, 0, 65535, 8080, &port, e));
    TRY(lily_arg_uint(a, OPT_MAX_BODY, 1, 4096, LILY_DEFAULT_BODY >> 20, &body_mib, e));
    TRY(lily_arg_uint(a, OPT_THINKING_BUDGET, 0, INT32_MAX, 0, &budget, e));
    o.think_limited = lily_arg_given(a, OPT_THINKING_BUDGET);
    o.think_budget = (uint32_t)budget;
    o.port = (int)port;
    o.max_body_bytes = (size_t)body_mib << 20;
    int rc = lily_engine_options_from(a, &o.engine, &dir, e);
    if (rc == LILY_OK) rc = lily_server_run(&o, e);
    lily_free(dir);
    return rc;
}
