/* load.c - from a folder to something that runs, and what it will need. */
#include "run/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/warm.h"
#include "run/disk.h"
#include "run/memory.h"
#include "run/prove.h"
#include "run/session.h"

static void tell(const lily_engine_options *o, const char *what, double fraction)
{
    if (o->progress) o->progress(o->user, what, fraction);
}

/* The last component of the folder's real path, so that "." has a name too. */
static int folder_name(lily_loaded *m, const char *dir, lily_err *e)
{
    char *real = realpath(dir, NULL);
    m->name = lily_strdup(lily_path_base(real ? real : dir));
    free(real);     /* the system's memory, not ours */
    return m->name ? LILY_OK : lily_no_memory(e, strlen(dir), "the model's name");
}

static int read_folder(lily_loaded *m, const lily_engine_options *o, lily_err *e)
{
    TRY(folder_name(m, o->model_dir, e));
    TRY(lily_config_open(&m->settings, o->model_dir, e));
    m->config = lily_config_numbers(m->settings);
    TRY(lily_ckpt_open(&m->ckpt, o->model_dir, e));
    TRY(lily_model_open(&m->model, m->ckpt, m->settings, e));
    tell(o, "reading the tokenizer", 0.2);
    TRY(lily_tokenizer_open(&m->tokenizer, o->model_dir, e));
    TRY(lily_template_load(&m->chat, o->model_dir, e));
    return LILY_OK;
}

uint32_t lily_context_of(uint32_t asked, const lily_config *c)
{
    if (asked) return asked;
    return c->max_positions < LILY_DEFAULT_CONTEXT ? c->max_positions : LILY_DEFAULT_CONTEXT;
}

static int choose_sizes(lily_loaded *m, const lily_engine_options *o, lily_err *e)
{
    m->context = lily_context_of(o->context, m->config);
    if (m->context > m->config->max_positions)
        return lily_fail(e, LILY_ARGUMENT, "a context of %u tokens is more than the %u that the model knows", m->context,
                         m->config->max_positions);
    m->ablated = o->ablated;
    return LILY_OK;
}

static void set_chunk(lily_loaded *m, uint32_t chunk)
{
    m->chunk = chunk > m->context || (m->ablated & lily_bit(ABLATE_PROMPT_CHUNKS)) ? m->context : chunk;
}

/* What was asked for, or what suits the device. */
static uint32_t first_chunk(const lily_loaded *m, const lily_engine_options *o)
{
    return o->chunk ? o->chunk : m->ops->chunk ? m->ops->chunk : LILY_DEFAULT_CHUNK;
}

int lily_engine_precheck(const lily_engine_options *o, lily_err *e)
{
    TRY(lily_device_known(o->device ? o->device : "auto", e));
    if (o->script && !lily_file_exists(o->script)) return lily_fail(e, LILY_IO, "%s: %s", o->script, strerror(errno));
    lily_loaded m = {0};
    TRY(lily_config_open(&m.settings, o->model_dir, e));
    m.config = lily_config_numbers(m.settings);
    int rc = choose_sizes(&m, o, e);
    lily_config_close(m.settings);
    return rc;
}

lily_plan_device lily_loaded_device(const lily_loaded *m)
{
    lily_plan_device d = lily_device_for_plan(m->ops, m->dev);
    memcpy(d.refused, m->refused, sizeof d.refused);
    return d;
}

/* Before anything is planned for a model that will run. */
static int prove_rows(lily_loaded *m, const lily_engine_options *o, lily_err *e)
{
    const lily_prove_ask ask = {m->chunk, m->context, m->ablated};
    if (m->ops == &lily_dev_ref || (m->ablated & lily_bit(ABLATE_SELF_PROOF))) return LILY_OK;
    tell(o, "proving rows", 0.3);
    return lily_prove(m->ops, m->dev, m->model, &ask, m->refused, e);
}

int lily_plan_runs(lily_loaded *m, lily_err *e)
{
    lily_plan_device d = lily_loaded_device(m);
    lily_plan_ask ask = {.mode = LILY_DECODE, .max_tokens = 1, .max_context = m->context, .ablated = m->ablated};
    if (m->ablated & lily_bit(ABLATE_ROW_GEMV)) ask.mode = LILY_PREFILL, ask.max_tokens = 2; /* by the rows of many */
    TRY(lily_plan_make(&m->decode, &d, m->config, &ask, e));
    ask.mode = LILY_PREFILL;
    ask.max_tokens = m->chunk;
    return lily_plan_make(&m->prefill, &d, m->config, &ask, e);
}

