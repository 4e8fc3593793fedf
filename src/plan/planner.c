/* planner.c - cover, order, place, wait: see plan.h. */
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "plan/plan.h"

/* One allocation lifetime for a plan and everything that it points to. */
typedef struct owned_plan {
    lily_plan plan; /* first: a lily_plan * is an owned_plan * */
    lily_arena arena;
} owned_plan;

typedef struct planner {
    const lily_plan_device *device;
    const lily_config *config;
    const lily_plan_ask *ask;
    lily_node *nodes; /* the model's steps in its own order */
    size_t n_nodes;
    lily_stage *stages; /* [n_stages], waits not yet set */
    size_t n_stages;
    uint64_t scratch, states, outputs; /* slots by kind */
    owned_plan *out;
} planner;

enum { ALIGN = 64 };

static size_t align_up(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static uint64_t slots_of_kind(enum lily_slot_kind kind)
{
    uint64_t set = 0;
    for (unsigned s = 0; s < N_SLOTS; s++)
        if (lily_slot_kind(s) == kind) set |= lily_bit(s);
    return set;
}

/* ---- cover ---- */

static bool row_applies(const planner *p, const lily_row *r)
{
    const lily_plan_ask *a = p->ask;
    const size_t i = (size_t)(r - p->device->rows);
    return (r->modes & a->mode) && !(r->off & a->ablated) && !(p->device->refused[i / 64] & lily_bit(i % 64)) &&
           (!r->min_tokens || a->max_tokens >= r->min_tokens) &&
           (!r->max_tokens || a->max_tokens <= r->max_tokens) &&
           (!r->min_context || a->max_context >= r->min_context) &&
           (!r->max_context || a->max_context <= r->max_context) &&
           (!r->fits || r->fits(p->device->dev, p->config));
}

/* Nodes of one layer and segment are one block: no row crosses its border. */
static size_t block_end(const planner *p, size_t first)
{
    size_t end = first;
    while (end < p->n_nodes && p->nodes[end].layer == p->nodes[first].layer &&
           p->nodes[end].segment == p->nodes[first].segment)
        end++;
    return end;
}

/* One block of at most 64 nodes: what each must follow, and which of them are one stage.  Bit i of a set is
 * node first + i. */
typedef struct block {
    size_t first;
    unsigned n;
    uint64_t after[64]; /* earlier nodes that a node conflicts with */
    uint64_t with[64];  /* the nodes of its stage, itself included */
    uint16_t row[64];   /* index into the device's rows */
} block;

/* Must b, later in the model's order, stay behind a?  State slots of two layers never meet. */
static bool conflict(uint64_t a_reads, uint64_t a_writes, uint64_t b_reads, uint64_t b_writes, uint64_t apart)
{
    return (((a_writes & (b_reads | b_writes)) | (a_reads & b_writes)) & ~apart) != 0;
}

static void open_block(const planner *p, size_t first, size_t end, block *b)
{
    *b = (block){.first = first, .n = (unsigned)(end - first)};
    for (unsigned i = 0; i < b->n; i++) {
        const lily_node *n = &p->nodes[first + i];
        b->with[i] = lily_bit(i);
        for (unsigned k = 0; k < i; k++) {
            const lily_node *m = &p->nodes[first + k];
            if (conflict(m->reads, m->writes, n->reads, n->writes, 0)) b->after[i] |= lily_bit(k);
        }
    }
}

/* The first node of a stage that may run when `done` has run: everything outside it that one of its nodes
 * must follow is done.  b->n when there is none. */
static unsigned next_stage(const block *b, uint64_t done)
{
    for (unsigned i = 0; i < b->n; i++) {
        if (done & lily_bit(i)) continue;
        uint64_t needs = 0;
        for (unsigned j = i; j < b->n; j++)
            if (b->with[i] & lily_bit(j)) needs |= b->after[j];
        if (!(needs & ~b->with[i] & ~done)) return i;
    }
    return b->n;
}

static uint64_t all_nodes(const block *b)
{
    return b->n == 64 ? ~0ull : lily_bit(b->n) - 1;
}

static bool orderable(const block *b)
{
    uint64_t done = 0;
    for (unsigned i; (i = next_stage(b, done)) < b->n;) done |= b->with[i];
    return done == all_nodes(b);
}

/* Does a node outside this set of the block read what the set leaves in a slot? */
static bool read_outside(const planner *p, const block *b, uint64_t nodes, uint64_t slot)
{
    size_t i = p->n_nodes;
    for (unsigned k = 0; k < b->n; k++)
        if ((nodes & lily_bit(k)) && (p->nodes[b->first + k].writes & slot)) i = b->first + k + 1;
    for (; i < p->n_nodes; i++) {
        bool inside = i < b->first + b->n && (nodes & lily_bit(i - b->first));
        if (!inside && (p->nodes[i].reads & slot)) return true;
        if (p->nodes[i].writes & slot) return false;
    }
    return false;
}

/* Is a slot to be kept that only lives inside this set of the block?  A fused row need not write such a slot. */
static bool hides_kept_slot(const planner *p, const block *b, uint64_t nodes)
{
    uint64_t written = 0;
    for (unsigned k = 0; k < b->n; k++)
        if (nodes & lily_bit(k)) written |= p->nodes[b->first + k].writes;
    for (unsigned s = 0; s < N_SLOTS; s++)
        if ((written & p->ask->keep & p->scratch & lily_bit(s)) && !read_outside(p, b, nodes, lily_bit(s))) return true;
    return false;
}

/* Takes a row for its nodes if the block can still be ordered: a stage must not both need and be needed by
 * what stays outside it, nor two stages each other; and if it writes all slots that are to be kept. */
static void try_row(const planner *p, block *b, uint16_t row, uint64_t *left)
{
    const uint64_t steps = p->device->rows[row].steps;
    block with_row = *b;
    uint64_t nodes = 0;
    for (unsigned i = 0; i < b->n; i++)
        if (steps & lily_bit(p->nodes[b->first + i].step)) nodes |= lily_bit(i);
    for (unsigned i = 0; i < b->n; i++) {
        if (!(nodes & lily_bit(i))) continue;
        with_row.with[i] = nodes;
        with_row.row[i] = row;
    }
    if ((nodes & (nodes - 1)) && (!orderable(&with_row) || hides_kept_slot(p, b, nodes))) return;
    *b = with_row;
    *left &= ~steps;
}

/* Gives each node of a block a row, the device's preferred ones first. */
static int cover_block(const planner *p, block *b, lily_err *e)
{
    uint64_t left = 0;
    for (unsigned i = 0; i < b->n; i++) left |= lily_bit(p->nodes[b->first + i].step);
    for (uint16_t r = 0; r < p->device->n_rows; r++) {
        const lily_row *row = &p->device->rows[r];
        if (row->steps && (row->steps & left) == row->steps && row_applies(p, row)) try_row(p, b, r, &left);
    }
    for (unsigned i = 0; i < b->n; i++)
        if (left & lily_bit(p->nodes[b->first + i].step))
            return lily_fail(e, LILY_UNSUPPORTED, "device %s has no row for step %s", p->device->name,
                             lily_step_name(p->nodes[b->first + i].step));
    return LILY_OK;
}

/* ---- order ---- */

/* Adds the stages of one covered block. */
static void add_stages(planner *p, const block *b)
{
    uint64_t done = 0;
    for (unsigned i; (i = next_stage(b, done)) < b->n; done |= b->with[i]) {
        const lily_node *lead = &p->nodes[b->first + i];
        lily_stage *s = &p->stages[p->n_stages++];
        *s = (lily_stage){.row = b->row[i], .layer = lead->layer, .segment = lead->segment};
        for (unsigned j = 0; j < b->n; j++) {
            if (!(b->with[i] & lily_bit(j))) continue;
            const lily_node *n = &p->nodes[b->first + j];
            s->reads |= n->reads & ~s->writes; /* what the row itself wrote before is no input */
            s->writes |= n->writes;
            s->steps |= lily_bit(n->step);
        }
    }
}

/* Slots that only their own stage reads never reach memory: drop them from its writes. */
static void drop_inner_slots(planner *p)
{
    uint64_t live = p->ask->keep;
    for (size_t i = p->n_stages; i-- > 0;) {
        lily_stage *s = &p->stages[i];
        uint64_t wanted = s->writes & (live | ~p->scratch);
        live = (live & ~(s->writes & ~p->ask->keep)) | (s->reads & p->scratch);
        s->writes = wanted;
    }
}

/* ---- place ---- */

/* State slots of two layers are two memories. */
static uint64_t apart(const planner *p, const lily_stage *a, const lily_stage *b)
{
    return a->layer == b->layer ? 0 : p->states;
}

/* Levels of the true dependencies, each segment above the ones before.  Places are given by levels, so that
 * memory reuse never ties together stages that could run at once. */
static void find_levels(planner *p)
{
    uint16_t top = 0, floor = 0;
    for (size_t i = 0; i < p->n_stages; i++) {
        lily_stage *b = &p->stages[i];
        if (i && b->segment != p->stages[i - 1].segment) floor = (uint16_t)(top + 1);
        b->level = floor;
        for (size_t j = 0; j < i; j++) {
            const lily_stage *a = &p->stages[j];
            if (a->level >= b->level && conflict(a->reads, a->writes, b->reads, b->writes, apart(p, a, b)))
                b->level = (uint16_t)(a->level + 1);
        }
        if (b->level > top) top = b->level;
    }
}

/* The order becomes that of the levels, within one the model's: a slot's bytes, reused from one level to the
 * next, are then reused in this order too, and a device that runs in order needs one barrier a level.  Nearly
 * sorted already, since a layer ends before the next begins. */
static void sort_by_level(planner *p)
{
    for (size_t i = 1; i < p->n_stages; i++) {
        lily_stage s = p->stages[i];
        size_t at = i;
        for (; at && p->stages[at - 1].level > s.level; at--) p->stages[at] = p->stages[at - 1];
        p->stages[at] = s;
    }
}

/* For each slot the slots that are needed at some moment when it is needed. */
static void find_interference(const planner *p, uint64_t *live, size_t n_levels, uint64_t interferes[N_SLOTS])
{
    const uint64_t always = p->outputs | p->ask->keep;
    memset(live, 0, n_levels * sizeof *live);
    for (size_t i = 0; i < p->n_stages; i++) {
        uint64_t open = p->stages[i].writes & p->scratch;
        for (unsigned s = 0; s < N_SLOTS; s++) {
            if (!(open & lily_bit(s))) continue;
            /* From its writer to the last reader of this value. */
            size_t last = p->stages[i].level;
            for (size_t j = i + 1; j < p->n_stages; j++) {
                const lily_stage *b = &p->stages[j];
                if ((b->reads & lily_bit(s)) && b->level > last) last = b->level;
                if (b->writes & lily_bit(s)) break;
            }
            for (size_t l = p->stages[i].level; l <= last; l++) live[l] |= lily_bit(s);
        }
    }
    memset(interferes, 0, N_SLOTS * sizeof *interferes);
    for (size_t l = 0; l < n_levels; l++)
        for (unsigned s = 0; s < N_SLOTS; s++)
            if ((live[l] | always) & lily_bit(s)) interferes[s] |= live[l] | always;
}

/* First fit, largest slots first; a slot may share bytes with any that it does not interfere with. */
static void place_slots(planner *p, const uint64_t interferes[N_SLOTS], uint64_t used)
{
    lily_plan *plan = &p->out->plan;
    uint64_t left = used;
    while (left) {
        unsigned best = N_SLOTS;
        for (unsigned s = 0; s < N_SLOTS; s++)
            if ((left & lily_bit(s)) && (best == N_SLOTS || plan->slot_bytes[s] > plan->slot_bytes[best]))
                best = s;
        size_t at = 0;
        for (bool moved = true; moved;) {
            moved = false;
            for (unsigned s = 0; s < N_SLOTS; s++) {
                if (plan->slot_at[s] == LILY_NO_PLACE || !(interferes[best] & lily_bit(s))) continue;
                size_t end = plan->slot_at[s] + align_up(plan->slot_bytes[s]);
                if (at < end && plan->slot_at[s] < at + plan->slot_bytes[best]) {
                    at = end;
                    moved = true;
                }
            }
        }
        plan->slot_at[best] = at;
        if (at + align_up(plan->slot_bytes[best]) > plan->scratch_bytes)
            plan->scratch_bytes = at + align_up(plan->slot_bytes[best]);
        left &= ~lily_bit(best);
    }
}

static void place_workspaces(planner *p)
{
    lily_plan *plan = &p->out->plan;
    for (size_t i = 0; i < p->n_stages; i++) {
        uint16_t r = p->stages[i].row;
        const lily_row *row = &p->device->rows[r];
        if (!row->workspace || plan->workspace_at[r] != LILY_NO_PLACE) continue;
        size_t bytes = row->workspace(p->device->dev, p->config, p->ask->max_tokens, p->ask->max_context);
        plan->workspace_at[r] = plan->scratch_bytes;
        plan->scratch_bytes += align_up(bytes);
    }
}

static int place(planner *p, lily_err *e)
{
    lily_plan *plan = &p->out->plan;
    uint64_t used = p->outputs | p->ask->keep, interferes[N_SLOTS];
    size_t n_levels = 0;
    for (size_t i = 0; i < p->n_stages; i++) {
        used |= p->stages[i].writes & p->scratch;
        if (p->stages[i].level >= n_levels) n_levels = p->stages[i].level + 1u;
    }
    uint64_t *live = lily_calloc(n_levels, sizeof *live);
    if (!live) return lily_no_memory(e, n_levels * sizeof *live, "slot lifetimes");
    find_interference(p, live, n_levels, interferes);
    lily_free(live);

    for (unsigned s = 0; s < N_SLOTS; s++) {
        plan->slot_at[s] = LILY_NO_PLACE;
        uint64_t bytes = p->device->slot_bytes
                             ? p->device->slot_bytes(p->device->dev, s, p->config, p->ask->max_tokens)
                             : 4 * lily_slot_elements(s, p->config, p->ask->max_tokens);
        plan->slot_bytes[s] = used & lily_bit(s) ? (size_t)bytes : 0;
    }
    for (size_t r = 0; r < LILY_MAX_ROWS; r++) plan->workspace_at[r] = LILY_NO_PLACE;
    place_slots(p, interferes, used);
    place_workspaces(p);
    return LILY_OK;
}

/* ---- wait ---- */

/* Every slot that shares a byte with one of the set, the set included. */
static uint64_t aliases(const lily_plan *plan, uint64_t set)
{
    uint64_t all = set;
    for (unsigned s = 0; s < N_SLOTS; s++) {
        if (!(set & lily_bit(s)) || plan->slot_at[s] == LILY_NO_PLACE) continue;
        for (unsigned t = 0; t < N_SLOTS; t++)
            if (plan->slot_at[t] != LILY_NO_PLACE &&
                plan->slot_at[s] < plan->slot_at[t] + plan->slot_bytes[t] &&
                plan->slot_at[t] < plan->slot_at[s] + plan->slot_bytes[s])
                all |= lily_bit(t);
    }
    return all;
}

/* Must stage b, later in the plan, wait for a?  `touched` has for each stage the slots that its writes reach:
 * on one side only, since two slots that each share bytes with a third need not share any. */
static bool must_follow(const planner *p, size_t a, size_t b, const uint64_t *touched)
{
    const lily_stage *s = &p->stages[a], *t = &p->stages[b];
    uint64_t hit = (touched[a] & (t->reads | t->writes)) | (s->reads & touched[b]);
    return (hit & ~apart(p, s, t)) != 0;
}

/* Waits, levels and barriers from the places.  A wait that another one implies is dropped: going back from
 * the newest stage, whatever an accepted wait itself follows is already followed. */
static int find_waits(planner *p, lily_err *e)
{
    size_t n = p->n_stages, words = (n + 63) / 64, barrier_from = 0;
    uint64_t *follows = lily_calloc(n * words, sizeof *follows), *touched = lily_calloc(n, sizeof *touched);
    uint16_t *wait = lily_calloc(n, sizeof *wait);
    int rc = LILY_OK;
    if (!follows || !touched || !wait) rc = lily_no_memory(e, n * words * 8, "waits");
    for (size_t i = 0; rc == LILY_OK && i < n; i++) {
        lily_stage *b = &p->stages[i];
        uint64_t *mine = follows + i * words;
        touched[i] = aliases(&p->out->plan, b->writes);
        b->level = b->n_wait = 0;
        for (size_t j = i; j-- > 0;) {
            if ((mine[j / 64] >> (j % 64) & 1) || !must_follow(p, j, i, touched)) continue;
            wait[b->n_wait++] = (uint16_t)j;
            mine[j / 64] |= lily_bit(j % 64);
            for (size_t w = 0; w < words; w++) mine[w] |= follows[j * words + w];
            if (p->stages[j].level >= b->level) b->level = (uint16_t)(p->stages[j].level + 1);
        }
        for (size_t j = barrier_from; j < i && !b->barrier; j++) b->barrier = must_follow(p, j, i, touched);
        if (b->barrier) {
            barrier_from = i;
            p->out->plan.n_barriers++;
        }
        if (b->level >= p->out->plan.n_levels) p->out->plan.n_levels = b->level + 1u;
        uint16_t *kept = lily_arena_calloc(&p->out->arena, b->n_wait, sizeof *kept);
        if (!kept)
            rc = lily_no_memory(e, n, "waits");
        else if (b->n_wait)
            memcpy(kept, wait, b->n_wait * sizeof *kept);
        b->wait = kept;
    }
    lily_free(follows);
    lily_free(touched);
    lily_free(wait);
    return rc;
}

static void find_deaths(planner *p)
{
    const uint64_t scratch = p->scratch & ~p->ask->keep;
    uint64_t live = 0;
    for (size_t i = p->n_stages; i-- > 0;) {
        lily_stage *s = &p->stages[i];
        s->dies = (s->reads | s->writes) & scratch & ~live;
        live = (live & ~s->writes) | (s->reads & p->scratch);
    }
}

/* ---- make ---- */

static int make(planner *p, lily_err *e)
{
    lily_plan *plan = &p->out->plan;
    TRY(lily_graph_build(&p->nodes, &p->n_nodes, p->config, p->ask->mode, e));
    if (p->n_nodes > UINT16_MAX)
        return lily_fail(e, LILY_UNSUPPORTED, "%zu steps are more than a plan holds", p->n_nodes);
    p->stages = lily_arena_calloc(&p->out->arena, p->n_nodes, sizeof *p->stages);
    if (!p->stages) return lily_no_memory(e, p->n_nodes * sizeof *p->stages, "stages");
    for (size_t first = 0, end; first < p->n_nodes; first = end) {
        block b;
        end = block_end(p, first);
        if (end - first > 64) return lily_fail(e, LILY_INTERNAL, "a layer has %zu steps", end - first);
        open_block(p, first, end, &b);
        TRY(cover_block(p, &b, e));
        add_stages(p, &b);
        plan->segment_end[p->nodes[first].segment] = (uint32_t)p->n_stages;
    }
    drop_inner_slots(p);
    find_levels(p);
    sort_by_level(p);
    TRY(place(p, e));
    TRY(find_waits(p, e));
    find_deaths(p);

    plan->mode = p->ask->mode;
    plan->max_tokens = p->ask->max_tokens;
    plan->max_context = p->ask->max_context;
    plan->ablated = p->ask->ablated;
    plan->stages = p->stages;
    plan->n_stages = (uint32_t)p->n_stages;
    return LILY_OK;
}

int lily_plan_make(lily_plan **out, const lily_plan_device *d, const lily_config *c, const lily_plan_ask *ask,
                   lily_err *e)
{
    *out = NULL;
    if (d->n_rows > LILY_MAX_ROWS)
        return lily_fail(e, LILY_INTERNAL, "device %s has %zu rows, %d is the most", d->name, d->n_rows,
                         LILY_MAX_ROWS);
    if (ask->max_tokens < 1 || (ask->mode == LILY_DECODE && ask->max_tokens != 1))
        return lily_fail(e, LILY_ARGUMENT, "a plan cannot be made for %u tokens", ask->max_tokens);
    planner p = {.device = d,
                 .config = c,
                 .ask = ask,
                 .scratch = slots_of_kind(SLOT_SCRATCH),
                 .states = slots_of_kind(SLOT_STATE),
                 .outputs = slots_of_kind(SLOT_OUTPUT),
                 .out = lily_calloc(1, sizeof *p.out)};
    if (!p.out) return lily_no_memory(e, sizeof *p.out, "a plan");
    int rc = make(&p, e);
    lily_free(p.nodes);
    if (rc == LILY_OK)
        *out = &p.out->plan;
    else
        lily_plan_free(&p.out->plan);
    return rc;
}

void lily_plan_free(lily_plan *p)
{
    if (!p) return;
    owned_plan *o = (owned_plan *)p;
    lily_arena_free(&o->arena);
    lily_free(o);
}
