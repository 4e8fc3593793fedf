#include "run/guide.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "run/serve.h"

enum { MAX_BLANKS = 16, MAX_FORCED = 512 };     /* bytes: of white space before a call; of text forced at a time */

/* Qwen's words for a thought that is out of time. */
static const char SENTENCE[] = "\n\nConsidering the limited time by the user, I have to give the solution based on the "
                               "thinking directly now.\n</think>\n\n";
static const char PLAIN[] = "\n</think>\n\n";
enum { SENTENCE_SHARE = 8 };    /* the sentence comes when it is at most one part of so many of the budget */

static int32_t added(const lily_loaded *m, const char *text)
{
    return lily_token_find(m->tokenizer, text, strlen(text));
}

static bool must_call(const lily_guide *g)
{
    return g->ask->calls && g->ask->must_call;
}

static enum lily_guide_phase behind_thought(const lily_guide *g)
{
    if (must_call(g)) return LILY_GUIDE_BEFORE_CALL;
    if (g->format) return LILY_GUIDE_FORMAT;
    return g->call || g->ask->think_limited ? LILY_GUIDE_TEXT : LILY_GUIDE_FREE;
}

static int check_ids(const lily_guide *g, lily_err *e)
{
    if (g->call && (g->call_begin < 0 || g->call_end < 0))
        return lily_fail(e, LILY_UNSUPPORTED, "the model has no tokens <tool_call> and </tool_call>");
    if (g->ask->in_think && g->ask->think_limited && g->think_end < 0)
        return lily_fail(e, LILY_UNSUPPORTED, "the model has no token </think>");
    return LILY_OK;
}

/* ---- from beginning to end ---- */

static int force(lily_guide *g, const char *text, size_t n, bool control, lily_err *e)
{
    lily_ids_free(&g->forced);
    g->forced_at = 0;
    return lily_encode(g->m->tokenizer, text, n, control, &g->forced, e);
}

/* How many of the forced tokens belong to the thought. */
static uint32_t n_before_end(const lily_guide *g)
{
    uint32_t n = 0;
    while (n < g->forced.n && g->forced.id[n] != g->think_end) n++;
    return n;
}

/* When to close the thought, so that the closing is a part of the budget. */
static int plan_closing(lily_guide *g, lily_err *e)
{
    uint32_t budget = g->ask->think_budget;
    TRY(force(g, SENTENCE, sizeof SENTENCE - 1, true, e));
    uint32_t n = n_before_end(g);
    g->forced.n = 0;
    g->sentence = n <= budget / SENTENCE_SHARE ? n : 0;
    g->close_at = budget - (g->sentence ? g->sentence : budget > 1);
    return LILY_OK;
}

int lily_guide_begin(lily_guide *g, const lily_loaded *m, const lily_ask *ask, bool whole, lily_err *e)
{
    *g = (lily_guide){.m = m, .ask = ask, .whole = whole, .last = '\n'};
    if (!ask->grammar && !ask->calls && !ask->think_limited) return LILY_OK;
    g->think_begin = added(m, "<think>");
    g->think_end = added(m, "</think>");
    g->call_begin = added(m, "<tool_call>");
    g->call_end = added(m, "</tool_call>");
    if (ask->calls) TRY(lily_mask_new(&g->call, m->trie, ask->calls, false, e));
    if (ask->grammar && !must_call(g)) TRY(lily_mask_new(&g->format, m->trie, ask->grammar, ask->in_think, e));
    TRY(check_ids(g, e));
    g->phase = ask->in_think && g->think_end >= 0 ? LILY_GUIDE_THOUGHT : behind_thought(g);
    if (ask->think_limited) TRY(plan_closing(g, e));
    size_t words = lily_token_trie_words(m->trie);
    g->own = lily_calloc(words, sizeof *g->own);
    return g->own ? LILY_OK : lily_no_memory(e, words * sizeof *g->own, "a mask");
}

void lily_guide_end(lily_guide *g)
{
    lily_mask_free(g->format);
    lily_mask_free(g->call);
    lily_free(g->own);
    lily_ids_free(&g->forced);
    *g = (lily_guide){0};
}

