/* prove.c - see prove.h. */
#include "run/prove.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "device/beside.h"

enum {
    FEW_EXPERTS = 16, FEW_WORDS = 4096,
    SMALL_HIDDEN = 512, SMALL_INTER = 128, SMALL_K_HEADS = 2,
    PROMPT = 72,                /* tokens: more than one block of those that rows cut prompts into */
    REPLY = 2,
};

/* ---- two models out of one ---- */

typedef struct cut {
    lily_config config;
    lily_layer layer[2];
    lily_model model;
    bool possible;
} cut;

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* The first rows of the first experts; with fewer columns the same bytes are taken for a matrix of that shape. */
static lily_matrix piece(cut *c, const lily_matrix *m, uint32_t experts, uint32_t rows, uint32_t cols)
{
    lily_matrix p = *m;
    p.experts = experts;
    p.rows = rows;
    p.cols = cols;
    if (cols == m->cols) {
        if (m->step == m->rows && experts == 1) p.step = rows;
        c->possible &= rows <= m->rows && experts <= m->experts;
        return p;
    }
    const uint64_t whole = (uint64_t)m->rows * m->cols * (m->step == m->rows ? m->experts : 1);
    p.step = rows;
    c->possible &= (uint64_t)experts * rows * cols <= whole && (!m->group || cols % m->group == 0);
    return p;
}

static void cut_layer(cut *c, const lily_layer *from, bool attention, lily_layer *y)
{
    const lily_config *n = &c->config;
    const uint32_t h = n->hidden, value = lily_value_width(n), heads = n->lin_v_heads;
    *y = *from;
    if (attention) {
        y->q = piece(c, &from->q, 1, 2 * lily_q_width(n), h);
        y->k = piece(c, &from->k, 1, lily_kv_width(n), h);
        y->v = piece(c, &from->v, 1, lily_kv_width(n), h);
        y->o = piece(c, &from->o, 1, h, lily_q_width(n));
    } else {
        y->qkv = piece(c, &from->qkv, 1, lily_conv_width(n), h);
        y->z = piece(c, &from->z, 1, value, h);
        y->b = piece(c, &from->b, 1, heads, h);
        y->a = piece(c, &from->a, 1, heads, h);
        y->out = piece(c, &from->out, 1, h, value);
    }
    y->router = piece(c, &from->router, 1, n->experts, h);
    y->shared_gate = piece(c, &from->shared_gate, 1, 1, h);
    y->sh_gate = piece(c, &from->sh_gate, 1, n->shared_inter, h);
    y->sh_up = piece(c, &from->sh_up, 1, n->shared_inter, h);
    y->sh_down = piece(c, &from->sh_down, 1, h, n->shared_inter);
    y->ex_gate = piece(c, &from->ex_gate, n->experts, n->expert_inter, h);
    y->ex_up = piece(c, &from->ex_up, n->experts, n->expert_inter, h);
    y->ex_down = piece(c, &from->ex_down, n->experts, h, n->expert_inter);
}

static void shrink(lily_config *c)
{
    const uint32_t share = c->q_heads / c->kv_heads, values = c->lin_v_heads / c->lin_k_heads;
    c->hidden = least(c->hidden, SMALL_HIDDEN);
    c->expert_inter = least(c->expert_inter, SMALL_INTER);
    c->shared_inter = least(c->shared_inter, SMALL_INTER);
    c->kv_heads = 1;
    c->q_heads = share;
    c->lin_k_heads = least(c->lin_k_heads, SMALL_K_HEADS);
    c->lin_v_heads = c->lin_k_heads * values;
}

static void make_cut(cut *c, const lily_model *m, bool small)
{
    const lily_config *whole = m->config;
    *c = (cut){.config = *whole, .model = *m, .possible = true};
    lily_config *n = &c->config;
    n->layers = 0;
    n->experts = least(whole->experts, whole->top_k > FEW_EXPERTS ? whole->top_k : FEW_EXPERTS);
    n->vocab = least(whole->vocab, FEW_WORDS);
    if (small) shrink(n);
    for (int attention = 0; attention < 2; attention++) {
        uint32_t i = 0;
        while (i < whole->layers && whole->full_attention[i] != attention) i++;
        if (i == whole->layers) continue;
        n->full_attention[n->layers] = attention;
        cut_layer(c, &m->layer[i], attention, &c->layer[n->layers++]);
    }
    c->model.embed = piece(c, &m->embed, 1, n->vocab, n->hidden);
    c->model.head = piece(c, &m->head, 1, n->vocab, n->hidden);
    c->model.config = n;
    c->model.layer = c->layer;
}

