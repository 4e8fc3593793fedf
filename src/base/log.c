#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int shown = LILY_LOG_INFO;

void lily_log_set_level(enum lily_log_level level)
{
    shown = (int)level;
}

void lily_log(enum lily_log_level level, const char *fmt, ...)
{
    if ((int)level > shown) return;
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    /* On a terminal, in place of a progress bar that stands there. */
    fprintf(stderr, "%slily: %s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", text);
}