/* ---- what must come ---- */

static void force_one(lily_guide *g, int32_t id, int32_t *out)
{
    g->forced_at = g->forced.n = 0;
    *out = id;
}

/* Closes the thought when its budget is used up. */
static int close_thought(lily_guide *g, lily_err *e)
{
    uint32_t budget = g->ask->think_budget;
    if (!g->ask->think_limited || g->closing || g->n_thought < g->close_at || g->called || g->open) return LILY_OK;
    g->closing = true;
    if (g->sentence && g->n_thought + g->sentence <= budget) return force(g, SENTENCE, sizeof SENTENCE - 1, true, e);
    TRY(force(g, PLAIN, sizeof PLAIN - 1, true, e));
    if (g->last == '\n' || g->n_thought >= budget) g->forced_at = n_before_end(g);
    return LILY_OK;
}

/* How many of text[0 … n) are whole characters. */
static size_t whole_characters(const char *text, size_t n)
{
    size_t at = 0;
    for (size_t len; at < n && (len = lily_utf8_length((const unsigned char *)text + at, n - at)) > 0;) at += len;
    return at;
}

/* Those of the forced tokens that stand for the text itself: the tokenizer may spell it in another form. */
static void keep_faithful(lily_guide *g, const char *text, size_t n)
{
    size_t at = 0, len;
    for (size_t i = 0; i < g->forced.n; i++, at += len) {
        const char *bytes = lily_token_bytes(g->m->tokenizer, g->forced.id[i], &len);
        if (bytes && len <= n - at && memcmp(bytes, text + at, len) == 0) continue;
        g->forced.n = i;
        return;
    }
}

/* The text of a call that is certain. */
static int force_call(lily_guide *g, int32_t *id, lily_err *e)
{
    char text[MAX_FORCED];
    size_t n;
    if (lily_mask_complete(g->call)) {
        force_one(g, g->call_end, id);
        return LILY_OK;
    }
    TRY(lily_mask_forced(g->call, text, sizeof text, &n, e));
    n = whole_characters(text, n);
    if (n == 0) return LILY_OK;
    TRY(force(g, text, n, false, e));
    keep_faithful(g, text, n);
    if (!g->whole && g->forced.n && text[n - 1] != '\n') g->forced.n--;
    return LILY_OK;
}

int lily_guide_forced(lily_guide *g, int32_t *id, bool *closes, lily_err *e)
{
    *id = -1;
    *closes = false;
    if (g->forced_at == g->forced.n) {
        switch (g->phase) {
        case LILY_GUIDE_THOUGHT:
            TRY(close_thought(g, e));
            break;
        case LILY_GUIDE_BEFORE_CALL:
            if (g->ask->in_think && g->blanks == 0) TRY(force(g, "\n\n", 2, false, e));
            else force_one(g, g->call_begin, id);
            break;
        case LILY_GUIDE_BEHIND_CALL:
            if (g->blanks > 0) force_one(g, g->call_begin, id);
            break;
        case LILY_GUIDE_CALL:
            TRY(force_call(g, id, e));
            break;
        default:
            break;
        }
    }
    if (g->forced_at < g->forced.n) *id = g->forced.id[g->forced_at];
    *closes = g->closing && *id >= 0;
    return LILY_OK;
}

/* ---- masks ---- */

static void set_bit(uint32_t *mask, int32_t id, bool on)
{
    uint32_t bit = UINT32_C(1) << (id % 32);
    if (on)
        mask[id / 32] |= bit;
    else
        mask[id / 32] &= ~bit;
}

static bool any_bit(const uint32_t *mask, size_t words)
{
    for (size_t i = 0; i < words; i++)
        if (mask[i]) return true;
    return false;
}

static size_t words_of(const lily_guide *g)
{
    return lily_token_trie_words(g->m->trie);
}

static void set_ends(lily_guide *g, bool on)
{
    for (uint32_t i = 0; i < g->m->config->n_eos; i++)
        if (g->m->config->eos[i] / 32 < (int32_t)words_of(g)) set_bit(g->own, g->m->config->eos[i], on);
}

