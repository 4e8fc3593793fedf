/* json_scalars.c - numbers and strings of a schema. */
#include <string.h>

#include "base/mem.h"
#include "sample/dfa.h"
#include "sample/json_compiler.h"
#include "sample/json_number.h"

/* ---- numbers ---- */

/* A bound that is narrower than *bound takes its place. */
static int read_bound(compiler *c, const json_t *s, const char *name, int side, bool is_open, decimal *room,
                      const decimal **bound, bool *open)
{
    const json_t *v = json_object_get(s, name);
    decimal d;
    if (!v) return LILY_OK;
    if (!decimal_of(&d, v)) return REFUSE(c, LILY_ARGUMENT, "'%s' must be a number", name);
    int compared = *bound ? decimal_compare(&d, *bound) * side : 1;
    if (compared < 0 || (compared == 0 && !is_open)) return LILY_OK;
    *room = d;
    *bound = room;
    *open = is_open;
    return LILY_OK;
}

/* int32 bounds; the others hold more than the digits that are written. */
static int read_number_format(compiler *c, const json_t *s, bool *int32)
{
    const json_t *format = json_object_get(s, "format");
    const char *name = json_string_value(format);
    static const char *const known[] = {"int32", "int64", "float", "double"};
    *int32 = name && strcmp(name, "int32") == 0;
    for (size_t i = 0; i < 4; i++)
        if (name && strcmp(known[i], name) == 0) return LILY_OK;
    if (name && json_format_pattern(name)) return LILY_OK; /* of strings, which may be declared beside */
    return format
               ? REFUSE(c, LILY_UNSUPPORTED, "'format' %.60s of numbers is not supported", name ? name : "")
               : LILY_OK;
}

int json_numbers(compiler *c, const json_t *s, unsigned groups, bool whole, uint32_t next, uint32_t *out)
{
    static const decimal least32 = {.negative = true, .whole = "2147483648"},
                         most32 = {.whole = "2147483647"};
    decimal low, high;
    number_bounds b = {0};
    bool int32 = false;
    if (groups & KEYWORD_STRING) TRY(read_number_format(c, s, &int32));
    TRY(read_bound(c, s, "minimum", 1, false, &low, &b.low, &b.open_low));
    TRY(read_bound(c, s, "exclusiveMinimum", 1, true, &low, &b.low, &b.open_low));
    TRY(read_bound(c, s, "maximum", -1, false, &high, &b.high, &b.open_high));
    TRY(read_bound(c, s, "exclusiveMaximum", -1, true, &high, &b.high, &b.open_high));
    if (int32 && (!b.low || decimal_compare(b.low, &least32) < 0)) {
        b.low = &least32;
        b.open_low = false;
    }
    if (int32 && (!b.high || decimal_compare(b.high, &most32) > 0)) {
        b.high = &most32;
        b.open_high = false;
    }
    if (b.low || b.high)
        *out = part_number_between(&c->p, &b, whole, next);
    else
        *out = whole ? part_any_integer(&c->p, next) : part_any_number(&c->p, next);
    return LILY_OK;
}

/* ---- strings ---- */

/* The strings that fit one pattern (or format); *with: those that fit all so far, empty at first. */
static int add_pattern(compiler *c, const json_t *value, bool format, dfa *with)
{
    const char *text = json_string_value(value), *pattern = format && text ? json_format_pattern(text) : text;
    dfa one, both;
    lily_err why;
    if (!text) return REFUSE(c, LILY_ARGUMENT, "'%s' must be a string", format ? "format" : "pattern");
    if (!pattern) return REFUSE(c, LILY_UNSUPPORTED, "'format' %.60s is not supported", text);
    int rc = dfa_of_pattern(&one, pattern, format ? strlen(pattern) : json_string_length(value),
                            &c->g->pattern_work, &why);
    if (rc == LILY_OK && with->n_states) {
        rc = dfa_both(&both, &one, with, &c->g->pattern_work, &why);
        dfa_free(&one);
        one = rc == LILY_OK ? both : (dfa){0};
    }
    if (rc == LILY_NO_MEMORY) return lily_no_memory(c->e, 0, "a pattern");
    if (rc != LILY_OK)
        return REFUSE(c, (enum lily_code)rc, "'%s': %.200s", format ? "format" : "pattern", why.text);
    dfa_free(with);
    *with = one;
    return LILY_OK;
}

