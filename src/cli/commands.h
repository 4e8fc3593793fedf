/* commands.h - what main.c calls.  Each returns LILY_OK or an error, which main prints. */
#ifndef LILY_CLI_COMMANDS_H
#define LILY_CLI_COMMANDS_H

#include "cli/options.h"
#include "run/engine.h"

int lily_cmd_chat(const lily_args *a, lily_err *e);
int lily_cmd_serve(const lily_args *a, lily_err *e);
int lily_cmd_score(const lily_args *a, lily_err *e);
int lily_cmd_bench(const lily_args *a, lily_err *e);
int lily_cmd_ablate(const lily_args *a, lily_err *e);
int lily_cmd_inspect(const lily_args *a, lily_err *e);
int lily_cmd_replay(const lily_args *a, lily_err *e);

/* The path of the running program, or false. */
bool lily_program_path(char *out, size_t room);

/* Engine options out of the arguments that commands share.  Without --model the demo model is looked for beside
 * the program and in the source tree; one line on standard error says so.  The strings belong to `a` and to
 * *model_dir, which the caller frees. */
int lily_engine_options_from(const lily_args *a, lily_engine_options *o, char **model_dir, lily_err *e);

/* Progress of long work on a terminal's standard error; nothing elsewhere. */
void lily_show_progress(void *user, const char *what, double fraction);

#endif
