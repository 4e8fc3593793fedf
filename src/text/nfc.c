/* utf8proc knows the characters; the order of marks is sorted here, because utf8proc's own sort is quadratic
 * in a run of marks, and text comes from strangers.  Most text is in form C and is only scanned. */
#include "text/nfc.h"

#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/utf8.h"

void lily_nfc_work_free(lily_nfc_work *w)
{
    lily_free(w->point);
    lily_free(w->sorted);
    lily_buf_free(&w->out);
}

/* Ranges in which every code point has combining class 0, is in form C and never joins with what stands
 * before it (NFC_Quick_Check=Yes).  Unicode's stability policy keeps them so.  The list need not be
 * complete: the rest goes through the full procedure. */
static const uint32_t inert[][2] = {
    {0x0000, 0x02ff},                     /* Latin, IPA */
    {0x0388, 0x03ff},                     /* Greek */
    {0x0400, 0x0482}, {0x048a, 0x0556},   /* Cyrillic, Armenian */
    {0x05d0, 0x05ea},                     /* Hebrew letters */
    {0x0620, 0x064a}, {0x0660, 0x066f},   /* Arabic letters, digits */
    {0x0e01, 0x0e37},                     /* Thai letters */
    {0x11a7, 0x11a7},                     /* joins with nothing, but utf8proc (2.8) lets it vanish after a syllable */
    {0x1e00, 0x1e99},                     /* Latin additional */
    {0x2010, 0x2027}, {0x2030, 0x205e},   /* punctuation */
    {0x2190, 0x219a}, {0x2500, 0x27ff},   /* arrows, boxes, symbols */
    {0x3001, 0x3029}, {0x3041, 0x3096}, {0x309b, 0x30ff},   /* Kana */
    {0x3400, 0x4dbf}, {0x4e00, 0x9fff},   /* Han */
    {0xac00, 0xd7a3},                     /* Hangul syllables */
    {0xff01, 0xffee},                     /* wide forms */
    {0x1f300, 0x1faff},                   /* pictographs */
};

static bool is_inert(uint32_t c)
{
    size_t low = 0, high = sizeof inert / sizeof *inert;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (c > inert[mid][1])
            low = mid + 1;
        else
            high = mid;
    }
    return low < sizeof inert / sizeof *inert && c >= inert[low][0];
}

/* Where the first character that is not inert begins, or n; *before: where the character before it begins. */
static size_t skip_inert(const char *text, size_t at, size_t n, size_t *before)
{
    *before = at;
    while (at < n) {
        const unsigned char *p = (const unsigned char *)text + at;
        size_t len = lily_utf8_length(p, n - at);
        /* A first byte below 0xcc is a character below U+0300. */
        if (p[0] >= 0xcc && !is_inert(lily_utf8_decode(p, len))) break;
        *before = at;
        at += len;
    }
    return at;
}

static size_t skip_others(const char *text, size_t at, size_t n)
{
    while (at < n) {
        const unsigned char *p = (const unsigned char *)text + at;
        size_t len = lily_utf8_length(p, n - at);
        if (is_inert(lily_utf8_decode(p, len))) break;
        at += len;
    }
    return at;
}

static int reserve_points(lily_nfc_work *w, size_t more, lily_err *e)
{
    if (more <= w->cap - w->n) return LILY_OK;
    size_t cap = w->n + more > w->cap * 2 ? w->n + more : w->cap * 2;
    int32_t *point = lily_realloc(w->point, cap, sizeof *point);
    if (!point) return lily_no_memory(e, cap * sizeof *point, "normalised text");
    w->point = point;
    w->cap = cap;
    return LILY_OK;
}

static int decompose(lily_nfc_work *w, const char *text, size_t n, lily_err *e)
{
    enum { MOST = 32 };    /* canonical decompositions have at most 4 code points */
    w->n = 0;
    for (size_t at = 0; at < n;) {
        const unsigned char *p = (const unsigned char *)text + at;
        size_t len = lily_utf8_length(p, n - at);
        TRY(reserve_points(w, MOST, e));
        utf8proc_ssize_t more =
            utf8proc_decompose_char((utf8proc_int32_t)lily_utf8_decode(p, len), w->point + w->n, MOST,
                                    UTF8PROC_STABLE | UTF8PROC_COMPOSE, NULL);
        if (more < 0 || more > MOST)
            return lily_fail(e, LILY_INTERNAL, "utf8proc: %s", utf8proc_errmsg(more));
        w->n += (size_t)more;
        at += len;
    }
    return LILY_OK;
}

static unsigned combining_class(int32_t c)
{
    return (unsigned)utf8proc_get_property(c)->combining_class;
}

/* Stable sort of a run of marks by combining class, counting for long runs. */
static int sort_marks(lily_nfc_work *w, int32_t *mark, size_t n, lily_err *e)
{
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            int32_t c = mark[i];
            unsigned class = combining_class(c);
            size_t k = i;
            for (; k > 0 && combining_class(mark[k - 1]) > class; k--) mark[k] = mark[k - 1];
            mark[k] = c;
        }
        return LILY_OK;
    }
    if (n > w->sorted_cap) {
        int32_t *sorted = lily_realloc(w->sorted, n, sizeof *sorted);
        if (!sorted) return lily_no_memory(e, n * sizeof *sorted, "normalised text");
        w->sorted = sorted;
        w->sorted_cap = n;
    }
    size_t first[257] = {0};
    for (size_t i = 0; i < n; i++) first[(combining_class(mark[i]) & 0xff) + 1]++;
    for (size_t i = 1; i < 257; i++) first[i] += first[i - 1];
    for (size_t i = 0; i < n; i++) w->sorted[first[combining_class(mark[i]) & 0xff]++] = mark[i];
    memcpy(mark, w->sorted, n * sizeof *mark);
    return LILY_OK;
}

static int order_marks(lily_nfc_work *w, lily_err *e)
{
    for (size_t i = 0; i < w->n;) {
        size_t start = i;
        while (i < w->n && combining_class(w->point[i]) != 0) i++;
        if (i - start > 1) TRY(sort_marks(w, w->point + start, i - start, e));
        i += i == start;
    }
    return LILY_OK;
}

static int normalise(lily_nfc_work *w, const char *text, size_t n, lily_err *e)
{
    TRY(decompose(w, text, n, e));
    TRY(order_marks(w, e));
    utf8proc_ssize_t count =
        utf8proc_normalize_utf32(w->point, (utf8proc_ssize_t)w->n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (count < 0) return lily_fail(e, LILY_INTERNAL, "utf8proc: %s", utf8proc_errmsg(count));
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        unsigned char bytes[4];
        lily_buf_add(&w->out, bytes, lily_utf8_encode((uint32_t)w->point[i], bytes));
    }
    return LILY_OK;
}

int lily_nfc(lily_nfc_work *w, const char *text, size_t n, const char **out, size_t *n_out, lily_err *e)
{
    size_t at = 0, before, other = skip_inert(text, 0, n, &before);
    *out = text;
    *n_out = n;
    if (other == n) return LILY_OK;
    lily_buf_clear(&w->out);
    while (at < n) {
        /* The character before may join with what follows it; nothing joins across its front. */
        lily_buf_add(&w->out, text + at, before - at);
        at = skip_others(text, other, n);
        TRY(normalise(w, text + before, at - before, e));
        other = skip_inert(text, at, n, &before);
        if (other < n) continue;
        lily_buf_add(&w->out, text + at, n - at);
        at = n;
    }
    TRY(lily_buf_ok(&w->out, "normalised text", e));
    *out = lily_buf_str(&w->out);
    *n_out = w->out.len;
    return LILY_OK;
}
