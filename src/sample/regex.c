#include "sample/regex.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { MAX_ITEMS = 16384, MAX_GROUPS = 50, MAX_REPEAT = 100000 };

typedef struct parser {
    regex *r;
    const unsigned char *at, *end;
    int depth;
    lily_err *e;
} parser;

static int refuse(const parser *p, const char *what)
{
    return lily_fail(p->e, LILY_UNSUPPORTED, "%s in a pattern is not supported", what);
}

static int broken(const parser *p, const char *what)
{
    return lily_fail(p->e, LILY_ARGUMENT, "a pattern that is no regular expression: %s", what);
}

/* ---- the parts ---- */

/* Room for one more at *at, a pointer to any type of object. */
static int grow(const parser *p, void *at, uint32_t n, uint32_t *room, size_t size)
{
    void *items;
    if (n == MAX_ITEMS) return lily_fail(p->e, LILY_UNSUPPORTED, "the pattern is too large");
    if (n < *room) return LILY_OK;
    uint32_t more = *room ? *room * 2 : 16;
    memcpy(&items, at, sizeof items);
    items = lily_realloc(items, more, size);
    if (!items) return lily_no_memory(p->e, more * size, "a pattern");
    memcpy(at, &items, sizeof items);
    *room = more;
    return LILY_OK;
}

static int add(const parser *p, regex_node node, uint32_t *out)
{
    regex *r = p->r;
    TRY(grow(p, &r->nodes, r->n_nodes, &r->room_nodes, sizeof *r->nodes));
    r->nodes[ *out = r->n_nodes++] = node;
    return LILY_OK;
}

static int add_range(const parser *p, uint32_t low, uint32_t high)
{
    regex *r = p->r;
    TRY(grow(p, &r->ranges, r->n_ranges, &r->room_ranges, sizeof *r->ranges));
    r->ranges[r->n_ranges++] = (regex_range){low, high};
    return LILY_OK;
}

static int by_low(const void *a, const void *b)
{
    uint32_t x = ((const regex_range *)a)->low, y = ((const regex_range *)b)->low;
    return (x > y) - (x < y);
}

/* The ranges from `from` on, in order and without overlaps. */
static void tidy_ranges(regex *r, uint32_t from)
{
    uint32_t kept = from;
    if (r->n_ranges - from > 1) qsort(r->ranges + from, r->n_ranges - from, sizeof *r->ranges, by_low);
    for (uint32_t i = from; i < r->n_ranges; i++) {
        regex_range next = r->ranges[i], *last = kept > from ? &r->ranges[kept - 1] : NULL;
        if (last && next.low <= last->high + 1)
            last->high = next.high > last->high ? next.high : last->high;
        else
            r->ranges[kept++] = next;
    }
    r->n_ranges = kept;
}

/* What is not in the ranges from `from` on takes their place. */
static int negate(const parser *p, uint32_t from)
{
    regex *r = p->r;
    tidy_ranges(r, from);
    uint32_t next = 0, end = r->n_ranges;
    for (uint32_t i = from; i < end; i++) {
        const regex_range range = r->ranges[i];
        if (range.low > next) TRY(add_range(p, next, range.low - 1));
        next = range.high + 1;
    }
    if (next <= REGEX_LAST) TRY(add_range(p, next, REGEX_LAST));
    r->n_ranges -= end - from;
    memmove(r->ranges + from, r->ranges + end, (r->n_ranges - from) * sizeof *r->ranges);
    return LILY_OK;
}

/* A node of the ranges from `from` on. */
static int add_set(const parser *p, uint32_t from, uint32_t *out)
{
    regex *r = p->r;
    tidy_ranges(r, from);
    TRY(grow(p, &r->sets, r->n_sets, &r->room_sets, sizeof *r->sets));
    r->sets[r->n_sets] = (regex_set){from, r->n_ranges - from};
    return add(p, (regex_node){.kind = REGEX_SET, .a = r->n_sets++}, out);
}

/* ---- characters ---- */

static bool next_is(const parser *p, char c)
{
    return p->at < p->end && *p->at == (unsigned char)c;
}

static bool take(parser *p, char c)
{
    if (!next_is(p, c)) return false;
    p->at++;
    return true;
}

/* One character; the text is UTF-8 already (jansson). */
static uint32_t take_char(parser *p)
{
    uint32_t c = *p->at++;
    int more = c < 0x80 ? 0 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
    if (more) c &= 0x3Fu >> more;
    for (; more > 0 && p->at < p->end; more--) c = c << 6 | (*p->at++ & 0x3F);
    return c;
}

