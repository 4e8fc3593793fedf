/* ops.c - for those who run the server: GET /health and /metrics, DELETE /cache, and GET /script with scripted
 * replies. */
#include "api/api.h"

void lily_handle_health(lily_http_req *req, void *arg)
{
    static const char loading[] = "{\"status\":\"loading\"}";
    lily_api *api = arg;
    lily_err e;
    lily_engine *g = atomic_load(&api->engine);
    if (!g) {
        lily_http_reply(req, 503, "application/json", loading, sizeof loading - 1, &e);
        return;
    }
    uint32_t running, queued;
    lily_engine_load(g, &running, &queued);
    lily_buf out = {0};
    lily_buf_printf(&out, "{\"status\":\"ok\",\"in_flight\":%u,\"queued\":%u}", running, queued);
    lily_reply_json(req, &out);
}

void lily_handle_metrics(lily_http_req *req, void *arg)
{
    lily_api *api = arg;
    lily_err e;
    lily_buf out = {0};
    lily_metrics_text(&api->metrics, atomic_load(&api->engine), &out);
    if (lily_buf_ok(&out, "an answer", &e) == LILY_OK)
        lily_http_reply(req, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len, &e);
    else
        lily_http_reply_error(req, 503, e.text, &e);
    lily_buf_free(&out);
}

void lily_handle_forget(lily_http_req *req, void *arg)
{
    lily_engine *g = lily_api_engine(arg, req);
    if (!g) return;
    lily_engine_cache_clear(g);
    lily_buf out = {0};
    lily_buf_puts(&out, "{\"cleared\":true}");
    lily_reply_json(req, &out);
}

void lily_handle_script(lily_http_req *req, void *arg)
{
    lily_engine *g = lily_api_engine(arg, req);
    if (!g) return;
    lily_buf out = {0};
    lily_refusal r = {.status = 404};
    if (lily_engine_script_record(g, &out, &r.err) == LILY_OK) {
        lily_reply_json(req, &out);
    } else {
        lily_reply_refusal(req, &r);
        lily_buf_free(&out);
    }
}