/* Half of what is left, since other programs want memory too; but no more than some full conversations. */
static uint64_t default_cache(const lily_loaded *m, uint64_t limit)
{
    const lily_memory *y = &m->memory;
    enum { CONVERSATIONS = 16 };
    const uint64_t most = UINT64_C(8) << 30, step = UINT64_C(1) << 20;
    uint64_t total, available, allocated = y->planned - y->weights, full = (y->kv + y->state) * CONVERSATIONS;
    lily_system_memory(&total, &available);
    if (m->ops->own_memory) total = available = m->device_free, allocated = y->planned;
    uint64_t left = total > y->planned ? total - y->planned : 0;
    if (available < allocated + left) left = available > allocated ? available - allocated : 0;
    if (limit) left = limit > y->planned ? limit - y->planned : 0;
    left /= 2;
    if (left > most) left = most;
    if (left > full) left = full;
    return left / step * step;
}

static void estimate(lily_loaded *m, const lily_engine_options *o)
{
    uint64_t fixed, snapshot, per_token;
    m->ops->state_cost(m->config, &fixed, &snapshot, &per_token);
    lily_memory *y = &m->memory;
    const uint64_t loaded = m->ops->load_bytes ? m->ops->load_bytes(m->model) : 0;
    y->weights = m->ops->own_memory ? loaded : m->model->weight_bytes;
    y->device = m->ops->own_memory ? 0 : loaded;
    y->kv = per_token * m->context;
    y->state = lily_session_cost(m, m->context, LILY_SNAPSHOTS) - y->kv;
    y->replies = LILY_REPLIES_BYTES;
    y->scratch = m->decode->scratch_bytes + m->prefill->scratch_bytes + lily_token_trie_cost(m->tokenizer) +
                 (o->cache_dir ? lily_disk_cost(m) : 0);
    y->planned = y->weights + y->device + y->kv + y->state + y->replies + y->scratch;
    if (o->cache_bytes == 0 || o->cache_bytes == LILY_OWN_CACHE) {
        /* When nobody runs, what was planned for the one that does keeps one more. */
        if (o->cache_bytes == 0) y->cache = default_cache(m, o->memory_limit);
        m->kept = y->cache + y->kv + y->state;
    } else if (o->cache_bytes != LILY_NO_CACHE) {
        m->kept = y->cache = o->cache_bytes;
    }
    y->planned += y->cache;
}

static void tell_loading(void *user, double fraction) { tell(user, "copying weights", fraction); }

/* A script computes nothing: it takes the figures of the device that was asked for, or else those of ref. */
static int open_device(lily_loaded *m, const lily_engine_options *o, enum lily_load_depth depth, lily_err *e)
{
    const char *name = o->device ? o->device : "auto";
    const lily_dev_options options = {.threads = o->threads, .loading = tell_loading, .user = (void *)(uintptr_t)o};
    int rc = lily_device_open(&m->ops, &m->dev, name, &options, e);
    if (rc == LILY_UNSUPPORTED && depth == LILY_LOAD_SCRIPT)
        rc = lily_device_open(&m->ops, &m->dev, "ref", &options, e);
    TRY(rc);
    if (depth != LILY_LOAD_SCRIPT) TRY(lily_device_without(m->ops, m->ablated, e));
    if (m->ops->look) m->ops->look(m->dev, m->model);
    m->ops->describe(m->dev, m->device_text, sizeof m->device_text, &m->device_total, &m->device_free);
    return LILY_OK;
}

/* A device with memory of its own holds everything there; the map is only read. */
static int check_memory(const lily_loaded *m, const lily_engine_options *o, lily_err *e)
{
    if (!m->ops->own_memory) return lily_memory_fits(&m->memory, o->memory_limit, m->context, e);
    return lily_device_memory_fits(&m->memory, m->device_free, o->memory_limit, m->context, e);
}

int lily_plan_memory(lily_loaded *m, const lily_engine_options *o, lily_err *e)
{
    set_chunk(m, first_chunk(m, o));
    for (;;) {
        lily_err ignored;
        TRY(lily_plan_runs(m, e));
        estimate(m, o);
        const bool fixed = o->chunk || (m->ablated & lily_bit(ABLATE_PROMPT_CHUNKS)) || m->chunk <= LILY_DEFAULT_CHUNK;
        if (fixed || check_memory(m, o, &ignored) == LILY_OK) return LILY_OK;
        lily_plan_free(m->decode);
        lily_plan_free(m->prefill);
        m->decode = m->prefill = NULL;
        set_chunk(m, m->chunk / 2);
    }
}

