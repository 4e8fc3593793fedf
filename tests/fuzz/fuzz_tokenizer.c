/* fuzz_tokenizer - the input is a text, a NUL, and a tokenizer.json; without a NUL the text alone, for a
 * small tokenizer of the family.  Whatever the file says, encoding either fails or gives ids that decode to
 * the text (in form C, with U+FFFD for what is ill-formed), the same for the text cut into control spans. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/decode.h"
#include "text/nfc.h"
#include "text/tokenizer_file.h"

static const char before_vocab[] =
    "{\"added_tokens\":[{\"id\":300,\"content\":\"<a>\",\"special\":true},{\"id\":301,\"content\":\"<a><\"}],"
    "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
    "\"Split\","
    "\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|"
    "\\\\p{N}|"
    " ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
    "\"behavior\":\"Isolated\"},"
    "{\"type\":\"ByteLevel\"}]},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{",
                  after_vocab[] = ",\"aa\":256,\"ab\":257,\"aaaa\":258,\"ba\":259,\"aba\":260},\"merges\":[["
                                  "\"b\",\"a\"],[\"a\",\"a\"],"
                                  "[\"a\",\"b\"],[\"aa\",\"aa\"],[\"ab\",\"a\"]]}}";

/* The small tokenizer: all bytes and a few merges that compete. */
static void write_small(lily_buf *json)
{
    int next = 256;
    lily_buf_puts(json, before_vocab);
    for (int b = 0; b < 256; b++) {
        bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        lily_buf_printf(json, "%s\"\\u%04x\":%d", b ? "," : "", (unsigned)(plain ? b : next++), b);
    }
    lily_buf_puts(json, after_vocab);
}

static lily_tokenizer *read_tokenizer(const char *json, size_t n)
{
    lily_err e;
    lily_tokenizer *t = lily_calloc(1, sizeof *t);
    if (t && lily_tokenizer_read(t, json, n, &e) == LILY_OK) return t;
    lily_tokenizer_free(t);
    return NULL;
}

static void require(bool what)
{
    if (!what) abort();
}

/* The first border of a character at or after `at`. */
static size_t cut(const lily_buf *b, size_t at)
{
    while (at < b->len && ((unsigned char)b->data[at] & 0xc0) == 0x80) at++;
    return at;
}

/* Added tokens cut the text before it is normalised, so the sum is in form C only piece by piece: compare
 * the encoding without them. */
static void check_text(const lily_tokenizer *t, const char *text, size_t n)
{
    lily_ids ids = {0}, spans_ids = {0}, whole = {0};
    lily_buf back = {0}, valid = {0};
    lily_nfc_work w = {0};
    lily_decoder d = {0};
    lily_err e;
    const char *normal;
    size_t n_normal;
    lily_decoder_bytes(&d, text, n, &valid);
    lily_decoder_flush(&d, &valid);
    require(lily_nfc(&w, lily_buf_str(&valid), valid.len, &normal, &n_normal, &e) == LILY_OK);
    if (lily_encode(t, text, n, false, &ids, &e) == LILY_OK) {
        require(lily_decode(t, ids.id, ids.n, false, &back, &e) == LILY_OK);
        require(back.len == n_normal && memcmp(lily_buf_str(&back), normal, n_normal) == 0);
    }
    size_t one = cut(&valid, valid.len / 3), two = cut(&valid, valid.len / 3 * 2);
    const char *v = lily_buf_str(&valid);
    lily_span spans[] = {{v, one, true}, {v + one, two - one, true}, {v + two, valid.len - two, true}};
    if (lily_encode(t, text, n, true, &whole, &e) == LILY_OK) {
        require(lily_encode_spans(t, spans, 3, &spans_ids, &e) == LILY_OK);
        require(spans_ids.n == whole.n &&
                (whole.n == 0 || memcmp(spans_ids.id, whole.id, whole.n * sizeof *whole.id) == 0));
    }
    lily_ids_free(&ids);
    lily_ids_free(&spans_ids);
    lily_ids_free(&whole);
    lily_buf_free(&back);
    lily_buf_free(&valid);
    lily_nfc_work_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lily_tokenizer *small;
    if (!small) {
        lily_buf json = {0};
        write_small(&json);
        small = read_tokenizer(json.data, json.len);
        require(small != NULL);
        lily_buf_free(&json);
    }
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    if (!nul) {
        check_text(small, (const char *)data, size);
        return 0;
    }
    lily_tokenizer *t = read_tokenizer((const char *)nul + 1, size - (size_t)(nul + 1 - data));
    if (t) check_text(t, (const char *)data, (size_t)(nul - data));
    lily_tokenizer_free(t);
    return 0;
}
