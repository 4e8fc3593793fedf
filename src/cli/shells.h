/* shells.h - what is made from the table of options: completions of three shells and the manual page. */
#ifndef LILY_CLI_SHELLS_H
#define LILY_CLI_SHELLS_H

#include <stdio.h>

#include "base/err.h"

/* shell: "bash", "zsh" or "fish"; another, or NULL, is LILY_ARGUMENT. */
int lily_print_completions(FILE *f, const char *shell, lily_err *e);
/* lily(1), in the man macros of roff. */
void lily_print_manual(FILE *f);

#endif
