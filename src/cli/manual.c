/* manual.c - lily(1). */
#include <string.h>

#include "base/utf8.h"
#include "cli/options.h"
#include "cli/shells.h"
#include "version.h"

/* Text of roff: a hyphen of an option must not become a dash, nor a line a request, and not every reader knows
 * UTF-8. */
static void put(FILE *f, const char *s)
{
    size_t left = strlen(s);
    for (bool first = true; left; first = false) {
        size_t n = lily_utf8_length((const unsigned char *)s, left);
        if (n == strlen("…") && strncmp(s, "…", n) == 0) fputs("...", f);    /* groff cannot spell it for ASCII */
        else if (n > 1) fprintf(f, "\\[u%04X]", (unsigned)lily_utf8_decode((const unsigned char *)s, n));
        else if (*s == '\\') fputs("\\e", f);
        else if (*s == '-') fputs("\\-", f);
        else if (first && (*s == '.' || *s == '\'')) fprintf(f, "\\&%c", *s);
        else fputc(*s, f);
        s += n ? n : 1;
        left -= n ? n : 1;
    }
}

static void put_commands(FILE *f)
{
    const lily_command_text *c;
    fputs(".SH COMMANDS\n", f);
    for (int i = 0; (c = lily_command_at(i)); i++) {
        fputs(".TP\n.B lily ", f);
        put(f, c->usage);
        fputc('\n', f);
        put(f, c->what);
        fputs(".\n", f);
    }
    fputs(".TP\n.B lily help \\fICOMMAND\\fR\nThe options of a command.\n"
          ".TP\n.B lily \\-\\-version\nVersion, devices and instruction sets.\n", f);
}

static void put_option(FILE *f, const lily_option_text *o)
{
    fputs(".TP\n", f);
    if (o->letter) fprintf(f, "\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", f);
    put(f, o->name);
    fputs("\\fR", f);
    if (*o->metavar) {
        fputs(" \\fI", f);
        put(f, o->metavar);
        fputs("\\fR", f);
    }
    fputc('\n', f);
    put(f, o->help);
    fputs(".\n", f);
}

/* Options in sections by the commands that take them: first those of several, then each command's own. */
static void put_options(FILE *f)
{
    const lily_command_text *c;
    fputs(".SH OPTIONS OF SEVERAL COMMANDS\nEach command's own help says which of them it takes.\n", f);
    for (int i = 0; i < N_OPTIONS; i++) {
        const lily_option_text *o = lily_option_at(i);
        if (o->commands & (o->commands - 1)) put_option(f, o);
    }
    for (int n = 0; (c = lily_command_at(n)); n++) {
        bool any = false;
        for (int i = 0; i < N_OPTIONS; i++) {
            const lily_option_text *o = lily_option_at(i);
            if (!c->command || o->commands != (unsigned)c->command) continue;
            if (!any) {
                fputs(".SH OPTIONS OF LILY ", f);
                for (const char *p = c->name; *p; p++) fputc(*p - 'a' + 'A', f);
                fputc('\n', f);
            }
            any = true;
            put_option(f, o);
        }
    }
}

static void put_statuses(FILE *f)
{
    static const char *const meaning[256] = {
#define X(name, exit_status, http_status, what) [exit_status] = what,
        LILY_CODES(X)
#undef X
    };
    fputs(".SH EXIT STATUS\n", f);
    for (int status = 0; status < 256; status++) {
        if (!meaning[status]) continue;
        fprintf(f, ".TP\n.B %d\n", status);
        put(f, meaning[status]);
        fputs(".\n", f);
    }
}

void lily_print_manual(FILE *f)
{
    fprintf(f, ".TH LILY 1 \"\" \"lily %s\"\n", LILY_VERSION);
    fputs(".SH NAME\nlily \\- runs Qwen3.6\\-35B\\-A3B from its 4\\-bit MLX checkpoint\n"
          ".SH SYNOPSIS\n.B lily\n.I COMMAND\n[\\fIoptions\\fR]\n"
          ".SH DESCRIPTION\n"
          "Lily is an inference engine for one model: it reads the checkpoint as it was published, answers on a\n"
          "terminal, and serves the APIs that agents and other clients speak.\n", f);
    put_commands(f);
    put_options(f);
    put_statuses(f);
    fputs(".SH SIGNALS\n"
          ".B lily serve\n"
          "stops at SIGTERM and SIGINT: running answers may finish for \\fB\\-\\-stop\\-seconds\\fR; a second signal\n"
          "cancels them.\n"
          ".SH ENVIRONMENT\n"
          ".BR LISTEN_FDS ,\n.BR NOTIFY_SOCKET ,\n.B WATCHDOG_USEC\n"
          "are read by \\fBlily serve\\fR as systemd sets them. Nothing else is.\n"
          ".SH EXAMPLES\n.nf\n"
          "lily chat \\-\\-model models/qwen\n"
          "echo \"What is a fjord?\" | lily chat\n"
          "lily serve \\-\\-host 0.0.0.0 \\-\\-api\\-key\\-file keys.txt\n"
          "lily inspect plan \\-\\-without fuse\\-qk\n.fi\n"
          ".SH SEE ALSO\nThe folder docs of the source: api.md, operations.md, scripted\\-replies.md.\n", f);
}
