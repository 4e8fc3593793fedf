#include "sample/text_parts.h"

#include <string.h>

#include "sample/json_parts.h"

/* ---- characters ---- */

static lily_byte_set ascii(void)
{
    lily_byte_set set = {{0}};
    lily_set_add(&set, '\t', '\n');
    lily_set_add(&set, ' ', 0x7F);
    return set;
}

static void remove_all(lily_byte_set *set, const char *bytes)
{
    for (; *bytes; bytes++) lily_set_remove(set, (unsigned char)*bytes);
}

/* A character of the set, or any outside ASCII. */
static uint32_t character(const text_parts *t, const lily_byte_set *set, uint32_t next)
{
    return lily_grammar_split(t->g, lily_grammar_set(t->g, set, next), lily_grammar_call(t->g, t->beyond, next));
}

uint32_t text_closing(const text_parts *t, uint32_t next)
{
    return lily_grammar_text(t->g, "\n", 1, lily_grammar_text(t->g, t->close, strlen(t->close), next));
}

/* ---- text up to the tag ---- */

/* at[i]: i bytes of the closing have come.  No beginning of it comes back inside it, so that any other character
 * leads to the start again, a line end to the second. */
static void make_text(text_parts *t)
{
    enum { MOST = 64 };
    lily_grammar *g = t->g;
    uint32_t at[MOST];
    size_t n = strlen(t->close) + 1;
    if (n >= MOST) {
        g->too_large = true;
        return;
    }
    for (size_t i = 0; i < n; i++) at[i] = lily_grammar_split(g, LILY_GRAMMAR_END, LILY_GRAMMAR_END);
    at[n] = LILY_GRAMMAR_END;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = i == 0 ? '\n' : (unsigned char)t->close[i - 1];
        lily_byte_set other = ascii();
        lily_set_remove(&other, byte);
        lily_set_remove(&other, '\n');
        uint32_t rest = character(t, &other, at[0]);
        if (byte != '\n') rest = lily_grammar_split(g, rest, lily_grammar_range(g, '\n', '\n', at[1]));
        lily_grammar_set_split(g, at[i], lily_grammar_range(g, byte, byte, at[i + 1]), rest);
    }
    lily_grammar_set_rule(g, t->within, at[0]);
    lily_grammar_set_rule(g, t->text, at[1]);
}

void text_parts_init(text_parts *t, lily_grammar *g, const char *close)
{
    *t = (text_parts){.g = g, .close = close};
    t->beyond = lily_grammar_rule(g);
    t->text = lily_grammar_rule(g);
    t->within = lily_grammar_rule(g);
    lily_grammar_set_rule(g, t->beyond, part_beyond_ascii(g, NULL, LILY_GRAMMAR_END));
    make_text(t);
}

uint32_t text_any(const text_parts *t, uint32_t next)
{
    return lily_grammar_call(t->g, t->text, next);
}

uint32_t text_string(const text_parts *t, int64_t low, int64_t high, uint32_t next)
{
    lily_grammar *g = t->g;
    if (low == 0 && high < 0) return text_any(t, next);
    if (high >= 0 && low > high) return lily_grammar_never(g);
    uint32_t end = text_closing(t, next);
    lily_byte_set in_line = ascii(), at_start;
    lily_set_remove(&in_line, '\n');
    at_start = in_line;
    lily_set_remove(&at_start, '<');
    /* What follows i characters, in a line and at the beginning of one; from the last count to the first. */
    uint32_t line = end, start = end;
    if (high < 0) {
        /* A line end that counts as a character is not the one of the closing. */
        line = lily_grammar_call(g, t->within, next);
        start = lily_grammar_split(g, LILY_GRAMMAR_END, LILY_GRAMMAR_END);
        uint32_t more = lily_grammar_split(g, character(t, &at_start, line), lily_grammar_range(g, '\n', '\n', start));
        lily_grammar_set_split(g, start, end, more);
    }
    for (int64_t i = high < 0 ? low : high; i > 0 && !lily_grammar_failed(g); i--) {
        uint32_t more = lily_grammar_range(g, '\n', '\n', start);
        uint32_t line_before = lily_grammar_split(g, character(t, &in_line, line), more);
        uint32_t start_before = lily_grammar_split(g, character(t, &at_start, line), more);
        line = i > low ? lily_grammar_split(g, end, line_before) : line_before;
        start = i > low ? lily_grammar_split(g, end, start_before) : start_before;
    }
    return start;
}

uint32_t text_literal(const text_parts *t, const char *text, size_t n, uint32_t next)
{
    size_t tag = strlen(t->close);
    for (size_t i = 0; i + tag <= n; i++)
        if ((i == 0 || text[i - 1] == '\n') && memcmp(text + i, t->close, tag) == 0) return lily_grammar_never(t->g);
    return lily_grammar_text(t->g, text, n, text_closing(t, next));
}

uint32_t text_not_from(const text_parts *t, const char *first, uint32_t next)
{
    lily_byte_set begin = ascii();
    remove_all(&begin, "< \t\n");
    remove_all(&begin, first);
    return lily_grammar_split(t->g, text_closing(t, next), character(t, &begin, lily_grammar_call(t->g, t->within, next)));
}
