#include "sample/json_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/big_number.h"

/* ---- strings ---- */

uint32_t part_beyond_ascii(lily_grammar *g, const lily_byte_set *without, uint32_t next)
{
    static const struct {
        uint8_t lead_low, lead_high, low, high, more; /* bytes of the second; further continuation bytes */
    } forms[] = {{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1}, {0xE1, 0xEC, 0x80, 0xBF, 1},
                 {0xED, 0xED, 0x80, 0x9F, 1}, {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
                 {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};
    uint32_t tail[3], any = LILY_GRAMMAR_END;
    tail[0] = next;
    tail[1] = lily_grammar_range(g, 0x80, 0xBF, tail[0]);
    tail[2] = lily_grammar_range(g, 0x80, 0xBF, tail[1]);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        lily_byte_set lead = {{0}};
        lily_set_add(&lead, forms[i].lead_low, forms[i].lead_high);
        for (unsigned b = 0x80; without && b <= 0xFF; b++)
            if (lily_set_has(without, b)) lily_set_remove(&lead, b);
        uint32_t one = lily_grammar_set(
            g, &lead, lily_grammar_range(g, forms[i].low, forms[i].high, tail[forms[i].more]));
        any = i == 0 ? one : lily_grammar_split(g, one, any);
    }
    return any;
}

static lily_byte_set plain_ascii(void)
{
    lily_byte_set set = {{0}};
    lily_set_add(&set, 0x20, 0x7F);
    lily_set_remove(&set, '"');
    lily_set_remove(&set, '\\');
    return set;
}

static uint32_t hex(lily_grammar *g, const char *digits, uint32_t next)
{
    lily_byte_set set = {{0}};
    for (; *digits; digits++) lily_set_add(&set, (unsigned char)*digits, (unsigned char)*digits);
    return lily_grammar_set(g, &set, next);
}

enum { LITERAL_DEPTH = 64, KEY_BYTES = 256 };

#define HEX "0123456789abcdefABCDEF"

/* "u" and four hex digits of a character, or of a pair of surrogates, which is one. */
static uint32_t unicode_escape(lily_grammar *g, uint32_t next)
{
    uint32_t last2 = hex(g, HEX, hex(g, HEX, next)), last3 = hex(g, HEX, last2);
    uint32_t low = lily_grammar_text(g, "\\u", 2, hex(g, "dD", hex(g, "cdefCDEF", last2)));
    uint32_t pair = hex(g, "dD", hex(g, "89abAB", hex(g, HEX, hex(g, HEX, low))));
    uint32_t whole = hex(g, "0123456789abcefABCEF", last3), below = hex(g, "dD", hex(g, "01234567", last2));
    return lily_grammar_text(g, "u", 1, lily_grammar_split(g, whole, lily_grammar_split(g, below, pair)));
}

static uint32_t character(lily_grammar *g, uint32_t next)
{
    lily_byte_set plain = plain_ascii(), simple = {{0}};
    for (const char *c = "\"\\/bfnrt"; *c; c++) lily_set_add(&simple, (unsigned char)*c, (unsigned char)*c);
    uint32_t escape = lily_grammar_split(g, lily_grammar_set(g, &simple, next), unicode_escape(g, next));
    uint32_t special =
        lily_grammar_split(g, lily_grammar_text(g, "\\", 1, escape), part_beyond_ascii(g, NULL, next));
    return lily_grammar_split(g, lily_grammar_set(g, &plain, next), special);
}

uint32_t part_string(const json_parts *p, int64_t low, int64_t high, uint32_t next)
{
    if (high >= 0 && low > high) return lily_grammar_never(p->g);
    uint32_t quote = lily_grammar_text(p->g, "\"", 1, next), most = high < 0 ? UINT32_MAX : (uint32_t)high;
    return lily_grammar_text(p->g, "\"", 1,
                             lily_grammar_repeated(p->g, p->character, (uint32_t)low, most, quote));
}

/* ---- keys that are none of some names ---- */

/* `names` share their first `at` bytes; those are read. The names are sorted, so that each group of the same
 * byte lies together. */
static uint32_t key_rest(const json_parts *p, const char *const *names, size_t n, size_t at, uint32_t quote,
                         uint32_t free)
{
    lily_grammar *g = p->g;
    if (at == KEY_BYTES) g->too_large = true;
    if (lily_grammar_failed(g)) return free;
    lily_byte_set plain = plain_ascii(), taken = {{0}};
    bool ends = names[0][at] == '\0';
    uint32_t all = ends ? lily_grammar_never(g) : quote;
    for (size_t i = ends ? 1 : 0, to; i < n; i = to) {
        uint8_t byte = (uint8_t)names[i][at];
        for (to = i; to < n && (uint8_t)names[to][at] == byte;) to++;
        lily_set_add(&taken, byte, byte);
        if (byte >= 0x80 || !lily_set_has(&plain, byte)) continue;
        lily_set_remove(&plain, byte);
        all = lily_grammar_split(
            g, all, lily_grammar_range(g, byte, byte, key_rest(p, names + i, to - i, at + 1, quote, free)));
    }
    uint32_t other =
        lily_grammar_split(g, lily_grammar_set(g, &plain, free), part_beyond_ascii(g, &taken, free));
    return lily_grammar_split(g, all, other);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

uint32_t part_other_key(const json_parts *p, const json_t *names, uint32_t next)
{
    lily_grammar *g = p->g;
    lily_byte_set plain = plain_ascii();
    uint32_t free = lily_grammar_split(g, LILY_GRAMMAR_END, LILY_GRAMMAR_END),
             quote = lily_grammar_text(g, "\"", 1, next);
    uint32_t more =
        lily_grammar_split(g, lily_grammar_set(g, &plain, free), part_beyond_ascii(g, NULL, free));
    lily_grammar_set_split(g, free, quote, more);
    size_t n = json_object_size(names), i = 0;
    const char **list = lily_calloc(n, sizeof *list), *key;
    if (!list) {
        g->no_memory = true;
        return LILY_GRAMMAR_END;
    }
    json_t *ignored;
    json_object_foreach ((json_t *)names, key, ignored) list[i++] = key;
    if (n) qsort(list, n, sizeof *list, by_text);
    uint32_t at = n ? key_rest(p, list, n, 0, quote, free) : free;
    lily_free(list);
    return lily_grammar_text(g, "\"", 1, at);
}

/* ---- numbers ---- */

/* Up to `most` more digits. */
static uint32_t digits(lily_grammar *g, int most, uint32_t next)
{
    uint32_t at = next;
    for (int i = 0; i < most; i++) at = lily_grammar_split(g, next, lily_grammar_range(g, '0', '9', at));
    return at;
}

static uint32_t natural(lily_grammar *g, uint32_t next)
{
    uint32_t more = lily_grammar_range(g, '1', '9', digits(g, JSON_DIGITS - 1, next));
    return lily_grammar_split(g, more, lily_grammar_range(g, '0', '0', next));
}

static uint32_t maybe_minus(lily_grammar *g, uint32_t natural_node)
{
    return lily_grammar_split(g, natural_node, lily_grammar_text(g, "-", 1, natural_node));
}

/* Exponents have at most two digits: what follows fits a double. */
static uint32_t any_number(lily_grammar *g, uint32_t next)
{
    lily_byte_set e = {{0}}, sign = {{0}};
    lily_set_add(&e, 'e', 'e');
    lily_set_add(&e, 'E', 'E');
    lily_set_add(&sign, '+', '+');
    lily_set_add(&sign, '-', '-');
    uint32_t power = lily_grammar_range(g, '0', '9', digits(g, 1, next));
    power = lily_grammar_set(g, &e, lily_grammar_split(g, power, lily_grammar_set(g, &sign, power)));
    uint32_t tail = lily_grammar_split(g, next, power);
    uint32_t fraction =
        lily_grammar_text(g, ".", 1, lily_grammar_range(g, '0', '9', digits(g, JSON_FRACTION - 1, tail)));
    return maybe_minus(g, natural(g, lily_grammar_split(g, tail, fraction)));
}

/* ---- containers ---- */

/* A comma and an item. */
static uint32_t next_item(const json_parts *p, uint32_t rule, uint32_t next)
{
    return lily_grammar_text(p->g, ",", 1, part_space(p, lily_grammar_call(p->g, rule, next)));
}

/* Behind `have` items, where more come by one rule only. */
static uint32_t more_items(const json_parts *p, uint32_t rule, int64_t have, int64_t low, int64_t high,
                           uint32_t end)
{
    lily_grammar *g = p->g;
    if (rule == PART_NONE || (high >= 0 && high <= have)) return low > have ? lily_grammar_never(g) : end;
    uint32_t item = lily_grammar_rule(g), least = (uint32_t)(low > have ? low - have : 0);
    lily_grammar_set_rule(g, item, next_item(p, rule, LILY_GRAMMAR_END));
    return lily_grammar_repeated(g, item, least, high < 0 ? UINT32_MAX : (uint32_t)(high - have), end);
}

uint32_t part_list(const json_parts *p, const uint32_t *rules, size_t n, uint32_t rest, int64_t low,
                   int64_t high, uint32_t next)
{
    lily_grammar *g = p->g;
    uint32_t close = lily_grammar_text(g, "]", 1, next), end = part_space(p, close);
    uint32_t first = n > 0 ? rules[0] : rest;
    if (high >= 0 && low > high) return lily_grammar_never(g);
    if (high == 0 || first == PART_NONE)
        return low > 0 ? lily_grammar_never(g) : lily_grammar_text(g, "[", 1, end);
    int64_t known = n > 0 ? (int64_t)n : 1;
    if (high >= 0 && known > high) known = high;
    uint32_t at = more_items(p, rest, known, low, high, end); /* what follows so many items */
    for (int64_t i = known - 1; i > 0 && !lily_grammar_failed(g); i--) {
        uint32_t more = next_item(p, rules[i], at);
        at = i >= low ? lily_grammar_split(g, end, more) : more;
    }
    uint32_t items = lily_grammar_call(g, first, at);
    return lily_grammar_text(g, "[", 1, part_space(p, low > 0 ? items : lily_grammar_split(g, close, items)));
}

static uint32_t object_of_anything(const json_parts *p)
{
    lily_grammar *g = p->g;
    uint32_t close = lily_grammar_text(g, "}", 1, LILY_GRAMMAR_END),
             after = lily_grammar_split(g, close, close);
    uint32_t value = lily_grammar_text(g, ":", 1, part_space(p, part_any(p, after)));
    uint32_t member = part_any_string(p, value);
    uint32_t more = lily_grammar_text(g, ",", 1, part_space(p, member));
    lily_grammar_set_split(g, after, part_space(p, close), more);
    return lily_grammar_text(g, "{", 1, part_space(p, lily_grammar_split(g, close, member)));
}

/* ---- rules ---- */

static uint32_t space_rule(lily_grammar *g)
{
    uint32_t indent = LILY_GRAMMAR_END;
    for (int i = 0; i < JSON_INDENT; i++)
        indent = lily_grammar_split(g, LILY_GRAMMAR_END, lily_grammar_text(g, " ", 1, indent));
    uint32_t line = lily_grammar_text(g, "\n", 1, indent),
             blank = lily_grammar_text(g, " ", 1, LILY_GRAMMAR_END);
    return lily_grammar_split(g, LILY_GRAMMAR_END, lily_grammar_split(g, blank, line));
}

static uint32_t value_rule(const json_parts *p)
{
    static const char *const words[] = {"null", "true", "false"};
    lily_grammar *g = p->g;
    uint32_t any = part_any_object(p, LILY_GRAMMAR_END);
    any = lily_grammar_split(g, any, part_any_array(p, LILY_GRAMMAR_END));
    any = lily_grammar_split(g, any, part_any_string(p, LILY_GRAMMAR_END));
    any = lily_grammar_split(g, any, part_any_number(p, LILY_GRAMMAR_END));
    for (size_t i = 0; i < 3; i++) any = lily_grammar_split(g, any, part_word(p, words[i], LILY_GRAMMAR_END));
    return any;
}

void parts_init(json_parts *p, lily_grammar *g)
{
    *p = (json_parts){.g = g};
    uint32_t *const rules[] = {&p->space,   &p->character, &p->beyond, &p->string, &p->digit,
                               &p->integer, &p->number,    &p->value,  &p->object, &p->array};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) *rules[i] = lily_grammar_rule(g);
    lily_grammar_set_rule(g, p->space, space_rule(g));
    lily_grammar_set_rule(g, p->character, character(g, LILY_GRAMMAR_END));
    lily_grammar_set_rule(g, p->beyond, part_beyond_ascii(g, NULL, LILY_GRAMMAR_END));
    lily_grammar_set_rule(g, p->digit, lily_grammar_range(g, '0', '9', LILY_GRAMMAR_END));
    for (uint32_t i = 1; i < JSON_PRECISION; i++) {
        uint32_t run = lily_grammar_repeated(g, p->digit, 1, i, LILY_GRAMMAR_END);
        p->fraction[i] = lily_grammar_rule(g);
        lily_grammar_set_rule(g, p->fraction[i],
                              lily_grammar_split(g, LILY_GRAMMAR_END, lily_grammar_text(g, ".", 1, run)));
    }
    lily_grammar_set_rule(g, p->string, part_string(p, 0, -1, LILY_GRAMMAR_END));
    lily_grammar_set_rule(g, p->integer, maybe_minus(g, natural(g, LILY_GRAMMAR_END)));
    lily_grammar_set_rule(g, p->number, any_number(g, LILY_GRAMMAR_END));
    lily_grammar_set_rule(g, p->object, object_of_anything(p));
    lily_grammar_set_rule(g, p->array, part_list(p, NULL, 0, p->value, 0, -1, LILY_GRAMMAR_END));
    lily_grammar_set_rule(g, p->value, value_rule(p));
}

uint32_t part_space(const json_parts *p, uint32_t next)
{
    return lily_grammar_call(p->g, p->space, next);
}
uint32_t part_any(const json_parts *p, uint32_t next)
{
    return lily_grammar_call(p->g, p->value, next);
}
uint32_t part_any_object(const json_parts *p, uint32_t next)
{
    return lily_grammar_call(p->g, p->object, next);
}
uint32_t part_any_array(const json_parts *p, uint32_t next)
{
    return lily_grammar_call(p->g, p->array, next);
}
uint32_t part_any_string(const json_parts *p, uint32_t next)
{
    return lily_grammar_call(p->g, p->string, next);
}
uint32_t part_any_number(const json_parts *p, uint32_t next)
{
    return lily_grammar_call(p->g, p->number, next);
}
uint32_t part_any_integer(const json_parts *p, uint32_t next)
{
    return lily_grammar_call(p->g, p->integer, next);
}
uint32_t part_word(const json_parts *p, const char *word, uint32_t next)
{
    return lily_grammar_text(p->g, word, strlen(word), next);
}

/* ---- one value ---- */

/* The shortest digits that mean the same double. */
static uint32_t real(const json_parts *p, double x, uint32_t next)
{
    char text[40];
    for (int digit = 15; digit <= 17; digit++) {
        snprintf(text, sizeof text, "%.*g", digit, x);
        if (strtod(text, NULL) == x) break;
    }
    if (!strpbrk(text, ".e")) strcat(text, ".0");
    return part_word(p, text, next);
}

static uint32_t scalar(const json_parts *p, const json_t *value, uint32_t next)
{
    if (json_is_real(value)) return real(p, json_real_value(value), next);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text)
        p->g->no_memory = true;
    else
        next = part_word(p, text, next);
    free(text);
    return next;
}

