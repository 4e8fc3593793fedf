/* checker.c - see checker.h.
 *
 * The truth is the graph walked node by node: which node wrote the value that another one reads.  A plan is
 * right when each step is in it once, and for each such value, under every schedule that obeys the waits (and
 * under the plan's own order with its barriers), the producer comes first and nobody else touches the bytes
 * until the consumer is done. */
#include "checker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = 0xffffffff };

typedef struct checker {
    const lily_plan *p;
    const lily_plan_device *d;
    const lily_config *c;
    uint64_t keep;
    lily_node *nodes;
    size_t n_nodes, words;
    uint32_t *stage_of;          /* [n_nodes] */
    uint32_t (*source)[N_SLOTS]; /* [n_nodes] node that wrote what this one reads; NONE */
    uint64_t *follows;           /* [n_stages][words] closure of the waits */
    uint32_t *barriers;          /* [n_stages] barriers up to and with this stage */
    uint64_t *reads, *writes;    /* [n_stages] what reaches memory, by the graph */
} checker;

static char text[256];

static const char *wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static const char *wrong(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return text;
}

static bool has(uint64_t set, unsigned i)
{
    return set >> i & 1;
}

static bool follows(const checker *k, uint32_t later, uint32_t earlier)
{
    return has(k->follows[later * k->words + earlier / 64], earlier % 64);
}

static bool is_state(unsigned slot)
{
    return lily_slot_kind(slot) == SLOT_STATE;
}

static bool is_placed(unsigned slot)
{
    return lily_slot_kind(slot) == SLOT_SCRATCH || lily_slot_kind(slot) == SLOT_OUTPUT;
}

static bool share_bytes(const lily_plan *p, unsigned s, unsigned t)
{
    return is_placed(s) && is_placed(t) && p->slot_at[s] < p->slot_at[t] + p->slot_bytes[t] &&
           p->slot_at[t] < p->slot_at[s] + p->slot_bytes[s];
}

/* Do slot s at stage a and slot t at stage b mean the same memory? */
static bool same_memory(const checker *k, uint32_t a, unsigned s, uint32_t b, unsigned t)
{
    if (is_state(s) || is_state(t)) return s == t && k->p->stages[a].layer == k->p->stages[b].layer;
    return s == t || share_bytes(k->p, s, t);
}

/* ---- each step once ---- */

static const char *assign_nodes(checker *k)
{
    for (size_t i = 0; i < k->n_nodes; i++) k->stage_of[i] = NONE;
    for (uint32_t s = 0; s < k->p->n_stages; s++) {
        const lily_stage *stage = &k->p->stages[s];
        if (stage->steps != k->d->rows[stage->row].steps) return wrong("stage %u is not its row", s);
        for (unsigned step = 0; step < N_STEPS; step++) {
            if (!has(stage->steps, step)) continue;
            size_t found = k->n_nodes;
            for (size_t i = 0; i < k->n_nodes && found == k->n_nodes; i++)
                if (k->nodes[i].step == step && k->nodes[i].layer == stage->layer &&
                    k->nodes[i].segment == stage->segment && k->stage_of[i] == NONE)
                    found = i;
            if (found == k->n_nodes)
                return wrong("stage %u: step %s is not there to do", s, lily_step_name(step));
            k->stage_of[found] = s;
        }
    }
    for (size_t i = 0; i < k->n_nodes; i++)
        if (k->stage_of[i] == NONE)
            return wrong("step %s of layer %u is missing", lily_step_name(k->nodes[i].step),
                         k->nodes[i].layer);
    return NULL;
}

static const char *check_segments(const checker *k)
{
    for (uint32_t s = 0; s < k->p->n_stages; s++) {
        uint32_t segment = k->p->stages[s].segment;
        if (s >= k->p->segment_end[segment] || (segment && s < k->p->segment_end[segment - 1]))
            return wrong("stage %u is outside its segment", s);
    }
    return k->p->segment_end[LILY_PICK] == k->p->n_stages ? NULL
                                                          : wrong("the last segment does not end the plan");
}

/* ---- who reads whose value ---- */

static void find_sources(checker *k)
{
    uint32_t last[N_SLOTS];
    static uint32_t last_state[N_SLOTS][LILY_MAX_LAYERS];
    memset(last, 0xff, sizeof last);
    memset(last_state, 0xff, sizeof last_state);
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        const lily_node *n = &k->nodes[i];
        for (unsigned s = 0; s < N_SLOTS; s++) {
            k->source[i][s] = NONE;
            if (!has(n->reads | n->writes, s)) continue;
            uint32_t *where = is_state(s) ? &last_state[s][n->layer] : &last[s];
            k->source[i][s] = has(n->reads, s) ? *where : NONE;
            if (has(n->writes, s)) *where = i;
        }
    }
}

