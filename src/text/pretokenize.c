#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenize.h"

#include <ctype.h>
#include <pcre2.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"

enum {
    PATTERN_BYTES = 4096,
    MATCH_LIMIT = 20 * 1000 * 1000,    /* backtracking steps of one match; a run of n characters needs about n */
    HEAP_KIB = 256 * 1024              /* of the interpreter, where there is no JIT */
};

struct lily_pretokenizer {
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_code *code;
};

static void *pcre_malloc(size_t n, void *unused)
{
    (void)unused;
    return lily_calloc(n, 1);
}

static void pcre_free(void *p, void *unused)
{
    (void)unused;
    lily_free(p);
}

#define SPACE "\\t-\\r\\x{85}\\p{Z}"     /* Unicode's White_Space, as it stands in a class */

/* Copies the escape at p[0 … n) (p[0] is the backslash) and returns its length, or 0 for one that is not known to
 * mean the same in both engines. */
static size_t copy_escape(const char *p, size_t n, bool in_class, lily_buf *out)
{
    if (n < 2) return 0;
    char c = p[1];
    if (c == 's') {
        lily_buf_puts(out, in_class ? SPACE : "[" SPACE "]");
        return 2;
    }
    if (c == 'S' && !in_class) {
        lily_buf_puts(out, "[^" SPACE "]");
        return 2;
    }
    if (c == 'p' || c == 'P') {
        /* General categories, of one letter or two. */
        size_t len = 3;
        while (len < 5 && len < n && isalpha((unsigned char)p[len])) len++;
        if (n < 4 || p[2] != '{' || len == 3 || len >= n || p[len] != '}') return 0;
        lily_buf_add(out, p, len + 1);
        return len + 1;
    }
    if (c == 0 || !strchr("rntd!\"#$%&'()*+,-./:;=?@[\\]^_`{|}~", c)) return 0;
    lily_buf_add(out, p, 2);
    return 2;
}

/* Groups that begin "(?" or "(*" and mean the same in both engines. */
static bool group_is_known(const char *p, size_t n)
{
    static const char *const known[] = {"(?:", "(?i:", "(?!", "(?="};
    if (n < 2 || (p[1] != '?' && p[1] != '*')) return true;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (n >= strlen(known[i]) && memcmp(p, known[i], strlen(known[i])) == 0) return true;
    return false;
}

/* Oniguruma's spelling to PCRE2's. */
static int translate(const char *p, size_t n, lily_buf *out, lily_err *e)
{
    bool in_class = false;
    for (size_t i = 0; i < n;) {
        if (p[i] == '\\') {
            size_t len = copy_escape(p + i, n - i, in_class, out);
            if (len == 0)
                return lily_fail(e, LILY_UNSUPPORTED,
                                 "the split expression has an escape at byte %zu that is not known: %.*s", i,
                                 (int)(n - i < 2 ? n - i : 2), p + i);
            i += len;
            continue;
        }
        if (in_class && (p[i] == '[' || (p[i] == '&' && i + 1 < n && p[i + 1] == '&')))
            return lily_fail(e, LILY_UNSUPPORTED,
                             "the split expression has a class inside a class at byte %zu", i);
        if (p[i] == '[' &&
            (i + 1 == n || p[i + 1] == ']' || (p[i + 1] == '^' && (i + 2 == n || p[i + 2] == ']'))))
            return lily_fail(e, LILY_UNSUPPORTED, "the split expression has an empty class at byte %zu", i);
        if (!in_class && p[i] == '(' && !group_is_known(p + i, n - i))
            return lily_fail(e, LILY_UNSUPPORTED,
                             "the split expression has a group at byte %zu that is not known: %.*s", i,
                             (int)(n - i < 4 ? n - i : 4), p + i);
        if (p[i] == '[')
            in_class = true;
        else if (p[i] == ']')
            in_class = false;
        lily_buf_putc(out, p[i++]);
    }
    return lily_buf_ok(out, "the split expression", e);
}

