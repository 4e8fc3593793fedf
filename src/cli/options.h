/* options.h - the command line, read by one table (options.def). */
#ifndef LILY_CLI_OPTIONS_H
#define LILY_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

enum lily_command { CHAT = 1, SERVE = 2, SCORE = 4, BENCH = 8, INSPECT = 16, REPLAY = 32, ABLATE = 64 };

enum lily_option {
#define X(id, name, letter, metavar, commands, help) OPT_##id,
#include "cli/options.def"
#undef X
    N_OPTIONS
};

typedef struct lily_args {
    enum lily_command command;
    const char *value[N_OPTIONS];   /* NULL: not given; "" for a switch; points into argv, but see `joined` */
    const char *word;               /* the word after the command (inspect plan, replay TRACE), or NULL */
    lily_buf joined[N_OPTIONS];     /* of those that may be given several times */
} lily_args;

/* Reads argv[2 …) for a command.  LILY_ARGUMENT with a sentence that names the option. */
int lily_args_parse(lily_args *a, enum lily_command command, int argc, char **argv, lily_err *e);
void lily_args_free(lily_args *a);

static inline bool lily_arg_given(const lily_args *a, enum lily_option o) { return a->value[o] != NULL; }
/* The value as a whole number, or `missing` when the option was not given. */
int lily_arg_uint(const lily_args *a, enum lily_option o, uint64_t low, uint64_t high, uint64_t missing,
                  uint64_t *out, lily_err *e);
int lily_arg_real(const lily_args *a, enum lily_option o, double low, double high, double missing, double *out,
                  lily_err *e);
/* Which of the choices that the table names ("text|json") was given: 0 for the first. */
int lily_arg_choice(const lily_args *a, enum lily_option o, int missing, int *out, lily_err *e);
/* "N,N…" as whole numbers >= 1; *list is allocated, to be freed by lily_free. */
int lily_arg_list(const lily_args *a, enum lily_option o, uint32_t **list, uint32_t *n, lily_err *e);

/* The table as it is, for what is made from it: help, completions, the manual page. */
typedef struct lily_option_text {
    const char *name, *metavar, *help;
    unsigned commands;              /* lily_command bits */
    char letter;                    /* 0: none */
} lily_option_text;

typedef struct lily_command_text {
    enum lily_command command;      /* 0: one that takes no options */
    const char *name, *usage, *what;
} lily_command_text;

const lily_option_text *lily_option_at(int option);
const lily_command_text *lily_command_at(int i);    /* NULL behind the last */

/* The name by which a command is called; NULL for no such command. */
const char *lily_command_name(enum lily_command command);
/* 0 when there is no such command. */
enum lily_command lily_command_find(const char *name);

/* At most 80 columns. */
void lily_help_all(FILE *f);
bool lily_help_command(FILE *f, const char *name);    /* false: there is no such command */

#endif
