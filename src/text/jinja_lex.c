#include "text/jinja_lex.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja_text.h"

typedef struct lexer {
    jinja_ctx *c;
    const char *src;      /* newlines are \n */
    size_t n, at;
    int line;             /* of `at` */
    bool line_starting;   /* the last tag ended with a newline: `at` begins a line */
    jinja_token *tokens;
    size_t n_tokens, cap;
} lexer;

static int syntax(lexer *x, const char *what)
{
    x->c->line = x->line;
    return jinja_error(x->c, LILY_FORMAT, "%s", what);
}

static int add(lexer *x, jinja_token t)
{
    if (x->n_tokens == x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 256;
        jinja_token *tokens;
        TRY(jinja_alloc(x->c, &tokens, cap, sizeof *tokens));
        if (x->n_tokens) memcpy(tokens, x->tokens, x->n_tokens * sizeof *tokens);
        x->tokens = tokens;
        x->cap = cap;
    }
    t.line = x->line;
    x->tokens[x->n_tokens++] = t;
    return LILY_OK;
}

static void advance(lexer *x, size_t n)
{
    for (size_t i = 0; i < n; i++) x->line += x->src[x->at + i] == '\n';
    x->at += n;
}

static bool starts(const lexer *x, const char *s)
{
    size_t n = strlen(s);
    return x->n - x->at >= n && memcmp(x->src + x->at, s, n) == 0;
}

