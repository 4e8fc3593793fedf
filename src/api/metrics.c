#include "api/metrics.h"

#include <inttypes.h>
#include <string.h>

#include "version.h"

/* Paths are a closed list, so that a stranger's cannot grow the page; the last stands for all others. */
static const char *const paths[LILY_METRIC_PATHS] = {
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
    "/tokenize",            "/v1/models",      "other"};
static const int codes[LILY_METRIC_CODES] = {200, 204, 400, 401, 403, 404, 405, 413, 429, 431, 499, 500, 503, 0};

static const double bounds[N_LILY_TIMINGS][LILY_METRIC_BUCKETS - 1] = {
    {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300},
    {0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5},
    {0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}};
static const struct {
    const char *name, *help;
} timing_names[N_LILY_TIMINGS] = {
    {"lily_time_to_first_token_seconds", "From the head of a request to its first token."},
    {"lily_time_per_output_token_seconds", "Mean distance of an answer's tokens."},
    {"lily_request_duration_seconds", "From the head of a request for tokens to its end."}};

void lily_metrics_init(lily_metrics *m)
{
    *m = (lily_metrics){0};
    pthread_mutex_init(&m->lock, NULL);
}

void lily_metrics_destroy(lily_metrics *m) { pthread_mutex_destroy(&m->lock); }

/* ---- counting ---- */

static int path_index(const char *path)
{
    for (int i = 0; i < LILY_METRIC_PATHS - 1; i++)
        if (strcmp(paths[i], path) == 0) return i;
    return LILY_METRIC_PATHS - 1;
}

static int code_index(int status)
{
    int i = 0;
    while (codes[i] && codes[i] != status) i++;
    return i;
}

void lily_metrics_request(lily_metrics *m)
{
    pthread_mutex_lock(&m->lock);
    m->requests++;
    pthread_mutex_unlock(&m->lock);
}

void lily_metrics_answer(lily_metrics *m, const char *path, int status)
{
    pthread_mutex_lock(&m->lock);
    m->answers[path_index(path)][code_index(status)]++;
    pthread_mutex_unlock(&m->lock);
}

void lily_metrics_time(lily_metrics *m, enum lily_timing what, double seconds)
{
    int i = 0;
    while (i < LILY_METRIC_BUCKETS - 1 && seconds > bounds[what][i]) i++;
    pthread_mutex_lock(&m->lock);
    m->timings[what].bucket[i]++;
    m->timings[what].count++;
    m->timings[what].sum += seconds;
    pthread_mutex_unlock(&m->lock);
}

/* ---- telling ---- */

static void head(lily_buf *out, const char *name, const char *type, const char *help)
{
    lily_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void counter(lily_buf *out, const char *name, const char *help, uint64_t value)
{
    head(out, name, "counter", help);
    lily_buf_printf(out, "%s %" PRIu64 "\n", name, value);
}

static void gauge(lily_buf *out, const char *name, const char *help, uint64_t value)
{
    head(out, name, "gauge", help);
    lily_buf_printf(out, "%s %" PRIu64 "\n", name, value);
}

static void put_requests(const lily_metrics *m, lily_buf *out)
{
    counter(out, "lily_requests_total", "Requests for tokens.", m->requests);
    head(out, "lily_http_requests_total", "counter", "All requests that are over, by path and status; 499: the client left.");
    for (int p = 0; p < LILY_METRIC_PATHS; p++)
        for (int c = 0; c < LILY_METRIC_CODES; c++)
            if (m->answers[p][c])
                lily_buf_printf(out, "lily_http_requests_total{path=\"%s\",code=\"%d\"} %" PRIu64 "\n", paths[p], codes[c],
                                m->answers[p][c]);
}

static void put_timing(const lily_metrics *m, enum lily_timing what, lily_buf *out)
{
    const char *name = timing_names[what].name;
    const lily_histogram *h = &m->timings[what];
    uint64_t sum = 0;
    head(out, name, "histogram", timing_names[what].help);
    for (int i = 0; i < LILY_METRIC_BUCKETS - 1; i++) {
        sum += h->bucket[i];
        lily_buf_printf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds[what][i], sum);
    }
    lily_buf_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.6f\n%s_count %" PRIu64 "\n", name, h->count, name,
                    h->sum, name, h->count);
}

static void put_engine(lily_engine *g, lily_buf *out)
{
    static const char *const ends[N_LILY_ENDS] = {"stop", "length", "cancelled", "error"};
    lily_engine_stats s;
    lily_engine_get_stats(g, &s);
    head(out, "lily_generations_total", "counter", "Requests that the engine ended, by how.");
    for (int i = 0; i < N_LILY_ENDS; i++)
        lily_buf_printf(out, "lily_generations_total{end=\"%s\"} %" PRIu64 "\n", ends[i], s.requests[i]);
    counter(out, "lily_queue_refused_total", "Requests that found the queue full.", s.refused);
    counter(out, "lily_prompt_tokens_total", "Tokens of prompts that were read, reused ones not counted.", s.prompt_tokens);
    counter(out, "lily_reused_tokens_total", "Tokens of prompts that a kept state already knew.", s.reused_tokens);
    counter(out, "lily_generated_tokens_total", "Tokens of answers.", s.generated_tokens);
    head(out, "lily_prompt_seconds_total", "counter", "Time spent on prompts.");
    lily_buf_printf(out, "lily_prompt_seconds_total %.6f\n", s.prompt_seconds);
    head(out, "lily_generation_seconds_total", "counter", "Time spent on answers, first to last token.");
    lily_buf_printf(out, "lily_generation_seconds_total %.6f\n", s.reply_seconds);
    counter(out, "lily_sessions_evicted_total", "Kept conversations that made room for others.", s.evicted_sessions);
    counter(out, "lily_snapshots_evicted_total", "Snapshots that made room for others.", s.evicted_snapshots);
    gauge(out, "lily_requests_in_flight", "Requests that are being answered.", s.running);
    gauge(out, "lily_requests_queued", "Requests that wait for their turn.", s.queued);
    gauge(out, "lily_sessions", "Conversations that run or are kept.", s.sessions);
    gauge(out, "lily_snapshots", "Snapshots of recurrent states that are kept.", s.snapshots);
    gauge(out, "lily_state_bytes", "Memory of conversations that run or are kept.", s.kept_bytes + s.running_bytes);
    gauge(out, "lily_kept_bytes", "Memory of conversations that are kept and do not run.", s.kept_bytes);
    gauge(out, "lily_cache_limit_bytes", "The most that kept conversations may take.", s.cache_bytes);
    const lily_memory *memory = lily_engine_memory(g);
    gauge(out, "lily_weights_bytes", "The weights, mapped from their files.", memory->weights);
    gauge(out, "lily_planned_bytes", "All memory that was planned at the start.", memory->planned);
}

void lily_metrics_text(lily_metrics *m, lily_engine *g, lily_buf *out)
{
    head(out, "lily_build_info", "gauge", "Always 1; the labels tell what runs.");
    lily_buf_printf(out, "lily_build_info{version=\"%s\",commit=\"%s\"} 1\n", LILY_VERSION, LILY_COMMIT);
    gauge(out, "lily_ready", "1 when the model is loaded.", g != NULL);
    pthread_mutex_lock(&m->lock);
    put_requests(m, out);
    for (int i = 0; i < N_LILY_TIMINGS; i++) put_timing(m, (enum lily_timing)i, out);
    pthread_mutex_unlock(&m->lock);
    if (g) put_engine(g, out);
}
