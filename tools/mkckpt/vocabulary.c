#include "vocabulary.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

const char split_regex[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                           "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const char *const specials[N_SPECIALS] = {
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
};

bool special_is_control(size_t i)
{
    return i < 14 || i >= 26; /* <tool_call> … </think> stay visible */
}

/* ---- the table --------------------------------------------------------------------- */

static uint32_t hash(const char *s, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
    return h;
}

/* The slot that holds s, or the free one where it belongs. */
static uint32_t *find_slot(const vocabulary *v, const char *s, size_t n)
{
    uint32_t at = hash(s, n) & (v->n_slots - 1);
    for (;; at = (at + 1) & (v->n_slots - 1)) {
        uint32_t id = v->slot[at];
        if (id == 0 || (strncmp(v->token[id - 1], s, n) == 0 && v->token[id - 1][n] == 0))
            return &v->slot[at];
    }
}

uint32_t vocabulary_id(const vocabulary *v, const char *s)
{
    return *find_slot(v, s, strlen(s)) - 1; /* 0 - 1 is UINT32_MAX */
}

uint32_t vocabulary_special(const vocabulary *v, const char *s)
{
    for (uint32_t i = 0; i < N_SPECIALS; i++)
        if (strcmp(specials[i], s) == 0) return v->n + i;
    return UINT32_MAX;
}

/* Adds s unless it is there, and gives its id; UINT32_MAX when memory or room is out. */
static uint32_t intern(vocabulary *v, const char *s, size_t n)
{
    uint32_t *slot = find_slot(v, s, n);
    if (*slot) return *slot - 1;
    char *copy = v->n < v->room ? lily_arena_strndup(&v->arena, s, n) : NULL;
    if (!copy) return UINT32_MAX;
    v->token[v->n] = copy;
    *slot = ++v->n;
    return v->n - 1;
}

/* Records the merge of a and b and gives its token's id. */
static uint32_t add_merge(vocabulary *v, uint32_t a, uint32_t b)
{
    char text[512];
    size_t n = strlen(v->token[a]), m = strlen(v->token[b]);
    if (n + m >= sizeof text || v->n_merges == v->merge_room) return UINT32_MAX;
    memcpy(text, v->token[a], n);
    memcpy(text + n, v->token[b], m);
    v->merge[v->n_merges].a = a;
    v->merge[v->n_merges++].b = b;
    return intern(v, text, n + m);
}

/* ---- the byte alphabet -------------------------------------------------------------- */

/* Printable Latin-1 stands for itself, the other bytes for U+0100 on, in order. */
static void byte_letters(uint32_t letter[256])
{
    uint32_t extra = 256;
    for (uint32_t b = 0; b < 256; b++) {
        bool keep = (b >= 33 && b < 127) || (b >= 161 && b < 173) || b >= 174;
        letter[b] = keep ? b : extra++;
    }
}

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The first 256 ids: the letters in the order of their code points. id_of_byte tells them by byte. */
static int add_alphabet(vocabulary *v, uint32_t id_of_byte[256], lily_err *e)
{
    uint32_t letter[256], sorted[256];
    unsigned char utf8[4];
    byte_letters(letter);
    memcpy(sorted, letter, sizeof sorted);
    qsort(sorted, 256, sizeof *sorted, compare_u32);
    for (int i = 0; i < 256; i++)
        if (intern(v, (char *)utf8, lily_utf8_encode(sorted[i], utf8)) == UINT32_MAX)
            return lily_no_memory(e, 4, "the byte alphabet");
    for (int b = 0; b < 256; b++)
        id_of_byte[b] = *find_slot(v, (char *)utf8, lily_utf8_encode(letter[b], utf8)) - 1;
    return LILY_OK;
}

/* ---- training ---------------------------------------------------------------------- */

/* The corpus as pieces of token ids, each ended by END. A piece that occurs often is kept as often: the text
 * is small. */
enum { END = UINT32_MAX };

static int cut_pieces(uint32_t *ids, size_t *n, const char *text, size_t len, const uint32_t id_of_byte[256],
                      lily_err *e)
{
    int code;
    PCRE2_SIZE where;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)split_regex, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                                   &code, &where, NULL);
    pcre2_match_data *match = re ? pcre2_match_data_create_from_pattern(re, NULL) : NULL;
    int rc = match ? LILY_OK : lily_no_memory(e, 0, "the splitting pattern");
    *n = 0;
    for (size_t at = 0; rc == LILY_OK && at < len;) {
        if (pcre2_match(re, (PCRE2_SPTR)text, len, at, PCRE2_ANCHORED, match, NULL) <= 0) {
            rc = lily_fail(e, LILY_INTERNAL, "the splitting pattern does not match at byte %zu of the corpus",
                           at);
            break;
        }
        size_t end = pcre2_get_ovector_pointer(match)[1];
        while (at < end) ids[(*n)++] = id_of_byte[(unsigned char)text[at++]];
        ids[(*n)++] = END;
    }
    pcre2_match_data_free(match);
    pcre2_code_free(re);
    return rc;
}

typedef struct pair_count {
    uint32_t a, b, count;
} pair_count;

static int by_pair(const void *x, const void *y)
{
    const pair_count *p = x, *q = y;
    if (p->a != q->a) return p->a < q->a ? -1 : 1;
    return (p->b > q->b) - (p->b < q->b);
}

/* Of equally frequent pairs the one that sorts first by its text is merged. */
static bool better(const vocabulary *v, const pair_count *p, const pair_count *q)
{
    if (p->count != q->count) return p->count > q->count;
    int order = strcmp(v->token[p->a], v->token[q->a]);
    return order ? order < 0 : strcmp(v->token[p->b], v->token[q->b]) < 0;
}