static int compile(lily_pretokenizer *p, const lily_buf *pattern, lily_err *e)
{
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *options = pcre2_compile_context_create(p->memory);
    if (!options) return lily_no_memory(e, 0, "the split expression");
    p->code = pcre2_compile((PCRE2_SPTR)lily_buf_str(pattern), pattern->len,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, options);
    pcre2_compile_context_free(options);
    if (p->code) {
        (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);    /* without it PCRE2 interprets */
        return LILY_OK;
    }
    if (code == PCRE2_ERROR_HEAP_FAILED) return lily_no_memory(e, 0, "the split expression");
    char text[128] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
    return lily_fail(e, LILY_FORMAT, "the split expression does not compile: %s", text);
}

int lily_pretokenizer_new(lily_pretokenizer **out, const char *pattern, size_t n, lily_err *e)
{
    *out = NULL;
    if (n == 0 || n > PATTERN_BYTES)
        return lily_fail(e, LILY_FORMAT, "the split expression has %zu bytes, expected 1 to %d", n,
                         PATTERN_BYTES);
    lily_buf translated = {0};
    lily_pretokenizer *p = lily_calloc(1, sizeof *p);
    if (!p) return lily_no_memory(e, sizeof *p, "the split expression");
    int rc = LILY_OK;
    p->memory = pcre2_general_context_create(pcre_malloc, pcre_free, NULL);
    p->limits = p->memory ? pcre2_match_context_create(p->memory) : NULL;
    if (!p->limits) {
        rc = lily_no_memory(e, 0, "the split expression");
    } else {
        pcre2_set_match_limit(p->limits, MATCH_LIMIT);
        pcre2_set_heap_limit(p->limits, HEAP_KIB);
        rc = translate(pattern, n, &translated, e);
    }
    if (rc == LILY_OK) rc = compile(p, &translated, e);
    lily_buf_free(&translated);
    if (rc == LILY_OK)
        *out = p;
    else
        lily_pretokenizer_free(p);
    return rc;
}

void lily_pretokenizer_free(lily_pretokenizer *p)
{
    if (!p) return;
    pcre2_code_free(p->code);
    pcre2_match_context_free(p->limits);
    pcre2_general_context_free(p->memory);
    lily_free(p);
}

static int match_failure(int code, lily_err *e)
{
    if (code == PCRE2_ERROR_NOMEMORY) return lily_no_memory(e, 0, "the split expression");
    char text[128] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
    return lily_fail(e, LILY_FORMAT, "tokenizer.json: the split expression gives up on this text: %s", text);
}

static int walk(const lily_pretokenizer *p, pcre2_match_data *match, const char *text, size_t n,
                lily_piece_fn *piece, void *ctx, lily_err *e)
{
    size_t done = 0, from = 0;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(match);
    while (from < n) {
        int rc = pcre2_match(p->code, (PCRE2_SPTR)text, n, from, options, match, p->limits);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) return match_failure(rc, e);
        if (at[0] > done) TRY(piece(ctx, text + done, at[0] - done, e));
        if (at[1] > at[0]) TRY(piece(ctx, text + at[0], at[1] - at[0], e));
        done = at[1];
        /* After an empty match the search goes on one character later. */
        from = done;
        if (at[1] == at[0] && from < n)
            from += lily_utf8_length((const unsigned char *)text + from, n - from);
    }
    return done < n ? piece(ctx, text + done, n - done, e) : LILY_OK;
}

int lily_pretokenize(const lily_pretokenizer *p, const char *text, size_t n, lily_piece_fn *piece, void *ctx,
                     lily_err *e)
{
    if (n == 0) return LILY_OK;
    pcre2_match_data *match = pcre2_match_data_create(1, p->memory);
    if (!match) return lily_no_memory(e, 0, "the split expression");
    int rc = walk(p, match, text, n, piece, ctx, e);
    pcre2_match_data_free(match);
    return rc;
}