uint32_t part_key(const json_parts *p, const char *key, uint32_t next)
{
    json_t *name = json_string(key);
    if (!name)
        p->g->no_memory = true;
    else
        next = scalar(p, name, next);
    json_decref(name);
    return next;
}

static uint32_t literal(const json_parts *p, const json_t *value, int depth, uint32_t next)
{
    lily_grammar *g = p->g;
    const char *big = lily_big_number(value);
    if (depth == LITERAL_DEPTH) g->too_large = true;
    if (big) return part_word(p, big, next);
    if (lily_grammar_failed(g) || (!json_is_object(value) && !json_is_array(value)))
        return scalar(p, value, next);
    bool list = json_is_array(value);
    size_t n = list ? json_array_size(value) : json_object_size(value);
    uint32_t at = part_space(p, lily_grammar_text(g, list ? "]" : "}", 1, next));
    if (list) {
        for (size_t i = n; i-- > 0;) {
            at = literal(p, json_array_get(value, i), depth + 1, at);
            at = part_space(p, at);
            if (i > 0) at = lily_grammar_text(g, ",", 1, at);
        }
        return lily_grammar_text(g, "[", 1, at);
    }
    /* jansson goes forward only: each member is a rule, called in order. */
    uint32_t rules = g->n_rules, i = 0;
    for (size_t k = 0; k < n; k++) (void)lily_grammar_rule(g);
    const char *key;
    json_t *member;
    json_object_foreach ((json_t *)value, key, member) {
        uint32_t node = literal(p, member, depth + 1, LILY_GRAMMAR_END);
        node = part_key(p, key, lily_grammar_text(g, ":", 1, part_space(p, node)));
        lily_grammar_set_rule(g, rules + i++, node);
    }
    for (size_t k = n; k-- > 0;) {
        at = part_space(p, lily_grammar_call(g, rules + (uint32_t)k, at));
        if (k > 0) at = lily_grammar_text(g, ",", 1, at);
    }
    return lily_grammar_text(g, "{", 1, at);
}