static int hex(parser *p, int digits, uint32_t *out)
{
    *out = 0;
    for (; digits > 0; digits--, p->at++) {
        if (p->at == p->end || !*p->at || !strchr("0123456789abcdefABCDEF", *p->at))
            return broken(p, "a hexadecimal digit is missing");
        unsigned c = *p->at | 0x20;
        *out = *out * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return LILY_OK;
}

/* Behind "\u". */
static int unicode(parser *p, uint32_t *out)
{
    uint32_t low;
    if (take(p, '{')) {
        const unsigned char *close = memchr(p->at, '}', (size_t)(p->end - p->at));
        if (!close || close == p->at || close - p->at > 6) return broken(p, "\\u{…}");
        TRY(hex(p, (int)(close - p->at), out));
        p->at++;
        return *out <= REGEX_LAST ? LILY_OK : broken(p, "\\u{…}");
    }
    TRY(hex(p, 4, out));
    if (*out < 0xD800 || *out > 0xDBFF || p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u')
        return LILY_OK;
    const unsigned char *before = p->at;
    p->at += 2;
    TRY(hex(p, 4, &low));
    if (low >= 0xDC00 && low <= 0xDFFF)
        *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    else
        p->at = before;
    return LILY_OK;
}

static const regex_range digits[] = {{'0', '9'}}, words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                         blanks[] = {{9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680},
                                     {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                     {0x3000, 0x3000}, {0xFEFF, 0xFEFF}},
                         line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
#define ADD_ALL(p, list) add_all((p), (list), sizeof(list) / sizeof *(list))

static int add_all(const parser *p, const regex_range *list, size_t n)
{
    for (size_t i = 0; i < n; i++) TRY(add_range(p, list[i].low, list[i].high));
    return LILY_OK;
}

/* Behind a backslash: adds its ranges; *single: the one character that it means, or UINT32_MAX. */
static int escape(parser *p, bool in_class, uint32_t *single)
{
    static const char controls[] = "tnvfr", values[] = "\t\n\v\f\r";
    uint32_t from = p->r->n_ranges, c;
    *single = UINT32_MAX;
    if (p->at == p->end) return broken(p, "it ends in a backslash");
    c = take_char(p);
    if (c < 0x80 && strchr("dDwWsS", (int)c)) {
        if (c == 'd' || c == 'D') TRY(ADD_ALL(p, digits));
        if (c == 'w' || c == 'W') TRY(ADD_ALL(p, words));
        if (c == 's' || c == 'S') TRY(ADD_ALL(p, blanks));
        if (c == 's' && !in_class)
            p->r->n_ranges--; /* the mark of byte order, a blank to ECMA alone, is left out */
        return c < 'a' ? negate(p, from) : LILY_OK;
    }
    if (c == 'p' || c == 'P') return refuse(p, "\\p");
    if ((c == 'b' || c == 'B') && !in_class) return refuse(p, "\\b");
    if ((c >= '1' && c <= '9') || c == 'k') return refuse(p, "a back reference");
    const char *control = c < 0x80 ? strchr(controls, (int)c) : NULL;
    if (control)
        c = (unsigned char)values[control - controls];
    else if (c == '0')
        c = 0;
    else if (c == 'b')
        c = 8;
    else if (c == 'x')
        TRY(hex(p, 2, &c));
    else if (c == 'u')
        TRY(unicode(p, &c));
    else if (c == 'c' && p->at < p->end && ((*p->at | 0x20) >= 'a' && (*p->at | 0x20) <= 'z'))
        c = *p->at++ % 32;
    else if (c < 0x80 && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
        return broken(p, "an unknown escape");
    *single = c;
    return add_range(p, c, c);
}

/* One end of a range in a class. */
static int class_atom(parser *p, uint32_t *single)
{
    if (take(p, '\\')) return escape(p, true, single);
    *single = take_char(p);
    return add_range(p, *single, *single);
}

/* Behind "[". */
static int class(parser *p, uint32_t *out)
{
    uint32_t from = p->r->n_ranges, low, high;
    bool negated = take(p, '^');
    while (!take(p, ']')) {
        if (p->at == p->end) return broken(p, "a class without end");
        TRY(class_atom(p, &low));
        if (!next_is(p, '-') || p->end - p->at < 2 || p->at[1] == ']') continue;
        p->at++;
        TRY(class_atom(p, &high));
        if (low == UINT32_MAX || high == UINT32_MAX || low > high) return broken(p, "a range out of order");
        TRY(add_range(p, low, high));
    }
    if (negated) TRY(negate(p, from));
    return add_set(p, from, out);
}

/* ---- the tree ---- */

static int alternation(parser *p, uint32_t *out);

/* Behind "(". */
static int group(parser *p, uint32_t *out)
{
    if (take(p, '?')) {
        if (take(p, '<')) {
            if (next_is(p, '=') || next_is(p, '!')) return refuse(p, "look-behind");
            const unsigned char *close = memchr(p->at, '>', (size_t)(p->end - p->at));
            if (!close) return broken(p, "a group's name without end");
            p->at = close + 1;
        } else if (next_is(p, '=') || next_is(p, '!')) {
            return refuse(p, "look-ahead");
        } else if (!take(p, ':')) {
            return broken(p, "'(?'");
        }
    }
    if (++p->depth > MAX_GROUPS) return refuse(p, "so deep a nesting");
    TRY(alternation(p, out));
    p->depth--;
    return take(p, ')') ? LILY_OK : broken(p, "a group without end");
}

static int atom(parser *p, uint32_t *out)
{
    uint32_t from = p->r->n_ranges, single;
    if (take(p, '(')) return group(p, out);
    if (take(p, '[')) return class(p, out);
    if (take(p, '^')) return add(p, (regex_node){.kind = REGEX_BEGIN}, out);
    if (take(p, '$')) return add(p, (regex_node){.kind = REGEX_END}, out);
    if (next_is(p, '*') || next_is(p, '+') || next_is(p, '?')) return broken(p, "nothing to repeat");
    if (take(p, '.')) {
        TRY(ADD_ALL(p, line_ends));
        TRY(negate(p, from));
    } else if (take(p, '\\')) {
        TRY(escape(p, false, &single));
    } else {
        single = take_char(p);
        TRY(add_range(p, single, single));
    }
    return add_set(p, from, out);
}

/* "{n}", "{n,}" or "{n,m}"; anything else that begins with a brace is text. */
static bool braces(parser *p, int32_t *least, int32_t *most)
{
    const unsigned char *s = p->at + 1;
    int64_t n[2] = {0, -1};
    int i = 0, digits_seen = 0;
    for (; s < p->end && *s != '}'; s++) {
        if (*s == ',' && i == 0 && digits_seen > 0) {
            i = 1;
            digits_seen = 0;
            continue;
        }
        if (*s < '0' || *s > '9') return false;
        if (digits_seen++ == 0) n[i] = 0;
        n[i] = n[i] * 10 + (*s - '0');
        if (n[i] > MAX_REPEAT) n[i] = MAX_REPEAT;
    }
    if (s == p->end || (i == 0 && digits_seen == 0)) return false;
    *least = (int32_t)n[0];
    *most = i == 0 ? *least : n[1] < 0 ? REGEX_ENDLESS : (int32_t)n[1];
    p->at = s + 1;
    return true;
}

static int repeated(parser *p, uint32_t *out)
{
    int32_t least = 0, most = REGEX_ENDLESS;
    enum regex_kind kind;
    TRY(atom(p, out));
    kind = p->r->nodes[*out].kind;
    if (take(p, '?'))
        most = 1;
    else if (take(p, '+'))
        least = 1;
    else if (!take(p, '*') && !(next_is(p, '{') && braces(p, &least, &most)))
        return LILY_OK;
    (void)take(p, '?'); /* lazy */
    if (kind == REGEX_BEGIN || kind == REGEX_END) return refuse(p, "a repeated anchor");
    if (least > most) return broken(p, "a repetition out of order");
    if (next_is(p, '*') || next_is(p, '+') || next_is(p, '?')) return broken(p, "nothing to repeat");
    return add(p, (regex_node){.kind = REGEX_REPEAT, .a = *out, .least = least, .most = most}, out);
}

static int sequence(parser *p, uint32_t *out)
{
    uint32_t next;
    TRY(add(p, (regex_node){.kind = REGEX_EMPTY}, out));
    while (p->at < p->end && !next_is(p, '|') && !next_is(p, ')')) {
        TRY(repeated(p, &next));
        TRY(add(p, (regex_node){.kind = REGEX_CAT, .a = *out, .b = next}, out));
    }
    return LILY_OK;
}

static int alternation(parser *p, uint32_t *out)
{
    uint32_t other;
    TRY(sequence(p, out));
    while (take(p, '|')) {
        TRY(sequence(p, &other));
        TRY(add(p, (regex_node){.kind = REGEX_ALT, .a = *out, .b = other}, out));
    }
    return LILY_OK;
}

int regex_parse(regex *r, const char *text, size_t n, lily_err *e)
{
    const unsigned char *s = (const unsigned char *)text;
    parser p = {.r = r, .at = s, .end = s + n, .e = e};
    *r = (regex){0};
    int rc = alternation(&p, &r->root);
    if (rc == LILY_OK && p.at < p.end) rc = broken(&p, "a ')' too many");
    if (rc != LILY_OK) regex_free(r);
    return rc;
}

void regex_free(regex *r)
{
    lily_free(r->nodes);
    lily_free(r->sets);
    lily_free(r->ranges);
    *r = (regex){0};
}
