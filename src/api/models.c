/* models.c - GET /v1/models and /v1/models/ID: the one model that is served, under its folder's name.
 *
 * OpenAI's and Anthropic's clients ask at the same path: the answer has the members of both. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "api/api.h"
#include "api/json_out.h"

static void put_model(const lily_api *api, lily_engine *g, lily_buf *out)
{
    uint32_t context = lily_engine_context(g);
    time_t created = (time_t)api->created;
    struct tm utc;
    char date[32] = "";
    if (gmtime_r(&created, &utc)) strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    lily_buf_puts(out, "{\"id\":");
    lily_json_put_text(out, lily_engine_model_name(g));
    lily_buf_printf(out,
                    ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"lily\",\"context_length\":%u,"
                    "\"max_model_len\":%u,\"type\":\"model\",\"created_at\":\"%s\",\"display_name\":",
                    api->created, context, context, date);
    lily_json_put_text(out, lily_engine_model_name(g));
    lily_buf_putc(out, '}');
}

void lily_handle_models(lily_http_req *req, void *arg)
{
    lily_api *api = arg;
    lily_engine *g = lily_api_engine(api, req);
    if (!g) return;
    lily_buf out = {0};
    lily_buf_puts(&out, "{\"object\":\"list\",\"data\":[");
    put_model(api, g, &out);
    lily_buf_puts(&out, "],\"has_more\":false,\"first_id\":");
    lily_json_put_text(&out, lily_engine_model_name(g));
    lily_buf_puts(&out, ",\"last_id\":");
    lily_json_put_text(&out, lily_engine_model_name(g));
    lily_buf_putc(&out, '}');
    lily_reply_json(req, &out);
}

void lily_handle_model(lily_http_req *req, void *arg)
{
    static const char path[] = "/v1/models/";
    lily_api *api = arg;
    lily_engine *g = lily_api_engine(api, req);
    if (!g) return;
    const char *id = lily_http_path(req) + sizeof path - 1;
    if (strcmp(id, lily_engine_model_name(g)) != 0) {
        lily_refusal r = {.status = 404, .code = "model_not_found"};
        lily_refuse(&r, LILY_ARGUMENT, "model", "there is no model '%.100s' here, only '%s'", id,
                    lily_engine_model_name(g));
        lily_reply_refusal(req, &r);
        return;
    }
    lily_buf out = {0};
    put_model(api, g, &out);
    lily_reply_json(req, &out);
}
