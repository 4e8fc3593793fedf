/* common.c - what the commands share: finding the model, engine options, progress. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "plan/plan.h"

#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

bool lily_program_path(char *out, size_t room)
{
#if defined(__APPLE__)
    uint32_t n = (uint32_t)room;
    char raw[PATH_MAX], real[PATH_MAX];
    if (_NSGetExecutablePath(raw, &n) != 0 || !realpath(raw, real) || strlen(real) >= room) return false;
    strcpy(out, real);
    return true;
#else
    ssize_t n = readlink("/proc/self/exe", out, room - 1);
    if (n <= 0) return false;
    out[n] = 0;
    return true;
#endif
}

/* The demo model: installed as PREFIX/share/lily/demo, or in the tree that the program was built in. */
static char *find_demo_model(void)
{
    static const char *const places[] = {"../share/lily/demo", "../models/demo"};
    char path[PATH_MAX];
    if (!lily_program_path(path, sizeof path)) return NULL;
    char *slash = strrchr(path, '/');
    if (slash) *slash = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char *dir = lily_path_join(path, places[i]), *config = dir ? lily_path_join(dir, "config.json") : NULL;
        bool found = config && lily_file_exists(config);
        lily_free(config);
        if (found) return dir;
        lily_free(dir);
    }
    return NULL;
}

/* Whether a folder named by a person can be a checkpoint; what is in it is read later. */
static int check_folder(const char *dir, lily_err *e)
{
    if (!lily_file_exists(dir))
        return lily_fail(e, LILY_IO, "%s: %s", dir, errno == ENOENT ? "there is no such folder" : strerror(errno));
    char *config = lily_path_join(dir, "config.json");
    if (!config) return lily_no_memory(e, strlen(dir), "a path");
    int why = lily_file_exists(config) ? 0 : errno;
    lily_free(config);
    if (!why) return LILY_OK;
    if (why == ENOTDIR) return lily_fail(e, LILY_IO, "%s: a checkpoint is a folder, this is a file", dir);
    if (why == ENOENT) return lily_fail(e, LILY_IO, "%s: not a checkpoint folder, config.json is not in it", dir);
    return lily_fail(e, LILY_IO, "%s: %s", dir, strerror(why));
}

static int find_model(const lily_args *a, char **dir, lily_err *e)
{
    if (lily_arg_given(a, OPT_MODEL)) {
        TRY(check_folder(a->value[OPT_MODEL], e));
        *dir = lily_strdup(a->value[OPT_MODEL]);
        return *dir ? LILY_OK : lily_no_memory(e, strlen(a->value[OPT_MODEL]), "a path");
    }
    *dir = find_demo_model();
    if (!*dir) return lily_fail(e, LILY_ARGUMENT, "no --model was given and the demo model is not beside this program");
    lily_log(LILY_LOG_INFO, "no --model given: using the demo model, a tiny one that shows that everything works");
    return LILY_OK;
}

int lily_engine_options_from(const lily_args *a, lily_engine_options *o, char **model_dir, lily_err *e)
{
    uint64_t threads, context, chunk, mib, cache;
    *o = (lily_engine_options){.device = "auto", .progress = lily_show_progress};
    if (lily_arg_given(a, OPT_DEVICE)) o->device = a->value[OPT_DEVICE];
    if (lily_arg_given(a, OPT_SCRIPT)) o->script = a->value[OPT_SCRIPT];
    TRY(lily_arg_uint(a, OPT_THREADS, 1, 1024, 0, &threads, e));
    TRY(lily_arg_uint(a, OPT_CTX_SIZE, 1, INT32_MAX, 0, &context, e));
    TRY(lily_arg_uint(a, OPT_CHUNK, 1, 1 << 20, 0, &chunk, e));
    TRY(lily_arg_uint(a, OPT_MEMORY_MIB, 1, UINT64_MAX >> 20, 0, &mib, e));
    TRY(lily_arg_uint(a, OPT_CACHE_MIB, 0, UINT64_MAX >> 21, 0, &cache, e));
    if (lily_arg_given(a, OPT_CACHE_MIB)) o->cache_bytes = cache ? cache << 20 : LILY_NO_CACHE;
    if (lily_arg_given(a, OPT_WITHOUT)) TRY(lily_ablation_parse(a->value[OPT_WITHOUT], &o->ablated, e));
    o->threads = (uint32_t)threads;
    o->context = (uint32_t)context;
    o->chunk = (uint32_t)chunk;
    o->memory_limit = mib << 20;
    TRY(find_model(a, model_dir, e));
    o->model_dir = *model_dir;
    return LILY_OK;
}

void lily_show_progress(void *user, const char *what, double fraction)
{
    (void)user;
    enum { WIDTH = 32 };
    if (!isatty(STDERR_FILENO)) return;
    int full = (int)lround(fraction * WIDTH);
    fprintf(stderr, "\r%-24.24s [", what);
    for (int i = 0; i < WIDTH; i++) fputc(i < full ? '#' : ' ', stderr);
    fprintf(stderr, "] %3.0f %%", fraction * 100);
    if (fraction >= 1) fputs("\r\033[K", stderr);
    fflush(stderr);
}
