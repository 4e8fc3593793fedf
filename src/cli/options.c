#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const lily_option_text options[] = {
#define X(id, name, letter, metavar, commands, help) {name, metavar, help, commands, letter},
#include "cli/options.def"
#undef X
};

static const lily_command_text commands[] = {
    {CHAT, "chat", "chat [options]", "talk with the model; -p TEXT or a pipe for one answer"},
    {SERVE, "serve", "serve [options]", "serve the OpenAI-compatible API"},
    {SCORE, "score", "score (--text FILE | --ids FILE) [options]", "log-likelihood of a text, for comparisons"},
    {ABLATE, "ablate", "ablate [options]", "measure what each optimisation is worth, by turning it off"},
    {BENCH, "bench", "bench [options]", "measure how fast prompts are read and tokens come"},
    {INSPECT, "inspect", "inspect [plan] [options]", "what would be loaded, what would run, how much memory"},
    {REPLAY, "replay", "replay TRACE [options]", "ask again what a trace of lily serve --trace holds, and compare"},
    {0, "completions", "completions bash|zsh|fish", "a completion script for a shell"},
    {0, "man", "man", "the manual page: lily man | man -l -"},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

const lily_option_text *lily_option_at(int option) { return &options[option]; }
const lily_command_text *lily_command_at(int i) { return i < N_COMMANDS ? &commands[i] : NULL; }

const char *lily_command_name(enum lily_command command)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (commands[i].command == command) return commands[i].name;
    return NULL;
}

enum lily_command lily_command_find(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return commands[i].command;
    return 0;
}

/* ---- parse ---- */

static int find_long(enum lily_command command, const char *name, size_t n)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if ((options[i].commands & command) && strlen(options[i].name) == n && memcmp(options[i].name, name, n) == 0)
            return i;
    return -1;
}

static int find_letter(enum lily_command command, char letter)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if ((options[i].commands & command) && options[i].letter == letter && letter) return i;
    return -1;
}

/* Which option argv names, and the value that stands in the same word after '=' (or NULL). */
static int find_option(enum lily_command command, const char *word, const char **value)
{
    *value = NULL;
    if (word[1] != '-') return word[1] && !word[2] ? find_letter(command, word[1]) : -1;
    size_t n = strcspn(word + 2, "=");
    if (word[2 + n] == '=') *value = word + 3 + n;
    return find_long(command, word + 2, n);
}

/* Lists: given again, they grow. */
static bool grows(int o) { return o == OPT_WITHOUT || o == OPT_CORS_ORIGIN || o == OPT_ALLOWED_HOST; }

static int set_value(lily_args *a, int o, const char *value, lily_err *e)
{
    if (grows(o)) {
        lily_buf *joined = &a->joined[o];
        if (joined->len) lily_buf_putc(joined, ',');
        lily_buf_puts(joined, value);
        TRY(lily_buf_ok(joined, "the command line", e));
        value = lily_buf_str(joined);
    }
    a->value[o] = value;
    return LILY_OK;
}

int lily_args_parse(lily_args *a, enum lily_command command, int argc, char **argv, lily_err *e)
{
    *a = (lily_args){.command = command};
    for (int i = 2; i < argc; i++) {
        const char *word = argv[i], *value;
        if (word[0] != '-' || !word[1]) {
            bool fits = command == REPLAY || (command == INSPECT && strcmp(word, "plan") == 0);
            if (!fits || a->word)
                return lily_fail(e, LILY_ARGUMENT, "unexpected '%s' (see lily %s --help)", word,
                                 lily_command_name(command));
            a->word = word;
            continue;
        }
        int o = find_option(command, word, &value);
        if (o < 0)
            return lily_fail(e, LILY_ARGUMENT, "unknown option '%s' (see lily %s --help)", word,
                             lily_command_name(command));
        bool takes_value = options[o].metavar[0];
        if (!takes_value && value) return lily_fail(e, LILY_ARGUMENT, "option --%s takes no value", options[o].name);
        if (takes_value && !value && i + 1 == argc)
            return lily_fail(e, LILY_ARGUMENT, "option --%s needs a value: %s", options[o].name, options[o].metavar);
        if (takes_value && !value) value = argv[++i];
        TRY(set_value(a, o, value ? value : "", e));
    }
    return LILY_OK;
}

void lily_args_free(lily_args *a)
{
    for (int i = 0; i < N_OPTIONS; i++) lily_buf_free(&a->joined[i]);
}

int lily_arg_uint(const lily_args *a, enum lily_option o, uint64_t low, uint64_t high, uint64_t missing,
                  uint64_t *out, lily_err *e)
{
    const char *s = a->value[o];
    *out = missing;
    if (!s) return LILY_OK;
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (s[0] < '0' || s[0] > '9' || *end || errno || v < low || v > high)
        return lily_fail(e, LILY_ARGUMENT, "option --%s: '%s' is not a whole number from %llu to %llu", options[o].name,
                         s, (unsigned long long)low, (unsigned long long)high);
    *out = v;
    return LILY_OK;
}