static void say_memory(const lily_memory *y, uint32_t context)
{
    const double gib = 1 << 30;
    lily_log(LILY_LOG_INFO,
             "%.2f GiB planned: weights %.2f, keys and values of %u tokens %.2f, states %.2f, kept conversations %.2f, "
             "copies and scratch %.2f",
             (double)y->planned / gib, (double)y->weights / gib, context, (double)y->kv / gib, (double)y->state / gib,
             (double)(y->cache + y->replies) / gib, (double)(y->device + y->scratch) / gib);
}

static void say_loaded(uint64_t bytes, uint64_t ns)
{
    lily_log(LILY_LOG_INFO, "weights copied to the device in %.1f s, %.1f GB/s", (double)ns / 1e9, (double)bytes / (double)ns);
}

static void tell_warm(void *user, double fraction) { tell(user, "reading weights", fraction); }

static int make_ready(lily_loaded *m, const lily_engine_options *o, lily_err *e)
{
    TRY(check_memory(m, o, e));
    say_memory(&m->memory, m->context);
    TRY(lily_model_warm(m->ckpt, o->cancel, tell_warm, (void *)o, e));
    const uint64_t start = lily_now_ns();
    TRY(m->ops->load(m->dev, m->model, &m->weights, e));
    if (m->ops->own_memory) say_loaded(m->memory.weights, lily_now_ns() - start);
    tell(o, "preparing the device", 0.9);
    TRY(m->ops->prepare(m->dev, m->weights, m->decode, &m->run_decode, e));
    TRY(m->ops->prepare(m->dev, m->weights, m->prefill, &m->run_prefill, e));
    return m->ablated & lily_bit(ABLATE_MASK_OVERLAP) ? LILY_OK : lily_ahead_new(&m->ahead, e);
}

int lily_load(lily_loaded *m, const lily_engine_options *o, enum lily_load_depth depth, lily_err *e)
{
    int rc;
    *m = (lily_loaded){0};
    tell(o, "reading the checkpoint", 0);
    TRY_TO(failed, read_folder(m, o, e));
    TRY_TO(failed, choose_sizes(m, o, e));
    TRY_TO(failed, open_device(m, o, depth, e));
    set_chunk(m, first_chunk(m, o));
    if (depth == LILY_LOAD_FULL) TRY_TO(failed, prove_rows(m, o, e));
    TRY_TO(failed, lily_plan_memory(m, o, e));
    if (depth != LILY_LOAD_CHECK)
        TRY_TO(failed, lily_token_trie_new(&m->trie, m->tokenizer, m->config->eos, m->config->n_eos, e));
    if (depth == LILY_LOAD_FULL) TRY_TO(failed, make_ready(m, o, e));
    if (depth == LILY_LOAD_CHECK) TRY_TO(failed, check_memory(m, o, e));
    tell(o, "ready", 1);
    return LILY_OK;
failed:
    lily_unload(m);
    return rc;
}

void lily_unload(lily_loaded *m)
{
    lily_ahead_free(m->ahead);
    if (m->run_prefill) m->ops->release(m->dev, m->run_prefill);
    if (m->run_decode) m->ops->release(m->dev, m->run_decode);
    if (m->weights) m->ops->unload(m->dev, m->weights);
    lily_plan_free(m->prefill);
    lily_plan_free(m->decode);
    if (m->dev) m->ops->close(m->dev);
    lily_token_trie_free(m->trie);
    lily_template_free(m->chat);
    lily_tokenizer_free(m->tokenizer);
    lily_model_close(m->model);
    lily_ckpt_close(m->ckpt);
    lily_config_close(m->settings);
    lily_free(m->name);
    *m = (lily_loaded){0};
}

int lily_engine_check(const lily_engine_options *o, lily_memory *memory, uint32_t *context, lily_err *e)
{
    lily_loaded m;
    TRY(lily_load(&m, o, o->script ? LILY_LOAD_SCRIPT : LILY_LOAD_CHECK, e));
    *memory = m.memory;
    *context = m.context;
    lily_unload(&m);
    return LILY_OK;
}
