/* engine.c - opening, submitting, and what can be asked. */
#include "run/engine_inside.h"

#include "base/mem.h"
#include "run/loop.h"

/* Mistakes in a script are found before weights are read. */
static int load_script(lily_engine *g, const lily_engine_options *o, enum lily_load_depth depth, lily_err *e)
{
    TRY(lily_load(&g->m, o, depth, e));
    return lily_script_open(&g->script, o->script, g->m.tokenizer, g->m.config->vocab, e);
}

static int load(lily_engine *g, const lily_engine_options *o, lily_err *e)
{
    if (!o->script) return lily_load(&g->m, o, LILY_LOAD_FULL, e);
    TRY(load_script(g, o, LILY_LOAD_SCRIPT, e));
    if (!lily_script_runs_model(g->script)) return LILY_OK;
    lily_script_close(g->script);
    g->script = NULL;
    lily_unload(&g->m);
    return load_script(g, o, LILY_LOAD_FULL, e);
}

static int open_pool(lily_engine *g, const lily_engine_options *o, lily_err *e)
{
    if (o->cache_dir) {
        TRY(lily_disk_open(&g->disk, &g->m, o->cache_dir, o->cache_dir_bytes, e));
        lily_disk_load_replies(g->disk, g->replies);
    }
    return lily_pool_new(&g->pool, &g->m, g->disk, e);
}

static int start(lily_engine *g, const lily_engine_options *o, lily_err *e)
{
    TRY(load(g, o, e));
    TRY(lily_replies_new(&g->replies, LILY_REPLIES_BYTES, e));
    if (!g->script || lily_script_runs_model(g->script)) TRY(open_pool(g, o, e));
    g->parallel = o->parallel ? o->parallel : LILY_DEFAULT_PARALLEL;
    g->turn = lily_calloc(g->parallel, sizeof *g->turn);
    if (!g->turn) return lily_no_memory(e, g->parallel * sizeof *g->turn, "requests");
    TRY(lily_queue_new(&g->queue, o->queue ? o->queue : LILY_DEFAULT_QUEUE, e));
    if (pthread_create(&g->thread, NULL, lily_loop, g) != 0)
        return lily_fail(e, LILY_IO, "the system refused a thread for the engine");
    g->started = true;
    return LILY_OK;
}

int lily_engine_open(lily_engine **out, const lily_engine_options *o, lily_err *e)
{
    lily_engine *g = lily_calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return lily_no_memory(e, sizeof *g, "the engine");
    pthread_mutex_init(&g->lock, NULL);
    atomic_init(&g->clear, false);
    int rc = start(g, o, e);
    if (rc == LILY_OK)
        *out = g;
    else
        lily_engine_close(g);
    return rc;
}

void lily_engine_close(lily_engine *g)
{
    if (!g) return;
    if (g->started) {
        lily_queue_close(g->queue);
        pthread_join(g->thread, NULL);
    }
    lily_queue_let_go(g->queue);
    lily_pool_free(g->pool);
    lily_disk_close(g->disk);
    lily_free(g->turn);
    lily_replies_free(g->replies);
    lily_script_close(g->script);
    lily_unload(&g->m);
    pthread_mutex_destroy(&g->lock);
    lily_free(g);
}

/* ---- submit ---- */

static int check_ids(const lily_engine *g, const lily_ask *a, lily_err *e)
{
    uint32_t vocab = g->m.config->vocab;
    for (uint32_t i = 0; i < a->n_tokens; i++)
        if (a->tokens[i] < 0 || (uint32_t)a->tokens[i] >= vocab)
            return lily_fail(e, LILY_ARGUMENT, "token %u of the prompt is %d, the model has ids 0 to %u", i, a->tokens[i],
                             vocab - 1);
    for (uint32_t i = 0; i < a->sampling.n_bias; i++)
        if (a->sampling.bias[i].token < 0 || (uint32_t)a->sampling.bias[i].token >= vocab)
            return lily_fail(e, LILY_ARGUMENT, "a bias is for token %d, the model has ids 0 to %u",
                             a->sampling.bias[i].token, vocab - 1);
    return LILY_OK;
}

