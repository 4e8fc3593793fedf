/* chat.c - lily chat: interactive on a terminal, one answer for -p TEXT or a pipe. */
#include "cli/chat.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/commands.h"

static int read_sampling(const lily_args *a, const lily_sampling_defaults *d, lily_talk *t, lily_err *e)
{
    double temperature, top_p, min_p;
    uint64_t top_k, seed, max_tokens;
    TRY(lily_arg_real(a, OPT_TEMPERATURE, 0, 2, d->temperature, &temperature, e));
    TRY(lily_arg_real(a, OPT_TOP_P, 0, 1, d->top_p, &top_p, e));
    TRY(lily_arg_real(a, OPT_MIN_P, 0, 1, d->min_p, &min_p, e));
    TRY(lily_arg_uint(a, OPT_TOP_K, 0, INT32_MAX, (uint64_t)d->top_k, &top_k, e));
    TRY(lily_arg_uint(a, OPT_SEED, 0, UINT64_MAX, 0, &seed, e));
    TRY(lily_arg_uint(a, OPT_MAX_TOKENS, 1, UINT32_MAX, 0, &max_tokens, e));
    t->sampling = (lily_sampling){.temperature = (float)temperature,
                                  .top_p = (float)top_p,
                                  .min_p = (float)min_p,
                                  .presence = d->presence,
                                  .frequency = d->frequency,
                                  .repetition = d->repetition,
                                  .top_k = (int32_t)top_k,
                                  .seed = seed};
    t->fixed_seed = lily_arg_given(a, OPT_SEED);
    t->max_tokens = (uint32_t)max_tokens;
    return LILY_OK;
}

static int read_thinking(const lily_args *a, lily_talk *t, lily_err *e)
{
    int off;
    if (!lily_arg_given(a, OPT_THINKING)) return LILY_OK;
    TRY(lily_arg_choice(a, OPT_THINKING, 0, &off, e));
    json_object_set_new(t->kwargs, "enable_thinking", json_boolean(!off));
    return LILY_OK;
}

/* One question out of -p or of everything that a pipe brings. */
static int one_answer(const lily_args *a, lily_talk *t, lily_err *e)
{
    enum { MOST_INPUT = 64 << 20 };
    lily_buf piped = {0};
    bool interrupted = false;
    int rc = LILY_OK;
    const char *question = a->value[OPT_PROMPT];
    size_t n = question ? strlen(question) : 0;
    if (!question) {
        rc = lily_file_read(&piped, "-", MOST_INPUT, e);
        question = lily_buf_str(&piped);
        n = piped.len;
    }
    if (rc == LILY_OK && strspn(question, " \t\r\n") == n) rc = lily_fail(e, LILY_ARGUMENT, "the question is empty");
    if (rc == LILY_OK) rc = lily_talk_ask(t, question, n, &interrupted, e);
    if (rc == LILY_OK && interrupted) rc = lily_fail(e, LILY_CANCELLED, "stopped");
    lily_buf_free(&piped);
    return rc;
}

static int talk(const lily_args *a, lily_talk *t, lily_err *e)
{
    TRY(read_sampling(a, lily_engine_sampling(t->engine), t, e));
    if (lily_arg_given(a, OPT_SYSTEM)) lily_talk_set_system(t, a->value[OPT_SYSTEM]);
    lily_catch_interrupts();
    if (lily_arg_given(a, OPT_PROMPT) || !isatty(STDIN_FILENO)) return one_answer(a, t, e);
    return lily_talk_loop(t, e);
}

/* What can be wrong without the model is found before the weights are read. */
static int prepare(const lily_args *a, lily_talk *t, lily_err *e)
{
    t->messages = json_array();
    t->kwargs = json_object();
    if (!t->messages || !t->kwargs) return lily_no_memory(e, sizeof *t, "the conversation");
    TRY(read_sampling(a, &(lily_sampling_defaults){0}, t, e));
    return read_thinking(a, t, e);
}

int lily_cmd_chat(const lily_args *a, lily_err *e)
{
    lily_engine_options o;
    char *dir = NULL;
    lily_talk t = {.stats = lily_arg_given(a, OPT_STATS), .terminal = isatty(STDOUT_FILENO)};
    int rc;
    TRY_TO(done, prepare(a, &t, e));
    TRY_TO(done, lily_engine_options_from(a, &o, &dir, e));
    if (!lily_arg_given(a, OPT_CACHE_MIB)) o.cache_bytes = LILY_OWN_CACHE;    /* there is one conversation */
    TRY_TO(done, lily_engine_open(&t.engine, &o, e));
    TRY_TO(done, talk(a, &t, e));
done:
    json_decref(t.messages);
    json_decref(t.kwargs);
    lily_engine_close(t.engine);
    lily_free(dir);
    return rc;
}
