/* Reads tokenizer.json, the format of Hugging Face's `tokenizers`.  Every construct that would change an id
 * is checked; what concerns only batches (truncation, padding) or offsets (trim_offsets, the ByteLevel
 * post-processor) has no effect here and may be anything. */
#include "text/tokenizer_file.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

enum { PIECE_BYTES = 64 * 1024, SCRATCH_BYTES = 2 * PIECE_BYTES, MERGES_MAX = 2 * LILY_VOCAB_MAX };

/* ---- byte alphabet: pieces are spelled with one printable character a byte */

enum { ALPHABET = 324 };

typedef struct alphabet {
    int16_t byte_of[ALPHABET];    /* by code point, -1: not in the alphabet */
} alphabet;

/* Printable Latin-1 stands for itself, the other 68 bytes in order for U+0100 … U+0143. */
static void fill_alphabet(alphabet *a)
{
    int next = 256;
    memset(a->byte_of, 0xff, sizeof a->byte_of);
    for (int b = 0; b < 256; b++) {
        bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        a->byte_of[plain ? b : next++] = (int16_t)b;
    }
}

/* The bytes that a piece spells; room for n. False when a character is not in the alphabet. */
static bool spell(const alphabet *a, const char *text, size_t n, char *out, size_t *n_out)
{
    size_t count = 0;
    for (size_t at = 0; at < n;) {
        size_t len = lily_utf8_length((const unsigned char *)text + at, n - at);
        if (len == 0) return false;
        uint32_t c = lily_utf8_decode((const unsigned char *)text + at, len);
        if (c >= ALPHABET || a->byte_of[c] < 0) return false;
        out[count++] = (char)a->byte_of[c];
        at += len;
    }
    *n_out = count;
    return true;
}

/* ---- constructs around the model */

static bool has_type(const json_t *o, const char *type)
{
    const char *s = json_string_value(json_object_get(o, "type"));
    return s && strcmp(s, type) == 0;
}

static int wrong_type(const json_t *o, const char *what, const char *want, lily_err *e)
{
    const char *got = json_string_value(json_object_get(o, "type"));
    return lily_fail(e, LILY_UNSUPPORTED, "\"%s\" is %s, expected %s", what,
                     got ? got : o && !json_is_null(o) ? "without a type" : "missing", want);
}

/* A missing or null value counts as false. */
static int want_bool(const json_t *o, const char *key, bool want, const char *what, lily_err *e)
{
    const json_t *v = json_object_get(o, key);
    if (v && !json_is_null(v) && !json_is_boolean(v))
        return lily_fail(e, LILY_FORMAT, "\"%s\" of %s is not true or false", key, what);
    if (json_is_true(v) == want) return LILY_OK;
    return lily_fail(e, LILY_UNSUPPORTED, "\"%s\" of %s is %s, expected %s", key, what,
                     want ? "false" : "true", want ? "true" : "false");
}

/* Missing, null and "" are the same. */
static int want_empty(const json_t *o, const char *key, const char *what, lily_err *e)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v) || (json_is_string(v) && json_string_length(v) == 0)) return LILY_OK;
    return lily_fail(e, LILY_UNSUPPORTED, "\"%s\" of %s is set, expected null", key, what);
}

static int read_pre_tokenizer(lily_tokenizer *t, const json_t *pre, lily_err *e)
{
    if (!has_type(pre, "Sequence")) return wrong_type(pre, "pre_tokenizer", "Sequence", e);
    const json_t *list = json_object_get(pre, "pretokenizers");
    if (json_array_size(list) != 2)
        return lily_fail(e, LILY_UNSUPPORTED, "\"pre_tokenizer\" has %zu parts, expected Split and ByteLevel",
                         json_array_size(list));
    const json_t *split = json_array_get(list, 0), *bytes = json_array_get(list, 1);
    if (!has_type(split, "Split")) return wrong_type(split, "pre_tokenizer", "Split as its first part", e);
    if (!has_type(bytes, "ByteLevel"))
        return wrong_type(bytes, "pre_tokenizer", "ByteLevel as its second part", e);
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    if (!behavior || strcmp(behavior, "Isolated") != 0)
        return lily_fail(e, LILY_UNSUPPORTED, "\"behavior\" of Split is %s, expected Isolated",
                         behavior ? behavior : "missing");
    TRY(want_bool(split, "invert", false, "Split", e));
    TRY(want_bool(bytes, "add_prefix_space", false, "the ByteLevel pre-tokenizer", e));
    TRY(want_bool(bytes, "use_regex", false, "the ByteLevel pre-tokenizer", e));
    const json_t *regex = json_object_get(json_object_get(split, "pattern"), "Regex");
    if (!json_is_string(regex)) return lily_fail(e, LILY_UNSUPPORTED, "\"pattern\" of Split has no Regex");
    return lily_pretokenizer_new(&t->pre, json_string_value(regex), json_string_length(regex), e);
}