/* A stage reads what another one made, and must write what another one reads. */
static void find_traffic(checker *k)
{
    for (uint32_t i = 0; i < k->n_nodes; i++) {
        uint32_t stage = k->stage_of[i];
        for (unsigned s = 0; s < N_SLOTS; s++) {
            if (has(k->nodes[i].writes, s) && (lily_slot_kind(s) != SLOT_SCRATCH || has(k->keep, s)))
                k->writes[stage] |= lily_bit(s);
            if (!has(k->nodes[i].reads, s)) continue;
            uint32_t source = k->source[i][s];
            if (source != NONE && k->stage_of[source] == stage) continue;
            k->reads[stage] |= lily_bit(s);
            if (source != NONE) k->writes[k->stage_of[source]] |= lily_bit(s);
        }
    }
}

static const char *check_traffic(const checker *k)
{
    for (uint32_t s = 0; s < k->p->n_stages; s++) {
        if (k->p->stages[s].reads != k->reads[s])
            return wrong("stage %u reads %llx, the plan says %llx", s, (unsigned long long)k->reads[s],
                         (unsigned long long)k->p->stages[s].reads);
        if (k->p->stages[s].writes != k->writes[s])
            return wrong("stage %u writes %llx, the plan says %llx", s, (unsigned long long)k->writes[s],
                         (unsigned long long)k->p->stages[s].writes);
    }
    return NULL;
}

/* ---- waits and barriers ---- */

static bool hazard(const checker *k, uint32_t a, uint32_t b)
{
    for (unsigned s = 0; s < N_SLOTS; s++)
        for (unsigned t = 0; t < N_SLOTS; t++) {
            bool a_reads = has(k->reads[a], s), a_writes = has(k->writes[a], s);
            bool b_reads = has(k->reads[b], t), b_writes = has(k->writes[b], t);
            if (!((a_writes && (b_reads || b_writes)) || (a_reads && b_writes))) continue;
            if (same_memory(k, a, s, b, t)) return true;
        }
    return false;
}

static const char *close_waits(checker *k)
{
    uint32_t barriers = 0;
    for (uint32_t s = 0; s < k->p->n_stages; s++) {
        const lily_stage *stage = &k->p->stages[s];
        uint64_t *mine = k->follows + s * k->words;
        for (uint16_t w = 0; w < stage->n_wait; w++) {
            if (stage->wait[w] >= s) return wrong("stage %u waits for a later one", s);
            if (k->p->stages[stage->wait[w]].level >= stage->level)
                return wrong("stage %u is not above its waits", s);
            mine[stage->wait[w] / 64] |= lily_bit(stage->wait[w] % 64);
            for (size_t i = 0; i < k->words; i++) mine[i] |= k->follows[stage->wait[w] * k->words + i];
        }
        if (stage->level >= k->p->n_levels) return wrong("stage %u is above the last level", s);
        k->barriers[s] = barriers += stage->barrier;
    }
    return barriers == k->p->n_barriers ? NULL : wrong("%u barriers, not %u", barriers, k->p->n_barriers);
}

static const char *check_hazards(const checker *k)
{
    for (uint32_t b = 0; b < k->p->n_stages; b++) {
        const lily_stage *stage = &k->p->stages[b];
        for (uint16_t w = 0; w < stage->n_wait; w++) {
            if (!hazard(k, stage->wait[w], b))
                return wrong("stage %u waits for %u without need", b, stage->wait[w]);
            for (uint16_t v = 0; v < stage->n_wait; v++)
                if (v != w && follows(k, stage->wait[v], stage->wait[w]))
                    return wrong("stage %u waits for %u, which %u implies", b, stage->wait[w],
                                 stage->wait[v]);
        }
        for (uint32_t a = 0; a < b; a++) {
            if (follows(k, b, a) && k->barriers[a] != k->barriers[b]) continue;
            if (!hazard(k, a, b)) continue;
            if (!follows(k, b, a)) return wrong("stage %u does not wait for %u", b, a);
            return wrong("no barrier between %u and %u", a, b);
        }
    }
    return NULL;
}

/* ---- no value is lost on its way ---- */

static const char *check_value(const checker *k, uint32_t from, uint32_t to, unsigned slot)
{
    if (from >= to || !follows(k, to, from)) return wrong("stage %u does not follow its source %u", to, from);
    for (uint32_t w = 0; w < k->p->n_stages; w++) {
        if (w >= from && w < to)
            for (unsigned t = 0; t < N_SLOTS; t++)
                if (has(k->p->stages[w].dies, t) && (t == slot || share_bytes(k->p, slot, t)))
                    return wrong("%s is dead after stage %u, and %u reads it", lily_slot_name(slot), w, to);
        if (w == from || w == to) continue;
        bool writes = false;
        for (unsigned t = 0; t < N_SLOTS; t++)
            writes |= has(k->writes[w], t) && same_memory(k, w, t, to, slot);
        if (!writes) continue;
        bool before = w < from && follows(k, from, w), after = w > to && follows(k, w, to);
        if (!before && !after)
            return wrong("stage %u may overwrite %s between %u and %u", w, lily_slot_name(slot), from, to);
    }
    return NULL;
}