uint32_t part_literal(const json_parts *p, const json_t *value, uint32_t next)
{
    return literal(p, value, 0, next);
}

/* The n texts, sorted and different, share their first `at` bytes; those are read. What begins alike is
 * walked together, so that the depth is at most their number. */
static uint32_t texts(lily_grammar *g, char *const *list, size_t n, size_t at, uint32_t next)
{
    size_t same = at;
    const char *first = list[0], *last = list[n - 1];
    while (first[same] && first[same] == last[same]) same++;
    if (n == 1) return lily_grammar_text(g, first + at, strlen(first + at), next);
    uint32_t all = first[same] ? lily_grammar_never(g) : next;
    for (size_t i = first[same] ? 0 : 1, to; i < n; i = to) {
        for (to = i; to < n && list[to][same] == list[i][same];) to++;
        all = lily_grammar_split(g, all, texts(g, list + i, to - i, same, next));
    }
    return lily_grammar_text(g, first + at, same - at, all);
}

static int by_own_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

uint32_t part_literals(const json_parts *p, const json_t *const *values, size_t n, uint32_t next)
{
    lily_grammar *g = p->g;
    uint32_t all = lily_grammar_never(g);
    size_t n_texts = 0, kept = 0;
    char **list = lily_calloc(n, sizeof *list);
    if (!list) g->no_memory = true;
    for (size_t i = 0; list && i < n; i++) {
        if (json_is_string(values[i]) || json_is_integer(values[i]))
            list[n_texts++] = json_dumps(values[i], JSON_ENCODE_ANY | JSON_COMPACT);
        else
            all = lily_grammar_split(g, all, literal(p, values[i], 0, next));
        if (n_texts && !list[n_texts - 1]) {
            g->no_memory = true;
            n_texts--;
        }
    }
    if (n_texts) qsort(list, n_texts, sizeof *list, by_own_text);
    for (size_t i = 0; i < n_texts; i++) {
        if (kept && strcmp(list[kept - 1], list[i]) == 0)
            free(list[i]);
        else
            list[kept++] = list[i];
    }
    if (kept) all = lily_grammar_split(g, all, texts(g, list, kept, 0, next));
    for (size_t i = 0; i < kept; i++) free(list[i]);
    lily_free(list);
    return all;
}
