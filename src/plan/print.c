/* print.c - a plan for people, and its hash for results. */
#include <inttypes.h>
#include <string.h>

#include "plan/plan.h"

static void print_set(lily_buf *out, uint64_t set, const char *(*name)(unsigned))
{
    const char *space = "";
    for (unsigned i = 0; i < 64; i++) {
        if (!(set & lily_bit(i))) continue;
        lily_buf_printf(out, "%s%s", space, name(i));
        space = " ";
    }
    if (!set) lily_buf_puts(out, "-");
}

static void print_layer(lily_buf *out, uint16_t layer)
{
    if (layer == LILY_BEFORE_LAYERS)
        lily_buf_printf(out, "%6s", "in");
    else
        lily_buf_printf(out, "%6u", layer);
}

static void print_stage(const lily_plan *p, const lily_plan_device *d, uint32_t i, lily_buf *out)
{
    const lily_stage *s = &p->stages[i];
    lily_buf_printf(out, "%5" PRIu32, i);
    print_layer(out, s->layer);
    lily_buf_printf(out, "%6u  %c %-18s {", s->level, s->barrier ? '|' : ' ', d->rows[s->row].name);
    print_set(out, s->steps, lily_step_name);
    lily_buf_puts(out, "}  ");
    print_set(out, s->reads, lily_slot_name);
    lily_buf_puts(out, " -> ");
    print_set(out, s->writes, lily_slot_name);
    lily_buf_puts(out, "  after");
    for (uint16_t w = s->n_wait; w-- > 0;) lily_buf_printf(out, " %u", s->wait[w]);
    lily_buf_puts(out, s->n_wait ? "\n" : " -\n");
}

static uint32_t layer_end(const lily_plan *p, uint32_t first)
{
    uint32_t end = first;
    while (end < p->n_stages && p->stages[end].layer == p->stages[first].layer) end++;
    return end;
}

/* Do the stages from a on, n of them, do the same as those from b on? */
static bool same_layer(const lily_plan *p, uint32_t a, uint32_t b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const lily_stage *s = &p->stages[a + i], *t = &p->stages[b + i];
        if (s->row != t->row || s->reads != t->reads || s->writes != t->writes || s->barrier != t->barrier ||
            s->n_wait != t->n_wait)
            return false;
        for (uint16_t w = 0; w < s->n_wait; w++)
            if (a + i - s->wait[w] != b + i - t->wait[w]) return false;
    }
    return true;
}

/* The first stage of an earlier layer that this one repeats; `first` itself when there is none. */
static uint32_t repeats(const lily_plan *p, uint32_t first, uint32_t end)
{
    for (uint32_t a = 0; a < first; a = layer_end(p, a))
        if (layer_end(p, a) - a == end - first && same_layer(p, a, first, end - first)) return a;
    return first;
}

static void print_stages(const lily_plan *p, const lily_plan_device *d, bool whole, lily_buf *out)
{
    lily_buf_printf(out, "%5s%6s%6s  %c %-18s {steps}  reads -> writes  after stages\n", "stage", "layer", "level", '|',
                    "row");
    for (uint32_t first = 0, end; first < p->n_stages; first = end) {
        end = layer_end(p, first);
        uint32_t like = whole ? first : repeats(p, first, end);
        if (like != first) {
            lily_buf_printf(out, "%5" PRIu32 "%6u%6u    as layer %u\n", first, p->stages[first].layer,
                            p->stages[first].level, p->stages[like].layer);
            continue;
        }
        for (uint32_t i = first; i < end; i++) print_stage(p, d, i, out);
    }
}

static void print_memory(const lily_plan *p, lily_buf *out)
{
    lily_buf_puts(out, "scratch:");
    for (unsigned s = 0; s < N_SLOTS; s++)
        if (p->slot_at[s] != LILY_NO_PLACE)
            lily_buf_printf(out, " %s %zu+%zu", lily_slot_name(s), p->slot_at[s], p->slot_bytes[s]);
    lily_buf_putc(out, '\n');
}

int lily_plan_print(const lily_plan *p, const lily_plan_device *d, bool whole, lily_buf *out, lily_err *e)
{
    lily_buf_printf(out, "plan: device %s, %s, at most %" PRIu32 " tokens a run, context %" PRIu32 "\nwithout:", d->name,
                    p->mode == LILY_DECODE ? "decode" : "prefill", p->max_tokens, p->max_context);
    for (unsigned i = 0; i < N_ABLATIONS; i++)
        if (p->ablated & lily_bit(i)) lily_buf_printf(out, " %s", lily_ablation_name(i));
    lily_buf_puts(out, p->ablated ? "\n" : " nothing\n");
    print_stages(p, d, whole, out);
    print_memory(p, out);
    uint32_t waits = 0;
    for (uint32_t i = 0; i < p->n_stages; i++) waits += p->stages[i].n_wait;
    lily_buf_printf(out,
                    "%" PRIu32 " stages in %" PRIu32 " levels, %" PRIu32 " waits, %" PRIu32
                    " barriers in order, %zu scratch bytes, hash %016" PRIx64 "\n",
                    p->n_stages, p->n_levels, waits, p->n_barriers, p->scratch_bytes, lily_plan_hash(p, d));
    return lily_buf_ok(out, "the plan's text", e);
}

/* FNV-1a: short, and no secret depends on it. */
static void hash_bytes(uint64_t *h, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) *h = (*h ^ p[i]) * 0x100000001b3u;
}

uint64_t lily_plan_hash(const lily_plan *p, const lily_plan_device *d)
{
    uint64_t h = 0xcbf29ce484222325u;
    hash_bytes(&h, d->name, strlen(d->name));
    hash_bytes(&h, &p->max_tokens, sizeof p->max_tokens);
    for (uint32_t i = 0; i < p->n_stages; i++) {
        const lily_stage *s = &p->stages[i];
        hash_bytes(&h, d->rows[s->row].name, strlen(d->rows[s->row].name));
        hash_bytes(&h, &s->layer, sizeof s->layer);
        hash_bytes(&h, s->wait, s->n_wait * sizeof *s->wait);
    }
    hash_bytes(&h, p->slot_at, sizeof p->slot_at);
    return h;
}
