#include "text/decode.h"

#include <string.h>

#include "base/utf8.h"

#define REPLACEMENT "\xef\xbf\xbd"

/* Appends the characters of p[0 … n) up to an unfinished one at the end; returns where that begins. */
static size_t add_characters(const unsigned char *p, size_t n, lily_buf *out)
{
    size_t start = 0, at = 0;
    bool open = false;
    while (at < n) {
        size_t len = lily_utf8_length(p + at, n - at);
        if (len > 0) {
            at += len;
            continue;
        }
        lily_buf_add(out, p + start, at - start);
        len = lily_utf8_subpart(p + at, n - at, &open);
        if (open) return at;
        lily_buf_puts(out, REPLACEMENT);
        at += len;
        start = at;
    }
    lily_buf_add(out, p + start, n - start);
    return n;
}

void lily_decoder_bytes(lily_decoder *d, const char *bytes, size_t n, lily_buf *out)
{
    /* Finish the character that was begun: byte by byte, at most three times. */
    while (d->n > 0 && n > 0) {
        unsigned char begun[5];
        memcpy(begun, d->tail, d->n);
        begun[d->n] = (unsigned char)*bytes++;
        size_t all = d->n + 1, rest = add_characters(begun, all, out);
        n--;
        d->n = all - rest;
        memcpy(d->tail, begun + rest, d->n);
    }
    size_t rest = add_characters((const unsigned char *)bytes, n, out);
    if (rest == n) return;
    d->n = n - rest;
    memcpy(d->tail, bytes + rest, d->n);
}

void lily_decoder_id(lily_decoder *d, const lily_tokenizer *t, int32_t id, bool skip_special, lily_buf *out)
{
    size_t n;
    if (skip_special && lily_token_is_special(t, id)) return;
    const char *bytes = lily_token_bytes(t, id, &n);
    if (bytes) lily_decoder_bytes(d, bytes, n, out);
}

void lily_decoder_flush(lily_decoder *d, lily_buf *out)
{
    if (d->n > 0) lily_buf_puts(out, REPLACEMENT);
    d->n = 0;
}

int lily_decode(const lily_tokenizer *t, const int32_t *id, size_t n, bool skip_special, lily_buf *out,
                lily_err *e)
{
    lily_decoder d = {0};
    for (size_t i = 0; i < n; i++) lily_decoder_id(&d, t, id[i], skip_special, out);
    lily_decoder_flush(&d, out);
    return lily_buf_ok(out, "decoded text", e);
}