/* The most frequent pair of neighbours; count 0 when there is none. `pairs` has room for n. */
static pair_count best_pair(const vocabulary *v, const uint32_t *ids, size_t n, pair_count *pairs)
{
    size_t m = 0;
    for (size_t i = 0; i + 1 < n; i++)
        if (ids[i] != END && ids[i + 1] != END) pairs[m++] = (pair_count){ids[i], ids[i + 1], 1};
    qsort(pairs, m, sizeof *pairs, by_pair);
    pair_count best = {0};
    for (size_t i = 0, next; i < m; i = next) {
        for (next = i + 1; next < m && by_pair(&pairs[i], &pairs[next]) == 0; next++) pairs[i].count++;
        if (best.count == 0 || better(v, &pairs[i], &best)) best = pairs[i];
    }
    return best;
}

static size_t replace_pair(uint32_t *ids, size_t n, pair_count p, uint32_t by)
{
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        bool hit = i + 1 < n && ids[i] == p.a && ids[i + 1] == p.b;
        ids[to++] = hit ? by : ids[i];
        i += hit;
    }
    return to;
}

/* Plain BPE training. */
static int train(vocabulary *v, uint32_t count, const char *corpus, size_t len,
                 const uint32_t id_of_byte[256], lily_err *e)
{
    uint32_t *ids = lily_calloc(2 * len, sizeof *ids);
    pair_count *pairs = lily_calloc(2 * len, sizeof *pairs);
    size_t n = 0;
    int rc =
        ids && pairs ? cut_pieces(ids, &n, corpus, len, id_of_byte, e) : lily_no_memory(e, len, "the corpus");
    while (rc == LILY_OK && v->n_merges < count) {
        pair_count p = best_pair(v, ids, n, pairs);
        if (p.count == 0) break;
        uint32_t id = add_merge(v, p.a, p.b);
        if (id == UINT32_MAX)
            rc = lily_no_memory(e, 0, "a merge");
        else
            n = replace_pair(ids, n, p, id);
    }
    lily_free(ids);
    lily_free(pairs);
    return rc;
}

/* ---- made-up words ------------------------------------------------------------------ */

enum { N_SYLLABLES = 100 };
#define SPACE "\u0120" /* stands for the space */

/* Merges two tokens into a new one while the vocabulary is smaller than `limit`. A half that is itself
 * not yet a token cannot occur: shorter ones are added first. */
static void fill(vocabulary *v, uint32_t limit, const char *a, const char *b)
{
    char text[64];
    size_t n = strlen(a), m = strlen(b);
    memcpy(text, a, n);
    memcpy(text + n, b, m + 1);
    if (v->n < limit && vocabulary_id(v, text) == UINT32_MAX)
        add_merge(v, vocabulary_id(v, a), vocabulary_id(v, b));
}

/* Words of up to three syllables, with and without a space before, until there are `limit` tokens. */
static int fill_words(vocabulary *v, uint32_t limit, lily_err *e)
{
    char syllable[N_SYLLABLES][3], spaced[N_SYLLABLES][5];
    for (int i = 0; i < N_SYLLABLES; i++) {
        syllable[i][0] = "bcdfghjklmnpqrstvwxz"[i / 5];
        syllable[i][1] = "aeiou"[i % 5];
        syllable[i][2] = 0;
        memcpy(spaced[i], SPACE, 2);
        memcpy(spaced[i] + 2, syllable[i], 3);
    }
    for (int i = 0; i < N_SYLLABLES; i++)
        fill(v, limit, (char[]){syllable[i][0], 0}, (char[]){syllable[i][1], 0});
    for (int i = 0; i < N_SYLLABLES; i++) fill(v, limit, SPACE, syllable[i]);
    for (int i = 0; i < N_SYLLABLES * N_SYLLABLES; i++) fill(v, limit, syllable[i / 100], syllable[i % 100]);
    for (int i = 0; i < N_SYLLABLES * N_SYLLABLES; i++) fill(v, limit, spaced[i / 100], syllable[i % 100]);
    for (int i = 0; i < N_SYLLABLES * N_SYLLABLES && v->n < limit; i++) {
        char two[5], spaced_two[7];
        memcpy(two, syllable[i / 100], 2);
        memcpy(two + 2, syllable[i % 100], 3);
        memcpy(spaced_two, SPACE, 2);
        memcpy(spaced_two + 2, two, 5);
        for (int j = 0; j < N_SYLLABLES; j++) {
            fill(v, limit, two, syllable[j]);
            fill(v, limit, spaced_two, syllable[j]);
        }
    }
    return v->n == limit ? LILY_OK : lily_fail(e, LILY_INTERNAL, "%u tokens, expected %u", v->n, limit);
}

int vocabulary_build(vocabulary *v, const preset *p, const char *corpus, size_t len, lily_err *e)
{
    uint32_t id_of_byte[256];
    *v = (vocabulary){.n_slots = 1 << 20};
    v->room = v->merge_room = (p->text_ids ? p->text_ids : 256) + p->merges;
    v->token = lily_arena_calloc(&v->arena, v->room, sizeof *v->token);
    v->merge = lily_arena_calloc(&v->arena, v->merge_room, sizeof *v->merge);
    v->slot = lily_arena_calloc(&v->arena, v->n_slots, sizeof *v->slot);
    if (!v->token || !v->merge || !v->slot)
        return lily_no_memory(e, v->room * sizeof *v->token, "the vocabulary");
    TRY(add_alphabet(v, id_of_byte, e));
    TRY(train(v, p->merges, corpus, len, id_of_byte, e));
    return p->text_ids ? fill_words(v, p->text_ids, e) : LILY_OK;
}

void vocabulary_free(vocabulary *v)
{
    lily_arena_free(&v->arena);
    *v = (vocabulary){0};
}