/* \r\n and \r become \n; one newline at the end is not kept. */
static int take_source(lexer *x, const char *source, size_t n)
{
    char *copy;
    size_t out = 0;
    TRY(jinja_alloc(x->c, &copy, n + 1, 1));
    for (size_t i = 0; i < n; i++) {
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n') continue;
        copy[out++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (out && copy[out - 1] == '\n') out--;
    x->src = copy;
    x->n = out;
    return LILY_OK;
}

/* Takes the end of a tag: CLOSE, after a sign, with the white space that goes with it.  Returns false if
 * the tag does not end here. */
static bool take_end(lexer *x, const char *close, bool trims_newline)
{
    char signs[2] = {x->at < x->n ? x->src[x->at] : 0, 0};
    bool minus = signs[0] == '-', plus = signs[0] == '+' && trims_newline;
    size_t skip = minus || plus;
    if (x->n - x->at < skip + 2 || memcmp(x->src + x->at + skip, close, 2) != 0) return false;
    size_t end = x->at + skip + 2;
    if (minus) {
        jinja_str rest = {.p = x->src + end, .n = x->n - end};
        size_t from, to;
        jinja_strip(&rest, NULL, JINJA_LEFT, &from, &to);
        end += from;
    } else if (!plus && trims_newline && end < x->n && x->src[end] == '\n') {
        end++;
    }
    x->line_starting = x->src[end - 1] == '\n';
    advance(x, end - x->at);
    return true;
}

/* The text up to the next tag, without the white space that the tag takes. */
static int take_text(lexer *x, size_t end)
{
    size_t n = end - x->at, from, keep = n;
    char sign = end + 2 < x->n ? x->src[end + 2] : 0, kind = end < x->n ? x->src[end + 1] : 0;
    jinja_str text = {.p = x->src + x->at, .n = n};
    if (end < x->n && sign == '-') {
        jinja_strip(&text, NULL, JINJA_RIGHT, &from, &keep);
    } else if (end < x->n && sign != '+' && kind != '{') {
        size_t line = n;
        while (line > 0 && text.p[line - 1] != '\n') line--;
        jinja_str tail = {.p = text.p + line, .n = n - line};
        jinja_strip(&tail, NULL, JINJA_LEFT, &from, &keep);
        keep = (line > 0 || x->line_starting) && from == tail.n ? line : n;
    }
    if (keep) TRY(add(x, (jinja_token){.kind = JINJA_TOK_TEXT, .text = text.p, .n = keep}));
    advance(x, n);
    return LILY_OK;
}

static int skip_comment(lexer *x)
{
    int line = x->line;
    for (; x->at < x->n; advance(x, 1))
        if (take_end(x, "#}", true)) return LILY_OK;
    x->line = line;
    return syntax(x, "the comment has no end");
}

static bool is_name(char ch, bool first)
{
    return ch == '_' || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (!first && ch >= '0' && ch <= '9');
}

static int take_name(lexer *x)
{
    size_t n = 1;
    while (x->at + n < x->n && is_name(x->src[x->at + n], false)) n++;
    char *name;
    TRY(jinja_alloc(x->c, &name, n + 1, 1));
    memcpy(name, x->src + x->at, n);
    TRY(add(x, (jinja_token){.kind = JINJA_TOK_NAME, .text = name, .n = n}));
    advance(x, n);
    return LILY_OK;
}

/* Decimal integers and floats; underscores and other bases are not in the subset. */
static int take_number(lexer *x)
{
    char digits[64];
    size_t n = 0;
    bool real = false;
    while (x->at + n < x->n && n < sizeof digits) {
        char ch = x->src[x->at + n];
        bool more = (ch >= '0' && ch <= '9') || (real && (ch == '+' || ch == '-') && strchr("eE", digits[n - 1]));
        if (ch == '.' && !real && x->at + n + 1 < x->n && x->src[x->at + n + 1] >= '0' && x->src[x->at + n + 1] <= '9')
            real = more = true;
        if ((ch == 'e' || ch == 'E') && !memchr(digits, 'e', n) && !memchr(digits, 'E', n)) real = more = true;
        if (!more) break;
        digits[n++] = ch;
    }
    bool bad = n == sizeof digits || (x->at + n < x->n && is_name(x->src[x->at + n], true)) ||
               (n > 1 && digits[0] == '0' && !real);
    if (!bad) digits[n] = 0;
    char *end = digits + n;
    errno = 0;
    jinja_value v = jinja_int(0);
    if (!bad && real) v = (jinja_value){JINJA_FLOAT, {.f = strtod(digits, &end)}};
    else if (!bad) v.u.i = strtoll(digits, &end, 10);
    if (bad || *end || errno == ERANGE || (real && !isfinite(v.u.f))) return syntax(x, "a number that is not supported");
    TRY(add(x, (jinja_token){.kind = JINJA_TOK_NUMBER, .value = v}));
    advance(x, n);
    return LILY_OK;
}

static int hex_digit(char ch)
{
    if (ch >= '0' && ch <= '9') return ch - '0';
    if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
    return ch >= 'A' && ch <= 'F' ? ch - 'A' + 10 : -1;
}

/* One escape of a string, as Python's unicode-escape reads it; *at is behind the backslash. */
static int take_escape(lexer *x, size_t *at, size_t end, char *out, size_t *n)
{
    static const char letters[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
    char ch = x->src[(*at)++];
    const char *letter = strchr(letters, ch);
    uint32_t cp = 0;
    if (ch == '\n') return LILY_OK;
    if (ch && letter) {
        out[(*n)++] = values[letter - letters];
        return LILY_OK;
    }
    if (ch == 'x' || ch == 'u' || ch == 'U') {
        int count = ch == 'x' ? 2 : ch == 'u' ? 4 : 8;
        for (int i = 0; i < count; i++) {
            int digit = *at < end ? hex_digit(x->src[*at]) : -1;
            if (digit < 0) return syntax(x, "a string escape is cut short");
            cp = cp << 4 | (uint32_t)digit;
            ++*at;
        }
    } else if (ch >= '0' && ch <= '7') {
        cp = (uint32_t)(ch - '0');
        for (int i = 0; i < 2 && *at < end && x->src[*at] >= '0' && x->src[*at] <= '7'; i++)
            cp = cp << 3 | (uint32_t)(x->src[(*at)++] - '0');
    } else if (ch == 'N') {
        return syntax(x, "the string escape '\\N' is not supported");
    } else {
        out[(*n)++] = '\\';    /* an unknown escape is kept as it is */
        --*at;
        return LILY_OK;
    }
    if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) return syntax(x, "a string escape is no character");
    *n += lily_utf8_encode(cp, (unsigned char *)out + *n);
    return LILY_OK;
}

static int take_string(lexer *x)
{
    char quote = x->src[x->at], *out;
    size_t end = x->at + 1, n = 0;
    while (end < x->n && x->src[end] != quote) end += x->src[end] == '\\' ? 2 : 1;
    if (end >= x->n) return syntax(x, "the string has no end");
    TRY(jinja_alloc(x->c, &out, end - x->at + 4, 1));
    for (size_t at = x->at + 1; at < end;) {
        if (x->src[at] != '\\') {
            out[n++] = x->src[at++];
            continue;
        }
        at++;
        TRY(take_escape(x, &at, end, out, &n));
    }
    jinja_token t = {.kind = JINJA_TOK_STRING};
    TRY(jinja_text(x->c, out, n, true, false, &t.value));
    TRY(add(x, t));
    advance(x, end + 1 - x->at);
    return LILY_OK;
}

/* Counts brackets: "}}" inside a dict does not end the tag. */
static int take_op(lexer *x, int *nesting)
{
    static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**"};
    char ch = x->src[x->at];
    jinja_token t = {.kind = JINJA_TOK_OP, .op = JINJA_OP1(ch)};
    size_t n = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
        if (!starts(x, two[i])) continue;
        t.op = JINJA_OP2(two[i][0], two[i][1]);
        n = 2;
    }
    if (n == 1 && (ch == 0 || !strchr("+-*/%~()[]{},:.|=<>;", ch))) return syntax(x, "an unexpected character");
    if (n == 1 && strchr("([{", ch)) ++*nesting;
    if (n == 1 && strchr(")]}", ch) && --*nesting < 0) return syntax(x, "a bracket that was not opened");
    TRY(add(x, t));
    advance(x, n);
    return LILY_OK;
}

static int take_tag(lexer *x, bool block)
{
    int nesting = 0, line = x->line;
    TRY(add(x, (jinja_token){.kind = block ? JINJA_TOK_BLOCK : JINJA_TOK_PRINT}));
    while (x->at < x->n) {
        char ch = x->src[x->at];
        jinja_token end = {.kind = block ? JINJA_TOK_BLOCK_END : JINJA_TOK_PRINT_END};
        if (nesting == 0 && take_end(x, block ? "%}" : "}}", block)) return add(x, end);
        if (strchr(" \t\n\r\f\v", ch) && ch) advance(x, 1);
        else if (is_name(ch, true)) TRY(take_name(x));
        else if (ch >= '0' && ch <= '9') TRY(take_number(x));
        else if (ch == '\'' || ch == '"') TRY(take_string(x));
        else TRY(take_op(x, &nesting));
    }
    x->line = line;
    return syntax(x, block ? "the statement has no end" : "the expression has no end");
}

int jinja_lex(jinja_ctx *c, const char *source, size_t n, jinja_token **out)
{
    lexer x = {.c = c, .line = 1, .line_starting = true};
    c->line = 1;
    if (!lily_utf8_valid(source, n)) return jinja_error(c, LILY_FORMAT, "not UTF-8");
    TRY(take_source(&x, source, n));
    while (x.at < x.n) {
        size_t end = x.at;
        while (end + 1 < x.n && !(x.src[end] == '{' && strchr("{%#", x.src[end + 1]) && x.src[end + 1])) end++;
        if (end + 1 >= x.n) end = x.n;
        TRY(take_text(&x, end));
        if (end == x.n) break;
        char kind = x.src[end + 1];
        bool sign = end + 2 < x.n && (x.src[end + 2] == '-' || x.src[end + 2] == '+');
        advance(&x, sign ? 3 : 2);
        if (kind == '#') TRY(skip_comment(&x));
        else TRY(take_tag(&x, kind == '%'));
    }
    TRY(add(&x, (jinja_token){.kind = JINJA_TOK_END}));
    *out = x.tokens;
    return LILY_OK;
}
