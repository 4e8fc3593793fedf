#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

static _Atomic int shown = LILY_LOG_INFO;
static _Atomic int form = LILY_LOG_TEXT;

enum { TEXT_BYTES = 2048 };

void lily_log_set_level(enum lily_log_level level) { shown = (int)level; }
void lily_log_set_format(enum lily_log_format format) { form = (int)format; }
bool lily_log_shows(enum lily_log_level level) { return (int)level <= shown; }
enum lily_log_format lily_log_format_now(void) { return (enum lily_log_format)form; }

/* The text inside the quotation marks of a JSON string; what does not fit or is no UTF-8 is left out. */
static void escape(char *out, size_t room, const char *s)
{
    size_t at = 0, left = strlen(s);
    while (left && at + 7 < room) {
        unsigned char c = (unsigned char)*s;
        size_t n = lily_utf8_length((const unsigned char *)s, left);
        if (n == 1 && c < 0x20) {
            at += (size_t)snprintf(out + at, room - at, "\\u%04x", c);
        } else {
            if (c == '"' || c == '\\') out[at++] = '\\';
            memcpy(out + at, s, n);
            at += n;
        }
        s += n ? n : 1;
        left -= n ? n : 1;
    }
    out[at] = 0;
}

static void write_json(enum lily_log_level level, const char *text, const char *members)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    char escaped[2 * TEXT_BYTES], when[32];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    escape(escaped, sizeof escaped, text);
    fprintf(stderr, "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"message\":\"%s\"%s}\n", when, now.tv_nsec / 1000000,
            names[level], escaped, members);
}

/* On a terminal, in place of a progress bar that stands there.  Words of a client may be in it, which must not write to
 * the terminal by control characters. */
static void write_text(const char *text)
{
    char clean[TEXT_BYTES];
    snprintf(clean, sizeof clean, "%s", text);
    for (char *c = clean; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    fprintf(stderr, "%slily: %s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "", clean);
}

void lily_log_event(enum lily_log_level level, const char *text, const char *members)
{
    if (!lily_log_shows(level)) return;
    if (form == LILY_LOG_JSON) write_json(level, text, members);
    else write_text(text);
}

void lily_log(enum lily_log_level level, const char *fmt, ...)
{
    if (!lily_log_shows(level)) return;
    char text[TEXT_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    lily_log_event(level, text, "");
}
