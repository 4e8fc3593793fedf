/* json_number.c - numbers between bounds, digit by digit.
 *
 * Texts are compared as decimals: a number is read from its first digit on, and as long as it equals a bound
 * so far the next digit is bounded too.  With at most JSON_PRECISION digits, different texts are different
 * doubles in the same order, so that who compares doubles comes to the same result. */
#include "sample/json_number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/big_number.h"

/* ---- bounds as decimals ---- */

enum { FAR = 400 }; /* whole digits of the largest double, and of the fraction of the smallest */

static bool is_zero(const char *digits)
{
    return digits[strspn(digits, "0")] == '\0';
}

/* digits × 10^exponent */
static void place_point(decimal *d, const char *digits, int exponent)
{
    int n = (int)strlen(digits), whole = n + exponent, at = 0;
    for (int i = 0; i < whole && at < DECIMAL_DIGITS - 1; i++) d->whole[at++] = i < n ? digits[i] : '0';
    d->whole[at] = '\0';
    d->far = whole >= DECIMAL_DIGITS;
    at = 0;
    for (int i = whole; i < n && at < DECIMAL_DIGITS - 1; i++) d->fraction[at++] = i < 0 ? '0' : digits[i];
    /* What is cut off must not be lost: a lower bound would be too low. */
    if (at == DECIMAL_DIGITS - 1) d->fraction[at - 1] = '1';
    while (at > 0 && d->fraction[at - 1] == '0') at--;
    d->fraction[at] = '\0';
    size_t zeros = strspn(d->whole, "0");
    memmove(d->whole, d->whole + zeros, strlen(d->whole) - zeros + 1);
    if (!*d->whole) strcpy(d->whole, "0");
}

bool decimal_of(decimal *d, const json_t *number)
{
    char text[FAR], digits[FAR];
    const char *big = lily_big_number(number), *at = text;
    size_t n = 0;
    int exponent = 0;
    *d = (decimal){0};
    if (big)
        snprintf(text, sizeof text, "%.60s", big);
    else if (json_is_integer(number))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(number));
    else if (json_is_real(number))
        for (int digit = 15; digit <= 17; digit++) {
            snprintf(text, sizeof text, "%.*e", digit - 1, json_real_value(number));
            if (strtod(text, NULL) == json_real_value(number)) break;
        }
    else
        return false;
    d->negative = *at == '-';
    if (d->negative) at++;
    for (bool behind = false; *at && *at != 'e' && *at != 'E'; at++) {
        if (*at == '.')
            behind = true;
        else {
            digits[n++] = *at;
            exponent -= behind;
        }
    }
    digits[n] = '\0';
    if (*at) exponent += (int)strtol(at + 1, NULL, 10);
    if (big && strlen(big) > 60) exponent = FAR;
    place_point(d, digits, exponent);
    if (is_zero(d->whole) && is_zero(d->fraction)) d->negative = false;
    return true;
}

int decimal_compare(const decimal *a, const decimal *b)
{
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    size_t m = strlen(a->whole), n = strlen(b->whole);
    int c = a->far != b->far ? a->far - b->far : m != n ? (m < n ? -1 : 1) : strcmp(a->whole, b->whole);
    if (c == 0) c = strcmp(a->fraction, b->fraction);
    return a->negative ? -c : c;
}

/* ---- numbers of one length ---- */

typedef struct span {
    const json_parts *p;
    const decimal *low, *high; /* of whole numbers of `length` digits; high NULL: none */
    bool open_low, open_high;  /* the bound itself is outside */
    int length, room;          /* digits before the point, and at most behind it */
    uint32_t next;
} span;

static char digit(const span *s, const decimal *d, int at)
{
    if (at < s->length) return d->whole[at];
    size_t i = (size_t)(at - s->length);
    return i < strlen(d->fraction) ? d->fraction[i] : '0';
}

static bool is_zero_from(const span *s, const decimal *d, int at)
{
    size_t i = (size_t)(at - s->length);
    return i >= strlen(d->fraction) || is_zero(d->fraction + i);
}

static uint32_t number_from(const span *s, int at, bool low, bool high);