static const char *check_values(const checker *k)
{
    for (uint32_t i = 0; i < k->n_nodes; i++)
        for (unsigned s = 0; s < N_SLOTS; s++) {
            uint32_t source = k->source[i][s];
            if (source == NONE || k->stage_of[source] == k->stage_of[i]) continue;
            const char *bad = check_value(k, k->stage_of[source], k->stage_of[i], s);
            if (bad) return bad;
        }
    return NULL;
}

/* ---- places ---- */

static const char *check_places(const checker *k)
{
    const lily_plan *p = k->p;
    uint64_t used = k->keep;
    for (uint32_t s = 0; s < p->n_stages; s++) used |= k->reads[s] | k->writes[s];
    for (unsigned s = 0; s < N_SLOTS; s++) {
        bool wanted = is_placed(s) && (has(used, s) || lily_slot_kind(s) == SLOT_OUTPUT);
        if ((p->slot_at[s] != LILY_NO_PLACE) != wanted)
            return wrong("%s: place %zu", lily_slot_name(s), p->slot_at[s]);
        if (!wanted) continue;
        if (p->slot_at[s] % 64) return wrong("%s is not aligned", lily_slot_name(s));
        const uint64_t least = k->d->slot_bytes ? k->d->slot_bytes(k->d->dev, s, k->c, p->max_tokens)
                                                : 4 * lily_slot_elements(s, k->c, p->max_tokens);
        if (p->slot_bytes[s] < least)
            return wrong("%s is too small", lily_slot_name(s));
        if (p->slot_at[s] + p->slot_bytes[s] > p->scratch_bytes)
            return wrong("%s leaves the arena", lily_slot_name(s));
        bool alone = lily_slot_kind(s) == SLOT_OUTPUT || has(k->keep, s);
        for (unsigned t = 0; alone && t < N_SLOTS; t++)
            if (t != s && p->slot_at[t] != LILY_NO_PLACE && share_bytes(p, s, t))
                return wrong("%s shares bytes with %s", lily_slot_name(s), lily_slot_name(t));
    }
    return NULL;
}

static const char *check_workspaces(const checker *k)
{
    const lily_plan *p = k->p;
    for (uint32_t i = 0; i < p->n_stages; i++) {
        uint16_t r = p->stages[i].row;
        const lily_row *row = &k->d->rows[r];
        if (!row->workspace) continue;
        size_t at = p->workspace_at[r],
               end = at + row->workspace(k->d->dev, k->c, p->max_tokens, p->max_context);
        if (at == LILY_NO_PLACE || at % 64 || end > p->scratch_bytes)
            return wrong("row %s: workspace at %zu", row->name, at);
        for (unsigned s = 0; s < N_SLOTS; s++)
            if (p->slot_at[s] != LILY_NO_PLACE && p->slot_at[s] < end &&
                at < p->slot_at[s] + p->slot_bytes[s])
                return wrong("row %s: workspace over %s", row->name, lily_slot_name(s));
        for (uint32_t j = 0; j < i; j++)
            if (p->stages[j].row == r && !follows(k, i, j))
                return wrong("row %s runs beside itself", row->name);
    }
    return NULL;
}

const char *check_plan(const lily_plan *p, const lily_plan_device *d, const lily_config *c, uint64_t keep)
{
    checker k = {.p = p, .d = d, .c = c, .keep = keep, .words = (p->n_stages + 63) / 64};
    if (lily_graph_build(&k.nodes, &k.n_nodes, c, p->mode, NULL) != LILY_OK) return "no graph";
    k.stage_of = calloc(k.n_nodes, sizeof *k.stage_of);
    k.source = calloc(k.n_nodes, sizeof *k.source);
    k.follows = calloc(p->n_stages * k.words, sizeof *k.follows);
    k.barriers = calloc(p->n_stages, sizeof *k.barriers);
    k.reads = calloc(p->n_stages, sizeof *k.reads);
    k.writes = calloc(p->n_stages, sizeof *k.writes);
    const char *bad = assign_nodes(&k);
    if (!bad) {
        find_sources(&k);
        find_traffic(&k);
        bad = check_segments(&k);
    }
    if (!bad) bad = check_traffic(&k);
    if (!bad) bad = check_places(&k);
    if (!bad) bad = close_waits(&k);
    if (!bad) bad = check_hazards(&k);
    if (!bad) bad = check_values(&k);
    if (!bad) bad = check_workspaces(&k);
    free(k.nodes);
    free(k.stage_of);
    free(k.source);
    free(k.follows);
    free(k.barriers);
    free(k.reads);
    free(k.writes);
    return bad;
}