int lily_arg_real(const lily_args *a, enum lily_option o, double low, double high, double missing, double *out,
                  lily_err *e)
{
    const char *s = a->value[o];
    *out = missing;
    if (!s) return LILY_OK;
    char *end = NULL;
    double v = strtod(s, &end);
    if (end == s || *end || !isfinite(v) || v < low || v > high)
        return lily_fail(e, LILY_ARGUMENT, "option --%s: '%s' is not a number from %g to %g", options[o].name, s, low,
                         high);
    *out = v;
    return LILY_OK;
}

int lily_arg_choice(const lily_args *a, enum lily_option o, int missing, int *out, lily_err *e)
{
    const char *s = a->value[o], *choices = options[o].metavar;
    *out = missing;
    if (!s) return LILY_OK;
    *out = 0;
    for (const char *p = choices; *p; (*out)++) {
        size_t n = strcspn(p, "|");
        if (strlen(s) == n && memcmp(s, p, n) == 0) return LILY_OK;
        p += n + (p[n] == '|');
    }
    return lily_fail(e, LILY_ARGUMENT, "option --%s: '%s' is not one of %s", options[o].name, s, choices);
}

int lily_arg_list(const lily_args *a, enum lily_option o, uint32_t **list, uint32_t *n, lily_err *e)
{
    const char *s = a->value[o];
    uint32_t most = 1;
    for (const char *p = s; *p; p++) most += *p == ',';
    *n = 0;
    *list = lily_calloc(most, sizeof **list);
    if (!*list) return lily_no_memory(e, most * sizeof **list, "a list of numbers");
    for (const char *p = s;;) {
        char *end = NULL;
        errno = 0;
        unsigned long long v = strtoull(p, &end, 10);
        if (*p < '0' || *p > '9' || errno || v < 1 || v > UINT32_MAX || (*end && *end != ',')) {
            lily_free(*list);
            *list = NULL;
            return lily_fail(e, LILY_ARGUMENT, "option --%s: '%s' is not a list of whole numbers like 256,1024",
                             options[o].name, s);
        }
        (*list)[(*n)++] = (uint32_t)v;
        if (!*end) return LILY_OK;
        p = end + 1;
    }
}

/* ---- help ---- */

enum { HELP_WIDTH = 80, HELP_COLUMN = 26 };

/* Characters on a terminal, not bytes: the table has an ellipsis. */
static size_t columns(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += (s[i] & 0xc0) != 0x80;
    return count;
}

/* `left` in the first column, `text` wrapped in the second. */
static void print_entry(FILE *f, const char *left, const char *text)
{
    size_t at = 2 + columns(left, strlen(left));
    fprintf(f, "  %s", left);
    if (at >= HELP_COLUMN) {
        fputc('\n', f);
        at = 0;
    }
    for (bool first = true; *text; first = false) {
        size_t n = strcspn(text, " "), wide = columns(text, n);
        if (first || at + 1 + wide > HELP_WIDTH) {
            if (!first) {
                fputc('\n', f);
                at = 0;
            }
            for (; at < HELP_COLUMN; at++) fputc(' ', f);
        } else {
            fputc(' ', f);
            at++;
        }
        fwrite(text, 1, n, f);
        at += wide;
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', f);
}

void lily_help_all(FILE *f)
{
    fputs("lily - runs Qwen3.6-35B-A3B from its 4-bit MLX checkpoint\n\nusage: lily COMMAND [options]\n\n", f);
    for (int i = 0; i < N_COMMANDS; i++) {
        bool plain = !strchr(commands[i].usage, ' ') || commands[i].command;
        print_entry(f, plain ? commands[i].name : commands[i].usage, commands[i].what);
    }
    print_entry(f, "help COMMAND", "the options of a command");
    print_entry(f, "--version", "version, devices and instruction sets");
}

bool lily_help_command(FILE *f, const char *name)
{
    const lily_command_text *c = commands, *end = commands + N_COMMANDS;
    while (c < end && strcmp(c->name, name) != 0) c++;
    if (c == end) return false;
    fprintf(f, "usage: lily %s\n\n%s\n", c->usage, c->what);
    if (c->command) fputc('\n', f);
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!(options[i].commands & c->command)) continue;
        char left[64];
        if (options[i].letter)
            snprintf(left, sizeof left, "-%c, --%s %s", options[i].letter, options[i].name, options[i].metavar);
        else
            snprintf(left, sizeof left, "    --%s %s", options[i].name, options[i].metavar);
        print_entry(f, left, options[i].help);
    }
    return true;
}