static int check_constructs(const json_t *root, lily_err *e)
{
    const json_t *normalizer = json_object_get(root, "normalizer");
    if (!has_type(normalizer, "NFC")) return wrong_type(normalizer, "normalizer", "NFC", e);
    const json_t *post = json_object_get(root, "post_processor");
    if (post && !json_is_null(post) && !has_type(post, "ByteLevel"))
        return wrong_type(post, "post_processor", "null or ByteLevel", e);
    const json_t *decoder = json_object_get(root, "decoder");
    if (!has_type(decoder, "ByteLevel")) return wrong_type(decoder, "decoder", "ByteLevel", e);
    const json_t *model = json_object_get(root, "model");
    if (!has_type(model, "BPE")) return wrong_type(model, "model", "BPE", e);
    TRY(want_empty(model, "dropout", "the model", e));
    TRY(want_empty(model, "unk_token", "the model", e));
    TRY(want_empty(model, "continuing_subword_prefix", "the model", e));
    TRY(want_empty(model, "end_of_word_suffix", "the model", e));
    TRY(want_bool(model, "byte_fallback", false, "the model", e));
    return want_bool(model, "ignore_merges", false, "the model", e);
}

/* ---- vocabulary */

static int read_vocab(lily_tokenizer *t, const alphabet *a, const json_t *vocab, char *scratch, lily_err *e)
{
    if (!json_is_object(vocab)) return lily_fail(e, LILY_FORMAT, "\"vocab\" of the model is not an object");
    TRY(lily_vocab_init(&t->vocab, json_object_size(vocab), e));
    const char *key;
    json_t *id;
    json_object_foreach((json_t *)vocab, key, id)
    {
        size_t n = strlen(key), len;
        if (n > PIECE_BYTES)
            return lily_fail(e, LILY_FORMAT, "an entry of \"vocab\" has %zu bytes, at most %d are taken", n,
                             PIECE_BYTES);
        if (!json_is_integer(id))
            return lily_fail(e, LILY_FORMAT, "the id of \"%s\" in \"vocab\" is not an integer", key);
        if (!spell(a, key, n, scratch, &len))
            return lily_fail(e, LILY_FORMAT, "\"%s\" in \"vocab\" is not spelled in the byte alphabet", key);
        TRY(lily_vocab_add(&t->vocab, json_integer_value(id), scratch, len, LILY_TOKEN_PIECE, e));
    }
    return LILY_OK;
}

static int read_byte_ids(lily_tokenizer *t, lily_err *e)
{
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        t->bpe.byte_id[b] = lily_vocab_find(&t->vocab, &byte, 1);
        if (t->bpe.byte_id[b] < 0)
            return lily_fail(e, LILY_FORMAT, "\"vocab\" has no entry for byte 0x%02x", b);
    }
    return LILY_OK;
}

/* ---- merges: ["a", "b"], or "a b" in older files */

typedef struct merge_text {
    const char *side[2];
    size_t len[2];
} merge_text;

static bool split_merge(const json_t *merge, merge_text *m)
{
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge), *space = memchr(text, ' ', json_string_length(merge));
        if (!space) return false;
        *m = (merge_text){{text, space + 1},
                          {(size_t)(space - text), json_string_length(merge) - (size_t)(space - text) - 1}};
        return true;
    }
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right)) return false;
    *m = (merge_text){{json_string_value(left), json_string_value(right)},
                      {json_string_length(left), json_string_length(right)}};
    return true;
}