/* The digit at `at`; low, high: the number equals the bound so far. */
static uint32_t digit_from(const span *s, int at, bool low, bool high)
{
    lily_grammar *g = s->p->g;
    unsigned from = low ? (unsigned char)digit(s, s->low, at) : '0',
             to = high ? (unsigned char)digit(s, s->high, at) : '9';
    uint32_t all = lily_grammar_never(g);
    if (from > to) return all;
    if (low && high && from == to)
        return lily_grammar_range(g, from, from, number_from(s, at + 1, true, true));
    if (low)
        all = lily_grammar_split(g, all,
                                 lily_grammar_range(g, from, from, number_from(s, at + 1, true, false)));
    if (high)
        all = lily_grammar_split(g, all, lily_grammar_range(g, to, to, number_from(s, at + 1, false, true)));
    if (low) from++;
    if (high) to--;
    if (from > to) return all;
    return lily_grammar_split(g, all, lily_grammar_range(g, from, to, number_from(s, at + 1, false, false)));
}

static uint32_t number_from(const span *s, int at, bool low, bool high)
{
    lily_grammar *g = s->p->g;
    if (!low && !high && at <= s->length) {
        uint32_t fraction = s->room ? lily_grammar_call(g, s->p->fraction[s->room], s->next) : s->next;
        uint32_t more = (uint32_t)(s->length - at);
        return lily_grammar_repeated(g, s->p->digit, more, more, fraction);
    }
    if (at < s->length) return digit_from(s, at, low, high);
    bool stops = !(low && (s->open_low || !is_zero_from(s, s->low, at))) &&
                 !(high && s->open_high && is_zero_from(s, s->high, at));
    uint32_t stop = stops ? s->next : lily_grammar_never(g), more = (uint32_t)(s->length + s->room - at);
    /* A lower bound whose rest is zero is met whatever follows. */
    if (low && !s->open_low && is_zero_from(s, s->low, at)) {
        low = false;
        if (!high && at == s->length) return number_from(s, at, false, false);
    }
    if (more == 0) return stop;
    uint32_t digits = !low && !high ? lily_grammar_repeated(g, s->p->digit, 1, more, s->next)
                                    : digit_from(s, at, low, high);
    return lily_grammar_split(g, stop, at == s->length ? lily_grammar_text(g, ".", 1, digits) : digits);
}

/* ---- numbers of any length ---- */

/* Without sign; `digits` in all, and behind the point as many as are left or none. */
static uint32_t between(const json_parts *p, const decimal *low, bool open_low, const decimal *high,
                        bool open_high, int digits, bool whole, uint32_t next)
{
    uint32_t all = lily_grammar_never(p->g);
    int from = (int)strlen(low->whole), to = high && !high->far ? (int)strlen(high->whole) : digits;
    if (low->far) return all;
    for (int length = from; length <= digits && length <= to; length++) {
        decimal first = {.whole = "1"};
        memset(first.whole + 1, '0', (size_t)length - 1);
        bool at_low = length == from;
        const span s = {.p = p,
                        .low = at_low ? low : &first,
                        .high = high && !high->far && length == to ? high : NULL,
                        .open_low = at_low && open_low,
                        .open_high = open_high,
                        .length = length,
                        .room = whole ? 0 : digits - length,
                        .next = next};
        all = lily_grammar_split(p->g, all, number_from(&s, 0, true, s.high != NULL));
    }
    return all;
}

uint32_t part_number_between(const json_parts *p, const number_bounds *b, bool whole, uint32_t next)
{
    static const decimal zero = {.whole = "0"};
    lily_grammar *g = p->g;
    int digits = whole ? JSON_DIGITS : JSON_PRECISION;
    uint32_t all = lily_grammar_never(g);
    const decimal *low = b->low, *high = b->high;
    bool below = !low || low->negative, above = !high || !high->negative;
    if (above)
        all =
            lily_grammar_split(g, all,
                               below ? between(p, &zero, false, high, b->open_high, digits, whole, next)
                                     : between(p, low, b->open_low, high, b->open_high, digits, whole, next));
    if (!below) return all;
    uint32_t magnitude = above ? between(p, &zero, true, low, b->open_low, digits, whole, next)
                               : between(p, high, b->open_high, low, b->open_low, digits, whole, next);
    return lily_grammar_split(g, all, lily_grammar_text(g, "-", 1, magnitude));
}
