/* jinja_case.c - str.upper() and str.lower(): full case mapping (Unicode 15, SpecialCasing.txt). */
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/jinja_text.h"

/* Capitals that are several characters; utf8proc has the simple mappings only. */
static const struct {
    uint16_t from, to[3];
} SPECIAL_UPPER[] = {
    {0x00df, {0x0053, 0x0053, 0}}, {0x0149, {0x02bc, 0x004e, 0}}, {0x01f0, {0x004a, 0x030c, 0}},
    {0x0390, {0x0399, 0x0308, 0x0301}}, {0x03b0, {0x03a5, 0x0308, 0x0301}}, {0x0587, {0x0535, 0x0552, 0}},
    {0x1e96, {0x0048, 0x0331, 0}}, {0x1e97, {0x0054, 0x0308, 0}}, {0x1e98, {0x0057, 0x030a, 0}},
    {0x1e99, {0x0059, 0x030a, 0}}, {0x1e9a, {0x0041, 0x02be, 0}}, {0x1f50, {0x03a5, 0x0313, 0}},
    {0x1f52, {0x03a5, 0x0313, 0x0300}}, {0x1f54, {0x03a5, 0x0313, 0x0301}},
    {0x1f56, {0x03a5, 0x0313, 0x0342}}, {0x1f80, {0x1f08, 0x0399, 0}}, {0x1f81, {0x1f09, 0x0399, 0}},
    {0x1f82, {0x1f0a, 0x0399, 0}}, {0x1f83, {0x1f0b, 0x0399, 0}}, {0x1f84, {0x1f0c, 0x0399, 0}},
    {0x1f85, {0x1f0d, 0x0399, 0}}, {0x1f86, {0x1f0e, 0x0399, 0}}, {0x1f87, {0x1f0f, 0x0399, 0}},
    {0x1f88, {0x1f08, 0x0399, 0}}, {0x1f89, {0x1f09, 0x0399, 0}}, {0x1f8a, {0x1f0a, 0x0399, 0}},
    {0x1f8b, {0x1f0b, 0x0399, 0}}, {0x1f8c, {0x1f0c, 0x0399, 0}}, {0x1f8d, {0x1f0d, 0x0399, 0}},
    {0x1f8e, {0x1f0e, 0x0399, 0}}, {0x1f8f, {0x1f0f, 0x0399, 0}}, {0x1f90, {0x1f28, 0x0399, 0}},
    {0x1f91, {0x1f29, 0x0399, 0}}, {0x1f92, {0x1f2a, 0x0399, 0}}, {0x1f93, {0x1f2b, 0x0399, 0}},
    {0x1f94, {0x1f2c, 0x0399, 0}}, {0x1f95, {0x1f2d, 0x0399, 0}}, {0x1f96, {0x1f2e, 0x0399, 0}},
    {0x1f97, {0x1f2f, 0x0399, 0}}, {0x1f98, {0x1f28, 0x0399, 0}}, {0x1f99, {0x1f29, 0x0399, 0}},
    {0x1f9a, {0x1f2a, 0x0399, 0}}, {0x1f9b, {0x1f2b, 0x0399, 0}}, {0x1f9c, {0x1f2c, 0x0399, 0}},
    {0x1f9d, {0x1f2d, 0x0399, 0}}, {0x1f9e, {0x1f2e, 0x0399, 0}}, {0x1f9f, {0x1f2f, 0x0399, 0}},
    {0x1fa0, {0x1f68, 0x0399, 0}}, {0x1fa1, {0x1f69, 0x0399, 0}}, {0x1fa2, {0x1f6a, 0x0399, 0}},
    {0x1fa3, {0x1f6b, 0x0399, 0}}, {0x1fa4, {0x1f6c, 0x0399, 0}}, {0x1fa5, {0x1f6d, 0x0399, 0}},
    {0x1fa6, {0x1f6e, 0x0399, 0}}, {0x1fa7, {0x1f6f, 0x0399, 0}}, {0x1fa8, {0x1f68, 0x0399, 0}},
    {0x1fa9, {0x1f69, 0x0399, 0}}, {0x1faa, {0x1f6a, 0x0399, 0}}, {0x1fab, {0x1f6b, 0x0399, 0}},
    {0x1fac, {0x1f6c, 0x0399, 0}}, {0x1fad, {0x1f6d, 0x0399, 0}}, {0x1fae, {0x1f6e, 0x0399, 0}},
    {0x1faf, {0x1f6f, 0x0399, 0}}, {0x1fb2, {0x1fba, 0x0399, 0}}, {0x1fb3, {0x0391, 0x0399, 0}},
    {0x1fb4, {0x0386, 0x0399, 0}}, {0x1fb6, {0x0391, 0x0342, 0}}, {0x1fb7, {0x0391, 0x0342, 0x0399}},
    {0x1fbc, {0x0391, 0x0399, 0}}, {0x1fc2, {0x1fca, 0x0399, 0}}, {0x1fc3, {0x0397, 0x0399, 0}},
    {0x1fc4, {0x0389, 0x0399, 0}}, {0x1fc6, {0x0397, 0x0342, 0}}, {0x1fc7, {0x0397, 0x0342, 0x0399}},
    {0x1fcc, {0x0397, 0x0399, 0}}, {0x1fd2, {0x0399, 0x0308, 0x0300}}, {0x1fd3, {0x0399, 0x0308, 0x0301}},
    {0x1fd6, {0x0399, 0x0342, 0}}, {0x1fd7, {0x0399, 0x0308, 0x0342}}, {0x1fe2, {0x03a5, 0x0308, 0x0300}},
    {0x1fe3, {0x03a5, 0x0308, 0x0301}}, {0x1fe4, {0x03a1, 0x0313, 0}}, {0x1fe6, {0x03a5, 0x0342, 0}},
    {0x1fe7, {0x03a5, 0x0308, 0x0342}}, {0x1ff2, {0x1ffa, 0x0399, 0}}, {0x1ff3, {0x03a9, 0x0399, 0}},
    {0x1ff4, {0x038f, 0x0399, 0}}, {0x1ff6, {0x03a9, 0x0342, 0}}, {0x1ff7, {0x03a9, 0x0342, 0x0399}},
    {0x1ffc, {0x03a9, 0x0399, 0}}, {0xfb00, {0x0046, 0x0046, 0}}, {0xfb01, {0x0046, 0x0049, 0}},
    {0xfb02, {0x0046, 0x004c, 0}}, {0xfb03, {0x0046, 0x0046, 0x0049}}, {0xfb04, {0x0046, 0x0046, 0x004c}},
    {0xfb05, {0x0053, 0x0054, 0}}, {0xfb06, {0x0053, 0x0054, 0}}, {0xfb13, {0x0544, 0x0546, 0}},
    {0xfb14, {0x0544, 0x0535, 0}}, {0xfb15, {0x0544, 0x053b, 0}}, {0xfb16, {0x054e, 0x0546, 0}},
    {0xfb17, {0x0544, 0x053d, 0}},
};

