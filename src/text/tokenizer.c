#include "text/tokenizer.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/nfc.h"
#include "text/tokenizer_file.h"

/* Bytes of a tokenizer.json. The family's have about 20 MB; parsed JSON takes some 20 times its text. */
#define FILE_LIMIT ((size_t)64 << 20)
/* Bytes of one text, far beyond any context. */
#define TEXT_LIMIT ((size_t)1 << 30)

int lily_tokenizer_open(lily_tokenizer **out, const char *model_dir, lily_err *e)
{
    *out = NULL;
    char *path = lily_path_join(model_dir, "tokenizer.json");
    if (!path) return lily_no_memory(e, strlen(model_dir), "a path");
    lily_buf json = {0};
    lily_tokenizer *t = NULL;
    int rc = lily_file_read(&json, path, FILE_LIMIT, e);
    if (rc == LILY_OK) {
        t = lily_calloc(1, sizeof *t);
        rc = t ? lily_tokenizer_read(t, lily_buf_str(&json), json.len, e)
               : lily_no_memory(e, sizeof *t, "the tokenizer");
    }
    lily_buf_free(&json);
    lily_free(path);
    if (rc == LILY_OK)
        *out = t;
    else
        lily_tokenizer_free(t);
    return rc;
}

void lily_tokenizer_free(lily_tokenizer *t)
{
    if (!t) return;
    lily_vocab_free(&t->vocab);
    lily_added_free(&t->added);
    lily_bpe_free(&t->bpe);
    lily_pretokenizer_free(t->pre);
    lily_free(t);
}

int32_t lily_tokenizer_n_vocab(const lily_tokenizer *t)
{
    return t->vocab.n;
}

static enum lily_token_kind kind_of(const lily_tokenizer *t, int32_t id)
{
    return id < 0 || id >= t->vocab.n ? LILY_TOKEN_NONE : (enum lily_token_kind)t->vocab.token[id].kind;
}

const char *lily_token_bytes(const lily_tokenizer *t, int32_t id, size_t *len)
{
    *len = 0;
    if (kind_of(t, id) == LILY_TOKEN_NONE) return NULL;
    *len = t->vocab.token[id].len;
    return t->vocab.bytes.data + t->vocab.token[id].at;
}

bool lily_token_is_added(const lily_tokenizer *t, int32_t id)
{
    return kind_of(t, id) >= LILY_TOKEN_ADDED;
}

bool lily_token_is_special(const lily_tokenizer *t, int32_t id)
{
    return kind_of(t, id) == LILY_TOKEN_SPECIAL;
}

int32_t lily_token_find(const lily_tokenizer *t, const char *text, size_t len)
{
    size_t found;
    int32_t id = lily_added_prefix(&t->added, text, len, &found);
    return found == len ? id : -1;
}

/* ---- encoding */

/* The text of all spans, well-formed, and where in it added tokens count. */
typedef struct stretch {
    size_t from, to;
} stretch;

typedef struct joined {
    const char *text;
    size_t n;
    stretch *control;    /* neighbouring control spans make one stretch */
    size_t n_control;
    lily_buf copy;       /* the text, where it is not the caller's own */
} joined;

static void joined_free(joined *j)
{
    lily_free(j->control);
    lily_buf_free(&j->copy);
}

static void add_well_formed(lily_buf *out, const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t start = 0, at = 0;
    while (at < n) {
        size_t len = lily_utf8_length(p + at, n - at);
        if (len > 0) {
            at += len;
            continue;
        }
        bool open;
        lily_buf_add(out, text + start, at - start);
        lily_buf_puts(out, "\xef\xbf\xbd");
        at += lily_utf8_subpart(p + at, n - at, &open);
        start = at;
    }
    lily_buf_add(out, text + start, n - start);
}

static int join(joined *j, const lily_span *spans, size_t n, lily_err *e)
{
    j->control = lily_calloc(n, sizeof *j->control);
    if (!j->control) return lily_no_memory(e, n * sizeof *j->control, "spans");
    bool copy = n != 1 || !lily_utf8_valid(spans[0].text, spans[0].n);
    for (size_t i = 0; i < n; i++) {
        size_t from = j->n;
        if (spans[i].n > TEXT_LIMIT - j->n)
            return lily_fail(e, LILY_ARGUMENT, "the text is longer than %zu bytes", TEXT_LIMIT);
        if (copy) add_well_formed(&j->copy, spans[i].text, spans[i].n);
        j->n = copy ? j->copy.len : spans[i].n;
        if (!spans[i].control || j->n == from) continue;
        if (j->n_control > 0 && j->control[j->n_control - 1].to == from)
            j->control[j->n_control - 1].to = j->n;
        else
            j->control[j->n_control++] = (stretch){from, j->n};
    }
    j->text = copy ? lily_buf_str(&j->copy) : spans[0].text;
    return lily_buf_ok(&j->copy, "text to encode", e);
}

typedef struct encoder {
    const lily_tokenizer *t;
    lily_ids *out;
    lily_nfc_work nfc;
    lily_bpe_work bpe;
} encoder;

static int encode_piece(void *ctx, const char *piece, size_t n, lily_err *e)
{
    encoder *c = ctx;
    return lily_bpe_encode(&c->t->bpe, &c->bpe, piece, n, c->out, e);
}

/* A stretch without added tokens. */
static int encode_plain(encoder *c, const char *text, size_t n, lily_err *e)
{
    const char *normal;
    TRY(lily_nfc(&c->nfc, text, n, &normal, &n, e));
    return lily_pretokenize(c->t->pre, normal, n, encode_piece, c, e);
}

static int encode_joined(encoder *c, const joined *j, lily_err *e)
{
    size_t done = 0;
    for (size_t i = 0; i < j->n_control; i++) {
        for (size_t at = j->control[i].from; at < j->control[i].to;) {
            size_t len;
            int32_t id = lily_added_prefix(&c->t->added, j->text + at, j->control[i].to - at, &len);
            if (id < 0) {
                at++;
                continue;
            }
            TRY(encode_plain(c, j->text + done, at - done, e));
            TRY(lily_ids_add(c->out, id, e));
            done = at += len;
        }
    }
    return encode_plain(c, j->text + done, j->n - done, e);
}

int lily_encode_spans(const lily_tokenizer *t, const lily_span *spans, size_t n, lily_ids *out, lily_err *e)
{
    encoder c = {.t = t, .out = out};
    joined j = {0};
    size_t before = out->n;
    int rc = join(&j, spans, n, e);
    if (rc == LILY_OK) rc = encode_joined(&c, &j, e);
    if (rc != LILY_OK) out->n = before;
    joined_free(&j);
    lily_nfc_work_free(&c.nfc);
    lily_bpe_work_free(&c.bpe);
    return rc;
}

int lily_encode(const lily_tokenizer *t, const char *text, size_t n, bool parse_special, lily_ids *out,
                lily_err *e)
{
    return lily_encode_spans(t, &(lily_span){text, n, parse_special}, 1, out, e);
}