/* ---- one of them on both devices ---- */

typedef struct prover {
    const lily_prove_ask *ask;
    uint64_t *refused;
    const cut *cut;
    lily_beside b;
    lily_weights *weights, *ref_weights;
    uint32_t n_refused;         /* in this pass */
} prover;

static void refuse(prover *p, uint32_t stage, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void refuse(prover *p, uint32_t stage, const char *fmt, ...)
{
    const uint16_t row = p->b.plan->stages[stage].row;
    char why[256];
    va_list list;
    if (p->refused[row / 64] & lily_bit(row % 64)) return;
    va_start(list, fmt);
    vsnprintf(why, sizeof why, fmt, list);
    va_end(list);
    p->refused[row / 64] |= lily_bit(row % 64);
    p->n_refused++;
    lily_log(LILY_LOG_WARN, "device %s: row %s is left out: %s", p->b.ops->name, p->b.ops->rows[row].name, why);
}

static void judge(void *user, uint32_t stage, unsigned slot, double off)
{
    prover *p = user;
    const lily_row *row = &p->b.ops->rows[p->b.plan->stages[stage].row];
    const double of_states = 0.02, declared = (double)row->tolerance;
    const double allowed = lily_slot_kind(slot) == SLOT_STATE && declared < of_states ? of_states : declared;
    lily_log(LILY_LOG_DEBUG, "proof: row %s, slot %s: off by %.3g, %.3g is allowed", row->name, lily_slot_name(slot), off, allowed);
    if (!(off <= allowed))
        refuse(p, stage, "its %s differs from ref's by %.3g, %.3g is allowed", lily_slot_name(slot), off, allowed);
}

static int make_exec(const lily_dev_ops *ops, lily_dev *dev, const lily_weights *w, const lily_config *c, const lily_plan_ask *ask,
                     const uint64_t *refused, lily_plan **plan, lily_exec **x, lily_err *e)
{
    lily_plan_device d = lily_device_for_plan(ops, dev);
    for (size_t i = 0; refused && i < LILY_MAX_ROWS / 64; i++) d.refused[i] = refused[i];
    TRY(lily_plan_make(plan, &d, c, ask, e));
    return ops->prepare(dev, w, *plan, x, e);
}

/* n tokens in runs of `each`; a run that fails is the fault of the row at which it stopped. */
static int run_tokens(prover *p, uint32_t n, uint32_t each, lily_err *e)
{
    int32_t tokens[PROMPT];
    const lily_pick greedy = {.top_p = 1, .repetition = 1, .n_vocab = (int32_t)p->cut->config.vocab};
    for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)((i * 7919 + 13) % p->cut->config.vocab);
    for (uint32_t i = 0; i < n; i += each) {
        const lily_lane lane = {.tokens = tokens + i, .n_tokens = each, .pick = &greedy};
        int rc = lily_beside_run(&p->b, &lane, e);
        if (rc == LILY_NO_MEMORY || (rc != LILY_OK && p->b.next >= p->b.plan->n_stages)) return rc;
        if (rc == LILY_OK) continue;
        refuse(p, p->b.next, "%s", e->text);
        return LILY_OK;
    }
    return LILY_OK;
}

/* A plan for n tokens takes the rows that one for a chunk does, and less memory, unless a row looks at how many. */
static uint32_t most_tokens(const prover *p, uint32_t n)
{
    const uint32_t chunk = p->ask->chunk;
    for (size_t i = 0; i < p->b.ops->n_rows; i++) {
        const lily_row *r = &p->b.ops->rows[i];
        if ((r->min_tokens > n) != (r->min_tokens > chunk) || (r->max_tokens && (r->max_tokens < n) != (r->max_tokens < chunk)))
            return chunk;
    }
    return n;
}

static int new_state(const lily_dev_ops *ops, lily_dev *dev, const lily_weights *w, lily_state **s, lily_err *e)
{
    TRY(ops->state_new(dev, w, s, e));
    return ops->state_grow(dev, *s, PROMPT, e);
}