static int add_patterns(compiler *c, const json_t *s, const char *name, dfa *with)
{
    const json_t *value = json_object_get(s, name);
    bool format = strcmp(name, "format") == 0;
    if (!value) return LILY_OK;
    if (!json_is_array(value)) return add_pattern(c, value, format, with);
    for (size_t i = 0; i < json_array_size(value); i++)
        TRY(add_pattern(c, json_array_get(value, i), format, with));
    return LILY_OK;
}

/* The JSON strings of an automaton that are of some length, as a rule. */
static int pattern_rule(compiler *c, dfa *d, int64_t low, int64_t high, uint32_t *rule)
{
    if (low > 0 || high >= 0) {
        dfa limited;
        lily_err why;
        int rc = dfa_of_length(&limited, d, low, high, &c->g->pattern_work, &why);
        if (rc == LILY_NO_MEMORY) return lily_no_memory(c->e, 0, "a pattern");
        if (rc != LILY_OK)
            return REFUSE(c, (enum lily_code)rc, "'minLength' beside 'pattern' or 'format': %.200s",
                          why.text);
        dfa_free(d);
        *d = limited;
    }
    *rule = lily_grammar_rule(c->g);
    lily_grammar_set_rule(c->g, *rule, part_dfa(&c->p, d, LILY_GRAMMAR_END));
    return LILY_OK;
}

static bool same_json(const json_t *a, const json_t *b)
{
    return a == b || (a && b && json_equal((json_t *)a, (json_t *)b));
}

/* Schemas repeat the same few patterns: each is made once. */
static int pattern_string(compiler *c, const json_t *s, int64_t low, int64_t high, uint32_t next,
                          uint32_t *out)
{
    patterned one = {json_object_get(s, "pattern"), json_object_get(s, "format"), low, high, 0};
    dfa d = {0};
    uint32_t i = 0;
    for (; i < c->n_patterns; i++) {
        const patterned *p = &c->patterns[i];
        if (p->low == low && p->high == high && same_json(p->pattern, one.pattern) &&
            same_json(p->format, one.format))
            break;
    }
    if (i == MAX_PATTERNS) return REFUSE(c, LILY_UNSUPPORTED, "more than %d patterns", MAX_PATTERNS);
    if (i == c->n_patterns) {
        int rc = add_patterns(c, s, "pattern", &d);
        if (rc == LILY_OK) rc = add_patterns(c, s, "format", &d);
        if (rc == LILY_OK) rc = pattern_rule(c, &d, low, high, &one.rule);
        dfa_free(&d);
        if (rc != LILY_OK) return rc;
        c->patterns[c->n_patterns++] = one;
    }
    *out = lily_grammar_call(c->g, c->patterns[i].rule, next);
    return LILY_OK;
}

int json_strings(compiler *c, const json_t *s, uint32_t next, uint32_t *out)
{
    int64_t low, high;
    TRY(json_read_count(c, s, "minLength", 0, &low));
    TRY(json_read_count(c, s, "maxLength", -1, &high));
    if (high >= 0 && low > high)
        *out = lily_grammar_never(c->g);
    else if (json_object_get(s, "pattern") || json_object_get(s, "format"))
        return pattern_string(c, s, low, high, next, out);
    else
        *out = low == 0 && high < 0 ? part_any_string(&c->p, next) : part_string(&c->p, low, high, next);
    return LILY_OK;
}
