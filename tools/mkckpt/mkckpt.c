/* mkckpt - writes a synthetic MLX checkpoint of the Qwen3.6-35B-A3B architecture, on all cores.
 *
 * The weights are random but shaped so that greedy text walks through the vocabulary with clear margins.
 * Everything is a function of preset and seed: the same arguments give the same bytes on every machine. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "shards.h"
#include "text_files.h"
#include "values.h"

/* Embedded by the build. */
extern const unsigned char corpus_txt[], chat_template_jinja[];
extern const size_t corpus_txt_len, chat_template_jinja_len;

enum { DEFAULT_SEED = 20260601, MAX_THREADS = 256 };
static const double shard_limit = 5e9;

/* ---- workers ----------------------------------------------------------------------- */

/* All blocks of all entries, taken one by one. */
typedef struct work {
    const recipe *recipe;
    const shards *shards;
    pthread_mutex_t lock; /* of entry, block, rc and err */
    size_t entry;
    uint64_t block;
    int rc;
    lily_err err;
    _Atomic uint64_t written;
} work;

typedef struct target {
    work *w;
    const place *place;
} target;

static int put(void *self, uint32_t which, uint64_t at, const void *data, size_t n, lily_err *e)
{
    target *t = self;
    TRY(write_at(t->place->fd, t->place->file, t->place->at[which] + at, data, n, e));
    atomic_fetch_add(&t->w->written, n);
    return LILY_OK;
}

