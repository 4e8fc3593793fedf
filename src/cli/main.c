/* main.c - lily COMMAND [options]. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/shells.h"
#include "device/dev.h"
#include "version.h"

static void print_version(void)
{
    printf("lily %s\n", LILY_VERSION);
    size_t n;
    const lily_dev_ops *const *devices = lily_devices(&n);
    for (size_t i = 0; i < n; i++) {
        lily_dev *dev = NULL;
        lily_err e;
        char text[256];
        uint64_t total, room;
        if (devices[i]->open(&dev, &(lily_dev_options){0}, &e) != LILY_OK) {
            printf("%s: built, but %s\n", devices[i]->name, e.text);
            continue;
        }
        devices[i]->describe(dev, text, sizeof text, &total, &room);
        printf("%s: built, %s\n", devices[i]->name, text + strlen(devices[i]->name) + 2);
        devices[i]->close(dev);
    }
    if (!lily_device_find("cuda")) printf("cuda: not built\n");
}

static int run(enum lily_command command, const lily_args *a, lily_err *e)
{
    switch (command) {
    case CHAT: return lily_cmd_chat(a, e);
    case SERVE: return lily_cmd_serve(a, e);
    case SCORE: return lily_cmd_score(a, e);
    case BENCH: return lily_cmd_bench(a, e);
    case ABLATE: return lily_cmd_ablate(a, e);
    case INSPECT: return lily_cmd_inspect(a, e);
    case REPLAY: return lily_cmd_replay(a, e);
    }
    return LILY_INTERNAL;
}

static int fail(const lily_err *e)
{
    fflush(stdout);
    lily_log(LILY_LOG_ERROR, "%s", e->text);
    return lily_err_exit_status(e->code);
}

/* The end of a command that went well, unless what it printed did not get through.  A reader that has seen enough and
 * leaves needs no words. */
static int end(void)
{
    errno = 0;
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (!lost) return 0;
    struct pollfd out = {.fd = STDOUT_FILENO};
    if (errno == EPIPE || (poll(&out, 1, 0) > 0 && out.revents & POLLERR)) return lily_err_exit_status(LILY_IO);
    lily_err e;
    lily_fail(&e, LILY_IO, "standard output: %s", errno ? strerror(errno) : "it could not be written");
    return fail(&e);
}

static int unknown_command(const char *name)
{
    lily_err e;
    lily_fail(&e, LILY_ARGUMENT, "unknown command '%s' (see lily --help)", name);
    return fail(&e);
}

static int help(const char *name)
{
    if (!name) lily_help_all(stdout);
    else if (!lily_help_command(stdout, name)) return unknown_command(name);
    return end();
}

static bool asks_for_help(const char *word) { return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0; }

int main(int argc, char **argv)
{
    lily_err e = {0};
    /* A client or a pager that leaves is an error of a write, not the end of the process. */
    signal(SIGPIPE, SIG_IGN);
    lily_mem_return_large();
    if (argc < 2) {
        lily_help_all(stderr);
        return lily_err_exit_status(LILY_ARGUMENT);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        print_version();
        return end();
    }
    if (asks_for_help(argv[1])) return help(NULL);
    if (strcmp(argv[1], "help") == 0) return help(argc > 2 ? argv[2] : NULL);

    bool helps = argc > 2 && asks_for_help(argv[2]);
    if (strcmp(argv[1], "completions") == 0 && !helps) {
        int rc = lily_print_completions(stdout, argc > 2 ? argv[2] : NULL, &e);
        return rc == LILY_OK ? end() : fail(&e);
    }
    if (strcmp(argv[1], "man") == 0 && !helps) {
        lily_print_manual(stdout);
        return end();
    }

    enum lily_command command = lily_command_find(argv[1]);
    if (!command) return helps ? help(argv[1]) : unknown_command(argv[1]);
    lily_args args;
    int rc = lily_args_parse(&args, command, argc, argv, &e);
    if (rc == LILY_OK && lily_arg_given(&args, OPT_HELP)) {
        lily_args_free(&args);
        return help(argv[1]);
    }
    if (rc == LILY_OK) rc = run(command, &args, &e);
    lily_args_free(&args);
    if (rc != LILY_OK) return fail(&e);
    return end();
}
