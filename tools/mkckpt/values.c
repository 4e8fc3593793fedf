#include "values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"

/* ---- streams ----------------------------------------------------------------------- */

/* CRC-32 as in zlib. */
static uint32_t crc32_of(const char *s)
{
    uint32_t crc = ~0u;
    for (; *s; s++) {
        crc ^= (unsigned char)*s;
        for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void stream(np_random *g, const recipe *r, const char *name)
{
    np_seed(g, (uint32_t[]){r->seed, crc32_of(name)}, 2);
}

static void numbered_stream(np_random *g, const recipe *r, const char *name, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "%u", number);
    np_seed(g, (uint32_t[]){r->seed, crc32_of(name), crc32_of(text)}, 3);
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
    return b ? gcd(b, a % b) : a;
}

void recipe_init(recipe *r, const preset *p, const vocabulary *v, uint32_t seed)
{
    *r = (recipe){.preset = p, .seed = seed, .text = v->n};
    np_ziggurat_init(&r->ziggurat);
    r->step = (uint32_t)(v->n * 0.382);
    while (gcd(r->step, v->n) != 1) r->step++;
    r->end_of_turn = vocabulary_special(v, "<|im_end|>");
    r->before_end = vocabulary_id(v, ".");
    r->signal = 2.0 + sqrt(2 * log(v->n));
}

/* ---- plain tensors ------------------------------------------------------------------ */

static int make_plain(const recipe *r, const entry *t, const sink *s, lily_err *e)
{
    size_t n = (size_t)(entry_rows(t) * t->dim[t->rank - 1]), size = t->f32 ? 4 : 2;
    uint8_t *out = lily_calloc(n, size);
    if (!out) return lily_no_memory(e, n * size, t->name);
    np_random g;
    stream(&g, r, t->name);
    for (size_t i = 0; i < n; i++) {
        float v = t->kind == ENTRY_A_LOG ? (float)log(exp(np_uniform(&g, log(0.02), log(6.0))))
                                         : (float)t->mean + (float)t->std * np_normal(&g, &r->ziggurat);
        uint16_t half = lily_float_to_bf16(v);
        memcpy(out + i * size, t->f32 ? (const void *)&v : (const void *)&half, size);
    }
    int rc = s->put(s->self, 0, 0, out, n * size, e);
    lily_free(out);
    return rc;
}

/* ---- matrices ---------------------------------------------------------------------- */

/* A block of rows of a quantised matrix. */
typedef struct rows {
    uint32_t cols, bits;
    uint64_t first, n;      /* rows */
    uint32_t *words;        /* [n][cols * bits / 32] */
    uint16_t *scale, *bias; /* [n][cols / GROUP] */
    float *work;            /* [n][cols / GROUP], or [n][cols] for rows that are made as floats */
} rows;

static uint64_t rows_words(const rows *b)
{
    return (uint64_t)b->cols * b->bits / 32;
}
static uint64_t rows_groups(const rows *b)
{
    return b->cols / GROUP;
}

static int rows_open(rows *b, const entry *t, uint64_t room, size_t work, lily_err *e)
{
    *b = (rows){.cols = t->dim[t->rank - 1], .bits = t->bits};
    b->words = lily_calloc(room * rows_words(b), sizeof *b->words);
    b->scale = lily_calloc(room * rows_groups(b), sizeof *b->scale);
    b->bias = lily_calloc(room * rows_groups(b), sizeof *b->bias);
    b->work = lily_calloc(room * work, sizeof *b->work);
    if (b->words && b->scale && b->bias && b->work) return LILY_OK;
    return lily_no_memory(e, room * b->cols, t->name);
}

static void rows_close(rows *b)
{
    lily_free(b->words);
    lily_free(b->scale);
    lily_free(b->bias);
    lily_free(b->work);
}

static int rows_put(const rows *b, const sink *s, lily_err *e)
{
    uint64_t words = rows_words(b) * 4, groups = rows_groups(b) * 2;
    TRY(s->put(s->self, 0, b->first * words, b->words, b->n * words, e));
    TRY(s->put(s->self, 1, b->first * groups, b->scale, b->n * groups, e));
    return s->put(s->self, 2, b->first * groups, b->bias, b->n * groups, e);
}

/* Random codes, with scales and biases such that the weights have the wanted deviation. The stream goes
 * through all codes of the block, then all magnitudes, all signs, all offsets. */
static void random_codes(rows *b, np_random *g, double std)
{
    uint64_t words = b->n * rows_words(b), groups = b->n * rows_groups(b);
    double levels = 1u << b->bits, code_std = sqrt((levels * levels - 1) / 12.0);
    const float unit = (float)(std / code_std), middle = (float)((levels - 1) / 2);
    for (uint64_t i = 0; i < words; i++) b->words[i] = np_u32(g);
    for (uint64_t i = 0; i < groups; i++) b->work[i] = unit * (float)np_uniform(g, 0.8, 1.2);
    for (uint64_t i = 0; i < groups; i++) b->work[i] *= np_double(g) < 0.5 ? -1.0f : 1.0f;
    for (uint64_t i = 0; i < groups; i++) {
        float bias = -b->work[i] * middle * (float)np_uniform(g, 0.97, 1.03);
        b->scale[i] = lily_float_to_bf16(b->work[i]);
        b->bias[i] = lily_float_to_bf16(bias);
    }
}

static int make_codes(const recipe *r, const entry *t, const sink *s, lily_err *e)
{
    rows b;
    uint64_t all = entry_rows(t), block = (1u << 25) / t->dim[t->rank - 1];
    if (block > all) block = all;
    int rc = rows_open(&b, t, block, t->dim[t->rank - 1] / GROUP, e);
    np_random g;
    stream(&g, r, t->name);
    for (; rc == LILY_OK && b.first < all; b.first += b.n) {
        b.n = all - b.first < block ? all - b.first : block;
        random_codes(&b, &g, t->std);
        rc = rows_put(&b, s, e);
    }
    rows_close(&b);
    return rc;
}

/* ---- embedding and head ------------------------------------------------------------- */

/* Adds gain times the embedding rows [first, first + n) to out; n rows are within the vocabulary. */
static void add_embedding(const recipe *r, float *out, uint32_t first, uint32_t n, float gain)
{
    uint32_t h = r->preset->hidden;
    while (n) {
        uint32_t block = first / ROW_BLOCK, skip = first % ROW_BLOCK;
        uint32_t take = ROW_BLOCK - skip < n ? ROW_BLOCK - skip : n;
        np_random g;
        numbered_stream(&g, r, "embed", block);
        for (uint64_t i = 0; i < (uint64_t)skip * h; i++) np_normal(&g, &r->ziggurat);
        for (uint64_t i = 0; i < (uint64_t)take * h; i++) out[i] += gain * np_normal(&g, &r->ziggurat);
        out += (uint64_t)take * h;
        first += take;
        n -= take;
    }
}

static void head_rows(const recipe *r, float *w, uint32_t first, uint32_t n)
{
    uint32_t h = r->preset->hidden, end = first + n;
    /* Noise gives logits of deviation 2.2 or so; the signal adds its multiple, given that about three
     * quarters of the final hidden state is the embedding. */
    const float sigma = (float)(2.2 / sqrt(h)), gain = (float)(r->signal * 2.2 / (0.75 * h));
    np_random g;
    numbered_stream(&g, r, "head", first);
    for (uint64_t i = 0; i < (uint64_t)n * h; i++) w[i] = np_normal(&g, &r->ziggurat) * sigma;
    for (uint32_t j = first, run; j < end && j < r->text; j += run) {
        uint32_t from = (j + r->text - r->step) % r->text;
        run = (end < r->text ? end : r->text) - j;
        if (run > r->text - from) run = r->text - from;
        add_embedding(r, w + (uint64_t)(j - first) * h, from, run, gain);
    }
    for (uint32_t j = first > r->text ? first : r->text; j < end;
         j++) { /* special and unused rows stay quiet */
        float *row = w + (uint64_t)(j - first) * h;
        for (uint32_t i = 0; i < h; i++) row[i] *= 0.05f;
        if (j != r->end_of_turn) continue;
        memset(row, 0, h * sizeof *row);
        add_embedding(r, row, r->before_end, 1, 1.3f * gain);
    }
}

/* Min-max affine quantisation of one group. */
static void quantise_group(const float *w, uint32_t bits, uint32_t *words, uint16_t *scale, uint16_t *bias)
{
    const float top = (float)((1u << bits) - 1);
    float low = w[0], high = w[0];
    for (int i = 1; i < GROUP; i++) {
        if (w[i] < low) low = w[i];
        if (w[i] > high) high = w[i];
    }
    *scale = lily_float_to_bf16(fmaxf((high - low) / top, 1e-8f));
    *bias = lily_float_to_bf16(low);
    const float s = lily_bf16_to_float(*scale), b = lily_bf16_to_float(*bias);
    uint32_t per = 32 / bits;
    memset(words, 0, GROUP / per * sizeof *words);
    for (uint32_t i = 0; i < GROUP; i++) {
        float q = fminf(fmaxf(rintf((w[i] - b) / s), 0), top);
        words[i / per] |= (uint32_t)q << i % per * bits;
    }
}

static int make_rows(const recipe *r, const entry *t, uint64_t block, const sink *s, lily_err *e)
{
    rows b;
    uint64_t all = entry_rows(t), first = block * ROW_BLOCK;
    uint64_t n = all - first < ROW_BLOCK ? all - first : ROW_BLOCK;
    int rc = rows_open(&b, t, n, t->dim[1], e);
    if (rc == LILY_OK) {
        b.first = first;
        b.n = n;
        if (t->kind == ENTRY_EMBED)
            add_embedding(r, b.work, (uint32_t)first, (uint32_t)n, 1);
        else
            head_rows(r, b.work, (uint32_t)first, (uint32_t)n);
        for (uint64_t i = 0; i < n * rows_groups(&b); i++)
            quantise_group(b.work + i * GROUP, b.bits, b.words + i * (GROUP * b.bits / 32), &b.scale[i],
                           &b.bias[i]);
        rc = rows_put(&b, s, e);
    }
    rows_close(&b);
    return rc;
}

uint64_t entry_blocks(const entry *e)
{
    if (e->kind != ENTRY_EMBED && e->kind != ENTRY_HEAD) return 1;
    return (e->dim[0] + ROW_BLOCK - 1) / ROW_BLOCK;
}

int entry_make(const recipe *r, const entry *t, uint64_t block, const sink *s, lily_err *e)
{
    switch (t->kind) {
    case ENTRY_PLAIN:
    case ENTRY_A_LOG:
        return make_plain(r, t, s, e);
    case ENTRY_CODES:
        return make_codes(r, t, s, e);
    case ENTRY_EMBED:
    case ENTRY_HEAD:
        break;
    }
    return make_rows(r, t, block, s, e);
}