static bool take(work *w, size_t *i, uint64_t *block)
{
    pthread_mutex_lock(&w->lock);
    bool some = w->rc == LILY_OK && w->entry < w->shards->n_entries;
    if (some) {
        *i = w->entry;
        *block = w->block++;
        if (w->block == entry_blocks(&w->shards->entries[w->entry])) {
            w->entry++;
            w->block = 0;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return some;
}

static void *run_worker(void *arg)
{
    work *w = arg;
    size_t i;
    uint64_t block;
    while (take(w, &i, &block)) {
        lily_err e;
        target t = {w, &w->shards->place[i]};
        int rc = entry_make(w->recipe, &w->shards->entries[i], block, &(sink){put, &t}, &e);
        if (rc == LILY_OK) continue;
        pthread_mutex_lock(&w->lock);
        if (w->rc == LILY_OK) {
            w->rc = rc;
            w->err = e;
        }
        pthread_mutex_unlock(&w->lock);
    }
    return NULL;
}

static void show_progress(work *w, uint64_t start, const _Atomic bool *done)
{
    double total = (double)w->shards->bytes;
    for (bool last = false; !last;) {
        last = atomic_load(done);
        double bytes = (double)atomic_load(&w->written), s = (double)(lily_now_ns() - start) / 1e9;
        fprintf(stderr, "\r%5.1f %%  %6.2f of %.2f GB  %5.0f MB/s ", 100 * bytes / total, bytes / 1e9,
                total / 1e9, bytes / 1e6 / (s > 0 ? s : 1));
        if (!last) usleep(200000);
    }
    fputc('\n', stderr);
}

typedef struct progress {
    work *w;
    uint64_t start;
    _Atomic bool done;
} progress;

static void *run_progress(void *arg)
{
    progress *p = arg;
    show_progress(p->w, p->start, &p->done);
    return NULL;
}

/* Fills the shards with as many threads as there are cores; the caller's is one of them. */
static int fill(const recipe *r, const shards *s, lily_err *e)
{
    work w = {.recipe = r, .shards = s, .lock = PTHREAD_MUTEX_INITIALIZER};
    progress p = {.w = &w, .start = lily_now_ns()};
    pthread_t thread[MAX_THREADS], display;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int started = 0;
    bool shown = isatty(STDERR_FILENO) && pthread_create(&display, NULL, run_progress, &p) == 0;
    while (started + 1 < cores && started < MAX_THREADS &&
           pthread_create(&thread[started], NULL, run_worker, &w) == 0)
        started++;
    run_worker(&w);
    while (started) pthread_join(thread[--started], NULL);
    atomic_store(&p.done, true);
    if (shown) pthread_join(display, NULL);
    pthread_mutex_destroy(&w.lock);
    if (w.rc != LILY_OK) *e = w.err;
    return w.rc;
}

/* ---- the whole --------------------------------------------------------------------- */

static int finish_json(jw *w, const char *dir, const char *name, lily_err *e)
{
    lily_buf_putc(&w->out, '\n');
    int rc = lily_buf_ok(&w->out, name, e);
    if (rc == LILY_OK) rc = write_file(dir, name, w->out.data, w->out.len, e);
    lily_buf_free(&w->out);
    return rc;
}

static int write_text_files(const preset *p, const vocabulary *v, const char *dir, lily_err *e)
{
    jw tokenizer = {.indent = p->text_ids ? JW_ONE_LINE : 1};
    tokenizer_json(&tokenizer, v);
    TRY(finish_json(&tokenizer, dir, "tokenizer.json", e));
    jw tokenizer_config = {.indent = 2};
    tokenizer_config_json(&tokenizer_config, p, v);
    TRY(finish_json(&tokenizer_config, dir, "tokenizer_config.json", e));
    jw generation = {.indent = 2};
    generation_config_json(&generation, v);
    TRY(finish_json(&generation, dir, "generation_config.json", e));
    return write_file(dir, "chat_template.jinja", chat_template_jinja, chat_template_jinja_len, e);
}

static int write_tensors(const preset *p, const vocabulary *v, uint32_t seed, const char *dir, lily_err *e)
{
    lily_arena arena = {0};
    shards s = {0};
    recipe r;
    size_t n = 0;
    entry *entries = preset_entries(p, &n, &arena);
    recipe_init(&r, p, v, seed);
    int rc = entries ? shards_plan(&s, p, entries, n, shard_limit, e)
                     : lily_no_memory(e, 0, "the list of tensors");
    if (rc == LILY_OK) rc = shards_create(&s, p, dir, e);
    if (rc == LILY_OK) rc = fill(&r, &s, e);
    if (rc == LILY_OK) rc = shards_write_index(&s, dir, e);
    int closed = shards_close(&s, rc == LILY_OK ? e : NULL);
    lily_arena_free(&arena);
    return rc != LILY_OK ? rc : closed;
}

/* Written last and removed first, so that a run that was cut short leaves nothing that loads. */
static int write_config(const preset *p, const vocabulary *v, const char *dir, lily_err *e)
{
    jw config = {.indent = 2};
    config_json(&config, p, v);
    return finish_json(&config, dir, "config.json", e);
}

static int remove_config(const char *dir, lily_err *e)
{
    char *path = lily_path_join(dir, "config.json");
    if (!path) return lily_no_memory(e, strlen(dir), "a path");
    int rc = LILY_OK;
    if (unlink(path) != 0 && errno != ENOENT) rc = lily_fail(e, LILY_IO, "%s: %s", path, strerror(errno));
    lily_free(path);
    return rc;
}

static int make(const preset *p, uint32_t seed, bool tensors, const char *dir, lily_err *e)
{
    vocabulary v;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return lily_fail(e, LILY_IO, "%s: %s", dir, strerror(errno));
    TRY(remove_config(dir, e));
    int rc = vocabulary_build(&v, p, (const char *)corpus_txt, corpus_txt_len, e);
    if (rc == LILY_OK) rc = write_text_files(p, &v, dir, e);
    if (rc == LILY_OK && tensors) rc = write_tensors(p, &v, seed, dir, e);
    if (rc == LILY_OK) rc = write_config(p, &v, dir, e);
    vocabulary_free(&v);
    return rc;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: mkckpt [--text] PRESET DIR [SEED]\nWrites a synthetic checkpoint of PRESET to DIR;"
            " with --text all but its tensors.\n");
    for (size_t i = 0; i < n_presets; i++) fprintf(stderr, "  %-6s %s\n", presets[i].name, presets[i].what);
    return 2;
}

int main(int argc, char **argv)
{
    lily_err e;
    unsigned long seed = DEFAULT_SEED;
    char *end = "";
    bool text = argc > 1 && strcmp(argv[1], "--text") == 0;
    argc -= text;
    argv += text;
    if (argc < 3 || argc > 4) return usage();
    const preset *p = preset_find(argv[1]);
    if (argc == 4) seed = strtoul(argv[3], &end, 10);
    if (!p || *end || seed > UINT32_MAX) return usage();
    if (make(p, (uint32_t)seed, !text, argv[2], &e) == LILY_OK) return 0;
    fprintf(stderr, "mkckpt: %s\n", e.text);
    return lily_err_exit_status((int)e.code);
}
