/* completions.c - scripts that complete commands, options and their values. */
#include <string.h>

#include "cli/options.h"
#include "cli/shells.h"

/* What a value is, as its placeholder in the table tells. */
enum value_kind { NO_VALUE, ANY_VALUE, A_FOLDER, A_FILE, A_CHOICE };

static enum value_kind kind_of(const lily_option_text *o)
{
    if (!*o->metavar) return NO_VALUE;
    if (strcmp(o->metavar, "DIR") == 0) return A_FOLDER;
    if (strcmp(o->metavar, "FILE") == 0 || strcmp(o->metavar, "PATH") == 0) return A_FILE;
    return strchr(o->metavar, '|') ? A_CHOICE : ANY_VALUE;
}

static void put_choices(FILE *f, const char *metavar)
{
    for (; *metavar; metavar++) fputc(*metavar == '|' ? ' ' : *metavar, f);
}

/* `s` with a backslash before each character of `special`. */
static void put_escaped(FILE *f, const char *s, const char *special)
{
    for (; *s; s++) {
        if (strchr(special, *s)) fputc('\\', f);
        fputc(*s, f);
    }
}

/* Inside '…' of a shell, which has no escape: the quotation is closed for the moment. */
static void put_quoted(FILE *f, const char *s)
{
    fputc('\'', f);
    for (; *s; s++) {
        if (*s == '\'') fputs("'\\''", f);
        else fputc(*s, f);
    }
    fputc('\'', f);
}

static void put_command_names(FILE *f)
{
    const lily_command_text *c;
    for (int i = 0; (c = lily_command_at(i)); i++) fprintf(f, "%s ", c->name);
    fputs("help", f);
}

/* ---- bash ---- */

static void bash_options(FILE *f, enum lily_command command)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        const lily_option_text *o = lily_option_at(i);
        if (!(o->commands & command)) continue;
        fprintf(f, "--%s ", o->name);
        if (o->letter) fprintf(f, "-%c ", o->letter);
    }
}

static void bash_values(FILE *f)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        const lily_option_text *o = lily_option_at(i);
        enum value_kind kind = kind_of(o);
        if (kind == NO_VALUE) continue;
        fprintf(f, "    --%s) ", o->name);
        switch (kind) {
        case A_FOLDER: fputs("compopt -o filenames; COMPREPLY=($(compgen -d -- \"$word\")); ", f); break;
        case A_FILE: fputs("compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")); ", f); break;
        case A_CHOICE:
            fputs("COMPREPLY=($(compgen -W '", f);
            put_choices(f, o->metavar);
            fputs("' -- \"$word\")); ", f);
            break;
        default: break;
        }
        fputs("return ;;\n", f);
    }
}

static void print_bash(FILE *f)
{
    const lily_command_text *c;
    fputs("# bash completion for lily, made by 'lily completions bash'\n"
          "# shellcheck shell=bash disable=SC2207,SC2034\n"
          "_lily() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options\n"
          "    COMPREPLY=()\n"
          "    if ((COMP_CWORD == 1)); then\n"
          "        COMPREPLY=($(compgen -W '", f);
    put_command_names(f);
    fputs(" --help --version' -- \"$word\"))\n        return\n    fi\n    case $before in\n", f);
    bash_values(f);
    fputs("    esac\n    case ${COMP_WORDS[1]} in\n", f);
    for (int i = 0; (c = lily_command_at(i)); i++) {
        if (!c->command) continue;
        fprintf(f, "    %s) options='%s", c->name, c->command == INSPECT ? "plan " : "");
        bash_options(f, c->command);
        fputs("' ;;\n", f);
    }
    fputs("    completions) options='bash zsh fish' ;;\n    help) options='", f);
    put_command_names(f);
    fputs("' ;;\n    esac\n"
          "    if [[ ${COMP_WORDS[1]} == replay && $word != -* ]]; then\n"
          "        compopt -o filenames\n"
          "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
          "        return\n"
          "    fi\n"
          "    COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
          "}\n"
          "complete -F _lily lily\n", f);
}

/* ---- zsh ---- */