static const uint32_t *only(lily_guide *g, int32_t id)
{
    memset(g->own, 0, words_of(g) * sizeof *g->own);
    if (id >= 0) set_bit(g->own, id, true);
    return g->own;
}

/* Everything, but the end of the turn only where it may be. */
static const uint32_t *thought_mask(lily_guide *g)
{
    if (lily_guide_may_end(g)) return NULL;
    memset(g->own, 0xff, words_of(g) * sizeof *g->own);
    set_ends(g, false);
    return g->own;
}

/* The end of the turn, or the line end that leads to another call. */
static int behind_call_mask(lily_guide *g, const uint32_t **allow, lily_err *e)
{
    TRY(force(g, "\n", 1, false, e));
    *allow = only(g, g->forced.n ? g->forced.id[0] : -1);
    g->forced.n = 0;
    set_ends(g, true);
    return LILY_OK;
}

static int format_mask(lily_guide *g, const uint32_t **allow, lily_err *e)
{
    TRY(lily_mask_allowed(g->format, allow, e));
    if (g->begun || !g->ask->may_call || g->call_begin < 0) return LILY_OK;
    memcpy(g->own, *allow, words_of(g) * sizeof *g->own);
    set_bit(g->own, g->call_begin, true);
    *allow = g->own;
    return LILY_OK;
}

int lily_guide_finished(lily_guide *g, bool *finished, lily_err *e)
{
    *finished = g->phase == LILY_GUIDE_BEHIND_CALL && g->ask->single_call;
    if (g->phase != LILY_GUIDE_FORMAT || g->forced_at < g->forced.n) return LILY_OK;
    return lily_mask_finished(g->format, finished, e);
}

bool lily_guide_holds(const lily_guide *g)
{
    return (g->phase != LILY_GUIDE_FREE && g->phase != LILY_GUIDE_TEXT) || g->forced_at < g->forced.n;
}

int lily_guide_allowed(lily_guide *g, const uint32_t **allow, lily_err *e)
{
    int32_t id;
    bool closes;
    *allow = NULL;
    if (!lily_guide_holds(g)) return LILY_OK;
    TRY(lily_guide_forced(g, &id, &closes, e));
    if (id >= 0) {
        *allow = only(g, id);
        return LILY_OK;
    }
    switch (g->phase) {
    case LILY_GUIDE_THOUGHT:
        *allow = thought_mask(g);
        break;
    case LILY_GUIDE_FORMAT:
        TRY(format_mask(g, allow, e));
        break;
    case LILY_GUIDE_CALL:
        TRY(lily_mask_allowed(g->call, allow, e));
        break;
    case LILY_GUIDE_BEHIND_CALL:
        TRY(behind_call_mask(g, allow, e));
        break;
    default:
        break;
    }
    if (*allow && !any_bit(*allow, words_of(g)))
        return lily_fail(e, LILY_UNSUPPORTED, "no token of the vocabulary can go on with the format");
    return LILY_OK;
}

/* ---- a token ---- */

static bool is_blank(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != ' ' && bytes[i] != '\n') return false;
    return true;
}

/* How many bytes the last character of the thought still needs. */
static unsigned open_after(unsigned open, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if ((c & 0xC0) == 0x80) open -= open > 0;
        else open = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC0 ? 1 : 0;
    }
    return open;
}

static void take_thought(lily_guide *g, int32_t id, const char *bytes, size_t n)
{
    if (id == g->think_end) {
        g->phase = behind_thought(g);
        g->line = (markdown){0};
        return;
    }
    g->called = (id >= 0 && id == g->call_end) || (g->called && is_blank(bytes, n));
    g->n_thought++;
    g->open = open_after(g->open, bytes, n);
    if (n > 0) g->last = bytes[n - 1];
}

static void begin_call(lily_guide *g)
{
    lily_mask_restart(g->call);
    g->phase = LILY_GUIDE_CALL;
    g->blanks = 0;
}

