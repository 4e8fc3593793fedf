#include "text/json_text.h"

#include <string.h>

static size_t digits(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && text[i] >= '0' && text[i] <= '9') i++;
    return i;
}

size_t lily_json_number_length(const char *text, size_t n)
{
    size_t at = n > 0 && text[0] == '-';
    size_t whole = digits(text + at, n - at);
    if (whole == 0) return 0;
    at += text[at] == '0' ? 1 : whole;
    if (at < n && text[at] == '.') {
        size_t fraction = digits(text + at + 1, n - at - 1);
        if (fraction == 0) return at;
        at += 1 + fraction;
    }
    if (at < n && (text[at] == 'e' || text[at] == 'E')) {
        size_t sign = at + 1 < n && (text[at + 1] == '+' || text[at + 1] == '-');
        size_t power = digits(text + at + 1 + sign, n - at - 1 - sign);
        if (power) at += 1 + sign + power;
    }
    return at;
}

void lily_json_escape(lily_buf *out, const char *s, size_t n)
{
    static const char names[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char ch = (unsigned char)s[i];
        if (ch >= 0x20 && ch != '"' && ch != '\\') continue;
        lily_buf_add(out, s + from, i - from);
        from = i + 1;
        const char *name = ch ? strchr(names, ch) : NULL;
        if (name) lily_buf_printf(out, "\\%c", letters[name - names]);
        else lily_buf_printf(out, "\\u%04x", ch);
    }
    lily_buf_add(out, s + from, n - from);
}

static size_t skip_space(const char *text, size_t n, size_t at)
{
    while (at < n && strchr(" \t\r\n", text[at]) && text[at]) at++;
    return at;
}

static size_t skip_string(const char *text, size_t n, size_t at)
{
    for (at++; at < n && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at < n ? at + 1 : n;
}

static size_t skip_value(const char *text, size_t n, size_t at)
{
    size_t depth = 0;
    while (at < n) {
        char ch = text[at];
        if (ch == '"') {
            at = skip_string(text, n, at);
        } else if (ch == '{' || ch == '[') {
            depth++;
            at++;
        } else if (ch == '}' || ch == ']' || ch == ',') {
            if (depth == 0) return at;
            depth -= ch != ',';
            at++;
        } else {
            at++;
        }
    }
    return at;
}

bool lily_json_member(const char *text, size_t n, const char *key, size_t *from, size_t *to)
{
    size_t len = strlen(key), at = skip_space(text, n, 0);
    if (at == n || text[at] != '{') return false;
    at = skip_space(text, n, at + 1);
    while (at < n && text[at] == '"') {
        size_t name = at + 1;
        at = skip_string(text, n, at);
        bool same = at - name == len + 1 && memcmp(text + name, key, len) == 0;
        at = skip_space(text, n, at);
        if (at == n || text[at] != ':') return false;
        *from = skip_space(text, n, at + 1);
        *to = at = skip_value(text, n, *from);
        while (*to > *from && strchr(" \t\r\n", text[*to - 1])) --*to;
        if (same) return true;
        if (at == n || text[at] != ',') return false;
        at = skip_space(text, n, at + 1);
    }
    return false;
}
