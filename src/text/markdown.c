#include "text/markdown.h"

#include <string.h>

/* A run of backticks or tildes is over. */
static void end_run(markdown *m)
{
    size_t n = m->run_length;
    bool opens_line = m->run_at_start && n >= 3;
    if (n == 0) return;
    m->run_length = 0;
    if (m->fence) {
        if (opens_line && m->run == m->fence && n >= m->fence_ticks) m->fence = 0;
    } else if (opens_line) {
        m->fence = m->run;
        m->fence_ticks = n;
    } else if (m->run == '`') {
        if (!m->code_ticks) m->code_ticks = n;
        else if (m->code_ticks == n) m->code_ticks = 0;
    }
}

void markdown_byte(markdown *m, char byte)
{
    bool tick = byte == '`' || byte == '~';
    if (m->run_length && byte != m->run) end_run(m);
    memmove(m->last, m->last + 1, sizeof m->last - 1);
    m->last[sizeof m->last - 1] = byte;
    if (byte == '\n') {
        m->in_line = m->quoted = false;
        m->indent = m->code_ticks = 0;
    } else if (tick) {
        if (m->run_length == 0) m->run_at_start = !m->in_line && m->indent < 4;
        m->run = byte;
        m->run_length++;
        m->in_line = true;
    } else if (byte == ' ' || byte == '\t') {
        if (!m->in_line) m->indent++;
    } else {
        if (!m->in_line && byte == '>') m->quoted = true;
        m->in_line = true;
    }
}

bool markdown_is_quoted(markdown *m)
{
    static const char *const marks[] = {"\"", "'", "\xe2\x80\x9c", "\xe2\x80\x98", "\xc2\xab"};
    end_run(m);
    if (m->fence || m->code_ticks || m->quoted) return true;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t n = strlen(marks[i]);
        if (memcmp(m->last + sizeof m->last - n, marks[i], n) == 0) return true;
    }
    return false;
}