static void zsh_option(FILE *f, const lily_option_text *o)
{
    /* (-m --model)'{-m,--model}'[help]:DIR:_files -/ */
    if (o->letter) fprintf(f, "            '(-%c --%s)'{-%c,--%s}", o->letter, o->name, o->letter, o->name);
    else fprintf(f, "            --%s", o->name);
    char text[512];
    FILE *memory = fmemopen(text, sizeof text, "w");
    if (!memory) return;
    fputc('[', memory);
    put_escaped(memory, o->help, "[]:\\");
    fputc(']', memory);
    enum value_kind kind = kind_of(o);
    if (kind != NO_VALUE) {
        fputc(':', memory);
        put_escaped(memory, o->metavar, "[]:\\");
        fputc(':', memory);
    }
    if (kind == A_FOLDER) fputs("_files -/", memory);
    if (kind == A_FILE) fputs("_files", memory);
    if (kind == A_CHOICE) {
        fputc('(', memory);
        put_choices(memory, o->metavar);
        fputc(')', memory);
    }
    fclose(memory);
    put_quoted(f, text);
    fputs(" \\\n", f);
}

static void print_zsh(FILE *f)
{
    const lily_command_text *c;
    fputs("#compdef lily\n"
          "# zsh completion for lily, made by 'lily completions zsh'\n"
          "_lily() {\n"
          "    local -a commands=(\n", f);
    for (int i = 0; (c = lily_command_at(i)); i++) {
        char text[256];
        snprintf(text, sizeof text, "%s:%s", c->name, c->what);
        fputs("        ", f);
        put_quoted(f, text);
        fputc('\n', f);
    }
    fputs("    )\n"
          "    if ((CURRENT == 2)); then\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    local command=$words[2]\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    case $command in\n", f);
    for (int i = 0; (c = lily_command_at(i)); i++) {
        if (!c->command) continue;
        fprintf(f, "    %s)\n        _arguments \\\n", c->name);
        for (int o = 0; o < N_OPTIONS; o++)
            if (lily_option_at(o)->commands & c->command) zsh_option(f, lily_option_at(o));
        fputs(c->command == INSPECT  ? "            ':what:(plan)' ;;\n"
              : c->command == REPLAY ? "            ':trace:_files' ;;\n"
                                     : "            && return ;;\n", f);
    }
    fputs("    completions) _values shell bash zsh fish ;;\n"
          "    help) _describe command commands ;;\n"
          "    esac\n"
          "}\n"
          "_lily \"$@\"\n", f);
}

/* ---- fish ---- */

static void fish_option(FILE *f, const lily_option_text *o)
{
    const lily_command_text *c;
    fputs("complete -c lily -n '__fish_seen_subcommand_from", f);
    for (int i = 0; (c = lily_command_at(i)); i++)
        if (o->commands & c->command) fprintf(f, " %s", c->name);
    fprintf(f, "' -l %s", o->name);
    if (o->letter) fprintf(f, " -s %c", o->letter);
    switch (kind_of(o)) {
    case NO_VALUE: break;
    case ANY_VALUE: fputs(" -x", f); break;
    case A_FOLDER: fputs(" -x -a '(__fish_complete_directories)'", f); break;
    case A_FILE: fputs(" -r -F", f); break;
    case A_CHOICE:
        fputs(" -x -a '", f);
        put_choices(f, o->metavar);
        fputc('\'', f);
    }
    fputs(" -d '", f);
    put_escaped(f, o->help, "'\\");
    fputs("'\n", f);
}

static void print_fish(FILE *f)
{
    const lily_command_text *c;
    fputs("# fish completion for lily, made by 'lily completions fish'\ncomplete -c lily -f\n", f);
    for (int i = 0; (c = lily_command_at(i)); i++) {
        fprintf(f, "complete -c lily -n __fish_use_subcommand -a %s -d '", c->name);
        put_escaped(f, c->what, "'\\");
        fputs("'\n", f);
    }
    for (int i = 0; i < N_OPTIONS; i++) fish_option(f, lily_option_at(i));
    fputs("complete -c lily -n '__fish_seen_subcommand_from inspect' -a plan\n"
          "complete -c lily -n '__fish_seen_subcommand_from replay' -F\n"
          "complete -c lily -n '__fish_seen_subcommand_from completions' -a 'bash zsh fish'\n", f);
}

int lily_print_completions(FILE *f, const char *shell, lily_err *e)
{
    static const struct {
        const char *name;
        void (*print)(FILE *f);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; shell && i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shell, shells[i].name) != 0) continue;
        shells[i].print(f);
        return LILY_OK;
    }
    return lily_fail(e, LILY_ARGUMENT, "completions are there for bash, zsh and fish: lily completions SHELL");
}