/* A call begins, or thinking again, where the reader of replies sees one. */
static void take_text(lily_guide *g, int32_t id, const char *bytes, size_t n)
{
    bool quoted = markdown_is_quoted(&g->line);
    if (g->call && id >= 0 && id == g->call_begin && !quoted) {
        begin_call(g);
        return;
    }
    if (g->ask->think_limited && id >= 0 && id == g->think_begin && !quoted && markdown_at_line_start(&g->line)) {
        g->phase = LILY_GUIDE_THOUGHT;
        g->last = '>';
        return;
    }
    for (size_t i = 0; i < n; i++) markdown_byte(&g->line, bytes[i]);
}

/* Where a call is due, or may follow. */
static bool take_between(lily_guide *g, int32_t id, const char *bytes, size_t n)
{
    if (id >= 0 && id == g->call_begin) {
        begin_call(g);
        return true;
    }
    if (!is_blank(bytes, n) || g->blanks + n > MAX_BLANKS) return false;
    g->blanks += (uint32_t)n;
    return true;
}

static int take_call(lily_guide *g, int32_t id, const char *bytes, size_t n, bool *fits, lily_err *e)
{
    if (id >= 0 && lily_token_is_added(g->m->tokenizer, id)) {
        *fits = id == g->call_end && lily_mask_complete(g->call);
        if (!*fits) return LILY_OK;
        g->phase = must_call(g) ? LILY_GUIDE_BEHIND_CALL : LILY_GUIDE_TEXT;
        g->line = (markdown){0};
        return LILY_OK;
    }
    return lily_mask_take(g->call, bytes, n, fits, e);
}

static int take_format(lily_guide *g, int32_t id, const char *bytes, size_t n, bool *fits, lily_err *e)
{
    if (id >= 0 && id == g->call_begin && g->ask->may_call && !g->begun) {
        if (g->call) begin_call(g);
        else g->phase = LILY_GUIDE_FREE;
        return LILY_OK;
    }
    *fits = id < 0 || !lily_token_is_added(g->m->tokenizer, id);
    if (*fits) TRY(lily_mask_take(g->format, bytes, n, fits, e));
    if (*fits && !is_blank(bytes, n)) g->begun = true;
    return LILY_OK;
}

static int take(lily_guide *g, int32_t id, const char *bytes, size_t n, bool *fits, lily_err *e)
{
    switch (g->phase) {
    case LILY_GUIDE_THOUGHT:
        take_thought(g, id, bytes, n);
        return LILY_OK;
    case LILY_GUIDE_FORMAT:
        return take_format(g, id, bytes, n, fits, e);
    case LILY_GUIDE_TEXT:
        take_text(g, id, bytes, n);
        return LILY_OK;
    case LILY_GUIDE_BEFORE_CALL:
    case LILY_GUIDE_BEHIND_CALL:
        *fits = take_between(g, id, bytes, n);
        return LILY_OK;
    case LILY_GUIDE_CALL:
        return take_call(g, id, bytes, n, fits, e);
    default:
        return LILY_OK;
    }
}

int lily_guide_take(lily_guide *g, int32_t id, const char *bytes, size_t n, bool *fits, lily_err *e)
{
    *fits = true;
    TRY(take(g, id, bytes, n, fits, e));
    if (!*fits || g->forced_at == g->forced.n) return LILY_OK;
    if (id == g->forced.id[g->forced_at])
        g->forced_at++;
    else
        g->forced_at = g->forced.n = 0;
    if (g->forced_at == g->forced.n) g->closing = false;
    return LILY_OK;
}

bool lily_guide_may_end(const lily_guide *g)
{
    switch (g->phase) {
    case LILY_GUIDE_THOUGHT:
        return !must_call(g) && (!g->format || g->called);
    case LILY_GUIDE_FORMAT:
        return lily_mask_complete(g->format);
    case LILY_GUIDE_BEFORE_CALL:
    case LILY_GUIDE_CALL:
        return false;
    default:
        return true;
    }
}

bool lily_guide_binds(const lily_guide *g)
{
    return g->phase != LILY_GUIDE_FREE && (g->format || must_call(g));
}