/* From an empty state, so that what one row leaves in it is not another's difference. */
static int prove_mode(prover *p, enum lily_mode mode, uint32_t n, lily_err *e)
{
    const lily_config *c = &p->cut->config;
    lily_plan *plan = NULL, *ref_plan = NULL;
    const uint32_t each = mode == LILY_DECODE ? 1 : n, context = p->ask->context > PROMPT ? p->ask->context : PROMPT;
    const lily_plan_ask ask = {mode, mode == LILY_DECODE ? 1 : most_tokens(p, n), context, p->ask->ablated, 0};
    const lily_plan_ask plain = {mode, each, context, 0, 0};
    lily_beside *b = &p->b;
    b->exec = b->ref_exec = NULL;
    b->state = b->ref_state = NULL;
    int rc = new_state(b->ops, b->dev, p->weights, &b->state, e);
    if (rc == LILY_OK) rc = new_state(&lily_dev_ref, b->ref, p->ref_weights, &b->ref_state, e);
    if (rc == LILY_OK) rc = make_exec(b->ops, b->dev, p->weights, c, &ask, p->refused, &plan, &b->exec, e);
    if (rc == LILY_OK) rc = make_exec(&lily_dev_ref, b->ref, p->ref_weights, c, &plain, NULL, &ref_plan, &b->ref_exec, e);
    b->plan = plan;
    b->ref_plan = ref_plan;
    if (rc == LILY_OK) rc = run_tokens(p, n, each, e);
    if (rc == LILY_OK && p->n_refused == 0) rc = lily_beside_states(b, e);
    if (b->exec) b->ops->release(b->dev, b->exec);
    if (b->ref_exec) lily_dev_ref.release(b->ref, b->ref_exec);
    lily_plan_free(plan);
    lily_plan_free(ref_plan);
    if (b->state) b->ops->state_free(b->dev, b->state);
    if (b->ref_state) lily_dev_ref.state_free(b->ref, b->ref_state);
    return rc;
}

/* With the rows that are left; p->n_refused of them were wrong. */
static int pass(prover *p, uint32_t prompt, lily_err *e)
{
    p->n_refused = 0;
    if (prompt) TRY(prove_mode(p, LILY_PREFILL, prompt, e));
    return p->n_refused ? LILY_OK : prove_mode(p, LILY_DECODE, REPLY, e);
}

static int prove_cut(prover *p, const cut *c, uint32_t prompt, lily_err *e)
{
    const lily_dev_ops *ops = p->b.ops;
    p->cut = c;
    p->b.config = &c->config;
    p->weights = p->ref_weights = NULL;
    if (ops->look) ops->look(p->b.dev, &c->model);
    int rc = ops->load(p->b.dev, &c->model, &p->weights, e);
    if (rc == LILY_OK) rc = lily_dev_ref.load(p->b.ref, &c->model, &p->ref_weights, e);
    do {
        if (rc == LILY_OK) rc = pass(p, prompt, e);
    } while (rc == LILY_OK && p->n_refused > 0);
    if (p->weights) ops->unload(p->b.dev, p->weights);
    if (p->ref_weights) lily_dev_ref.unload(p->b.ref, p->ref_weights);
    return rc;
}

int lily_prove(const lily_dev_ops *ops, lily_dev *dev, const lily_model *model, const lily_prove_ask *ask,
               uint64_t refused[LILY_MAX_ROWS / 64], lily_err *e)
{
    const uint64_t start = lily_now_ns();
    prover p = {.ask = ask, .refused = refused, .b = {.ops = ops, .dev = dev, .slots = lily_beside_slots(), .judge = judge}};
    cut *cuts = lily_calloc(2, sizeof *cuts);
    if (!cuts) return lily_no_memory(e, 2 * sizeof *cuts, "the proof of rows");
    p.b.user = &p;
    make_cut(&cuts[0], model, false);
    make_cut(&cuts[1], model, true);
    const bool two = cuts[1].possible && model->config->hidden > SMALL_HIDDEN;
    int rc = lily_dev_ref.open(&p.b.ref, &(lily_dev_options){0}, e);
    if (rc == LILY_OK) rc = prove_cut(&p, &cuts[0], two || ask->chunk < 2 ? 0 : least(PROMPT, ask->chunk), e);
    if (rc == LILY_OK && two) rc = prove_cut(&p, &cuts[1], ask->chunk < 2 ? 0 : least(PROMPT, ask->chunk), e);
    if (p.b.ref) lily_dev_ref.close(p.b.ref);
    if (ops->look) ops->look(dev, model);
    lily_free(cuts);
    if (rc == LILY_OK)
        lily_log(LILY_LOG_DEBUG, "rows of device %s proved against ref in %.2f s", ops->name, (double)(lily_now_ns() - start) / 1e9);
    return rc;
}