static int check(const lily_engine *g, const lily_ask *a, lily_err *e)
{
    if (a->n_tokens == 0) return lily_fail(e, LILY_ARGUMENT, "the prompt is empty");
    if (a->n_tokens >= g->m.context)
        return lily_fail(e, LILY_CONTEXT, "the prompt has %u tokens, which leaves no room for a reply in a context of %u",
                         a->n_tokens, g->m.context);
    TRY(check_ids(g, a, e));
    for (uint32_t i = 0, before = 0; i < a->n_marks; before = a->marks[i++])
        if (a->marks[i] <= before || a->marks[i] > a->n_tokens)
            return lily_fail(e, LILY_ARGUMENT, "mark %u is at %u, after %u, in a prompt of %u tokens", i, a->marks[i],
                             before, a->n_tokens);
    if (a->sampling.n_logprobs < 0 || a->sampling.n_logprobs > LILY_MAX_TOP)
        return lily_fail(e, LILY_ARGUMENT, "%d alternatives a token, %d is the most", a->sampling.n_logprobs,
                         LILY_MAX_TOP);
    return LILY_OK;
}

int lily_engine_submit(lily_engine *g, const lily_ask *ask, lily_request **out, lily_err *e)
{
    *out = NULL;
    TRY(check(g, ask, e));
    lily_request *r;
    TRY(lily_request_new(&r, ask, g->queue, e));
    int rc = lily_queue_push(g->queue, r, e);
    if (rc == LILY_OK) {
        *out = r;
        return LILY_OK;
    }
    lily_request_let_go(r);     /* both parts: the engine never saw it */
    lily_request_let_go(r);
    return rc;
}

/* ---- questions ---- */

const lily_config *lily_engine_config(const lily_engine *g) { return g->m.config; }
const lily_sampling_defaults *lily_engine_sampling(const lily_engine *g) { return lily_config_sampling(g->m.settings); }
const lily_tokenizer *lily_engine_tokenizer(const lily_engine *g) { return g->m.tokenizer; }
const lily_template *lily_engine_template(const lily_engine *g) { return g->m.chat; }
const lily_memory *lily_engine_memory(const lily_engine *g) { return &g->m.memory; }
uint32_t lily_engine_context(const lily_engine *g) { return g->m.context; }
const char *lily_engine_model_name(const lily_engine *g) { return g->m.name; }
const char *lily_engine_device_text(const lily_engine *g) { return g->pool ? g->m.device_text : "script"; }
const char *lily_engine_fingerprint(const lily_engine *g) { return lily_ckpt_fingerprint(g->m.ckpt); }

lily_replies *lily_engine_replies(lily_engine *g) { return g->replies; }
uint32_t lily_engine_chunk(const lily_engine *g) { return g->m.chunk; }
uint64_t lily_engine_ablated(const lily_engine *g) { return g->m.ablated; }

uint64_t lily_engine_switches(const lily_engine *g)
{
    uint64_t can = 0;
    for (unsigned i = 0; i < N_ABLATIONS; i++) can |= lily_device_keeps(g->m.ops, i) ? 0 : lily_bit(i);
    return can;
}

uint64_t lily_engine_plan_hash(const lily_engine *g, enum lily_mode mode)
{
    lily_plan_device d = lily_loaded_device(&g->m);
    return lily_plan_hash(mode == LILY_DECODE ? g->m.decode : g->m.prefill, &d);
}

void lily_engine_load(lily_engine *g, uint32_t *running, uint32_t *queued)
{
    lily_queue_counts(g->queue, running, queued);
}

void lily_engine_get_stats(lily_engine *g, lily_engine_stats *out)
{
    lily_queue_stats(g->queue, out);
    bool cleared = atomic_load(&g->clear);
    pthread_mutex_lock(&g->lock);
    lily_engine_stats kept = g->kept;
    pthread_mutex_unlock(&g->lock);
    out->evicted_sessions = kept.evicted_sessions;
    out->evicted_snapshots = kept.evicted_snapshots;
    out->sessions = kept.sessions;
    out->snapshots = kept.snapshots;
    out->kept_bytes = cleared ? 0 : kept.kept_bytes;
    out->running_bytes = kept.running_bytes;
    out->cache_bytes = g->m.kept;
}

void lily_engine_cache_clear(lily_engine *g)
{
    lily_replies_clear(g->replies);
    atomic_store(&g->clear, true);
    lily_queue_poke(g->queue);
}

int lily_engine_script_record(lily_engine *g, lily_buf *out, lily_err *e)
{
    if (!g->script) return lily_fail(e, LILY_UNSUPPORTED, "there is no script");
    return lily_script_record(g->script, out, e);
}