/* scratch has room for two pieces. */
static int read_merge(lily_tokenizer *t, const alphabet *a, const json_t *merge, size_t i, char *scratch,
                      lily_err *e)
{
    merge_text m;
    size_t len[2] = {0};
    if (!split_merge(merge, &m))
        return lily_fail(e, LILY_FORMAT, "merge %zu is not a pair of strings", i);
    for (int k = 0; k < 2; k++) {
        char *at = k ? scratch + len[0] : scratch;
        if (m.len[k] > PIECE_BYTES || !spell(a, m.side[k], m.len[k], at, &len[k]) ||
            lily_vocab_find(&t->vocab, at, len[k]) < 0)
            return lily_fail(e, LILY_FORMAT, "merge %zu names \"%.*s\", which is not in \"vocab\"", i,
                             (int)(m.len[k] < 64 ? m.len[k] : 64), m.side[k]);
    }
    int32_t left = lily_vocab_find(&t->vocab, scratch, len[0]);
    int32_t right = lily_vocab_find(&t->vocab, scratch + len[0], len[1]);
    int32_t id = lily_vocab_find(&t->vocab, scratch, len[0] + len[1]);
    if (id < 0)
        return lily_fail(e, LILY_FORMAT, "merge %zu joins to bytes that are not in \"vocab\" (ids %d and %d)",
                         i, (int)left, (int)right);
    if (!lily_bpe_add(&t->bpe, left, right, id))
        return lily_fail(e, LILY_FORMAT, "merge %zu is given twice (ids %d and %d)", i, (int)left,
                         (int)right);
    return LILY_OK;
}

static int read_merges(lily_tokenizer *t, const alphabet *a, const json_t *merges, char *scratch, lily_err *e)
{
    size_t n = json_array_size(merges);
    if (!json_is_array(merges)) return lily_fail(e, LILY_FORMAT, "\"merges\" of the model is not a list");
    if (n > MERGES_MAX) return lily_fail(e, LILY_FORMAT, "%zu merges, at most %d are taken", n, MERGES_MAX);
    TRY(lily_bpe_init(&t->bpe, n, e));
    TRY(read_byte_ids(t, e));
    for (size_t i = 0; i < n; i++) TRY(read_merge(t, a, json_array_get(merges, i), i, scratch, e));
    return LILY_OK;
}

/* ---- added tokens */

static int read_added(lily_tokenizer *t, const json_t *list, lily_err *e)
{
    static const char *const variants[] = {"single_word", "lstrip", "rstrip", "normalized"};
    lily_added_init(&t->added);
    if (list && !json_is_array(list)) return lily_fail(e, LILY_FORMAT, "\"added_tokens\" is not a list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *token = json_array_get(list, i), *content = json_object_get(token, "content");
        char what[40];
        int64_t id;
        snprintf(what, sizeof what, "added token %zu", i);
        if (!json_is_object(token) || !json_is_string(content))
            return lily_fail(e, LILY_FORMAT, "%s has no \"content\"", what);
        TRY(lily_json_uint(token, "id", 0, LILY_VOCAB_MAX - 1, -1, &id, what, e));
        for (size_t k = 0; k < sizeof variants / sizeof *variants; k++)
            TRY(want_bool(token, variants[k], false, what, e));
        const json_t *special = json_object_get(token, "special");
        if (special && !json_is_boolean(special))
            return lily_fail(e, LILY_FORMAT, "\"special\" of %s is not true or false", what);
        const char *text = json_string_value(content);
        size_t n = json_string_length(content);
        TRY(lily_added_add(&t->added, text, n, (int32_t)id, e));
        TRY(lily_vocab_add(&t->vocab, id, text, n,
                           json_is_true(special) ? LILY_TOKEN_SPECIAL : LILY_TOKEN_ADDED, e));
    }
    return LILY_OK;
}

static int read_root(lily_tokenizer *t, const json_t *root, char *scratch, lily_err *e)
{
    alphabet a;
    fill_alphabet(&a);
    if (!json_is_object(root)) return lily_fail(e, LILY_FORMAT, "not a JSON object");
    TRY(check_constructs(root, e));
    TRY(read_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), e));
    const json_t *model = json_object_get(root, "model");
    TRY(read_vocab(t, &a, json_object_get(model, "vocab"), scratch, e));
    TRY(read_merges(t, &a, json_object_get(model, "merges"), scratch, e));
    TRY(read_added(t, json_object_get(root, "added_tokens"), e));
    lily_vocab_drop_index(&t->vocab);
    return LILY_OK;
}

int lily_tokenizer_read(lily_tokenizer *t, const char *json, size_t n, lily_err *e)
{
    json_t *root = NULL;
    TRY(lily_json_parse(&root, json, n, "tokenizer.json", e));
    char *scratch = lily_calloc(SCRATCH_BYTES, 1);
    int rc = scratch ? read_root(t, root, scratch, e) : lily_no_memory(e, SCRATCH_BYTES, "a piece");
    if (rc != LILY_OK && rc != LILY_NO_MEMORY) rc = lily_err_prefix(e, "tokenizer.json");
    lily_free(scratch);
    json_decref(root);
    return rc;
}
