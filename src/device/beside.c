#include "device/beside.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

uint64_t lily_beside_slots(void)
{
    uint64_t set = lily_bit(SLOT_LOGITS) | lily_bit(SLOT_TOKEN);
    for (unsigned s = 0; s < N_SLOTS; s++)
        if (lily_slot_kind(s) == SLOT_SCRATCH) set |= lily_bit(s);
    return set;
}

static bool is_whole_numbers(unsigned slot)
{
    return slot == SLOT_TOPI || slot == SLOT_COUNTS || slot == SLOT_OFFSETS || slot == SLOT_ORDER || slot == SLOT_PLACE ||
           slot == SLOT_TOKEN;
}

double lily_beside_off(const float *a, const float *b, size_t n)
{
    double most = 0, square = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - b[i]) - fabs((double)b[i]) / 256;
        if (!(d <= most)) most = d;
        square += (double)b[i] * b[i];
    }
    return most == 0 ? 0 : most / sqrt(square / (double)n);
}

static double distance(const float *a, const float *b, size_t n)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        all += (double)b[i] * b[i];
    }
    return off == 0 ? 0 : sqrt(off / all);
}

/* ---- what ref writes ---- */

struct lily_beside_value {
    uint16_t layer;
    uint64_t steps;             /* one bit */
    unsigned slot;
    float *at;                  /* as peek has it */
};

static int keep_value(lily_beside *b, const lily_stage *s, unsigned slot, lily_err *e)
{
    const size_t n = (size_t)lily_slot_elements(slot, b->config, b->tokens);
    if (b->n_values == b->room_values) {
        const size_t room = b->room_values ? 2 * b->room_values : 64;
        struct lily_beside_value *more = lily_realloc(b->value, room, sizeof *more);
        if (!more) return lily_no_memory(e, room * sizeof *more, "what ref wrote");
        b->value = more;
        b->room_values = room;
    }
    float *at = lily_calloc(n, sizeof *at);
    if (!at) return lily_no_memory(e, n * sizeof *at, "what ref wrote");
    b->value[b->n_values++] = (struct lily_beside_value){s->layer, s->steps, slot, at};
    return lily_dev_ref.peek(b->ref, b->ref_exec, slot, at, n * sizeof *at, e);
}

static void keep_stage(void *arg, lily_exec *x, uint32_t stage)
{
    lily_beside *b = arg;
    (void)x;
    const lily_stage *s = &b->ref_plan->stages[stage];
    for (unsigned slot = 0; b->rc == LILY_OK && slot < N_SLOTS; slot++)
        if (s->writes & b->slots & lily_bit(slot)) b->rc = keep_value(b, s, slot, b->e);
}

static void forget_values(lily_beside *b)
{
    for (size_t i = 0; i < b->n_values; i++) lily_free(b->value[i].at);
    lily_free(b->value);
    b->value = NULL;
    b->n_values = b->room_values = 0;
}

/* The value after the last of a stage's steps that writes the slot. */
static const float *value_of(const lily_beside *b, const lily_stage *s, unsigned slot)
{
    for (size_t i = b->n_values; i-- > 0;) {
        const struct lily_beside_value *v = &b->value[i];
        if (v->layer == s->layer && (v->steps & s->steps) && v->slot == slot) return v->at;
    }
    return NULL;
}

/* ---- what the device writes ---- */

static int compare_slot(lily_beside *b, uint32_t stage, unsigned slot, lily_err *e)
{
    const size_t n = (size_t)lily_slot_elements(slot, b->config, b->tokens);
    const float *want = value_of(b, &b->plan->stages[stage], slot);
    if (!want) return lily_fail(e, LILY_INTERNAL, "ref did not write slot %s", lily_slot_name(slot));
    float *mine = lily_calloc(n, sizeof *mine);
    if (!mine) return lily_no_memory(e, n * sizeof *mine, "a slot");
    int rc = b->ops->peek(b->dev, b->exec, slot, mine, n * sizeof *mine, e);
    if (rc == LILY_OK) {
        double off = lily_beside_off(mine, want, n);
        if (is_whole_numbers(slot)) off = memcmp(mine, want, n * sizeof *mine) == 0 ? 0 : (double)INFINITY;
        b->judge(b->user, stage, slot, off);
        rc = b->ops->poke(b->dev, b->exec, slot, want, n * sizeof *mine, e);
    }
    lily_free(mine);
    return rc;
}

