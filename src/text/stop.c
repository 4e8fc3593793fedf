/* Each stop string runs its own Knuth-Morris-Pratt automaton: at most 16 steps a byte, no tables to build
 * beyond the borders, and the automaton's state is exactly the number of bytes to hold back for it. */
#include "text/stop.h"

#include <string.h>

static void find_borders(lily_stop_string *s)
{
    s->border[0] = 0;
    for (uint16_t i = 1, k = 0; i < s->len; i++) {
        while (k > 0 && s->text[i] != s->text[k]) k = s->border[k - 1];
        if (s->text[i] == s->text[k]) k++;
        s->border[i] = k;
    }
}

int lily_stop_init(lily_stop *s, const char *const *text, const size_t *len, size_t n, lily_err *e)
{
    if (n > LILY_STOP_MAX)
        return lily_fail(e, LILY_ARGUMENT, "%zu stop strings, at most %d are taken", n, LILY_STOP_MAX);
    for (size_t i = 0; i < n; i++) {
        if (len[i] == 0) return lily_fail(e, LILY_ARGUMENT, "stop string %zu is empty", i + 1);
        if (len[i] > LILY_STOP_BYTES)
            return lily_fail(e, LILY_ARGUMENT, "stop string %zu has %zu bytes, at most %d are taken", i + 1,
                             len[i], LILY_STOP_BYTES);
        lily_stop_string *string = &s->string[i];
        string->len = (uint16_t)len[i];
        string->matched = 0;
        memcpy(string->text, text[i], len[i]);
        find_borders(string);
    }
    s->n = n;
    s->n_held = 0;
    s->found = -1;
    return LILY_OK;
}

/* Advances one automaton by one byte; true when its string is complete. */
static bool step(lily_stop_string *s, char c)
{
    uint16_t k = s->matched;
    while (k > 0 && s->text[k] != c) k = s->border[k - 1];
    if (s->text[k] == c) k++;
    s->matched = k;
    return k == s->len;
}

/* Gives out the first `count` of the bytes held[0 … n_held), text[0 … n_text). */
static void give(const lily_stop *s, const char *text, size_t count, lily_buf *out)
{
    size_t old = count < s->n_held ? count : s->n_held;
    lily_buf_add(out, s->held, old);
    lily_buf_add(out, text, count - old);
}

bool lily_stop_feed(lily_stop *s, const char *text, size_t n, lily_buf *out)
{
    if (s->found >= 0) return true;
    for (size_t at = 0; at < n; at++) {
        for (size_t i = 0; i < s->n; i++)
            if (step(&s->string[i], text[at]) && (s->found < 0 || s->string[i].len > s->string[s->found].len))
                s->found = (int)i;
        if (s->found >= 0) {
            give(s, text, s->n_held + at + 1 - s->string[s->found].len, out);
            s->n_held = 0;
            return true;
        }
    }
    size_t keep = 0, all = s->n_held + n;
    for (size_t i = 0; i < s->n; i++)
        if (s->string[i].matched > keep) keep = s->string[i].matched;
    give(s, text, all - keep, out);
    /* What stays is the end of held + text. */
    size_t old = keep > n ? keep - n : 0;
    memmove(s->held, s->held + s->n_held - old, old);
    if (keep > old) memcpy(s->held + old, text + n - (keep - old), keep - old);
    s->n_held = keep;
    return false;
}

void lily_stop_flush(lily_stop *s, lily_buf *out)
{
    lily_buf_add(out, s->held, s->n_held);
    s->n_held = 0;
    for (size_t i = 0; i < s->n; i++) s->string[i].matched = 0;
}