static size_t upper(uint32_t cp, uint32_t out[3])
{
    for (size_t i = 0; i < sizeof SPECIAL_UPPER / sizeof *SPECIAL_UPPER; i++) {
        if (SPECIAL_UPPER[i].from != cp) continue;
        size_t n = 0;
        while (n < 3 && SPECIAL_UPPER[i].to[n]) out[n] = SPECIAL_UPPER[i].to[n], n++;
        return n;
    }
    out[0] = (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp);
    return 1;
}

/* Unicode's Cased, as far as the general category and the simple mappings tell. */
static bool is_cased(uint32_t cp)
{
    utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)cp);
    return cat == UTF8PROC_CATEGORY_LU || cat == UTF8PROC_CATEGORY_LL || cat == UTF8PROC_CATEGORY_LT ||
           (uint32_t)utf8proc_toupper((utf8proc_int32_t)cp) != cp || (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp) != cp;
}

static bool is_case_ignorable(uint32_t cp)
{
    utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)cp);
    return cat == UTF8PROC_CATEGORY_MN || cat == UTF8PROC_CATEGORY_ME || cat == UTF8PROC_CATEGORY_CF ||
           cat == UTF8PROC_CATEGORY_LM || cat == UTF8PROC_CATEGORY_SK || (cp < 0x10000 && cp && cp != 0xffff &&
           (cp == '\'' || cp == '.' || cp == ':' || cp == 0xb7 || cp == 0x387 || cp == 0x55f || cp == 0x5f4 ||
            cp == 0x2018 || cp == 0x2019 || cp == 0x2024 || cp == 0x2027 || cp == 0xfe13 || cp == 0xfe52 ||
            cp == 0xfe55 || cp == 0xff07 || cp == 0xff0e || cp == 0xff1a));
}

/* A sigma at the end of a word has a form of its own. */
static bool is_final_sigma(const jinja_str *s, size_t at)
{
    const unsigned char *p = (const unsigned char *)s->p;
    bool before = false;
    for (size_t i = at; i > 0 && !before;) {
        do i--;
        while ((p[i] & 0xc0) == 0x80);
        uint32_t cp = lily_utf8_decode(p + i, lily_utf8_length(p + i, s->n - i));
        if (is_case_ignorable(cp)) continue;
        if (!is_cased(cp)) return false;
        before = true;
    }
    for (size_t i = at + 2; before && i < s->n;) {
        size_t len = lily_utf8_length(p + i, s->n - i);
        uint32_t cp = lily_utf8_decode(p + i, len);
        if (!is_case_ignorable(cp)) return !is_cased(cp);
        i += len;
    }
    return before;
}

static size_t lower(const jinja_str *s, size_t at, uint32_t cp, uint32_t out[3])
{
    if (cp == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = cp == 0x3a3 && is_final_sigma(s, at) ? 0x3c2 : (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    return 1;
}

int jinja_case(jinja_ctx *c, const jinja_str *s, bool to_upper, jinja_value *out)
{
    jinja_out o = {.limit = c->arena_limit};
    size_t run = 0;
    TRY(jinja_step(c, 16 * s->n));
    for (size_t at = 0; at < s->n;) {
        size_t len = lily_utf8_length((const unsigned char *)s->p + at, s->n - at);
        while (s->runs && s->runs[run].end <= at) run++;
        uint32_t cp = lily_utf8_decode((const unsigned char *)s->p + at, len), mapped[3];
        size_t n = to_upper ? upper(cp, mapped) : lower(s, at, cp, mapped);
        for (size_t i = 0; i < n; i++) {
            unsigned char bytes[4];
            size_t m = lily_utf8_encode(mapped[i], bytes);
            jinja_out_bytes(&o, (const char *)bytes, m, s->runs ? s->runs[run].control : s->control);
        }
        at += len;
    }
    return jinja_out_value(c, &o, out);
}
