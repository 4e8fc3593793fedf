/* props.c - GET /props: which program, model, device, plans, switches and limits are in force, and the memory that was
 * planned.  Field names that llama.cpp's server has are the same. */
#include <inttypes.h>

#include "api/api.h"
#include "api/json_out.h"
#include "api/server.h"
#include "plan/plan.h"
#include "version.h"

static void put_text(lily_buf *out, const char *name, const char *text)
{
    lily_buf_printf(out, "\"%s\":", name);
    lily_json_put_text(out, text);
    lily_buf_putc(out, ',');
}

static void put_real(lily_buf *out, const char *name, double value)
{
    lily_buf_printf(out, "\"%s\":", name);
    lily_json_put_number(out, value);
    lily_buf_putc(out, ',');
}

static void put_sampling(lily_buf *out, lily_engine *g)
{
    const lily_sampling_defaults *s = lily_engine_sampling(g);
    lily_buf_puts(out, "\"default_generation_settings\":{");
    put_real(out, "temperature", (double)s->temperature);
    put_real(out, "top_p", (double)s->top_p);
    put_real(out, "min_p", (double)s->min_p);
    put_real(out, "presence_penalty", (double)s->presence);
    put_real(out, "frequency_penalty", (double)s->frequency);
    put_real(out, "repetition_penalty", (double)s->repetition);
    lily_buf_printf(out, "\"top_k\":%d,\"n_ctx\":%u},", (int)s->top_k, lily_engine_context(g));
}

static void put_memory(lily_buf *out, lily_engine *g)
{
    const lily_memory *m = lily_engine_memory(g);
    lily_buf_printf(out,
                    "\"memory\":{\"planned_bytes\":%" PRIu64 ",\"weights_bytes\":%" PRIu64 ",\"device_bytes\":%" PRIu64
                    ",\"kv_bytes\":%" PRIu64 ",\"state_bytes\":%" PRIu64 ",\"replies_bytes\":%" PRIu64
                    ",\"cache_bytes\":%" PRIu64 ",\"scratch_bytes\":%" PRIu64 "},",
                    m->planned, m->weights, m->device, m->kv, m->state, m->replies, m->cache, m->scratch);
}

static void put_plans(lily_buf *out, lily_engine *g)
{
    const uint64_t off = lily_engine_ablated(g), there = lily_engine_switches(g) | off;
    const char *comma = "";
    lily_buf_printf(out, "\"plans\":{\"decode\":\"%016" PRIx64 "\",\"prefill\":\"%016" PRIx64 "\"},\"switches\":{",
                    lily_engine_plan_hash(g, LILY_DECODE), lily_engine_plan_hash(g, LILY_PREFILL));
    for (unsigned i = 0; i < N_ABLATIONS; i++) {
        if (!(there >> i & 1)) continue;
        lily_buf_printf(out, "%s\"%s\":%s", comma, lily_ablation_name(i), off >> i & 1 ? "false" : "true");
        comma = ",";
    }
    lily_buf_puts(out, "},");
}

static void put_limits(lily_buf *out, const lily_server_options *o, const lily_http *http, lily_engine *g)
{
    const lily_engine_options *e = &o->engine;
    lily_buf_printf(out, "\"limits\":{\"context\":%u,\"chunk\":%u,\"queue\":%u,\"parallel\":%u,", lily_engine_context(g),
                    lily_engine_chunk(g), e->queue ? e->queue : LILY_DEFAULT_QUEUE,
                    e->parallel ? e->parallel : LILY_DEFAULT_PARALLEL);
    const lily_http_options *h = lily_http_in_force(http);
    lily_buf_printf(out, "\"body_bytes\":%zu,\"header_bytes\":%zu,\"headers\":%d,\"connections\":%d,",
                    h->max_body_bytes, h->max_header_bytes, h->max_headers, h->max_connections);
    lily_buf_printf(out, "\"header_seconds\":%g,\"body_seconds\":%g,\"idle_seconds\":%g,\"write_seconds\":%g}",
                    h->header_seconds, h->body_seconds, h->idle_seconds, h->write_seconds);
}

void lily_handle_props(lily_http_req *req, void *arg)
{
    lily_api *api = arg;
    lily_engine *g = lily_api_engine(api, req);
    if (!g) return;
    lily_buf out = {0};
    lily_buf_putc(&out, '{');
    put_text(&out, "version", LILY_VERSION);
    put_text(&out, "commit", LILY_COMMIT);
    put_text(&out, "model", lily_engine_model_name(g));
    put_text(&out, "checkpoint", lily_engine_fingerprint(g));
    put_text(&out, "device", lily_engine_device_text(g));
    lily_buf_printf(&out, "\"scripted\":%s,\"n_ctx\":%u,", api->options->engine.script ? "true" : "false",
                    lily_engine_context(g));
    put_sampling(&out, g);
    put_memory(&out, g);
    put_plans(&out, g);
    put_limits(&out, api->options, api->http, g);
    lily_buf_putc(&out, '}');
    lily_reply_json(req, &out);
}
