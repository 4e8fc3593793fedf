#include "run/guide.h"

#include <string.h>

#include "base/mem.h"
#include "run/serve.h"

static int32_t added(const lily_loaded *m, const char *text)
{
    return lily_token_find(m->tokenizer, text, strlen(text));
}

int lily_guide_begin(lily_guide *g, const lily_loaded *m, const lily_ask *ask, lily_err *e)
{
    *g = (lily_guide){.m = m, .think_end = -1, .call = -1, .call_end = -1};
    if (!ask->grammar) return LILY_OK;
    if (ask->in_think) g->think_end = added(m, "</think>");
    if (ask->may_call) {
        g->call = added(m, "<tool_call>");
        g->call_end = added(m, "</tool_call>");
    }
    g->thinking = g->think_end >= 0;
    TRY(lily_mask_new(&g->mask, m->trie, ask->grammar, ask->in_think, e));
    size_t words = lily_token_trie_words(m->trie);
    g->own = lily_calloc(words, sizeof *g->own);
    return g->own ? LILY_OK : lily_no_memory(e, words * sizeof *g->own, "a mask");
}

void lily_guide_end(lily_guide *g)
{
    lily_mask_free(g->mask);
    lily_free(g->own);
    *g = (lily_guide){0};
}

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

/* Everything, but the end of the turn only behind a call. */
static const uint32_t *thought_mask(lily_guide *g)
{
    size_t words = lily_token_trie_words(g->m->trie);
    memset(g->own, 0xff, words * sizeof *g->own);
    for (uint32_t i = 0; i < g->m->config->n_eos; i++)
        if (g->m->config->eos[i] / 32 < (int32_t)words) set_bit(g->own, g->m->config->eos[i], g->called);
    return g->own;
}

int lily_guide_allowed(lily_guide *g, const uint32_t **allow, bool *finished, lily_err *e)
{
    size_t words;
    *allow = NULL;
    *finished = false;
    if (!g->mask) return LILY_OK;
    if (g->thinking) {
        *allow = thought_mask(g);
        return LILY_OK;
    }
    TRY(lily_mask_finished(g->mask, finished, e));
    if (*finished) return LILY_OK;
    TRY(lily_mask_allowed(g->mask, allow, e));
    words = lily_token_trie_words(g->m->trie);
    if (g->call >= 0 && !g->begun) {
        memcpy(g->own, *allow, words * sizeof *g->own);
        set_bit(g->own, g->call, true);
        *allow = g->own;
    }
    if (!any_bit(*allow, words))
        return lily_fail(e, LILY_UNSUPPORTED, "no token of the vocabulary can go on with the format");
    return LILY_OK;
}

static bool is_blank(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != ' ' && bytes[i] != '\n') return false;
    return true;
}

int lily_guide_take(lily_guide *g, int32_t id, const char *bytes, size_t n, bool *fits, lily_err *e)
{
    *fits = true;
    if (!g->mask) return LILY_OK;
    if (g->thinking) {
        g->thinking = id != g->think_end;
        g->called = (id >= 0 && id == g->call_end) || (g->called && is_blank(bytes, n));
        return LILY_OK;
    }
    if (id >= 0 && id == g->call && !g->begun) {
        lily_guide_end(g);
        return LILY_OK;
    }
    if (id >= 0 && lily_token_is_added(g->m->tokenizer, id)) {
        *fits = false;
        return LILY_OK;
    }
    if (!is_blank(bytes, n)) g->begun = true;
    return lily_mask_take(g->mask, bytes, n, fits, e);
}

bool lily_guide_may_end(const lily_guide *g)
{
    return !g->mask || (g->thinking ? g->called : lily_mask_complete(g->mask));
}