static void compare_stage(void *arg, lily_exec *x, uint32_t stage)
{
    lily_beside *b = arg;
    (void)x;
    b->next = stage + 1;
    for (unsigned slot = 0; b->rc == LILY_OK && slot < N_SLOTS; slot++)
        if (b->plan->stages[stage].writes & b->slots & lily_bit(slot)) b->rc = compare_slot(b, stage, slot, b->e);
}

/* ---- runs ---- */

static int run_one(const lily_dev_ops *ops, lily_dev *dev, lily_exec *x, const lily_lane *lane, lily_err *e)
{
    uint64_t ticket;
    lily_done done;
    TRY(ops->submit(dev, x, LILY_FORWARD, LILY_PICK, lane, 1, &ticket, e));
    return ops->wait(dev, ticket, &done, 1, e);
}

static int watched_run(lily_beside *b, const lily_dev_ops *ops, lily_dev *dev, lily_exec *x, lily_watch_fn *watch,
                       const lily_lane *lane, lily_err *e)
{
    b->rc = LILY_OK;
    b->e = e;
    ops->watch(x, watch, b);
    int rc = run_one(ops, dev, x, lane, e);
    ops->watch(x, NULL, NULL);
    return rc != LILY_OK ? rc : b->rc;
}

int lily_beside_run(lily_beside *b, const lily_lane *given, lily_err *e)
{
    lily_lane lane = *given;
    lane.state = b->ref_state;
    b->tokens = lane.n_tokens;
    b->next = UINT32_MAX;
    int rc = watched_run(b, &lily_dev_ref, b->ref, b->ref_exec, keep_stage, &lane, e);
    if (rc == LILY_OK) {
        lane.state = b->state;
        b->next = 0;
        rc = watched_run(b, b->ops, b->dev, b->exec, compare_stage, &lane, e);
    }
    forget_values(b);
    return rc;
}

/* The last stage of a layer that writes its state `slot`. */
static uint32_t writer_of(const lily_plan *p, uint16_t layer, unsigned slot)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < p->n_stages; i++)
        if (p->stages[i].layer == layer && (p->stages[i].writes & lily_bit(slot))) last = i;
    return last;
}

static int compare_state(lily_beside *b, uint16_t layer, unsigned slot, lily_err *e)
{
    const lily_config *c = b->config;
    const size_t room = slot == SLOT_KV  ? 2 * (size_t)lily_dev_ref.state_position(b->ref_state) * lily_kv_width(c)
                        : slot == SLOT_S ? (size_t)lily_value_width(c) * c->lin_k_dim
                                         : (c->conv_kernel - 1) * (size_t)lily_conv_width(c);
    size_t n = 0, m = 0;
    float *mine = lily_calloc(2 * room, sizeof *mine);
    if (!mine) return lily_no_memory(e, 2 * room * sizeof *mine, "a state");
    int rc = b->ops->peek_state(b->dev, b->state, slot, layer, mine, room, &n, e);
    if (rc == LILY_OK) rc = lily_dev_ref.peek_state(b->ref, b->ref_state, slot, layer, mine + room, room, &m, e);
    if (rc == LILY_OK)
        b->judge(b->user, writer_of(b->plan, layer, slot), slot, n == m ? distance(mine, mine + room, n) : (double)INFINITY);
    lily_free(mine);
    return rc;
}

int lily_beside_states(lily_beside *b, lily_err *e)
{
    for (uint16_t i = 0; i < b->config->layers; i++) {
        if (b->config->full_attention[i]) {
            TRY(compare_state(b, i, SLOT_KV, e));
            continue;
        }
        TRY(compare_state(b, i, SLOT_TAIL, e));
        TRY(compare_state(b, i, SLOT_S, e));
    }
    return LILY_OK;
}
