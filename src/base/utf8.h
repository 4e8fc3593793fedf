/* utf8.h - the one place that knows what a well-formed UTF-8 sequence is (Unicode 15, table 3-7). */
#ifndef LILY_BASE_UTF8_H
#define LILY_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the well-formed sequence at p[0 … n), or 0 if there is none. */
static inline size_t lily_utf8_length(const unsigned char *p, size_t n)
{
    if (n == 0) return 0;
    unsigned char a = p[0];
    if (a < 0x80) return 1;
    if (a < 0xc2 || a > 0xf4) return 0;
    size_t want = a < 0xe0 ? 2 : a < 0xf0 ? 3 : 4;
    if (n < 2) return 0;
    /* The second byte excludes overlong forms, surrogates and values past U+10FFFF. */
    unsigned char low = a == 0xe0 ? 0xa0 : a == 0xf0 ? 0x90 : 0x80;
    unsigned char high = a == 0xed ? 0x9f : a == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high) return 0;
    for (size_t i = 2; i < want; i++)
        if (i >= n || (p[i] & 0xc0) != 0x80) return 0;
    return n >= want ? want : 0;
}

/* Length of the maximal subpart at p[0 … n) of an ill-formed sequence (Unicode 15, D93b): the number of
 * bytes that one U+FFFD stands for.  *open tells that more input could still complete it. */
static inline size_t lily_utf8_subpart(const unsigned char *p, size_t n, bool *open)
{
    *open = false;
    if (n == 0) return 0;
    unsigned char a = p[0];
    if (a < 0xc2 || a > 0xf4) return 1;
    size_t want = a < 0xe0 ? 2 : a < 0xf0 ? 3 : 4, i = 1;
    unsigned char low = a == 0xe0 ? 0xa0 : a == 0xf0 ? 0x90 : 0x80;
    unsigned char high = a == 0xed ? 0x9f : a == 0xf4 ? 0x8f : 0xbf;
    for (; i < want && i < n; i++) {
        if (p[i] < low || p[i] > high) return i;
        low = 0x80;
        high = 0xbf;
    }
    *open = i < want;
    return i;
}

static inline bool lily_utf8_valid(const char *s, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t len = lily_utf8_length((const unsigned char *)s + at, n - at);
        if (len == 0) return false;
        at += len;
    }
    return true;
}

/* The code point of a well-formed sequence of the given length. */
static inline uint32_t lily_utf8_decode(const unsigned char *p, size_t len)
{
    switch (len) {
    case 1: return p[0];
    case 2: return (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    case 3: return (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    default:
        return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 | (uint32_t)(p[2] & 0x3f) << 6 |
               (p[3] & 0x3f);
    }
}

/* Writes code point c (a scalar value) to out; returns 1 … 4. */
static inline size_t lily_utf8_encode(uint32_t c, unsigned char out[4])
{
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (unsigned char)(0xc0 | c >> 6);
        out[1] = (unsigned char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (unsigned char)(0xe0 | c >> 12);
        out[1] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (unsigned char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (unsigned char)(0xf0 | c >> 18);
    out[1] = (unsigned char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (unsigned char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (unsigned char)(0x80 | (c & 0x3f));
    return 4;
}

#endif
