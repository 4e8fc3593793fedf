/* dfa_part.c - an automaton over characters as a network over the bytes of a JSON string, or of plain text.
 */
#include <string.h>

#include "base/mem.h"
#include "sample/dfa.h"
#include "sample/regex.h"

/* The characters that lead from a state to one other. */
typedef struct group {
    const dfa *d;
    const uint32_t *row; /* where each range leads to */
    uint32_t to;
    lily_grammar *g;
    uint32_t next; /* the node of that state */
    bool raw;      /* characters stand for themselves, none is escaped */
} group;

/* The range of the group that begins at or behind *low: false if there is none. */
static bool next_range(const group *k, uint32_t *i, uint32_t *low, uint32_t *high)
{
    while (*i < k->d->n_ranges && k->row[*i] != k->to) ++*i;
    if (*i == k->d->n_ranges) return false;
    *low = k->d->low[*i];
    while (*i < k->d->n_ranges && k->row[*i] == k->to) ++*i;
    *high = *i < k->d->n_ranges ? k->d->low[*i] - 1 : REGEX_LAST;
    return true;
}

/* ---- ASCII ---- */

/* Sets of bytes by how they are written; names of short escapes. */
typedef struct ascii {
    lily_byte_set plain, escaped, unicode[2]; /* unicode: last hex digits of \u000X and \u001X */
    bool any_plain, any_escaped, any_unicode[2];
} ascii;

static void add_ascii(ascii *a, uint32_t c, bool raw)
{
    static const char controls[] = "\b\t\n\f\r", names[] = "btnfr";
    const char *control = c ? strchr(controls, (int)c) : NULL;
    if (!raw && (control || c == '"' || c == '\\')) {
        unsigned name = control ? (unsigned char)names[control - controls] : c;
        lily_set_add(&a->escaped, name, name);
        a->any_escaped = true;
    } else if (!raw && c < 0x20) {
        lily_byte_set *set = &a->unicode[c / 16];
        unsigned digit = (unsigned char)"0123456789abcdef"[c % 16];
        lily_set_add(set, digit, digit);
        if (digit >= 'a') lily_set_add(set, digit - 0x20, digit - 0x20);
        a->any_unicode[c / 16] = true;
    } else {
        lily_set_add(&a->plain, c, c);
        a->any_plain = true;
    }
}

static uint32_t ascii_part(const group *k, const ascii *a, uint32_t all)
{
    lily_grammar *g = k->g;
    if (a->any_plain) all = lily_grammar_split(g, lily_grammar_set(g, &a->plain, k->next), all);
    uint32_t escape = lily_grammar_never(g);
    if (a->any_escaped) escape = lily_grammar_set(g, &a->escaped, k->next);
    for (int i = 0; i < 2; i++)
        if (a->any_unicode[i])
            escape = lily_grammar_split(
                g, escape,
                lily_grammar_text(g, i ? "u001" : "u000", 4, lily_grammar_set(g, &a->unicode[i], k->next)));
    if (!a->any_escaped && !a->any_unicode[0] && !a->any_unicode[1]) return all;
    return lily_grammar_split(g, all, lily_grammar_text(g, "\\", 1, escape));
}

/* ---- UTF-8 ---- */

static int encode(uint32_t c, uint8_t out[4])
{
    if (c < 0x800) {
        out[0] = (uint8_t)(0xC0 | c >> 6);
        out[1] = (uint8_t)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xE0 | c >> 12);
        out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | c >> 18);
    out[1] = (uint8_t)(0x80 | (c >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (c >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (c & 0x3F));
    return 4;
}

/* Characters of one length outside ASCII: cut until every byte but the first ones that are equal runs through
 * a range of its own. */
static uint32_t utf8_part(const group *k, uint32_t low, uint32_t high, uint32_t all)
{
    uint8_t from[4], to[4];
    for (int i = 1; i <= 3; i++) {
        const uint32_t tail = (UINT32_C(1) << (6 * i)) - 1;
        if ((low & ~tail) == (high & ~tail)) continue;
        if (low & tail) return utf8_part(k, (low | tail) + 1, high, utf8_part(k, low, low | tail, all));
        if ((high & tail) != tail)
            return utf8_part(k, high & ~tail, high, utf8_part(k, low, (high & ~tail) - 1, all));
    }
    uint32_t at = k->next;
    (void)encode(low, from);
    for (int i = encode(high, to); i-- > 0;) at = lily_grammar_range(k->g, from[i], to[i], at);
    return lily_grammar_split(k->g, at, all);
}

/* Surrogates are no characters. */
static uint32_t beyond_part(const group *k, uint32_t low, uint32_t high, uint32_t all)
{
    static const uint32_t parts[][2] = {
        {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, REGEX_LAST}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        uint32_t from = low > parts[i][0] ? low : parts[i][0], to = high < parts[i][1] ? high : parts[i][1];
        if (from <= to) all = utf8_part(k, from, to, all);
    }
    return all;
}

/* ---- states ---- */

static uint32_t group_part(const json_parts *p, const group *k, uint32_t all)
{
    ascii a = {0};
    uint32_t low, high;
    for (uint32_t i = 0; next_range(k, &i, &low, &high);) {
        for (uint32_t c = low; c <= high && c < 0x80; c++) add_ascii(&a, c, k->raw);
        if (low <= 0x80 && high == REGEX_LAST)
            all = lily_grammar_split(k->g, lily_grammar_call(k->g, p->beyond, k->next), all);
        else if (high >= 0x80)
            all = beyond_part(k, low, high, all);
    }
    return ascii_part(k, &a, all);
}

/* Whether an earlier range of the row leads there too. */
static bool was_before(const uint32_t *row, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (row[k] == row[i]) return true;
    return false;
}

/* `end` follows where a string may end. */
static uint32_t network(const json_parts *p, const dfa *d, bool raw, uint32_t end)
{
    lily_grammar *g = p->g;
    uint32_t *at = lily_calloc(d->n_states, sizeof *at), never = lily_grammar_never(g);
    if (!at) {
        g->no_memory = true;
        return LILY_GRAMMAR_END;
    }
    for (uint32_t s = DFA_START; s < d->n_states; s++) at[s] = lily_grammar_split(g, never, never);
    for (uint32_t s = DFA_START; s < d->n_states && !lily_grammar_failed(g); s++) {
        const uint32_t *row = d->to + (size_t)s * d->n_ranges;
        uint32_t all = never;
        for (uint32_t i = 0; i < d->n_ranges; i++) {
            if (row[i] == DFA_DEAD || was_before(row, i)) continue;
            const group k = {.d = d, .row = row, .to = row[i], .g = g, .next = at[row[i]], .raw = raw};
            all = group_part(p, &k, all);
        }
        lily_grammar_set_split(g, at[s], d->final[s] ? end : never, all);
    }
    uint32_t start = at[DFA_START];
    lily_free(at);
    return start;
}

uint32_t part_dfa(const json_parts *p, const dfa *d, uint32_t next)
{
    return lily_grammar_text(p->g, "\"", 1, network(p, d, false, lily_grammar_text(p->g, "\"", 1, next)));
}

uint32_t part_dfa_text(const json_parts *p, const dfa *d, uint32_t next)
{
    return network(p, d, true, next);
}
